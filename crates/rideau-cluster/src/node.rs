//! A running node of a cluster on etcd.
//!
//! One thread drives `rideau_core::cluster::Cluster`, keeps the lease and speaks with etcd.
//! A second one tells the host which partitions it has. All other threads look at atomics,
//! or send the first thread what it needs to know.

mod about;
mod appends;
mod boot_clock;
mod config;
mod config_key;
mod driver;
mod effects;
mod error;
mod events;
mod folder;
mod health;
mod host_thread;
mod housekeeping;
mod input;
mod leave;
mod left_reports;
mod load;
mod loading;
mod log;
mod meta;
mod observe;
mod offline;
mod options;
mod parts;
mod pulse;
mod report_calls;
mod room;
mod serving;
mod shared;
mod start;
mod stopping;
mod streams;
mod view;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rideau::store::{PartitionHost, PartitionLog};
use rideau_core::Instant;
use rideau_core::cluster::{
    AskRoute, DownReason, Incarnation, PeerMessage, ReportedRow, RowMessage,
};
use tokio::sync::{mpsc, oneshot, watch};

pub use about::NodeAbout;
pub use config::{ConfigError, NewConfig, StoredConfig};
pub use error::NodeError;
pub use events::{MoveKind, MovedPartitions, NameEvent, NoPeers, NodeEvents, PeerSender};
pub use meta::{ClusterMade, FORMAT as STORED_FORMAT};
pub use offline::OfflineCluster;
pub use options::NodeOptions;
pub use pulse::NodePulse;
pub use room::{RoomLevel, RoomView};
pub use view::{NodeCounters, NodeRow, NodeTable, NodeView, PartitionRow, PartitionState};

use crate::links::write_report;
use config::ConfigCall;
use input::Input;
use log::NodeLog;
use meta::ClusterMeta;
use shared::NodeShared;
use start::{NodeParts, Opened};

/// A node of a cluster.
///
/// Dropping it ends the node as if the process were killed: its partitions are free for
/// others when its lease has run out. [`stop`](Self::stop) gives them away first.
pub struct ClusterNode {
    inbox: mpsc::UnboundedSender<Input>,
    shared: Arc<NodeShared>,
    meta: ClusterMeta,
    options: NodeOptions,
    log: Arc<NodeLog>,
    next_ask: AtomicU64,
    /// Starts the thread, which waits for it.
    start: Mutex<Option<oneshot::Sender<NodeParts>>>,
    /// Closed when the thread has ended.
    ended: watch::Receiver<()>,
}

impl ClusterNode {
    /// Takes the folder, connects to etcd and reads what the cluster was made with; makes it
    /// if it is the first node. It waits as long as etcd does not answer.
    ///
    /// # Errors
    ///
    /// If the node does not fit the cluster, or another process has the folder.
    pub async fn open(options: NodeOptions) -> Result<Self, NodeError> {
        options.check()?;
        let Opened {
            inbox,
            shared,
            meta,
            start,
            ended,
        } = start::open(options.clone()).await?;
        let log = Arc::new(NodeLog::new(inbox.clone(), Arc::clone(&shared), &options));
        Ok(Self {
            inbox,
            shared,
            meta,
            options,
            log,
            next_ask: AtomicU64::new(0),
            start: Mutex::new(Some(start)),
            ended,
        })
    }

    /// Joins the cluster, in the background. The host gets the partitions that this node
    /// comes to own. Only the first call counts.
    pub fn start(
        &self,
        host: Arc<dyn PartitionHost>,
        events: Arc<dyn NodeEvents>,
        peers: Arc<dyn PeerSender>,
    ) {
        if let Some(start) = self.start.lock().take() {
            let parts = NodeParts {
                host,
                events,
                peers,
            };
            // If the thread has ended, there is nothing to start.
            let _ = start.send(parts);
        }
    }

    /// The parameters that the cluster was made with.
    pub const fn made(&self) -> ClusterMade {
        self.meta.made
    }

    /// The bytes that tickets of values are proved with. All nodes have the same.
    pub const fn secret(&self) -> &[u8; 32] {
        &self.meta.secret
    }

    /// The options that the node was opened with.
    pub const fn options(&self) -> &NodeOptions {
        &self.options
    }

    /// The log that the host writes to.
    pub fn log(&self) -> Arc<dyn PartitionLog> {
        Arc::clone(&self.log) as Arc<dyn PartitionLog>
    }

    /// The epoch in which this node may grant from a partition at this moment, if it may.
    pub fn serves(&self, partition: u32) -> Option<u64> {
        self.shared.serving.serves(partition)
    }

