//! Reads what former owners of partitions wrote: snapshots, and sections of logs.
//!
//! All reads are fenced by this node's key. While its life lasts, nothing that the records
//! of its partitions name is removed. Partitions whose node died share that node's log, so
//! those that are read at the same time read it once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rideau::store::etcd::{EtcdClient, EtcdKey, EtcdRead, KeyRange, KeyStamp, Txn, TxnDone, TxnOp};
use rideau_core::cluster::{self, ClusterKeys, Incarnation, LogBatch, Segment, SnapshotId};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

/// How many keys are read at once, at least. Each has up to 256 KiB.
const PAGE_MIN: u32 = 16;
/// How many keys are read at once, at most.
const PAGE_MAX: u32 = 8_192;
/// About this many bytes are read at once.
const PAGE_LEN: usize = 4 << 20;
/// A read that failed is repeated after this long.
const RETRY: Duration = Duration::from_millis(200);

/// A partition that is to be loaded.
#[derive(Clone, Debug)]
pub(super) struct LoadJob {
    pub(super) partition: u32,
    pub(super) epoch: u64,
    pub(super) snapshot: Option<SnapshotId>,
    pub(super) segments: Vec<Segment>,
}

/// The snapshot and log of a partition, as read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LoadedPieces {
    /// The chunks of its snapshot.
    pub(super) chunks: Vec<Vec<u8>>,
    /// Its sections since then, in the order in which they were written.
    pub(super) sections: Vec<Vec<u8>>,
}

/// The result of a job: the pieces, or why they cannot be read.
pub(super) type LoadResult = (LoadJob, Result<LoadedPieces, String>);

/// This life of the node is over, so nothing of what it reads counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct LifeOver;

/// The reader, and its position.
#[derive(Clone, Debug)]
pub(super) struct LoadReader {
    pub(super) client: EtcdClient,
    pub(super) keys: ClusterKeys,
    /// The key of the node, and the revision that created it.
    pub(super) fence: (String, u64),
}

/// A segment that some job wants of a log.
#[derive(Clone, Debug)]
struct WantedSegment {
    job: usize,
    segment: Segment,
    partition: u32,
    /// The batches that were found, by number.
    found: Vec<Vec<u8>>,
}

impl LoadReader {
    /// Read everything that the jobs want. It takes as long as etcd is away.
    pub(super) async fn read(&self, jobs: Vec<LoadJob>) -> Result<Vec<LoadResult>, LifeOver> {
        let mut results: Vec<Result<LoadedPieces, String>> = Vec::with_capacity(jobs.len());
        for job in &jobs {
            results.push(self.snapshot(job).await?);
        }
        let mut wanted: BTreeMap<Incarnation, Vec<WantedSegment>> = BTreeMap::new();
        for (at, job) in jobs.iter().enumerate() {
            for segment in &job.segments {
                let of_log = wanted.entry(segment.log.clone()).or_default();
                of_log.push(WantedSegment {
                    job: at,
                    segment: segment.clone(),
                    partition: job.partition,
                    found: Vec::new(),
                });
            }
        }
        let mut found = Vec::new();
        for (log, segments) in wanted {
            match self.log(&log, segments).await? {
                Ok(segments) => found.extend(segments),
                Err((jobs, why)) => {
                    for job in jobs {
                        results[job] = Err(why.clone());
                    }
                }
            }
        }
        // Each job's segments in the order of its record.
        for (at, job) in jobs.iter().enumerate() {
            let Ok(pieces) = &mut results[at] else {
                continue;
            };
            for segment in &job.segments {
                let is_it = |it: &&mut WantedSegment| it.job == at && it.segment == *segment;
                if let Some(found) = found.iter_mut().find(is_it) {
                    pieces.sections.append(&mut found.found);
                }
            }
        }
        Ok(jobs.into_iter().zip(results).collect())
    }

