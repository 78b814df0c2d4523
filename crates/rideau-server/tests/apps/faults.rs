//! What applications do wrong, and what becomes of the requests.

use std::fs;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use rideau_testing::{Signal, signal};

use crate::harness::{Harness, folder, processes_of, until};

/// Scenario 17.
#[test]
fn killing_processes_under_reads_fails_no_request() {
    let folder = folder();
    let harness = Harness::new(
        &folder,
        "[app.shop]\nexec = APP\nmin = 2\nmax = 2\nuptime_min = \"0s\"\nconcurrency = 16\n",
    );
    assert_eq!(harness.get("/").status, 200);
    let until_then = Instant::now() + Duration::from_secs(8);
    let (failed, mut killed) = (Mutex::new(Vec::new()), 0);
    thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                while Instant::now() < until_then {
                    match harness.ask("GET", "test", "/pid", b"") {
                        Ok(answer) if answer.status == 200 => (),
                        other => failed.lock().unwrap().push(format!("{other:?}")),
                    }
                }
            });
        }
        while Instant::now() + Duration::from_secs(1) < until_then {
            thread::sleep(Duration::from_millis(500));
            // Not the last that serves: a request is tried twice and not for ever.
            if let [first, _, ..] = &harness.ready()[..] {
                signal(*first, Signal::KILL);
                killed += 1;
            }
        }
    });
    assert!(killed > 0, "no process was killed");
    let failed = failed.into_inner().unwrap();
    assert!(
        failed.is_empty(),
        "{} failed: {:?}",
        failed.len(),
        failed.first()
    );
    harness.end();
}

/// Scenario 18.
#[test]
fn a_write_that_broke_is_not_sent_twice() {
    let folder = folder();
    let harness = Harness::new(
        &folder,
        "[app.shop]\nexec = APP\nmin = 1\nuptime_min = \"0s\"\n\
         env = { COUNT_POSTS = \"FOLDER/posts\" }\n",
    );
    let pid: i32 = harness.get("/pid").body.parse().unwrap();
    let front = harness.front;
    let asked =
        thread::spawn(move || crate::harness::ask(front, "POST", "test", "/count/2000", b"pay"));
    until("it is being served", || folder.join("posts").exists());
    signal(pid, Signal::KILL);
    let answer = asked.join().unwrap().unwrap();
    assert_eq!(answer.status, 502, "{answer:?}");
    assert!(answer.field("X-Rideau-Error").is_some(), "{answer:?}");
    assert_eq!(harness.get("/").status, 200);
    assert_eq!(fs::read_to_string(folder.join("posts")).unwrap(), "x");
    harness.end();
}

/// Scenario 19.
#[test]
fn a_process_that_hangs_is_replaced_and_its_requests_time_out() {
    let folder = folder();
    let harness = Harness::new(
        &folder,
        "[app.shop]\nexec = APP\nmax = 1\nconcurrency = 4\nrequest_timeout = \"500ms\"\n\
         drain_timeout = \"500ms\"\nstop_timeout = \"500ms\"\nuptime_min = \"0s\"\n",
    );
    let pid: i32 = harness.get("/pid").body.parse().unwrap();
    signal(pid, Signal::STOP);
    for _ in 0..3 {
        let answer = harness.get("/");
        assert_eq!(answer.status, 504, "{answer:?}");
        assert_eq!(answer.field("X-Rideau-Error"), Some("request_timeout"));
    }
    until("another serves", || harness.get("/pid").status == 200);
    until("the hung one is gone", || {
        !processes_of(&folder).contains(&pid)
    });
    harness.end();
}

