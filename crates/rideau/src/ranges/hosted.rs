//! Ranges of a node in a cluster: their partitions come and go.
//!
//! The node says through a [`RangesHost`] which partitions it has. What is decided of
//! them goes to the log that the partitions of a node share.

mod commit;
mod keys;
mod sections;
mod snapshots;

use std::collections::VecDeque;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};
use std::thread;

use rideau_core::allocator::{Effects, Many, Parts, RangeId, Refused, Which};
use tokio::sync::broadcast;

use super::clocks::{Continued, ManualClocks, Source};
use super::failed::OpenError;
use super::ownership::{Basis, Ownership, RestsOn};
use super::partitions::{Hosted, HostedParts, NONE};
use super::shared::{Handle, Inner, Shared};
use super::{EVENTS_KEPT, Ranges, RangesOptions};
use crate::store::{Loaded, PartitionHost, PartitionLog, Piece};
use commit::NodeCommitter;
pub use keys::KeyReport;

/// Tells ranges which partitions their node has. It does not keep them open.
#[derive(Clone)]
pub struct RangesHost(Weak<Shared>);

impl std::fmt::Debug for RangesHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RangesHost").finish_non_exhaustive()
    }
}

impl Ranges {
    /// Ranges of a node in a cluster. They have no partition until the node says so, and
    /// give out values only of partitions that the log says this node serves.
    ///
    /// `serves` of the log is called while values are decided on: it must not call the host.
    /// The thread that writes waits in `append` of the log, also at the end: before the last
    /// of these ranges is dropped, the node makes `append` return.
    ///
    /// # Errors
    ///
    /// If a range cannot be like that.
    pub fn in_cluster(
        options: RangesOptions,
        log: Arc<dyn PartitionLog>,
    ) -> Result<(Self, RangesHost), OpenError> {
        Self::in_cluster_from(options, log, Source::system())
    }

    /// As [`in_cluster`](Self::in_cluster), with clocks that a test moves.
    ///
    /// # Errors
    ///
    /// If a range cannot be like that.
    pub fn in_cluster_by(
        options: RangesOptions,
        log: Arc<dyn PartitionLog>,
        clocks: &ManualClocks,
    ) -> Result<(Self, RangesHost), OpenError> {
        Self::in_cluster_from(options, log, Source::manual(clocks))
    }

    fn in_cluster_from(
        options: RangesOptions,
        log: Arc<dyn PartitionLog>,
        source: Source,
    ) -> Result<(Self, RangesHost), OpenError> {
        let partitions = options.partitions;
        let gate = Arc::clone(&log);
        let machine = Parts::in_cluster(
            partitions,
            &options.machine,
            options.ranges,
            move |partition| gate.serves(partition),
        );
        let mut machine = machine.map_err(|(name, error)| OpenError::Range { name, error })?;
        let newest = Arc::clone(&log);
        if let Some(many) = machine.many_mut() {
            many.know_epochs_by(move |partition| newest.newest(partition));
        }
        let events = broadcast::Sender::new(EVENTS_KEPT);
        let count = partitions.count() as usize;
        let hosted = Hosted {
            partitions,
            log: Arc::clone(&log),
            open: (0..count).map(|_| AtomicU64::new(NONE)).collect(),
        };
        let parts = HostedParts {
            ownerships: vec![None; count],
            closing: Vec::new(),
            snapshots: VecDeque::new(),
            owes_turn: false,
        };
        let clock = Continued::a_year_in(source);
        let (weak, waiters_max) = (events.downgrade(), options.waiters_max);
        let shared = Shared::new(machine, Effects::new(), clock, weak, waiters_max);
        let shared = Arc::new(shared.hosting(hosted, parts));
        let host = RangesHost(Arc::downgrade(&shared));
        let committer = NodeCommitter::new(Arc::clone(&shared), log, events);
        let committer = thread::Builder::new()
            .name("rideau-ranges".to_owned())
            .spawn(|| committer.run())
            .map_err(OpenError::Thread)?;
        let handle = Handle::new(shared, Loaded::default(), committer);
        Ok((Self(Arc::new(handle)), host))
    }

    /// Can this node decide on a value, or on a key, at this moment? It always can without
    /// a cluster. It costs no lock.
    ///
    /// # Errors
    ///
    /// If the partition of the value, or of the key's name, is not served here.
    pub fn check_here(&self, which: Which<'_>) -> Result<(), Refused> {
        let Some(hosted) = &self.0.shared.hosted else {
            return Ok(());
        };
        let partition = match which {
            Which::Value(value) => hosted.partitions.of_value(value),
            Which::Key(key) => hosted.partitions.of_name(key),
        };
        match hosted.serves(partition) {
            true => Ok(()),
            false => Err(Refused::NotHere { partition }),
        }
    }

    /// Has this node values of a range, in partitions that are open here? What is free among
    /// them is told by its [numbers](Self::stats).
    pub fn has_some_of(&self, range: RangeId) -> bool {
        let inner = self.0.shared.inner.lock();
        match (&inner.hosted, inner.machine.many()) {
            (Some(_), Some(many)) => many.has_some_of(range),
            _ => inner.machine.options(range).is_some(),
        }
    }

