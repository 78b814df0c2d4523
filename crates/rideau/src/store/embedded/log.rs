//! Batches in plain files, each tied to the one before it.
//!
//! A record holds its number, the check of the record before, and its own check
//! over all that is in it. So a record that is whole says that all before it
//! were acknowledged, since the next is written only after that. Only the last
//! one may be torn, and the [mark](super::mark) tells whether it may.

use std::fs::{self, File};
use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::Xxh3;

use super::pages::Pages;
use super::place::Place;
use super::private;
use crate::store::StoreError;

/// Room is made in steps, with zeros, so that a batch changes no length and no
/// map of blocks: then the disk has one thing to write.
const STEP: usize = 1024 * 1024;
const OPENING: &[u8; 8] = b"rideau 1";
const OPENING_LEN: usize = 48;
const RECORD: u32 = 0x6f5d_1be3;
const RECORD_LEN: usize = 32;

/// How far a log reaches: the number and the check of its last record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reach {
    pub(super) number: u64,
    pub(super) check: u64,
}

/// A file that is written.
#[derive(Debug)]
pub(super) struct Log {
    path: PathBuf,
    pages: Pages,
    salt: u64,
    /// How far zeros have been written.
    room: u64,
    /// After which record the file goes on.
    begins_after: Reach,
    reach: Reach,
    record: Vec<u8>,
}

impl Log {
    pub(super) fn path_of(folder: &Path, file: u64) -> PathBuf {
        folder.join(format!("{file:010}.log"))
    }

    /// Creates a file that goes on after `reach`, with a first batch if there is
    /// one. It has its name only once all of that is on the disk.
    pub(super) fn create(
        folder: &Path,
        file: u64,
        salt: u64,
        reach: Reach,
        first: Option<&[u8]>,
    ) -> Result<Self, StoreError> {
        let path = Self::path_of(folder, file);
        let new = path.with_extension("new");
        let opening = opening(file, salt, reach);
        let begin = || {
            let mut begun = private::create_file(&new)?;
            begun.write_all(&opening)?;
            begun.sync_all()?;
            Ok(begun)
        };
        let begun = begin().map_err(|error| StoreError::of("begin a log", &path, error))?;
        let end = OPENING_LEN as u64;
        let mut log = Self {
            pages: Pages::new(begun, &opening, end),
            path,
            salt,
            room: end,
            begins_after: reach,
            reach,
            record: Vec::new(),
        };
        if let Some(batch) = first {
            log.append(batch)?;
        }
        let named = fs::rename(&new, &log.path).and_then(|()| sync_folder(folder));
        named.map_err(|error| StoreError::of("name a log", &log.path, error))?;
        Ok(log)
    }

    /// Goes on with a file that was read to its end.
    pub(super) fn resume(written: &Written, salt: u64) -> Result<Self, StoreError> {
        let open = || {
            let file = File::options().write(true).open(&written.path)?;
            let room = file.metadata()?.len();
            Ok((file, room))
        };
        let (file, room) =
            open().map_err(|error| StoreError::of("open the log", &written.path, error))?;
        let end = written.end;
        let head = &written.bytes[end - Pages::on_last_page(end)..end];
        Ok(Self {
            path: written.path.clone(),
            pages: Pages::new(file, head, end as u64),
            salt,
            room,
            begins_after: written.begins_after,
            reach: written.reach,
            record: Vec::new(),
        })
    }

    /// Writes a batch, and returns when it is on the disk.
    pub(super) fn append(&mut self, batch: &[u8]) -> Result<(), StoreError> {
        let number = self.reach.number + 1;
        let check = self.frame(number, batch);
        let written = self.put();
        written.map_err(|error| StoreError::of("write a batch", &self.path, error))?;
        self.reach = Reach { number, check };
        Ok(())
    }

    pub(super) fn reach(&self) -> Reach {
        self.reach
    }

    pub(super) fn begins_after(&self) -> Reach {
        self.begins_after
    }

