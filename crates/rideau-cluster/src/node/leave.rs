//! How a node leaves: it gives away what it owns, and then ends its lease.

use std::time::Duration;

use rideau::store::etcd::{EtcdError, KeyRange, Txn, TxnOp};
use tokio::sync::oneshot;

use super::boot_clock;
use super::driver::Driver;
use super::stopping::{StopPhase, Stopping};

impl Driver {
    pub(super) fn drain(&mut self, done: oneshot::Sender<()>) {
        if self.is_drained || self.has_resigned {
            let _ = done.send(());
            return;
        }
        self.drains.push(done);
        self.step(|machine, now, effects| machine.drain(now, effects));
    }

    /// An operator wants a node to own nothing, or its share again. All nodes see that in
    /// the watch, also the node itself.
    pub(super) fn set_draining(
        &self,
        name: &str,
        is_draining: bool,
        reply: oneshot::Sender<Result<(), EtcdError>>,
    ) {
        let key = self.machine.keys().drain(name);
        let op = match is_draining {
            true => TxnOp::put(key, ""),
            false => TxnOp::Delete(KeyRange::key(key)),
        };
        let client = self.client.clone();
        tokio::spawn(async move {
            let done = client.txn(Txn::new().then(op)).await;
            // An asker that is gone needs no answer.
            let _ = reply.send(done.map(|_| ()));
        });
    }

    pub(super) fn stop(&mut self, within: Duration, done: oneshot::Sender<()>) {
        if self.stopping.is_some() {
            return;
        }
        self.stopping = Some(Stopping {
            until: boot_clock::now() + within,
            phase: StopPhase::Draining,
            done: Some(done),
        });
        if self.has_others() {
            self.step(|machine, now, effects| machine.drain(now, effects));
        }
    }

    /// Whether some other node could take what this one owns.
    fn has_others(&self) -> bool {
        let table = self.machine.table();
        let me = self.machine.incarnation().map(|me| me.name.as_str());
        let mut names = table.nodes().keys();
        me.is_some() && names.any(|name| Some(name.as_str()) != me && !table.is_draining(name))
    }

    /// Go on with stopping. Returns whether the node has ended.
    pub(super) fn stop_if_due(&mut self) -> bool {
        let has_others = self.has_others();
        let Some(stopping) = &mut self.stopping else {
            return false;
        };
        if stopping.phase == StopPhase::Draining {
            let is_over = stopping.until <= boot_clock::now();
            let is_given = self.is_drained || !has_others || self.has_resigned;
            let is_due = is_over || (is_given && self.appends.is_empty());
            if !is_due {
                return false;
            }
            stopping.phase = StopPhase::Revoking(None);
            self.step(|machine, now, effects| machine.stop(now, effects));
        }
        let Some(stopping) = &mut self.stopping else {
            return false;
        };
        let is_over = stopping.phase == StopPhase::Revoking(None);
        if is_over && let Some(done) = stopping.done.take() {
            let _ = done.send(());
        }
        is_over
    }
}
