//! Messages between nodes over their links.
//!
//! A link carries messages in order and loses none while it lasts. What was not read when
//! it broke is lost, so what has to arrive is repeated on the next link until it is
//! acknowledged.

use std::time::Duration;

use super::records::Incarnation;

/// A message between the machines of two nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PeerMessage {
    /// A partition that was handed over is served again.
    Serves {
        /// Which one.
        partition: u32,
        /// The new ownership.
        epoch: u64,
    },
}

/// A message between an entry node and an owner about rows in memory.
///
/// A ticket is a number that the entry node has given to an ask, and that its lease keeps.
/// It is unique in one life of the entry node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RowMessage {
    /// To the owner: a client asks for something that is kept in memory.
    Ask {
        /// Where it belongs.
        partition: u32,
        /// The ownership that the ask is meant for.
        epoch: u64,
        /// The ask, and what is asked for.
        row: ReportedRow,
    },
    /// From the owner: what became of an ask.
    Answer {
        /// Where it belongs.
        partition: u32,
        /// The ownership in which it was decided.
        epoch: u64,
        /// The ask.
        ticket: u64,
        /// The outcome.
        answer: RowAnswer,
    },
    /// To the owner: an ask is not wanted any more, or a lease is given back. It is repeated
    /// until it is acknowledged.
    End {
        /// Where it belongs.
        partition: u32,
        /// The newest ownership that the sender has reported for.
        epoch: u64,
        /// The ask or the lease.
        ticket: u64,
        /// How it ended, in the format of the machine that decides; nothing if that is all
        /// the same.
        how: Vec<u8>,
    },
    /// From the owner: an end was heard.
    Ended {
        /// Where it belongs.
        partition: u32,
        /// The ownership.
        epoch: u64,
        /// The ask or the lease.
        ticket: u64,
    },
    /// To the new owner: all that is held or asked for behind the sender, and maybe nothing.
    /// It is repeated until it is acknowledged.
    Report {
        /// Which partition.
        partition: u32,
        /// The new ownership.
        epoch: u64,
        /// The rows of the sender.
        rows: Vec<ReportedRow>,
    },
    /// From the new owner: a report was heard.
    Reported {
        /// Which partition.
        partition: u32,
        /// The new ownership.
        epoch: u64,
    },
    /// From the owner: a lease is over, so its row has to go: it was given back at another
    /// node, or the other party of a match has ended it. It is repeated until it is
    /// acknowledged.
    DropRow {
        /// Where it belongs.
        partition: u32,
        /// The ownership.
        epoch: u64,
        /// The lease.
        ticket: u64,
        /// How it ended, as in [`End`](Self::End).
        how: Vec<u8>,
    },
    /// To the owner: the row is gone.
    RowDropped {
        /// Where it belongs.
        partition: u32,
        /// The ownership.
        epoch: u64,
        /// The lease.
        ticket: u64,
    },
}

/// The outcome of an ask for something in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RowAnswer {
    /// It is a lease now.
    Granted {
        /// The fence of the lease.
        fence: u64,
    },
    /// There is nothing for it.
    Refused,
    /// The node does not own the partition in that epoch.
    NotMine,
}

/// An ask or a lease, as an entry node tells the owner of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReportedRow {
    /// The ask or the lease.
    pub ticket: u64,
    /// The fence of the lease, or none if it is an ask that waits for its answer.
    pub fence: Option<u64>,
    /// How long ago the client asked, by the entry node's clock.
    pub age: Duration,
    /// The thing that is held or asked for, in the format of the machine that decides.
    pub what: Vec<u8>,
}

/// What another node said about a partition that this node does not own yet, or said before
/// the watch has shown that node.
#[derive(Clone, Debug)]
pub(super) struct EarlyMessage {
    pub(super) from: Incarnation,
    pub(super) message: RowMessage,
}
