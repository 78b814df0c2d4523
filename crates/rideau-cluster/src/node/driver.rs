//! The thread that drives the machine: inputs come one after the other, and what the
//! machine wants is begun here and waited for elsewhere.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::time::Duration;

use parking_lot::Mutex;
use rideau::store::PartitionsLost;
use rideau::store::etcd::EtcdClient;
use rideau_core::cluster::{
    AskRoute, Cluster, Effect, Incarnation, LogSection, StoreOutcome, StoreReply,
};
use rideau_core::{Instant, Machine};
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;

use super::appends::{PendingAppend, PendingAppends};
use super::boot_clock;
use super::events::{NodeEvents, PeerSender};
use super::folder::NodeFolder;
use super::health::check_seen;
use super::host_thread::HostCall;
use super::input::Input;
use super::parts::HeldParts;
use super::shared::NodeShared;
use super::stopping::Stopping;
use super::streams::{KeepAliveStream, TaskGuard};
use super::view::NodeTable;

/// The machine, and everything that its effects need.
pub(super) struct Driver {
    pub(super) machine: Cluster,
    pub(super) shared: Arc<NodeShared>,
    /// Its calls take as long as a keepalive.
    pub(super) client: EtcdClient,
    /// Its calls read much.
    pub(super) reader: EtcdClient,
    pub(super) cluster: String,
    pub(super) name: String,
    pub(super) lease: Duration,
    pub(super) folder: Arc<Mutex<NodeFolder>>,
    pub(super) inbox: mpsc::UnboundedReceiver<Input>,
    pub(super) sender: mpsc::UnboundedSender<Input>,
    pub(super) host: Sender<HostCall>,
    pub(super) events: Arc<dyn NodeEvents>,
    pub(super) peers: Arc<dyn PeerSender>,
    pub(super) keepalive: Option<KeepAliveStream>,
    pub(super) watch: Option<TaskGuard>,
    pub(super) appends: PendingAppends,
    /// Asks without a route yet, with their partitions.
    pub(super) asks: BTreeMap<u64, (u32, oneshot::Sender<AskRoute>)>,
    pub(super) parts: HeldParts,
    /// The nodes that there is a link to, with its number.
    pub(super) links: BTreeMap<Incarnation, u64>,
    /// Nodes that lived, and when that was last seen.
    pub(super) known: BTreeMap<String, Instant>,
    pub(super) drains: Vec<oneshot::Sender<()>>,
    pub(super) is_drained: bool,
    pub(super) stopping: Option<Stopping>,
    /// The node gave up, and is part of the cluster no more.
    pub(super) has_resigned: bool,
    /// The published table is out of date.
    pub(super) is_stale: bool,
}

impl Driver {
    /// Drive the machine until the node ends.
    pub(super) async fn run(mut self) {
        let formers = self.folder.lock().ids().to_vec();
        let wall = boot_clock::wall();
        self.step(|machine, now, effects| machine.began(formers, wall, now, effects));
        loop {
            if self.is_stale && self.inbox.is_empty() {
                self.publish();
            }
            if self.stop_if_due() {
                break;
            }
            let wait = self.wait();
            let input = tokio::select! {
                biased;
                input = self.inbox.recv() => input,
                () = sleep(wait) => {
                    self.step(|machine, now, effects| machine.advance(now, effects));
                    continue;
                }
            };
            match input {
                None | Some(Input::Abandon) => break,
                Some(input) => self.take(input),
            }
        }
        self.shared.serving.close_all();
    }

    /// How long there is nothing to do unless something comes.
    fn wait(&self) -> Duration {
        let next = self.machine.deadline().unwrap_or(Instant::NEVER);
        let stop = self.stopping.as_ref().and_then(Stopping::deadline);
        let next = next.min(stop.unwrap_or(Instant::NEVER));
        match next.finite() {
            Some(next) => boot_clock::until(next),
            None => Duration::from_secs(3_600),
        }
    }

