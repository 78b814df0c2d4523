//! How a process serves asks: what it decides reaches the machine later, and is answered
//! when it is written.

use rideau_core::Instant;
use rideau_core::cluster::AskRoute;

use crate::bugs::Bug;
use crate::host::{Answer, Ask, Decided, Did, HostedPart, Reply, Routed, Wish};
use crate::register::{Entry, VALUES};
use crate::world::{Event, FORWARD_WAIT, Happening, MILLI, World};

impl World {
    /// A client's ask comes to the node that its connection ends at.
    pub(crate) fn ask_here(&mut self, host: usize, ask: Ask) -> Result<(), String> {
        let process = self.hosts[host].process.as_mut().expect("it runs");
        process.routed.insert(ask.id, Routed::Value(ask));
        self.step(host, |machine, now, effects| {
            machine.asked(ask.id, ask.partition, None, now, effects);
        })
    }

    /// An ask comes from the node that its connection ends at.
    pub(crate) fn ask_forwarded(
        &mut self,
        host: usize,
        ask: Ask,
        epoch: u64,
    ) -> Result<(), String> {
        let process = self.hosts[host].process.as_mut().expect("it runs");
        // A second copy is the same ask.
        let routed = Routed::Value(ask);
        if process.routed.insert(ask.id, routed).is_some() {
            return Ok(());
        }
        self.step(host, |machine, now, effects| {
            machine.asked_by_peer(ask.id, ask.partition, epoch, now, effects);
        })
    }

