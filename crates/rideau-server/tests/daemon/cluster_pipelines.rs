//! Commands that a client sends at once, for keys of several nodes: asked for together, and
//! answered in order.

use rideau_testing::{Signal, signal};

use crate::cluster::{Rig, until_spread};
use crate::cluster_locks::{granted, keys_of};
use crate::server::{Server, until};
use crate::wire::{Value, Wire, request};

/// Three nodes that keep their lives while one of them is paused for a while.
fn three(rig: &Rig) -> [Server; 3] {
    let nodes = ["n1", "n2", "n3"].map(|name| Server::with(&rig.config(name, 20)));
    nodes.iter().for_each(|node| until_spread(node, 3));
    nodes
}

/// Send all of it in one write, and read all answers.
fn ask_all(wire: &mut Wire, lines: &[String]) -> Vec<Value> {
    let bytes = lines.iter().flat_map(|line| {
        let words: Vec<_> = line.split(' ').map(str::as_bytes).collect();
        request(&words)
    });
    wire.write(&bytes.collect::<Vec<_>>());
    lines.iter().map(|_| wire.read()).collect()
}

#[test]
fn commands_for_keys_of_several_nodes_are_answered_in_order() {
    let rig = Rig::start();
    let nodes = three(&rig);
    let mut wire = nodes[0].connect();
    let keys = ["n1", "n2", "n3"].map(|owner| keys_of(&nodes[0], owner, 70));
    // Those of three nodes in turns, and more than are ever under way together.
    let mixed: Vec<_> = (0..70)
        .flat_map(|at| keys.each_ref().map(|keys| keys[at].clone()))
        .collect();
    let each = |verb: &str| -> Vec<_> { mixed.iter().map(|key| format!("{verb} {key}")).collect() };
    let replies = ask_all(&mut wire, &each("LOCK"));
    let fences: Vec<_> = replies
        .iter()
        .map(|reply| granted(reply).unwrap_or_else(|| panic!("{reply}")).1)
        .collect();
    for (key, fence) in mixed.iter().zip(&fences) {
        let last = wire.ask(&format!("LOCK {key}"));
        assert_eq!(last.word(), "full", "{key} is held: {last}");
        assert!(*fence > 0);
    }
    for reply in ask_all(&mut wire, &each("UNLOCK")) {
        assert_eq!(reply.text(), "OK");
    }

    // What concerns one key happens in order; anything else waits for its turn.
    let [own, one, two] = [&keys[0][0], &keys[1][0], &keys[2][0]];
    let script = [
        (format!("LOCK {one}"), "go"),
        (format!("LOCK {one}"), "full"),
        (format!("UNLOCK {one}"), "OK"),
        (format!("LOCK {two}"), "go"),
        (format!("UNLOCK {one}"), "NOTHELD"),
        (format!("LOCK {one} UNITS 1"), "go"),
        (format!("LOCK {own}"), "go"),
        (format!("LOCK {own}"), "full"),
        ("LOCK".to_owned(), "ERR"),
        (format!("LOCK {one} TWICE 2"), "ERR"),
        ("PING".to_owned(), "PONG"),
        (format!("LOCK {two}"), "full"),
        (format!("UNLOCK {two}"), "OK"),
        (format!("LOCK {two} WAIT 1"), "go"),
        (format!("LOCK {one}"), "full"),
        (format!("UNLOCK {one}"), "OK"),
        (format!("UNLOCK {own}"), "OK"),
        (format!("UNLOCK {own}"), "NOTHELD"),
        ("MULTI".to_owned(), "OK"),
        (format!("LOCK {own}"), "QUEUED"),
        ("DISCARD".to_owned(), "OK"),
        (format!("LOCK {one}"), "go"),
        ("CLIENT REPLY SKIP".to_owned(), ""),
        (format!("UNLOCK {one}"), ""),
        (format!("LOCK {one}"), "go"),
        ("QUIT".to_owned(), "OK"),
        (format!("LOCK {own}"), "closed"),
    ];
    for (line, _) in &script {
        wire.send(line);
    }
    for (line, word) in script.iter().filter(|(_, word)| !word.is_empty()) {
        match *word {
            "closed" => assert!(wire.try_read().is_err(), "{line}"),
            word => assert_eq!(wire.read().word(), word, "{line}"),
        }
    }
    // What a closed connection held is free, and nothing else was left behind.
    let mut other = nodes[1].connect();
    for key in [own, one, two] {
        until("a key is free", || {
            granted(&other.ask(&format!("LOCK {key}"))).is_some()
        });
    }
}

#[test]
fn a_key_is_asked_for_while_another_node_has_not_answered() {
    let rig = Rig::start();
    let nodes = three(&rig);
    let slow = keys_of(&nodes[0], "n2", 1).remove(0);
    let quick = keys_of(&nodes[0], "n3", 1).remove(0);
    let mut third = nodes[2].connect();
    until("both are asked for together", || {
        let mut wire = nodes[0].connect();
        signal(nodes[1].pid(), Signal::STOP);
        wire.send(&format!("LOCK {slow}"));
        wire.send(&format!("LOCK {quick}"));
        wire.send(&format!("UNLOCK {slow}"));
        let mut held = 0;
        while held == 0 && wire.is_silent() {
            held = third.ask(&format!("LOCK.STAT {quick}")).field("held").int();
        }
        // The first is not answered, and the second is held.
        let is_together = held == 1 && wire.is_silent();
        signal(nodes[1].pid(), Signal::CONT);
        let replies = [(); 3].map(|()| wire.read());
        assert!(granted(&replies[1]).is_some(), "{}", replies[1]);
        match granted(&replies[0]) {
            Some(_) => assert_eq!(replies[2].text(), "OK"),
            None => replies[2].is_error("NOTHELD"),
        }
        drop(wire);
        until("the key is free", || {
            third.ask(&format!("LOCK.STAT {quick}")).field("held").int() == 0
        });
        is_together
    });
}
