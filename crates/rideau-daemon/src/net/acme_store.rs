//! The folder of an authority: our account there, the certificates with their keys, and what
//! was ordered.
//!
//! A new key and its certificate are written beside the old ones and put in their places one
//! after the other. Whenever the server is killed, one whole pair can be read: the new one as
//! soon as its certificate is written, and the old one before.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rideau_config::Config;
use rideau_core::Instant;
use rideau_core::acme::{AcmeEvent, AcmeHost, AcmeRecord};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::tls::{self, StoredPair};
use crate::state::values;

const ACCOUNT: &str = "account.json";
const ORDERS: &str = "orders.json";
const LOCK: &str = "lock";
const KEY: &str = "key.pem";
const CERT: &str = "cert.pem";
const NEW_KEY: &str = "key.new.pem";
const NEW_CERT: &str = "cert.new.pem";
/// Both files of a pair, the likeliest new one first.
const PAIRS: [(&str, &str); 3] = [(NEW_CERT, NEW_KEY), (NEW_CERT, KEY), (CERT, KEY)];

/// The folder of an authority, which no other server has.
pub(super) struct Store {
    folder: PathBuf,
    _lock: File,
}

/// Our account.
#[derive(Serialize, Deserialize)]
pub(super) struct StoredAccount {
    /// Its mail address, if it has one.
    pub(super) contact: Option<String>,
    /// What `instant_acme` wants to know of it.
    pub(super) credentials: serde_json::Value,
}

/// What counts for the limits, as it is written.
#[derive(Serialize, Deserialize)]
struct StoredRecord {
    host: String,
    /// Seconds since 1970.
    at: u64,
    event: String,
}

const EVENTS: [(&str, AcmeEvent); 3] = [
    ("first-ordered", AcmeEvent::FirstOrdered),
    ("failed", AcmeEvent::Failed),
    ("issued", AcmeEvent::Issued),
];

/// The folder for an authority: those of trials are not mixed up with others.
pub(super) fn folder(config: &Config) -> Option<PathBuf> {
    let acme = config.front.acme.as_ref()?;
    let path = acme.path.clone();
    let path = path.unwrap_or_else(|| values::folder(config).join("acme"));
    let url = acme.directory.url().trim_start_matches("https://");
    let name = url.chars().map(|c| match c {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '-' | '.' => c,
        _ => '_',
    });
    Some(path.join(name.collect::<String>()))
}

/// Where the pairs of a host may be, the newest first. Not every one is there, and not every
/// one is whole.
fn pairs(folder: &Path, host: &str) -> [StoredPair; 3] {
    let folder = folder.join(host);
    PAIRS.map(|(cert, key)| StoredPair {
        cert: folder.join(cert),
        key: folder.join(key),
    })
}

/// The pair of each of these hosts that is whole, if there is one.
pub(super) fn stored(config: &Config, hosts: &[AcmeHost]) -> Vec<(String, StoredPair)> {
    let Some(folder) = folder(config) else {
        return Vec::new();
    };
    let found = |host: &AcmeHost| Some((host.name.clone(), stored_pair(&folder, &host.name)?));
    hosts.iter().filter_map(found).collect()
}

/// The pair of a host.
pub(super) fn stored_pair(folder: &Path, host: &str) -> Option<StoredPair> {
    pairs(folder, host).into_iter().find(tls::is_whole)
}

impl Store {
    /// Open it, or say why not.
    pub(super) fn open(folder: PathBuf) -> io::Result<Self> {
        private_folder(&folder)?;
        let mut options = OpenOptions::new();
        let lock = options.create(true).truncate(false).write(true).mode(0o600);
        let lock = lock.open(folder.join(LOCK))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self {
                folder,
                _lock: lock,
            }),
            Err(Errno::WOULDBLOCK) => Err(io::Error::other(
                "another server has it: stop that one, or give this one another front.acme.path",
            )),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Our account, if there is one.
    pub(super) fn account(&self) -> io::Result<Option<StoredAccount>> {
        let Some(text) = read_if_there(&self.folder.join(ACCOUNT))? else {
            return Ok(None);
        };
        let account = serde_json::from_slice(&text);
        account.map(Some).map_err(|error| {
            let path = self.folder.join(ACCOUNT);
            io::Error::other(format!("{}: {error}", path.display()))
        })
    }

