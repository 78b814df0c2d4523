//! How a process serves locks: as the entry node of its clients, and as the owner of
//! partitions.

use rideau_core::cluster::{
    AskRoute, Incarnation, ReportedRow, RowAnswer, RowEffect, RowMessage, RowNews,
};

use crate::bugs::Bug;
use crate::holders::{HolderNews, Release};
use crate::host::{Process, Routed};
use crate::locks::LockPart;
use crate::network::Carried;
use crate::world::{Event, Happening, MILLI, World};

impl World {
    /// A client asks for a lock, over a connection that ends here.
    pub(crate) fn lock_ask(
        &mut self,
        host: usize,
        conn: u64,
        ticket: u64,
        partition: u32,
        what: &[u8],
    ) -> Result<(), String> {
        let now = self.hosts[host].local(self.now);
        let process = self.running(host);
        if process.is_stopping {
            self.tell_holder(host, conn, HolderNews::Refused { ticket });
        } else if process.conns.contains_key(&conn) {
            process.rows.asked(ticket, partition, conn, what, now);
            return self.route_row(host, ticket, partition);
        }
        Ok(())
    }

    fn route_row(&mut self, host: usize, ticket: u64, partition: u32) -> Result<(), String> {
        let process = self.running(host);
        process.routed.insert(ticket, Routed::Row);
        self.step(host, |machine, now, effects| {
            machine.name_asked(ticket, partition, None, now, effects);
        })
    }

    /// The machine says where a client's ask for a lock goes.
    pub(crate) fn row_routed(
        &mut self,
        host: usize,
        ticket: u64,
        to: AskRoute,
    ) -> Result<(), String> {
        let now = self.hosts[host].local(self.now);
        let process = self.running(host);
        let me = process.machine.incarnation().cloned();
        let mut effects = Vec::new();
        match (to, me) {
            (AskRoute::Here { epoch }, Some(me)) => {
                process.rows.routed(ticket, &me, epoch, now, &mut effects);
            }
            (AskRoute::Hop { to, epoch }, _) => {
                process.rows.routed(ticket, &to, epoch, now, &mut effects);
            }
            _ => process.rows.give_up(ticket, &mut effects),
        }
        self.perform_rows(host, effects)
    }

    /// A client gives a lease back, or cancels an ask, over its own connection.
    pub(crate) fn lock_release(
        &mut self,
        host: usize,
        conn: u64,
        ticket: u64,
    ) -> Result<(), String> {
        let process = self.running(host);
        if !process.conns.contains_key(&conn) {
            return Ok(());
        }
        let mut effects = Vec::new();
        let is_found = process.rows.released(ticket, &mut effects);
        if is_found {
            let news = HolderNews::Released { ticket };
            self.tell_holder(host, conn, news);
        }
        self.forget_route(host, ticket)?;
        self.perform_rows(host, effects)
    }

    /// An ask that has no route yet needs none any more.
    fn forget_route(&mut self, host: usize, ask: u64) -> Result<(), String> {
        let process = self.running(host);
        if process.routed.remove(&ask).is_some() {
            process.cancelled.insert(ask);
            self.step(host, |machine, now, effects| {
                machine.cancelled(ask, now, effects);
            })?;
        }
        Ok(())
    }

    /// A client closes its connection, or the node does.
    pub(crate) fn lock_close(
        &mut self,
        host: usize,
        conn: u64,
        is_evicted: bool,
    ) -> Result<(), String> {
        let now = self.hosts[host].local(self.now);
        let process = self.running(host);
        let mut effects = Vec::new();
        if is_evicted {
            process.rows.evicted(conn, now, &mut effects);
        } else {
            process.rows.closed(conn, &mut effects);
        }
        if is_evicted && !self.chance(500) {
            self.tell_holder(host, conn, HolderNews::Closed);
        }
        self.running(host).conns.remove(&conn);
        self.perform_rows(host, effects)
    }

    /// A client asks for how long the node vouches for what it holds.
    pub(crate) fn lock_sure(&mut self, host: usize, conn: u64, sent: u64) {
        let now = self.hosts[host].local(self.now);
        let process = self.running(host);
        if process.conns.contains_key(&conn) {
            let valid_until = process.machine.valid_until();
            let sure = process.rows.sure(conn, valid_until, now);
            // The answer may take long: what counts is when the question was sent.
            let slow = self.delay() * 10;
            let client = self.running(host).conns[&conn];
            let news = HolderNews::Sure { sent, sure };
            self.after(slow, Happening::HolderTold { client, conn, news });
        }
    }

