//! The open tickets of one machine.
//!
//! A ticket opens with an ask and closes with its end; in between the ledger
//! keeps how to answer and where the asker waits. It decides nothing.

use std::collections::HashMap;

use crate::ids::{Flow, Tag, Ticket};
use crate::time::Instant;

/// Says that there is no slot: the end of every list.
pub(crate) const NONE: u32 = u32::MAX;

/// The slots that a ledger keeps when no ticket is left, rather than give them
/// back and ask for them again at the next burst.
const IDLE_SLOTS_MAX: usize = 1024;

/// How to answer an asker.
pub trait Reply {
    /// The asker is gone and cannot be answered, though the ledger was not told
    /// so yet.
    fn is_gone(&self) -> bool {
        false
    }
}

/// Open tickets, each with its reply.
///
/// Invariants: a serial is given once; every slot is either open or on the free
/// list; a tag knows exactly its open tickets.
#[derive(Debug)]
#[repr(C)]
pub struct Ledger<R> {
    slots: Vec<Slot<R>>,
    free: u32,
    len: usize,
    serial: u64,
    stride: u64,
    /// Behind one pointer, for most asks have no tag.
    tags: Option<Box<Tags>>,
}

/// Which tickets share a tag.
#[derive(Debug, Default)]
struct Tags {
    tagged: HashMap<u32, Tagged>,
    newest_of: HashMap<Tag, u32>,
}

/// What a queue knows of an ask that waits; the links are its position in the
/// queue.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) sent: Instant,
    pub(crate) deadline: Instant,
    pub(crate) flow: Flow,
    pub(crate) prev: u32,
    pub(crate) next: u32,
    /// The line it stands in; [`NONE`] if it does not wait.
    pub(crate) line: u32,
    /// The asker named its wait.
    pub(crate) promised: bool,
}

#[derive(Debug)]
struct Slot<R> {
    /// Zero if the slot is free.
    serial: u64,
    place: Place,
    reply: Option<R>,
}

/// A tagged ticket's neighbours of the same tag.
#[derive(Debug)]
struct Tagged {
    tag: Tag,
    prev: u32,
    next: u32,
}

impl<R> Default for Ledger<R> {
    fn default() -> Self {
        Self::new(1, 1)
    }
}

impl<R> Ledger<R> {
    /// An empty ledger whose serials are `first`, `first + stride`, and so on,
    /// so that several ledgers of one machine never give the same.
    pub(crate) fn new(first: u64, stride: u64) -> Self {
        Self {
            slots: Vec::new(),
            free: NONE,
            len: 0,
            serial: first,
            stride,
            tags: None,
        }
    }

    /// Open tickets.
    pub fn len(&self) -> usize {
        self.len
    }

    /// No ticket is open.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A ticket that is closed already: for an ask that was answered at once.
    #[inline]
    pub fn pass(&mut self) -> Ticket {
        let serial = self.serial;
        self.serial += self.stride;
        Ticket { serial, slot: NONE }
    }

    /// Open a ticket.
    ///
    /// # Panics
    ///
    /// If over four thousand million tickets are open.
    #[inline]
    pub fn open(&mut self, reply: R) -> Ticket {
        let Ticket { serial, .. } = self.pass();
        let slot = Slot {
            serial,
            place: Place::nowhere(),
            reply: Some(reply),
        };
        self.len += 1;
        let at = self.free;
        if at == NONE {
            let at = u32::try_from(self.slots.len()).expect("slots are numbered by 32 bits");
            assert!(at != NONE, "slots are numbered by 32 bits");
            self.slots.push(slot);
            return Ticket { serial, slot: at };
        }
        let free = &mut self.slots[at as usize];
        self.free = free.place.next;
        *free = slot;
        Ticket { serial, slot: at }
    }

    /// Put an open ticket under a tag. A ticket has at most one.
    pub fn tag(&mut self, ticket: Ticket, tag: Tag) {
        debug_assert!(self.is_open(ticket));
        self.tags.get_or_insert_default().add(ticket.slot, tag);
    }

    /// The newest open ticket with this tag.
    pub fn newest(&self, tag: Tag) -> Option<Ticket> {
        let newest = self.tags.as_ref()?.newest_of.get(&tag);
        newest.map(|slot| self.ticket(*slot))
    }

    /// The ticket is open.
    #[inline]
    pub fn is_open(&self, ticket: Ticket) -> bool {
        self.slots
            .get(ticket.slot as usize)
            .is_some_and(|slot| slot.serial == ticket.serial)
    }

    /// The reply of an open ticket.
    pub fn reply(&self, ticket: Ticket) -> Option<&R> {
        let slot = self.slots.get(ticket.slot as usize)?;
        (slot.serial == ticket.serial).then_some(slot.reply.as_ref())?
    }

    /// The reply of an open ticket, to change.
    #[inline]
    pub fn reply_mut(&mut self, ticket: Ticket) -> Option<&mut R> {
        let slot = self.slots.get_mut(ticket.slot as usize)?;
        (slot.serial == ticket.serial).then_some(slot.reply.as_mut())?
    }

    /// When the asker of an open ticket says it asked, or since when it is
    /// held.
    ///
    /// # Panics
    ///
    /// If the ticket is not open.
    #[inline]
    pub fn sent(&self, ticket: Ticket) -> Instant {
        assert!(self.is_open(ticket), "only an open ticket has a stamp");
        self.place(ticket.slot).sent
    }