    /// How far it would reach with this batch after `reach`.
    pub(super) fn reach_with(&self, reach: Reach, batch: &[u8]) -> Reach {
        let number = reach.number + 1;
        let head = head(number, reach.check, batch);
        let check = check_of(self.salt, &[&head, batch]);
        Reach { number, check }
    }

    /// The file that has its name, as it is now.
    pub(super) fn place(&self) -> Result<Place, StoreError> {
        Place::of(&self.path, self.pages.file())
    }

    fn put(&mut self) -> io::Result<()> {
        let end = self.pages.end() + self.record.len() as u64;
        if end > self.room {
            let room = end.next_multiple_of(STEP as u64);
            self.pages.clear(self.room, room, STEP)?;
            self.room = room;
        }
        self.pages.append(&self.record)?;
        self.pages.sync()
    }

    /// Puts a record together and returns its check.
    fn frame(&mut self, number: u64, batch: &[u8]) -> u64 {
        self.record.clear();
        self.record.extend(head(number, self.reach.check, batch));
        let check = check_of(self.salt, &[&self.record, batch]);
        self.record.extend(check.to_le_bytes());
        self.record.extend(batch);
        check
    }
}

/// A file as it was found.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) path: PathBuf,
    bytes: Vec<u8>,
    salt: u64,
    /// Where the first record begins that was not read.
    end: usize,
    begins_after: Reach,
    reach: Reach,
    /// After which record the last one that was read goes on, and where its
    /// batch is.
    last: Option<(Reach, Range<usize>)>,
}

/// A record that is whole.
pub(super) struct Record<'a> {
    pub(super) number: u64,
    pub(super) check: u64,
    before: u64,
    pub(super) batch: &'a [u8],
}

impl Written {
    /// Reads a file, and says after which record it goes on.
    pub(super) fn open(folder: &Path, file: u64, salt: u64) -> Result<Self, StoreError> {
        let path = Log::path_of(folder, file);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let what = "this log is needed and is not there".into();
                return Err(StoreError::Corrupt { what, path });
            }
            Err(error) => return Err(StoreError::of("read the log", &path, error)),
        };
        let reach = bytes.get(..OPENING_LEN).map(|found| Reach {
            number: number_at(found, 16),
            check: number_at(found, 24),
        });
        match reach {
            Some(reach) if bytes.starts_with(&opening(file, salt, reach)) => Ok(Self {
                path,
                bytes,
                salt,
                end: OPENING_LEN,
                begins_after: reach,
                reach,
                last: None,
            }),
            _ => Err(StoreError::Corrupt {
                what: "the first bytes of this log are not as they were written".into(),
                path,
            }),
        }
    }

    /// The last record that was read, or the one before the first.
    pub(super) fn reach(&self) -> Reach {
        self.reach
    }

    /// The next record, if it is whole and follows the last one.
    pub(super) fn peek(&self) -> Option<Record<'_>> {
        let record = self.record_at(self.end)?;
        let follows = record.number == self.reach.number + 1 && record.before == self.reach.check;
        follows.then_some(record)
    }

    /// Goes past the record that [`peek`](Self::peek) showed.
    pub(super) fn pass(&mut self) {
        if let Some(record) = self.peek() {
            let reach = Reach {
                number: record.number,
                check: record.check,
            };
            let start = self.end + RECORD_LEN;
            self.end = start + record.batch.len();
            self.last = Some((self.reach, start..self.end));
            self.reach = reach;
        }
    }

    /// The last batch that was read, and after which record it comes.
    pub(super) fn last(&self) -> Option<(Reach, &[u8])> {
        let (before, batch) = self.last.clone()?;
        Some((before, &self.bytes[batch]))
    }

    /// Whether anything was written behind the last record.
    pub(super) fn has_tail(&self) -> bool {
        self.bytes[self.end..].iter().any(|&byte| byte != 0)
    }

    /// Where the tail begins.
    pub(super) fn end(&self) -> usize {
        self.end
    }

    /// A later record that is whole: so the one that should be here was
    /// acknowledged, and is damaged.
    pub(super) fn survivor(&self) -> Option<u64> {
        let tail = &self.bytes[self.end..];
        let at = |at: usize| self.record_at(self.end + at);
        // The constant of a record comes after its length.
        let starts = tail
            .windows(8)
            .enumerate()
            .filter(|(_, found)| found[4..] == RECORD.to_le_bytes());
        starts
            .filter_map(|(start, _)| at(start))
            .map(|record| record.number)
            .find(|&number| number > self.reach.number)
    }

    fn record_at(&self, at: usize) -> Option<Record<'_>> {
        let bytes = self.bytes.get(at..)?;
        let head = bytes.get(..RECORD_LEN)?;
        let len = u32::from_le_bytes(head[..4].try_into().ok()?) as usize;
        let batch = bytes.get(RECORD_LEN..)?.get(..len)?;
        let check = number_at(head, 24);
        let whole = head[4..8] == RECORD.to_le_bytes()
            && check == check_of(self.salt, &[&head[..24], batch]);
        whole.then(|| Record {
            number: number_at(head, 8),
            before: number_at(head, 16),
            check,
            batch,
        })
    }
}