    /// A process has drained: it ends its holders, and stops.
    pub(crate) fn end_holders(&mut self, host: usize) -> Result<(), String> {
        self.running(host).is_stopping = true;
        let conns: Vec<u64> = self.running(host).conns.keys().copied().collect();
        for conn in conns {
            self.lock_close(host, conn, true)?;
        }
        self.stop_drained(host)
    }

    /// A process that has drained stops when it vouches for nothing any more.
    fn stop_drained(&mut self, host: usize) -> Result<(), String> {
        let process = self.running(host);
        if !process.is_stopping || !process.rows.is_empty() || self.hosts[host].stopped {
            return Ok(());
        }
        self.hosts[host].stopped = true;
        self.step(host, |machine, now, effects| machine.stop(now, effects))
    }

    /// All connections of a process are closed: its life in the cluster is over.
    pub(crate) fn close_all(&mut self, host: usize) {
        let conns = std::mem::take(&mut self.running(host).conns);
        for (conn, client) in conns {
            let news = HolderNews::Closed;
            let delay = self.delay();
            self.after(delay, Happening::HolderTold { client, conn, news });
        }
    }

    fn tell_holder(&mut self, host: usize, conn: u64, news: HolderNews) {
        let process = self.running(host);
        if let Some(client) = process.conns.get(&conn).copied() {
            let delay = self.delay();
            self.after(delay, Happening::HolderTold { client, conn, news });
        }
    }

    pub(crate) fn running(&mut self, host: usize) -> &mut Process {
        self.hosts[host].process.as_mut().expect("it runs")
    }

    /// Carry out what the rows want.
    pub(crate) fn perform_rows(
        &mut self,
        host: usize,
        effects: Vec<RowEffect>,
    ) -> Result<(), String> {
        for effect in effects {
            self.trace(|| format!("   n{host} {effect:?}"));
            match effect {
                RowEffect::Send { to, message } => self.send(host, &to, Carried::Row(message)),
                RowEffect::Tell {
                    ticket,
                    holder,
                    news,
                } => self.tell_row(host, ticket, holder, news)?,
            }
        }
        self.stop_drained(host)?;
        let it = &self.hosts[host];
        if let Some(process) = &it.process
            && let Some(deadline) = process.rows.deadline()
        {
            let at = it.truly(deadline).max(self.now + 1);
            self.for_process(host, at - self.now, Event::RowsDue);
        }
        Ok(())
    }

    fn tell_row(
        &mut self,
        host: usize,
        ticket: u64,
        conn: u64,
        news: RowNews,
    ) -> Result<(), String> {
        let process = self.running(host);
        let node = process.machine.incarnation().cloned();
        match news {
            RowNews::Granted { .. } => {
                let node = node.ok_or("a node that is no member grants")?;
                let news = HolderNews::Granted { ticket, node };
                self.tell_holder(host, conn, news);
            }
            RowNews::Refused | RowNews::Down => {
                self.tell_holder(host, conn, HolderNews::Refused { ticket });
            }
            RowNews::NotMine if process.retried.insert(ticket) => {
                let partition = process.tickets.get(&ticket).copied();
                let partition = partition.ok_or("a ticket without partition")?;
                return self.route_row(host, ticket, partition);
            }
            RowNews::NotMine => {
                let mut effects = Vec::new();
                process.rows.give_up(ticket, &mut effects);
                return self.perform_rows(host, effects);
            }
            RowNews::Dropped => (),
        }
        Ok(())
    }