    async fn snapshot(&self, job: &LoadJob) -> Result<Result<LoadedPieces, String>, LifeOver> {
        let Some(id) = job.snapshot else {
            return Ok(Ok(LoadedPieces::default()));
        };
        let mut chunks = Vec::new();
        let mut pages = Pages::new(self.keys.chunks(job.partition, id));
        while let Some(keys) = pages.next(self).await? {
            chunks.extend(keys.iter().map(|key| key.value.to_vec()));
        }
        if chunks.len() != id.chunks as usize {
            let why = format!("snapshot {id} has {} chunks", chunks.len());
            return Ok(Err(why));
        }
        Ok(Ok(LoadedPieces {
            chunks,
            sections: Vec::new(),
        }))
    }

    /// Read one log once for all segments of it. What is wrong with it concerns all jobs
    /// that want it.
    async fn log(
        &self,
        log: &Incarnation,
        mut wanted: Vec<WantedSegment>,
    ) -> Result<Result<Vec<WantedSegment>, (Vec<usize>, String)>, LifeOver> {
        let mut pages = Pages::new(self.range(log, &wanted));
        let mut numbers = Vec::new();
        while let Some(page) = pages.next(self).await? {
            let all = Arc::new(std::mem::take(&mut wanted));
            let (shared, names) = (Arc::clone(&all), self.keys.clone());
            let read = spawn_blocking(move || sections(&page, &names, &shared)).await;
            wanted = Arc::try_unwrap(all).unwrap_or_else(|all| (*all).clone());
            let read = read.unwrap_or_else(|error| Err(error.to_string()));
            match read {
                Ok(page) => {
                    for (seq, sections) in page {
                        numbers.push(seq);
                        for (at, bytes) in sections {
                            wanted[at].found.push(bytes);
                        }
                    }
                }
                Err(why) => return Ok(Err((jobs_of(&wanted), why))),
            }
        }
        match wanted.iter().find_map(|it| missing(&it.segment, &numbers)) {
            Some(seq) => {
                let why = format!("batch {seq} of the log of {log} is missing");
                Ok(Err((jobs_of(&wanted), why)))
            }
            None => Ok(Ok(wanted)),
        }
    }

    /// All batches of a log that some segment has.
    fn range(&self, log: &Incarnation, wanted: &[WantedSegment]) -> cluster::KeyRange {
        let segments = wanted.iter().map(|it| &it.segment);
        let from = segments.clone().map(|it| it.from.unwrap_or(0)).min();
        let from = from.unwrap_or(0);
        let ends: Option<Vec<u64>> = segments.map(|it| it.to).collect();
        match ends.and_then(|ends| ends.into_iter().max()) {
            Some(to) => self.keys.batches(log, from, to + 1),
            None => self.keys.batches_from(log, from),
        }
    }
}

/// A range that is read in parts.
struct Pages {
    from: String,
    to: String,
    is_over: bool,
    /// How many keys are read next.
    keys_max: u32,
}

impl Pages {
    fn new(range: cluster::KeyRange) -> Self {
        Self {
            is_over: range.from >= range.to,
            from: range.from,
            to: range.to,
            keys_max: PAGE_MIN,
        }
    }

    async fn next(&mut self, reader: &LoadReader) -> Result<Option<Vec<EtcdKey>>, LifeOver> {
        if self.is_over {
            return Ok(None);
        }
        let (key, fence) = &reader.fence;
        let fence = i64::try_from(*fence).unwrap_or(i64::MAX);
        let found = loop {
            let mut read = EtcdRead::newest(KeyRange::between(self.from.clone(), self.to.clone()));
            read.keys_max = self.keys_max;
            let txn = Txn::new()
                .when(key.clone(), KeyStamp::Created, fence)
                .then(TxnOp::Read(read));
            match reader.client.txn(txn).await {
                Ok(reply) if !reply.holds => return Err(LifeOver),
                Ok(reply) => {
                    if let Some(TxnDone::Read(found)) = reply.done.into_iter().next() {
                        break found;
                    }
                }
                Err(error) => tracing::debug!(%error, "a partition cannot be read now"),
            }
            // It may have been more than a reply can have.
            self.keys_max = PAGE_MIN;
            sleep(RETRY).await;
        };
        self.keys_max = next_page(self.keys_max, &found.keys);
        let last = found.keys.last().map(|key| key.key.to_vec());
        let last = last.and_then(|key| String::from_utf8(key).ok());
        match last {
            Some(last) if found.has_more => self.from = format!("{last}\0"),
            _ => self.is_over = true,
        }
        Ok(Some(found.keys))
    }
}

