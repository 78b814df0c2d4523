//! The port for clients of Redis Cluster: which node they ask about what, and when they are
//! sent to another.

use std::net::SocketAddr;

use rideau_core::cluster::{Partitions, slot_of};

use crate::cluster::{Rig, ask_on, reserved, until_served, until_spread};
use crate::cluster_locks::{granted, keys_of, until_locked};
use crate::server::{Server, until};
use crate::wire::{Value, Wire};

const NAMES: [&str; 3] = ["n1", "n2", "n3"];

/// Three nodes with their shares, and where clients of Redis Cluster reach them.
pub(crate) fn three(rig: &Rig) -> ([Server; 3], [SocketAddr; 3]) {
    let nodes = NAMES.map(|name| rig.straight_node(name));
    nodes.iter().for_each(|(node, _)| until_spread(node, 3));
    let ports = nodes.each_ref().map(|(_, port)| *port);
    (nodes.map(|(node, _)| node), ports)
}

/// Ask on until a name is answered with the address of another node. A node that has just
/// learnt of an owner forwards.
fn until_sent(wire: &mut Wire, key: &str, to: SocketAddr) {
    let wanted = format!("MOVED {} {to}", slot_of(key.as_bytes()));
    until("the client is sent to the owner", || {
        let reply = wire.ask(&format!("LOCK {key}"));
        if let Some((ticket, _)) = granted(&reply) {
            assert_eq!(wire.ask(&format!("RELEASE {ticket}")).text(), "OK");
        }
        reply.text() == wanted
    });
}

fn partition_of(name: &str) -> u32 {
    Partitions::new(16, 0).unwrap().of_name(name.as_bytes())
}

#[test]
fn a_name_of_another_node_is_answered_with_its_address_on_this_port_alone() {
    let rig = Rig::start();
    let (nodes, ports) = three(&rig);
    let mut wires = ports.map(|port| Wire::connect(port).unwrap());
    let mut plain = nodes.each_ref().map(Server::connect);
    for (at, owner) in NAMES.iter().enumerate() {
        let key = keys_of(&nodes[0], owner, 1).remove(0);
        let (next, third) = ((at + 1) % 3, (at + 2) % 3);
        until_sent(&mut wires[next], &key, ports[at]);
        until_sent(&mut wires[third], &key, ports[at]);
        let (ticket, fence) = until_locked(&mut wires[at], &key);
        // What one needs to know of the ticket stands in it.
        assert!(ticket.starts_with("l-{"), "{ticket}");
        assert_eq!(partition_of(&ticket), partition_of(&key));
        for command in ["UNLOCK", "LOCK.STAT", "LOCK"] {
            let reply = wires[next].ask(&format!("{command} {key}"));
            reply.is_error("MOVED ");
        }
        // Any node releases it, and none sends on for that.
        let reply = wires[third].ask(&format!("RELEASE {ticket}"));
        assert_eq!(reply.text(), "OK", "{reply}");
        wires[at]
            .ask(&format!("RELEASE {ticket}"))
            .is_error("STALE");
        let (_, larger) = until_locked(&mut plain[next], &key);
        assert!(larger > fence, "{larger} follows {fence}");
        assert_eq!(plain[next].ask(&format!("UNLOCK {key}")).text(), "OK");
        // A transaction is refused as a whole.
        let wire = &mut wires[next];
        assert_eq!(wire.ask("MULTI").text(), "OK");
        wire.ask(&format!("LOCK {key}")).is_error("MOVED ");
        wire.ask("EXEC").is_error("EXECABORT");
        // What a session holds is with its node.
        let session = wire.ask("SESSION OPEN").at(0).text();
        until_locked(wire, &key);
        assert_eq!(wire.ask(&format!("UNLOCK {key}")).text(), "OK");
        assert_eq!(wire.ask(&format!("SESSION CLOSE {session}")).int(), 0);
        wire.ask(&format!("LOCK {key}")).is_error("MOVED ");
    }
    let told = wires[0].ask("INFO cluster").text();
    let counted = told
        .lines()
        .find_map(|line| line.strip_prefix("cluster_redirects:"));
    assert!(
        counted.unwrap().trim().parse::<u64>().unwrap() > 0,
        "{told}"
    );
}

#[test]
fn values_are_answered_by_any_node_and_their_tickets_name_the_owner() {
    let rig = Rig::start();
    let (_nodes, ports) = three(&rig);
    let mut wires = ports.map(|port| Wire::connect(port).unwrap());
    for at in 0..48 {
        let line = "RESERVE all TTL 600000";
        let (value, ticket) = reserved(&ask_on(&mut wires[at % 3], line));
        assert!(ticket.starts_with("v-{"), "{ticket}");
        // Values are dealt out to partitions in turn.
        assert_eq!(partition_of(&ticket), value.parse::<u32>().unwrap() % 16);
        let wire = &mut wires[(at + 1) % 3];
        let seen = wire.ask(&format!("LOOKUP {value}"));
        assert!(!matches!(seen, Value::Error(_) | Value::Null), "{seen}");
        let kept = wire.ask(&format!("REFRESH {ticket} TTL 600000"));
        assert_eq!(kept.at(0).text(), "ok", "{kept}");
        let reply = wires[(at + 2) % 3].ask(&format!("RELEASE {ticket}"));
        assert_eq!(reply.text(), "OK", "{reply}");
    }
}

