//! How many requests at a time real servers of applications get, where that is learnt. A soak
//! has the time: it prints how fast they are beside what they are alone, or with a number that
//! was written down, and fails only where that does not hang on the machine.
//!
//! `RIDEAU_LIMITS` is how many seconds load is steady.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use rideau_testing::{Running, Start, command};

use crate::harness::{Harness, folder, is_soak};

/// It waits for 50 ms, like one that asks a database.
const ASYNC: &str = "import asyncio
async def app(scope, receive, send):
    if scope['type'] != 'http':
        return
    await asyncio.sleep(0.05)
    await send({'type': 'http.response.start', 'status': 200,
                'headers': [(b'content-length', b'2')]})
    await send({'type': 'http.response.body', 'body': b'ok'})
";
/// The same with one request at a time.
const SYNC: &str = "import time
def app(environ, start):
    time.sleep(0.05)
    start('200 OK', [('Content-Length', '2')])
    return [b'ok']
";
const GO: &str = "package main

import (
\t\"io\"
\t\"net/http\"
\t\"os\"
)

func main() {
\thttp.HandleFunc(\"/\", func(out http.ResponseWriter, _ *http.Request) {
\t\tio.WriteString(out, \"ok\")
\t})
\thttp.ListenAndServe(\"127.0.0.1:\"+os.Getenv(\"PORT\"), nil)
}
";
const MOVES_MAX: u64 = 20;

/// What `wrk` counted.
#[derive(Debug)]
struct Counted {
    per_s: f64,
    /// Answers with another status than 2xx.
    refused: u64,
}

/// `wrk` asks over this many connections for some seconds.
fn start_wrk(place: &str, connections: usize, seconds: u64) -> Running {
    command("wrk")
        .args(["-t1", &format!("-c{connections}"), &format!("-d{seconds}")])
        .args(["--timeout", "60s", &format!("http://{place}/")])
        .stdout(Stdio::piped())
        .start()
}

fn counted(wrk: Running) -> Counted {
    let done = wrk.wait_with_output().unwrap();
    assert!(done.status.success(), "{done:?}");
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    let after = |what: &str| {
        let (_, rest) = text.split_once(what)?;
        rest.split_whitespace().next().map(str::to_owned)
    };
    let per_s = after("Requests/sec:").unwrap_or_else(|| panic!("{text}"));
    let refused = after("Non-2xx or 3xx responses:");
    Counted {
        per_s: per_s.parse().unwrap(),
        refused: refused.map_or(0, |count| count.parse().unwrap()),
    }
}

fn wrk(place: &str, connections: usize, seconds: u64) -> Counted {
    counted(start_wrk(place, connections, seconds))
}

/// A server with one process of an application.
fn serve(folder: &Path, exec: &str, more: &str) -> Harness {
    fs::write(folder.join("waits.py"), ASYNC).unwrap();
    fs::write(folder.join("blocks.py"), SYNC).unwrap();
    let text = format!(
        "[app.shop]\nroot = \"FOLDER\"\nlisten = \"port\"\nmin = 1\nmax = 1\nexec = {exec}\n\
         trial = \"none\"\n{more}\n"
    );
    let harness = Harness::with_front(folder, "client_connections_max = 1000", &text);
    harness.get("/");
    harness
}

/// A number of the app.
fn number(harness: &Harness, name: &str) -> u64 {
    let metrics = harness.admin("GET", "/metrics", "").body;
    let mut lines = metrics.lines().filter(|line| line.starts_with(name));
    let value = lines.next().and_then(|line| line.rsplit(' ').next());
    let value = value.unwrap_or_else(|| panic!("no {name} in {metrics}"));
    value.parse::<f64>().unwrap() as u64
}

fn concurrency(harness: &Harness) -> u64 {
    number(harness, "rideau_app_concurrency{")
}

fn moves(harness: &Harness) -> u64 {
    number(harness, "rideau_app_concurrency_moves_total{")
}

/// How long load is steady.
fn steady() -> u64 {
    let said = std::env::var("RIDEAU_LIMITS").ok();
    said.and_then(|said| said.parse().ok()).unwrap_or(600)
}

/// How many connections to this port are open, as who listens there sees it.
fn connections(port: u16) -> usize {
    let all = fs::read_to_string("/proc/net/tcp").unwrap();
    let local = format!(":{port:04X}");
    let is_there = |line: &&str| {
        let mut words = line.split_whitespace().skip(1);
        words.next().is_some_and(|word| word.ends_with(&local)) && words.nth(1) == Some("01")
    };
    all.lines().filter(is_there).count()
}

/// The port where a process was told to listen.
fn port_of(pid: i32) -> u16 {
    let all = fs::read(format!("/proc/{pid}/environ")).unwrap();
    let all = String::from_utf8_lossy(&all).into_owned();
    let mut all = all.split('\0');
    all.find_map(|one| one.strip_prefix("PORT="))
        .and_then(|port| port.parse().ok())
        .expect("it has a port")
}

#[test]
fn one_that_waits_gets_as_many_as_it_bears() {
    if !is_soak() {
        return;
    }
    let folder = folder();
    let exec = "[\"uvicorn\", \"--no-access-log\", \"--port\", \"{port}\", \"waits:app\"]";
    let harness = serve(&folder, exec, "");
    let place = format!("127.0.0.1:{}", port_of(harness.ready()[0]));
    let alone = wrk(&place, 256, 10);
    let first = wrk(&harness.front.to_string(), 256, 15);
    let limit = concurrency(&harness);
    let then = wrk(&harness.front.to_string(), 256, 10);
    let again = wrk(&place, 256, 10);
    eprintln!(
        "uvicorn, 50 ms, 256 connections: {:.0} and {:.0} a second alone; {:.0} and {} refused in \
         the first 15 s, {:.0} and {} after that: {:.0} %; the limit is {limit}, then {}, after {} \
         moves",
        alone.per_s,
        again.per_s,
        first.per_s,
        first.refused,
        then.per_s,
        then.refused,
        200.0 * then.per_s / (alone.per_s + again.per_s),
        concurrency(&harness),
        moves(&harness),
    );
    assert!(limit >= 48, "{limit}");
    harness.end();
}

#[test]
fn one_that_serves_one_at_a_time_sees_few() {
    if !is_soak() {
        return;
    }
    let folder = folder();
    let exec = "[\"gunicorn\", \"--bind\", \"127.0.0.1:{port}\", \"blocks:app\"]";
    let harness = serve(&folder, exec, "");
    let port = port_of(harness.ready()[0]);
    let load = start_wrk(&harness.front.to_string(), 64, steady());
    thread::sleep(Duration::from_secs(45.min(steady() / 2)));
    let end = Instant::now() + Duration::from_secs(10);
    let (mut most, mut looks, mut over) = (0, 0, 0);
    while Instant::now() < end {
        let inside = connections(port);
        most = most.max(inside);
        looks += 1;
        over += usize::from(inside > 3);
        thread::sleep(Duration::from_millis(5));
    }
    let limit = concurrency(&harness);
    let load = counted(load);
    eprintln!(
        "gunicorn, 1 worker, 50 ms, 64 connections: {most} at once at most, over 3 in {over} of \
         {looks} looks; the limit is {limit}, then {}, after {} moves in {} s; {load:?}",
        concurrency(&harness),
        moves(&harness),
        steady(),
    );
    assert!(limit <= 3, "{limit}");
    assert!(moves(&harness) <= MOVES_MAX * steady().div_ceil(600));
    harness.end();
}

#[test]
fn one_in_go_is_no_slower_than_with_a_number() {
    if !is_soak() {
        return;
    }
    let mut rates = Vec::new();
    for more in ["concurrency = 64", "", "concurrency = 64", ""] {
        let folder = folder();
        fs::write(folder.join("main.go"), GO).unwrap();
        let built = command("go")
            .args(["build", "-o", "server", "main.go"])
            .env("GOCACHE", folder.join("cache"))
            .current_dir(&folder)
            .output()
            .unwrap();
        assert!(built.status.success(), "{built:?}");
        let exec = format!("[\"{}/server\"]", folder.display());
        let harness = serve(&folder, &exec, more);
        let place = harness.front.to_string();
        let first = wrk(&place, 256, 15);
        let then = wrk(&place, 256, 10);
        eprintln!(
            "Go, 256 connections, {more:?}: {:.0} a second and {} refused, {:.0} and {} in the \
             first 15 s; the limit is {}, after {} moves",
            then.per_s,
            then.refused,
            first.per_s,
            first.refused,
            concurrency(&harness),
            moves(&harness),
        );
        rates.push(then.per_s);
        harness.end();
    }
    let share = (rates[1] + rates[3]) / (rates[0] + rates[2]);
    eprintln!("Go: {:.0} % of the rate with 64", 100.0 * share);
}
