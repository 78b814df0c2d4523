//! What happens when all goes well.

use std::thread;
use std::time::{Duration, Instant};

use rideau_testing::{Signal, signal};

use crate::harness::{Harness, folder, processes_of, until};

#[test]
fn an_application_starts_with_the_first_request_and_is_gone_with_the_server() {
    let folder = folder();
    let harness = Harness::new(&folder, "[app.shop]\nexec = APP\n");
    assert!(processes_of(&folder).is_empty(), "no request came yet");
    let answer = harness.get("/hello");
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(answer.body.starts_with("ok GET /hello"), "{answer:?}");
    assert_eq!(processes_of(&folder).len(), 1);
    harness.end();
}

#[test]
fn each_way_to_get_a_socket_works() {
    for listen in ["port", "socket", "inherit"] {
        let folder = folder();
        let app = format!("[app.shop]\nexec = APP\nlisten = \"{listen}\"\n");
        let harness = Harness::new(&folder, &app);
        let answer = harness.get("/");
        assert_eq!(answer.status, 200, "{listen}: {answer:?}");
        harness.end();
    }
}

#[test]
fn applications_are_found_by_host_and_path() {
    let folder = folder();
    let harness = Harness::new(
        &folder,
        "[app.one]\nexec = APP\nhosts = [\"one.test\"]\nenv = { VERSION = \"1\" }\n\
         [app.two]\nexec = APP\nhosts = [\"*.two.test\"]\nenv = { VERSION = \"2\" }\n\
         [app.three]\nexec = APP\nhosts = [\"one.test\"]\npaths = [\"/deep\"]\nstrip = true\n\
         env = { VERSION = \"3\" }\n",
    );
    let started = |host: &str, path: &str| harness.ask("GET", host, path, b"").unwrap();
    assert_eq!(started("one.test", "/started").body, "1");
    assert_eq!(started("a.two.test", "/started").body, "2");
    assert_eq!(started("one.test", "/deep/started").body, "3");
    let nobody = started("other.test", "/started");
    assert_eq!(nobody.status, 404, "{nobody:?}");
    assert!(nobody.field("X-Rideau-Error").is_some(), "{nobody:?}");
    harness.end();
}

/// Scenario 4, with real processes: one start serves all requests.
#[test]
fn a_burst_on_a_cold_application_starts_one_process() {
    let folder = folder();
    let harness = Harness::new(
        &folder,
        "[app.shop]\nexec = APP\nconcurrency = 1\nqueue = \"never\"\n\
         env = { START_DELAY = \"0.5\", COUNT_STARTS = \"FOLDER/starts\" }\n",
    );
    thread::scope(|scope| {
        let asked: Vec<_> = (0..20).map(|_| scope.spawn(|| harness.get("/"))).collect();
        for answer in asked {
            assert_eq!(answer.join().unwrap().status, 200);
        }
    });
    let starts = std::fs::read_to_string(folder.join("starts")).unwrap();
    assert_eq!(starts.lines().count(), 1, "{starts}");
    harness.end();
}

/// Scenario 45.
#[test]
fn a_process_never_has_more_requests_than_its_concurrency() {
    let folder = folder();
    let harness = Harness::new(
        &folder,
        "[app.shop]\nexec = APP\nconcurrency = 4\nmax = 1\nqueue = \"never\"\n",
    );
    thread::scope(|scope| {
        let ask = || {
            for _ in 0..5 {
                assert_eq!(harness.get("/sleep/20").status, 200);
            }
        };
        for _ in 0..16 {
            scope.spawn(ask);
        }
    });
    let busiest: u32 = harness.get("/busiest").body.parse().unwrap();
    assert!(busiest <= 4, "it had {busiest} at once");
    assert!(busiest > 1, "it had one at a time");
    harness.end();
}

/// Scenario 30.
#[test]
fn a_server_that_is_asked_to_stop_finishes_what_it_serves() {
    let folder = folder();
    let mut harness = Harness::new(&folder, "[app.shop]\nexec = APP\n");
    assert_eq!(harness.get("/").status, 200);
    let front = harness.front;
    let slow = thread::spawn(move || crate::harness::ask(front, "GET", "test", "/sleep/3000", b""));
    thread::sleep(Duration::from_millis(500));
    let since = Instant::now();
    let status = harness.stop();
    assert!(status.success(), "{status}: {}", harness.log());
    assert!(since.elapsed() < Duration::from_secs(20));
    let answer = slow.join().unwrap().unwrap();
    assert_eq!(answer.status, 200, "{answer:?}");
    crate::harness::nothing_is_left(&folder);
}

/// Scenario 29.
#[test]
fn no_process_survives_a_server_that_is_killed() {
    let folder = folder();
    let mut harness = Harness::new(&folder, "[app.shop]\nexec = APP\nmin = 2\n");
    until("two processes", || processes_of(&folder).len() >= 2);
    assert_eq!(harness.get("/").status, 200);
    harness.kill();
    until("no process is left", || processes_of(&folder).is_empty());
    let harness = Harness::start(&folder);
    assert_eq!(harness.get("/").status, 200);
    harness.end();
}

#[test]
fn an_idle_application_goes_and_comes_back() {
    let folder = folder();
    let harness = Harness::new(&folder, "[app.shop]\nexec = APP\nidle_after = \"300ms\"\n");
    let first = harness.get("/pid").body;
    until("it goes", || processes_of(&folder).is_empty());
    let second = harness.get("/pid").body;
    assert_ne!(first, second);
    harness.end();
}

/// Scenario 3, with a real process.
#[test]
fn a_process_is_replaced_after_its_requests() {
    let folder = folder();
    let harness = Harness::new(
        &folder,
        "[app.shop]\nexec = APP\nrequests_max = 20\nmin = 1\n",
    );
    // It serves on until the next one is ready.
    let mut pids = std::collections::BTreeSet::new();
    until("the third process serves", || {
        let answer = harness.get("/pid");
        assert_eq!(answer.status, 200, "{answer:?}");
        pids.insert(answer.body);
        pids.len() == 3
    });
    harness.end();
}

/// Scenario 28 and 27: a process that ignores the signal, and one that it left
/// behind.
#[test]
fn the_whole_tree_goes_even_if_it_ignores_the_signal() {
    let folder = folder();
    let harness = Harness::new(
        &folder,
        "[app.shop]\nexec = APP\nstop_timeout = \"300ms\"\n\
         env = { IGNORE_TERM = \"1\", FORK = \"1\" }\n",
    );
    assert_eq!(harness.get("/").status, 200);
    until("both are there", || processes_of(&folder).len() == 2);
    harness.end();
}

/// Scenario 16.
#[test]
fn a_process_that_was_killed_is_replaced_before_a_request_comes() {
    let folder = folder();
    let harness = Harness::new(
        &folder,
        "[app.shop]\nexec = APP\nmin = 1\nuptime_min = \"0s\"\n",
    );
    let pid: i32 = harness.get("/pid").body.parse().unwrap();
    signal(pid, Signal::KILL);
    let answer = harness.get("/pid");
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_ne!(answer.body, pid.to_string());
    harness.end();
}