    /// For how long the node may rely on its lease; nothing if it is unsure.
    pub fn valid_for(&self) -> Duration {
        self.shared.serving.valid_for()
    }

    /// The newest reading of etcd's room. From [`RoomLevel::Refuse`] on, what makes etcd
    /// grow is refused with this as the reason.
    pub fn room(&self) -> RoomView {
        self.shared.room.view()
    }

    /// How the node stands at this moment.
    pub fn pulse(&self) -> NodePulse {
        self.shared.pulse()
    }

    /// The cluster as this node knows it.
    pub fn table(&self) -> Arc<NodeTable> {
        Arc::clone(&self.shared.table.read())
    }

    /// Where an ask for something in a partition goes, if that is known at once. If not,
    /// [`route`](Self::route) waits for it.
    pub fn route_now(&self, partition: u32) -> Option<AskRoute> {
        if let Some(epoch) = self.serves(partition) {
            return Some(AskRoute::Here { epoch });
        }
        let table = self.shared.table.read();
        let (owner, epoch) = table.owner(partition)?;
        let is_other = table.me.as_ref().is_some_and(|me| me != owner);
        let to = owner.clone();
        (is_other && table.links.contains(owner)).then_some(AskRoute::Hop { to, epoch })
    }

    /// Where a client's ask for something in a partition goes. It waits for an owner as long
    /// as the client would, and at most for the node's patience.
    pub async fn route(&self, partition: u32, wait: Option<Duration>) -> AskRoute {
        if let Some(route) = self.route_now(partition) {
            return route;
        }
        self.ask(|ask, reply| Input::Ask {
            ask,
            partition,
            wait,
            reply,
        })
        .await
    }

    /// Whether another node's ask is served here. That node takes this one for the owner
    /// in this epoch.
    pub async fn route_for_peer(&self, partition: u32, epoch: u64) -> AskRoute {
        if self.serves(partition) == Some(epoch) {
            return AskRoute::Here { epoch };
        }
        self.ask(|ask, reply| Input::AskByPeer {
            ask,
            partition,
            epoch,
            reply,
        })
        .await
    }

    /// The epoch in which this node may grant names of a partition at this moment, if it may.
    pub fn serves_names(&self, partition: u32) -> Option<u64> {
        self.shared.serving.serves_names(partition)
    }

    /// Where a client's ask for a name in a partition goes, as [`route`](Self::route).
    pub async fn route_name(&self, partition: u32, wait: Option<Duration>) -> AskRoute {
        self.ask(|ask, reply| Input::NameAsk {
            ask,
            partition,
            wait,
            reply,
        })
        .await
    }

    /// Whether another node's ask for a name is served here, as
    /// [`route_for_peer`](Self::route_for_peer).
    pub async fn route_name_for_peer(
        &self,
        by: Incarnation,
        partition: u32,
        epoch: u64,
    ) -> AskRoute {
        self.ask(|ask, reply| Input::NameAskByPeer {
            ask,
            by,
            partition,
            epoch,
            reply,
        })
        .await
    }

    /// Now, by the clock that the lease goes by.
    pub fn now(&self) -> Instant {
        boot_clock::now()
    }

    /// From this instant on the node may not rely on its lease.
    pub fn valid_until(&self) -> Instant {
        self.shared.serving.valid_until()
    }

    /// The fences of this epoch are nearly used up: the node raises it.
    pub fn spent(&self, partition: u32, epoch: u64) {
        self.tell(Input::Spent { partition, epoch });
    }

    async fn ask(&self, input: impl FnOnce(u64, oneshot::Sender<AskRoute>) -> Input) -> AskRoute {
        let ask = self.next_ask.fetch_add(1, Ordering::Relaxed);
        let (reply, routed) = oneshot::channel();
        let _cancel = CancelledAsk { node: self, ask };
        self.tell(input(ask, reply));
        routed.await.unwrap_or(AskRoute::Down(DownReason::Lost))
    }

    /// There is a link to another node. Each has a number of its own, and the newest counts.
    pub fn linked(&self, node: Incarnation, link: u64) {
        self.tell(Input::Linked(node, link));
    }

    /// The link to another node is gone.
    pub fn unlinked(&self, node: Incarnation, link: u64) {
        self.tell(Input::Unlinked(node, link));
    }

    /// A node, or this one, reports what is behind it, or says that something ended. Other
    /// messages are not for the node.
    pub fn row_heard(&self, from: Incarnation, link: u64, message: RowMessage) {
        self.tell(Input::RowHeard {
            from,
            link,
            message,
        });
    }

