//! The server as a process: how it starts, looks and ends.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use rideau_testing::{Signal, Start, command, signal};
use serde_json::Value;

use crate::served::{Folder, Served, rideau, text, wait_for};

#[test]
fn it_ends_properly_when_asked_to() {
    for name in [Signal::TERM, Signal::INT] {
        let mut served = Served::start();
        signal(served.id(), name);
        assert_eq!(served.wait(), Some(0), "{name:?}");
    }
}

#[test]
fn it_says_which_of_its_addresses_is_for_what() {
    let folder = Folder::new("places");
    let file = folder.0.join("rideau.toml");
    let config = "[server]\nlisten = [\"127.0.0.1:0\"]\nadmin = \"127.0.0.1:0\"\n\
                  [front]\nlisten = [\"127.0.0.1:0\"]\n";
    std::fs::write(&file, config).unwrap();
    let mut server = rideau();
    server.args(["serve", "-c"]).arg(&file);
    let mut server = server.stdout(Stdio::piped()).start();
    let lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let lines: Vec<_> = lines.take(3).map(Result::unwrap).collect();
    assert!(!lines[0].contains("http"), "{lines:?}");
    assert!(lines[1].ends_with(" (status, metrics, API)"), "{lines:?}");
    assert!(lines[2].ends_with(" (applications)"), "{lines:?}");
    signal(server.id(), Signal::TERM);
    server.wait().unwrap();
}

#[test]
fn decisions_are_logged_for_a_while_after_the_start() {
    let mut server = rideau();
    server.args(["serve", "--listen", "127.0.0.1:0", "--admin", "none"]);
    server.args(["--set", "log.debug_for=1ms", "--set", "log.level=info"]);
    let server = server.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut server = server.start();
    let mut lines = BufReader::new(server.stderr.take().unwrap()).lines();
    let mut told = lines.by_ref().map(Result::unwrap);
    assert!(told.any(|line| line.contains("every decision is logged for 1ms")));
    assert!(told.any(|line| line.contains("log.debug_for has passed")));
    // It listens for signals by then.
    let mut line = String::new();
    let mut said = BufReader::new(server.stdout.take().unwrap());
    said.read_line(&mut line).unwrap();
    assert!(line.contains("serves at"), "{line}");
    signal(server.id(), Signal::TERM);
    server.wait().unwrap();
}

#[test]
fn lines_of_the_log_have_the_time_unless_a_supervisor_writes_it() {
    for (format, times, begin) in [
        ("text", "true", "20"),
        ("text", "false", " INFO "),
        ("json", "true", "{\"timestamp\":\"20"),
        ("json", "false", "{\"level\":\"INFO\""),
    ] {
        let mut server = rideau();
        server.args(["serve", "--listen", "127.0.0.1:0", "--admin", "none"]);
        let (format, times) = (format!("log.format={format}"), format!("log.times={times}"));
        // So that there is a line.
        server.args([
            "--set",
            &format,
            "--set",
            &times,
            "--set",
            "log.debug_for=1ms",
        ]);
        let server = server.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut server = server.start();
        let mut line = String::new();
        let mut log = BufReader::new(server.stderr.take().unwrap());
        log.read_line(&mut line).unwrap();
        assert!(line.starts_with(begin), "{format} {times}: {line}");
        line.clear();
        // It listens for signals by then.
        let mut said = BufReader::new(server.stdout.take().unwrap());
        said.read_line(&mut line).unwrap();
        signal(server.id(), Signal::TERM);
        server.wait().unwrap();
    }
}

#[test]
fn a_second_signal_stops_it_at_once() {
    let mut served = Served::start();
    let mark = served.folder().join("began");
    let script = format!("touch {}; exec cat", mark.display());
    let mut holder = served.rideau();
    holder.args(["lock", "key", "--", "sh", "-c", &script]);
    holder.stdin(Stdio::piped()).stderr(Stdio::null());
    let mut holder = holder.start();
    wait_for(&mark);
    // Signals of one kind that come together count once.
    signal(served.id(), Signal::TERM);
    signal(served.id(), Signal::INT);
    assert_eq!(served.wait(), Some(1));
    drop(holder.stdin.take());
    holder.wait().unwrap();
}

#[test]
fn a_place_that_is_taken_is_an_error() {
    let served = Served::start();
    let listen = format!("unix:{}", served.folder().join("sock").display());
    let mut second = rideau();
    second.args(["serve", "--admin", "none", "--listen", &listen]);
    let output = second.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.contains("cannot listen at"), "{said}");
    assert!(
        said.contains("choose another address with server.listen"),
        "{said}"
    );
}