/// Scenario 20.
#[test]
fn an_application_that_does_not_start_is_tried_seldom_and_refused_fast() {
    let folder = folder();
    let harness = Harness::new(
        &folder,
        "[app.shop]\nexec = APP\nenv = { CRASH = \"3\", COUNT_STARTS = \"FOLDER/starts\" }\n\
         [app.other]\nexec = APP\nhosts = [\"other.test\"]\n",
    );
    let other = harness.ask("GET", "other.test", "/pid", b"").unwrap().body;
    let until_then = Instant::now() + Duration::from_secs(5);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                while Instant::now() < until_then {
                    let answer = harness.get("/");
                    assert_eq!(answer.status, 503, "{answer:?}");
                    assert_eq!(answer.field("X-Rideau-Error"), Some("app_failing"));
                    assert!(answer.field("Retry-After").is_some(), "{answer:?}");
                    assert!(answer.field("X-Request-Id").is_some(), "{answer:?}");
                    thread::sleep(Duration::from_millis(20));
                }
            });
        }
    });
    let starts = fs::read_to_string(folder.join("starts")).unwrap();
    assert!(starts.lines().count() <= 4, "{starts}");
    assert!(starts.lines().count() >= 2, "it was tried again: {starts}");
    let after = harness.ask("GET", "other.test", "/pid", b"").unwrap().body;
    assert_eq!(after, other, "others are not disturbed");
    harness.end();
}

/// Scenario 22.
#[test]
fn an_application_that_never_listens_is_given_up_in_time() {
    let folder = folder();
    let harness = Harness::new(
        &folder,
        "[app.shop]\nexec = APP\nstart_timeout = \"1s\"\nenv = { NEVER_LISTEN = \"1\" }\n",
    );
    let answer = harness.get("/");
    assert_eq!(answer.status, 503, "{answer:?}");
    until("its process is gone", || processes_of(&folder).is_empty());
    harness.end();
}

/// Scenarios 21 and 23: what is wrong is said.
#[test]
fn developers_are_told_what_is_wrong() {
    let cases = [
        ("exec = [\"/no/such/program\"]", "No such file"),
        ("exec = APP\nroot = \"/no/such/folder\"", "/no/such/folder"),
        ("exec = APP\nuser = \"nobody-at-all\"", "nobody-at-all"),
        (
            "exec = APP\nstart_timeout = \"5s\"\nenv = { WRONG_PORT = \"29765\" }",
            "29765",
        ),
        (
            "exec = APP\nenv = { CRASH = \"7\" }",
            "cannot start: CRASH is set",
        ),
    ];
    for (app, word) in cases {
        let folder = folder();
        let front = "error_pages = \"detailed\"";
        let harness = Harness::with_front(&folder, front, &format!("[app.shop]\n{app}\n"));
        let answer = harness.get("/");
        assert_eq!(answer.status, 503, "{app}: {answer:?}");
        assert!(answer.body.contains(word), "{app}: {}", answer.body);
        harness.end();
        let folder = crate::harness::folder();
        let harness = Harness::new(&folder, &format!("[app.shop]\n{app}\n"));
        let answer = harness.get("/");
        assert!(!answer.body.contains(word), "{app}: {}", answer.body);
        harness.end();
    }
}

/// It is ready each time, and ends with its first request.
#[test]
fn an_application_that_ends_with_its_first_request_fails_with_words() {
    let folder = folder();
    let front = "error_pages = \"detailed\"";
    let harness = Harness::with_front(&folder, front, "[app.shop]\nexec = APP\n");
    until("it is said why", || {
        let answer = harness.get("/exit/5");
        assert!([502, 503].contains(&answer.status), "{answer:?}");
        let why = "exited with code 5 soon after it was ready";
        answer.field("X-Rideau-Error") == Some("app_failing") && answer.body.contains(why)
    });
    until("it is tried again, and serves", || {
        harness.get("/").status == 200
    });
    harness.end();
}

/// Scenario 25.
#[test]
fn a_flood_of_output_does_not_grow_the_server() {
    let folder = folder();
    let harness = Harness::new(
        &folder,
        "[log]\nlevel = \"warn\"\n[app.shop]\nexec = APP\nenv = { FLOOD = \"16\" }\n",
    );
    // What it costs to begin with is not what is measured.
    assert_eq!(harness.get("/flood/160").status, 200);
    let before = harness.memory();
    assert_eq!(harness.get("/flood/1600").status, 200);
    let after = harness.memory();
    assert!(after < before + 2048, "{before} KiB became {after} KiB");
    harness.end();
}

