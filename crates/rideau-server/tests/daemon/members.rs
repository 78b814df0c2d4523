//! Processes of a pool when the server ends: none is left, however it ends.

use std::fs;
use std::path::Path;

use rideau_testing::{Scratch, Signal, signal};

use crate::server::{Server, until};

/// A server whose members each write down the number of a process they start. All that
/// are started here share a run folder.
struct Started {
    server: Server,
    /// A member, and the process that it started.
    pids: [i32; 2],
}

impl Started {
    fn new(scratch: &Scratch) -> Self {
        let below = scratch.join("below");
        let _ = fs::remove_file(&below);
        let server = Server::with(&config(scratch));
        let mut client = server.connect();
        let taken = client.ask("TAKE p WAIT 30000");
        assert_eq!(taken.word(), "go");
        let pids = [taken.at(2).text().parse().unwrap(), number_in(&below)];
        // Idle or held makes no difference.
        client.ask(&format!("RELEASE {}", taken.ticket()));
        Self { server, pids }
    }

    /// Send it a signal, and wait for its end. Says whether that was a good one.
    fn end(mut self, sent: Signal) -> bool {
        signal(self.server.pid(), sent);
        self.server.ended().success()
    }
}

fn config(scratch: &Scratch) -> String {
    let below = scratch.join("below");
    let script = format!("sleep 1000 & echo $! > {}; wait", below.display());
    format!(
        "run_dir = {:?}\ndrain = \"1s\"\n[pool.p]\nqueue = \"never\"\nmax = 2\n\
         member = {{ exec = [\"sh\", \"-c\", {script:?}] }}",
        scratch.join("run")
    )
}

/// The number that a member wrote to a file.
fn number_in(path: &Path) -> i32 {
    let mut number = None;
    until("a number is in the file", || {
        let text = fs::read_to_string(path).unwrap_or_default();
        number = text.strip_suffix('\n').and_then(|text| text.parse().ok());
        number.is_some()
    });
    number.unwrap()
}

/// Whether a process with this number runs. One that waits for its parent does not.
fn runs(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit_once(')')
        .map_or("", |(_, rest)| rest.trim_start());
    !state.is_empty() && !state.starts_with(['Z', 'X'])
}

/// What is left in the run folder.
fn files(scratch: &Scratch) -> Vec<String> {
    let names = fs::read_dir(scratch.join("run")).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name != "lock").collect()
}

#[test]
fn a_server_that_is_asked_to_stop_leaves_no_process() {
    for sent in [Signal::TERM, Signal::INT] {
        let scratch = Scratch::new();
        let started = Started::new(&scratch);
        let pids = started.pids;
        let mut holder = started.server.connect();
        assert_eq!(holder.ask("TAKE p WAIT 30000").word(), "go");
        assert!(started.end(sent), "{sent:?}");
        assert!(!pids.into_iter().any(runs), "{sent:?}");
        assert_eq!(files(&scratch), [""; 0], "{sent:?}");
    }
}

#[test]
fn a_server_that_is_killed_leaves_no_process_either() {
    let scratch = Scratch::new();
    let first = Started::new(&scratch);
    let pids = first.pids;
    assert!(pids.into_iter().all(runs));
    assert!(!first.end(Signal::KILL));
    until("they are gone", || !pids.into_iter().any(runs));
    let next = Started::new(&scratch);
    let pids = next.pids;
    assert!(next.end(Signal::TERM));
    assert!(!pids.into_iter().any(runs));
    assert_eq!(files(&scratch), [""; 0]);
}

#[test]
fn two_servers_with_one_folder_leave_each_other_alone() {
    let scratch = Scratch::new();
    let first = Started::new(&scratch);
    let second = Started::new(&scratch);
    let (of_first, of_second) = (first.pids, second.pids);
    assert!(of_first.into_iter().all(runs));

    // The second is killed; what it left is ended, and the next has its place.
    assert!(!second.end(Signal::KILL));
    until("they are gone", || !of_second.into_iter().any(runs));
    let third = Started::new(&scratch);
    let of_third = third.pids;
    assert!(of_first.into_iter().all(runs));
    assert!(third.end(Signal::TERM));
    assert!(first.end(Signal::TERM));
    assert!(!of_first.into_iter().chain(of_third).any(runs));
}

#[test]
fn servers_that_are_killed_together_leave_no_process() {
    let scratch = Scratch::new();
    let first = Started::new(&scratch);
    let second = Started::new(&scratch);
    let (of_first, of_second) = (first.pids, second.pids);
    assert!(!first.end(Signal::KILL));
    assert!(!second.end(Signal::KILL));
    let next = Server::with(&config(&scratch));
    until("all are gone", || {
        !of_first.into_iter().chain(of_second).any(runs)
    });
    next.stop();
}
