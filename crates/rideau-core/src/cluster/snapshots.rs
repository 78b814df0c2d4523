//! What a node writes of its partitions: batches of entries, and snapshots that make old
//! batches needless.

use crate::time::Instant;

use super::effect::Effect;
use super::member::Cluster;
use super::owned::{PartPhase, SnapshotPhase, SnapshotWrite};
use super::planted::planted;
use super::purpose::Purpose;
use super::records::{OwnerRecord, Segment, SnapshotId};
use super::store::{
    Compare, Holds, KeyRange, StoreOp, StoreOutcome, StoreReply, StoreRequest, StoreTxn,
};

impl Cluster {
    /// The shell begins a snapshot that it was asked for. It has everything that was
    /// appended so far. What is appended from now on is read after it.
    pub fn snapshot_begun(
        &mut self,
        partition: u32,
        epoch: u64,
        now: Instant,
        effects: &mut Vec<Effect>,
    ) {
        let part = self.parts.get_mut(&partition);
        if let Some(part) = part.filter(|part| part.epoch == epoch)
            && matches!(part.snapshot, SnapshotPhase::Asked)
        {
            let from = self.log.seal();
            part.entries = 0;
            part.snapshot = SnapshotPhase::Begun { from };
            self.is_stirred = true;
        }
        self.finish(now, effects);
    }

    /// The pieces of the snapshot that was begun, each small enough for one value of etcd.
    /// All that they show was appended. They may show what was appended after the beginning:
    /// a reader takes the entries behind it over them.
    pub fn snapshotted(
        &mut self,
        partition: u32,
        epoch: u64,
        chunks: Vec<Vec<u8>>,
        now: Instant,
        effects: &mut Vec<Effect>,
    ) {
        let part = self.parts.get_mut(&partition);
        if let Some(part) = part.filter(|part| part.epoch == epoch)
            && let SnapshotPhase::Begun { from } = part.snapshot
        {
            let id = SnapshotId {
                epoch,
                number: from,
                chunks: u32::try_from(chunks.len()).expect("a snapshot has a limit"),
            };
            part.snapshot = SnapshotPhase::Writing(SnapshotWrite {
                id,
                chunks,
                written: 0,
                from,
                before: if planted!(self.options, NamedEarly) {
                    from
                } else {
                    self.log.end()
                },
            });
            self.is_stirred = true;
        }
        self.finish(now, effects);
    }

    /// Send the next batch, if none is on its way.
    pub(super) fn write(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        let max = if planted!(self.options, TwoInFlight) {
            2
        } else {
            1
        };
        while let Some(seq) = self.log.send(max) {
            self.issue(Purpose::Append(seq), now, effects);
        }
    }

    /// The write of a batch. It happens at most once, whatever becomes of the answer.
    pub(super) fn append_request(&mut self, seq: u64, now: Instant) -> Option<StoreRequest> {
        if !self.is_sure(now) {
            self.issue_later(Purpose::Append(seq), now);
            return None;
        }
        let key = self.keys.batch(&self.me, seq);
        let mut compares = vec![Compare {
            key: key.clone(),
            holds: Holds::Version(0),
        }];
        if !planted!(self.options, BatchWithoutFence) {
            compares.push(self.fence());
        }
        let node = self.keys.node(&self.options.name);
        let reads = [KeyRange::one(&key), KeyRange::one(&node)];
        let put = StoreOp::Put {
            key,
            value: self.log.batch(seq)?.encode(),
            lease: None,
        };
        Some(StoreRequest::Txn(StoreTxn {
            compares,
            then: vec![put],
            otherwise: reads.map(StoreOp::Read).into(),
        }))
    }