#[test]
fn the_log_says_as_much_as_the_config_wants_now() {
    let folder = Folder::new("log");
    let (file, log) = (folder.0.join("rideau.toml"), folder.0.join("log"));
    let socket = folder.0.join("sock");
    let config = format!(
        "[server]\nlisten = [\"unix:{}\"]\nadmin = \"none\"\n[log]\nlevel = \"error\"\n\
         [pool.cad]\nmember = {{ list = [\"A\"] }}\n",
        socket.display()
    );
    std::fs::write(&file, config).unwrap();
    let mut server = rideau();
    server.args(["serve", "-c"]).arg(&file);
    server.stderr(std::fs::File::create(&log).unwrap());
    let mut server = server.stdout(Stdio::null()).start();
    wait_for(&socket);
    let say = |words: &[&str]| {
        let place = format!("unix:{}", socket.display());
        let output = rideau().env("RIDEAU_SERVER", place).args(words).output();
        assert!(output.unwrap().status.success(), "{words:?}");
    };
    let said = || std::fs::read_to_string(&log).unwrap();
    say(&["set", "pool.cad.max", "1"]);
    assert_eq!(said(), "", "errors only");
    say(&["set", "log.level", "\"info\""]);
    say(&["set", "pool.cad.leak_after", "\"1h\""]);
    let text = said();
    assert!(text.contains("leak_after"), "{text}");
    say(&["set", "log.level", "\"error\""]);
    let before = said();
    say(&["set", "pool.cad.leak_after", "\"2h\""]);
    assert_eq!(said(), before);
    signal(server.id(), Signal::TERM);
    server.wait().unwrap();
}

#[test]
fn what_cannot_be_run_is_not_tried_for_ever() {
    let folder = Folder::new("run");
    let file = folder.0.join("no-program");
    std::fs::write(&file, "").unwrap();
    for (command, code) in [("/nonexistent/program", 127), (file.to_str().unwrap(), 126)] {
        let mut run = rideau();
        run.args(["run", "--listen", "localhost:0", "--", command]);
        let output = run.output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains(command), "{said}");
    }
}

#[test]
fn an_address_that_is_taken_is_named_by_the_option_of_run() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let place = taken.local_addr().unwrap().to_string();
    let mut run = rideau();
    run.args(["run", "--listen", &place, "--", "cat"]);
    let output = run.output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("choose another address with --listen"),
        "{said}"
    );
}

#[test]
fn a_user_who_waits_for_an_application_is_told_what_for() {
    let folder = Folder::new("silent");
    let mut run = rideau();
    run.current_dir(&folder.0);
    run.args(["run", "--listen", "127.0.0.1:0", "--", "sleep", "600"]);
    let mut run = run.stdin(Stdio::null()).stderr(Stdio::piped()).start();
    let mut lines = BufReader::new(run.stderr.take().unwrap()).lines();
    let wanted = "rideau waits for sleep to listen at the port that the variable PORT says";
    let line = lines.find(|line| line.as_ref().unwrap().starts_with(wanted));
    assert!(line.is_some(), "it ended without a word about it");
    signal(run.id(), Signal::TERM);
    run.wait().unwrap();
}

#[test]
fn a_config_file_needs_no_option_to_be_named_by() {
    let folder = Folder::new("file");
    let file = folder.0.join("rideau.toml");
    let config = "[server]\nlisten = [\"127.0.0.1:0\"]\nadmin = \"none\"\nnam = \"x\"\n";
    std::fs::write(&file, config).unwrap();
    let output = rideau().arg("serve").arg(&file).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("rideau.toml:4:1  error"), "{said}");
    let mut twice = rideau();
    twice.arg("serve").arg(&file).arg("-c").arg(&file);
    assert_eq!(twice.output().unwrap().status.code(), Some(2));
}