    /// Take the reply out of an open ticket, which stays open until its end;
    /// its stamp is `since` then, and no tag leads to it any more.
    pub fn hold(&mut self, ticket: Ticket, since: Instant) -> Option<R> {
        if !self.is_open(ticket) {
            return None;
        }
        if let Some(tags) = &mut self.tags {
            tags.remove(ticket.slot);
        }
        let slot = &mut self.slots[ticket.slot as usize];
        debug_assert!(
            slot.place.line == NONE,
            "a waiting ask has left its queue first"
        );
        let reply = slot.reply.take()?;
        slot.place.sent = since;
        Some(reply)
    }

    /// Put the reply back into a ticket that was held.
    pub(crate) fn wait_again(&mut self, ticket: Ticket, reply: R) {
        debug_assert!(self.is_open(ticket) && self.reply(ticket).is_none());
        self.slots[ticket.slot as usize].reply = Some(reply);
    }

    /// Close a ticket, in whatever state it is. A closed one is left alone.
    #[inline]
    pub fn close(&mut self, ticket: Ticket) -> Option<R> {
        if !self.is_open(ticket) {
            return None;
        }
        if let Some(tags) = &mut self.tags {
            tags.remove(ticket.slot);
        }
        let slot = &mut self.slots[ticket.slot as usize];
        debug_assert!(
            slot.place.line == NONE,
            "a waiting ask has left its queue first"
        );
        slot.serial = 0;
        slot.place.next = self.free;
        let reply = slot.reply.take();
        self.free = ticket.slot;
        self.len -= 1;
        if self.len == 0 && self.slots.len() > IDLE_SLOTS_MAX {
            self.slots = Vec::new();
            self.free = NONE;
        }
        reply
    }

    pub(crate) fn ticket(&self, slot: u32) -> Ticket {
        let serial = self.slots[slot as usize].serial;
        Ticket { serial, slot }
    }

    pub(crate) fn place(&self, slot: u32) -> &Place {
        &self.slots[slot as usize].place
    }

    pub(crate) fn place_mut(&mut self, slot: u32) -> &mut Place {
        &mut self.slots[slot as usize].place
    }
}

impl Tags {
    fn add(&mut self, slot: u32, tag: Tag) {
        let prev = self.newest_of.insert(tag, slot).unwrap_or(NONE);
        if let Some(older) = self.tagged.get_mut(&prev) {
            older.next = slot;
        }
        let next = NONE;
        let before = self.tagged.insert(slot, Tagged { tag, prev, next });
        debug_assert!(before.is_none(), "a ticket has at most one tag");
    }

    fn remove(&mut self, slot: u32) {
        let Some(Tagged { tag, prev, next }) = self.tagged.remove(&slot) else {
            return;
        };
        if let Some(older) = self.tagged.get_mut(&prev) {
            older.next = next;
        }
        if let Some(newer) = self.tagged.get_mut(&next) {
            newer.prev = prev;
        } else if prev == NONE {
            self.newest_of.remove(&tag);
        } else {
            self.newest_of.insert(tag, prev);
        }
    }
}

impl Place {
    const fn nowhere() -> Self {
        Self {
            sent: Instant::START,
            deadline: Instant::NEVER,
            flow: Flow(0),
            prev: NONE,
            next: NONE,
            line: NONE,
            promised: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_never_given_twice() {
        let mut ledger = Ledger::default();
        let first = ledger.open('a');
        assert_eq!(ledger.close(first), Some('a'));
        let second = ledger.open('b');
        assert_ne!(first, second);
        assert_eq!(ledger.close(first), None);
        assert_eq!(ledger.close(second), Some('b'));
    }

    #[test]
    fn a_tag_knows_its_open_tickets_newest_first() {
        let mut ledger = Ledger::default();
        let tickets: Vec<_> = ["a", "b", "c"].map(|name| ledger.open(name)).into();
        for ticket in &tickets {
            ledger.tag(*ticket, Tag(7));
        }
        ledger.close(tickets[1]);
        assert_eq!(ledger.newest(Tag(7)), Some(tickets[2]));
        ledger.close(tickets[2]);
        assert_eq!(ledger.newest(Tag(7)), Some(tickets[0]));
        ledger.close(tickets[0]);
        assert_eq!(ledger.newest(Tag(7)), None);
        let tags = ledger.tags.unwrap();
        assert!(tags.tagged.is_empty() && tags.newest_of.is_empty());
    }

    #[test]
    fn a_ticket_that_is_held_has_no_reply_and_no_tag_but_stays_open() {
        let (mut ledger, granted) = (Ledger::default(), Instant::from_nanos(7));
        let ticket = ledger.open('a');
        ledger.tag(ticket, Tag(7));
        assert_eq!(ledger.hold(ticket, granted), Some('a'));
        assert_eq!(ledger.hold(ticket, granted), None);
        assert_eq!(ledger.newest(Tag(7)), None);
        assert!(ledger.is_open(ticket) && ledger.reply(ticket).is_none());
        assert_eq!(ledger.sent(ticket), granted);
        assert_eq!(ledger.close(ticket), None);
        assert!(!ledger.is_open(ticket) && ledger.is_empty());
    }

    #[test]
    fn a_burst_is_given_back_when_the_last_is_gone() {
        let mut ledger = Ledger::default();
        let tickets: Vec<_> = (0..5000).map(|n| ledger.open(n)).collect();
        for ticket in tickets {
            ledger.close(ticket);
        }
        assert_eq!(ledger.slots.capacity(), 0);
    }
}