    /// A message came over a link, or from this node to itself.
    pub(crate) fn deliver(
        &mut self,
        host: usize,
        from: &Incarnation,
        link: u64,
        message: Carried,
    ) -> Result<(), String> {
        let process = self.running(host);
        if !process.machine.reads(from, link) {
            return Ok(());
        }
        let message = match message {
            Carried::Row(message) => message,
            Carried::Key(message) => return self.key_heard(host, from, message),
            Carried::Peer(message) => {
                return self.step(host, |machine, now, effects| {
                    machine.heard(from, &message, now, effects);
                });
            }
        };
        match message {
            RowMessage::Ask {
                partition,
                epoch,
                row,
            } => self.peer_ask(host, from, (partition, epoch), row),
            RowMessage::RowDropped {
                partition,
                epoch,
                ticket,
            } => {
                let asks = process.drops.dropped(from, ticket, epoch);
                if !asks.is_empty() {
                    if let Some(part) = process.locks.get_mut(&partition) {
                        part.end(from, ticket);
                    }
                    self.pump(host, partition)?;
                }
                self.released_all(host, asks, true);
                Ok(())
            }
            RowMessage::Answer { .. }
            | RowMessage::Ended { .. }
            | RowMessage::Reported { .. }
            | RowMessage::DropRow { .. } => {
                let mut effects = Vec::new();
                process.rows.heard(from, link, &message, &mut effects);
                self.perform_rows(host, effects)
            }
            RowMessage::Report { .. } | RowMessage::End { .. } => {
                self.step(host, |machine, now, effects| {
                    machine.row_heard(from, link, message, now, effects);
                })
            }
        }
    }

    /// An entry node asks for a lock.
    fn peer_ask(
        &mut self,
        host: usize,
        from: &Incarnation,
        of: (u32, u64),
        row: ReportedRow,
    ) -> Result<(), String> {
        let ask = self.next_ask;
        self.next_ask += 1;
        let process = self.running(host);
        let node = from.clone();
        process
            .routed
            .insert(ask, Routed::PeerRow { node, of, row });
        self.step(host, |machine, now, effects| {
            machine.name_asked_by_peer(ask, from, of, now, effects);
        })
    }

    /// The machine says what becomes of an entry node's ask.
    pub(crate) fn peer_routed(
        &mut self,
        host: usize,
        node: &Incarnation,
        (partition, epoch): (u32, u64),
        row: &ReportedRow,
        to: &AskRoute,
    ) -> Result<(), String> {
        let now = self.hosts[host].local(self.now);
        if let AskRoute::Here { .. } = to {
            self.leases.asks(node, row.ticket)?;
        }
        let process = self.running(host);
        if let AskRoute::Here { .. } = to
            && let Some(part) = process.locks.get_mut(&partition)
        {
            part.add(node, row, now);
            return self.pump(host, partition);
        }
        let message = RowMessage::Answer {
            partition,
            epoch,
            ticket: row.ticket,
            answer: RowAnswer::NotMine,
        };
        self.send(host, node, Carried::Row(message));
        Ok(())
    }

    /// All nodes have reported: the locks are what they say.
    pub(crate) fn adopt(
        &mut self,
        host: usize,
        partition: u32,
        epoch: u64,
        reports: &[(Incarnation, Vec<ReportedRow>)],
    ) -> Result<(), String> {
        let now = self.hosts[host].local(self.now);
        let mut part = LockPart::new(epoch);
        for (node, rows) in reports {
            for row in rows {
                self.leases.adopts(node, row)?;
                part.add(node, row, now);
            }
        }
        self.running(host).locks.insert(partition, part);
        self.pump(host, partition)
    }

    /// An ask or a lease is over, as its entry node says.
    pub(crate) fn end_row(
        &mut self,
        host: usize,
        partition: u32,
        of: &Incarnation,
        ticket: u64,
    ) -> Result<(), String> {
        self.leases.ended(of, ticket);
        let process = self.running(host);
        let is_it = |routed: &Routed| match routed {
            Routed::PeerRow { node, row, .. } => node == of && row.ticket == ticket,
            _ => false,
        };
        let routed = process.routed.iter().find(|(_, routed)| is_it(routed));
        let ask = routed.map(|(ask, _)| *ask);
        if let Some(part) = process.locks.get_mut(&partition) {
            part.end(of, ticket);
        }
        if let Some(ask) = ask {
            self.forget_route(host, ask)?;
        }
        self.pump(host, partition)
    }

    /// A life of a node is over, and so is all behind it.
    pub(crate) fn gone(&mut self, host: usize, node: &Incarnation) -> Result<(), String> {
        let process = self.running(host);
        let partitions: Vec<_> = process.locks.keys().copied().collect();
        for part in process.locks.values_mut() {
            part.gone(node);
        }
        let asks = process.drops.gone(node);
        for partition in partitions {
            self.pump(host, partition)?;
        }
        self.released_all(host, asks, true);
        Ok(())
    }