    /// The owner has answered an ask that was passed on to it.
    pub(crate) fn reply_forwarded(&mut self, host: usize, reply: Reply) -> Result<(), String> {
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
    pub(crate) fn route(&mut self, host: usize, ask: u64, to: AskRoute) -> Result<(), String> {
        let process = self.running(host);
        match process.routed.remove(&ask) {
            Some(Routed::Value(ask)) => self.value_routed(host, ask, to),
            Some(Routed::Row) => self.row_routed(host, ask, to),
            Some(Routed::PeerRow { node, of, row }) => self.peer_routed(host, &node, of, &row, &to),
            Some(Routed::Release(release)) => self.release_routed(host, release, to),
            None if process.cancelled.contains(&ask) => Ok(()),
            None => Err(format!("C4: n{host} gives ask {ask} two routes")),
        }
    }

    fn value_routed(&mut self, host: usize, ask: Ask, to: AskRoute) -> Result<(), String> {
        match to {
            AskRoute::Here { .. } => return self.serve(host, ask),
            AskRoute::Down(_) => self.answer(host, ask, Answer::Down, None),
            AskRoute::NotMine { .. } => self.answer(host, ask, Answer::NotMine, None),
            AskRoute::Hop { to, epoch } => {
                if ask.entry != host {
                    return Err(format!("C5: ask {} hops twice", ask.id));
                }
                let process = self.running(host);
                process.forwarded.insert(ask.id);
                let other = process.links.iter().find(|(_, link)| link.node == to);
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
        if let Wish::Unique { key, .. } = ask.wish {
            return self.serve_unique(host, ask, (partition, epoch), key);
        }
        let now = self.hosts[host].local(self.now);
        self.expire_values(host, partition, epoch, now)?;
        match self.part(host, partition).serve(&ask, now) {
            Did::Answer(answer) => self.answer(host, ask, answer, Some(epoch)),
            Did::Wait(number, answer) => self.wait(host, number, ask, answer),
            Did::Write(entry, answer) => {
                self.write(host, partition, epoch, entry)?;
                self.wait(host, entry.number, ask, answer);
            }
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

    /// Free the values whose time is over.
    pub(crate) fn expire_values(
        &mut self,
        host: usize,
        partition: u32,
        epoch: u64,
        now: Instant,
    ) -> Result<(), String> {
        while let Some(entry) = self.part(host, partition).expired(now) {
            self.write(host, partition, epoch, entry)?;
        }
        Ok(())
    }

    pub(crate) fn part(&mut self, host: usize, partition: u32) -> &mut HostedPart {
        let process = self.hosts[host].process.as_mut().expect("it runs");
        process.parts.get_mut(&partition).expect("it is served")
    }

    /// An answer waits for an entry.
    fn wait(&mut self, host: usize, number: u64, ask: Ask, answer: Answer) {
        let process = self.hosts[host].process.as_mut().expect("it runs");
        let epoch = None;
        let reply = Reply { ask, answer, epoch };
        let key = (ask.partition, number);
        process.waiting.entry(key).or_default().push(reply);
    }

    /// Change a register. That reaches the machine later.
    pub(crate) fn write(
        &mut self,
        host: usize,
        partition: u32,
        epoch: u64,
        entry: Entry,
    ) -> Result<(), String> {
        let part = self.part(host, partition);
        part.register.apply(&entry)?;
        if let Some(hold) = entry.hold {
            part.counter += 1;
            part.uncommitted.insert(hold.fence, entry.number);
        }
        let entry = Decided::Entry {
            partition,
            epoch,
            entry,
        };
        self.decide(host, entry);
        Ok(())
    }

    /// Something is handed to the machine by another thread, after what was before it.
    pub(crate) fn decide(&mut self, host: usize, decided: Decided) {
        let delay = self.lag();
        let process = self.hosts[host].process.as_mut().expect("it runs");
        let is_first = process.decided.is_empty();
        process.decided.push_back(decided);
        if is_first {
            self.for_process(host, delay, Event::Commit);
        }
    }

    /// How long another thread of a process takes.
    pub(crate) fn lag(&mut self) -> u64 {
        let most = if self.chance(50) { 500 } else { 4 };
        self.rng.below(most * MILLI)
    }

    /// The next of what was decided reaches the machine, and often all.
    pub(crate) fn commit(&mut self, host: usize) -> Result<(), String> {
        loop {
            let process = self.hosts[host].process.as_mut().expect("it runs");
            let Some(next) = process.decided.pop_front() else {
                return Ok(());
            };
            match next {
                Decided::Entry {
                    partition,
                    epoch,
                    entry,
                } => self.append(host, partition, epoch, &entry)?,
                Decided::Closed { partition, epoch } => {
                    self.step(host, |machine, now, effects| {
                        machine.closed(partition, epoch, now, effects);
                    })?;
                }
                Decided::Snapshot {
                    partition,
                    epoch,
                    chunks,
                } => self.step(host, |machine, now, effects| {
                    machine.snapshotted(partition, epoch, chunks, now, effects);
                })?,
            }
            if self.chance(200) {
                let process = self.hosts[host].process.as_ref().expect("it runs");
                if !process.decided.is_empty() {
                    let delay = self.lag();
                    self.for_process(host, delay, Event::Commit);
                }
                return Ok(());
            }
        }
    }

    fn append(
        &mut self,
        host: usize,
        partition: u32,
        epoch: u64,
        entry: &Entry,
    ) -> Result<(), String> {
        // A snapshot that begins with the append has the entry.
        let process = self.hosts[host].process.as_mut().expect("it runs");
        if let Some(part) = process.parts.get_mut(&partition)
            && part.epoch == epoch
        {
            part.appended = entry.number;
        }
        let mut batch = None;
        self.step(host, |machine, now, effects| {
            batch = machine.append(partition, epoch, &entry.encode(), now, effects);
        })?;
        let process = self.hosts[host].process.as_mut().expect("it runs");
        let key = (partition, entry.number);
        if let Some(seq) = batch {
            process.batches.entry(seq).or_default().push(key);
        }
        Ok(())
    }

    /// A batch is written: what waits for its entries is answered.
    pub(crate) fn committed(&mut self, host: usize, seq: u64) {
        let process = self.hosts[host].process.as_mut().expect("it runs");
        let mut replies = Vec::new();
        for (partition, number) in process.batches.remove(&seq).into_iter().flatten() {
            if let Some(part) = process.parts.get_mut(&partition) {
                part.uncommitted.retain(|_, waited| *waited != number);
                part.written = part.written.max(number);
            }
            let key = (partition, number);
            process.keys.written(key);
            replies.extend(process.waiting.remove(&key).into_iter().flatten());
        }
        for reply in replies {
            self.answer(host, reply.ask, reply.answer, None);
        }
        self.settle_keys(host);
    }

    /// The outcome of these entries stays unknown.
    pub(crate) fn lose(&mut self, host: usize, of: impl Fn(&(u32, u64)) -> bool) {
        let process = self.hosts[host].process.as_mut().expect("it runs");
        let keys: Vec<_> = process
            .waiting
            .keys()
            .copied()
            .filter(|key| of(key))
            .collect();
        let lost = keys.iter().filter_map(|key| process.waiting.remove(key));
        let lost: Vec<Reply> = lost.flatten().collect();
        for batch in process.batches.values_mut() {
            batch.retain(|key| !of(key));
        }
        for reply in lost {
            self.answer(host, reply.ask, Answer::Unknown, None);
        }
    }

    /// Make the next piece of a snapshot. The partition changes between two pieces.
    pub(crate) fn snapshot_piece(
        &mut self,
        host: usize,
        partition: u32,
        epoch: u64,
        piece: u64,
    ) -> Result<(), String> {
        let process = self.hosts[host].process.as_mut().expect("it runs");
        let Some(part) = process.parts.get_mut(&partition) else {
            return Ok(());
        };
        if piece == 0 {
            let head = part.register.head(part.appended);
            part.snapshot = Some((epoch, vec![head]));
            self.step(host, |machine, now, effects| {
                machine.snapshot_begun(partition, epoch, now, effects);
            })?;
        } else {
            let Some((_, pieces)) = part.snapshot.as_mut().filter(|made| made.0 == epoch) else {
                return Ok(());
            };
            pieces.push(part.register.piece(piece - 1));
        }
        if piece == VALUES {
            let part = self.part(host, partition);
            let (_, chunks) = part.snapshot.take().expect("it was begun");
            let snapshot = Decided::Snapshot {
                partition,
                epoch,
                chunks,
            };
            self.decide(host, snapshot);
        } else {
            let event = Event::SnapshotPiece {
                partition,
                epoch,
                piece: piece + 1,
            };
            let delay = self.lag();
            self.for_process(host, delay, event);
        }
        Ok(())
    }

    /// Write an answer to the connection it belongs to, which takes a moment.
    pub(crate) fn answer(&mut self, host: usize, ask: Ask, answer: Answer, epoch: Option<u64>) {
        let reply = Reply { ask, answer, epoch };
        let delay = self.rng.below(30 * MILLI);
        self.for_process(host, delay, Event::WriteReply { reply });
    }

    pub(crate) fn write_reply(&mut self, host: usize, mut reply: Reply) -> Result<(), String> {
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
