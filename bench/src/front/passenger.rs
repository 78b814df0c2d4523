//! Passenger in front of the same application, with its own engine.
//!
//! It starts the application as another user if it is root, and that user must
//! be able to read it; and not if its command begins with the word `exec`. What
//! it does beside serving is turned off.

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, WaitOptions, getpid, set_child_subreaper, waitpid};

use super::ours::Listen;
use super::started::{Place, Started, free_address, this_program};
use super::{Contestant, OURS_SOCKET, PASSENGER, PASSENGER_CASES, app, contest, ours_contestant};
use crate::measure::Plan;
use crate::report::{Format, OURS};
use crate::talk::Folder;

pub(super) fn run(program: &Path, has_front: bool, plan: &Plan, format: Format) {
    let is_wanted = env::var("BENCH_PASSENGER").is_ok_and(|says| says == "1");
    let version = Command::new("passenger").arg("--version").output();
    match version {
        Ok(version) => eprint!("{}", String::from_utf8_lossy(&version.stdout)),
        Err(error) if is_wanted => {
            eprintln!("passenger does not run: {error}; on Debian: apt install passenger");
            return;
        }
        Err(_) => return,
    }
    // Its time would count as that of others if it were not our child's child.
    let _ = set_child_subreaper(Some(getpid()));
    let mut contestants = vec![start()];
    if has_front {
        contestants.push(ours_contestant(OURS, program, Listen::Port));
        // Passenger gives an application of this kind a port and nothing else.
        contestants.push(ours_contestant(OURS_SOCKET, program, Listen::Socket));
    }
    for case in &PASSENGER_CASES {
        contest(case, &contestants, plan, format);
    }
}

fn start() -> Contestant {
    let folder = Folder::new();
    let path = folder.path();
    // The program may lie where only we can read.
    let copy = path.join("application");
    fs::copy(this_program(), &copy).expect("the temporary folder can be written");
    let root = path.join("root");
    fs::create_dir_all(root.join("public")).expect("the temporary folder can be written");
    let (address, pid_file) = (free_address(), path.join("passenger.pid"));
    let mut command = Command::new("passenger");
    command
        .args([
            "start",
            "--engine",
            "builtin",
            "--environment",
            "production",
        ])
        .args(["--address", "127.0.0.1", "--port"])
        .arg(address.port().to_string())
        .arg("--app-start-command")
        .arg(format!("env PORT=$PORT {} {}", copy.display(), app::WORD))
        .args(["--max-pool-size", "1", "--min-instances", "1"])
        .args(["--disable-security-update-check", "--disable-turbocaching"])
        .args(["--disable-log-prefix", "--no-friendly-error-pages"])
        .args(["--disable-anonymous-telemetry", "--log-level", "2"])
        .arg("--log-file")
        .arg(path.join("passenger.log"))
        .arg("--pid-file")
        .arg(&pid_file)
        .arg("--instance-registry-dir")
        .arg(path)
        .arg(&root);
    let passenger = Started::new(&mut command, &Place::Port(address), Some(folder));
    let passenger = passenger.unwrap_or_else(|why| panic!("passenger: {why}"));
    let watchdog = watchdog(&pid_file);
    // Its stop waits until its id is gone.
    thread::spawn(move || waitpid(Some(watchdog), WaitOptions::empty()));
    Contestant {
        elsewhere: vec![watchdog.as_raw_nonzero().get().unsigned_abs()],
        ..Contestant::new(PASSENGER, address, vec![passenger])
    }
}

/// What serves has left its parent.
fn watchdog(pid_file: &Path) -> Pid {
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        let text = fs::read_to_string(pid_file).unwrap_or_default();
        if let Some(process) = text.trim().parse().ok().and_then(Pid::from_raw) {
            return process;
        }
        assert!(Instant::now() < until, "passenger does not say its id");
        thread::sleep(Duration::from_millis(10));
    }
}
