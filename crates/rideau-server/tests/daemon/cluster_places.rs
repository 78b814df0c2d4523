//! Pools of lists, brokers and regulators that several servers share through a real etcd.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use crate::cluster::{Rig, ask_on, until_served, until_spread};
use crate::cluster_locks::keys_of;
use crate::server::{Server, until};
use crate::wire::{Value, Wire};

/// Something of each kind, with names whose partitions a test chooses.
struct Names {
    /// Owned by the node that the test names.
    name: String,
}

/// Three nodes with the same places, under these names.
fn three(rig: &Rig, names: &[String]) -> [Server; 3] {
    let places: String = names.iter().map(|name| places(name)).collect();
    let nodes = ["n1", "n2", "n3"].map(|node| {
        let config = rig.config(node, 2);
        Server::with(&config.replace("[range.all]", &format!("{places}[range.all]")))
    });
    nodes.iter().for_each(|node| until_spread(node, 3));
    nodes
}

/// A pool of two seats, a broker and a regulator with the same name.
fn places(name: &str) -> String {
    format!(
        "[pool.{name}]\nscope = \"cluster\"\nmember = {{ list = [\"a\", \"b\"] }}\n\
         [broker.{name}]\nscope = \"cluster\"\n\
         [regulator.{name}]\nscope = \"cluster\"\nvalve = {{ kind = \"open\", max = 2 }}\n"
    )
}

/// Many names, so that each node owns some.
fn many() -> Vec<String> {
    (0..40).map(|number| format!("key-{number}")).collect()
}

impl Names {
    /// One that this node owns.
    fn of(server: &Server, owner: &str) -> Self {
        let name = keys_of(server, owner, 1).remove(0);
        assert!(many().contains(&name), "{name}");
        Self { name }
    }
}

fn is_go(reply: &Value) -> bool {
    matches!(reply, Value::List(_)) && reply.word() == "go"
}

/// Take a member, which has to be there.
fn taken(wire: &mut Wire, name: &str) -> (String, String) {
    let reply = ask_on(wire, &format!("TAKE {name} WAIT 10000"));
    assert!(is_go(&reply), "{reply}");
    (reply.ticket(), reply.at(2).text())
}

#[test]
fn the_members_of_a_list_are_lent_once_whichever_node_is_asked() {
    let rig = Rig::start();
    let nodes = three(&rig, &many());
    let mut wires = nodes.each_ref().map(Server::connect);
    for owner in ["n1", "n2", "n3"] {
        let Names { name } = Names::of(&nodes[0], owner);
        let (first, one) = taken(&mut wires[0], &name);
        let (_second, two) = taken(&mut wires[1], &name);
        assert_eq!(
            BTreeSet::from([one.as_str(), &two]),
            BTreeSet::from(["a", "b"])
        );
        let reply = wires[2].ask(&format!("TAKE {name}"));
        assert!(!is_go(&reply), "{reply}");
        let stat = wires[2].ask(&format!("POOL.STAT {name}"));
        assert_eq!(stat.field("held").int(), 2, "{stat}");
        // The next in turn gets what another node's client gives back.
        wires[2].send(&format!("TAKE {name} WAIT 30000"));
        nodes[2].until_waiting(1);
        assert_eq!(wires[0].ask(&format!("RELEASE {first}")).text(), "OK");
        let reply = wires[2].read();
        assert!(is_go(&reply), "{reply}");
        assert_eq!(reply.at(2).text(), one);
        // A client that goes away has nothing any more.
        let mut short = nodes[0].connect();
        short.send(&format!("TAKE {name} WAIT 30000"));
        nodes[0].until_waiting(1);
        wires[1] = nodes[1].connect();
        let reply = short.read();
        assert!(is_go(&reply), "{reply}");
        assert_eq!(reply.at(2).text(), two);
        drop(short);
        wires[2] = nodes[2].connect();
        until("both are free", || {
            let stat = wires[0].ask(&format!("POOL.STAT {name}"));
            stat.field("held").int() == 0
        });
    }
}

