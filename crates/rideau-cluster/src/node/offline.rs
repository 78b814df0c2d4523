//! Changes of what a cluster has in etcd while none of its nodes lives.
//!
//! An operator makes them: after etcd was restored from a backup, and to bring the values of
//! a server into a new cluster. Owners are written that do not live, in epochs above all
//! before, so the first nodes that start take everything over.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rideau::store::etcd::{
    EtcdClient, EtcdError, EtcdKey, EtcdOptions, EtcdRead, KeyRange, KeyStamp, Txn, TxnOp,
};
use rideau_core::cluster::{
    ClusterKeys, Incarnation, LogBatch, OwnerRecord, Partitions, Segment, SnapshotId, WatchedKey,
};
use tokio::time::sleep;

use super::error::NodeError;
use super::meta::{ClusterMeta, MetaError, meta_key};

/// The most partitions that are changed in one transaction: etcd allows no more operations.
const AT_ONCE: usize = 128;
/// Nodes of a restored etcd are gone when their leases have run out, which begin anew.
const LOOK: Duration = Duration::from_millis(500);
/// Epochs of a restored cluster are this much above those of the backup, and above what the
/// clock says: there may have been others since.
const RESTORED_STEP: u64 = 4_096;
/// Clocks that say more than this are wrong.
const WALL_EPOCH_MAX: u64 = 1_500_000;
/// The most bytes of a piece of a snapshot.
const CHUNK: usize = 256 << 10;
/// The owner of partitions that were filled, and that no node has taken yet.
const MOVED: &str = "moved";
/// No key was created at this revision, and a key that is not there has revision zero.
const NEVER: u64 = 1;

/// A cluster without living nodes.
#[derive(Debug)]
pub struct OfflineCluster {
    client: EtcdClient,
    keys: ClusterKeys,
    cluster: String,
    partitions: Partitions,
    owners: BTreeMap<u32, FoundOwner>,
    revision: u64,
}

/// The record of a partition, and when it was written.
#[derive(Debug)]
struct FoundOwner {
    record: OwnerRecord,
    modified: i64,
}

impl OfflineCluster {
    /// Connect to etcd, and wait until no node lives, for as long as a few leases last.
    ///
    /// # Errors
    ///
    /// If etcd refuses or cannot be reached, if the cluster was made with other partitions,
    /// or if a node goes on living.
    pub async fn open(
        options: EtcdOptions,
        cluster: &str,
        partitions: Partitions,
        lease: Duration,
    ) -> Result<Self, NodeError> {
        let client = EtcdClient::connect(options).await?;
        let meta = ClusterMeta::read_or_make(&client, cluster, partitions).await;
        meta.map_err(|error| match error {
            MetaError::Etcd(error) => NodeError::Etcd(error),
            MetaError::Node(error) => error,
        })?;
        let keys = ClusterKeys::new(cluster);
        let until = Instant::now() + 3 * lease;
        loop {
            let watched = keys.watched();
            let read = EtcdRead::newest(KeyRange::between(watched.from, watched.to));
            let found = client.read(read).await?;
            let (nodes, owners) = sorted(&keys, &found.keys)?;
            if nodes.is_empty() {
                return Ok(Self {
                    client,
                    keys,
                    cluster: cluster.to_owned(),
                    partitions,
                    owners,
                    revision: u64::try_from(found.revision).unwrap_or(0),
                });
            }
            if Instant::now() >= until {
                return Err(NodeError::Living(nodes));
            }
            sleep(LOOK).await;
        }
    }

    /// Whether a node has ever owned anything.
    pub fn is_used(&self) -> bool {
        let mut owners = self.owners.values();
        owners.any(|owner| owner.record.owner.name != MOVED)
    }

    /// Accept what etcd has, which may be older than what nodes decided last. `forgotten` is
    /// what each partition is told of that. Nodes that saw the newer state start from then
    /// on.
    ///
    /// # Errors
    ///
    /// If etcd fails, or another process changes the same.
    pub async fn accept_restored(&self, forgotten: &[u8]) -> Result<(), NodeError> {
        let log = Incarnation::new("restored", self.revision);
        let wall = wall();
        let mut batch = LogBatch::default();
        let mut records = Vec::new();
        for partition in 0..self.partitions.count() {
            let old = self.owners.get(&partition);
            let before = old.map_or(0, |old| old.record.epoch);
            let epoch = before.max(wall_epoch(wall)) + RESTORED_STEP;
            batch.push(partition, epoch, forgotten);
            let segment = Segment {
                epoch,
                log: log.clone(),
                from: Some(0),
                to: Some(0),
            };
            let owner = old.map_or_else(|| log.clone(), |old| old.record.owner.clone());
            let record = OwnerRecord {
                epoch,
                owner,
                snapshot: None,
                segments: vec![segment],
            };
            records.push((partition, record));
        }
        let put = TxnOp::put(self.keys.batch(&log, 0), batch.encode());
        self.client.txn(Txn::new().then(put)).await?;
        self.put_owners(&records).await?;
        let key = meta_key(&self.cluster, "restored");
        let put = TxnOp::put(key, format!("1 {}", wall.as_millis()));
        self.client.txn(Txn::new().then(put)).await?;
        Ok(())
    }

