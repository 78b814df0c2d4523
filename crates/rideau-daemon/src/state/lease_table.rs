//! Which holder holds what: every lease and every ask that can be named.
//!
//! A holder is a connection or a session. All that it holds is kept in one shard, in a
//! list of its own, so that its end finds everything at once. A client that has a
//! ticket finds what it stands for without a search: the ticket says where it is kept.

mod lost;
mod refused;
mod rows;
mod slab;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use rideau_core::cluster::SlotTag;

use crate::state::answer::Outcome;
use crate::state::end::{EndReason, NotHeld};
use crate::state::grant::Grant;
use crate::state::holder::{Holder, HolderId};
use crate::state::nonces::{Named, Names};
use crate::state::pending::Later;
use crate::state::ticket::{self, Ticket, TicketKind};

const SHARD_BITS: u32 = 6;
const SHARDS: usize = 1 << SHARD_BITS;
/// This many are looked at or taken out while others wait for the shard.
const SLICE: usize = 512;
const SLOT_BITS: u32 = 32 - SHARD_BITS;
/// This many ended tickets are remembered in each shard, to say what became of them.
const ENDED_MAX: usize = 256;

pub(crate) use lost::Lost;
pub(crate) use rows::LeaseRow;
use slab::{NONE, Slab};

/// All that is held through the server.
pub(crate) struct LeaseTable {
    shards: Box<[Mutex<Shard>]>,
    /// The shard of the next holder.
    next: AtomicUsize,
    /// This many losses are to be told.
    untold: AtomicUsize,
    start: Instant,
}

#[derive(Default)]
struct Shard {
    slots: Slab<Slot>,
    holders: Slab<HolderSlot>,
    /// How many holders there have been, so that none is taken for another.
    turn: u32,
    /// The last that ended, the oldest at `oldest_ended` once there are as many as
    /// are remembered.
    ended: Vec<Ended>,
    oldest_ended: usize,
}

struct Slot {
    /// Zero if the slot is free.
    secret: u128,
    kind: TicketKind,
    /// Its ask was refused, and only the answer is kept.
    is_refused: bool,
    tag: SlotTag,
    holder: u32,
    prev: u32,
    next: u32,
    /// In nanoseconds since the lease table began.
    since: u64,
    note: Option<Box<str>>,
    thing: LeaseEntry,
}

/// The thing that a ticket stands for.
pub(crate) enum LeaseEntry {
    /// Nothing: the slot is free, or a caller is just looking at it.
    None,
    /// Something held.
    Held(Grant),
    /// Something held that was asked for with `ASYNC`, and the answer for clients that
    /// fetch it.
    Answered(Grant, Box<Outcome>),
    /// An ask that waits, or one that was refused.
    Asked(Arc<Later>),
}

impl LeaseEntry {
    /// The grant, if it is held.
    pub(crate) fn grant(&self) -> Option<&Grant> {
        match self {
            Self::Held(grant) | Self::Answered(grant, _) => Some(grant),
            Self::Asked(_) | Self::None => None,
        }
    }

    /// The same, taken out.
    pub(crate) fn into_grant(self) -> Option<Grant> {
        match self {
            Self::Held(grant) | Self::Answered(grant, _) => Some(grant),
            Self::Asked(_) | Self::None => None,
        }
    }
}

struct HolderSlot {
    first: u32,
    len: usize,
    /// Data that few holders have.
    rare: Option<Box<Rare>>,
    /// Tells it from those that used the place before.
    turn: u32,
    card: Option<Arc<Holder>>,
    names: Names,
}

/// Data that few holders have.
#[derive(Default)]
struct Rare {
    /// This many asks were refused and are kept.
    refused_len: usize,
    /// Their places and secrets, the oldest first, and perhaps some that are forgotten.
    refused: VecDeque<(u32, u128)>,
    /// Leases that were taken from it, until it is told.
    lost: Vec<Lost>,
}

/// A holder that ends.
#[derive(Debug)]
pub(crate) struct Ending(HolderId);

/// A ticket that is over.
#[derive(Clone, Copy, Debug)]
struct Ended {
    secret: u128,
    at: u64,
    why: EndReason,
}

/// An entry that was removed from the table.
pub(crate) struct Taken {
    pub thing: LeaseEntry,
    /// The holder that had it.
    pub holder: HolderId,
}

