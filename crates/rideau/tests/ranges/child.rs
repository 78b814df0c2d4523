//! The part of a test that runs in a process of its own, to be killed or to
//! have its system calls fail.

use std::env;
use std::fs;
use std::path::Path;
use std::thread;

use rideau::allocator::{Ask, Change, Field, Fields, Key, RangeOptions, Seen, Span, Which};
use rideau::store::{Embedded, Platter};
use rideau::{Failed, OpenError, Ranges, RangesOptions};

use crate::process::Process;
use crate::rig::{anywhere, held};
use crate::stage::{Folder, Rng};

const FOLDER: &str = "RIDEAU_RANGES_FOLDER";
const ROLE: &str = "RIDEAU_RANGES_ROLE";
const SEED: &str = "RIDEAU_RANGES_SEED";

pub(crate) const THREADS: usize = 4;
/// How many values there are: few enough that all are used again and again.
const VALUES: &str = "0-399";

/// What a child does.
pub(crate) struct Role<'a> {
    pub(crate) name: &'a str,
    pub(crate) folder: &'a Path,
    pub(crate) seed: u64,
}

impl Role<'_> {
    pub(crate) fn start(&self, settings: &[(&str, String)]) -> Process {
        let own = [
            (ROLE, self.name.to_owned()),
            (FOLDER, self.folder.display().to_string()),
            (SEED, self.seed.to_string()),
        ];
        Process::start("child::the_other_process", own.iter().chain(settings))
    }
}

/// All that a child says that needs no folder.
pub(crate) fn alone(name: &str) -> Vec<String> {
    let role = Role {
        name,
        folder: Path::new(""),
        seed: 0,
    };
    hear_all(role.start(&[]))
}

pub(crate) fn hear_all(mut process: Process) -> Vec<String> {
    let said = std::iter::from_fn(|| process.hear()).collect();
    process.child.wait().unwrap();
    said
}

/// The ranges in a folder, with snapshots so often that kills hit some.
pub(crate) fn open(folder: &Path) -> Result<Ranges, OpenError> {
    let store = Embedded::open(folder).map_err(OpenError::Store)?;
    let sync = RangeOptions::new(vec![Span::parse(VALUES).unwrap()]);
    let options = RangesOptions {
        ranges: vec![("sync".to_owned(), sync)],
        log_bytes_min: 40_000,
        partitions: crate::partitions(),
        ..RangesOptions::default()
    };
    Ranges::open(Box::new(store), options)
}

pub(crate) fn open_folder(folder: &Folder) -> Ranges {
    open(&folder.0).unwrap()
}

#[test]
fn the_other_process() {
    let (Ok(role), Ok(folder)) = (env::var(ROLE), env::var(FOLDER)) else {
        return;
    };
    let seed = env::var(SEED).unwrap().parse().unwrap();
    match role.as_str() {
        "busy" => busy(Path::new(&folder), seed),
        "brief" => brief(Path::new(&folder), seed),
        "threads" => threads(),
        other => panic!("there is no role {other}"),
    }
}

/// Reserves, writes and releases in several threads until it is killed. Says
/// what it is about to do, and that it was told that it is done.
fn busy(folder: &Path, seed: u64) {
    let ranges = open(folder).unwrap();
    let held = held(&ranges);
    println!("child: ready");
    thread::scope(|scope| {
        for at in 0..THREADS {
            let own = held.iter().filter(|seen| seen.value % 4 == at as u128);
            let mut holder = Holder {
                ranges: &ranges,
                at,
                rng: Rng(seed * 1_000 + at as u64),
                held: own.map(Own::of).collect(),
                count: 0,
                seed,
            };
            scope.spawn(move || (0..).try_for_each(|_| holder.act()).unwrap());
        }
    });
}

/// The same alone, and not for long.
fn brief(folder: &Path, seed: u64) {
    let ranges = match open(folder) {
        Ok(ranges) => ranges,
        Err(error) => return println!("child: refused {error}"),
    };
    println!("child: ready");
    let mut holder = Holder {
        ranges: &ranges,
        at: 0,
        rng: Rng(seed),
        held: Vec::new(),
        count: 0,
        seed,
    };
    if let Err(failed) = (0..40).try_for_each(|_| holder.act()) {
        println!("child: failed {failed}");
        // What failed would work again by now, and must not be tried.
        let failed = holder.act().unwrap_err();
        println!("child: failed {failed}");
        return;
    }
    ranges.close();
    println!("child: done");
}

