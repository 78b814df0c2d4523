//! Begins the effects of the machine.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rideau::store::etcd::{EtcdRead, KeyRange};
use rideau_core::cluster::{AskRoute, Certainty, Effect, NodeRecord, ResignReason, StoreRequest};

use super::about::NodeAbout;
use super::boot_clock;
use super::driver::Driver;
use super::error::NodeError;
use super::host_thread::HostCall;
use super::input::Input;
use super::streams::{self, KeepAliveStream};

impl Driver {
    /// Begin what the machine wants. `is_same_life` says that no life of the node began or
    /// ended in this step.
    pub(super) fn perform(&mut self, effect: Effect, is_same_life: bool) {
        match effect {
            Effect::Remember { id } => self.remember(id),
            Effect::Store { id, request } => self.store(id, request),
            Effect::KeepAlive { stream, lease } => self.keep_alive(stream, lease),
            Effect::Watch { watch, from } => {
                let range = self.machine.keys().watched();
                let inbox = self.sender.clone();
                // The former ends first.
                self.watch = None;
                self.watch = streams::watch(&self.client, &range, (watch, from), self.lease, inbox);
            }
            Effect::Committed { seq } => {
                let appends = &mut self.shared.pulse.lock().counters.appends;
                self.appends
                    .committed(seq, boot_clock::now(), |waited| appends.record(waited));
            }
            Effect::Send { to, message } => self.peers.send(&to, message),
            Effect::Route { ask, to } => self.route(ask, to),
            Effect::Tell(certainty) => {
                if certainty == Certainty::Lost {
                    self.keepalive = None;
                    self.watch = None;
                    self.is_drained = false;
                }
                match certainty {
                    Certainty::Sure => tracing::info!("the node is sure of its lease"),
                    Certainty::Unsure => tracing::warn!("the node is not sure of its lease"),
                    Certainty::Lost => tracing::warn!("this incarnation of the node has ended"),
                }
                self.shared.pulse.lock().certainty = certainty;
                self.events.certainty_changed(certainty);
            }
            Effect::Drained => {
                self.is_drained = true;
                for done in self.drains.drain(..) {
                    let _ = done.send(());
                }
            }
            Effect::Resign(ResignReason::NameTaken) => self.name_is_taken(),
            effect => self.perform_part(effect, is_same_life),
        }
    }

    fn store(&mut self, id: u64, request: StoreRequest) {
        let is_revoking = matches!(request, StoreRequest::RevokeLease { .. });
        if is_revoking && self.has_resigned {
            // Holders may rely on the lease for a while. It ends by itself.
            return;
        }
        if let Some(stopping) = &mut self.stopping {
            stopping.asked(id, &request);
        }
        let (client, inbox) = (self.client.clone(), self.sender.clone());
        let seen = self.shared.revision.load(Ordering::Relaxed);
        let shared = Arc::clone(&self.shared);
        tokio::spawn(async move {
            let began = boot_clock::now();
            let outcome = client.carry_out(request).await;
            let took = boot_clock::now().since(began);
            shared.pulse.lock().etcd_answered(&outcome, took);
            let _ = inbox.send(Input::Stored { id, outcome, seen });
        });
    }

    /// Give up, and say where the other node is.
    fn name_is_taken(&self) {
        let (client, inbox) = (self.client.clone(), self.sender.clone());
        let (name, key) = (self.name.clone(), self.machine.keys().node(&self.name));
        tokio::spawn(async move {
            let found = client.read(EtcdRead::newest(KeyRange::key(key))).await;
            let keys = found.map(|found| found.keys).unwrap_or_default();
            let record = keys.first().map(|key| String::from_utf8_lossy(&key.value));
            let record = record.and_then(|text| text.parse::<NodeRecord>().ok());
            let about = record.map(|record| Box::new(NodeAbout::parse(&record.about)));
            let _ = inbox.send(Input::Resign(NodeError::NameTaken { name, about }));
        });
    }

    fn remember(&mut self, id: u64) {
        let kept = self.folder.lock().remember(id);
        if let Err(error) = kept {
            // The next process of the folder cannot tell its own key then, and has to wait
            // until the lease has run out.
            tracing::warn!(%error, "the id of this incarnation of the node cannot be stored");
        }
    }

    fn keep_alive(&mut self, stream: u64, lease: u64) {
        let is_it = |it: &&KeepAliveStream| it.is(stream, lease);
        if self.keepalive.as_ref().filter(is_it).is_none() {
            // The former ends first.
            self.keepalive = None;
            let inbox = self.sender.clone();
            let timeout = self.lease / 5;
            self.keepalive = KeepAliveStream::open(&self.client, (stream, lease), timeout, inbox);
        }
        if let Some(keepalive) = &self.keepalive {
            keepalive.send();
        }
    }

    fn route(&mut self, ask: u64, to: AskRoute) {
        let Some((partition, reply)) = self.asks.remove(&ask) else {
            return;
        };
        let is_here = matches!(to, AskRoute::Here { .. });
        if is_here && self.shared.serving.is_beginning(partition) {
            self.call(HostCall::Route { reply, to });
        } else {
            // An asker that is gone needs no answer.
            let _ = reply.send(to);
        }
    }

    /// The node cannot be part of the cluster.
    pub(super) fn resign(&mut self, error: &NodeError) {
        if self.has_resigned {
            return;
        }
        self.has_resigned = true;
        tracing::error!(%error, "the node gives up");
        self.step(|machine, now, effects| machine.stop(now, effects));
        self.shared.serving.close_all();
        self.events.resigned(error);
    }
}
