//! The ownership of partitions that an answer depends on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Failed;
use crate::store::PartitionLog;

/// A partition while this node has it, in one epoch.
pub(super) struct Ownership {
    pub(super) partition: u32,
    pub(super) epoch: u64,
    log: Arc<dyn PartitionLog>,
    /// Decisions of this turn or later may not be written.
    lost_from: AtomicU64,
}

impl Ownership {
    pub(super) fn new(partition: u32, epoch: u64, log: &Arc<dyn PartitionLog>) -> Arc<Self> {
        Arc::new(Self {
            partition,
            epoch,
            log: Arc::clone(log),
            lost_from: AtomicU64::new(u64::MAX),
        })
    }

    /// It is not known whether what was decided from this turn on is written.
    pub(super) fn lose(&self, from: u64) {
        self.lost_from.fetch_min(from, Ordering::AcqRel);
    }

    fn is_lost(&self, turn: u64) -> bool {
        turn > 0 && self.lost_from.load(Ordering::Acquire) <= turn
    }

    fn is_served(&self) -> bool {
        self.log.serves(self.partition) == Some(self.epoch)
    }
}

impl std::fmt::Debug for Ownership {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ownership")
            .field("partition", &self.partition)
            .field("epoch", &self.epoch)
            .finish_non_exhaustive()
    }
}

/// The part of an answer that rests on one partition.
#[derive(Clone, Debug)]
pub(super) struct Basis {
    pub(super) ownership: Arc<Ownership>,
    /// The turn that has to be safe, or none.
    pub(super) turn: u64,
    /// The decision is written in that turn, by its owner then.
    pub(super) is_written: bool,
}

/// All partitions that an answer rests on: nothing if partitions do not come and go, or the
/// answer says nothing of them.
#[derive(Clone, Debug, Default)]
pub(super) struct RestsOn(Option<Arc<Stakes>>);

#[derive(Debug)]
enum Stakes {
    One(Basis),
    Several(Vec<Basis>),
}

impl RestsOn {
    pub(super) const NOTHING: Self = Self(None);

    pub(super) fn of(mut stakes: impl ExactSizeIterator<Item = Basis>) -> Self {
        let stakes = match stakes.len() {
            0 => return Self::NOTHING,
            1 => stakes.next().map(Stakes::One),
            _ => Some(Stakes::Several(stakes.collect())),
        };
        Self(stakes.map(Arc::new))
    }

    pub(super) fn stakes(&self) -> &[Basis] {
        match self.0.as_deref() {
            None => &[],
            Some(Stakes::One(stake)) => std::slice::from_ref(stake),
            Some(Stakes::Several(stakes)) => stakes,
        }
    }

    /// Why the answer cannot be given, if so.
    pub(super) fn lost(&self) -> Option<Failed> {
        let lost = |stake: &&Basis| stake.ownership.is_lost(stake.turn);
        let lost = self.stakes().iter().find(lost)?;
        let partition = lost.ownership.partition;
        Some(Failed::Unknown { partition })
    }

    /// May the answer be given at this moment?
    pub(super) fn is_owned(&self) -> bool {
        let mut stakes = self.stakes().iter();
        stakes.all(|stake| stake.is_written || stake.ownership.is_served())
    }

    /// The dependencies of two answers together.
    pub(super) fn and(self, other: Self) -> Self {
        match (&self.0, &other.0) {
            (None, _) => return other,
            (_, None) => return self,
            _ => (),
        }
        let mut all = self.stakes().to_vec();
        for stake in other.stakes() {
            let is_same = |known: &&mut Basis| Arc::ptr_eq(&known.ownership, &stake.ownership);
            match all.iter_mut().find(is_same) {
                Some(known) => {
                    known.turn = known.turn.max(stake.turn);
                    known.is_written &= stake.is_written;
                }
                None => all.push(stake.clone()),
            }
        }
        Self::of(all.into_iter())
    }
}
