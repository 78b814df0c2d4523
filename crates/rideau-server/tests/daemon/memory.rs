//! Memory comes back: after crowds, many keys and holders that died, the server is
//! about as small as it was.
//!
//! Clients are in processes of their own, which are killed: this test program again, as
//! [`a_client_of_the_crowd`]. `./test memory` has the program as it is released, ten
//! thousand connections, a million keys and a hundred thousand leases, and judges a
//! minute later.

use std::env;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use rideau_testing::{Running, Start, command};

use crate::server::{Server, until};
use crate::wire::{Wire, request};

/// What a process of clients does: a kind, which process it is, how many connections,
/// and how much each of them does.
const PART: &str = "RIDEAU_CLIENT_PART";
const ADDRESS: &str = "RIDEAU_CLIENT_ADDRESS";
/// What it says when that is done.
const READY: &str = "all of it is done";

/// Processes that clients are in: each may have this many open files and no more.
const PROCESSES: usize = 4;
/// Commands that are sent at once.
const AT_ONCE: usize = 500;

/// What may be left: a tenth, or this.
const LEFT_MAX: u64 = 5 * 1024 * 1024;
/// Of a small crowd, one part in this many may be left: allocators round up.
const SMALL_LEFT: u64 = 5;
const IDLE_MAX: u64 = 6 * 1024;
const BLOCKED_MAX: u64 = 10 * 1024;

const CONFIG: &str = r#"
wait_max = "10m"

[limits]
connections_max = 11_000
held_max = 1_000_000
keys_max = 1_100_000

[regulator.many]
queue = { kind = "never" }
valve = { kind = "open", max = 1_000_000 }

[lock."*"]
queue = { kind = "never" }
keys_max = 1_100_000
"#;

/// How much of everything.
struct Load {
    connections: usize,
    keys: usize,
    leases: usize,
    /// When it is judged.
    after: Duration,
}

/// Little of everything, so that no test waits for long.
const USUAL: Load = Load {
    connections: 1_000,
    keys: 100_000,
    leases: 10_000,
    after: Duration::ZERO,
};
/// What is promised.
const PROMISED: Load = Load {
    connections: 10_000,
    keys: 1_000_000,
    leases: 100_000,
    after: Duration::from_secs(60),
};

impl Load {
    /// What is promised is promised of the released program, and needs a quiet machine.
    fn of_today() -> Self {
        match env::var_os("RIDEAU_PROGRAM") {
            Some(_) => PROMISED,
            None => USUAL,
        }
    }
}

#[test]
fn what_crowds_keys_and_dying_holders_took_comes_back() {
    let load = Load::of_today();
    let (server, mut observer) = warm();
    let start = server.memory();
    let mut peak = start;
    println!("{start} bytes at the start");
    let each = |all: usize| all / (PROCESSES * 5);
    for (kind, connections, each) in [
        ("idle", load.connections, 1),
        ("blocked", load.connections, 1),
        ("keys", PROCESSES * 5, each(load.keys)),
        ("leases", PROCESSES * 5, each(load.leases)),
    ] {
        let clients = come(&server, &mut observer, kind, connections, each);
        peak = peak.max(server.memory());
        println!("{} bytes with {connections} of {kind}", server.memory());
        drop(clients);
        alone(&mut observer);
        println!("{} bytes when they were gone", server.memory());
    }
    thread::sleep(load.after);
    let most = start + LEFT_MAX.max(start / 10);
    if load.after.is_zero() {
        let most = most.max(start + (peak - start) / SMALL_LEFT);
        until(&format!("less than {most} bytes are left"), || {
            server.memory() <= most
        });
    } else {
        let left = server.memory();
        println!("{left} bytes after {:?}", load.after);
        assert!(left <= most, "{left} of {start} bytes at the start");
    }
}

#[test]
fn a_connection_costs_little() {
    let count = Load::of_today().connections;
    for (kind, most) in [("idle", IDLE_MAX), ("blocked", BLOCKED_MAX)] {
        let (server, mut observer) = warm();
        let before = server.memory();
        let clients = come(&server, &mut observer, kind, count, 1);
        let each = server.memory().saturating_sub(before) / count as u64;
        println!("{each} bytes for each of {count} {kind} connections");
        assert!(each <= most, "{each} bytes for each {kind} connection");
        drop(clients);
    }
}

