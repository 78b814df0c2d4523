//! Clients lease addresses from our server, beside Redis with the scripts of an
//! address pool and PostgreSQL with rows that skip what is locked.
//!
//! Every pool has a million addresses, and the first half is held throughout by
//! devices that are not here. A turn of a client leases an address to a device,
//! and gives it back; pipelined, as many as are sent at once. Every server does
//! the same for a lease: look whether the device has one already, or else take
//! one that is free; keep the device, 64 bytes of data and the end of it; count
//! the leases of the address, so that late words of the last holder are told
//! apart. Where servers differ beyond that, their files say so.
//!
//! One operation is one command that was answered, and its processor time is
//! the server's alone. Latency is that of a turn, which is two answers. Every
//! server is started and filled once, and then is there for all cases, with the
//! upkeep that its own defaults say. `BENCH_CASE=64` measures that case alone,
//! and `BENCH_SUBJECT=rideau,redis` these servers, for a look with `perf`.

mod goals;
mod ours;
mod postgres;
mod redis;
mod roof;

use std::env;
use std::time::Instant;

use crate::measure::{Plan, Subject, compare};
use crate::report::{Format, OURS, print, print_lines};
use crate::talk::{Dialog, Disk, Goal, Server, fail, program, talk, want_redis};

/// `10.0.0.0/12`.
const ADDRESSES: u32 = 1 << 20;
const FIRST: u32 = 10 << 24;
/// Held throughout.
const HELD: u32 = ADDRESSES / 2;
/// Long enough that nothing runs out.
const TTL_MS: &str = "3600000";
const DATA: &str = "gateway=10.255.0.1;circuit=ge-0/0/17:1042;vendor=0123456789abcde";

/// Our class that writes nothing down.
const MEMORY: &str = "rideau-memory";
const REDIS: &str = "redis";
const EVERYSEC: &str = "redis-everysec";
const ALWAYS: &str = "redis-always";
const POSTGRES: &str = "postgres";
/// What only writes.
const ROOF: &str = "roof";

/// The clients that talk to a server at a time.
#[derive(Clone, Copy)]
struct Crowd {
    connections: usize,
    /// Commands sent at once.
    depth: usize,
}

struct Case {
    name: &'static str,
    crowd: Crowd,
    goals: &'static [Goal],
}

const CASES: [Case; 4] = [
    case("1", 1, 1, &[]),
    case("16", 16, 1, &[]),
    case("64", 64, 1, goals::MANY),
    case("16x16", 16, 16, goals::PIPELINED),
];

const fn case(
    name: &'static str,
    connections: usize,
    depth: usize,
    goals: &'static [Goal],
) -> Case {
    let crowd = Crowd { connections, depth };
    Case { name, crowd, goals }
}

/// A server with its pool, and what clients say to it.
struct Contestant {
    name: &'static str,
    server: Server,
    dialogs: Box<dyn Fn(Crowd) -> Vec<Dialog>>,
}

pub(crate) fn run(plan: &Plan, format: Format) {
    let contestants = contestants();
    let only = env::var("BENCH_CASE").ok();
    let is_wanted = |case: &&Case| only.as_ref().is_none_or(|only| only == case.name);
    for case in CASES.iter().filter(is_wanted) {
        contest(case, &contestants, plan, format);
    }
}

fn contestants() -> Vec<Contestant> {
    let program = program();
    want_redis();
    let Some(disk) = Disk::find() else {
        fail("no disk to keep anything on: set TMPDIR to a folder that is not in memory");
    };
    eprintln!("ours: {}", program.display());
    eprintln!(
        "servers write to {}, {}",
        disk.folder.display(),
        disk.system
    );
    let only = env::var("BENCH_SUBJECT").ok();
    let names = [OURS, MEMORY, REDIS, EVERYSEC, ALWAYS, POSTGRES, ROOF];
    let wanted = names.into_iter().filter(|name| {
        only.as_ref()
            .is_none_or(|only| only.split(',').any(|only| only == *name))
    });
    let started = wanted.filter_map(|name| {
        let since = Instant::now();
        let contestant = match name {
            OURS => Some(ours::start(OURS, "sync", &program, &disk)),
            MEMORY => Some(ours::start(MEMORY, "memory", &program, &disk)),
            POSTGRES => postgres::start(&disk),
            ROOF => Some(roof::start(&disk)),
            name => Some(redis::start(name, &disk)),
        };
        if contestant.is_some() {
            eprintln!("{name}: filled within {:.1?}", since.elapsed());
        }
        contestant
    });
    let started: Vec<_> = started.collect();
    if started.is_empty() {
        fail(&format!("no such server; there are {}", names.join(", ")));
    }
    started
}

fn contest(case: &Case, contestants: &[Contestant], plan: &Plan, format: Format) {
    let subjects: Vec<_> = contestants
        .iter()
        .map(|contestant| Subject {
            name: contestant.name,
            run: Box::new(|| {
                let dialogs = (contestant.dialogs)(case.crowd);
                talk(&contestant.server, dialogs, plan)
            }),
        })
        .collect();
    let rows = compare(&subjects, plan);
    let verdicts = case.goals.iter().filter_map(|goal| goal.judge(&rows));
    match format {
        Format::Table => {
            let Crowd { connections, depth } = case.crowd;
            let title = format!("ranges: {connections} clients, {depth} deep");
            print_lines(&title, &rows, verdicts);
        }
        Format::Json => {
            print("ranges", case.name, &rows, format);
            for verdict in verdicts {
                eprintln!("ranges {} goal: {verdict}", case.name);
            }
        }
    }
}

impl Crowd {
    fn dialogs(self, dialog: impl Fn(usize) -> Dialog) -> Vec<Dialog> {
        (0..self.connections).map(dialog).collect()
    }

    /// The commands that this connection sends at once, each for a device of
    /// its own.
    fn batch(self, at: usize, command: impl Fn(&str) -> Vec<u8>) -> Vec<u8> {
        let slots = 0..self.depth;
        slots.flat_map(|slot| command(&device(at, slot))).collect()
    }

    /// What follows in each of the commands for the same devices.
    fn tails(self, at: usize, tail: impl Fn(&str) -> Vec<u8>) -> Vec<Vec<u8>> {
        (0..self.depth)
            .map(|slot| tail(&device(at, slot)))
            .collect()
    }
}

/// The device of a client, as its hardware address.
fn device(at: usize, slot: usize) -> String {
    format!("02:00:00:00:{at:02x}:{slot:02x}")
}

/// The device that holds an address throughout.
fn other_device(number: u32) -> String {
    let [_, a, b, c] = number.to_be_bytes();
    format!("06:00:00:{a:02x}:{b:02x}:{c:02x}")
}