#[test]
fn a_killed_owner_takes_no_member_along_but_those_of_its_own_clients() {
    let rig = Rig::start();
    let [one, two, three] = three(&rig, &many());
    let names = keys_of(&one, "n2", 3);
    let mut holders = [one.connect(), three.connect()];
    let held: Vec<_> = names
        .iter()
        .enumerate()
        .map(|(at, name)| (at % 2, name, taken(&mut holders[at % 2], name)))
        .collect();
    let mut lost = two.connect();
    let lost_value = taken(&mut lost, &names[0]).1;
    // One waits behind another node.
    let mut waiting = three.connect();
    waiting.send(&format!("TAKE {} WAIT 30000", names[0]));
    three.until_waiting(1);
    two.kill();
    let mut other = one.connect();
    until("another node serves", || {
        let reply = other.ask(&format!("POOL.STAT {}", names[0]));
        !matches!(reply, Value::Error(_))
    });
    // The connection of the killed node is gone, and what it held is lent again.
    let reply = waiting.read();
    let was_told = matches!(&reply, Value::Error(text) if text.starts_with("CLUSTERDOWN"));
    let value = match was_told {
        true => taken(&mut waiting, &names[0]).1,
        false => reply.at(2).text(),
    };
    assert_eq!(value, lost_value, "{reply}");
    for (_, name, (_, value)) in &held {
        // Of each list one is held still, and never lent twice.
        let mut fresh = three.connect();
        let reply = ask_on(&mut fresh, &format!("TAKE {name}"));
        if is_go(&reply) {
            assert_ne!(&reply.at(2).text(), value, "{name}");
        }
    }
    for (at, name, (ticket, _)) in &held {
        let reply = holders[*at].ask(&format!("RELEASE {ticket}"));
        assert_eq!(reply.text(), "OK", "{name}: {reply}");
    }
}

