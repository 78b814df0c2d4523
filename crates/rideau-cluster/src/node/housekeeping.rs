//! Housekeeping by one node for all: it compacts etcd and deletes keys that no partition needs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rideau::store::etcd::{
    EtcdClient, EtcdError, EtcdKey, EtcdRead, EtcdRefusal, KeyRange, KeyStamp, Txn, TxnOp,
};
use rideau_core::cluster::{ClusterKeys, Incarnation, OwnerRecord, SnapshotId, WatchedKey};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::shared::NodeShared;

/// The periodic work of the owner of partition 0.
pub(super) struct Housekeeping {
    pub(super) client: EtcdClient,
    pub(super) cluster: String,
    pub(super) keys: ClusterKeys,
    pub(super) shared: Arc<NodeShared>,
    pub(super) interval: Duration,
}

/// Keys that are deleted together.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Leftover {
    /// All batches of one life of a node.
    Log(Incarnation),
    /// All chunks of one snapshot of a partition.
    Snapshot(u32, SnapshotId),
}

/// The keys that are needed at one revision.
#[derive(Debug, Default)]
struct NeededKeys {
    live: BTreeSet<Incarnation>,
    /// The record of each partition, and its revision.
    owners: BTreeMap<u32, (OwnerRecord, i64)>,
}

