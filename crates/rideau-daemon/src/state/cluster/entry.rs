//! This node as the entry node of its clients: what they hold and ask for of names,
//! wherever the owner is.
//!
//! A client's ask is a row from its beginning to its end, also if this node is the owner:
//! the next owner learns of it from the row.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rideau::{Lead, Refusal};
use rideau_cluster::LinkError;
use rideau_core::cluster::{
    AskRoute, DownReason, EntryRows, Incarnation, RowEffect, RowMessage, RowNews,
};
use tokio::sync::oneshot;

use super::claim::{ClaimOutcome, LockClaim};
use super::place_claim::{PlaceClaim, PlaceEnd, PlaceHeld, PlaceKind, PlaceOutcome, read_end};
use super::{Cluster, LOOK, NoRoute};
use crate::state::end::EndReason;
use crate::state::holder::HolderId;
use crate::state::matches::Mailbox;

/// An answer may take so much longer than the client's own wait.
const SLACK: Duration = Duration::from_secs(2);

/// The rows of this node's clients, and who waits for news of them.
pub(super) struct EntryState {
    pub(super) rows: EntryRows,
    pub(super) me: Option<Incarnation>,
    /// Asks that wait for news, by ticket.
    asks: HashMap<u64, oneshot::Sender<AskNews>>,
    /// Where parties of matches are told of the other's end, by ticket.
    mails: HashMap<u64, Arc<Mailbox>>,
    /// The last ticket.
    next: u64,
}

/// The outcome of an ask, with the details for its client.
struct AskNews {
    news: RowNews,
    told: Vec<u8>,
}

/// Something that a client of this node holds, wherever the owner is. It is given back when
/// this is dropped.
pub struct NameLease {
    row: NameRow,
    /// The key, pool, broker or regulator.
    pub(crate) name: Vec<u8>,
    /// What it is.
    pub(crate) of: NameOf,
    /// The fence of the grant.
    pub(crate) fence: u64,
    /// How long the grant took.
    pub(crate) waited: Duration,
}

/// What a lease is of.
pub(crate) enum NameOf {
    /// Units of a key.
    Lock {
        units: u32,
        /// How many were held when it was granted, these included.
        ordinal: u64,
    },
    /// A member of a pool.
    Member { value: String },
    /// A match of a broker.
    Match {
        /// What the other party brought.
        value: Vec<u8>,
        lead: Lead,
        /// Where the other party's end is told.
        mail: Arc<Mailbox>,
    },
    /// A lease of a regulator.
    Lease { lead: Lead },
}

/// Why a client gets nothing.
#[derive(Debug)]
pub(crate) enum NoLease {
    /// The owner says so.
    Answered(ClaimOutcome),
    /// No owner said anything.
    Down(NoRoute),
}

/// Why a client gets nothing of a pool, broker or regulator.
#[derive(Debug)]
pub(crate) enum NoPlace {
    /// The owner says so, and why.
    Refused(Refusal, String),
    /// The owner has nothing of this name.
    Unknown,
    /// No owner said anything.
    Down(NoRoute),
}

/// The answer of an owner: the fence of a grant, and what is told with it.
struct OwnerAnswer {
    row: NameRow,
    fence: Option<u64>,
    told: Vec<u8>,
    from: Incarnation,
}

/// A row that goes when this is dropped.
struct NameRow {
    cluster: Arc<Cluster>,
    ticket: u64,
    /// The life of the node in which it began.
    life: Option<Incarnation>,
    partition: u32,
    /// It goes by itself.
    is_left: bool,
}

impl EntryState {
    pub(super) fn new(rows: EntryRows) -> Self {
        Self {
            rows,
            me: None,
            asks: HashMap::new(),
            mails: HashMap::new(),
            next: 0,
        }
    }
}

impl Cluster {
    /// The partition of a name.
    pub(crate) fn partition_of_name(&self, name: &[u8]) -> u32 {
        self.partitions.of_name(name)
    }

