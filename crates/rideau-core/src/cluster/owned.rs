//! A partition that this node owns.

use std::collections::{BTreeMap, BTreeSet};

use super::messages::ReportedRow;
use super::records::{Incarnation, OwnerRecord, SnapshotId};

/// A partition that the node owns.
#[derive(Clone, Debug)]
pub(super) struct OwnedPart {
    pub(super) epoch: u64,
    pub(super) phase: PartPhase,
    /// The first batch of the node's log that counts for this epoch.
    pub(super) from: u64,
    /// The last batch with entries of it.
    pub(super) last: Option<u64>,
    /// How many entries came since the last snapshot.
    pub(super) entries: u64,
    pub(super) snapshot: SnapshotPhase,
    /// The snapshot that the record names.
    pub(super) named: Option<SnapshotId>,
    /// The node that had it before, if it is to be told.
    pub(super) giver: Option<Incarnation>,
    pub(super) reports: AwaitedReports,
}

/// The reports of one ownership of a partition.
#[derive(Clone, Debug, Default)]
pub(super) struct AwaitedReports {
    /// Live nodes without report.
    pub(super) awaited: BTreeSet<Incarnation>,
    pub(super) received: Vec<(Incarnation, Vec<ReportedRow>)>,
    /// Asks and leases that end as soon as the reports are in.
    pub(super) ends: BTreeMap<(Incarnation, u64), Vec<u8>>,
    /// The names are taken over.
    pub(super) is_adopted: bool,
}

/// How far a partition is from being served.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum PartPhase {
    /// It is read from etcd.
    Loading,
    /// It is loaded, and what would be written now would not be found.
    Unlisted,
    /// It may be served.
    Open,
    /// It is not served. What was decided of it has to be appended and written before it is
    /// handed over.
    Closing { to: Incarnation, closed: bool },
    /// The hand-over was sent. Until the partition is seen in a new epoch it stays closed,
    /// whatever the answer: the request may be carried out late.
    Handed {
        to: Incarnation,
        sent: Option<OwnerRecord>,
    },
}

/// How far a snapshot is.
#[derive(Clone, Debug)]
pub(super) enum SnapshotPhase {
    None,
    /// The shell was asked for it.
    Asked,
    /// The shell makes it. What is in this batch and behind it is needed with it.
    Begun {
        from: u64,
    },
    /// Its pieces are written one by one.
    Writing(SnapshotWrite),
    /// It is named in the partition's record, and the former is to be removed.
    Named {
        former: SnapshotId,
    },
}

/// A snapshot on its way to etcd.
#[derive(Clone, Debug)]
pub(super) struct SnapshotWrite {
    pub(super) id: SnapshotId,
    pub(super) chunks: Vec<Vec<u8>>,
    /// How many pieces are written.
    pub(super) written: usize,
    /// The first batch that may not be in it.
    pub(super) from: u64,
    /// Every batch that may be in it is before this one.
    pub(super) before: u64,
}

impl OwnedPart {
    /// A partition that has to be loaded.
    pub(super) const fn new(
        record: &OwnerRecord,
        from: u64,
        giver: Option<Incarnation>,
        reports: AwaitedReports,
    ) -> Self {
        Self {
            epoch: record.epoch,
            phase: PartPhase::Loading,
            from,
            last: None,
            entries: 0,
            snapshot: SnapshotPhase::None,
            named: record.snapshot,
            giver,
            reports,
        }
    }

    /// Whether entries that were decided in this ownership may be written.
    pub(super) const fn takes_entries(&self) -> bool {
        matches!(self.phase, PartPhase::Open | PartPhase::Closing { .. })
    }

    /// Whether something goes on when a batch is written.
    pub(super) const fn awaits_batch(&self) -> bool {
        let is_closing = matches!(self.phase, PartPhase::Closing { .. });
        is_closing || !matches!(self.snapshot, SnapshotPhase::None)
    }

    /// The snapshot that is being written.
    pub(super) const fn writing(&self) -> Option<&SnapshotWrite> {
        match &self.snapshot {
            SnapshotPhase::Writing(write) => Some(write),
            _ => None,
        }
    }
}

impl AwaitedReports {
    pub(super) const fn of(awaited: BTreeSet<Incarnation>) -> Self {
        Self {
            awaited,
            received: Vec::new(),
            ends: BTreeMap::new(),
            is_adopted: false,
        }
    }

    /// A life of a node is over: it reports nothing any more, and its leases end.
    pub(super) fn strike(&mut self, node: &Incarnation) {
        self.awaited.remove(node);
        self.received.retain(|(from, _)| from != node);
        self.ends.retain(|(from, _), _| from != node);
    }
}