    /// Give the machine an input, and begin what it wants.
    pub(super) fn step<T>(
        &mut self,
        input: impl FnOnce(&mut Cluster, Instant, &mut Vec<Effect>) -> T,
    ) -> T {
        let mut effects = Vec::new();
        let now = boot_clock::now();
        let before = self.machine.incarnation().map(|me| me.fence);
        let seen = self.machine.table().revision();
        let returned = input(&mut self.machine, now, &mut effects);
        // Before anything else: from here on, threads that grant see what is true now.
        let valid_until = self.machine.valid_until();
        self.shared.serving.set_valid_until(valid_until);
        let me = self.machine.incarnation().map(|me| me.fence);
        if me != before {
            self.is_stale = true;
            let mut pulse = self.shared.pulse.lock();
            pulse.kept_at = None;
            pulse.counters.lives += u64::from(me.is_some());
        }
        for effect in effects {
            match &effect {
                // It may have a whole batch.
                Effect::Store { id, .. } => tracing::debug!(id, "a request to etcd"),
                effect => tracing::debug!(?effect),
            }
            self.perform(effect, me.is_some() && me == before);
        }
        self.shared.pulse.lock().parked = self.machine.parked();
        let revision = self.machine.table().revision();
        self.is_stale |= revision != seen;
        self.shared.revision.fetch_max(revision, Ordering::Relaxed);
        returned
    }

    fn take(&mut self, input: Input) {
        match input {
            Input::Stored { id, outcome, seen } => self.stored(id, outcome, seen),
            Input::Kept { stream, ttl } => {
                self.shared.pulse.lock().kept_at = (!ttl.is_zero()).then(boot_clock::now);
                self.step(|machine, now, effects| machine.kept(stream, ttl, now, effects));
            }
            Input::Seen {
                watch,
                revision,
                changes,
            } => {
                self.step(|machine, now, effects| {
                    machine.seen(watch, revision, &changes, now, effects);
                });
            }
            Input::Alive { watch } => {
                // It says nothing of a revision, only that the watch is served.
                let revision = self.machine.table().revision();
                self.step(|machine, now, effects| {
                    machine.seen(watch, revision, &[], now, effects);
                });
            }
            Input::Compacted { watch } => {
                self.step(|machine, now, effects| machine.compacted(watch, now, effects));
            }
            Input::Read(results) => self.read(results),
            Input::Loaded {
                partition,
                epoch,
                done,
            } => self.loaded(partition, epoch, done),
            Input::LoadAgain { partition, epoch } => self.load_again(partition, epoch),
            Input::Append {
                sections,
                reply,
                since,
            } => self.append(&sections, reply, since),
            input => self.take_more(input),
        }
    }

    fn take_more(&mut self, input: Input) {
        match input {
            Input::Closed { partition, epoch } => {
                self.step(|machine, now, effects| machine.closed(partition, epoch, now, effects));
            }
            Input::SnapshotBegun { partition, epoch } => {
                self.step(|machine, now, effects| {
                    machine.snapshot_begun(partition, epoch, now, effects);
                });
            }
            Input::Snapshotted {
                partition,
                epoch,
                chunks,
            } => {
                self.step(|machine, now, effects| {
                    machine.snapshotted(partition, epoch, chunks, now, effects);
                });
            }
            Input::Spent { partition, epoch } => {
                self.step(|machine, now, effects| machine.spent(partition, epoch, now, effects));
            }
            Input::Linked(node, link) => {
                self.is_stale = true;
                self.links.insert(node.clone(), link);
                self.step(|machine, now, effects| machine.linked(node, link, now, effects));
            }
            Input::Unlinked(node, link) => {
                self.is_stale = true;
                if self.links.get(&node) == Some(&link) {
                    self.links.remove(&node);
                }
                self.step(|machine, now, effects| machine.unlinked(&node, link, now, effects));
            }
            Input::RowHeard {
                from,
                link,
                message,
            } => {
                self.step(|machine, now, effects| {
                    machine.row_heard(&from, link, message, now, effects);
                });
            }
            Input::Heard { from, message } => {
                self.step(|machine, now, effects| machine.heard(&from, &message, now, effects));
            }
            Input::View(reply) => {
                // An asker that is gone needs no answer.
                let _ = reply.send(Box::new(self.view()));
            }
            Input::Resign(error) => self.resign(&error),
            input => self.take_ask(input),
        }
    }