    /// Have units of a key for a holder of this node.
    ///
    /// # Errors
    ///
    /// Why it has none.
    pub(crate) async fn acquire(
        self: Arc<Self>,
        claim: LockClaim,
        holder: HolderId,
    ) -> Result<NameLease, NoLease> {
        let partition = self.partition_of_name(&claim.key);
        let row = self.begin_row(partition, holder_number(holder), &claim.write());
        let answer = self.ask_owner(row, claim.wait.limit()).await;
        let answer = answer.map_err(NoLease::Down)?;
        match (answer.fence, ClaimOutcome::read(&answer.told)) {
            (Some(fence), Some(ClaimOutcome::Granted { ordinal, waited })) => Ok(NameLease {
                row: answer.row,
                name: claim.key,
                of: NameOf::Lock {
                    units: claim.units,
                    ordinal,
                },
                fence,
                waited,
            }),
            (None, Some(outcome)) => Err(NoLease::Answered(outcome)),
            _ => Err(NoLease::Down(broken(answer.from))),
        }
    }

    /// Have something of a pool, broker or regulator for a holder of this node. Its partition
    /// is that of its home.
    ///
    /// # Errors
    ///
    /// Why it has nothing.
    pub(crate) async fn take_place(
        self: Arc<Self>,
        claim: PlaceClaim,
        home: Box<str>,
        holder: HolderId,
    ) -> Result<NameLease, NoPlace> {
        let partition = self.partition_of_name(home.as_bytes());
        let row = self.begin_row(partition, holder_number(holder), &claim.write());
        let is_match = matches!(claim.kind, PlaceKind::Ask | PlaceKind::Offer);
        let mail = Arc::<Mailbox>::default();
        if is_match {
            let mails = &mut self.names.entry.lock().mails;
            mails.insert(row.ticket, Arc::clone(&mail));
        }
        let answer = self.ask_owner(row, claim.wait.limit()).await;
        let answer = answer.map_err(NoPlace::Down)?;
        let (fence, grant) = match (answer.fence, PlaceOutcome::read(&answer.told)) {
            (Some(fence), Some(PlaceOutcome::Granted(grant))) => (fence, grant),
            (None, Some(PlaceOutcome::Refused(no, why))) => return Err(NoPlace::Refused(no, why)),
            (None, Some(PlaceOutcome::Unknown)) => return Err(NoPlace::Unknown),
            _ => return Err(NoPlace::Down(broken(answer.from))),
        };
        Ok(NameLease {
            row: answer.row,
            name: grant.from.into_bytes(),
            fence,
            waited: grant.waited,
            of: match claim.kind {
                PlaceKind::Take => NameOf::Member {
                    value: String::from_utf8_lossy(&grant.value).into_owned(),
                },
                PlaceKind::Lease => NameOf::Lease { lead: grant.lead },
                PlaceKind::Ask | PlaceKind::Offer => NameOf::Match {
                    value: grant.value,
                    lead: grant.lead,
                    mail,
                },
            },
        })
    }

    /// Have the owner answer an ask.
    async fn ask_owner(
        self: &Arc<Self>,
        row: NameRow,
        wait: Duration,
    ) -> Result<OwnerAnswer, NoRoute> {
        let until = tokio::time::Instant::now() + wait.saturating_add(SLACK);
        let patience = Some(wait).filter(|wait| !wait.is_zero());
        let mut is_second = false;
        loop {
            let news = self.wait_for_news(row.ticket);
            let (from, epoch) = self.send_on(&row, row.partition, patience).await?;
            let Ok(Ok(AskNews { news, told })) = tokio::time::timeout_at(until, news).await else {
                return Err(NoRoute::Link(from, LinkError::TimedOut));
            };
            let fence = match news {
                RowNews::Granted { fence } => Some(fence),
                RowNews::Refused => None,
                RowNews::NotMine if !is_second => {
                    is_second = true;
                    self.moved(row.partition, epoch).await;
                    continue;
                }
                RowNews::NotMine => return Err(NoRoute::Moved),
                RowNews::Down | RowNews::Dropped => return Err(broken(from)),
            };
            return Ok(OwnerAnswer {
                row,
                fence,
                told,
                from,
            });
        }
    }