/// How many keys to read next, by how long these were.
fn next_page(keys_max: u32, keys: &[EtcdKey]) -> u32 {
    let len: usize = keys.iter().map(|key| key.value.len()).sum();
    let next = match len {
        0..PAGE_LEN => keys_max.saturating_mul(2),
        _ => keys_max / 2,
    };
    next.clamp(PAGE_MIN, PAGE_MAX)
}

/// Of each batch its number, and of each wanted segment what is in it.
type BatchSections = (u64, Vec<(usize, Vec<u8>)>);

fn sections(
    page: &[EtcdKey],
    keys: &ClusterKeys,
    wanted: &[WantedSegment],
) -> Result<Vec<BatchSections>, String> {
    let read = page.iter().map(|kept| {
        let name = String::from_utf8_lossy(&kept.key);
        let (_, seq) = keys
            .as_batch(&name)
            .ok_or_else(|| format!("{name} is not a batch"))?;
        let batch = LogBatch::decode(&kept.value).map_err(|_| format!("{name} is damaged"))?;
        let mut found = Vec::new();
        for (at, it) in wanted.iter().enumerate() {
            if contains(&it.segment, seq) {
                let entries = batch.entries(it.partition, it.segment.epoch);
                found.extend(entries.map(|bytes| (at, bytes.to_vec())));
            }
        }
        Ok((seq, found))
    });
    read.collect()
}

fn contains(segment: &Segment, seq: u64) -> bool {
    segment.from.is_none_or(|from| from <= seq) && segment.to.is_none_or(|to| seq <= to)
}

/// A batch that has to be there and is not. `numbers` are those of the batches that were
/// found, in order. Where a segment does not say where it begins, what was before it may have
/// been removed.
fn missing(segment: &Segment, numbers: &[u64]) -> Option<u64> {
    let from = segment.from?;
    let at = numbers.partition_point(|seq| *seq < from);
    let there = numbers[at..].iter().zip(from..);
    let next = from + there.take_while(|(seq, due)| *seq == due).count() as u64;
    let last = match segment.to {
        Some(to) => Some(to),
        None => numbers.last().copied(),
    };
    last.is_some_and(|last| next <= last).then_some(next)
}

fn jobs_of(wanted: &[WantedSegment]) -> Vec<usize> {
    wanted.iter().map(|it| it.job).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(from: Option<u64>, to: Option<u64>) -> Segment {
        Segment {
            epoch: 1,
            log: Incarnation::new("n1", 3),
            from,
            to,
        }
    }

    #[test]
    fn a_gap_in_a_log_is_found() {
        let numbers = [4, 5, 6, 8];
        for (from, to, expected) in [
            (Some(4), Some(6), None),
            (Some(5), Some(8), Some(7)),
            (Some(3), Some(4), Some(3)),
            (Some(5), None, Some(7)),
            (Some(8), None, None),
            (Some(9), None, None),
            (Some(9), Some(9), Some(9)),
            (Some(9), Some(8), None),
            (None, Some(8), None),
        ] {
            assert_eq!(
                missing(&segment(from, to), &numbers),
                expected,
                "{from:?} {to:?}"
            );
        }
        assert_eq!(missing(&segment(Some(0), None), &[]), None);
    }
}