/// The numbers of the log files in a folder, in order.
pub(super) fn files(folder: &Path) -> Result<Vec<u64>, StoreError> {
    let list = || {
        let mut files = Vec::new();
        for entry in fs::read_dir(folder)? {
            let name = entry?.file_name();
            let number = name.to_str().and_then(|name| name.strip_suffix(".log"));
            files.extend(number.and_then(|number| number.parse::<u64>().ok()));
        }
        files.sort_unstable();
        Ok(files)
    };
    list().map_err(|error| StoreError::of("list the logs", folder, error))
}

/// A log does not go on where it should.
pub(super) fn gap(written: &Written, reach: Reach) -> StoreError {
    StoreError::Corrupt {
        what: format!(
            "this log does not go on after batch {}, or that is another batch now",
            reach.number
        ),
        path: written.path.clone(),
    }
}

/// Something that was acknowledged is not there.
pub(super) fn lost(written: &Written, until: u64) -> StoreError {
    StoreError::Corrupt {
        what: format!(
            "batch {} at byte {} is not as it was written, and all up to batch {until} \
             were acknowledged",
            written.reach().number + 1,
            written.end()
        ),
        path: written.path.clone(),
    }
}

/// Makes names that were given or taken in a folder outlive a power cut.
pub(super) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// A check that only this store makes: what comes from outside cannot look like
/// a record of it.
pub(super) fn check_of(salt: u64, parts: &[&[u8]]) -> u64 {
    let mut hash = Xxh3::with_seed(salt);
    for part in parts {
        hash.update(part);
    }
    hash.digest()
}

/// The number in the eight bytes from `at`.
pub(super) fn number_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(
        bytes[at..at + 8]
            .try_into()
            .expect("eight bytes were cut out"),
    )
}

/// What comes before the check of a record.
fn head(number: u64, before: u64, batch: &[u8]) -> [u8; RECORD_LEN - 8] {
    let len = u32::try_from(batch.len()).expect("a batch has a limit far below");
    let mut bytes = [0; RECORD_LEN - 8];
    bytes[..4].copy_from_slice(&len.to_le_bytes());
    bytes[4..8].copy_from_slice(&RECORD.to_le_bytes());
    bytes[8..16].copy_from_slice(&number.to_le_bytes());
    bytes[16..].copy_from_slice(&before.to_le_bytes());
    bytes
}

fn opening(file: u64, salt: u64, reach: Reach) -> [u8; OPENING_LEN] {
    let mut bytes = [0; OPENING_LEN];
    bytes[..8].copy_from_slice(OPENING);
    bytes[8..16].copy_from_slice(&file.to_le_bytes());
    bytes[16..24].copy_from_slice(&reach.number.to_le_bytes());
    bytes[24..32].copy_from_slice(&reach.check.to_le_bytes());
    let check = check_of(salt, &[&bytes[..40]]);
    bytes[40..].copy_from_slice(&check.to_le_bytes());
    bytes
}