    fn begin_row(self: &Arc<Self>, partition: u32, holder: u64, what: &[u8]) -> NameRow {
        let now = self.node.now();
        let entry = &mut *self.names.entry.lock();
        entry.next += 1;
        let ticket = entry.next;
        entry.rows.asked(ticket, partition, holder, what, now);
        NameRow {
            cluster: Arc::clone(self),
            ticket,
            life: entry.me.clone(),
            partition,
            is_left: false,
        }
    }

    fn wait_for_news(&self, ticket: u64) -> oneshot::Receiver<AskNews> {
        let (tell, news) = oneshot::channel();
        self.names.entry.lock().asks.insert(ticket, tell);
        news
    }

    /// Send an ask to the owner, which may be this node. Says which it is, in which epoch.
    async fn send_on(
        self: &Arc<Self>,
        row: &NameRow,
        partition: u32,
        wait: Option<Duration>,
    ) -> Result<(Incarnation, u64), NoRoute> {
        let patience = self.node.options().patience;
        let patience = wait.map_or(patience, |wait| wait.min(patience));
        let until = tokio::time::Instant::now() + patience;
        loop {
            if let Some((to, epoch)) = self.known_owner(partition) {
                self.send_ask(row.ticket, &to, epoch)?;
                return Ok((to, epoch));
            }
            if tokio::time::Instant::now() >= until {
                return Err(NoRoute::Down(DownReason::NoOwner));
            }
            // The node parks it until there is an owner that it can reach.
            let route = self.node.route_name(partition, wait).await;
            if let AskRoute::Down(reason) = route {
                return Err(NoRoute::Down(reason));
            }
            if self.known_owner(partition).is_none() {
                tokio::time::sleep(LOOK).await;
            }
        }
    }

    /// The owner of a partition, if it can be asked at once.
    fn known_owner(&self, partition: u32) -> Option<(Incarnation, u64)> {
        let entry = self.names.entry.lock();
        let (to, epoch) = entry.rows.owner(partition)?;
        let is_here = entry.me.as_ref() == Some(to);
        let is_ready = match is_here {
            true => self.node.serves_names(partition) == Some(epoch),
            // A node that is unsure decides nothing for its clients.
            false => entry.rows.reaches(to) && !self.node.valid_for().is_zero(),
        };
        is_ready.then(|| (to.clone(), epoch))
    }

    fn send_ask(
        self: &Arc<Self>,
        ticket: u64,
        to: &Incarnation,
        epoch: u64,
    ) -> Result<(), NoRoute> {
        let mut effects = Vec::new();
        let now = self.node.now();
        let mut entry = self.names.entry.lock();
        entry.rows.routed(ticket, to, epoch, now, &mut effects);
        let is_hop = entry.me.as_ref() != Some(to);
        drop(entry);
        match is_hop {
            true => self.counts.sent(true),
            false => _ = self.counts.here.fetch_add(1, Ordering::Relaxed),
        }
        self.carry(effects, &[])
            .map_err(|error| NoRoute::Link(to.clone(), error))
    }

    /// Carry out what the rows want. Says why an ask could not be sent.
    pub(super) fn carry(
        self: &Arc<Self>,
        effects: Vec<RowEffect>,
        told: &[u8],
    ) -> Result<(), LinkError> {
        let mut sent = Ok(());
        for effect in effects {
            match effect {
                RowEffect::Send { to, message } => {
                    let is_ask = matches!(message, RowMessage::Ask { .. });
                    let result = self.send_row(&to, message, Vec::new());
                    if is_ask {
                        sent = result;
                    }
                }
                RowEffect::Tell { ticket, news, .. } => {
                    let mut entry = self.names.entry.lock();
                    let tell = entry.asks.remove(&ticket);
                    let mail = match news {
                        RowNews::Dropped => entry.mails.remove(&ticket),
                        _ => None,
                    };
                    drop(entry);
                    if let Some(mail) = mail {
                        mail.tell(read_end(told));
                    }
                    let told = told.to_vec();
                    // A client that is gone gives up its row.
                    let _ = tell.map(|tell| tell.send(AskNews { news, told }));
                }
            }
        }
        sent
    }