/// A server that has what it needs once and for all, and a connection to it that holds
/// what clients of the crowd wait for.
fn warm() -> (Server, Wire) {
    let server = Server::with(CONFIG);
    let mut observer = server.connect();
    observer.ask("LOCK hot").ticket();
    for (kind, each) in [("idle", 1), ("leases", 10), ("keys", 10)] {
        drop(come(&server, &mut observer, kind, 100, each));
    }
    alone(&mut observer);
    (server, observer)
}

/// Have connections come from several processes, and do this much each. They are
/// killed when this is dropped.
fn come(
    server: &Server,
    observer: &mut Wire,
    kind: &str,
    connections: usize,
    each: usize,
) -> Vec<Running> {
    let start = |part: usize| {
        let raised = r#"ulimit -n "$(ulimit -Hn)"; exec "$0" "$@""#;
        let mut client = command("bash");
        client.args(["-c", raised]).arg(env::current_exe().unwrap());
        client.args(["--exact", "memory::a_client_of_the_crowd", "--nocapture"]);
        let count = connections / PROCESSES;
        client.env(PART, format!("{kind} {part} {count} {each}"));
        client.env(ADDRESS, server.address().to_string());
        client.stdin(Stdio::null()).stdout(Stdio::piped());
        client.start()
    };
    let mut clients: Vec<Running> = (0..PROCESSES).map(start).collect();
    for client in &mut clients {
        let said = BufReader::new(client.stdout.take().unwrap());
        let mut lines = said.lines().map_while(Result::ok);
        assert!(lines.any(|line| line == READY), "{kind} did not come");
    }
    if kind == "blocked" {
        let is_blocked = || number(observer, "blocked_clients:") == connections;
        until("all of them wait", is_blocked);
    }
    clients
}

/// Wait until only the observer is connected.
fn alone(observer: &mut Wire) {
    let is_alone = || number(observer, "connected_clients:") == 1;
    until("all others are gone", is_alone);
}

/// A number that the server tells of its clients.
fn number(observer: &mut Wire, name: &str) -> usize {
    let told = observer.ask("INFO clients").text();
    let found = told.lines().find_map(|line| line.strip_prefix(name));
    found.unwrap().trim().parse().unwrap()
}

/// No test, but the process of a test's clients.
#[test]
fn a_client_of_the_crowd() {
    let Ok(part) = env::var(PART) else {
        return;
    };
    let words: Vec<&str> = part.split(' ').collect();
    let [kind, part, count, each] = words[..] else {
        panic!("no part: {part}");
    };
    let (count, each): (usize, usize) = (count.parse().unwrap(), each.parse().unwrap());
    let address = env::var(ADDRESS).unwrap().parse().unwrap();
    let mut wires = Vec::new();
    for at in 0..count {
        let mut wire = Wire::connect(address).unwrap();
        match kind {
            "idle" => assert_eq!(wire.ask("PING").text(), "PONG"),
            "blocked" => wire.send("LOCK hot WAIT 600000"),
            "keys" => hold(&mut wire, each, |key| format!("LOCK key-{part}-{at}-{key}")),
            "leases" => hold(&mut wire, each, |_| "REG.ASK many".into()),
            other => panic!("no kind of load: {other}"),
        }
        wires.push(wire);
    }
    // The harness has begun a line.
    println!("\n{READY}");
    thread::sleep(Duration::MAX);
}

/// Take this much, and keep it.
fn hold(wire: &mut Wire, each: usize, line: impl Fn(usize) -> String) {
    for first in (0..each).step_by(AT_ONCE) {
        let some = first..each.min(first + AT_ONCE);
        let mut bytes = Vec::new();
        for at in some.clone() {
            let line = line(at);
            let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            bytes.extend(request(&words));
        }
        wire.write(&bytes);
        some.for_each(|_| drop(wire.read().ticket()));
    }
}