    /// The partitions that are not open here: numbers of ranges do not count their values.
    pub fn missing_partitions(&self) -> Vec<u32> {
        let inner = self.0.shared.inner.lock();
        let many = inner.machine.many();
        many.map_or_else(Vec::new, Many::missing)
    }
}

impl Shared {
    fn hosted(&self) -> &Hosted {
        self.hosted.as_ref().expect("these ranges are in a cluster")
    }

    /// Drop what there is of a partition. What it wanted to write is lost.
    fn end_part(&self, inner: &mut Inner, partition: u32, lost_from: u64) {
        self.hosted().set_open(partition, NONE);
        inner.hosted().owes_turn |= inner.has_logged();
        inner.many().end(partition);
        if let Some(ownership) = inner.hosted().ownerships[partition as usize].take() {
            ownership.lose(lost_from);
        }
    }
}

impl Inner {
    fn many(&mut self) -> &mut Many {
        let many = self.machine.many_mut();
        many.expect("a node has several partitions")
    }

    fn hosted(&mut self) -> &mut HostedParts {
        let hosted = self.hosted.as_mut();
        hosted.expect("these ranges are in a cluster")
    }

    /// The partitions that the last decision depends on, to check when its turn is safe.
    pub(super) fn rests_on(&self, rests: &[rideau_core::allocator::Rest], turn: u64) -> RestsOn {
        let Some(hosted) = &self.hosted else {
            return RestsOn::NOTHING;
        };
        RestsOn::of(rests.iter().map(|rest| {
            let ownership = hosted.ownerships[rest.partition as usize].as_ref();
            Basis {
                ownership: Arc::clone(ownership.expect("what is decided on is here")),
                turn,
                is_written: rest.is_logged && turn > 0,
            }
        }))
    }
}

impl RangesHost {
    fn step(&self, act: impl FnOnce(&Shared, &mut Inner)) {
        let Some(shared) = self.0.upgrade() else {
            return;
        };
        let mut inner = shared.inner.lock();
        act(&shared, &mut inner);
        let now = shared.clock.now();
        shared.finish(inner, now);
    }

    fn end_and_tell(&self, partition: u32) {
        self.step(|shared, inner| {
            let lost_from = shared.safe.turn() + 1;
            shared.end_part(inner, partition, lost_from);
        });
        if let Some(shared) = self.0.upgrade() {
            shared.safe.look_again();
        }
    }
}

impl PartitionHost for RangesHost {
    fn load(&self, partition: u32, epoch: u64, pieces: &[Piece<'_>]) -> Result<(), String> {
        self.end_and_tell(partition);
        let Some(shared) = self.0.upgrade() else {
            return Ok(());
        };
        let mut restore = shared.inner.lock().many().restore(partition, epoch);
        for piece in pieces {
            let (Piece::Snapshot(bytes) | Piece::Batch(bytes)) = piece;
            restore.read(bytes).map_err(|error| error.to_string())?;
        }
        let read = restore.finish(shared.clock.now());
        let ownership = Ownership::new(partition, epoch, &shared.hosted().log);
        self.step(|_, inner| {
            inner.many().put(read);
            inner.hosted().ownerships[partition as usize] = Some(ownership);
        });
        Ok(())
    }

    fn begin(&self, partition: u32, epoch: u64) {
        self.step(|shared, inner| {
            let now = shared.clock.now();
            let Inner {
                machine, effects, ..
            } = &mut *inner;
            let many = machine.many_mut().expect("a node has several partitions");
            if !many.begin(partition, epoch, now, effects) {
                return;
            }
            // Asks that wait may have some of it.
            many.look_again();
            let hosted = shared.hosted();
            let own = &mut inner.hosted().ownerships[partition as usize];
            if own.as_ref().is_none_or(|own| own.epoch != epoch) {
                *own = Some(Ownership::new(partition, epoch, &hosted.log));
            }
            hosted.set_open(partition, epoch);
        });
    }

    fn close(&self, partition: u32, epoch: u64) {
        self.step(|shared, inner| {
            if inner.many().epoch(partition) != Some(epoch) {
                return;
            }
            shared.hosted().set_open(partition, NONE);
            let now = shared.clock.now();
            let Inner {
                machine, effects, ..
            } = &mut *inner;
            let many = machine.many_mut().expect("a node has several partitions");
            many.close(partition, now, effects);
            let hosted = inner.hosted();
            let own = hosted.ownerships[partition as usize].clone();
            hosted.closing.extend(own);
        });
    }

    fn end(&self, partition: u32) {
        self.end_and_tell(partition);
    }

    fn snapshot(&self, partition: u32, epoch: u64) {
        self.step(|_, inner| {
            let hosted = inner.hosted();
            let own = hosted.ownerships[partition as usize].clone();
            let own = own.filter(|own| own.epoch == epoch);
            hosted.snapshots.extend(own);
        });
    }
}