#[test]
fn both_ports_tell_which_node_has_which_slots() {
    let rig = Rig::start();
    let (nodes, ports) = three(&rig);
    let mut plain = nodes[0].connect();
    let mut straight = Wire::connect(ports[0]).unwrap();
    let slots = plain.ask("CLUSTER SLOTS");
    assert_eq!(slots, straight.ask("cluster slots"));
    let mut next = 0;
    for range in slots.parts() {
        assert_eq!(range.at(0).int(), next, "{slots}");
        next = range.at(1).int() + 1;
        assert_eq!(range.at(2).at(0).text(), "127.0.0.1");
        let port = range.at(2).at(1).int();
        assert!(ports.iter().any(|known| i64::from(known.port()) == port));
    }
    assert_eq!(next, 16_384, "{slots}");
    // The owner of a key is that of its slot.
    for (owner, port) in NAMES.iter().zip(ports) {
        let key = keys_of(&nodes[0], owner, 1).remove(0);
        let slot = plain.ask(&format!("CLUSTER KEYSLOT {key}")).int();
        let mut ranges = slots.parts().iter();
        let range = ranges.find(|range| (range.at(0).int()..=range.at(1).int()).contains(&slot));
        assert_eq!(range.unwrap().at(2).at(1).int(), i64::from(port.port()));
        let mut wire = Wire::connect(port).unwrap();
        until_locked(&mut wire, &key);
        assert_eq!(
            wire.ask(&format!("CLUSTER COUNTKEYSINSLOT {slot}")).int(),
            1
        );
        let mode = wire.ask("HELLO 3");
        assert_eq!(mode.field("mode").text(), "cluster");
    }
    let id = plain.ask("CLUSTER MYID").text();
    assert_eq!(id.len(), 40);
    let lines = plain.ask("CLUSTER NODES").text();
    assert_eq!(lines.lines().count(), 3, "{lines}");
    let mine = lines.lines().find(|line| line.starts_with(&id)).unwrap();
    assert!(mine.contains(" myself,master - 0 0 "), "{mine}");
    let shards = plain.ask("CLUSTER SHARDS");
    assert_eq!(shards.parts().len(), 3);
    for shard in shards.parts() {
        assert!(!shard.field("slots").parts().is_empty());
        assert_eq!(shard.field("nodes").at(0).field("health").text(), "online");
    }
    assert_eq!(plain.ask("CLUSTER LINKS").parts().len(), 2);
    let state = plain.ask("CLUSTER INFO").text();
    for line in [
        "cluster_state:ok",
        "cluster_slots_ok:16384",
        "cluster_size:3",
    ] {
        assert!(state.contains(line), "{state}");
    }
    for command in ["READONLY", "READWRITE", "ASKING"] {
        assert_eq!(plain.ask(command).text(), "OK");
    }
    plain
        .ask("CLUSTER FAILOVER")
        .is_error("ERR CLUSTER does not know");
    // As long as a node is missed, its slots are there: others wait for their owner.
    let [one, two, _three] = nodes;
    two.kill();
    until_spread(&one, 2);
    let slots = plain.ask("CLUSTER SLOTS");
    let gone = i64::from(ports[1].port());
    let mut ranges = slots.parts().iter();
    assert!(
        ranges.all(|range| range.at(2).at(1).int() != gone),
        "{slots}"
    );
    assert_eq!(slots.parts().last().unwrap().at(1).int(), 16_383, "{slots}");
}

#[test]
fn what_a_connection_held_before_its_partition_moved_it_gives_back_where_it_is() {
    let rig = Rig::start();
    let (nodes, ports) = three(&rig);
    let keys = keys_of(&nodes[0], "n2", 3);
    let mut holder = Wire::connect(ports[1]).unwrap();
    until_locked(&mut holder, &keys[0]);
    let (ticket, fence) = until_locked(&mut holder, &keys[1]);
    assert_eq!(nodes[0].operator().ask("NODE.DRAIN n2").text(), "OK");
    until_spread(&nodes[0], 2);
    until_served(&nodes[2]);
    let shown = nodes[0].connect().ask("SHOW PARTITIONS");
    let owner = |key: &str| {
        let owner = shown.at(1 + partition_of(key) as usize).at(2).text();
        ports[NAMES.iter().position(|name| *name == owner).unwrap()]
    };
    until_sent(&mut holder, &keys[2], owner(&keys[2]));
    assert_eq!(holder.ask(&format!("UNLOCK {}", keys[0])).text(), "OK");
    until_sent(&mut holder, &keys[0], owner(&keys[0]));
    // The new owner is told the ticket, and asks the node that has the lease.
    let mut next = Wire::connect(owner(&keys[1])).unwrap();
    assert_eq!(granted(&next.ask(&format!("LOCK {}", keys[1]))), None);
    let reply = next.ask(&format!("RELEASE {ticket}"));
    assert_eq!(reply.text(), "OK", "{reply}");
    let (_, larger) = until_locked(&mut next, &keys[1]);
    assert!(larger > fence, "{larger} follows {fence}");
}

#[test]
fn a_client_of_a_node_that_stops_is_sent_to_the_next_owner() {
    let rig = Rig::start();
    let (nodes, ports) = three(&rig);
    let keys = keys_of(&nodes[0], "n2", 2);
    let mut wire = Wire::connect(ports[1]).unwrap();
    // A node that stops waits for clients that hold something.
    until_locked(&mut wire, &keys[0]);
    nodes[1].ask_to_stop();
    until("the partition has moved", || {
        let reply = wire.ask(&format!("LOCK {}", keys[1]));
        // It may not have heard yet that it is to stop.
        if granted(&reply).is_some() {
            wire.ask(&format!("UNLOCK {}", keys[1]));
            return false;
        }
        reply.text().starts_with("MOVED ")
    });
    assert_eq!(wire.ask(&format!("UNLOCK {}", keys[0])).text(), "OK");
    let [_one, mut two, _three] = nodes;
    assert!(two.ended().success(), "{}", two.said());
}