impl Default for LeaseTable {
    fn default() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            next: AtomicUsize::new(0),
            untold: AtomicUsize::new(0),
            start: Instant::now(),
        }
    }
}

impl LeaseTable {
    /// A holder that may hold things from now on.
    pub(crate) fn open(&self, card: Arc<Holder>) -> HolderId {
        let at = self.next.fetch_add(1, Ordering::Relaxed) % SHARDS;
        let shard = &mut *self.shards[at].lock();
        let place = shard.holders.take();
        shard.turn = shard.turn.wrapping_add(1);
        let holder = &mut shard.holders[place];
        holder.turn = shard.turn;
        holder.card = Some(card);
        HolderId {
            shard: at as u32,
            at: place,
            turn: shard.turn,
        }
    }

    /// Keep something for a holder, which has it since then. The thing comes back if
    /// the holder has ended, or has reached its limit.
    ///
    /// # Errors
    ///
    /// The thing, if it was not kept.
    pub(crate) fn keep(
        &self,
        holder: HolderId,
        (kind, tag): (TicketKind, SlotTag),
        thing: LeaseEntry,
        note: Option<Box<str>>,
        most: usize,
        since: u64,
    ) -> Result<Ticket, Box<LeaseEntry>> {
        // Before others are kept from the shard: it may take a while.
        let secret = ticket::secret();
        let shard = &mut *self.shards[holder.shard as usize].lock();
        let owner = match shard.holders.find_mut(holder.at) {
            Some(owner) if owner.is(holder) && owner.held() < most => owner,
            _ => return Err(Box::new(thing)),
        };
        let at = shard.slots.take();
        assert!(at < 1 << SLOT_BITS, "a shard has places enough");
        let next = std::mem::replace(&mut owner.first, at);
        owner.len += 1;
        if next != NONE {
            shard.slots[next].prev = at;
        }
        let slot = &mut shard.slots[at];
        slot.secret = secret;
        slot.kind = kind;
        slot.tag = tag;
        slot.holder = holder.at;
        slot.prev = NONE;
        slot.next = next;
        slot.since = since;
        slot.note = note;
        slot.thing = thing;
        Ok(Ticket {
            kind,
            tag,
            place: holder.shard << SLOT_BITS | at,
            secret,
        })
    }

    /// Take out what a ticket stands for: it is over.
    ///
    /// # Errors
    ///
    /// If there is nothing under the ticket, or it is not this user's.
    pub(crate) fn take(
        &self,
        ticket: Ticket,
        user: Option<&str>,
        why: EndReason,
    ) -> Result<Taken, NotHeld> {
        self.take_at(ticket, user, why, self.now())
    }

    /// The same, for a caller that has just looked at the clock.
    ///
    /// # Errors
    ///
    /// If there is nothing under the ticket, or it is not this user's.
    pub(crate) fn take_at(
        &self,
        ticket: Ticket,
        user: Option<&str>,
        why: EndReason,
        now: u64,
    ) -> Result<Taken, NotHeld> {
        let (mut shard, at) = self.find(ticket)?;
        if user.is_some() {
            shard.check_user(at, user)?;
        }
        Ok(shard.take_out(ticket.place >> SLOT_BITS, at, now, why))
    }

    /// Look at what a ticket stands for. The shard is locked meanwhile.
    ///
    /// # Errors
    ///
    /// If there is nothing under the ticket, or it is not this user's.
    pub(crate) fn look<T>(
        &self,
        ticket: Ticket,
        user: Option<&str>,
        look: impl FnOnce(&mut LeaseEntry) -> T,
    ) -> Result<T, NotHeld> {
        let (mut shard, at) = self.find(ticket)?;
        shard.check_user(at, user)?;
        Ok(look(&mut shard.slots[at].thing))
    }

    /// An ask was granted: its ticket stands for what is held from now on.
    ///
    /// # Errors
    ///
    /// The thing, if it is not wanted any more.
    pub(crate) fn fill(&self, ticket: Ticket, thing: LeaseEntry) -> Result<(), LeaseEntry> {
        let since = self.now();
        let Ok((mut shard, at)) = self.find(ticket) else {
            return Err(thing);
        };
        let slot = &mut shard.slots[at];
        slot.since = since;
        let asked = std::mem::replace(&mut slot.thing, thing);
        drop(shard);
        drop(asked);
        Ok(())
    }