    pub(super) fn keep_account(&self, account: &StoredAccount) -> io::Result<()> {
        write(&self.folder, ACCOUNT, &serde_json::to_vec(account)?)
    }

    /// The authority knows it no more.
    pub(super) fn forget_account(&self) -> io::Result<()> {
        match fs::remove_file(self.folder.join(ACCOUNT)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// What was ordered. A file that cannot be read counts as none.
    pub(super) fn records(&self) -> Vec<AcmeRecord> {
        let text = fs::read(self.folder.join(ORDERS)).unwrap_or_default();
        let all: Vec<StoredRecord> = serde_json::from_slice(&text).unwrap_or_default();
        let read = |one: StoredRecord| {
            let known = EVENTS.iter().find(|(word, _)| *word == one.event);
            let event = known.map(|(_, event)| *event)?;
            Some(AcmeRecord {
                host: one.host,
                at: Instant::START + Duration::from_secs(one.at),
                event,
            })
        };
        all.into_iter().filter_map(read).collect()
    }

    pub(super) fn keep_records(&self, records: &[AcmeRecord]) -> io::Result<()> {
        let all = records.iter().map(|record| StoredRecord {
            host: record.host.clone(),
            at: record.at.as_nanos() / 1_000_000_000,
            event: EVENTS
                .iter()
                .find(|(_, event)| *event == record.event)
                .map_or("", |(word, _)| word)
                .into(),
        });
        let all: Vec<_> = all.collect();
        write(&self.folder, ORDERS, &serde_json::to_vec(&all)?)
    }

    /// Keep a new pair of a host. It can be read as soon as its certificate is written.
    pub(super) fn keep_pair(&self, host: &str, cert: &str, key: &str) -> io::Result<()> {
        let folder = self.folder.join(host);
        for step in Self::steps(&folder, cert, key) {
            step()?;
        }
        Ok(())
    }

    /// Each of these is done or not, wherever the server is killed.
    fn steps<'a>(
        folder: &'a Path,
        cert: &'a str,
        key: &'a str,
    ) -> [Box<dyn Fn() -> io::Result<()> + 'a>; 6] {
        let into_place = |from: &'static str, to: &'static str| {
            move || {
                fs::rename(folder.join(from), folder.join(to))?;
                File::open(folder)?.sync_all()
            }
        };
        [
            Box::new(|| private_folder(folder)),
            // What is left of one that was not finished goes first, so that no certificate is
            // beside a key that is not its own.
            Box::new(|| finish(folder)),
            Box::new(|| write(folder, NEW_KEY, key.as_bytes())),
            Box::new(|| write(folder, NEW_CERT, cert.as_bytes())),
            Box::new(into_place(NEW_KEY, KEY)),
            Box::new(into_place(NEW_CERT, CERT)),
        ]
    }

    /// Put what was begun in its place, for all hosts.
    pub(super) fn finish_pairs(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                finish(&entry.path())?;
            }
        }
        Ok(())
    }
}

/// Put a new pair in its place, if both of it are there; take away what is left of one that
/// is not whole.
fn finish(folder: &Path) -> io::Result<()> {
    let has = |name: &str| folder.join(name).exists();
    if has(NEW_CERT) {
        if has(NEW_KEY) {
            fs::rename(folder.join(NEW_KEY), folder.join(KEY))?;
        }
        fs::rename(folder.join(NEW_CERT), folder.join(CERT))?;
        File::open(folder)?.sync_all()?;
    } else if has(NEW_KEY) {
        fs::remove_file(folder.join(NEW_KEY))?;
    }
    Ok(())
}

fn private_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

