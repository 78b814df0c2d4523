//! Clients ask our server for locks, members and matches, beside what people do
//! with Redis for the same.
//!
//! One operation is one command that was answered, and its processor time is
//! the server's alone. Latency is that of a turn: to ask and be answered, and
//! to give back and be answered; pipelined, of as many as are sent at once. The
//! roof is a server that does nothing: no server gets further beside the same
//! clients. Every run starts its server from scratch, without anything on disk.
//! `BENCH_CASE=lock-16` measures that case alone, for a look with `perf`.

mod dialogs;
mod goals;

use std::env;
use std::path::Path;

use crate::measure::{Plan, Subject, compare};
use crate::report::{Format, OURS, print};
use crate::talk::{Dialog, Folder, Goal, Server, program, talk, want_redis};

/// The default: as many threads as there are cores.
const ALL_THREADS: usize = 0;

/// The clients that talk to a server at a time.
#[derive(Clone, Copy)]
struct Crowd {
    connections: usize,
    /// Commands sent at once.
    depth: usize,
    /// Whether all connections want the same key.
    is_hot: bool,
}

/// A server, and what people say to it.
struct Contestant {
    name: &'static str,
    program: Program,
    dialogs: fn(&Server, Crowd) -> Vec<Dialog>,
}

#[derive(Clone, Copy)]
enum Program {
    Ours { threads: usize },
    Redis,
    Roof,
}

struct Case {
    name: &'static str,
    crowd: Crowd,
    contestants: &'static [Contestant],
    goals: &'static [Goal],
}

const LOCK: &[Contestant] = &[
    ours(OURS, 1, dialogs::lock),
    ours("rideau-threads", ALL_THREADS, dialogs::lock),
    redis("redis-incr", dialogs::incr),
    redis("redis-lua", dialogs::lua),
    ROOF,
];

const TAKE: &[Contestant] = &[
    ours(OURS, 1, dialogs::take),
    ours("rideau-threads", ALL_THREADS, dialogs::take),
    redis("redis-blpop", dialogs::blpop),
    ROOF,
];

const MATCH: &[Contestant] = &[
    ours(OURS, 1, dialogs::meet),
    ours("rideau-threads", ALL_THREADS, dialogs::meet),
    redis("redis-lists", dialogs::lists),
];

/// How far a server gets that does nothing, with the same clients.
const ROOF: Contestant = Contestant {
    name: "roof",
    program: Program::Roof,
    dialogs: dialogs::incr,
};

const CASES: [Case; 7] = [
    lock("lock", 1, false, goals::LOCK),
    lock("lock-hot", 1, true, goals::LOCK),
    lock("lock-16", 16, false, goals::LOCK_PIPELINED),
    lock("lock-hot-16", 16, true, goals::LOCK_PIPELINED),
    case("take-8", 8, TAKE, goals::TAKE),
    case("take-50", 50, TAKE, goals::TAKE),
    case("match", 50, MATCH, &[]),
];

const fn ours(
    name: &'static str,
    threads: usize,
    dialogs: fn(&Server, Crowd) -> Vec<Dialog>,
) -> Contestant {
    Contestant {
        name,
        program: Program::Ours { threads },
        dialogs,
    }
}

const fn redis(name: &'static str, dialogs: fn(&Server, Crowd) -> Vec<Dialog>) -> Contestant {
    Contestant {
        name,
        program: Program::Redis,
        dialogs,
    }
}

const fn lock(name: &'static str, depth: usize, is_hot: bool, goals: &'static [Goal]) -> Case {
    Case {
        name,
        crowd: Crowd {
            connections: 50,
            depth,
            is_hot,
        },
        contestants: LOCK,
        goals,
    }
}

const fn case(
    name: &'static str,
    connections: usize,
    contestants: &'static [Contestant],
    goals: &'static [Goal],
) -> Case {
    Case {
        name,
        crowd: Crowd {
            connections,
            depth: 1,
            is_hot: true,
        },
        contestants,
        goals,
    }
}

pub(crate) fn run(plan: &Plan, format: Format) {
    let ours = program();
    want_redis();
    eprintln!("ours: {}", ours.display());
    let only = env::var("BENCH_CASE").ok();
    let is_wanted = |case: &&Case| only.as_ref().is_none_or(|only| only == case.name);
    for case in CASES.iter().filter(is_wanted) {
        contest(case, &ours, plan, format);
    }
}

fn contest(case: &Case, ours: &Path, plan: &Plan, format: Format) {
    let subjects: Vec<_> = case
        .contestants
        .iter()
        .map(|contestant| Subject {
            name: contestant.name,
            run: Box::new(|| {
                let server = contestant.program.start(ours);
                let dialogs = (contestant.dialogs)(&server, case.crowd);
                talk(&server, dialogs, plan)
            }),
        })
        .collect();
    let rows = compare(&subjects, plan);
    print("daemon", case.name, &rows, format);
    for verdict in case.goals.iter().filter_map(|goal| goal.judge(&rows)) {
        match format {
            Format::Table => println!("  goal: {verdict}"),
            Format::Json => eprintln!("daemon {} goal: {verdict}", case.name),
        }
    }
    if matches!(format, Format::Table) {
        println!();
    }
}

impl Program {
    fn start(self, ours: &Path) -> Server {
        match self {
            Self::Ours { threads } => {
                Server::ours(ours, threads, &dialogs::config(), Folder::new())
            }
            Self::Redis => Server::redis(Folder::new()),
            Self::Roof => Server::roof(Folder::new(), false),
        }
    }
}
