//! Loads partitions, begins, closes and ends them, as the machine says.

use std::sync::Arc;
use std::time::Duration;

use rideau_core::cluster::{Effect, Segment, SnapshotId};

use super::boot_clock;
use super::driver::Driver;
use super::events::{MoveKind, MovedPartitions, NameEvent};
use super::host_thread::HostCall;
use super::input::Input;
use super::load::{LoadJob, LoadReader, LoadResult};
use super::parts::HeldPart;
use super::view::PartitionState;

/// A load that failed is repeated after this long.
const LOAD_AGAIN: Duration = Duration::from_secs(5);

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
                // It was closed, and is not given away after all.
                if self.parts.adopted.get(&partition) == Some(&epoch) {
                    self.shared.serving.adopt(partition, epoch);
                }
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
                if is_same_life {
                    self.moved_out(partition);
                }
                self.end_names(partition);
                self.call(HostCall::End { partition });
            }
            Effect::Snapshot { partition, epoch } => {
                self.shared.pulse.lock().counters.snapshots += 1;
                self.call(HostCall::Snapshot { partition, epoch });
            }
            effect => self.perform_names(effect),
        }
    }

    /// Pass on what concerns names.
    fn perform_names(&mut self, effect: Effect) {
        let event = match effect {
            Effect::Joined { node } => NameEvent::Joined(node),
            Effect::Report {
                partition,
                epoch,
                owner,
            } => NameEvent::Owned {
                partition,
                epoch,
                owner,
            },
            Effect::Adopt {
                partition,
                epoch,
                reports,
            } => {
                self.parts.adopted.insert(partition, epoch);
                self.events.names_changed(NameEvent::Adopted {
                    partition,
                    epoch,
                    reports,
                });
                if self.machine.adopted_in(partition) == Some(epoch) {
                    self.shared.serving.adopt(partition, epoch);
                }
                return;
            }
            Effect::EndRow {
                partition,
                epoch,
                node,
                ticket,
                how,
            } => NameEvent::RowEnded {
                partition,
                epoch,
                node,
                ticket,
                how,
            },
            Effect::Gone { node } => NameEvent::Gone(node),
            Effect::SendRow { to, message } => NameEvent::Send { to, message },
            _ => return,
        };
        self.events.names_changed(event);
    }

    fn end_names(&mut self, partition: u32) {
        self.parts.adopted.remove(&partition);
        self.events.names_changed(NameEvent::Ended { partition });
    }

    fn load(
        &mut self,
        partition: u32,
        epoch: u64,
        snapshot: Option<SnapshotId>,
        segments: Vec<Segment>,
    ) {
        self.came(partition);
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
        self.shared.serving.close(partition);
        self.end_names(partition);
        self.read_next();
    }

    /// Count a partition that came: from another node that lives, or taken over.
    fn came(&mut self, partition: u32) {
        let before = Arc::clone(&self.shared.table.read());
        let record = before.owners.owner(partition).record.as_ref();
        let owner = record.map(|record| &record.owner);
        let me = self.machine.incarnation();
        let is_given =
            owner.is_some_and(|owner| self.machine.table().is_live(owner) && me != Some(owner));
        let counters = &mut self.shared.pulse.lock().counters;
        let how = match is_given {
            true => {
                counters.moves_in += 1;
                MoveKind::MovedIn
            }
            false => {
                counters.takeovers += 1;
                MoveKind::TakenOver
            }
        };
        let node = owner.map(|owner| owner.name.clone());
        MovedPartitions::add(&mut self.parts.moved, how, node, partition);
    }

    /// Count a partition that another node has now.
    fn moved_out(&mut self, partition: u32) {
        self.shared.pulse.lock().counters.moves_out += 1;
        let record = self.machine.table().owner(partition).record.as_ref();
        let node = record.map(|record| record.owner.name.clone());
        MovedPartitions::add(&mut self.parts.moved, MoveKind::MovedOut, node, partition);
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
            self.shared.pulse.lock().counters.loads.record(took);
        }
        self.step(|machine, now, effects| machine.loaded(partition, epoch, now, effects));
    }

    fn load_failed(&mut self, partition: u32, epoch: u64, why: String) {
        tracing::error!(partition, epoch, %why, "a partition cannot be loaded");
        self.shared.pulse.lock().counters.loads_failed += 1;
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
