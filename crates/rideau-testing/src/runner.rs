//! Runs a test program, and ends whatever it leaves running.
//!
//! `./test` has cargo start each test program through this one. Orphans below it
//! become its children, whatever their group or session. What still runs a while
//! after the test program has ended is reported with the test that started it,
//! and killed by its process id. The exit code is then that of a failure.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::process::ExitCode;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use rideau_testing::{Signal, TEST_NAME, command, try_signal};
use rustix::process::{Pid, WaitOptions, WaitStatus, getpid, set_child_subreaper, wait};

/// How often it is looked which test each process belongs to.
const LOOK: Duration = Duration::from_millis(200);
/// How long what was killed may take to be gone.
const KILL_MAX: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(10);

fn main() -> ExitCode {
    let mut words = env::args_os().skip(1);
    let grace = words.next().and_then(|word| word.to_str()?.parse().ok());
    let (Some(grace), Some(program)) = (grace, words.next()) else {
        eprintln!("usage: rideau-test-runner GRACE_SECONDS PROGRAM [ARGUMENT]...");
        return ExitCode::from(2);
    };
    let arguments: Vec<_> = words.collect();
    let code = match run(&program, &arguments) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{}: {error}", program.display());
            return ExitCode::FAILURE;
        }
    };
    let left = settle(Duration::from_secs(grace));
    let tests = look();
    for (pid, process) in &left {
        let test = tests.get(pid).cloned();
        let test = test.unwrap_or_else(|| format!("a test of {}", program.display()));
        println!("left running by {test}: process {pid} ({})", process.line);
    }
    end_all();
    match left.is_empty() {
        true => code,
        false => ExitCode::FAILURE,
    }
}

/// Run the test program to its end, and reap every orphan meanwhile.
fn run(program: &OsString, arguments: &[OsString]) -> io::Result<ExitCode> {
    set_child_subreaper(Some(getpid()))?;
    let mut command = command(program);
    let child = command.args(arguments).env_remove(TEST_NAME).spawn()?;
    thread::spawn(|| {
        loop {
            drop(look());
            sleep(LOOK);
        }
    });
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if i64::from(pid.as_raw_pid()) == i64::from(child.id()) => {
                return Ok(code_of(status));
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => (),
            Err(error) => return Err(error.into()),
        }
    }
}

/// The exit code of a shell for this end.
fn code_of(status: WaitStatus) -> ExitCode {
    let code = match status.exit_status() {
        Some(code) => code,
        None => 128 + status.terminating_signal().unwrap_or_default(),
    };
    u8::try_from(code).map_or(ExitCode::FAILURE, ExitCode::from)
}

/// Wait until nothing runs below this process. Returns what still does in the end.
fn settle(grace: Duration) -> BTreeMap<i32, Process> {
    let until = Instant::now() + grace;
    loop {
        let left = descendants();
        if left.is_empty() || Instant::now() > until {
            return left;
        }
        sleep(POLL);
    }
}

/// Kill everything below this process.
fn end_all() {
    let until = Instant::now() + KILL_MAX;
    loop {
        let left = descendants();
        if left.is_empty() || Instant::now() > until {
            return;
        }
        for pid in left.into_keys() {
            let _ = try_signal(pid, Signal::KILL);
        }
        sleep(POLL);
    }
}

struct Process {
    parent: i32,
    /// The test that started it, where its environment says so.
    test: Option<String>,
    /// Its command line.
    line: String,
}

/// Which test started each process below this one. A server may clear the
/// environment of its children, so they belong to the test of their parent, also
/// after that is gone.
fn look() -> MutexGuard<'static, BTreeMap<i32, String>> {
    static TESTS: Mutex<BTreeMap<i32, String>> = Mutex::new(BTreeMap::new());
    let mut tests = TESTS.lock().unwrap_or_else(PoisonError::into_inner);
    let all = below();
    tests.retain(|pid, _| all.contains_key(pid));
    // Parents nearly always have smaller numbers. If not, the next look finds them.
    for (pid, process) in all {
        let known = process.test.or_else(|| tests.get(&process.parent).cloned());
        if let Some(test) = known {
            tests.entry(pid).or_insert(test);
        }
    }
    tests
}

/// All processes below this one, after those that have ended were reaped.
fn descendants() -> BTreeMap<i32, Process> {
    while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
    below()
}

fn below() -> BTreeMap<i32, Process> {
    let mut all: BTreeMap<i32, Process> = processes().collect();
    let us = getpid();
    let parents: BTreeMap<i32, i32> = all
        .iter()
        .map(|(pid, process)| (*pid, process.parent))
        .collect();
    all.retain(|pid, _| {
        let mut above = parents.get(pid);
        // A list that was read while processes ended may have a circle in it.
        for _ in 0..parents.len() {
            match above {
                Some(parent) if Pid::from_raw(*parent) == Some(us) => return true,
                Some(parent) => above = parents.get(parent),
                None => return false,
            }
        }
        false
    });
    all
}

/// Every process that has not ended.
fn processes() -> impl Iterator<Item = (i32, Process)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        let (_, rest) = stat.rsplit_once(") ")?;
        let mut fields = rest.split(' ');
        let has_ended = matches!(fields.next()?, "Z" | "X");
        let parent = fields.next()?.parse().ok()?;
        let words = |name| fs::read(entry.path().join(name)).unwrap_or_default();
        let line = String::from_utf8_lossy(&words("cmdline")).replace('\0', " ");
        let prefix = format!("{TEST_NAME}=");
        let environment = String::from_utf8_lossy(&words("environ")).into_owned();
        let test = environment
            .split('\0')
            .find_map(|line| line.strip_prefix(&prefix));
        let process = Process {
            parent,
            test: test.map(str::to_owned),
            line: line.trim_end().to_owned(),
        };
        (!has_ended).then_some((pid, process))
    })
}
