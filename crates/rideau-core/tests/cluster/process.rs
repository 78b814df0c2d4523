//! What a process does: it hands what happens to the machine, and carries out what the
//! machine wants.

use rideau_core::Machine;
use rideau_core::cluster::{
    Certainty, Cluster, Effect, Incarnation, PeerMessage, Planted, StoreOutcome,
};

use crate::bugs::Bug;
use crate::host::{Answer, Ask, Decided, Process, Read, Reply};
use crate::loading::READS;
use crate::world::{Event, Happening, MILLI, World};

impl World {
    /// Start the process of a host, unless it runs.
    pub(crate) fn start(&mut self, host: usize) -> Result<(), String> {
        if self.hosts[host].process.is_some() || self.hosts[host].stopped {
            return Ok(());
        }
        let seed = self.rng.draw();
        let machine = Cluster::new(self.options(host), seed);
        let it = &mut self.hosts[host];
        it.life += 1;
        it.paused_until = 0;
        it.process = Some(Process {
            machine,
            parts: Default::default(),
            asked: Default::default(),
            reads: Default::default(),
            next_read: READS,
            decided: Default::default(),
            batches: Default::default(),
            waiting: Default::default(),
            routed: Default::default(),
            retried: Default::default(),
            forwarded: Default::default(),
            links: Default::default(),
            watch: None,
            watch_arrival: 0,
            wake_at: None,
        });
        let (formers, wall) = (it.formers.clone(), it.wall(self.now));
        self.trace(|| format!("n{host} starts"));
        self.step(host, |machine, now, effects| {
            machine.began(formers, wall, now, effects);
        })
    }

    /// End the process of a host. Its clients are reset.
    pub(crate) fn kill(&mut self, host: usize) {
        self.trace(|| format!("n{host} is killed"));
        self.hosts[host].process = None;
        self.hosts[host].life += 1;
        // The next process knows nothing of what the operator told this one.
        self.hosts[host].drains = false;
        let asks = self.clients.iter().filter_map(|client| client.ask);
        let lost: Vec<Ask> = asks.filter(|ask| ask.entry == host).collect();
        for ask in lost {
            let reply = Reply {
                ask,
                answer: Answer::Reset,
                epoch: None,
            };
            self.after(MILLI, Happening::Told { reply });
        }
    }

    /// Give the machine an input, and carry out what it wants.
    pub(crate) fn step(
        &mut self,
        host: usize,
        input: impl FnOnce(&mut Cluster, rideau_core::Instant, &mut Vec<Effect>),
    ) -> Result<(), String> {
        let it = &mut self.hosts[host];
        let now = it.local(self.now);
        let process = it.process.as_mut().expect("it runs");
        let mut effects = Vec::new();
        input(&mut process.machine, now, &mut effects);
        for effect in effects {
            self.perform(host, effect)?;
        }
        let it = &mut self.hosts[host];
        let (rate, lag) = (it.rate, it.lag);
        if let Some(process) = &mut it.process
            && let Some(deadline) = process.machine.deadline()
        {
            let at = (deadline.as_nanos() + lag).div_ceil(rate).max(self.now + 1);
            if process.wake_at.is_none_or(|wake_at| at < wake_at) {
                process.wake_at = Some(at);
                let delay = at - self.now;
                self.for_process(host, delay, Event::Wake);
            }
        }
        Ok(())
    }