    fn take_ask(&mut self, input: Input) {
        match input {
            Input::Ask {
                ask,
                partition,
                wait,
                reply,
            } => {
                self.asks.insert(ask, (partition, reply));
                self.step(|machine, now, effects| {
                    machine.asked(ask, partition, wait, now, effects);
                });
            }
            Input::AskByPeer {
                ask,
                partition,
                epoch,
                reply,
            } => {
                self.asks.insert(ask, (partition, reply));
                self.step(|machine, now, effects| {
                    machine.asked_by_peer(ask, partition, epoch, now, effects);
                });
            }
            Input::NameAsk {
                ask,
                partition,
                wait,
                reply,
            } => {
                self.asks.insert(ask, (partition, reply));
                self.step(|machine, now, effects| {
                    machine.name_asked(ask, partition, wait, now, effects);
                });
            }
            Input::NameAskByPeer {
                ask,
                by,
                partition,
                epoch,
                reply,
            } => {
                self.asks.insert(ask, (partition, reply));
                self.step(|machine, now, effects| {
                    machine.name_asked_by_peer(ask, &by, (partition, epoch), now, effects);
                });
            }
            Input::Cancel { ask } => self.cancel(ask),
            Input::LeaveReport {
                partition,
                epoch,
                bytes,
            } => self.leave_report(partition, epoch, bytes),
            Input::TakeReportBack { partition, epoch } => self.take_report_back(partition, epoch),
            Input::LookForReports => self.look_for_reports(),
            Input::ReportsFound(found) => self.reports_found(found),
            Input::Drain(done) => self.drain(done),
            Input::Stop { within, done } => self.stop(within, done),
            Input::SetDraining {
                name,
                is_draining,
                reply,
            } => self.set_draining(&name, is_draining, reply),
            Input::Config(call) => self.config_call(call),
            _ => (),
        }
    }

    /// An ask that has its route is not known any more.
    fn cancel(&mut self, ask: u64) {
        if self.asks.remove(&ask).is_some() {
            self.step(|machine, now, effects| machine.cancelled(ask, now, effects));
        }
    }

    fn stored(&mut self, id: u64, outcome: StoreOutcome, seen: u64) {
        if let Some(stopping) = &mut self.stopping {
            stopping.stored(id);
        }
        // All that a node asks is answered by what was written last.
        if let StoreOutcome::Done(StoreReply::Txn(reply)) = &outcome {
            if let Err(error) = check_seen(seen, reply.revision) {
                self.resign(&error);
                return;
            }
            let newest = &self.shared.revision;
            newest.fetch_max(reply.revision, Ordering::Relaxed);
        }
        self.step(|machine, now, effects| machine.stored(id, outcome, now, effects));
    }

    fn append(
        &mut self,
        sections: &[LogSection],
        reply: Sender<Result<(), PartitionsLost>>,
        since: Instant,
    ) {
        let batches = self.step(|machine, now, effects| machine.append_all(sections, now, effects));
        let mut call = PendingAppend {
            open: Vec::with_capacity(sections.len()),
            lost: Vec::new(),
            reply,
            since,
        };
        for (section, batch) in sections.iter().zip(batches) {
            match batch {
                Some(seq) => call.open.push((seq, section.partition)),
                None => call.lost.push(section.partition),
            }
        }
        let mut pulse = self.shared.pulse.lock();
        let lens = sections.iter().map(|section| section.entries.len() as u64);
        pulse.counters.append_bytes += lens.sum::<u64>();
        pulse.counters.appends_lost += u64::from(!call.lost.is_empty());
        drop(pulse);
        self.appends.add(call);
    }

    /// Let others read what is known now.
    pub(super) fn publish(&mut self) {
        self.is_stale = false;
        self.note_nodes();
        let owners = self.machine.table();
        let may_live = |node: &Incarnation| owners.is_live(node) || node.fence > owners.revision();
        self.links.retain(|node, _| may_live(node));
        let table = Arc::new(NodeTable {
            me: self.machine.incarnation().cloned(),
            owners: self.machine.table().clone(),
            links: self.links.keys().cloned().collect(),
        });
        *self.shared.table.write() = Arc::clone(&table);
        self.events.table_changed(&table);
        for moved in self.parts.moved.drain(..) {
            self.events.partitions_moved(&moved);
        }
    }
}