    /// Grant what can be granted, if the node may.
    pub(crate) fn pump(&mut self, host: usize, partition: u32) -> Result<(), String> {
        let now = self.hosts[host].local(self.now);
        let process = self.running(host);
        let serves = process.machine.serves_names(partition, now);
        let Some(part) = process.locks.get_mut(&partition) else {
            return Ok(());
        };
        let epoch = part.epoch;
        if serves != Some(epoch) {
            return Ok(());
        }
        for it in part.pump() {
            if let RowAnswer::Granted { fence } = it.answer
                && !self.wild
            {
                self.leases.granted(partition, it.key, fence)?;
            }
            let message = RowMessage::Answer {
                partition,
                epoch,
                ticket: it.ticket,
                answer: it.answer,
            };
            self.send(host, &it.node, Carried::Row(message));
        }
        Ok(())
    }

    /// A client gives a lease back at another node than that of its connection.
    pub(crate) fn release_here(&mut self, host: usize, release: Release) -> Result<(), String> {
        let (ask, partition) = (release.id, release.partition);
        self.running(host)
            .routed
            .insert(ask, Routed::Release(release));
        self.step(host, |machine, now, effects| {
            machine.name_asked(ask, partition, None, now, effects);
        })
    }

    /// Another node passes such a release on to the owner.
    pub(crate) fn release_forwarded(
        &mut self,
        host: usize,
        by: &Incarnation,
        release: Release,
        epoch: u64,
    ) -> Result<(), String> {
        let (ask, partition) = (release.id, release.partition);
        let process = self.running(host);
        if process
            .routed
            .insert(ask, Routed::Release(release))
            .is_some()
        {
            return Ok(());
        }
        self.step(host, |machine, now, effects| {
            let of = (partition, epoch);
            machine.name_asked_by_peer(ask, by, of, now, effects);
        })
    }

    pub(crate) fn release_routed(
        &mut self,
        host: usize,
        release: Release,
        to: AskRoute,
    ) -> Result<(), String> {
        match to {
            AskRoute::Here { epoch } => self.release_owned(host, release, epoch),
            AskRoute::Hop { to, epoch } if release.at == host => {
                let process = self.running(host);
                let by = process.machine.incarnation().cloned();
                let other = process.links.iter().find(|(_, link)| link.node == to);
                if let (Some(by), Some((other, _))) = (by, other) {
                    let other = *other;
                    let event = Event::ReleaseForwarded { by, release, epoch };
                    self.send_peer(host, other, event);
                }
                Ok(())
            }
            // The client gets no answer, and releases at its own node.
            _ => Ok(()),
        }
    }

    /// The owner has the row dropped first.
    fn release_owned(&mut self, host: usize, release: Release, epoch: u64) -> Result<(), String> {
        let is_planted = self.bug == Some(Bug::AnsweredBeforeDrop);
        let process = self.running(host);
        let (partition, ticket) = (release.partition, release.ticket);
        let part = process.locks.get_mut(&partition);
        let Some(part) = part.filter(|part| part.holds(&release.node, ticket)) else {
            return Ok(());
        };
        let of = (partition, epoch);
        let mut effects = Vec::new();
        let (ask, node) = (release.id, release.node.clone());
        process.drops.release(&node, ticket, of, ask, &mut effects);
        if is_planted {
            part.end(&node, ticket);
        }
        process.releases.insert(ask, release);
        if is_planted {
            self.released_all(host, vec![ask], true);
            self.pump(host, partition)?;
        }
        self.faults.count("release at another node");
        self.perform_rows(host, effects)
    }

    /// Answer asks that gave leases back.
    pub(crate) fn released_all(&mut self, host: usize, asks: Vec<u64>, is_done: bool) {
        for ask in asks {
            let release = self.running(host).releases.remove(&ask);
            if let Some(release) = release.filter(|_| is_done) {
                // The way back is as long as that of any message, and may be lost.
                if !self.chance(self.faults.loss) {
                    let delay = self.delay() + MILLI;
                    self.after(delay, Happening::ReleasedElsewhere { release });
                }
            }
        }
    }
}