    pub(crate) fn process(&mut self, host: usize, event: Event) -> Result<(), String> {
        let process = self.hosts[host].process.as_mut().expect("it runs");
        match event {
            Event::Wake => {
                process.wake_at = None;
                self.step(host, Machine::advance)
            }
            Event::FromEtcd { id, outcome } if id >= READS => self.read_done(host, id, outcome),
            Event::FromEtcd { id, outcome } => {
                if process.asked.remove(&id) {
                    self.step(host, |machine, now, effects| {
                        machine.stored(id, outcome, now, effects);
                    })?;
                }
                Ok(())
            }
            Event::TimeOut { id } => {
                let outcome = StoreOutcome::Unknown;
                self.process(host, Event::FromEtcd { id, outcome })
            }
            Event::KeepFromEtcd { stream, ttl } => self.step(host, |machine, now, effects| {
                machine.kept(stream, ttl, now, effects);
            }),
            Event::Seen { watch, seen } => {
                for (revision, changes) in seen {
                    self.step(host, |machine, now, effects| {
                        machine.seen(watch, revision, &changes, now, effects);
                    })?;
                }
                Ok(())
            }
            Event::Compacted { watch } => self.step(host, |machine, now, effects| {
                machine.compacted(watch, now, effects);
            }),
            Event::Linked { with, node } => {
                process.links.insert(with, node.clone());
                self.step(host, |machine, now, effects| {
                    machine.linked(node, now, effects)
                })
            }
            Event::Unlinked { with } => match process.links.remove(&with) {
                Some(node) => self.step(host, |machine, now, effects| {
                    machine.unlinked(&node, now, effects);
                }),
                None => Ok(()),
            },
            Event::Heard { from, message } => self.step(host, |machine, now, effects| {
                machine.heard(&from, &message, now, effects);
            }),
            Event::AskHere { ask } => self.ask_here(host, ask),
            Event::AskForwarded { ask, epoch } => self.ask_forwarded(host, ask, epoch),
            Event::ForwardTimeOut { ask } => {
                if process.forwarded.remove(&ask.id) {
                    self.answer(host, ask, Answer::Unknown, None);
                }
                Ok(())
            }
            Event::Commit => self.commit(host),
            Event::SnapshotPiece {
                partition,
                epoch,
                piece,
            } => self.snapshot_piece(host, partition, epoch, piece),
            Event::WriteReply { reply } => self.write_reply(host, reply),
            Event::ReplyForwarded { reply } => self.reply_forwarded(host, reply),
            Event::AtEtcd { .. } | Event::KeepAtEtcd { .. } | Event::Poll { .. } => Ok(()),
        }
    }

    fn perform(&mut self, host: usize, effect: Effect) -> Result<(), String> {
        self.trace(|| format!("   n{host} {effect:?}"));
        let now = self.hosts[host].local(self.now);
        let process = self.hosts[host].process.as_mut().expect("it runs");
        match effect {
            Effect::Remember { id } => self.hosts[host].formers.push(id),
            Effect::Store { id, request } => {
                process.asked.insert(id);
                self.ask_etcd(host, id, request);
            }
            Effect::KeepAlive { stream, lease } => self.keep_alive(host, stream, lease),
            Effect::Watch { watch, from } => {
                process.watch = Some((watch, from));
                self.for_process(host, 0, Event::Poll { watch });
            }
            Effect::Load {
                partition,
                epoch,
                snapshot,
                segments,
            } => {
                process.parts.remove(&partition);
                let read = Read {
                    partition,
                    epoch,
                    snapshot,
                    segments,
                };
                self.read(host, read);
            }
            Effect::Begin { partition, epoch } => {
                let part = process.parts.get_mut(&partition).expect("it is loaded");
                if part.epoch != epoch || self.bug == Some(Bug::Machine(Planted::EpochKept)) {
                    part.counter = 0;
                }
                part.epoch = epoch;
                part.spent = false;
            }
            Effect::Close { partition, epoch } => {
                let closed = Decided::Closed { partition, epoch };
                self.decide(host, closed);
            }
            Effect::Resign(_) => (),
            Effect::Route { ask, to } => self.route(host, ask, to)?,
            Effect::End { partition } => {
                process.parts.remove(&partition);
                self.lose(host, |(of, _)| *of == partition);
            }
            Effect::Committed { seq } => self.committed(host, seq),
            Effect::Snapshot { partition, epoch } => {
                let piece = 0;
                let delay = self.lag();
                let event = Event::SnapshotPiece {
                    partition,
                    epoch,
                    piece,
                };
                self.for_process(host, delay, event);
            }
            Effect::Send { to, message } => self.send(host, &to, message),
            Effect::Tell(Certainty::Lost) => {
                process.batches.clear();
                self.lose(host, |_| true);
            }
            Effect::Tell(_) => (),
            Effect::Drained => {
                self.hosts[host].stopped = true;
                self.step(host, |machine, _, effects| machine.stop(now, effects))?;
            }
        }
        Ok(())
    }

    fn send(&mut self, host: usize, to: &Incarnation, message: PeerMessage) {
        let Some(from) = self.machine(host).and_then(|it| it.incarnation().cloned()) else {
            return;
        };
        let is_it = |host: &crate::host::Host| host.name == to.name;
        if let Some(other) = self.hosts.iter().position(is_it) {
            self.send_peer(host, other, Event::Heard { from, message });
        }
    }
}
