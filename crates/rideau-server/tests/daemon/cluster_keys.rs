//! Keys that one record has for itself, on nodes that share ranges.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;

use crate::cluster::{Rig, ask_on, first_text, reserved, until_spread};
use crate::server::Server;
use crate::wire::{Value, Wire};

/// Nodes of these names that share all partitions.
fn nodes<const N: usize>(rig: &Rig, names: [&str; N]) -> [Server; N] {
    let nodes = names.map(|name| rig.node(name));
    nodes.iter().for_each(|node| until_spread(node, N));
    nodes
}

/// The value that a key has, as a node tells it.
fn value_of(wire: &mut Wire, key: &str) -> Option<String> {
    match ask_on(wire, &format!("LOOKUP KEY {key}")) {
        Value::List(rows) if rows.is_empty() => None,
        reply => Some(first_text(&reply)),
    }
}

#[test]
fn a_unique_key_has_one_value_whichever_nodes_are_asked_and_die() {
    let rig = Rig::start();
    let nodes = nodes(&rig, ["n1", "n2", "n3"]);
    let mut wires = nodes.each_ref().map(Server::connect);
    let mut given = BTreeMap::new();
    for at in 0..90 {
        let line = format!("RESERVE all TTL 600000 UNIQUE u{at} KEY room{}", at % 4);
        let reply = ask_on(&mut wires[at % 3], &line);
        let (value, ticket) = reserved(&reply);
        let again = ask_on(&mut wires[(at + 1) % 3], &line);
        assert_eq!(reserved(&again), (value.clone(), ticket.clone()), "{line}");
        let fence = reply.at(6).int();
        assert!(
            given.insert(value, (at, ticket, fence)).is_none(),
            "no value twice"
        );
    }
    // Everything that goes by a key goes on every node.
    for (value, (at, _, fence)) in &given {
        let wire = &mut wires[(at + 2) % 3];
        assert_eq!(value_of(wire, &format!("u{at}")).as_ref(), Some(value));
        let reply = ask_on(wire, &format!("REFRESH KEY u{at} FENCE {fence} TTL 700000"));
        assert_eq!(reply.at(0).text(), "ok", "{reply}");
        let reply = ask_on(
            wire,
            &format!("UPDATE KEY u{at} FENCE {fence} SET seat {at}"),
        );
        assert_eq!(reply.at(0).text(), "ok", "{reply}");
    }
    // A key that many have is told wholly, and is none to change one by.
    for wire in &mut wires {
        let reply = ask_on(wire, "LOOKUP KEY room1");
        let found: BTreeSet<String> = reply.parts().iter().map(first_text).collect();
        let all = given.iter().filter(|(_, (at, ..))| at % 4 == 1);
        let all: BTreeSet<String> = all.map(|(value, _)| value.clone()).collect();
        assert_eq!(found, all);
        ask_on(wire, "RELEASE KEY room1").is_error("ERR ");
    }
    let [one, two, three] = nodes;
    two.kill();
    let [first, _, third] = wires;
    let mut wires = [first, third];
    until_spread(&one, 2);
    until_spread(&three, 2);
    for (value, (at, ticket, _)) in &given {
        let line = format!("RESERVE all UNIQUE u{at}");
        let reply = ask_on(&mut wires[at % 2], &line);
        assert_eq!(reserved(&reply), (value.clone(), ticket.clone()), "{line}");
        let fence = reply.at(6).int();
        let line = format!("RELEASE KEY u{at} FENCE {fence}");
        let reply = ask_on(&mut wires[(at + 1) % 2], &line);
        assert_eq!(reply.text(), "OK", "u{at}");
        assert_eq!(value_of(&mut wires[at % 2], &format!("u{at}")), None);
    }
}

#[test]
fn asks_at_the_same_time_for_one_key_get_one_value() {
    let rig = Rig::start();
    let nodes = nodes(&rig, ["n1", "n2", "n3"]);
    let asks = nodes.each_ref().map(|node| {
        let mut wire = node.connect();
        thread::spawn(move || {
            let ask = |at| {
                let (by, name) = if at % 2 == 0 {
                    ("UNIQUE", at)
                } else {
                    ("ID", at)
                };
                let line = format!("RESERVE all TTL 600000 {by} k{name}");
                reserved(&ask_on(&mut wire, &line))
            };
            (0..60).map(ask).collect::<Vec<_>>()
        })
    });
    let [one, two, three] = asks.map(|asks| asks.join().unwrap());
    assert_eq!(one, two);
    assert_eq!(one, three);
    let values: BTreeSet<_> = one.iter().collect();
    assert_eq!(values.len(), 60);
}

#[test]
fn a_key_is_given_to_a_value_that_another_node_has_and_to_no_second() {
    let rig = Rig::start();
    let nodes = nodes(&rig, ["n1", "n2"]);
    let mut wires = nodes.each_ref().map(Server::connect);
    let claimed = |reply: &Value| reply.at(0).text();
    for at in 0..16 {
        let wire = &mut wires[at % 2];
        let value = 20_000 + at;
        let reply = ask_on(wire, &format!("CLAIM {value} TTL 600000 UNIQUE c{at}"));
        assert_eq!(claimed(&reply), "go", "{reply}");
        let value = 30_000 + at;
        let other = &mut wires[(at + 1) % 2];
        let line = format!("CLAIM {value} TTL 600000 UNIQUE c{at}");
        ask_on(other, &line).is_error("ERR ");
        let reply = ask_on(other, &format!("CLAIM {value} TTL 600000"));
        assert_eq!(claimed(&reply), "go", "{reply}");
        let ticket = reply.at(2).text();
        ask_on(other, &format!("UPDATE {ticket} UNIQUE c{at}")).is_error("ERR ");
        let reply = ask_on(other, &format!("UPDATE {ticket} UNIQUE d{at}"));
        assert_eq!(claimed(&reply), "ok", "{reply}");
        assert_eq!(
            value_of(&mut wires[at % 2], &format!("d{at}")),
            Some(value.to_string())
        );
    }
    let wire = &mut wires[0];
    wire.ask("RESERVE all UNIQUE a UNIQUE b").is_error("ERR ");
    wire.ask("RESERVE all UNIQUE a ID b").is_error("ERR ");
    // Nothing is left of it, so a key finds a value only where it has one.
    let (value, _) = reserved(&ask_on(wire, "RESERVE few UNIQUE c3"));
    assert_eq!(value, "20003");
    assert_eq!(ask_on(wire, "RESERVE few UNIQUE new").at(0).text(), "none");
}