impl Housekeeping {
    /// Keep house until the node ends.
    pub(super) async fn run(self) {
        let mut ticks = interval(self.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut unneeded = BTreeMap::new();
        let mut last = 0;
        loop {
            ticks.tick().await;
            let newest = self.shared.revision.load(Ordering::Relaxed);
            let earlier = std::mem::replace(&mut last, newest);
            if self.shared.serving.serves(0).is_none() {
                unneeded.clear();
                continue;
            }
            if let Err(error) = self.keep(earlier, &mut unneeded).await {
                tracing::warn!(%error, "etcd cannot be tidied up now");
            }
        }
    }

    async fn keep(
        &self,
        compact: u64,
        unneeded: &mut BTreeMap<Leftover, Instant>,
    ) -> Result<(), EtcdError> {
        if compact > 0 {
            let revision = i64::try_from(compact).unwrap_or(i64::MAX);
            match self.client.compact(revision).await {
                Err(error) if error.refusal() != Some(EtcdRefusal::Compacted) => return Err(error),
                _ => (),
            }
        }
        // What is needed is read after what there is. So a log or a snapshot that is found
        // and not needed will never be.
        let found = self.leftovers().await?;
        let Some(needed) = self.needed().await? else {
            tracing::warn!("a record of the cluster cannot be read, so nothing is deleted");
            return Ok(());
        };
        let now = Instant::now();
        unneeded.retain(|it, _| found.contains(it));
        for it in found {
            if needed.needs(&it) {
                unneeded.remove(&it);
                continue;
            }
            let since = *unneeded.entry(it.clone()).or_insert(now);
            if now.duration_since(since) >= 2 * self.interval {
                self.delete(&it, &needed).await?;
                tracing::info!(?it, "what no partition needs is deleted");
                unneeded.remove(&it);
            }
        }
        Ok(())
    }

    /// All logs and snapshots there are. One key of each is read.
    async fn leftovers(&self) -> Result<BTreeSet<Leftover>, EtcdError> {
        let mut found = BTreeSet::new();
        for folder in ["log", "snap"] {
            let all = KeyRange::prefix(format!("/rideau/{}/{folder}/", self.cluster));
            let end = format!("/rideau/{}/{folder}0", self.cluster);
            let mut range = all;
            loop {
                let mut read = EtcdRead::newest(range);
                (read.keys_max, read.keys_only) = (1, true);
                let reply = self.client.read(read).await?;
                let Some(key) = reply.keys.first().and_then(text) else {
                    break;
                };
                found.extend(leftover(&self.keys, &self.cluster, &key));
                // Behind all keys with the same beginning.
                let Some((beginning, _)) = key.rsplit_once('/') else {
                    break;
                };
                let next = format!("{beginning}0");
                if next >= end {
                    break;
                }
                range = KeyRange::between(next, end.clone());
            }
        }
        Ok(found)
    }

    /// None if something is written in a way that this version does not know.
    async fn needed(&self) -> Result<Option<NeededKeys>, EtcdError> {
        let watched = self.keys.watched();
        let read = EtcdRead::newest(KeyRange::between(watched.from, watched.to));
        let found = self.client.read(read).await?;
        let mut needed = NeededKeys::default();
        for key in &found.keys {
            let name = text(key).unwrap_or_default();
            match self.keys.as_watched(&name) {
                Some(WatchedKey::Node(name)) => {
                    let fence = u64::try_from(key.created).unwrap_or(0);
                    needed.live.insert(Incarnation::new(name, fence));
                }
                Some(WatchedKey::Owner(partition)) => {
                    let record = String::from_utf8_lossy(&key.value).parse();
                    let Ok(record) = record else {
                        return Ok(None);
                    };
                    needed.owners.insert(partition, (record, key.modified));
                }
                _ => (),
            }
        }
        Ok(Some(needed))
    }

    async fn delete(&self, it: &Leftover, needed: &NeededKeys) -> Result<(), EtcdError> {
        let (range, txn) = match it {
            Leftover::Log(log) => (self.keys.batches_from(log, 0), Txn::new()),
            Leftover::Snapshot(partition, id) => {
                let at = needed.owners.get(partition).map_or(0, |(_, at)| *at);
                let key = self.keys.owner(*partition);
                let txn = Txn::new().when(key, KeyStamp::Modified, at);
                (self.keys.chunks(*partition, *id), txn)
            }
        };
        let range = KeyRange::between(range.from, range.to);
        self.client.txn(txn.then(TxnOp::Delete(range))).await?;
        Ok(())
    }
}

impl NeededKeys {
    /// A life that is over writes no more, and no record names it anew. The owner of an
    /// earlier epoch cannot name its snapshot any more.
    fn needs(&self, it: &Leftover) -> bool {
        match it {
            Leftover::Log(log) => {
                let mut segments = self.owners.values().flat_map(|(it, _)| &it.segments);
                self.live.contains(log) || segments.any(|segment| segment.log == *log)
            }
            Leftover::Snapshot(partition, id) => match self.owners.get(partition) {
                Some((record, _)) => record.snapshot == Some(*id) || id.epoch >= record.epoch,
                None => true,
            },
        }
    }
}

/// The log or snapshot that a key belongs to, if it may be left over.
fn leftover(keys: &ClusterKeys, cluster: &str, key: &str) -> Option<Leftover> {
    if let Some((log, _)) = keys.as_batch(key) {
        return Some(Leftover::Log(log));
    }
    let rest = key.strip_prefix(&format!("/rideau/{cluster}/snap/"))?;
    let mut parts = rest.split('/');
    let partition = parts.next()?.parse().ok()?;
    let id = parts.next()?.parse().ok()?;
    Some(Leftover::Snapshot(partition, id))
}

fn text(key: &EtcdKey) -> Option<String> {
    String::from_utf8(key.key.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(epoch: u64) -> SnapshotId {
        SnapshotId {
            epoch,
            number: 3,
            chunks: 1,
        }
    }

    #[test]
    fn keys_are_told_apart() {
        let keys = ClusterKeys::new("shop");
        let log = Incarnation::new("n1", 7);
        assert_eq!(
            leftover(&keys, "shop", &keys.batch(&log, 9)),
            Some(Leftover::Log(log))
        );
        assert_eq!(
            leftover(&keys, "shop", &keys.chunk(5, snapshot(4), 0)),
            Some(Leftover::Snapshot(5, snapshot(4)))
        );
        assert_eq!(leftover(&keys, "shop", &keys.owner(5)), None);
    }

    #[test]
    fn only_what_can_never_be_named_again_is_not_needed() {
        let (live, dead) = (Incarnation::new("n1", 7), Incarnation::new("n2", 8));
        let named = Incarnation::new("n3", 9);
        let record: OwnerRecord = "1 5 n1@7 4-3-1 4,n3@9,0,*;".parse().expect("it is one");
        let mut needed = NeededKeys::default();
        needed.live.insert(live.clone());
        needed.owners.insert(0, (record, 12));
        assert!(needed.needs(&Leftover::Log(live)));
        assert!(needed.needs(&Leftover::Log(named)));
        assert!(!needed.needs(&Leftover::Log(dead)));
        assert!(needed.needs(&Leftover::Snapshot(0, snapshot(4))), "named");
        assert!(needed.needs(&Leftover::Snapshot(0, snapshot(5))), "may be");
        assert!(!needed.needs(&Leftover::Snapshot(0, snapshot(3))));
        assert!(needed.needs(&Leftover::Snapshot(1, snapshot(3))), "unknown");
    }
}
