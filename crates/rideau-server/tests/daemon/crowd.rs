//! Many connections, most of them idle.
//!
//! The test runs itself again with as many open files as the system allows,
//! since the usual limit is far below a crowd.

use std::env;
use std::thread;

use crate::server::{Server, run_with_all_files};
use crate::wire::Wire;

const CROWD: usize = 10_000;
const ACTIVE: usize = 1_000;
const THREADS: usize = 4;
const IDLE_BYTES_MAX: u64 = 6 * 1024;

const CONFIG: &str = r#"
[limits]
connections_max = 12_000

[pool.many]
member = { list = ["v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8"] }
queue = { kind = "never" }

[lock."*"]
"#;

const AGAIN: &str = "RIDEAU_CROWD";

#[test]
fn ten_thousand_connections_are_served_and_idle_ones_are_small() {
    if env::var_os(AGAIN).is_some() {
        return crowd();
    }
    let name = "crowd::ten_thousand_connections_are_served_and_idle_ones_are_small";
    run_with_all_files(name, AGAIN);
}

fn crowd() {
    let server = Server::with(CONFIG);
    // What the server needs once and for all it has after these.
    let mut first = come(&server, 200);
    act(&mut first);
    drop(first);
    server.until_alone();
    let before = server.memory();
    let mut wires = come(&server, CROWD);
    let idle = server.memory().saturating_sub(before) / CROWD as u64;
    act(&mut wires[..ACTIVE]);
    let used = server.memory().saturating_sub(before) / CROWD as u64;
    println!("{idle} bytes per idle connection, {used} after {ACTIVE} were active");
    assert!(idle <= IDLE_BYTES_MAX, "{idle} bytes per idle connection");
    assert!(used <= IDLE_BYTES_MAX, "{used} bytes per connection later");
    for wire in wires.iter_mut().step_by(7) {
        assert_eq!(wire.ask("PING").text(), "PONG");
    }
    assert_eq!(listed(&mut wires[0]), CROWD);
}

/// The connections of the crowd, on all pages of the list.
fn listed(wire: &mut Wire) -> usize {
    let mut count = 0;
    let mut next = "CLIENT LIST".to_owned();
    loop {
        let page = wire.ask(&next).text();
        let last = page.lines().last().expect("it lists itself");
        let is_of_crowd = |line: &&str| line.contains(" lib-name=crowd");
        count += page.lines().filter(is_of_crowd).count();
        let Some((_, from)) = last
            .strip_prefix("more=")
            .and_then(|l| l.split_once(" from="))
        else {
            return count;
        };
        next = format!("CLIENT LIST FROM {from}");
    }
}

/// Connections that said what real clients say first.
fn come(server: &Server, count: usize) -> Vec<Wire> {
    let come = |_| {
        let mut wire = server.connect3();
        assert_eq!(wire.ask("CLIENT SETINFO LIB-NAME crowd").text(), "OK");
        wire
    };
    (0..count).map(come).collect()
}

/// All of them take and give back, several at a time.
fn act(wires: &mut [Wire]) {
    let share = wires.len().div_ceil(THREADS);
    thread::scope(|scope| {
        for wires in wires.chunks_mut(share) {
            scope.spawn(move || {
                for wire in &mut *wires {
                    wire.send("TAKE many WAIT 30000 ASYNC ID a");
                }
                for (number, wire) in wires.iter_mut().enumerate() {
                    let ticket = wire.read().ticket();
                    wire.ask(&format!("RELEASE {ticket}"));
                    let ticket = wire.ask(&format!("LOCK key-{number} PER 100")).ticket();
                    assert_eq!(wire.ask(&format!("RELEASE {ticket}")).text(), "OK");
                }
            });
        }
    });
}