fn read_if_there(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Write a file that is there as a whole, or as it was.
fn write(folder: &Path, name: &str, text: &[u8]) -> io::Result<()> {
    let new = folder.join(format!(".{name}"));
    let mut options = OpenOptions::new();
    let mut file = options
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(&new)?;
    file.write_all(text)?;
    file.sync_all()?;
    fs::rename(&new, folder.join(name))?;
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rideau_testing::certificates::{Identity, papers, signer};
    use std::os::unix::fs::PermissionsExt;
    use std::sync::atomic::{AtomicUsize, Ordering};

    struct Scratch(PathBuf);

    impl Scratch {
        fn new() -> Self {
            static NEXT: AtomicUsize = AtomicUsize::new(0);
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let name = format!("rideau-acme-{}-{number}", std::process::id());
            let path = std::env::temp_dir().join(name);
            let _ = fs::remove_dir_all(&path);
            Self(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// The certificate that would be served.
    fn served(folder: &Path) -> Option<String> {
        let pair = stored_pair(folder, "shop.example")?;
        Some(fs::read_to_string(pair.cert).unwrap())
    }

    #[test]
    fn one_whole_pair_is_there_after_every_step() {
        let signer = signer("an authority");
        let [first, second, third]: [Identity; 3] =
            std::array::from_fn(|_| papers("shop", &signer));
        let (old, new) = (first.certificate(), second.certificate());
        for done in 0..=6 {
            for has_old in [false, true] {
                let scratch = Scratch::new();
                let store = Store::open(scratch.0.clone()).unwrap();
                if has_old {
                    store.keep_pair("shop.example", &old, &first.key()).unwrap();
                }
                let folder = scratch.0.join("shop.example");
                let key = second.key();
                for step in &Store::steps(&folder, &new, &key)[..done] {
                    step().unwrap();
                }
                let expected = match (done >= 4, has_old) {
                    (true, _) => Some(&new),
                    (false, true) => Some(&old),
                    (false, false) => None,
                };
                assert_eq!(served(&scratch.0).as_ref(), expected, "{done} {has_old}");
                // And after the next start, and the next certificate.
                drop(store);
                let store = Store::open(scratch.0.clone()).unwrap();
                store.finish_pairs().unwrap();
                assert_eq!(served(&scratch.0).as_ref(), expected, "{done} {has_old}");
                let (cert, key) = (third.certificate(), third.key());
                store.keep_pair("shop.example", &cert, &key).unwrap();
                assert_eq!(served(&scratch.0), Some(cert), "{done} {has_old}");
            }
        }
    }

    #[test]
    fn nothing_is_open_to_others_and_no_two_servers_have_it() {
        let scratch = Scratch::new();
        let store = Store::open(scratch.0.clone()).unwrap();
        let papers = papers("shop", &signer("an authority"));
        let (cert, key) = (papers.certificate(), papers.key());
        store.keep_pair("*.shop.example", &cert, &key).unwrap();
        store.keep_records(&[]).unwrap();
        let account = StoredAccount {
            contact: None,
            credentials: serde_json::json!({ "id": "a" }),
        };
        store.keep_account(&account).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let host = scratch.0.join("*.shop.example");
        for folder in [&scratch.0, &host] {
            assert_eq!(mode(folder), 0o700);
            for file in fs::read_dir(folder).unwrap().flatten() {
                if file.file_type().unwrap().is_file() {
                    assert_eq!(mode(&file.path()), 0o600, "{:?}", file.path());
                }
            }
        }
        let second = Store::open(scratch.0.clone()).err().unwrap();
        assert!(second.to_string().contains("another server has it"));
        drop(store);
        assert!(Store::open(scratch.0.clone()).is_ok());
    }

    #[test]
    fn what_was_ordered_is_read_again_and_what_is_no_list_is_none() {
        let scratch = Scratch::new();
        let store = Store::open(scratch.0.clone()).unwrap();
        assert_eq!(store.records(), []);
        let records = EVENTS.map(|(_, event)| AcmeRecord {
            host: "shop.example".into(),
            at: Instant::START + Duration::from_secs(1_800_000_000),
            event,
        });
        store.keep_records(&records).unwrap();
        assert_eq!(store.records(), records);
        fs::write(scratch.0.join(ORDERS), "[{\"host\":").unwrap();
        assert_eq!(store.records(), []);
    }
}
