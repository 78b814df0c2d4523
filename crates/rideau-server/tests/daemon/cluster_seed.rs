//! What the older allocator did on several nodes, by its own words.

use std::collections::BTreeSet;

use crate::cluster::{Rig, ask_on, reserved, until_served, until_spread};
use crate::server::{Server, until};
use crate::wire::{Value, Wire};

fn nodes<const N: usize>(rig: &Rig, names: [&str; N]) -> [Server; N] {
    let nodes = names.map(|name| rig.node(name));
    nodes.iter().for_each(|node| until_spread(node, N));
    nodes
}

/// The owner of each partition, as a node tells it.
fn owners(wire: &mut Wire) -> Vec<String> {
    let shown = wire.ask("SHOW PARTITIONS");
    let rows = &shown.parts()[1..];
    rows.iter().map(|row| row.at(2).text()).collect()
}

/// The names of nodes that are missing, in what is said of a range.
fn lost_nodes(wire: &mut Wire) -> Vec<String> {
    let stat = wire.ask("RANGE.INFO all");
    let lost = stat.field("lost_nodes").parts();
    lost.iter().map(Value::text).collect()
}

#[test]
fn hash_to_node_is_the_same_on_all_nodes_and_changes_with_them() {
    let rig = Rig::start();
    let [one, two] = nodes(&rig, ["n1", "n2"]);
    let mut wires = [one.connect(), two.connect()];
    let table = owners(&mut wires[0]);
    assert_eq!(table.len(), 16);
    until("both have the same table", || {
        let [one, two] = &mut wires;
        owners(one) == owners(two)
    });
    // The value belongs to the partition of its number, and its ticket names that.
    let mut given = Vec::new();
    for at in 0..32 {
        let (value, ticket) = reserved(&ask_on(&mut wires[at % 2], "RESERVE all TTL 600000"));
        given.push((value.parse::<u32>().unwrap() % 16, ticket));
    }
    for (partition, ticket) in &given {
        let tag = ticket.split(['{', '}']).nth(1).unwrap();
        let slot = wires[0].ask(&format!("CLUSTER KEYSLOT {ticket}")).int();
        assert_eq!(slot, wires[1].ask(&format!("CLUSTER KEYSLOT {tag}")).int());
        assert_eq!(slot * 16 / 16_384, i64::from(*partition), "{ticket}");
    }
    two.stop();
    drop(wires);
    until_spread(&one, 1);
    assert!(owners(&mut one.connect()).iter().all(|owner| owner == "n1"));
}

#[test]
fn a_reserve_hops_to_another_node_when_this_one_has_no_value_left() {
    let rig = Rig::start();
    let [one, two] = nodes(&rig, ["n1", "n2"]);
    let mut wire = one.connect();
    let mut hops = Vec::new();
    for _ in 0..16 {
        let reply = ask_on(&mut wire, "RESERVE few TTL 600000");
        reserved(&reply);
        hops.push(reply.at(5).int());
    }
    let here = hops.iter().take_while(|hops| **hops == 0).count();
    assert!(here >= 4, "its own come first: {hops:?}");
    assert!(hops[here..].iter().all(|hops| *hops == 1), "{hops:?}");
    assert!(here < 16, "others have the rest: {hops:?}");
    let reply = two.connect().ask("RESERVE few");
    assert_eq!(reply.at(0).text(), "none", "{reply}");
}

#[test]
fn info_counts_all_nodes_and_lists_lost_nodes_until_they_return() {
    let rig = Rig::start();
    let [one, two, three] = nodes(&rig, ["n1", "n2", "n3"]);
    let mut wire = one.connect();
    for _ in 0..50 {
        reserved(&ask_on(&mut wire, "RESERVE all TTL 600000"));
    }
    let counts = |wire: &mut Wire| {
        let stat = wire.ask("RANGE.INFO all");
        ["size", "free", "reserved"].map(|name| stat.field(name).int())
    };
    for node in [&one, &two, &three] {
        let mut wire = node.connect();
        until("all nodes are counted", || {
            counts(&mut wire) == [10_000, 9_950, 50]
        });
        assert!(lost_nodes(&mut wire).is_empty());
    }
    three.kill();
    until("the lost one is listed", || lost_nodes(&mut wire) == ["n3"]);
    // The others have its values, and all are counted again.
    until_spread(&one, 2);
    until("all values are counted", || {
        counts(&mut wire) == [10_000, 9_950, 50]
    });
    let _three = rig.node("n3");
    until("it is not lost any more", || {
        lost_nodes(&mut wire).is_empty()
    });
    until_spread(&one, 3);
    until("all values are counted", || {
        counts(&mut wire) == [10_000, 9_950, 50]
    });
}

