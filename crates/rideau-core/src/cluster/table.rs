//! Which nodes live and which partitions they own, as far as the watch has shown.

use std::collections::{BTreeMap, BTreeSet};

use crate::time::Instant;

use super::keys::{ClusterKeys, WatchedKey};
use super::records::{Incarnation, NodeRecord, OwnerRecord};
use super::store::{KeyChange, KeyValue};

/// All nodes and partitions, as a node knows them at one revision.
///
/// Invariant: the epoch of a partition never falls.
#[derive(Clone, Debug)]
pub struct OwnerTable {
    revision: u64,
    nodes: BTreeMap<String, KnownNode>,
    draining: BTreeSet<String>,
    owners: Vec<KnownOwner>,
}

/// A node that lives.
#[derive(Clone, Debug)]
pub struct KnownNode {
    /// When its key was created.
    pub fence: u64,
    /// The record that it published.
    pub record: NodeRecord,
    /// When this node learnt of it.
    pub since: Instant,
}

/// The stored record of a partition.
#[derive(Clone, Debug, Default)]
pub struct KnownOwner {
    /// The revision at which it was last written; zero if never.
    pub changed: u64,
    /// The last record.
    pub record: Option<OwnerRecord>,
    /// The owner before that of the record, as far as this node has seen.
    pub former: Option<Incarnation>,
    /// When this node learnt of the owner.
    pub since: Instant,
}

impl KnownOwner {
    fn owner(&self) -> Option<&Incarnation> {
        self.record.as_ref().map(|record| &record.owner)
    }

    /// The owner before that of a newer row.
    fn before(&self, newer: &Self) -> Option<Incarnation> {
        match self.owner() == newer.owner() {
            true => self.former.clone(),
            false => self.owner().cloned(),
        }
    }

    /// Follows an older row of the same partition.
    fn follow(&mut self, old: &Self) {
        self.former = old.before(self);
        if self.owner() == old.owner() {
            self.since = old.since;
        }
    }
}

impl OwnerTable {
    /// A table without nodes and owners.
    pub fn new(partitions: u32) -> Self {
        Self {
            revision: 0,
            nodes: BTreeMap::new(),
            draining: BTreeSet::new(),
            owners: vec![KnownOwner::default(); partitions as usize],
        }
    }

    /// The revision it shows.
    pub const fn revision(&self) -> u64 {
        self.revision
    }

    /// All nodes that live, by name.
    pub const fn nodes(&self) -> &BTreeMap<String, KnownNode> {
        &self.nodes
    }

    /// Whether a node shall own nothing.
    pub fn is_draining(&self, name: &str) -> bool {
        self.draining.contains(name)
    }

    /// The stored record of a partition.
    pub fn owner(&self, partition: u32) -> &KnownOwner {
        &self.owners[partition as usize]
    }

    /// The stored records of all partitions.
    pub fn owners(&self) -> impl Iterator<Item = (u32, &KnownOwner)> {
        (0..).zip(&self.owners)
    }

    /// Whether this life of a node lasts.
    pub fn is_live(&self, node: &Incarnation) -> bool {
        let known = self.nodes.get(&node.name);
        known.is_some_and(|known| known.fence == node.fence)
    }

    /// Whether no living node owns a partition.
    pub fn is_orphan(&self, partition: u32) -> bool {
        let record = self.owner(partition).record.as_ref();
        !record.is_some_and(|record| self.is_live(&record.owner))
    }

    /// Everything was read anew at a revision. Returns the partitions whose record differs.
    pub(super) fn reset(
        &mut self,
        revision: u64,
        all: &[KeyValue],
        keys: &ClusterKeys,
        now: Instant,
    ) -> Vec<u32> {
        let mut next = Self::new(self.owners.len() as u32);
        for kept in all {
            next.put(kept, keys, now);
        }
        for (name, node) in &mut next.nodes {
            if let Some(known) = self.nodes.get(name).filter(|it| it.fence == node.fence) {
                node.since = known.since;
            }
        }
        next.revision = revision;
        for (old, new) in self.owners.iter().zip(&mut next.owners) {
            new.follow(old);
        }
        let pairs = self.owners.iter().zip(&next.owners).zip(0..);
        let changed = pairs
            .filter(|((old, new), _)| old.changed != new.changed)
            .inspect(|((old, new), _)| check_epochs(old.record.as_ref(), new.record.as_ref()))
            .map(|(_, partition)| partition)
            .collect();
        *self = next;
        changed
    }

    /// Changes of one revision. Returns the partitions whose record changed.
    pub(super) fn apply(
        &mut self,
        revision: u64,
        changes: &[KeyChange],
        keys: &ClusterKeys,
        now: Instant,
    ) -> Vec<u32> {
        self.revision = self.revision.max(revision);
        let mut changed = Vec::new();
        for change in changes {
            match change {
                KeyChange::Put(kept) => changed.extend(self.put(kept, keys, now)),
                KeyChange::Deleted(key) => match keys.as_watched(key) {
                    Some(WatchedKey::Node(name)) => _ = self.nodes.remove(name),
                    Some(WatchedKey::Drain(name)) => _ = self.draining.remove(name),
                    Some(WatchedKey::Owner(_)) | None => (),
                },
            }
        }
        changed
    }

    fn put(&mut self, kept: &KeyValue, keys: &ClusterKeys, now: Instant) -> Option<u32> {
        let text = str::from_utf8(&kept.value).ok()?;
        match keys.as_watched(&kept.key)? {
            WatchedKey::Node(name) => {
                let node = KnownNode {
                    fence: kept.created,
                    record: text.parse().ok()?,
                    since: now,
                };
                self.nodes.insert(name.to_owned(), node);
                None
            }
            WatchedKey::Drain(name) => {
                self.draining.insert(name.to_owned());
                None
            }
            WatchedKey::Owner(partition) => {
                let row = self.owners.get_mut(partition as usize)?;
                let record: OwnerRecord = text.parse().ok()?;
                check_epochs(row.record.as_ref(), Some(&record));
                let mut next = KnownOwner {
                    changed: kept.changed,
                    record: Some(record),
                    former: None,
                    since: now,
                };
                next.follow(row);
                *row = next;
                Some(partition)
            }
        }
    }
}

fn check_epochs(old: Option<&OwnerRecord>, new: Option<&OwnerRecord>) {
    let epoch = |record: Option<&OwnerRecord>| record.map_or(0, |record| record.epoch);
    debug_assert!(epoch(old) <= epoch(new), "C6: epochs never fall");
}
