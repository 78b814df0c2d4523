//! Nodes are replaced one by one while clients use them.
//!
//! `RIDEAU_FORMER_PROGRAM` names the program of an earlier version, which the nodes run at
//! first; without it, it is the same one.

use std::collections::BTreeMap;
use std::env;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::cluster::{Rig, ask_on, reserved, until_spread};
use crate::server::{Server, program};
use crate::wire::{Value, Wire};

/// A client that reserves and releases at a node, and connects again where it may when its
/// connection is closed.
struct Load {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Outcome>,
}

/// What a client has at the end.
#[derive(Default)]
struct Outcome {
    held: BTreeMap<String, String>,
    /// Answers that were told.
    told: usize,
    /// Answers that went with a connection: what they gave ends by itself.
    lost: usize,
    /// Turns of the lock that all clients want.
    turns: usize,
}

impl Load {
    fn start(addresses: Vec<SocketAddr>, at: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut outcome = Outcome::default();
            let mut node = at;
            while !stopped.load(Ordering::Relaxed) {
                let Ok(wire) = Wire::connect(addresses[node % addresses.len()]) else {
                    node += 1;
                    thread::sleep(Duration::from_millis(20));
                    continue;
                };
                if outcome.use_it(wire, &stopped).is_err() {
                    outcome.lost += 1;
                    node += 1;
                }
            }
            outcome
        });
        Self { stop, thread }
    }

    fn end(self) -> Outcome {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

impl Outcome {
    /// Until it is stopped, or the connection ends.
    fn use_it(&mut self, mut wire: Wire, stop: &AtomicBool) -> std::io::Result<()> {
        let mut ask = |line: &str| {
            let words: Vec<_> = line.split(' ').map(str::as_bytes).collect();
            wire.try_write(&crate::wire::request(&words))?;
            wire.try_read()
        };
        while !stop.load(Ordering::Relaxed) {
            let reply = ask("RESERVE all TTL 600000")?;
            match &reply {
                Value::List(_) => {
                    let (value, ticket) = reserved(&reply);
                    assert!(self.held.insert(value, ticket).is_none(), "{reply}");
                    self.told += 1;
                }
                // A node that stops says so, and the client goes to another.
                other => return refused(other),
            }
            if self.held.len() > 40 {
                let (value, ticket) = self.held.pop_first().unwrap();
                let reply = ask(&format!("RELEASE {ticket}"))?;
                match reply.word().as_str() {
                    "OK" | "ok" => self.told += 1,
                    _ => {
                        // It was not released, or that is not known.
                        self.held.insert(value, ticket);
                        return refused(&reply);
                    }
                }
            }
            let reply = ask("LOCK one WAIT 5000")?;
            match &reply {
                Value::List(parts) if parts[0].text() == "go" => {
                    let released = ask(&format!("RELEASE {}", parts[1].text()))?;
                    self.turns += 1;
                    if released.text() != "OK" {
                        return refused(&released);
                    }
                }
                Value::List(_) => (),
                other => return refused(other),
            }
        }
        Ok(())
    }
}

/// Only a node that stops, or a partition between two owners, may refuse.
fn refused(reply: &Value) -> std::io::Result<()> {
    let text = reply.text();
    let known = ["READONLY", "CLUSTERDOWN", "UNKNOWN", "STALE"];
    let is_known = known.iter().any(|word| text.starts_with(word));
    assert!(is_known, "{text}");
    thread::sleep(Duration::from_millis(20));
    Err(std::io::Error::other(text))
}

#[test]
fn nodes_are_replaced_by_a_newer_version_one_by_one_under_load() {
    let former = env::var_os("RIDEAU_FORMER_PROGRAM").map_or_else(program, PathBuf::from);
    let rig = Rig::start();
    let names = ["n1", "n2", "n3"];
    let mut nodes = names.map(|name| Server::of(&former, &rig.config(name, 2)));
    nodes.iter().for_each(|node| until_spread(node, 3));
    // A value and a lock that stay held while nodes go by.
    let keeper = rig.config("n4", 2);
    let keeper = Server::of(&former, &keeper);
    until_spread(&keeper, 4);
    let mut held = keeper.connect();
    let (value, ticket) = reserved(&ask_on(&mut held, "RESERVE few TTL 600000"));
    let lock = ask_on(&mut held, "LOCK kept").ticket();
    let mut told = 0;
    for at in 0..names.len() {
        // Those that stay, and the new one.
        let others = nodes.iter().map(Server::address).collect();
        let loads: Vec<_> = (0..3)
            .map(|client| Load::start(Vec::clone(&others), client))
            .collect();
        let newer = Server::with(&rig.config(&format!("m{at}"), 2));
        until_spread(&newer, 5);
        let old = std::mem::replace(&mut nodes[at], newer);
        old.stop();
        until_spread(&nodes[at], 4);
        let mut wire = nodes[at].connect();
        let mut all = BTreeMap::new();
        for load in loads {
            let outcome = load.end();
            told += outcome.told;
            assert!(outcome.turns > 0, "the lock went round");
            for (value, ticket) in outcome.held {
                assert_eq!(all.insert(value, ticket), None, "no value twice");
            }
        }
        for (value, ticket) in all {
            let reply = ask_on(&mut wire, &format!("RELEASE {ticket}"));
            // A release whose answer was lost may have been carried out.
            let is_over = ["OK", "ok", "NOTHELD", "STALE"].contains(&&*reply.word());
            assert!(is_over, "{value}: {reply}");
        }
    }
    assert!(told > 100, "clients were served meanwhile: {told}");
    let other = nodes[0].connect().ask("LOCK kept");
    assert_ne!(other.word(), "go", "it is still held: {other}");
    assert_eq!(ask_on(&mut held, &format!("RELEASE {lock}")).text(), "OK");
    let found = ask_on(&mut nodes[1].connect(), &format!("LOOKUP {value}"));
    assert!(found.to_string().contains("reserved"), "{found}");
    assert_eq!(ask_on(&mut held, &format!("RELEASE {ticket}")).text(), "OK");
}
