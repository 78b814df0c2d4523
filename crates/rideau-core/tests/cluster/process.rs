//! What a process does: it hands what happens to the machine, and carries out what the
//! machine wants.

use rideau_core::Machine;
use rideau_core::cluster::{
    Certainty, Cluster, Effect, EntryRows, Incarnation, Planted, StoreOutcome,
};

use crate::bugs::Bug;
use crate::configs::CONFIGS;
use crate::host::{Answer, Ask, Decided, PeerLink, Process, Read, Reply};
use crate::loading::READS;
use crate::network::Carried;
use crate::unique::KeySide;
use crate::world::{Event, Happening, MILLI, PARTITIONS, World};

impl World {
    /// Start the process of a host, unless it runs.
    pub(crate) fn start(&mut self, host: usize) -> Result<(), String> {
        if self.hosts[host].process.is_some() || self.hosts[host].stopped {
            return Ok(());
        }
        let seed = self.rng.draw();
        let machine = Cluster::new(self.options(host), seed);
        let rows = EntryRows::new(self.options(host));
        let keys = KeySide::new(self.options(host).planted);
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
            cancelled: Default::default(),
            links: Default::default(),
            rows,
            tickets: Default::default(),
            conns: Default::default(),
            locks: Default::default(),
            drops: Default::default(),
            keys,
            config: Default::default(),
            is_stopping: false,
            releases: Default::default(),
            watch: None,
            watch_arrival: 0,
            wake_at: None,
        });
        let (formers, wall) = (it.formers.clone(), it.wall(self.now));
        self.trace(|| format!("n{host} starts"));
        self.for_process(host, MILLI, Event::ConfigLook);
        self.step(host, |machine, now, effects| {
            machine.began(formers, wall, now, effects);
        })
    }

    /// End the process of a host. Its clients are reset.
    pub(crate) fn kill(&mut self, host: usize) {
        self.trace(|| format!("n{host} is killed"));
        self.reset_holders(host);
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
        let it = &self.hosts[host];
        if let Some(process) = &it.process
            && let Some(deadline) = process.machine.deadline()
        {
            let at = it.truly(deadline).max(self.now + 1);
            if process.wake_at.is_none_or(|wake_at| at < wake_at) {
                self.running(host).wake_at = Some(at);
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
            Event::FromEtcd { id, outcome } if id >= CONFIGS => self.config_done(host, id, outcome),
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
            Event::Linked { .. } | Event::Unlinked { .. } => self.link_event(host, event),
            Event::Heard {
                from,
                link,
                message,
            } => self.deliver(host, &from, link, message),
            Event::AskHere { ask } => self.ask_here(host, ask),
            Event::AskForwarded { ask, epoch } => self.ask_forwarded(host, ask, epoch),
            Event::ForwardTimeOut { ask } => {
                if process.forwarded.remove(&ask.id) {
                    self.answer(host, ask, Answer::Unknown, None);
                }
                Ok(())
            }
            Event::ConfigLook => {
                self.look_at_config(host);
                Ok(())
            }
            Event::KeySend { to, message } => self.send_key(host, to, message),
            Event::KeyTimeOut { id } => {
                self.key_time_out(host, id);
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
            of_locks => self.lock_event(host, of_locks),
        }
    }

    /// Something about locks.
    fn lock_event(&mut self, host: usize, event: Event) -> Result<(), String> {
        let process = self.running(host);
        match event {
            Event::LockAsk {
                conn,
                ticket,
                partition,
                what,
            } => {
                process.tickets.insert(ticket, partition);
                self.lock_ask(host, conn, ticket, partition, &what)
            }
            Event::LockRelease { conn, ticket } => self.lock_release(host, conn, ticket),
            Event::LockSure { conn, sent } => {
                self.lock_sure(host, conn, sent);
                Ok(())
            }
            Event::LockClose { conn } => self.lock_close(host, conn, false),
            Event::RowsDue => {
                let now = self.hosts[host].local(self.now);
                let mut effects = Vec::new();
                self.running(host).rows.advance(now, &mut effects);
                self.perform_rows(host, effects)
            }
            Event::ReleaseHere { release } => self.release_here(host, release),
            Event::ReleaseForwarded { by, release, epoch } => {
                self.release_forwarded(host, &by, release, epoch)
            }
            _ => Err(format!("{event:?} is not about locks")),
        }
    }

    /// A link comes or goes. What the rows have to send on it goes first.
    fn link_event(&mut self, host: usize, event: Event) -> Result<(), String> {
        let process = self.running(host);
        let mut effects = Vec::new();
        match event {
            Event::Linked {
                with,
                me,
                node,
                link,
            } if process.machine.incarnation() == Some(&me) => {
                let known = PeerLink {
                    node: node.clone(),
                    link,
                };
                process.links.insert(with, known);
                process.rows.linked(&node, link, &mut effects);
                process.drops.linked(&node, &mut effects);
                self.step(host, |machine, now, effects| {
                    machine.linked(node, link, now, effects);
                })?;
            }
            Event::Unlinked { with, link } => {
                let known = process.links.get(&with).filter(|known| known.link == link);
                if let Some(known) = known.cloned() {
                    process.links.remove(&with);
                    process.rows.unlinked(&known.node, link, &mut effects);
                    self.step(host, |machine, now, effects| {
                        machine.unlinked(&known.node, link, now, effects);
                    })?;
                }
            }
            _ => (),
        }
        self.perform_rows(host, effects)
    }

    fn perform(&mut self, host: usize, effect: Effect) -> Result<(), String> {
        self.trace(|| format!("   n{host} {effect:?}"));
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
            Effect::Load { .. } => self.load(host, effect),
            Effect::Begin { partition, epoch } => {
                let part = process.parts.get_mut(&partition).expect("it is loaded");
                if part.epoch != epoch || self.bug == Some(Bug::Machine(Planted::EpochKept)) {
                    part.counter = 0;
                }
                part.epoch = epoch;
                part.spent = false;
                process
                    .locks
                    .retain(|at, part| *at != partition || part.epoch == epoch);
                self.pump(host, partition)?;
            }
            Effect::Close { partition, epoch } => {
                let closed = Decided::Closed { partition, epoch };
                self.decide(host, closed);
            }
            Effect::Resign(_) => (),
            Effect::Route { ask, to } => self.route(host, ask, to)?,
            Effect::End { partition } => {
                process.parts.remove(&partition);
                process.locks.remove(&partition);
                let asks = process.drops.ended(partition);
                self.released_all(host, asks, false);
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
            Effect::Send { to, message } => self.send(host, &to, Carried::Peer(message)),
            Effect::SendRow { to, message } => self.send(host, &to, Carried::Row(message)),
            Effect::Drained => self.end_holders(host)?,
            of_names => self.perform_names(host, of_names)?,
        }
        Ok(())
    }

    fn load(&mut self, host: usize, effect: Effect) {
        let Effect::Load {
            partition,
            epoch,
            snapshot,
            segments,
        } = effect
        else {
            return;
        };
        let process = self.running(host);
        process.parts.remove(&partition);
        process.locks.remove(&partition);
        let read = Read {
            partition,
            epoch,
            snapshot,
            segments,
        };
        self.read(host, read);
    }

    /// What concerns names, and how sure the node is.
    fn perform_names(&mut self, host: usize, effect: Effect) -> Result<(), String> {
        let now = self.hosts[host].local(self.now);
        let process = self.running(host);
        match effect {
            Effect::Joined { node } => process.rows.joined(node),
            Effect::Report {
                partition,
                epoch,
                owner,
            } => {
                let mut effects = Vec::new();
                let rows = &mut process.rows;
                rows.owned(partition, epoch, &owner, now, &mut effects);
                self.perform_rows(host, effects)?;
            }
            Effect::Adopt {
                partition,
                epoch,
                reports,
            } => self.adopt(host, partition, epoch, &reports)?,
            Effect::EndRow {
                partition,
                node,
                ticket,
                ..
            } => self.end_row(host, partition, &node, ticket)?,
            Effect::Gone { node } => self.gone(host, &node)?,
            Effect::Tell(Certainty::Lost) => {
                process.batches.clear();
                process.keys.lost();
                process.links.clear();
                process.rows.joined(Incarnation::new("", 0));
                self.close_all(host);
                self.lose(host, |_| true);
            }
            Effect::Tell(Certainty::Sure) => {
                for partition in 0..PARTITIONS {
                    self.pump(host, partition)?;
                }
            }
            Effect::Tell(Certainty::Unsure) => (),
            _ => return Err(format!("{effect:?} is not about names")),
        }
        Ok(())
    }
}
