//! What the thread that drives the machine is told.

use std::sync::mpsc::Sender;
use std::time::Duration;

use rideau::store::PartitionsLost;
use rideau::store::etcd::EtcdError;
use rideau_core::Instant;
use rideau_core::cluster::{
    AskRoute, Incarnation, KeyChange, LogSection, PeerMessage, RowMessage, StoreOutcome,
};
use tokio::sync::oneshot;

use super::config::ConfigCall;
use super::error::NodeError;
use super::left_reports::LeftReport;
use super::load::LoadResult;
use super::view::NodeView;

/// What the driver is told.
pub(super) enum Input {
    /// What became of a request that was made when the node had seen this revision.
    Stored {
        id: u64,
        outcome: StoreOutcome,
        seen: u64,
    },
    Kept {
        stream: u64,
        ttl: Duration,
    },
    Seen {
        watch: u64,
        revision: u64,
        changes: Vec<KeyChange>,
    },
    Alive {
        watch: u64,
    },
    Compacted {
        watch: u64,
    },
    /// What a life of the node wanted to load was read.
    Read(Vec<LoadResult>),
    Loaded {
        partition: u32,
        epoch: u64,
        done: Result<(), String>,
    },
    LoadAgain {
        partition: u32,
        epoch: u64,
    },
    Append {
        sections: Vec<LogSection>,
        reply: Sender<Result<(), PartitionsLost>>,
        since: Instant,
    },
    Closed {
        partition: u32,
        epoch: u64,
    },
    SnapshotBegun {
        partition: u32,
        epoch: u64,
    },
    Snapshotted {
        partition: u32,
        epoch: u64,
        chunks: Vec<Vec<u8>>,
    },
    Spent {
        partition: u32,
        epoch: u64,
    },
    Ask {
        ask: u64,
        partition: u32,
        wait: Option<Duration>,
        reply: oneshot::Sender<AskRoute>,
    },
    AskByPeer {
        ask: u64,
        partition: u32,
        epoch: u64,
        reply: oneshot::Sender<AskRoute>,
    },
    NameAsk {
        ask: u64,
        partition: u32,
        wait: Option<Duration>,
        reply: oneshot::Sender<AskRoute>,
    },
    NameAskByPeer {
        ask: u64,
        by: Incarnation,
        partition: u32,
        epoch: u64,
        reply: oneshot::Sender<AskRoute>,
    },
    Cancel {
        ask: u64,
    },
    Linked(Incarnation, u64),
    Unlinked(Incarnation, u64),
    RowHeard {
        from: Incarnation,
        link: u64,
        message: RowMessage,
    },
    Heard {
        from: Incarnation,
        message: PeerMessage,
    },
    /// A report is to be left in etcd.
    LeaveReport {
        partition: u32,
        epoch: u64,
        bytes: Vec<u8>,
    },
    /// It is not needed there any more.
    TakeReportBack {
        partition: u32,
        epoch: u64,
    },
    /// Look for reports in etcd, if some are missing.
    LookForReports,
    ReportsFound(Vec<LeftReport>),
    Drain(oneshot::Sender<()>),
    Stop {
        within: Duration,
        done: oneshot::Sender<()>,
    },
    /// A node shall own nothing, or its share again.
    SetDraining {
        name: String,
        is_draining: bool,
        reply: oneshot::Sender<Result<(), EtcdError>>,
    },
    Config(ConfigCall),
    View(oneshot::Sender<Box<NodeView>>),
    Resign(NodeError),
    /// The handle is gone: as if the process were killed.
    Abandon,
}
