//! Effects of the machine.

use super::messages::{PeerMessage, ReportedRow, RowMessage};
use super::records::{Incarnation, Segment, SnapshotId};
use super::store::StoreRequest;

/// Something the machine wants done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Keep this in the node's folder: it is the id of the life that begins.
    Remember {
        /// The id.
        id: u64,
    },
    /// Carry a request to etcd. Its outcome is an input; no outcome within a keepalive's
    /// time is [`Unknown`](super::StoreOutcome::Unknown).
    Store {
        /// To tell which request an outcome belongs to.
        id: u64,
        /// The request.
        request: StoreRequest,
    },
    /// Send a keepalive. Answers have no ids, so those of one stream must not be taken for
    /// those of another: a new number is a new stream, and the former is dropped.
    KeepAlive {
        /// The stream.
        stream: u64,
        /// The lease.
        lease: u64,
    },
    /// Watch the cluster's keys from a revision on. The former watch ends. A watch that
    /// breaks is begun again from the last revision that it has shown.
    Watch {
        /// To tell watches apart.
        watch: u64,
        /// The last revision that was read; it may be shown again. The one behind it would
        /// not do: etcd may forget what was deleted at the revision it is compacted to.
        from: u64,
    },
    /// The node is part of the cluster, as this life of it: links begin with its name.
    Joined {
        /// This life.
        node: Incarnation,
    },
    /// Drop what there is of a partition, and load it.
    Load {
        /// Which one.
        partition: u32,
        /// The ownership it is loaded for.
        epoch: u64,
        /// The snapshot to begin with.
        snapshot: Option<SnapshotId>,
        /// The segments to add, in this order; of each log only sections of the segment's
        /// epoch.
        segments: Vec<Segment>,
    },
    /// The durable values of the partition may be served, with fences of this epoch. If it
    /// was closed in the same epoch, so may its names, if they were before.
    Begin {
        /// Which one.
        partition: u32,
        /// The ownership.
        epoch: u64,
    },
    /// The names of the partition may be served, too, with fences of this epoch. All nodes
    /// have reported what was held and asked for: that counts, and nothing that this node
    /// knew in an earlier epoch does.
    Adopt {
        /// Which one.
        partition: u32,
        /// The ownership.
        epoch: u64,
        /// The reports of each node.
        reports: Vec<(Incarnation, Vec<ReportedRow>)>,
    },
    /// An ask for a name, or its lease, is over: the entry node said so.
    EndRow {
        /// The partition of the name.
        partition: u32,
        /// The ownership.
        epoch: u64,
        /// The entry node.
        node: Incarnation,
        /// The ask or the lease.
        ticket: u64,
        /// How it ended, as its entry node told.
        how: Vec<u8>,
    },
    /// A life of a node is over: all asks and leases behind it are, in every partition.
    Gone {
        /// Which one.
        node: Incarnation,
    },
    /// The owner of a partition has to be told what is behind this node, with
    /// [`EntryRows::owned`](super::EntryRows::owned).
    Report {
        /// Which partition.
        partition: u32,
        /// The new ownership.
        epoch: u64,
        /// The new owner.
        owner: Incarnation,
    },
    /// The partition must not be asked any more, and is kept. When all that was decided of
    /// it was appended, the shell says so with [`closed`](super::Cluster::closed). Then it is
    /// handed over, or begun again.
    Close {
        /// Which one.
        partition: u32,
        /// The ownership.
        epoch: u64,
    },
    /// The partition is gone from this node.
    End {
        /// Which one.
        partition: u32,
    },
    /// A batch is in the log for good.
    Committed {
        /// Its number.
        seq: u64,
    },
    /// Make a snapshot of a partition: [`snapshot_begun`](super::Cluster::snapshot_begun), and
    /// then [`snapshotted`](super::Cluster::snapshotted). The partition may change meanwhile.
    Snapshot {
        /// Which one.
        partition: u32,
        /// The ownership.
        epoch: u64,
    },
    /// Tell the machine of another node.
    Send {
        /// Which one.
        to: Incarnation,
        /// What.
        message: PeerMessage,
    },
    /// Tell the rows of another node, or of this one.
    SendRow {
        /// Which one.
        to: Incarnation,
        /// What.
        message: RowMessage,
    },
    /// An ask goes there.
    Route {
        /// The shell's id of it.
        ask: u64,
        /// Where.
        to: AskRoute,
    },
    /// Tell the holders how sure the node is of what it granted.
    Tell(Certainty),
    /// The node owns nothing and may stop.
    Drained,
    /// The node cannot be part of the cluster.
    Resign(ResignReason),
}

/// Where an ask goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AskRoute {
    /// It is served here.
    Here {
        /// The ownership.
        epoch: u64,
    },
    /// It is sent to the owner.
    Hop {
        /// The owner.
        to: Incarnation,
        /// The ownership, which the owner compares.
        epoch: u64,
    },
    /// Another node sent it, and this one does not own the partition in that epoch.
    NotMine {
        /// The newest ownership that this node knows of.
        epoch: u64,
    },
    /// No owner was reached in time.
    Down(DownReason),
}

/// Why an ask is not served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DownReason {
    /// It waited for an owner as long as it may.
    NoOwner,
    /// Too many asks wait already.
    Full,
    /// This life of the node is over.
    Lost,
}

/// How sure a node is that it still owns what it owned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Certainty {
    /// The lease may have run out.
    Unsure,
    /// The lease lives, and nothing changed.
    Sure,
    /// The lease is gone, and all that was granted in memory.
    Lost,
}

/// Why a node cannot be part of the cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResignReason {
    /// Another node has its name.
    NameTaken,
}