/// What one of the threads of a child holds.
struct Own {
    value: u128,
    fence: u64,
    who: String,
    count: i64,
}

struct Holder<'a> {
    ranges: &'a Ranges,
    at: usize,
    rng: Rng,
    held: Vec<Own>,
    count: u64,
    seed: u64,
}

impl Own {
    fn of(seen: &Seen) -> Self {
        let (who, count) = written(&seen.data);
        Self {
            value: seen.value,
            fence: seen.fence,
            who,
            count,
        }
    }
}

/// What stands beside a value.
pub(crate) fn written(data: &Fields) -> (String, i64) {
    let (mut who, mut count) = (String::new(), 0);
    for (name, field) in data.iter() {
        match (name, field) {
            (b"who", Field::Bytes(text)) => who = String::from_utf8(text.to_vec()).unwrap(),
            (b"count", Field::Number(number)) => count = number,
            other => panic!("unexpected {other:?}"),
        }
    }
    (who, count)
}

fn writing(who: &str, count: i64) -> Fields {
    let mut data = Fields::new();
    data.set(b"who", Field::Bytes(who.as_bytes()));
    data.set(b"count", Field::Number(count));
    data
}

impl Holder<'_> {
    fn act(&mut self) -> Result<(), Failed> {
        let at = self.rng.below(self.held.len().max(1) as u64) as usize;
        match self.rng.below(10) {
            0..=4 if self.held.len() < 90 => self.reserve(),
            _ if self.held.is_empty() => self.reserve(),
            5..=6 => self.update(at),
            _ => self.release(at),
        }
    }

    fn reserve(&mut self) -> Result<(), Failed> {
        let Self { at, seed, .. } = *self;
        self.count += 1;
        let who = format!("{seed}-{at}-{}", self.count);
        let plain = format!("thread:{at}");
        println!("child: try {at} reserve {who} .");
        let prefer = anywhere(self.ranges, "sync");
        let keys = [(&who, true), (&plain, false)].map(|(key, unique)| Key {
            bytes: key.as_bytes(),
            unique,
        });
        let ask = Ask {
            data: &writing(&who, 0),
            keys: &keys,
            ttl: Some(crate::rig::HOUR * 24),
            ..Ask::new(&prefer)
        };
        let given = self.ranges.reserve(&ask).wait()?[0];
        let (value, fence) = (given.value, given.fence);
        println!("child: done {at} reserve {who} {value} {fence} .");
        self.held.push(Own {
            value,
            fence,
            who,
            count: 0,
        });
        Ok(())
    }

    fn update(&mut self, which: usize) -> Result<(), Failed> {
        let (at, own) = (self.at, &mut self.held[which]);
        let (value, fence, count) = (own.value, own.fence, own.count + 1);
        println!("child: try {at} update {value} {fence} {count} .");
        let data = writing(&own.who, count);
        let change = Change {
            fence: Some(fence),
            ttl: Some(crate::rig::HOUR * 24),
            ..Change::new(&data)
        };
        self.ranges.update(Which::Value(value), &change).wait()?;
        own.count = count;
        println!("child: done {at} update {value} {fence} {count} .");
        Ok(())
    }

    fn release(&mut self, which: usize) -> Result<(), Failed> {
        let at = self.at;
        let Own { value, fence, .. } = self.held.swap_remove(which);
        println!("child: try {at} release {value} {fence} .");
        self.ranges.release(value, Some(fence)).wait()?;
        println!("child: done {at} release {value} {fence} .");
        Ok(())
    }
}

/// Counts the threads that write, while there are some and after.
fn threads() {
    let open = || {
        let options = RangesOptions::default();
        Ranges::open(Box::new(Platter::new().open()), options).unwrap()
    };
    let all: Vec<Ranges> = (0..50).map(|_| open()).collect();
    // Threads name themselves.
    while writers() < all.len() {
        thread::yield_now();
    }
    println!("child: {} while open", writers());
    all.iter().take(25).for_each(Ranges::close);
    drop(all);
    println!("child: {} after it", writers());
}

fn writers() -> usize {
    let threads = fs::read_dir("/proc/self/task").unwrap();
    threads
        .filter_map(|thread| fs::read_to_string(thread.unwrap().path().join("comm")).ok())
        .filter(|name| name.trim() == "rideau-ranges")
        .count()
}
