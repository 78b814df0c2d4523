//! Has all nodes report the keys that their records have for themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rideau_core::cluster::Incarnation;
use rideau_resp::{Protocol, Reply, Value};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::serve::values::{ValueAsks, error, number, words_of};
use crate::state::cluster::verbs;

/// A node that does not have all reports looks again after so long.
const LOOK: Duration = Duration::from_millis(20);

/// What one node has reported: partitions whose records it has told wholly, and keys with
/// their values.
type Reported = (BTreeSet<u32>, Vec<(Vec<u8>, u128)>);

impl ValueAsks {
    /// A piece of the keys of this node, for another.
    pub(in crate::serve::values) async fn report(
        &self,
        cursor: &[u8],
        wanted: &[Vec<u8>],
    ) -> Vec<u8> {
        let pairs = wanted.chunks_exact(2);
        let wanted: Vec<(u32, u64)> = pairs
            .map(|pair| (number(&pair[0]) as u32, number(&pair[1])))
            .filter(|(partition, _)| *partition < self.cluster.partitions.count())
            .collect();
        let ranges = &self.daemon.values.ranges;
        let report = ranges.report_keys(&wanted, number(cursor));
        if ranges.written().await.is_err() {
            return error("CLUSTERDOWN it is not known what is written.");
        }
        let mut out = Vec::new();
        let mut reply = Reply::new(&mut out, Protocol::Resp2);
        reply.array(3);
        let next = report.next.map(|next| next.to_string());
        reply.bulk(next.unwrap_or_default());
        reply.array(2 * report.covered.len());
        for (partition, epoch) in &report.covered {
            reply.bulk(partition.to_string()).bulk(epoch.to_string());
        }
        reply.array(2 * report.keys.len());
        for reported in &report.keys {
            reply.bulk(&reported.key).bulk(reported.value.to_string());
        }
        out
    }

    /// Have all nodes report the keys of this node's partitions, and tell which of them did
    /// not.
    pub(super) async fn collect_keys(&self, until: Instant) -> Result<(), String> {
        let collected = tokio::time::timeout_at(until, self.collect_all()).await;
        let missing = match collected {
            Ok(0) => return Ok(()),
            Ok(missing) => missing.to_string(),
            Err(_) => "some".to_owned(),
        };
        if Instant::now() + LOOK < until {
            // A partition may be on its way.
            tokio::time::sleep(LOOK).await;
            return Ok(());
        }
        let all = self.cluster.partitions.count();
        Err(format!(
            "CLUSTERDOWN the owners of {missing} of {all} partitions have not told their keys \
             yet; nothing was done. Ask again."
        ))
    }

    /// Says how many partitions have not told their keys.
    async fn collect_all(&self) -> usize {
        let _one = self.cluster.collecting.lock().await;
        let served = self.cluster.served();
        let wanted = self.cluster.keys.lock().unready(&served);
        if wanted.is_empty() {
            return 0;
        }
        let mut asks = JoinSet::new();
        for node in self.cluster.others().into_iter().map(Some).chain([None]) {
            let (asks_of, wanted) = (self.clone(), wanted.clone());
            asks.spawn(async move { asks_of.reported_by(node, &wanted).await });
        }
        let mut all = BTreeSet::new();
        while let Some(reported) = asks.join_next().await {
            let Ok(Some((covered, keys))) = reported else {
                continue;
            };
            self.take_report(&wanted, &covered, &keys);
            all.extend(covered);
        }
        self.cluster.keys_changed.notify_waiters();
        (self.cluster.partitions.count() as usize).saturating_sub(all.len())
    }

    fn take_report(
        &self,
        wanted: &[(u32, u64)],
        covered: &BTreeSet<u32>,
        keys: &[(Vec<u8>, u128)],
    ) {
        let covered: Vec<u32> = covered.iter().copied().collect();
        let mut by_partition: BTreeMap<u32, Vec<(&[u8], u128)>> = BTreeMap::new();
        for (key, value) in keys {
            let name = key.strip_prefix(b"\0").unwrap_or(key);
            let of = by_partition.entry(self.cluster.partitions.of_name(name));
            of.or_default().push((key, *value));
        }
        let mut index = self.cluster.keys.lock();
        for (partition, epoch) in wanted {
            let keys = by_partition.remove(partition).unwrap_or_default();
            index.reported((*partition, *epoch), &covered, keys);
        }
    }

    /// All pieces of what a node reports.
    async fn reported_by(
        &self,
        node: Option<Incarnation>,
        wanted: &[(u32, u64)],
    ) -> Option<Reported> {
        let mut covered: Option<BTreeSet<(u32, u64)>> = None;
        let mut keys = Vec::new();
        let mut cursor = Some(0);
        while let Some(at) = cursor {
            let piece: BTreeSet<(u32, u64)>;
            match &node {
                None => {
                    let report = self.daemon.values.ranges.report_keys(wanted, at);
                    self.daemon.values.ranges.written().await.ok()?;
                    let told = report.keys.into_iter();
                    keys.extend(told.map(|reported| (reported.key, reported.value)));
                    piece = report.covered.into_iter().collect();
                    cursor = report.next;
                }
                Some(node) => {
                    let mut words = vec![at.to_string()];
                    for (partition, epoch) in wanted {
                        words.extend([partition.to_string(), epoch.to_string()]);
                    }
                    let command = verbs::write(verbs::REPORT, &words);
                    let told = self.query(node, command).await?;
                    let [Value::Bulk(next), of, told] = &told[..] else {
                        return None;
                    };
                    let of = words_of(of);
                    let pairs = of.chunks_exact(2);
                    piece = pairs
                        .map(|pair| (number(pair[0]) as u32, number(pair[1])))
                        .collect();
                    for pair in words_of(told).chunks_exact(2) {
                        let value = str::from_utf8(pair[1]).ok()?.parse().ok()?;
                        keys.push((pair[0].to_vec(), value));
                    }
                    cursor = (!next.is_empty()).then(|| number(next));
                }
            }
            covered = Some(match covered {
                None => piece,
                Some(before) => &before & &piece,
            });
        }
        let covered = covered.unwrap_or_default();
        Some((
            covered
                .into_iter()
                .map(|(partition, _)| partition)
                .collect(),
            keys,
        ))
    }
}