    pub(super) fn append_answered(
        &mut self,
        seq: u64,
        outcome: &StoreOutcome,
        now: Instant,
        effects: &mut Vec<Effect>,
    ) {
        match outcome {
            StoreOutcome::Done(StoreReply::Txn(reply)) => {
                let is_there = |read: &Vec<_>| !read.is_empty();
                if reply.held || reply.reads.first().is_some_and(is_there) {
                    if self.log.commit(seq) {
                        effects.push(Effect::Committed { seq });
                    }
                } else {
                    self.end_life(now, effects);
                }
            }
            _ => {
                #[cfg(feature = "planted")]
                let seq = if planted!(self.options, RetryWithNewNumber) {
                    self.log.renumber(seq)
                } else {
                    seq
                };
                self.issue_later(Purpose::Append(seq), now);
            }
        }
    }

    /// Go on with snapshots, and trim the log.
    pub(super) fn snapshot(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        let oldest = self.parts.values().map(|part| part.from).min();
        let oldest = oldest.filter(|_| self.log.kept_len() > self.options.log_max);
        let partitions: Vec<_> = self.parts.keys().copied().collect();
        for partition in partitions {
            self.snapshot_part(partition, oldest, now, effects);
        }
        self.trim(now, effects);
    }

    /// `oldest` is the first batch that is needed, if the log is too long.
    fn snapshot_part(
        &mut self,
        partition: u32,
        oldest: Option<u64>,
        now: Instant,
        effects: &mut Vec<Effect>,
    ) {
        let record = self.table.owner(partition).record.as_ref();
        let segments = record.map_or(0, |record| record.segments.len());
        let written = self.log.written();
        let part = self.parts.get_mut(&partition).expect("it is owned");
        let is_unlisted = part.phase == PartPhase::Unlisted;
        if !is_unlisted && part.phase != PartPhase::Open {
            return;
        }
        let purpose = match &part.snapshot {
            SnapshotPhase::None => {
                let is_oldest = oldest == Some(part.from) && part.from < written;
                let is_long = part.entries >= self.options.snapshot_after;
                let due = is_long || is_oldest || segments > 1;
                if is_unlisted || due {
                    part.snapshot = SnapshotPhase::Asked;
                    let epoch = part.epoch;
                    effects.push(Effect::Snapshot { partition, epoch });
                }
                return;
            }
            SnapshotPhase::Asked | SnapshotPhase::Begun { .. } => return,
            SnapshotPhase::Writing(write) if write.written < write.chunks.len() => {
                Purpose::Chunk(partition, write.id, write.written as u32)
            }
            SnapshotPhase::Writing(write) if write.before <= written => {
                Purpose::NameSnapshot(partition)
            }
            SnapshotPhase::Writing(_) => return,
            SnapshotPhase::Named { former } => Purpose::RemoveSnapshot(partition, *former),
        };
        if !self.is_busy(purpose) {
            self.issue(purpose, now, effects);
        }
    }

    pub(super) fn chunk_request(
        &self,
        partition: u32,
        id: SnapshotId,
        chunk: u32,
    ) -> Option<StoreRequest> {
        let write = self.parts.get(&partition)?.writing()?;
        let value = write
            .chunks
            .get(chunk as usize)
            .filter(|_| write.id == id)?;
        let put = StoreOp::Put {
            key: self.keys.chunk(partition, id, chunk),
            value: value.clone(),
            lease: None,
        };
        Some(self.fenced(put))
    }

    pub(super) fn chunk_answered(
        &mut self,
        partition: u32,
        id: SnapshotId,
        chunk: u32,
        outcome: &StoreOutcome,
    ) {
        let part = self.parts.get_mut(&partition);
        if let Some(SnapshotPhase::Writing(write)) = part.map(|part| &mut part.snapshot)
            && write.id == id
            && write.written == chunk as usize
            && outcome.is_held()
        {
            write.written += 1;
        }
    }