#[test]
fn no_member_is_lent_twice_while_nodes_come_and_go() {
    let rig = Rig::start();
    let names = many();
    let [one, two, three] = three(&rig, &names);
    let name = &keys_of(&one, "n3", 1)[0];
    let inside = [AtomicUsize::new(0), AtomicUsize::new(0)];
    let (is_over, turns) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for server in [&one, &two, &one, &two] {
            let (inside, is_over, turns) = (&inside, &is_over, &turns);
            scope.spawn(move || {
                let mut wire = server.connect();
                while !is_over.load(Ordering::Relaxed) {
                    let reply = ask_on(&mut wire, &format!("TAKE {name} WAIT 10000"));
                    assert!(is_go(&reply), "{reply}");
                    let at = usize::from(reply.at(2).text() == "b");
                    assert_eq!(inside[at].fetch_add(1, Ordering::SeqCst), 0, "it is alone");
                    thread::yield_now();
                    inside[at].fetch_sub(1, Ordering::SeqCst);
                    let ticket = reply.ticket();
                    assert_eq!(wire.ask(&format!("RELEASE {ticket}")).text(), "OK");
                    turns.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        until("they had turns", || turns.load(Ordering::Relaxed) > 100);
        three.stop();
        let before = turns.load(Ordering::Relaxed);
        until("they go on at the next owner", || {
            turns.load(Ordering::Relaxed) > before + 100
        });
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn asks_and_offers_of_different_nodes_meet() {
    let rig = Rig::start();
    let nodes = three(&rig, &many());
    for owner in ["n1", "n2", "n3"] {
        let Names { name } = Names::of(&nodes[0], owner);
        let (mut asks, mut offers) = (nodes[0].connect(), nodes[1].connect());
        asks.send(&format!("ASK {name} VALUE job WAIT 30000"));
        nodes[0].until_waiting(1);
        let mut third = nodes[2].connect();
        until("it waits at the owner", || {
            ask_on(&mut third, &format!("LEN {name}")).at(0).int() == 1
        });
        let reply = ask_on(&mut offers, &format!("OFFER {name} VALUE worker NB"));
        assert!(is_go(&reply), "{reply}");
        assert_eq!(reply.at(2).text(), "job");
        let offered = reply.ticket();
        let reply = asks.read();
        assert_eq!(reply.at(2).text(), "worker", "{reply}");
        let asked = reply.ticket();
        // One says that it is done, and the other hears it.
        asks.send(&format!("AWAIT.END {asked} 30000"));
        let reply = offers.ask(&format!("DONE {offered} result"));
        assert_eq!(reply.text(), "OK", "{reply}");
        let reply = asks.read();
        assert_eq!(
            (reply.at(0).text(), reply.at(1).text()),
            ("done".into(), "result".into())
        );
        // A party that goes away is down for the other.
        let mut short = nodes[2].connect();
        short.send(&format!("OFFER {name} WAIT 30000"));
        nodes[2].until_waiting(1);
        let reply = ask_on(&mut asks, &format!("ASK {name} WAIT 30000"));
        assert!(is_go(&reply), "{reply}");
        let asked = reply.ticket();
        assert!(is_go(&short.read()));
        drop(short);
        let reply = asks.ask(&format!("AWAIT.END {asked} 30000"));
        assert_eq!(reply.at(0).text(), "down", "{reply}");
    }
}

#[test]
fn a_match_goes_on_when_the_owner_of_its_broker_dies() {
    let rig = Rig::start();
    let [one, two, three] = three(&rig, &many());
    let Names { name } = Names::of(&one, "n2");
    let (mut asks, mut offers) = (one.connect(), three.connect());
    asks.send(&format!("ASK {name} VALUE job WAIT 30000"));
    one.until_waiting(1);
    let reply = ask_on(
        &mut offers,
        &format!("OFFER {name} VALUE worker WAIT 30000"),
    );
    assert!(is_go(&reply), "{reply}");
    let (offered, asked) = (reply.ticket(), asks.read().ticket());
    two.kill();
    until_spread(&one, 2);
    until_served(&three);
    asks.send(&format!("AWAIT.END {asked} 30000"));
    let reply = offers.ask(&format!("DONE {offered} result"));
    assert_eq!(reply.text(), "OK", "{reply}");
    let reply = asks.read();
    assert_eq!(reply.at(0).text(), "done", "{reply}");
    assert_eq!(reply.at(1).text(), "result");
}

#[test]
fn leases_of_a_regulator_count_on_all_nodes_and_over_its_owners() {
    let rig = Rig::start();
    let [one, two, three] = three(&rig, &many());
    let Names { name } = Names::of(&one, "n2");
    let mut wires = [one.connect(), three.connect()];
    let tickets: Vec<_> = wires
        .iter_mut()
        .map(|wire| {
            let reply = ask_on(wire, &format!("REG.ASK {name} WAIT 10000"));
            assert!(is_go(&reply), "{reply}");
            reply.ticket()
        })
        .collect();
    let reply = wires[0].ask(&format!("REG.ASK {name} WAIT 200"));
    assert!(!is_go(&reply), "{reply}");
    let reply = wires[1].ask(&format!("REG.CONTINUE {}", tickets[1]));
    assert!(is_go(&reply), "{reply}");
    two.kill();
    until_spread(&one, 2);
    until_served(&three);
    // Both are held still, and go on.
    let reply = ask_on(&mut wires[0], &format!("REG.ASK {name} WAIT 200"));
    assert!(!is_go(&reply), "{reply}");
    let reply = ask_on(&mut wires[0], &format!("REG.CONTINUE {}", tickets[0]));
    assert!(is_go(&reply), "{reply}");
    assert_eq!(
        wires[0].ask(&format!("REG.DONE {}", tickets[0])).text(),
        "OK"
    );
    let reply = ask_on(&mut wires[1], &format!("REG.ASK {name} WAIT 10000"));
    assert!(is_go(&reply), "{reply}");
}

#[test]
fn clients_of_redis_cluster_are_sent_to_the_owner_of_a_place() {
    let rig = Rig::start();
    let all: String = many().iter().map(|name| places(name)).collect();
    let nodes = ["n1", "n2"].map(|node| {
        let config = rig.config(node, 2);
        Rig::straight(&config.replace("[range.all]", &format!("{all}[range.all]")))
    });
    nodes.iter().for_each(|(node, _)| until_spread(node, 2));
    let Names { name } = Names::of(&nodes[0].0, "n2");
    let mut wires = nodes
        .each_ref()
        .map(|(_, port)| Wire::connect(*port).unwrap());
    // First what takes nothing: until the owner is known long enough, it is forwarded.
    for line in ["POOL.STAT", "LEN", "TAKE", "ASK", "OFFER", "REG.ASK"] {
        let line = format!("{line} {name}");
        let to = format!(" {}", nodes[1].1);
        until("the client is sent to the owner", || {
            let text = wires[0].ask(&line).text();
            text.starts_with("MOVED ") && text.ends_with(&to)
        });
    }
    assert!(is_go(&wires[1].ask(&format!("TAKE {name}"))));
    assert!(is_go(&wires[1].ask(&format!("REG.ASK {name}"))));
    // On other ports it is forwarded.
    let mut plain = nodes[0].0.connect();
    let stat = plain.ask(&format!("POOL.STAT {name}"));
    assert_eq!(stat.field("held").int(), 1, "{stat}");
    // Only the owner shows it, and the others say which node that is.
    for (at, (node, _)) in nodes.iter().enumerate() {
        let shown = node.connect().ask("SHOW POOLS");
        let is_shown = shown.parts()[1..]
            .iter()
            .any(|row| row.at(0).text() == name);
        assert_eq!(is_shown, at == 1, "{shown}");
    }
    for kind in ["pool", "broker", "regulator"] {
        let told = plain.ask(&format!("EXPLAIN {kind}:{name}")).to_string();
        assert!(told.contains("node n2 decides about it"), "{told}");
    }
}

#[test]
fn what_a_session_has_of_shared_places_is_used_from_any_node_and_ends_with_it() {
    let rig = Rig::start();
    let nodes = three(&rig, &many());
    let session = nodes[0]
        .connect()
        .ask("SESSION OPEN TTL 600000")
        .at(0)
        .text();
    let attached = |node: &Server| {
        let mut wire = node.connect();
        let reply = ask_on(&mut wire, &format!("SESSION ATTACH {session}"));
        assert_eq!(reply.text(), "OK", "{reply}");
        wire
    };
    let mut looker = nodes[2].connect();
    for owner in ["n1", "n2", "n3"] {
        let Names { name } = Names::of(&nodes[0], owner);
        let mut held = |count| {
            until("the owner counts it", || {
                let stat = looker.ask(&format!("POOL.STAT {name}"));
                stat.field("held").int() == count
            });
        };
        let (ticket, _) = taken(&mut attached(&nodes[1]), &name);
        let mut leased = attached(&nodes[2]);
        let lease = ask_on(&mut leased, &format!("REG.ASK {name}"));
        assert!(is_go(&lease), "{lease}");
        // The connections are gone, and the session has both.
        held(1);
        let reply = attached(&nodes[0]).ask(&format!("RELEASE {ticket}"));
        assert_eq!(reply.text(), "OK", "{reply}");
        held(0);
        taken(&mut attached(&nodes[2]), &name);
        held(1);
    }
    let mut waiting = nodes[1].connect();
    let Names { name } = Names::of(&nodes[0], "n3");
    let (_, free) = taken(&mut waiting, &name);
    waiting.send(&format!("TAKE {name} WAIT 30000"));
    nodes[1].until_waiting(1);
    let reply = ask_on(&mut looker, &format!("SESSION CLOSE {session}"));
    assert_eq!(reply.int(), 6, "{reply}");
    let reply = waiting.read();
    assert!(is_go(&reply) && reply.at(2).text() != free, "{reply}");
}