    /// Leave a report in etcd for an owner that there is no link to. It is gone with this
    /// life of the node.
    pub fn leave_report(&self, partition: u32, epoch: u64, rows: &[ReportedRow]) {
        self.tell(Input::LeaveReport {
            partition,
            epoch,
            bytes: write_report(rows),
        });
    }

    /// Such a report was heard, or does not count any more.
    pub fn take_report_back(&self, partition: u32, epoch: u64) {
        self.tell(Input::TakeReportBack { partition, epoch });
    }

    /// Another node said something.
    pub fn heard(&self, from: Incarnation, message: PeerMessage) {
        self.tell(Input::Heard { from, message });
    }

    /// The view for operators. None if the node has ended.
    pub async fn view(&self) -> Option<Box<NodeView>> {
        let (reply, view) = oneshot::channel();
        self.tell(Input::View(reply));
        view.await.ok()
    }

    /// Has a node of the cluster own nothing until it is told otherwise, also over its
    /// restarts. It returns when etcd has that; partitions move then.
    ///
    /// # Errors
    ///
    /// If etcd does not do it, or does not answer.
    pub async fn set_draining(&self, name: &str, is_draining: bool) -> Result<(), NodeError> {
        let (reply, done) = oneshot::channel();
        self.tell(Input::SetDraining {
            name: name.to_owned(),
            is_draining,
            reply,
        });
        match done.await {
            Ok(done) => done.map_err(NodeError::Etcd),
            Err(_) => Err(NodeError::Ended),
        }
    }

    /// The text that all nodes share, and every later version of it; none as long as nodes of
    /// an earlier version may be there.
    pub fn config(&self) -> watch::Receiver<Option<Arc<StoredConfig>>> {
        self.shared.config.subscribe()
    }

    /// Puts a text in the place of a version, for all nodes.
    ///
    /// # Errors
    ///
    /// If another version is there by now, the text is too long, or etcd does not confirm it.
    pub async fn put_config(
        &self,
        seen: Arc<StoredConfig>,
        new: NewConfig,
    ) -> Result<Arc<StoredConfig>, ConfigError> {
        let (reply, done) = oneshot::channel();
        self.tell(Input::Config(ConfigCall::Put { seen, new, reply }));
        done.await.unwrap_or(Err(ConfigError::Ended))
    }

    /// Has nodes write formats that earlier versions of the program do not know, and share
    /// this text from then on. Says whether they did not before.
    ///
    /// # Errors
    ///
    /// If a node of an earlier version lives, or etcd does not confirm it.
    pub async fn finish_upgrade(&self, new: NewConfig) -> Result<bool, ConfigError> {
        let (reply, done) = oneshot::channel();
        self.tell(Input::Config(ConfigCall::FinishUpgrade { new, reply }));
        done.await.unwrap_or(Err(ConfigError::Ended))
    }

    /// Gives away all that the node owns. It waits until that is done, without end if no
    /// other node takes it.
    pub async fn drain(&self) {
        let (done, drained) = oneshot::channel();
        self.tell(Input::Drain(done));
        let _ = drained.await;
    }

    /// Gives away what the node owns within a time, then ends its lease: what is left is
    /// free for others at once. The node has ended when this returns.
    pub async fn stop(&self, within: Duration) {
        // A node that was not started has no lease.
        drop(self.start.lock().take());
        let (done, stopped) = oneshot::channel();
        self.tell(Input::Stop { within, done });
        let _ = stopped.await;
        self.ended().await;
    }

    /// Waits until the node has ended, and its folder is free.
    pub fn ended(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        let mut ended = self.ended.clone();
        async move { while ended.changed().await.is_ok() {} }
    }

    /// A node that has ended needs to know nothing.
    fn tell(&self, input: Input) {
        let _ = self.inbox.send(input);
    }
}

impl Drop for ClusterNode {
    fn drop(&mut self) {
        self.shared.serving.close_all();
        self.tell(Input::Abandon);
    }
}

impl fmt::Debug for ClusterNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("ClusterNode");
        shown.field("name", &self.options.name);
        shown.finish_non_exhaustive()
    }
}

/// An ask that is not wanted any more when this is dropped. For one that has its route this
/// does nothing.
struct CancelledAsk<'a> {
    node: &'a ClusterNode,
    ask: u64,
}

impl Drop for CancelledAsk<'_> {
    fn drop(&mut self) {
        self.node.tell(Input::Cancel { ask: self.ask });
    }
}