/// Scenario 26.
#[test]
fn an_application_that_closes_its_output_serves_on() {
    let folder = folder();
    let harness = Harness::new(
        &folder,
        "[app.shop]\nexec = APP\nenv = { CLOSE_OUTPUT = \"1\" }\n",
    );
    let pid = harness.get("/pid").body;
    thread::sleep(Duration::from_millis(1500));
    assert_eq!(harness.get("/pid").body, pid);
    harness.end();
}

/// Scenario 37.
#[test]
fn a_process_that_uses_too_much_memory_is_replaced() {
    let folder = folder();
    let harness = Harness::new(
        &folder,
        "[app.shop]\nexec = APP\nmin = 1\nmemory_soft = \"100MiB\"\nuptime_min = \"0s\"\n",
    );
    let pid = harness.get("/pid").body;
    assert_eq!(harness.get("/hog/150").status, 200);
    until("it is replaced", || harness.get("/pid").body != pid);
    until("one is left", || processes_of(&folder).len() == 1);
    assert!(harness.log().contains("memory_soft"), "{}", harness.log());
    harness.end();
}

/// Scenario 37, the hard limit.
#[test]
fn a_process_that_uses_far_too_much_memory_is_killed() {
    let folder = folder();
    let harness = Harness::new(
        &folder,
        "[app.shop]\nexec = APP\nmin = 1\nmemory_hard = \"200MiB\"\nuptime_min = \"0s\"\n",
    );
    let pid = harness.get("/pid").body;
    let front = harness.front;
    let slow =
        thread::spawn(move || crate::harness::ask(front, "POST", "test", "/sleep/60000", b""));
    // It may be killed before it has answered.
    let _ = harness.ask("POST", "test", "/hog/300", b"");
    until("another serves", || {
        let answer = harness.get("/pid");
        answer.status == 200 && answer.body != pid
    });
    let answer = slow.join().unwrap().unwrap();
    assert_eq!(answer.status, 502, "{answer:?}");
    assert!(harness.log().contains("memory_hard"), "{}", harness.log());
    harness.end();
}

#[test]
fn a_process_that_gives_no_sign_of_life_is_replaced() {
    let folder = folder();
    let harness = Harness::new(
        &folder,
        "[app.shop]\nexec = APP\nmin = 1\nwatchdog = \"500ms\"\nuptime_min = \"0s\"\n\
         drain_timeout = \"1s\"\nstop_timeout = \"500ms\"\nenv = { BEAT = \"50\" }\n",
    );
    let pid: i32 = harness.get("/pid").body.parse().unwrap();
    thread::sleep(Duration::from_millis(1500));
    assert_eq!(harness.get("/pid").body, pid.to_string(), "it is alive");
    signal(pid, Signal::STOP);
    until("another serves", || {
        let ready = harness.ready();
        ready.len() == 1 && ready[0] != pid
    });
    until("the silent one is gone", || {
        !processes_of(&folder).contains(&pid)
    });
    assert!(
        harness.log().contains("it sent no WATCHDOG=1"),
        "{}",
        harness.log()
    );
    harness.end();
}

#[test]
fn a_request_that_failed_is_in_the_log_by_the_name_its_client_was_told() {
    let folder = folder();
    let harness = Harness::new(
        &folder,
        "[app.shop]\nexec = APP\nmax = 1\nrequest_timeout = \"200ms\"\nuptime_min = \"0s\"\n\
         drain_timeout = \"500ms\"\nstop_timeout = \"500ms\"\n",
    );
    // The first process may take longer to start than a request may last.
    until("it serves", || harness.get("/pid").status == 200);
    let pid: i32 = harness.get("/pid").body.parse().unwrap();
    signal(pid, Signal::STOP);
    let answer = harness.get("/cart?secret=1");
    assert_eq!(answer.status, 504, "{answer:?}");
    let request = answer.field("X-Request-Id").unwrap();
    until("it is logged", || harness.log().contains(request));
    let log = harness.log();
    let line = log.lines().find(|line| line.contains(request)).unwrap();
    for word in ["shop", "request_timeout", "504", "GET /cart", "127.0.0.1"] {
        assert!(line.contains(word), "{line}");
    }
    assert!(!line.contains("secret"), "{line}");
    signal(pid, Signal::CONT);
    harness.end();
}