#[test]
fn the_log_says_whose_alarm_it_is_and_nothing_of_an_unused_broker() {
    let folder = Folder::new("alarm");
    let (file, log) = (folder.0.join("rideau.toml"), folder.0.join("log"));
    let socket = folder.0.join("sock");
    // The better of two is asked for again and again, and with it all meters are read.
    let config = format!(
        "[server]\nlisten = [\"unix:{}\"]\nadmin = \"none\"\n\
         [broker.idle]\nmeters = [\n\
         {{ kind = \"better\", update = \"10ms\" }},\n\
         {{ kind = \"underload\", target = \"1ms\", interval = \"1ms\" }} ]\n\
         [broker.jobs]\nlike = \"idle\"\n",
        socket.display()
    );
    std::fs::write(&file, config).unwrap();
    let mut server = rideau();
    server.args(["serve", "-c"]).arg(&file);
    server.stderr(std::fs::File::create(&log).unwrap());
    let mut server = server.stdout(Stdio::null()).start();
    wait_for(&socket);
    let mut offer = rideau();
    offer.env("RIDEAU_SERVER", format!("unix:{}", socket.display()));
    let mut offer = offer.args(["offer", "jobs", "--wait", "30s"]).start();
    let said = || std::fs::read_to_string(&log).unwrap();
    while !said().contains("alarm raised") {
        assert!(offer.try_wait().unwrap().is_none(), "it ended too soon");
        std::thread::yield_now();
    }
    let said = said();
    let mut alarms = said.lines().filter(|line| line.contains("alarm raised"));
    let is_of_jobs = |line: &str| line.contains("broker") && line.contains("jobs");
    assert!(alarms.all(is_of_jobs), "{said}");
    offer.kill().unwrap();
    offer.wait().unwrap();
    signal(server.id(), Signal::TERM);
    server.wait().unwrap();
}

#[test]
fn the_bench_measures_locks_and_meetings() {
    let served = Served::start();
    let words = [
        "bench",
        "--json",
        "--clients",
        "4",
        "--seconds",
        "1",
        "--pool",
        "licences",
    ];
    let output = served.run(&words);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = answer["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 3);
    for row in rows {
        let rate = row["rideau"]["pairs_per_second"].as_f64();
        assert!(rate.is_some_and(|rate| rate > 0.0), "{row}");
    }
}

#[test]
fn a_bench_that_lacks_a_part_ends_with_an_error() {
    let served = Served::start();
    let mut bench = served.rideau();
    bench.args(["bench", "--clients", "2", "--seconds", "1"]);
    let output = bench.args(["--broker", "nope"]).output().unwrap();
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("lock + release "), "{said}");
    assert!(said.contains("ask + offer: NOSUCH"), "{said}");
}

#[test]
fn a_bench_that_is_interrupted_leaves_nothing() {
    let served = Served::start();
    let pools = || {
        let output = served.run(&["status", "pools", "--json"]);
        let pools: Value = serde_json::from_slice(&output.stdout).unwrap();
        pools.as_array().unwrap().len()
    };
    for name in [Signal::INT, Signal::TERM] {
        let mut bench = served.rideau();
        bench.args(["bench", "--clients", "2", "--seconds", "60"]);
        let mut bench = bench.stdout(Stdio::null()).start();
        while pools() == 1 {
            assert!(bench.try_wait().unwrap().is_none(), "it ended too soon");
        }
        signal(bench.id(), name);
        assert_eq!(bench.wait().unwrap().code(), Some(130), "{name:?}");
        assert_eq!(pools(), 1, "{name:?}");
    }
}

#[test]
fn the_bench_measures_a_redis_beside_it_and_leaves_nothing_there() {
    let served = Served::start();
    let folder = Folder::new("redis");
    let socket = folder.0.join("redis.sock");
    let mut redis = command("redis-server");
    redis.args([
        "--port",
        "0",
        "--save",
        "",
        "--appendonly",
        "no",
        "--unixsocket",
    ]);
    redis
        .arg(&socket)
        .arg("--dir")
        .arg(&folder.0)
        .stdout(Stdio::null());
    let _redis = redis.start();
    wait_for(&socket);
    let against = format!("unix:{}", socket.display());
    for pipeline in ["1", "16"] {
        let mut words = vec!["bench", "--json", "--clients", "2", "--seconds", "1"];
        words.extend(["--pipeline", pipeline, "--against", &against]);
        let output = served.run(&words);
        let said = text(&output.stderr);
        assert!(output.status.success(), "{said}");
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        for row in answer["rows"].as_array().unwrap() {
            for side in ["rideau", "redis"] {
                let rate = row[side]["pairs_per_second"].as_f64();
                assert!(rate.is_some_and(|rate| rate > 0.0), "{side}: {row}");
            }
            assert!(
                row["ratio"].as_f64().is_some_and(|ratio| ratio > 0.0),
                "{row}"
            );
        }
    }
    let mut left = command("redis-cli");
    let left = left.arg("-s").arg(&socket).arg("DBSIZE").output().unwrap();
    assert_eq!(text(&left.stdout).trim(), "0");
}

#[test]
fn a_redis_that_does_not_answer_is_said_before_anything_is_measured() {
    let served = Served::start();
    let output = served.run(&["bench", "--against", "unix:/nonexistent/redis.sock"]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(
        said.contains("no Redis answers at unix:/nonexistent/redis.sock"),
        "{said}"
    );
    assert_eq!(text(&output.stdout), "");
}
