//! Values of ranges that nodes share: waited for, and had several at a time.

use std::collections::BTreeSet;
use std::thread;

use serde_json::Value as Json;

use crate::cluster::{Rig, ask_on, reserved, until_spread};
use crate::server::{Server, until};
use crate::wire::{Value, Wire};

fn nodes<const N: usize>(rig: &Rig, names: [&str; N]) -> [Server; N] {
    let nodes = names.map(|name| rig.node(name));
    nodes.iter().for_each(|node| until_spread(node, N));
    nodes
}

#[test]
fn all_values_are_found_before_none_is_said_and_those_preferred_first() {
    let rig = Rig::start();
    let nodes = nodes(&rig, ["n1", "n2", "n3"]);
    let mut wires = nodes.each_ref().map(Server::connect);
    let mut given = BTreeSet::new();
    for at in 0..32 {
        let line = "RESERVE few PREFER spare TTL 600000";
        let reply = ask_on(&mut wires[at % 3], line);
        let tier = if at < 16 { "primary" } else { "secondary" };
        assert_eq!(reply.at(4).text(), tier, "{at}: {reply}");
        assert!(given.insert(reserved(&reply)), "no value twice");
    }
    for wire in &mut wires {
        assert_eq!(wire.ask("RESERVE few").at(0).text(), "none");
        assert_eq!(wire.ask("RESERVE 20000-20015").at(0).text(), "none");
    }
    // One that is given back is found at once, on any node.
    for (at, (value, ticket)) in given.iter().enumerate() {
        let released = ask_on(&mut wires[at % 3], &format!("RELEASE {ticket}"));
        assert_eq!(released.text(), "OK");
        let line = "RESERVE 20000-20015,30000-30015 TTL 600000";
        let reply = ask_on(&mut wires[(at + 1) % 3], line);
        assert_eq!(&reserved(&reply).0, value);
    }
}

#[test]
fn asks_that_wait_get_what_any_node_frees() {
    let rig = Rig::start();
    let nodes = nodes(&rig, ["n1", "n2", "n3"]);
    let mut wires = nodes.each_ref().map(Server::connect);
    let mut held = Vec::new();
    for at in 0..16 {
        held.push(reserved(&ask_on(&mut wires[at % 3], "RESERVE few TTL 600000")).1);
    }
    let timed_out = wires[0].ask("RESERVE few WAIT 100");
    assert_eq!(timed_out.at(0).text(), "none", "{timed_out}");
    let waits: Vec<_> = (0..6)
        .map(|at| {
            let mut wire = nodes[at % 3].connect();
            thread::spawn(move || wire.ask("RESERVE few WAIT 30000 TTL 600000"))
        })
        .collect();
    let blocked = |node: &Server| -> usize {
        let info = node.connect().ask("INFO").text();
        let mut lines = info.lines();
        let line = lines.find_map(|line| line.strip_prefix("blocked_clients:"));
        line.map_or(0, |count| count.trim().parse().unwrap())
    };
    until("all wait", || nodes.iter().map(blocked).sum::<usize>() == 6);
    for served in 1..=6 {
        let finished = || waits.iter().filter(|wait| wait.is_finished()).count();
        assert!(finished() < served, "nothing was free");
        let ticket = held.pop().unwrap();
        let released = ask_on(&mut wires[served % 3], &format!("RELEASE {ticket}"));
        assert_eq!(released.text(), "OK");
        until("one of them has it", || finished() == served);
    }
    let given: BTreeSet<String> = waits
        .into_iter()
        .map(|wait| reserved(&wait.join().unwrap()).0)
        .collect();
    assert_eq!(given.len(), 6);
}

#[test]
fn several_values_are_had_from_several_nodes_or_none_is() {
    let rig = Rig::start();
    let nodes = nodes(&rig, ["n1", "n2", "n3"]);
    let mut wires = nodes.each_ref().map(Server::connect);
    let reply = ask_on(&mut wires[0], "RESERVE few COUNT 13 TTL 600000");
    assert_eq!(reply.at(0).text(), "go", "{reply}");
    let rows = &reply.parts()[1..];
    let values: BTreeSet<String> = rows.iter().map(|row| row.at(0).text()).collect();
    assert_eq!(values.len(), 13);
    for row in rows {
        let left = match row.at(2) {
            Value::Int(left) => *left,
            other => panic!("{other}"),
        };
        assert!(left > 500_000, "held as long as was wanted: {row}");
    }
    let reply = ask_on(&mut wires[1], "RESERVE few COUNT 4 TTL 600000");
    assert_eq!(reply.at(0).text(), "none", "{reply}");
    let reply = ask_on(&mut wires[2], "RESERVE few COUNT 3 TTL 600000");
    assert_eq!(reply.at(0).text(), "go", "{reply}");
    for row in rows {
        let released = ask_on(&mut wires[1], &format!("RELEASE {}", row.at(1).text()));
        assert_eq!(released.text(), "OK");
    }
}

