//! What a process does: it hands what happens to the machine, and carries out what the
//! machine wants.

use rideau_core::Machine;
use rideau_core::cluster::{
    AskRoute, Certainty, Cluster, Effect, Incarnation, KeyRange, LogBatch, PeerMessage, Planted,
    StoreOutcome, StoreReply, StoreRequest, StoreTxn, TxnReply,
};

use crate::bugs::Bug;
use crate::host::{Answer, Ask, Did, HostedPart, Process, Read, Reply};
use crate::register::{Entry, Register};
use crate::world::{Event, FORWARD_WAIT, Happening, MILLI, World};

/// Ids of the reads that a process makes for itself.
const READS: u64 = 1 << 40;

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
            Effect::Close { .. } | Effect::Resign(_) => (),
            Effect::Route { ask, to } => self.route(host, ask, to)?,
            Effect::End { partition } => _ = process.parts.remove(&partition),
            Effect::Committed { seq } => {
                for part in process.parts.values_mut() {
                    part.uncommitted.retain(|_, batch| *batch != seq);
                }
                for reply in process.waiting.remove(&seq).into_iter().flatten() {
                    self.answer(host, reply.ask, reply.answer, None);
                }
            }
            Effect::Snapshot { partition, epoch } => {
                let part = &process.parts[&partition];
                let bytes = part.register.encode();
                self.step(host, |machine, now, effects| {
                    machine.snapshotted(partition, epoch, &bytes, now, effects);
                })?;
            }
            Effect::Send { to, message } => self.send(host, &to, message),
            Effect::Tell(Certainty::Lost) => {
                let waiting = std::mem::take(&mut process.waiting);
                for reply in waiting.into_values().flatten() {
                    self.answer(host, reply.ask, Answer::Unknown, None);
                }
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

    /// Read a partition: its snapshot and its segments, at one revision.
    fn read(&mut self, host: usize, read: Read) {
        let machine = &self.hosts[host].process.as_ref().expect("it runs").machine;
        let keys = machine.keys();
        let mut ranges: Vec<KeyRange> = Vec::new();
        if let Some(snapshot) = read.snapshot {
            ranges.push(keys.chunks(read.partition, snapshot));
        }
        for segment in &read.segments {
            let from = segment.from.unwrap_or(0);
            ranges.push(match segment.to {
                Some(to) => keys.batches(&segment.log, from, to + 1),
                None => keys.batches_from(&segment.log, from),
            });
        }
        let request = StoreRequest::Txn(StoreTxn {
            compares: vec![machine.fence()],
            ..StoreTxn::reading(ranges)
        });
        let process = self.hosts[host].process.as_mut().expect("it runs");
        process.next_read += 1;
        let id = process.next_read;
        process.reads.insert(id, read);
        self.ask_etcd(host, id, request);
    }

    fn read_done(&mut self, host: usize, id: u64, outcome: StoreOutcome) -> Result<(), String> {
        let it = &mut self.hosts[host];
        let now = it.local(self.now);
        let wall = it.wall(self.now);
        let process = it.process.as_mut().expect("it runs");
        let Some(read) = process.reads.remove(&id) else {
            return Ok(());
        };
        let StoreOutcome::Done(StoreReply::Txn(reply)) = outcome else {
            self.read(host, read);
            return Ok(());
        };
        if !reply.held {
            // This life is over, as the machine will learn.
            return Ok(());
        }
        let (partition, epoch) = (read.partition, read.epoch);
        // A later ownership may have begun meanwhile, and its own read.
        let record = process.machine.table().owner(partition).record.as_ref();
        if record.is_none_or(|record| record.epoch != epoch) {
            return Ok(());
        }
        let register = loaded(&read, &reply, self.bug)?;
        // A node that was paused may get what was true before it lost the partition. It is
        // not sure of its lease then, and serves nothing.
        if process.machine.is_sure(now) {
            self.oracle.loaded(partition, &register)?;
        }
        let clock = if register.number == 0 || self.bug == Some(Bug::EndsByWall) {
            wall
        } else {
            register.clock
        };
        let part = HostedPart {
            register,
            epoch,
            counter: 0,
            clock: (clock, now),
            uncommitted: Default::default(),
            spent: false,
        };
        process.parts.insert(partition, part);
        self.step(host, |machine, now, effects| {
            machine.loaded(partition, epoch, now, effects);
        })
    }

    /// A client's ask comes to the node that its connection ends at.
    fn ask_here(&mut self, host: usize, ask: Ask) -> Result<(), String> {
        let process = self.hosts[host].process.as_mut().expect("it runs");
        process.routed.insert(ask.id, ask);
        self.step(host, |machine, now, effects| {
            machine.asked(ask.id, ask.partition, None, now, effects);
        })
    }

    /// An ask comes from the node that its connection ends at.
    fn ask_forwarded(&mut self, host: usize, ask: Ask, epoch: u64) -> Result<(), String> {
        let process = self.hosts[host].process.as_mut().expect("it runs");
        // A second copy is the same ask.
        if process.routed.insert(ask.id, ask).is_some() {
            return Ok(());
        }
        self.step(host, |machine, now, effects| {
            machine.asked_by_peer(ask.id, ask.partition, epoch, now, effects);
        })
    }

    /// The owner has answered an ask that was passed on to it.
    fn reply_forwarded(&mut self, host: usize, reply: Reply) -> Result<(), String> {
        let process = self.hosts[host].process.as_mut().expect("it runs");
        if !process.forwarded.remove(&reply.ask.id) {
            return Ok(());
        }
        if reply.answer != Answer::NotMine {
            self.after(MILLI, Happening::Told { reply });
            return Ok(());
        }
        // The owner is another by now. The ask is tried once more.
        if process.retried.insert(reply.ask.id) {
            return self.ask_here(host, reply.ask);
        }
        self.answer(host, reply.ask, Answer::Down, None);
        Ok(())
    }

    /// The machine says where an ask goes.
    fn route(&mut self, host: usize, ask: u64, to: AskRoute) -> Result<(), String> {
        let process = self.hosts[host].process.as_mut().expect("it runs");
        let Some(ask) = process.routed.remove(&ask) else {
            return Err(format!("C4: n{host} gives ask {ask} two routes"));
        };
        match to {
            AskRoute::Here { .. } => return self.serve(host, ask),
            AskRoute::Down(_) => self.answer(host, ask, Answer::Down, None),
            AskRoute::NotMine { .. } => self.answer(host, ask, Answer::NotMine, None),
            AskRoute::Hop { to, epoch } => {
                if ask.entry != host {
                    return Err(format!("C5: ask {} hops twice", ask.id));
                }
                process.forwarded.insert(ask.id);
                let other = process.links.iter().find(|(_, node)| **node == to);
                let other = other.map(|(other, _)| *other);
                self.for_process(host, FORWARD_WAIT, Event::ForwardTimeOut { ask });
                if let Some(other) = other {
                    self.send_peer(host, other, Event::AskForwarded { ask, epoch });
                }
            }
        }
        Ok(())
    }

    /// The owner of a partition serves an ask.
    fn serve(&mut self, host: usize, ask: Ask) -> Result<(), String> {
        let partition = ask.partition;
        let Some(epoch) = self.serves(host, partition) else {
            self.answer(host, ask, Answer::Down, None);
            return Ok(());
        };
        let now = self.hosts[host].local(self.now);
        while let Some(entry) = self.part(host, partition).expired(now) {
            if self.append(host, partition, epoch, &entry)?.is_none() {
                self.answer(host, ask, Answer::Down, None);
                return Ok(());
            }
        }
        match self.part(host, partition).serve(&ask, now) {
            Did::Answer(answer) => self.answer(host, ask, answer, Some(epoch)),
            Did::Wait(seq, answer) => self.wait(host, seq, ask, answer),
            Did::Write(entry, answer) => match self.append(host, partition, epoch, &entry)? {
                Some(seq) => self.wait(host, seq, ask, answer),
                None => self.answer(host, ask, Answer::Down, None),
            },
            Did::Spent => {
                self.answer(host, ask, Answer::Down, None);
                self.faults.count("spent epoch");
                self.step(host, |machine, now, effects| {
                    machine.spent(partition, epoch, now, effects);
                })?;
            }
        }
        Ok(())
    }

    fn part(&self, host: usize, partition: u32) -> &HostedPart {
        let process = self.hosts[host].process.as_ref().expect("it runs");
        &process.parts[&partition]
    }

    fn wait(&mut self, host: usize, seq: u64, ask: Ask, answer: Answer) {
        let process = self.hosts[host].process.as_mut().expect("it runs");
        let epoch = None;
        let reply = Reply { ask, answer, epoch };
        process.waiting.entry(seq).or_default().push(reply);
    }

    /// Change a register and write that down.
    fn append(
        &mut self,
        host: usize,
        partition: u32,
        epoch: u64,
        entry: &Entry,
    ) -> Result<Option<u64>, String> {
        let process = self.hosts[host].process.as_mut().expect("it runs");
        // The effects of the append may ask for a snapshot, which has to have the entry.
        let part = process.parts.get_mut(&partition).expect("it is served");
        let before = (part.register.clone(), part.counter);
        part.register.apply(entry)?;
        part.counter += u64::from(entry.hold.is_some());
        let mut batch = None;
        self.step(host, |machine, now, effects| {
            batch = machine.append(partition, epoch, &entry.encode(), now, effects);
        })?;
        let process = self.hosts[host].process.as_mut().expect("it runs");
        if let Some(part) = process.parts.get_mut(&partition) {
            match (batch, entry.hold) {
                (Some(seq), Some(hold)) => _ = part.uncommitted.insert(hold.fence, seq),
                (Some(_), None) => (),
                // It was closed meanwhile, so nothing has happened.
                (None, _) => (part.register, part.counter) = before,
            }
        }
        Ok(batch)
    }

    /// Write an answer to the connection it belongs to, which takes a moment.
    fn answer(&mut self, host: usize, ask: Ask, answer: Answer, epoch: Option<u64>) {
        let reply = Reply { ask, answer, epoch };
        let delay = self.rng.below(30 * MILLI);
        self.for_process(host, delay, Event::WriteReply { reply });
    }

    fn write_reply(&mut self, host: usize, mut reply: Reply) -> Result<(), String> {
        let partition = reply.ask.partition;
        if let Some(epoch) = reply.epoch {
            let serves = self.serves(host, partition) == Some(epoch);
            if !serves && self.bug != Some(Bug::CheckedOnce) {
                reply.answer = Answer::Down;
            } else if !self.wild
                && let Some((other, theirs)) = self.other_server(host, partition)
            {
                return Err(format!(
                    "G1: n{host} answers for {partition} in epoch {epoch}, \
                     and n{other} serves in {theirs}"
                ));
            }
        }
        let ask = reply.ask;
        if ask.entry == host {
            if ask.entry_life == self.hosts[host].life {
                self.after(MILLI, Happening::Told { reply });
            }
        } else {
            self.send_peer(host, ask.entry, Event::ReplyForwarded { reply });
        }
        Ok(())
    }
}

/// The state of a partition from what was read.
fn loaded(read: &Read, reply: &TxnReply, bug: Option<Bug>) -> Result<Register, String> {
    let mut reads = reply.reads.iter();
    let mut register = Register::default();
    if let Some(snapshot) = read.snapshot {
        let chunks = reads.next().expect("every range is read");
        if chunks.len() != snapshot.chunks as usize {
            return Err(format!(
                "G4: snapshot {snapshot} has {} pieces",
                chunks.len()
            ));
        }
        let bytes: Vec<u8> = chunks
            .iter()
            .flat_map(|chunk| chunk.value.clone())
            .collect();
        register = Register::decode(&bytes);
    }
    for (segment, batches) in read.segments.iter().zip(reads) {
        for kept in batches {
            let batch = LogBatch::decode(&kept.value).map_err(|_| "a batch is damaged")?;
            let counts = |epoch| epoch == segment.epoch || bug == Some(Bug::SectionsOfAnyEpoch);
            for section in batch.sections() {
                if section.partition == read.partition && counts(section.epoch) {
                    for entry in Entry::decode_all(&section.entries) {
                        register.apply(&entry).map_err(|why| format!("G4: {why}"))?;
                    }
                }
            }
        }
    }
    Ok(register)
}