    /// Tell another node, or this one. What has to arrive and does not is repeated by its
    /// sender on the next link.
    pub(super) fn send_row(
        self: &Arc<Self>,
        to: &Incarnation,
        message: RowMessage,
        told: Vec<u8>,
    ) -> Result<(), LinkError> {
        let is_me = self.names.entry.lock().me.as_ref() == Some(to);
        if is_me {
            self.row_heard(to, 0, message, &told);
            return Ok(());
        }
        let links = self.links.read().clone();
        links.ok_or(LinkError::NoLink)?.send_row(to, message, told)
    }

    /// The rows are told what another node, or this one, said.
    pub(super) fn rows_heard(
        self: &Arc<Self>,
        from: &Incarnation,
        link: u64,
        message: &RowMessage,
        told: &[u8],
    ) {
        let mut effects = Vec::new();
        let mut entry = self.names.entry.lock();
        entry.rows.heard(from, link, message, &mut effects);
        let told = match message {
            RowMessage::DropRow { how, .. } => how,
            _ => told,
        };
        // The next owner has to know what it got.
        for effect in &effects {
            if let RowEffect::Tell { ticket, news, .. } = effect
                && matches!(news, RowNews::Granted { .. })
                && let Some(claim) = entry.rows.what(*ticket).and_then(PlaceClaim::read)
                && let Some(PlaceOutcome::Granted(grant)) = PlaceOutcome::read(told)
            {
                let held = PlaceHeld { claim, grant };
                entry.rows.describe(*ticket, held.write());
            }
        }
        drop(entry);
        let _ = self.carry(effects, told);
    }

    /// Change the rows, and carry out what they want.
    pub(super) fn change_rows<T>(
        self: &Arc<Self>,
        change: impl FnOnce(&mut EntryRows, &mut Vec<RowEffect>) -> T,
    ) -> T {
        let mut effects = Vec::new();
        let changed = change(&mut self.names.entry.lock().rows, &mut effects);
        let _ = self.carry(effects, &[]);
        changed
    }

    /// For how long the node vouches for what a holder has.
    pub(crate) fn sure(&self, holder: HolderId) -> Duration {
        let (valid_until, now) = (self.node.valid_until(), self.node.now());
        let rows = &mut self.names.entry.lock().rows;
        rows.sure(holder_number(holder), valid_until, now)
    }

    /// A holder of this node has ended, and all that it held.
    pub(crate) fn left(&self, holder: HolderId) {
        self.names.entry.lock().rows.left(holder_number(holder));
    }

    /// This life of the node, once it is part of the cluster.
    pub(crate) fn me(&self) -> Option<Incarnation> {
        self.names.entry.lock().me.clone()
    }

    /// For how long the node still vouches for something that it has taken back.
    pub(crate) fn vouches_for(&self) -> Option<Duration> {
        let due = self.names.entry.lock().rows.deadline()?;
        Some(due.max(self.node.now()).since(self.node.now()))
    }

    /// Wait until leases end that the node has taken back.
    pub(crate) async fn wait_for_due(&self) {
        loop {
            let changed = self.names.due.notified();
            match self.vouches_for() {
                None => changed.await,
                Some(wait) => match tokio::time::timeout(wait, changed).await {
                    Ok(()) => (),
                    Err(_) => return,
                },
            }
        }
    }