#[test]
fn every_node_tells_of_the_whole_cluster() {
    let rig = Rig::start();
    let nodes = nodes(&rig, ["n1", "n2", "n3"]);
    let mut wires = nodes.each_ref().map(Server::connect);
    let mut given = BTreeSet::new();
    for at in 0..60 {
        let line = format!("RESERVE all TTL 600000 KEY g{}:{at}", at % 2);
        given.insert(reserved(&ask_on(&mut wires[at % 3], &line)).0);
    }
    for wire in &mut wires {
        // Others tell what they have a little later.
        until("all are counted", || {
            let stat = wire.ask("RANGE.STAT all");
            let of = |name: &str| stat.field(name).int();
            (of("size"), of("free"), of("reserved")) == (10_000, 9_940, 60)
        });
        let stat = wire.ask("RANGE.STAT all");
        assert_eq!(stat.field("lost_nodes").parts().len(), 0, "{stat}");
        let count = wire.ask("RANGE.COUNT 0-9999");
        assert_eq!(count.field("held").int(), 60, "{count}");
        let (mut cursor, mut listed) = (0, BTreeSet::new());
        loop {
            let page = wire.ask(&format!("RANGE.LS all COUNT 7 CURSOR {cursor}"));
            let rows = page.at(1).parts();
            listed.extend(rows.iter().map(|row| row.at(0).text()));
            cursor = page.at(0).int();
            if cursor == 0 {
                break;
            }
        }
        assert_eq!(listed, given);
    }
    // A table has the rows of all nodes, each with its node.
    let shown = wires[1].ask("SHOW RANGES all CLUSTER");
    assert_eq!(shown.at(0).at(0).text(), "node", "{shown}");
    let rows = &shown.parts()[1..];
    let names: Vec<String> = rows.iter().map(|row| row.at(0).text()).collect();
    assert_eq!(names, ["n1", "n2", "n3"], "{shown}");
    let heads = shown.at(0).parts();
    let reserved = heads
        .iter()
        .position(|head| head.text() == "reserved")
        .unwrap();
    let counted: i64 = rows.iter().map(|row| row.at(reserved).int()).sum();
    assert_eq!(counted, 60, "{shown}");
    wires[0].ask("SHOW RANGES FROM 1 CLUSTER").is_error("ERR");
    // The control socket is the operator, who may do this.
    let mut wire = nodes[1].operator();
    assert_eq!(ask_on(&mut wire, "RANGE.RELEASE KEYPREFIX g1:").int(), 30);
    assert_eq!(ask_on(&mut wire, "RANGE.RELEASE KEYPREFIX g").int(), 30);
}

/// What a watching client is told next: the kind, the node, and the value if it is about one.
fn told(wire: &mut Wire) -> (String, String, Option<String>) {
    let message = wire.read();
    assert_eq!(message.at(0).text(), "message", "{message}");
    let line: Json = serde_json::from_str(&message.at(2).text()).unwrap();
    let text = |key: &str| line[key].as_str().map(str::to_owned);
    (text("what").unwrap(), text("node").unwrap(), text("value"))
}

#[test]
fn a_client_hears_what_happens_to_values_of_all_nodes_and_which_it_does_not_hear() {
    let rig = Rig::start();
    let [one, two, three] = nodes(&rig, ["n1", "n2", "n3"]);
    let mut watcher = one.connect();
    assert_eq!(
        watcher.ask("RANGE.WATCH all").at(1).text(),
        "rideau:ranges:all"
    );
    let heard = |node: &str| ("heard".to_owned(), node.to_owned(), None);
    let all = BTreeSet::from([told(&mut watcher), told(&mut watcher)]);
    assert_eq!(all, BTreeSet::from([heard("n2"), heard("n3")]));
    for node in [&one, &two, &three] {
        let mut wire = node.connect();
        // Of another range.
        reserved(&ask_on(&mut wire, "RESERVE few TTL 600000"));
        let (value, ticket) = reserved(&ask_on(&mut wire, "RESERVE all TTL 600000"));
        assert_eq!(ask_on(&mut wire, &format!("RELEASE {ticket}")).text(), "OK");
        for what in ["reserved", "released"] {
            let (told_what, _, told_value) = told(&mut watcher);
            assert_eq!((&*told_what, told_value.as_ref()), (what, Some(&value)));
        }
    }
    three.kill();
    assert_eq!(told(&mut watcher), ("unheard".into(), "n3".into(), None));
    let _three = rig.node("n3");
    assert_eq!(told(&mut watcher), heard("n3"));
    // One that begins later is told at once which nodes it hears.
    let mut later = two.connect();
    assert_eq!(later.ask("SUBSCRIBE rideau:ranges").at(2).int(), 1);
    let all = BTreeSet::from([told(&mut later), told(&mut later)]);
    assert_eq!(all, BTreeSet::from([heard("n1"), heard("n3")]));
}
