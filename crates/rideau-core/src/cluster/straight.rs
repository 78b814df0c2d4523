//! Which node clients of Redis Cluster ask about each slot.
//!
//! They are told by the table of slots, and by redirects. A node that has just given a
//! partition away, or learnt of its new owner, forwards for a while instead: the watch of
//! the new owner may be later than its own, and two nodes would send a client to and fro.
//! A node that has lost the link to an owner a moment ago stands for it, for the owner may
//! be dead: a command that is parked is answered by the next owner, or can be repeated.

use std::time::Duration;

use crate::time::Instant;

use super::partitions::Partitions;
use super::records::Incarnation;
use super::table::OwnerTable;

/// Slots in a row that clients ask one node about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SlotRange {
    /// The first of them.
    pub first: u16,
    /// The last of them.
    pub last: u16,
    /// The name of the node.
    pub node: String,
}

/// The link from this node to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PeerLink {
    /// It is there.
    Up,
    /// It broke a moment ago: the other node may be dead.
    Lost,
    /// There is none, but the other node lives.
    Down,
}

impl OwnerTable {
    /// Which of the nodes that listen for such clients they ask about each slot: the owner, or
    /// else `me` or another node, which waits for an owner, or forwards to it. So no client
    /// finds a slot without a node.
    pub fn slot_ranges(
        &self,
        partitions: Partitions,
        me: &str,
        listens: impl Fn(&str) -> bool,
    ) -> Vec<SlotRange> {
        let names = || self.nodes().keys().map(String::as_str);
        let mine = Some(me).filter(|me| self.nodes().contains_key(*me) && listens(me));
        let Some(other) = mine.or_else(|| names().find(|name| listens(name))) else {
            return Vec::new();
        };
        let mut ranges: Vec<SlotRange> = Vec::new();
        for partition in 0..partitions.count() {
            let owner = self.live_owner(partition).map(|owner| &*owner.name);
            let node = owner.filter(|name| listens(name)).unwrap_or(other);
            let slots = partitions.slots(partition);
            let (first, last) = (slots.start as u16, (slots.end - 1) as u16);
            match ranges.last_mut().filter(|range| range.node == node) {
                Some(range) => range.last = last,
                None => ranges.push(SlotRange {
                    first,
                    last,
                    node: node.to_owned(),
                }),
            }
        }
        ranges
    }

    /// The node that a client is sent to for a name of this partition. None if this node owns
    /// it, no living node is known to, or the command is forwarded: this node has a link to
    /// the owner, and has known of it for less than `settle`.
    pub fn sends_to(
        &self,
        partition: u32,
        me: &Incarnation,
        link: impl Fn(&Incarnation) -> PeerLink,
        settle: Duration,
        now: Instant,
    ) -> Option<&Incarnation> {
        let owner = self.live_owner(partition).filter(|owner| *owner != me)?;
        let is_sent = match link(owner) {
            PeerLink::Up => now >= self.owner(partition).since + settle,
            PeerLink::Lost => false,
            PeerLink::Down => true,
        };
        is_sent.then_some(owner)
    }

