//! What clients of Redis Cluster ask of the nodes: which node has which slots.
//!
//! All ports name the addresses for such clients: those within TLS where the client speaks
//! TLS, and the others where it does not.

use rideau_config::OWN;
use rideau_core::cluster::{SLOTS, slot_of};
use rideau_resp::{Arguments, Quoted, Reply, Request, Upper};

use super::{About, Subject, about, instead};
use crate::redis::client::{Client, CommandError, Next};
use crate::state::cluster::{Cluster, StraightNode};
use crate::state::daemon::Daemon;

/// These commands. All clients need them to find their way.
pub(super) const TABLE: &[About] = &[
    about(
        "CLUSTER",
        2,
        OWN,
        Subject::Nothing,
        "SLOTS | SHARDS | NODES | INFO | LINKS | MYID | KEYSLOT name | COUNTKEYSINSLOT slot",
        "The nodes of the cluster, and which of them clients of Redis Cluster ask about each slot",
        cluster,
    ),
    about(
        "READONLY",
        1,
        OWN,
        Subject::Nothing,
        "",
        "Does nothing: there are no replicas to read from",
        nothing,
    ),
    about(
        "READWRITE",
        1,
        OWN,
        Subject::Nothing,
        "",
        "Does nothing: there are no replicas",
        nothing,
    ),
    about(
        "ASKING",
        1,
        OWN,
        Subject::Nothing,
        "",
        "Does nothing: no slot is half at one node and half at another",
        nothing,
    ),
];

fn nothing(client: &mut Client, request: Request<'_>) -> Result<Next, CommandError> {
    if client.daemon.cluster.is_none() {
        return Err(no_cluster());
    }
    let name = match Upper::of(request.name()).as_bytes() {
        b"ASKING" => "ASKING",
        b"READWRITE" => "READWRITE",
        _ => "READONLY",
    };
    request.arguments().end(name)?;
    client.reply_ok();
    Ok(Next::Done)
}

/// Clients of a cluster look for Redis' own words.
fn no_cluster() -> CommandError {
    CommandError(format!(
        "ERR This instance has cluster support disabled: {}",
        instead::ALONE
    ))
}

fn cluster(client: &mut Client, request: Request<'_>) -> Result<Next, CommandError> {
    let mut arguments = request.arguments();
    let what = Upper::of(arguments.word("CLUSTER", "SLOTS, NODES or another word")?);
    if what.as_bytes() == b"KEYSLOT" {
        let name = arguments.word("CLUSTER KEYSLOT", "a name")?;
        arguments.end("CLUSTER KEYSLOT")?;
        client.reply().integer(slot_of(name).into());
        return Ok(Next::Done);
    }
    let Some(cluster) = client.daemon.cluster.clone() else {
        return Err(no_cluster());
    };
    let is_tls = client.is_tls;
    match what.as_bytes() {
        b"COUNTKEYSINSLOT" => return count_keys(client, arguments),
        b"SLOTS" => tell_slots(&mut client.reply(), &cluster, is_tls),
        b"SHARDS" => tell_shards(&mut client.reply(), &cluster, is_tls),
        b"LINKS" => tell_links(&mut client.reply(), &cluster, is_tls),
        b"NODES" => drop(client.reply().verbatim(&nodes_text(&cluster, is_tls))),
        b"INFO" => drop(client.reply().verbatim(&state_text(&cluster, is_tls))),
        b"MYID" => {
            let id = cluster.node_id(&cluster.node.options().name);
            client.reply().bulk(id);
        }
        _ => {
            return Err(CommandError(format!(
                "ERR CLUSTER does not know {}: write CLUSTER {}. Nodes come and go by themselves, \
                 and NODE.DRAIN empties one.",
                Quoted(request.word(1).unwrap_or_default()),
                super::usage("CLUSTER").unwrap_or_default()
            )));
        }
    }
    Ok(Next::Done)
}

/// How many keys of locks are held in a slot, as far as this node decides.
fn count_keys(client: &mut Client, mut arguments: Arguments<'_>) -> Result<Next, CommandError> {
    let last = u64::from(SLOTS - 1);
    let slot = arguments.number("CLUSTER COUNTKEYSINSLOT", "a slot", 0..=last)?;
    arguments.end("CLUSTER COUNTKEYSINSLOT")?;
    let count = held_in(&client.daemon, slot);
    client.reply().integer(count as i64);
    Ok(Next::Done)
}

fn held_in(daemon: &Daemon, slot: u64) -> usize {
    let held = daemon.all_locks_held().into_iter();
    held.filter(|(key, _)| u64::from(slot_of(key)) == slot)
        .count()
}

fn tell_slots(reply: &mut Reply<'_>, cluster: &Cluster, is_tls: bool) {
    let nodes = cluster.straight_nodes(is_tls);
    let ranges = cluster.slot_ranges(is_tls);
    let found: Vec<_> = ranges
        .iter()
        .filter_map(|range| {
            let (_, node) = nodes.iter().find(|(name, _)| *name == range.node)?;
            Some((range, node, node.address.as_ref()?))
        })
        .collect();
    reply.array(found.len());
    for (range, node, (host, port)) in found {
        reply
            .array(3)
            .integer(range.first.into())
            .integer(range.last.into())
            .array(4)
            .bulk(host)
            .integer((*port).into())
            .bulk(&node.id)
            .array(0);
    }
}

