//! The partitions that the node has or reads, as far as the machine has told.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rideau_core::Instant;
use rideau_core::cluster::{Effect, Segment, SnapshotId};

use super::boot_clock;
use super::driver::{Driver, Input};
use super::host_thread::HostCall;
use super::load::{LoadJob, LoadReader, LoadResult};
use super::view::PartitionState;

/// A load that failed is repeated after this long.
const LOAD_AGAIN: Duration = Duration::from_secs(5);

/// The partitions that the node has or reads.
#[derive(Debug, Default)]
pub(super) struct HeldParts {
    pub(super) held: BTreeMap<u32, HeldPart>,
    /// Wait until what is being read now is there.
    queued: Vec<LoadJob>,
    is_reading: bool,
}

#[derive(Debug)]
pub(super) struct HeldPart {
    pub(super) epoch: u64,
    pub(super) state: PartitionState,
    job: LoadJob,
    since: Instant,
}

impl Driver {
    /// Load a partition, or begin, close, end it, or ask for its snapshot.
    pub(super) fn perform_part(&mut self, effect: Effect, is_same_life: bool) {
        match effect {
            Effect::Load {
                partition,
                epoch,
                snapshot,
                segments,
            } => self.load(partition, epoch, snapshot, segments),
            Effect::Begin { partition, epoch } => {
                // A node that serves a partition knows what was owned when it got that.
                self.publish();
                self.shared.serving.begin(partition, epoch);
                if let Some(part) = self.parts.held.get_mut(&partition) {
                    // A node that hands over to itself raises the epoch.
                    (part.epoch, part.state) = (epoch, PartitionState::Serving);
                }
                self.call(HostCall::Begin { partition, epoch });
            }
            Effect::Close { partition, epoch } => {
                self.shared.serving.close(partition);
                if let Some(part) = self.parts.held.get_mut(&partition) {
                    part.state = PartitionState::Closing;
                }
                self.call(HostCall::Close { partition, epoch });
            }
            Effect::End { partition } => {
                self.shared.serving.close(partition);
                self.parts.held.remove(&partition);
                self.parts.queued.retain(|job| job.partition != partition);
                self.appends.lost(partition);
                self.counters.moves_out += u64::from(is_same_life);
                self.call(HostCall::End { partition });
            }
            Effect::Snapshot { partition, epoch } => {
                self.counters.snapshots += 1;
                self.call(HostCall::Snapshot { partition, epoch });
            }
            _ => (),
        }
    }

    fn load(
        &mut self,
        partition: u32,
        epoch: u64,
        snapshot: Option<SnapshotId>,
        segments: Vec<Segment>,
    ) {
        match self.was_given(partition) {
            true => self.counters.moves_in += 1,
            false => self.counters.takeovers += 1,
        }
        let job = LoadJob {
            partition,
            epoch,
            snapshot,
            segments,
        };
        self.parts.queued.retain(|job| job.partition != partition);
        self.parts.queued.push(job.clone());
        let part = HeldPart {
            epoch,
            state: PartitionState::Loading,
            job,
            since: boot_clock::now(),
        };
        self.parts.held.insert(partition, part);
        self.read_next();
    }

    /// Whether another node that lives had the partition just before.
    fn was_given(&self, partition: u32) -> bool {
        let before = Arc::clone(&self.shared.table.read());
        let record = before.owners.owner(partition).record.as_ref();
        let me = self.machine.incarnation();
        record.is_some_and(|record| {
            self.machine.table().is_live(&record.owner) && me != Some(&record.owner)
        })
    }

    /// Read what waits to be, unless something is being read.
    fn read_next(&mut self) {
        let Some(me) = self.machine.incarnation() else {
            self.parts.queued.clear();
            return;
        };
        if self.parts.is_reading || self.parts.queued.is_empty() {
            return;
        }
        self.parts.is_reading = true;
        let jobs = std::mem::take(&mut self.parts.queued);
        let keys = self.machine.keys().clone();
        let reader = LoadReader {
            client: self.reader.clone(),
            fence: (keys.node(&me.name), me.fence),
            keys,
        };
        let inbox = self.sender.clone();
        tokio::spawn(async move {
            // If this life is over, the machine learns it by itself.
            let results = reader.read(jobs).await.unwrap_or_default();
            let _ = inbox.send(Input::Read(results));
        });
    }

    pub(super) fn read(&mut self, results: Vec<LoadResult>) {
        self.parts.is_reading = false;
        for (job, pieces) in results {
            let (partition, epoch) = (job.partition, job.epoch);
            if !self.is_loading(partition, epoch) {
                continue;
            }
            match pieces {
                Ok(pieces) => self.call(HostCall::Load {
                    partition,
                    epoch,
                    pieces,
                }),
                Err(why) => self.load_failed(partition, epoch, why),
            }
        }
        self.read_next();
    }

    pub(super) fn loaded(&mut self, partition: u32, epoch: u64, done: Result<(), String>) {
        if !self.is_loading(partition, epoch) {
            return;
        }
        if let Err(why) = done {
            self.load_failed(partition, epoch, why);
            return;
        }
        if let Some(part) = self.parts.held.get_mut(&partition) {
            part.state = PartitionState::Loaded;
            let took = boot_clock::now().since(part.since);
            self.counters.loads.record(took);
        }
        self.step(|machine, now, effects| machine.loaded(partition, epoch, now, effects));
    }

    fn load_failed(&mut self, partition: u32, epoch: u64, why: String) {
        tracing::error!(partition, epoch, %why, "a partition cannot be loaded");
        self.counters.loads_failed += 1;
        if let Some(part) = self.parts.held.get_mut(&partition) {
            part.state = PartitionState::LoadFailed(why);
        }
        let inbox = self.sender.clone();
        tokio::spawn(async move {
            tokio::time::sleep(LOAD_AGAIN).await;
            let _ = inbox.send(Input::LoadAgain { partition, epoch });
        });
    }

    pub(super) fn load_again(&mut self, partition: u32, epoch: u64) {
        let part = self.parts.held.get_mut(&partition);
        let failed = |part: &&mut HeldPart| {
            part.epoch == epoch && matches!(part.state, PartitionState::LoadFailed(_))
        };
        if let Some(part) = part.filter(failed) {
            part.state = PartitionState::Loading;
            self.parts.queued.push(part.job.clone());
            self.read_next();
        }
    }

    fn is_loading(&self, partition: u32, epoch: u64) -> bool {
        let part = self.parts.held.get(&partition);
        part.is_some_and(|part| part.epoch == epoch && part.state == PartitionState::Loading)
    }

    /// The thread of the host ends after this one.
    pub(super) fn call(&self, call: HostCall) {
        let _ = self.host.send(call);
    }
}
