//! The records of children in a daemon's folder, and the end of those that a killed
//! daemon left.
//!
//! No process is killed on the word of a number alone. The record has the instant
//! at which the child started and the system's boot, and where those do not fit any
//! more, only a process that was started with our variable is ended.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io, thread};

use super::group::kill;
use super::process_list::MARK;
use super::procfs::{self, Seen};

/// How often, and how many times at most, the processes that are left are looked
/// for.
pub(super) const CLEANING_EVERY: Duration = Duration::from_millis(10);
const CLEANING_TIMES: usize = 100;

/// The stored record of a child.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Record {
    pid: i32,
    since: u64,
    boot: String,
}

impl Record {
    pub(super) fn of(seen: Seen) -> Self {
        Self {
            pid: seen.pid,
            since: seen.since,
            boot: procfs::boot(),
        }
    }

    pub(super) fn text(&self) -> String {
        format!("{} {} {}\n", self.pid, self.since, self.boot)
    }

    /// A record without its end was not written to the end.
    fn read(text: &str) -> Option<Self> {
        let mut words = text.strip_suffix('\n')?.split(' ');
        Some(Self {
            pid: words.next()?.parse().ok().filter(|pid| *pid > 1)?,
            since: words.next()?.parse().ok()?,
            boot: words.next()?.to_owned(),
        })
    }

    /// Is this still the same process, and does it lead its group?
    fn names(&self, seen: Seen) -> bool {
        let leads = seen.pid == self.pid && seen.group == self.pid;
        leads && seen.since == self.since && self.boot == procfs::boot()
    }
}

pub(super) fn record(folder: &str, id: u64) -> PathBuf {
    format!("{folder}/{id}.pid").into()
}

/// The child may write to it, so nothing but the child relies on what is in it.
pub(super) fn own_folder(folder: &str, id: u64) -> String {
    format!("{folder}/{id}.d")
}

pub(super) fn mark(folder: &str, id: u64) -> String {
    format!("{folder}/{id}")
}

/// End what an earlier daemon left, and say how many groups that were.
pub(super) fn clean(folder: &str) -> io::Result<usize> {
    let records = records(folder)?;
    let mut groups = HashSet::new();
    let mut kept = HashSet::new();
    for _ in 0..CLEANING_TIMES {
        let mut left = left(folder, &records);
        // Another user's by now: the record stays as a warning.
        left.retain(|(id, _)| !kept.contains(id));
        if left.is_empty() {
            break;
        }
        for (id, seen) in left {
            match kill(seen) {
                Ok(()) | Err(rustix::io::Errno::SRCH) => _ = groups.insert(seen.group),
                Err(_) => _ = kept.insert(id),
            }
        }
        thread::sleep(CLEANING_EVERY);
    }
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        match part(&path) {
            Some((id, "pid")) if kept.contains(&id) => (),
            Some((_, "sock" | "notify" | "pid")) => fs::remove_file(path)?,
            Some((_, "d")) => fs::remove_dir_all(path)?,
            _ => (),
        }
    }
    Ok(groups.len())
}

/// The child of a file in the folder, and the kind of the file.
fn part(path: &Path) -> Option<(u64, &str)> {
    let id = path.file_stem()?.to_str()?.parse().ok()?;
    Some((id, path.extension()?.to_str()?))
}

/// The children that were written down, and those that may have been started and
/// were not.
fn records(folder: &str) -> io::Result<HashMap<u64, Option<Record>>> {
    let mut records = HashMap::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if let Some((id, "pid")) = part(&path) {
            records.insert(id, Record::read(&fs::read_to_string(&path)?));
        }
    }
    Ok(records)
}

/// What is left of the children: those written down, and all processes that were
/// started with the variable of one of them, wherever they went.
fn left(folder: &str, records: &HashMap<u64, Option<Record>>) -> Vec<(u64, Seen)> {
    if records.is_empty() {
        return Vec::new();
    }
    let named = |seen: &Seen| {
        let mut named = records.iter();
        let found = named.find(|(_, record)| {
            let record = record.as_ref();
            record.is_some_and(|record| record.names(*seen))
        });
        found.map(|(id, _)| *id)
    };
    let marked = |seen: &Seen| {
        let mark = procfs::variable(seen.pid, MARK)?;
        let id = mark.strip_prefix(folder)?.strip_prefix('/')?.parse().ok()?;
        records.contains_key(&id).then_some(id)
    };
    let all = procfs::all().into_iter().filter(|seen| !seen.ended);
    all.filter_map(|seen| Some((named(&seen).or_else(|| marked(&seen))?, seen)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::Record;

    #[test]
    fn a_record_is_read_as_it_was_written_or_not_at_all() {
        let record = Record {
            pid: 4711,
            since: 99,
            boot: "5-6".to_owned(),
        };
        let text = record.text();
        assert_eq!(Record::read(&text), Some(record));
        for end in 0..text.len() {
            assert_eq!(Record::read(&text[..end]), None, "{end}");
        }
        assert_eq!(Record::read("1 99 5-6\n"), None);
        assert_eq!(Record::read("-5 99 5-6\n"), None);
    }
}
