//! The names of a cluster's keys in etcd.

use super::records::{Incarnation, SnapshotId};
use super::store::KeyRange;

/// The names of the keys below one prefix.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClusterKeys {
    root: String,
}

/// A key that all nodes watch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WatchedKey<'a> {
    /// A node lives while it is there.
    Node(&'a str),
    /// A node shall own nothing while it is there.
    Drain(&'a str),
    /// The owner of a partition.
    Owner(u32),
}

impl ClusterKeys {
    /// The keys of the cluster with this name.
    pub fn new(cluster: &str) -> Self {
        Self {
            root: format!("/rideau/{cluster}/"),
        }
    }

    /// A node lives while this key is there.
    pub fn node(&self, name: &str) -> String {
        format!("{}table/node/{name}", self.root)
    }

    /// A node shall own nothing while this key is there.
    pub fn drain(&self, name: &str) -> String {
        format!("{}table/drain/{name}", self.root)
    }

    /// The owner of a partition.
    pub fn owner(&self, partition: u32) -> String {
        format!("{}table/own/{partition}", self.root)
    }

    /// One batch of a log.
    pub fn batch(&self, log: &Incarnation, seq: u64) -> String {
        format!("{}log/{log}/{seq:016}", self.root)
    }

    /// The batches of a log from one to before another.
    pub fn batches(&self, log: &Incarnation, from: u64, before: u64) -> KeyRange {
        KeyRange {
            from: self.batch(log, from),
            to: self.batch(log, before),
        }
    }

    /// The batches of a log from one to its end.
    pub fn batches_from(&self, log: &Incarnation, from: u64) -> KeyRange {
        KeyRange {
            from: self.batch(log, from),
            to: KeyRange::prefix(&format!("{}log/{log}/", self.root)).to,
        }
    }

    /// The beginning of the keys of reports for one ownership of a partition.
    pub fn reports(&self, partition: u32, epoch: u64) -> String {
        format!("{}report/{partition}/{epoch}/", self.root)
    }

    /// One piece of a snapshot.
    pub fn chunk(&self, partition: u32, id: SnapshotId, chunk: u32) -> String {
        format!("{}snap/{partition}/{id}/{chunk:06}", self.root)
    }

    /// All pieces of a snapshot.
    pub fn chunks(&self, partition: u32, id: SnapshotId) -> KeyRange {
        KeyRange::prefix(&format!("{}snap/{partition}/{id}/", self.root))
    }

    /// The log and the number of a batch's key.
    pub fn as_batch(&self, key: &str) -> Option<(Incarnation, u64)> {
        let rest = key.strip_prefix(&self.root)?.strip_prefix("log/")?;
        let (log, seq) = rest.rsplit_once('/')?;
        Some((log.parse().ok()?, seq.parse().ok()?))
    }

    /// What all nodes watch. A watch of etcd covers one range of keys, and only within one
    /// watch are revisions shown in order.
    pub fn watched(&self) -> KeyRange {
        KeyRange::prefix(&format!("{}table/", self.root))
    }

    /// The thing that a watched key is about.
    pub fn as_watched<'a>(&self, key: &'a str) -> Option<WatchedKey<'a>> {
        let key = key.strip_prefix(&self.root)?.strip_prefix("table/")?;
        let (folder, name) = key.split_once('/')?;
        match folder {
            "node" => Some(WatchedKey::Node(name)),
            "drain" => Some(WatchedKey::Drain(name)),
            "own" => name.parse().ok().map(WatchedKey::Owner),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_again() {
        let keys = ClusterKeys::new("shop");
        assert_eq!(keys.as_watched(&keys.owner(7)), Some(WatchedKey::Owner(7)));
        assert_eq!(
            keys.as_watched(&keys.node("a")),
            Some(WatchedKey::Node("a"))
        );
        let watched = keys.watched();
        for key in [keys.owner(7), keys.node("a"), keys.drain("a")] {
            assert!(
                watched.contains(&key) && keys.as_watched(&key).is_some(),
                "{key}"
            );
        }
        let log = Incarnation::new("a", 3);
        let batch = keys.batch(&log, 12);
        assert_eq!(keys.as_watched(&batch), None);
        assert!(!watched.contains(&batch));
        assert_eq!(keys.as_batch(&batch), Some((log.clone(), 12)));
        assert!(keys.batches_from(&log, 12).contains(&batch));
        assert!(!keys.batches(&log, 2, 12).contains(&batch));
        assert!(
            !keys
                .batches_from(&Incarnation::new("a", 33), 0)
                .contains(&batch)
        );
    }
}