    /// The newest of what a holder holds that is wanted.
    pub(crate) fn newest(
        &self,
        holder: HolderId,
        wanted: impl Fn(&Grant) -> bool,
    ) -> Option<Ticket> {
        let shard = self.shards[holder.shard as usize].lock();
        let mut at = shard.holder(holder)?.first;
        while at != NONE {
            let slot = &shard.slots[at];
            if slot.thing.grant().is_some_and(&wanted) {
                return Some(shard.ticket(holder.shard, at));
            }
            at = slot.next;
        }
        None
    }

    /// A holder ends: it gets nothing more from now on. What it holds is taken out by
    /// [`end_some`](Self::end_some). None if it has ended before.
    pub(crate) fn close(&self, holder: HolderId) -> Option<Ending> {
        let mut shard = self.shards[holder.shard as usize].lock();
        shard.holder(holder)?;
        shard.holders[holder.at].card = None;
        Some(Ending(holder))
    }

    /// Take out as much of what an ending holder holds as others can wait for; nothing if
    /// that was all.
    pub(crate) fn end_some(&self, ending: &Ending, why: EndReason) -> Vec<(Ticket, LeaseEntry)> {
        let Ending(holder) = *ending;
        let now = self.now();
        let mut shard = self.shards[holder.shard as usize].lock();
        let mut held = Vec::new();
        while held.len() < SLICE {
            let at = match shard.holders.find(holder.at) {
                Some(slot) if slot.turn == holder.turn => slot.first,
                // It has ended.
                _ => return held,
            };
            if at == NONE {
                break;
            }
            let ticket = shard.ticket(holder.shard, at);
            let slot = &mut shard.slots[at];
            let thing = std::mem::replace(&mut slot.thing, LeaseEntry::None);
            let why = match slot.is_refused {
                true => EndReason::Refused,
                false => {
                    held.push((ticket, thing));
                    why
                }
            };
            shard.free_slot(at, now, why);
        }
        if held.is_empty() {
            let slot = std::mem::take(&mut shard.holders[holder.at]);
            self.forget_untold(slot.rare.as_deref());
            shard.holders.free(holder.at);
        }
        held
    }

    /// Remember an ask by the name that its holder gave it.
    pub(crate) fn remember(&self, holder: HolderId, name: &[u8], named: Named) {
        let shard = &mut *self.shards[holder.shard as usize].lock();
        if shard.holder(holder).is_some() {
            let slots = &shard.slots;
            let is_there = |ticket: Ticket| {
                let slot = slots.find(ticket.place & ((1 << SLOT_BITS) - 1));
                slot.is_some_and(|slot| slot.secret == ticket.secret)
            };
            let names = &mut shard.holders[holder.at].names;
            names.add(name, named, is_there);
        }
    }

    /// The ask of a holder with this nonce.
    pub(crate) fn recall(&self, holder: HolderId, name: &[u8]) -> Option<Named> {
        let shard = self.shards[holder.shard as usize].lock();
        shard.holder(holder)?.names.find(name).cloned()
    }

    /// How many things a holder holds or waits for.
    pub(crate) fn count(&self, holder: HolderId) -> usize {
        let shard = self.shards[holder.shard as usize].lock();
        shard.holder(holder).map_or(0, HolderSlot::held)
    }

    #[inline]
    fn find(&self, ticket: Ticket) -> Result<(MutexGuard<'_, Shard>, u32), NotHeld> {
        let shard = self.shards[(ticket.place >> SLOT_BITS) as usize].lock();
        let at = ticket.place & ((1 << SLOT_BITS) - 1);
        match shard.slots.find(at) {
            Some(slot) if slot.secret == ticket.secret && slot.kind == ticket.kind => {
                Ok((shard, at))
            }
            _ => Err(self.gone(&shard, ticket)),
        }
    }

    #[cold]
    fn gone(&self, shard: &Shard, ticket: Ticket) -> NotHeld {
        let ago = |at: u64| Duration::from_nanos(self.now().saturating_sub(at));
        let mut ended = shard.ended.iter();
        if let Some(ended) = ended.find(|ended| ended.secret == ticket.secret) {
            return NotHeld::Stale {
                ago: ago(ended.at),
                why: ended.why,
            };
        }
        // Where all that ended is remembered, it is none of them.
        let is_full = shard.ended.len() == ENDED_MAX;
        match shard.ended.get(shard.oldest_ended) {
            Some(oldest) if is_full && ticket.is_of_this_start() => NotHeld::Forgotten {
                ago: ago(oldest.at),
            },
            _ => NotHeld::Unknown,
        }
    }