fn tell_shards(reply: &mut Reply<'_>, cluster: &Cluster, is_tls: bool) {
    let nodes = cluster.straight_nodes(is_tls);
    let nodes = nodes
        .iter()
        .filter_map(|(_, node)| Some((node, node.address.as_ref()?)));
    let nodes: Vec<_> = nodes.collect();
    reply.array(nodes.len());
    for (node, (host, port)) in nodes {
        reply.map(2).bulk("slots").array(2 * node.slots.len());
        for (first, last) in &node.slots {
            reply.integer((*first).into()).integer((*last).into());
        }
        reply
            .bulk("nodes")
            .array(1)
            .map(7)
            .bulk("id")
            .bulk(&node.id)
            .bulk("port")
            .integer((*port).into())
            .bulk("ip")
            .bulk(host)
            .bulk("endpoint")
            .bulk(host)
            .bulk("role")
            .bulk("master")
            .bulk("replication-offset")
            .integer(0)
            .bulk("health")
            .bulk("online");
    }
}

/// One connection carries what two nodes tell each other, in both directions.
fn tell_links(reply: &mut Reply<'_>, cluster: &Cluster, is_tls: bool) {
    let nodes = cluster.straight_nodes(is_tls);
    let nodes = nodes
        .iter()
        .filter(|(_, node)| node.is_linked && !node.is_me);
    let nodes: Vec<_> = nodes.collect();
    reply.array(nodes.len());
    for (_, node) in nodes {
        reply
            .map(3)
            .bulk("direction")
            .bulk("to")
            .bulk("node")
            .bulk(&node.id)
            .bulk("events")
            .bulk("rw");
    }
}

/// All nodes as Redis writes them: a line each.
fn nodes_text(cluster: &Cluster, is_tls: bool) -> String {
    let nodes = cluster.straight_nodes(is_tls).into_iter();
    nodes.map(|(_, node)| node_line(&node)).collect()
}

fn node_line(node: &StraightNode) -> String {
    let address = node.address.as_ref();
    let (host, port) = address.map_or(("", 0), |(host, port)| (host, *port));
    let me = if node.is_me { "myself," } else { "" };
    let nowhere = if node.address.is_none() {
        ",noaddr"
    } else {
        ""
    };
    let state = if node.is_linked {
        "connected"
    } else {
        "disconnected"
    };
    let mut line = format!(
        "{} {host}:{port}@{} {me}master{nowhere} - 0 0 {} {state}",
        node.id, node.peer_port, node.epoch
    );
    for (first, last) in &node.slots {
        line += &match first == last {
            true => format!(" {first}"),
            false => format!(" {first}-{last}"),
        };
    }
    line + "\n"
}

/// Redis' numbers of a cluster.
fn state_text(cluster: &Cluster, is_tls: bool) -> String {
    let nodes = cluster.straight_nodes(is_tls);
    let table = cluster.node.table();
    let partitions = cluster.partitions.count();
    let owned = (0..partitions).filter(|partition| table.owner(*partition).is_some());
    let slots_ok = owned.count() as u32 * (u32::from(SLOTS) / partitions);
    let slots_fail = u32::from(SLOTS) - slots_ok;
    let state = if slots_fail == 0 { "ok" } else { "fail" };
    let assigned: u32 = nodes
        .iter()
        .flat_map(|(_, node)| &node.slots)
        .map(|(first, last)| u32::from(last - first) + 1)
        .sum();
    let size = nodes
        .iter()
        .filter(|(_, node)| !node.slots.is_empty())
        .count();
    let epoch = nodes.iter().map(|(_, node)| node.epoch).max().unwrap_or(0);
    let mine = nodes.iter().find(|(_, node)| node.is_me);
    let my_epoch = mine.map_or(0, |(_, node)| node.epoch);
    format!(
        "cluster_state:{state}\r\ncluster_slots_assigned:{assigned}\r\n\
         cluster_slots_ok:{slots_ok}\r\ncluster_slots_pfail:0\r\n\
         cluster_slots_fail:{slots_fail}\r\ncluster_known_nodes:{}\r\ncluster_size:{size}\r\n\
         cluster_current_epoch:{epoch}\r\ncluster_my_epoch:{my_epoch}\r\n",
        nodes.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_one_line_as_redis_writes_it() {
        let node = StraightNode {
            id: "07c3".into(),
            address: Some(("10.0.0.1".into(), 7436)),
            peer_port: 7435,
            epoch: 3,
            is_me: true,
            is_linked: true,
            slots: vec![(0, 1023), (2048, 2048)],
        };
        let line = node_line(&node);
        let wanted = "07c3 10.0.0.1:7436@7435 myself,master - 0 0 3 connected 0-1023 2048\n";
        assert_eq!(line, wanted);
        let other = StraightNode {
            address: None,
            is_me: false,
            is_linked: false,
            slots: Vec::new(),
            ..node
        };
        let line = node_line(&other);
        assert_eq!(line, "07c3 :0@7435 master,noaddr - 0 0 3 disconnected\n");
    }
}