    /// The owner of a partition, if that lives.
    pub fn live_owner(&self, partition: u32) -> Option<&Incarnation> {
        let record = self.owner(partition).record.as_ref()?;
        self.is_live(&record.owner).then_some(&record.owner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::keys::ClusterKeys;
    use crate::cluster::records::{NodeRecord, OwnerRecord};
    use crate::cluster::store::{KeyChange, KeyValue};

    const SETTLE: Duration = Duration::from_secs(1);

    /// A table of 16 partitions that is written to key by key.
    struct Script {
        keys: ClusterKeys,
        table: OwnerTable,
        revision: u64,
        partitions: Partitions,
    }

    impl Script {
        fn new() -> Self {
            Self {
                keys: ClusterKeys::new("test"),
                table: OwnerTable::new(16),
                revision: 0,
                partitions: Partitions::new(16, 0).expect("it is a power of two"),
            }
        }

        fn change(&mut self, change: KeyChange, at: u64) {
            let now = Instant::START + Duration::from_millis(at);
            self.table.apply(self.revision, &[change], &self.keys, now);
        }

        fn put(&mut self, key: String, value: &str, at: u64) {
            self.revision += 1;
            let kept = KeyValue {
                key,
                value: value.into(),
                created: self.revision,
                changed: self.revision,
                version: 1,
                lease: None,
            };
            self.change(KeyChange::Put(kept), at);
        }

        fn joins(&mut self, name: &str, at: u64) -> Incarnation {
            let record = NodeRecord {
                id: 1,
                weight: 1,
                about: String::new(),
            };
            self.put(self.keys.node(name), &record.to_string(), at);
            Incarnation::new(name, self.revision)
        }

        fn dies(&mut self, node: &Incarnation, at: u64) {
            let key = self.keys.node(&node.name);
            self.change(KeyChange::Deleted(key), at);
        }

        fn owns(&mut self, node: &Incarnation, partition: u32, epoch: u64, at: u64) {
            let record = OwnerRecord {
                epoch,
                owner: node.clone(),
                snapshot: None,
                segments: Vec::new(),
            };
            self.put(self.keys.owner(partition), &record.to_string(), at);
        }

        fn sent(&self, me: &Incarnation, link: PeerLink, at: u64) -> Option<&str> {
            let now = Instant::START + Duration::from_millis(at);
            let to = self.table.sends_to(0, me, |_| link, SETTLE, now);
            to.map(|node| &*node.name)
        }

        fn ranges(&self, me: &str, listen: &[&str]) -> Vec<(u16, u16, String)> {
            let listens = |name: &str| listen.contains(&name);
            let ranges = self.table.slot_ranges(self.partitions, me, listens);
            let ranges = ranges.into_iter();
            ranges.map(|it| (it.first, it.last, it.node)).collect()
        }
    }

    #[test]
    fn a_client_is_sent_to_an_owner_that_has_been_known_for_a_while() {
        let mut script = Script::new();
        let (one, two) = (script.joins("n1", 0), script.joins("n2", 0));
        assert_eq!(script.sent(&one, PeerLink::Up, 0), None, "it has no owner");
        script.owns(&two, 0, 1, 100);
        assert_eq!(
            script.sent(&two, PeerLink::Up, 5_000),
            None,
            "it is its own"
        );
        assert_eq!(
            script.sent(&one, PeerLink::Up, 1_099),
            None,
            "it is forwarded"
        );
        assert_eq!(
            script.sent(&one, PeerLink::Down, 101),
            Some("n2"),
            "there is no link"
        );
        assert_eq!(script.sent(&one, PeerLink::Up, 1_100), Some("n2"));
        let lost = script.sent(&one, PeerLink::Lost, 1_100);
        assert_eq!(lost, None, "it may be dead");
        // The same owner with another epoch is no new owner.
        script.owns(&two, 0, 2, 2_000);
        assert_eq!(script.sent(&one, PeerLink::Up, 2_000), Some("n2"));
        script.dies(&two, 3_000);
        assert_eq!(
            script.sent(&one, PeerLink::Up, 9_000),
            None,
            "it does not live"
        );
    }

    #[test]
    fn every_slot_has_a_node_that_listens() {
        let mut script = Script::new();
        assert!(
            script.ranges("n1", &["n1"]).is_empty(),
            "it is not there yet"
        );
        let (one, two) = (script.joins("n1", 0), script.joins("n2", 0));
        script.owns(&two, 0, 1, 0);
        script.owns(&one, 1, 1, 0);
        script.owns(&two, 3, 1, 0);
        let of = |first: u16, last: u16, name: &str| (first, last, name.to_owned());
        let both = ["n1", "n2"];
        let found = script.ranges("n1", &both);
        let rest = of(4_096, 16_383, "n1");
        let wanted = [
            of(0, 1_023, "n2"),
            of(1_024, 3_071, "n1"),
            of(3_072, 4_095, "n2"),
        ];
        assert_eq!(found[..3], wanted);
        assert_eq!(
            found[3..],
            [rest],
            "partitions without owner are of this node"
        );
        assert_eq!(script.ranges("n1", &["n2"]), [of(0, 16_383, "n2")]);
        assert!(script.ranges("n1", &[]).is_empty());
        script.dies(&two, 0);
        assert_eq!(script.ranges("n1", &both), [of(0, 16_383, "n1")]);
    }
}