    /// The time by which lease table goes, in nanoseconds since it began.
    pub(crate) fn now(&self) -> u64 {
        self.at(Instant::now())
    }

    /// The same of another time.
    pub(crate) fn at(&self, time: Instant) -> u64 {
        let since = time.saturating_duration_since(self.start);
        since.as_secs() * 1_000_000_000 + u64::from(since.subsec_nanos())
    }
}

impl Shard {
    fn holder(&self, holder: HolderId) -> Option<&HolderSlot> {
        let slot = self.holders.find(holder.at)?;
        slot.is(holder).then_some(slot)
    }

    fn card_of(&self, at: u32) -> Option<Arc<Holder>> {
        let holder = self.slots[at].holder;
        self.holders[holder].card.clone()
    }

    /// Whether what is kept here is this user's.
    fn check_user(&self, at: u32, user: Option<&str>) -> Result<(), NotHeld> {
        let holder = self.slots[at].holder;
        let card = self.holders[holder].card.as_ref();
        let card = card.ok_or(NotHeld::Unknown)?;
        match user {
            Some(user) if *user != *card.user => Err(NotHeld::Foreign),
            _ => Ok(()),
        }
    }

    fn ticket(&self, shard: u32, at: u32) -> Ticket {
        let slot = &self.slots[at];
        Ticket {
            kind: slot.kind,
            tag: slot.tag,
            place: shard << SLOT_BITS | at,
            secret: slot.secret,
        }
    }

    /// Take out what is kept here.
    fn take_out(&mut self, shard: u32, at: u32, now: u64, why: EndReason) -> Taken {
        let slot = &mut self.slots[at];
        let thing = std::mem::replace(&mut slot.thing, LeaseEntry::None);
        let owner = slot.holder;
        let turn = self.holders[owner].turn;
        self.free_slot(at, now, why);
        let holder = HolderId {
            shard,
            at: owner,
            turn,
        };
        Taken { thing, holder }
    }

    /// Take a slot out of its holder's list and free it.
    fn free_slot(&mut self, at: u32, now: u64, why: EndReason) {
        let slot = &mut self.slots[at];
        let ended = Ended {
            secret: slot.secret,
            at: now,
            why,
        };
        let (prev, next, holder) = (slot.prev, slot.next, slot.holder);
        slot.secret = 0;
        slot.note = None;
        if next != NONE {
            self.slots[next].prev = prev;
        }
        let is_refused = std::mem::take(&mut self.slots[at].is_refused);
        self.slots.free(at);
        let owner = &mut self.holders[holder];
        owner.len -= 1;
        if let Some(rare) = owner.rare.as_mut().filter(|_| is_refused) {
            rare.refused_len -= 1;
        }
        if prev == NONE {
            owner.first = next;
        } else {
            self.slots[prev].next = next;
        }
        match self.ended.get_mut(self.oldest_ended) {
            Some(oldest) => *oldest = ended,
            None => self.ended.push(ended),
        }
        self.oldest_ended = (self.oldest_ended + 1) % ENDED_MAX;
    }
}

impl HolderSlot {
    /// The place is still this holder's.
    fn is(&self, holder: HolderId) -> bool {
        self.turn == holder.turn && self.card.is_some()
    }

    /// How many things it holds or waits for.
    fn held(&self) -> usize {
        self.len - self.rare.as_ref().map_or(0, |rare| rare.refused_len)
    }
}

impl Default for Slot {
    fn default() -> Self {
        Self {
            secret: 0,
            kind: TicketKind::Lock,
            is_refused: false,
            tag: SlotTag::NONE,
            holder: 0,
            prev: NONE,
            next: NONE,
            since: 0,
            note: None,
            thing: LeaseEntry::None,
        }
    }
}

impl Default for HolderSlot {
    fn default() -> Self {
        Self {
            first: NONE,
            len: 0,
            rare: None,
            turn: 0,
            card: None,
            names: Names::default(),
        }
    }
}