    /// End leases whose time is over.
    pub(crate) fn advance_rows(self: &Arc<Self>) {
        let now = self.node.now();
        self.change_rows(|rows, effects| rows.advance(now, effects));
    }

    /// The life of the node is over. Says up to which ticket of a row leases are of it.
    pub(crate) fn end_life(&self) -> u64 {
        let mut entry = self.names.entry.lock();
        entry.me = None;
        let last = entry.next;
        drop(entry);
        self.give_up_asks();
        last
    }

    /// No ask of this node's clients waits any more: the server stops, or this life is over.
    pub(crate) fn give_up_asks(&self) {
        let asks = std::mem::take(&mut self.names.entry.lock().asks);
        for tell in asks.into_values() {
            let _ = tell.send(AskNews {
                news: RowNews::Down,
                told: Vec::new(),
            });
        }
    }
}

impl NameLease {
    /// The ticket of its row.
    pub(crate) const fn ticket(&self) -> u64 {
        self.row.ticket
    }

    /// Whether the life of the node goes on in which it was granted.
    pub(crate) fn is_of_this_life(&self) -> bool {
        self.row.cluster.me() == self.row.life
    }

    /// The key, pool, broker or regulator, as text.
    pub(crate) fn name(&self) -> String {
        String::from_utf8_lossy(&self.name).into_owned()
    }

    /// It is units of this key.
    pub(crate) fn is_lock_of(&self, key: &[u8]) -> bool {
        matches!(self.of, NameOf::Lock { .. }) && self.name == key
    }

    /// Where its partition is.
    pub(crate) const fn partition(&self) -> u32 {
        self.row.partition
    }

    /// Where a party of a match hears of the other.
    pub(crate) const fn mail(&self) -> Option<&Arc<Mailbox>> {
        match &self.of {
            NameOf::Match { mail, .. } => Some(mail),
            NameOf::Lock { .. } | NameOf::Member { .. } | NameOf::Lease { .. } => None,
        }
    }

    /// Give it back. What the node takes from its holder is free when the node does not
    /// vouch for it any more.
    pub(crate) fn end(self, why: EndReason) {
        self.end_as(why, None);
    }

    /// End a match with a last word for the other party.
    pub(crate) fn done(self, payload: Option<Vec<u8>>) {
        self.end_as(EndReason::Released, payload);
    }

    fn end_as(mut self, why: EndReason, payload: Option<Vec<u8>>) {
        if let Some(mail) = self.mail() {
            mail.leave();
        }
        let how = match &self.of {
            NameOf::Lock { .. } => Vec::new(),
            _ => PlaceEnd { why, payload }.write(),
        };
        let is_of_node = matches!(
            why,
            EndReason::Silent | EndReason::Expired | EndReason::Revoked
        );
        let (cluster, ticket) = (&self.row.cluster, self.row.ticket);
        if is_of_node {
            let now = cluster.node.now();
            cluster.change_rows(|rows, effects| rows.revoked(ticket, how, now, effects));
            cluster.names.due.notify_one();
        } else {
            cluster.change_rows(|rows, effects| rows.ended(ticket, how, effects));
        }
        cluster.names.entry.lock().mails.remove(&ticket);
        self.row.is_left = true;
    }
}

/// A node did not answer.
const fn broken(node: Incarnation) -> NoRoute {
    NoRoute::Link(node, LinkError::Broken)
}

impl Drop for NameRow {
    fn drop(&mut self) {
        if self.is_left {
            return;
        }
        let ticket = self.ticket;
        let mut entry = self.cluster.names.entry.lock();
        entry.asks.remove(&ticket);
        entry.mails.remove(&ticket);
        drop(entry);
        self.cluster
            .change_rows(|rows, effects| rows.released(ticket, effects));
    }
}

/// A holder as rows name it.
fn holder_number(holder: HolderId) -> u64 {
    u64::from(holder.turn) << 32 | u64::from(holder.at) << 6 & 0xffff_ffff | u64::from(holder.shard)
}
