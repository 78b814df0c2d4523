//! Where fences begin: above all that were given before, whatever the clock says.
//!
//! A fence is an epoch and a count, `epoch << 32 | count`. The newest epoch of a server is
//! written down before it is used, and the next start begins with the one after it, or with
//! the microseconds of the clock if these are more.

use std::fs::{self, File};
use std::hash::Hasher;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use rideau_config::{Config, StoreKind};
use siphasher::sip::SipHasher24;

use crate::state::values;

/// Bits of the count. It holds 71 minutes in microseconds.
const COUNT: u32 = 32;
/// A clock that says more is wrong (it is the year 2174): fences have to stay below
/// 2^53, so that every language has them exactly.
const CLOCK_MAX: u64 = 1_500_000;
/// The next epoch is written down while this many of this one are left.
const AHEAD: u64 = 1 << (COUNT - 1);
/// The file, within the folder of the store.
const NAME: &str = "fences";
const TITLE: &str = "rideau fences 1";

/// The epochs of one server.
#[derive(Debug)]
pub(crate) struct Epochs {
    /// Where they are written down, if they are.
    file: Option<PathBuf>,
    first: u64,
    /// The newest that is written down.
    written: Mutex<u64>,
}

impl Epochs {
    /// Epochs from the clock alone; nothing is stored.
    pub(crate) fn by_clock() -> Self {
        Self {
            file: None,
            first: micros(),
            written: Mutex::new(0),
        }
    }

    /// A new epoch for what a config says. If it cannot be written down, the clock has to
    /// do, and the log says so.
    pub(crate) fn begin(config: &Config) -> Self {
        let mut epochs = Self::by_clock();
        if config.store.kind == StoreKind::Memory {
            return epochs;
        }
        let file = values::folder(config).join(NAME);
        if !config.locks.is_empty() {
            match next(&file, epochs.first) {
                Ok((first, epoch)) => {
                    epochs.first = first;
                    *epochs.written.lock() = epoch;
                }
                Err(error) => tell(&file, &error),
            }
        }
        epochs.file = Some(file);
        epochs
    }

    /// Fences are larger than this.
    pub(crate) const fn first(&self) -> u64 {
        self.first
    }

    /// At most this many fences were given since the start: see to it that the next
    /// start begins above all of them.
    pub(crate) fn follow(&self, given: u64, config: &Config) {
        let Some(file) = self.file.as_ref().filter(|_| !config.locks.is_empty()) else {
            return;
        };
        let reached = (self.first + given + AHEAD) >> COUNT;
        let mut written = self.written.lock();
        if *written >= reached {
            return;
        }
        match change(file, |before| {
            before.map_or(reached, |before| before.max(reached))
        }) {
            Ok(epoch) => *written = epoch,
            Err(error) => {
                // It is said once.
                *written = reached;
                tell(file, &error);
            }
        }
    }
}

fn tell(file: &Path, error: &io::Error) {
    tracing::warn!(
        "{} cannot be kept: {error}. Fences of locks follow the clock alone: they grow over \
         restarts unless it is set back. Let store.path name a folder that can be written.",
        file.display()
    );
}

/// Where the next start begins, above the one before and not below the clock, and the
/// epoch that is written down for it.
fn next(file: &Path, clock: u64) -> io::Result<(u64, u64)> {
    let clock = match clock >> COUNT {
        ..CLOCK_MAX => clock,
        _ => 0,
    };
    let mut first = clock;
    let epoch = change(file, |before| {
        first = before.map_or(clock, |before| clock.max((before + 1) << COUNT));
        (first + AHEAD) >> COUNT
    })?;
    Ok((first, epoch))
}

/// Replace the epoch in a file, while no other process does. Says what it is now.
fn change(file: &Path, by: impl FnOnce(Option<u64>) -> u64) -> io::Result<u64> {
    let folder = file.parent().unwrap_or(Path::new("/"));
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)?;
    let mut options = File::options();
    options.write(true).create(true).mode(0o600);
    let lock = options
        .clone()
        .truncate(false)
        .open(file.with_extension("lock"))?;
    lock.lock()?;
    let before = match fs::read_to_string(file) {
        Ok(text) => read(&text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) if error.kind() == io::ErrorKind::InvalidData => None,
        Err(error) => return Err(error),
    };
    if before.is_none() && file.exists() {
        tracing::warn!(
            "{} is damaged: fences of locks begin at the clock, which is right unless it was set \
             back",
            file.display()
        );
    }
    let epoch = by(before);
    let new = file.with_extension("new");
    let mut out = options.truncate(true).open(&new)?;
    out.write_all(text(epoch).as_bytes())?;
    out.sync_all()?;
    fs::rename(&new, file)?;
    File::open(folder)?.sync_all()?;
    Ok(epoch)
}

fn text(epoch: u64) -> String {
    let head = format!("{TITLE} {epoch}");
    let sum = checksum(&head);
    format!("{head} {sum:016x}\n")
}

fn read(text: &str) -> Option<u64> {
    let (head, sum) = text.strip_suffix('\n')?.rsplit_once(' ')?;
    let is_whole = u64::from_str_radix(sum, 16) == Ok(checksum(head));
    let epoch = head.strip_prefix(TITLE)?.trim().parse().ok()?;
    is_whole.then_some(epoch)
}

fn checksum(text: &str) -> u64 {
    let mut hasher = SipHasher24::new();
    hasher.write(text.as_bytes());
    hasher.finish()
}

fn micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_micros() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rideau_testing::Scratch;

    #[test]
    fn every_start_begins_above_the_one_before_whatever_the_clock_says() {
        let folder = Scratch::new();
        let file = folder.path().join("deep/fences");
        let now = 417_000 << COUNT | 5;
        assert_eq!(next(&file, now).unwrap().0, now, "nothing is known");
        // The clock goes on, stands, is set back, is wrong, and is right again.
        let clocks = [now + 9, now, 100, 0, u64::MAX, now, now + (900 << COUNT)];
        let mut last = now;
        for clock in clocks {
            let (first, epoch) = next(&file, clock).unwrap();
            // This many were given before the next look.
            assert!(first > last, "{first} after {last}");
            last = first + AHEAD - 1;
            assert!(epoch >= last >> COUNT);
        }
        assert!(
            last >= now + (900 << COUNT),
            "the clock counts if it is ahead"
        );
        assert!(last < 1 << 53);
    }

    #[test]
    fn what_is_damaged_is_not_believed() {
        for text in ["", "rideau fences 1 7 0\n", "rideau fences 2 7 0\n", "\n"] {
            assert_eq!(read(text), None, "{text:?}");
        }
        let good = text(7);
        assert_eq!(read(&good), Some(7));
        assert_eq!(read(&good.replace(" 7 ", " 8 ")), None);
    }

    #[test]
    fn more_fences_than_an_epoch_has_take_the_next_one() {
        let folder = Scratch::new();
        let place = folder.path().display();
        let text = format!("[store]\npath = \"{place}\"\n[lock.\"*\"]\n");
        let config = Config::parse(&text, "test.toml", &|_| None).unwrap();
        let epochs = Epochs::begin(&config);
        let kept = || read(&fs::read_to_string(folder.path().join(NAME)).unwrap()).unwrap();
        for given in [0, 1_000, 1 << 31, 3 << 32] {
            epochs.follow(given, &config);
            assert_eq!(kept(), (epochs.first() + given + AHEAD) >> COUNT, "{given}");
        }
        assert!(Epochs::begin(&config).first() > epochs.first() + (3 << 32));
    }
}
