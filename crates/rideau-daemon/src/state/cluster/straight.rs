//! What clients of Redis Cluster are told of the nodes: which one to ask about each slot, and
//! where a name is that another node owns.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::{Duration, Instant};

use rideau_cluster::{NodeAbout, NodeTable};
use rideau_core::cluster::{Incarnation, PeerLink, SlotRange, slot_of};
use ring::digest;

use super::Cluster;

/// A node as such clients see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct StraightNode {
    /// 40 digits that follow from its name.
    pub id: String,
    /// Where it listens for such clients; none if it does not.
    pub address: Option<(String, u16)>,
    /// The port for other nodes.
    pub peer_port: u16,
    /// The highest epoch of its partitions.
    pub epoch: u64,
    /// It is the one that says so.
    pub is_me: bool,
    /// The one that says so is it, or has a link to it.
    pub is_linked: bool,
    /// The slots that it is asked about.
    pub slots: Vec<(u16, u16)>,
}

impl Cluster {
    /// The error for a client that shall ask another node about this name; none if it is
    /// answered here, or forwarded: the owner has been known for less than `settle`.
    pub(crate) fn redirect(&self, name: &[u8], settle: Duration, is_tls: bool) -> Option<String> {
        let slot = slot_of(name);
        let table = self.node.table();
        let me = table.me.as_ref()?;
        let to = table.owners.sends_to(
            self.partitions.of_slot(slot),
            me,
            |node| self.link_to(&table, node),
            settle,
            self.node.now(),
        )?;
        let (host, port) = address(&straight_of(&table, &to.name, is_tls)?)?;
        Some(format!("MOVED {slot} {host}:{port}"))
    }

    /// Slots in a row, with the node that is asked about them.
    pub(crate) fn slot_ranges(&self, is_tls: bool) -> Vec<SlotRange> {
        self.slot_ranges_of(&self.node.table(), is_tls)
    }

    fn slot_ranges_of(&self, table: &NodeTable, is_tls: bool) -> Vec<SlotRange> {
        let me = &self.node.options().name;
        let names = table.owners.nodes().keys().map(String::as_str);
        let listening: BTreeSet<_> = names
            .filter(|name| {
                straight_of(table, name, is_tls).is_some() && !self.is_missed(table, name)
            })
            .collect();
        let listens = |name: &str| listening.contains(name);
        table.owners.slot_ranges(self.partitions, me, listens)
    }

    /// The link to another node that lives.
    fn link_to(&self, table: &NodeTable, node: &Incarnation) -> PeerLink {
        if table.links.contains(node) {
            return PeerLink::Up;
        }
        let lost = self.lost_links.lock().get(node).copied();
        match lost.is_some_and(|lost| self.is_recent(lost)) {
            true => PeerLink::Lost,
            false => PeerLink::Down,
        }
    }

    /// If the other node is dead, etcd has not said so since a link was lost.
    pub(super) fn is_recent(&self, lost: Instant) -> bool {
        lost.elapsed() < 2 * self.node.options().lease
    }

    fn is_missed(&self, table: &NodeTable, name: &str) -> bool {
        let Some(known) = table.owners.nodes().get(name) else {
            return true;
        };
        let node = Incarnation::new(name, known.fence);
        let is_me = table.me.as_ref() == Some(&node);
        !is_me && self.link_to(table, &node) == PeerLink::Lost
    }

    /// All nodes that live, by name, as clients are told that speak TLS, or do not.
    pub(crate) fn straight_nodes(&self, is_tls: bool) -> Vec<(String, StraightNode)> {
        let table = self.node.table();
        let ranges = self.slot_ranges_of(&table, is_tls);
        let nodes = table.owners.nodes().iter().map(|(name, known)| {
            let about = NodeAbout::parse(&known.record.about);
            let life = Incarnation::new(name, known.fence);
            let own = ranges.iter().filter(|range| range.node == *name);
            let owned = table
                .owners
                .owners()
                .filter_map(|(_, row)| row.record.as_ref());
            let epochs = owned.filter(|record| record.owner == life);
            let is_me = table.me.as_ref() == Some(&life);
            let node = StraightNode {
                id: self.node_id(name),
                address: address(straight_at(&about, is_tls)),
                peer_port: address(&about.peers).map_or(0, |(_, port)| port),
                epoch: epochs.map(|record| record.epoch).max().unwrap_or(0),
                is_me,
                is_linked: is_me || table.links.contains(&life),
                slots: own.map(|range| (range.first, range.last)).collect(),
            };
            (name.clone(), node)
        });
        nodes.collect()
    }

    /// The id of a node: it is the same in each of its lives.
    pub(crate) fn node_id(&self, name: &str) -> String {
        let cluster = &self.node.options().cluster;
        let named = format!("{cluster}/{name}");
        let hash = digest::digest(&digest::SHA256, named.as_bytes());
        let mut id = String::with_capacity(40);
        for byte in &hash.as_ref()[..20] {
            let _ = write!(id, "{byte:02x}");
        }
        id
    }
}

/// Where a node listens for such clients, if it does.
fn straight_of(table: &NodeTable, name: &str, is_tls: bool) -> Option<String> {
    let known = table.owners.nodes().get(name)?;
    let about = NodeAbout::parse(&known.record.about);
    Some(straight_at(&about, is_tls).to_owned()).filter(|straight| !straight.is_empty())
}

/// A client goes on as it came: within TLS, or without.
fn straight_at(about: &NodeAbout, is_tls: bool) -> &str {
    match is_tls {
        true => &about.straight_tls,
        false => &about.straight,
    }
}

/// The host and port of an address. Clients know IPv6 without its brackets.
fn address(text: &str) -> Option<(String, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    Some((host.to_owned(), port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_told_as_clients_know_them() {
        let read = |text: &str| address(text);
        assert_eq!(read("10.0.0.1:7436"), Some(("10.0.0.1".into(), 7436)));
        assert_eq!(read("[::1]:7436"), Some(("::1".into(), 7436)));
        assert_eq!(read("n1.example:7436"), Some(("n1.example".into(), 7436)));
        assert_eq!((read(""), read("n1"), read("n1:")), (None, None, None));
    }
}
