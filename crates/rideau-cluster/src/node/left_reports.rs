//! Reports that go by way of etcd, as there is no link to the owner.
//!
//! A node leaves its report there in chunks, with its own lease: it is gone with that life of
//! the node. The owner of a partition that waits for a node without a link looks for it.

use std::collections::BTreeMap;

use rideau::store::etcd::{EtcdClient, EtcdError, EtcdRead, KeyRange, Txn, TxnOp};
use rideau_core::cluster::{ClusterKeys, Compare, Incarnation, StoreOp, StoreRequest, StoreTxn};

/// The most bytes of a chunk.
const CHUNK: usize = 256 << 10;

/// A report of one ownership of a partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct LeftReport {
    pub(super) partition: u32,
    pub(super) epoch: u64,
    pub(super) from: Incarnation,
    pub(super) bytes: Vec<u8>,
}

/// Where reports are left.
#[derive(Clone, Debug)]
pub(super) struct LeftReports {
    pub(super) client: EtcdClient,
    pub(super) keys: ClusterKeys,
}

impl LeftReports {
    /// Leave a report, if the compare says that this life of the node still lasts.
    pub(super) async fn leave(&self, report: &LeftReport, fence: Compare, lease: u64) {
        let beginning = self.beginning(report.partition, report.epoch);
        // An empty report is a chunk as well.
        let count = report.bytes.len().div_ceil(CHUNK).max(1);
        for at in 0..count {
            let bytes = report.bytes.chunks(CHUNK).nth(at).unwrap_or_default();
            let put = StoreOp::Put {
                key: format!("{beginning}{}/{at:04}-{count:04}", report.from),
                value: bytes.to_vec(),
                lease: Some(lease),
            };
            let txn = StoreTxn {
                compares: vec![fence.clone()],
                then: vec![put],
                otherwise: Vec::new(),
            };
            // What is not there is left again later.
            self.client.carry_out(StoreRequest::Txn(txn)).await;
        }
    }

    /// The owner has the report of this node, or it does not count any more.
    pub(super) async fn take_back(&self, partition: u32, epoch: u64, from: &Incarnation) {
        let keys = format!("{}{from}/", self.beginning(partition, epoch));
        let delete = TxnOp::Delete(KeyRange::prefix(keys));
        // What stays goes with the lease.
        let _ = self.client.txn(Txn::new().then(delete)).await;
    }

    /// All whole reports of one ownership.
    pub(super) async fn find(
        &self,
        partition: u32,
        epoch: u64,
    ) -> Result<Vec<LeftReport>, EtcdError> {
        let beginning = self.beginning(partition, epoch);
        let read = EtcdRead::newest(KeyRange::prefix(beginning.clone()));
        let read = self.client.read(read).await?;
        let mut all: BTreeMap<Incarnation, (usize, Vec<&[u8]>)> = BTreeMap::new();
        for key in &read.keys {
            let name = String::from_utf8_lossy(&key.key);
            if let Some((from, count)) = name.strip_prefix(&beginning).and_then(named) {
                let (wanted, chunks) = all.entry(from).or_default();
                *wanted = count;
                // Keys are read in the order of the chunks.
                chunks.push(&key.value);
            }
        }
        let whole = all
            .into_iter()
            .filter(|(_, (count, chunks))| chunks.len() == *count);
        let found = whole.map(|(from, (_, chunks))| LeftReport {
            partition,
            epoch,
            from,
            bytes: chunks.concat(),
        });
        Ok(found.collect())
    }

    fn beginning(&self, partition: u32, epoch: u64) -> String {
        self.keys.reports(partition, epoch)
    }
}

/// The node that a chunk is of, and how many it has.
fn named(rest: &str) -> Option<(Incarnation, usize)> {
    let (from, chunk) = rest.rsplit_once('/')?;
    let (_, count) = chunk.split_once('-')?;
    Some((from.parse().ok()?, count.parse().ok()?))
}