    /// Write snapshots of all partitions of a cluster in which nothing was ever owned, and
    /// what tickets are proved with. It may be repeated.
    ///
    /// # Errors
    ///
    /// If etcd fails, or a node has begun meanwhile.
    pub async fn fill(
        &self,
        epoch: u64,
        secret: [u8; 32],
        snapshots: &[Vec<u8>],
    ) -> Result<(), NodeError> {
        let put = TxnOp::put(meta_key(&self.cluster, "secret"), secret.to_vec());
        self.client.txn(Txn::new().then(put)).await?;
        let mut records = Vec::new();
        for (partition, snapshot) in (0..self.partitions.count()).zip(snapshots) {
            let chunks: Vec<&[u8]> = snapshot.chunks(CHUNK).collect();
            let id = SnapshotId {
                epoch,
                number: 0,
                chunks: u32::try_from(chunks.len()).expect("a snapshot is no larger"),
            };
            for (at, chunk) in (0..).zip(chunks) {
                let put = TxnOp::put(self.keys.chunk(partition, id, at), chunk.to_vec());
                self.client.txn(Txn::new().then(put)).await?;
            }
            let record = OwnerRecord {
                epoch,
                owner: Incarnation::new(MOVED, NEVER),
                snapshot: Some(id),
                segments: Vec::new(),
            };
            records.push((partition, record));
        }
        self.put_owners(&records).await
    }

    async fn put_owners(&self, records: &[(u32, OwnerRecord)]) -> Result<(), NodeError> {
        for some in records.chunks(AT_ONCE) {
            let mut txn = Txn::new();
            for (partition, record) in some {
                let key = self.keys.owner(*partition);
                let modified = self.owners.get(partition).map_or(0, |old| old.modified);
                txn = txn
                    .when(key.clone(), KeyStamp::Modified, modified)
                    .then(TxnOp::put(key, record.to_string()));
            }
            if !self.client.txn(txn).await?.holds {
                return Err(NodeError::Living(Vec::new()));
            }
        }
        Ok(())
    }
}

/// When an operator accepted a restored etcd last, in milliseconds since 1970, and etcd's
/// revision.
pub(super) async fn accepted(
    client: &EtcdClient,
    cluster: &str,
) -> Result<(Option<u64>, u64), EtcdError> {
    let read = EtcdRead::newest(KeyRange::key(meta_key(cluster, "restored")));
    let found = client.read(read).await?;
    let text = found.keys.first().map(|key| key.value.clone());
    let text = text.unwrap_or_default();
    let wall = std::str::from_utf8(&text).ok();
    let wall = wall.and_then(|text| text.strip_prefix("1 ")?.parse().ok());
    Ok((wall, u64::try_from(found.revision).unwrap_or(0)))
}

/// The names of living nodes, and the owners.
fn sorted(
    keys: &ClusterKeys,
    found: &[EtcdKey],
) -> Result<(Vec<String>, BTreeMap<u32, FoundOwner>), NodeError> {
    let (mut nodes, mut owners) = (Vec::new(), BTreeMap::new());
    for key in found {
        let name = String::from_utf8_lossy(&key.key);
        match keys.as_watched(&name) {
            Some(WatchedKey::Node(node)) => nodes.push(node.to_owned()),
            Some(WatchedKey::Owner(partition)) => {
                let text = String::from_utf8_lossy(&key.value);
                let record = text.parse().map_err(|_| NodeError::BadOwner(partition))?;
                let modified = key.modified;
                owners.insert(partition, FoundOwner { record, modified });
            }
            Some(WatchedKey::Drain(_)) | None => (),
        }
    }
    Ok((nodes, owners))
}

fn wall() -> Duration {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH);
    wall.unwrap_or_default()
}

/// The epoch that the clock stands for; none if the clock is wrong.
fn wall_epoch(wall: Duration) -> u64 {
    let epoch = (wall.as_micros() >> 32) as u64;
    if epoch > WALL_EPOCH_MAX { 0 } else { epoch }
}