/// How many values of the range in memory are free, quarantined and reserved.
fn in_memory(wire: &mut Wire) -> [i64; 3] {
    let stat = wire.ask("RANGE.INFO swift");
    ["free", "quarantined", "reserved"].map(|name| stat.field(name).int())
}

#[test]
fn a_node_that_rejoins_has_its_values_in_quarantine_until_updates_tell_which_are_used() {
    let rig = Rig::start();
    let swift = "[range.swift]\nvalues = [\"40000-40031\"]\nclass = \"memory\"\n\
                 quarantine = \"6s\"\n[lock.";
    let node = |name| Server::with(&rig.config(name, 2).replace("[lock.", swift));
    let (one, two) = (node("n1"), node("n2"));
    until_spread(&one, 2);
    until_spread(&two, 2);
    let mut wire = one.connect();
    // Nothing is known of them, so all begin in quarantine, and are free after it.
    until("all are free", || in_memory(&mut wire) == [32, 0, 0]);
    let mut given = BTreeSet::new();
    for _ in 0..32 {
        let (value, _) = reserved(&ask_on(&mut wire, "RESERVE swift TTL 600000 DATA before"));
        assert!(given.insert(value));
    }
    until("all are reserved", || in_memory(&mut wire) == [0, 0, 32]);
    two.kill();
    // What the dead node had may still be used: no node gives it out.
    until("its values are in quarantine", || {
        in_memory(&mut wire) == [0, 16, 16]
    });
    assert_eq!(wire.ask("RESERVE swift").at(0).text(), "none");
    // An update of a value is the sign that it is used; half of them are.
    let quarantined: Vec<String> = given
        .iter()
        .filter(|value| {
            let found = ask_on(&mut wire, &format!("LOOKUP {value}"));
            found
                .parts()
                .iter()
                .any(|part| part.text() == "quarantined")
        })
        .cloned()
        .collect();
    assert_eq!(quarantined.len(), 16);
    for value in &quarantined[..8] {
        let reply = ask_on(&mut wire, &format!("UPDATE {value} TTL 600000 DATA after"));
        assert_eq!(reply.at(0).text(), "ok", "{reply}");
    }
    // It rejoins, and gets partitions of the node that lived, as they are.
    let two = node("n2");
    until_spread(&two, 2);
    until("the rest is free", || in_memory(&mut wire) == [8, 0, 24]);
    for _ in 0..8 {
        let (value, _) = reserved(&ask_on(&mut two.connect(), "RESERVE swift TTL 600000"));
        assert!(quarantined[8..].contains(&value), "{value} is used");
    }
    let reply = ask_on(&mut wire, "RESERVE swift");
    assert_eq!(reply.at(0).text(), "none", "{reply}");
}

#[test]
fn all_nodes_are_stopped_and_started_with_what_they_gave_out() {
    let rig = Rig::start();
    let mut given = BTreeSet::new();
    for round in 0..2 {
        let nodes = nodes(&rig, ["n1", "n2", "n3"]);
        let mut wires = nodes.each_ref().map(Server::connect);
        for (at, (value, _)) in given.iter().enumerate() {
            let found = ask_on(&mut wires[at % 3], &format!("LOOKUP {value}"));
            assert!(found.to_string().contains("reserved"), "{value}: {found}");
        }
        for at in 0..60 {
            let reply = ask_on(&mut wires[at % 3], "RESERVE all TTL 600000");
            assert!(
                given.insert(reserved(&reply)),
                "round {round}: no value twice"
            );
        }
        drop(wires);
        // At the same time, so that the last has no node to hand anything to.
        nodes.iter().for_each(Server::ask_to_stop);
        for mut node in nodes {
            assert!(node.ended().success(), "{}", node.said());
        }
    }
    let one = rig.node("n1");
    until_spread(&one, 1);
    until_served(&one);
    let mut wire = one.connect();
    for (value, ticket) in &given {
        let reply = ask_on(&mut wire, &format!("RELEASE {ticket}"));
        assert_eq!(reply.text(), "OK", "{value}");
    }
}