    /// The record that names the new snapshot.
    pub(super) fn name_request(&self, partition: u32) -> Option<StoreRequest> {
        let part = self.parts.get(&partition)?;
        let write = part.writing()?;
        if write.written < write.chunks.len() || write.before > self.log.written() {
            return None;
        }
        let row = self.table.owner(partition);
        let record = row.record.as_ref()?;
        let is_open = matches!(part.phase, PartPhase::Open | PartPhase::Unlisted);
        if record.owner != self.me || record.epoch != part.epoch || !is_open {
            return None;
        }
        let record = OwnerRecord {
            snapshot: Some(write.id),
            segments: vec![Segment {
                epoch: part.epoch,
                log: self.me.clone(),
                from: Some(write.from),
                to: None,
            }],
            ..record.clone()
        };
        let compares = vec![
            Compare::changed_at(self.keys.owner(partition), row.changed),
            self.fence(),
        ];
        Some(self.put_owner(partition, compares, &record))
    }

    /// The record of an owned partition was written in the same epoch: a snapshot is named.
    pub(super) fn record_renewed(
        &mut self,
        partition: u32,
        record: &OwnerRecord,
        now: Instant,
        effects: &mut Vec<Effect>,
    ) {
        let part = self.parts.get_mut(&partition).expect("it is owned");
        if let Some(from) = record.segments.last().and_then(|segment| segment.from) {
            part.from = part.from.max(from);
        }
        let write = part
            .writing()
            .filter(|write| record.snapshot == Some(write.id));
        if write.is_some() {
            let former = std::mem::replace(&mut part.named, record.snapshot);
            part.snapshot = match former.filter(|former| part.named != Some(*former)) {
                Some(former) => SnapshotPhase::Named { former },
                None => SnapshotPhase::None,
            };
        }
        self.open(partition, effects);
        self.snapshot(now, effects);
    }

    /// Remove the pieces of the snapshot before.
    pub(super) fn remove_request(
        &self,
        partition: u32,
        former: SnapshotId,
    ) -> Option<StoreRequest> {
        let chunks = self.keys.chunks(partition, former);
        Some(self.fenced(StoreOp::Delete(chunks)))
    }

    pub(super) fn removed(&mut self, partition: u32, id: SnapshotId, outcome: &StoreOutcome) {
        if let Some(part) = self.parts.get_mut(&partition)
            && matches!(part.snapshot, SnapshotPhase::Named { former } if former == id)
            && outcome.is_held()
        {
            part.snapshot = SnapshotPhase::None;
        }
    }

    fn trim(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        let needed = self.needed();
        if needed > self.log.trimmed() && self.log.trimming.is_none() {
            self.log.trimming = Some(needed);
            self.issue(Purpose::Trim, now, effects);
        }
    }

    /// The first batch of this node's log that some record still names.
    fn needed(&self) -> u64 {
        let mut needed = self.log.written();
        for (partition, row) in self.table.owners() {
            let record = row.record.as_ref();
            let segments = record.map_or(&[][..], |record| &record.segments);
            let part = self.parts.get(&partition);
            for segment in segments.iter().filter(|segment| segment.log == self.me) {
                let part = part.filter(|part| part.epoch == segment.epoch);
                let mut from = segment.from.or(part.map(|part| part.from));
                if planted!(self.options, TrimmedEarly)
                    && let Some(write) = part.and_then(|part| part.writing())
                {
                    from = Some(write.from);
                }
                needed = needed.min(from.unwrap_or(0));
            }
        }
        needed
    }

    pub(super) fn trim_request(&self) -> Option<StoreRequest> {
        let before = self.log.trimming?;
        let batches = self.keys.batches(&self.me, self.log.trimmed(), before);
        Some(self.fenced(StoreOp::Delete(batches)))
    }

    pub(super) fn trimmed(&mut self, outcome: &StoreOutcome) {
        let trimming = self.log.trimming.take();
        if let Some(before) = trimming.filter(|_| outcome.is_held()) {
            self.log.trim(before);
        }
    }

    /// One operation that only this life of the node may do.
    fn fenced(&self, op: StoreOp) -> StoreRequest {
        StoreRequest::Txn(StoreTxn {
            compares: vec![self.fence()],
            then: vec![op],
            otherwise: Vec::new(),
        })
    }
}
