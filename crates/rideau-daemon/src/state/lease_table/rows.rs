//! Leases and pending asks as rows, to be shown or found.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::{LeaseEntry, LeaseTable, NONE, SLICE, SLOT_BITS, Shard, Slot};
use crate::state::end::{EndReason, NotHeld};
use crate::state::grant::Grant;
use crate::state::holder::{Holder, HolderId};
use crate::state::pending::Later;
use crate::state::ticket::Ticket;

/// One thing that is held, to be shown.
#[derive(Clone, Debug)]
pub(crate) struct LeaseRow {
    /// Its ticket.
    pub ticket: Ticket,
    /// The name of what it is of.
    pub name: String,
    /// The thing that is held.
    pub value: String,
    /// For how long.
    pub held: Duration,
    /// The note of the holder.
    pub note: Option<String>,
    /// The holder that has it.
    pub card: Arc<Holder>,
    /// It waits, and is not held yet.
    pub is_waiting: bool,
    /// Since when, in nanoseconds since the lease table began.
    since: u64,
}

impl LeaseRow {
    /// Another one for each row, which grows from the oldest to the newest.
    pub(crate) fn key(&self) -> u128 {
        u128::from(self.since) << 32 | u128::from(self.ticket.place)
    }
}

impl LeaseTable {
    /// The row of a ticket.
    ///
    /// # Errors
    ///
    /// If there is nothing under the ticket, or it is not this user's.
    pub(crate) fn row(&self, ticket: Ticket, user: Option<&str>) -> Result<LeaseRow, NotHeld> {
        let now = self.now();
        let (shard, at) = self.find(ticket)?;
        let Some(row) = shard.row(ticket.place >> SLOT_BITS, at, now) else {
            shard.check_user(at, user)?;
            let since = shard.slots[at].since;
            return Err(NotHeld::Stale {
                ago: Duration::from_nanos(now.saturating_sub(since)),
                why: EndReason::Refused,
            });
        };
        if user.is_some_and(|user| *user != *row.card.user) {
            return Err(NotHeld::Foreign);
        }
        Ok(row)
    }

    /// The rows of a holder, the newest first.
    pub(crate) fn rows(&self, holder: HolderId) -> Vec<LeaseRow> {
        let now = self.now();
        let shard = self.shards[holder.shard as usize].lock();
        let mut rows = Vec::new();
        if shard.holder(holder).is_some_and(|slot| slot.len > SLICE) {
            drop(shard);
            self.each_slot_of(holder.shard, |shard, at| {
                let is_its = shard.slots[at].holder == holder.at;
                if is_its && shard.holder(holder).is_some() {
                    rows.extend(shard.row(holder.shard, at, now));
                }
            });
            rows.sort_unstable_by_key(|row| Reverse(row.key()));
            return rows;
        }
        let mut at = shard.holder(holder).map_or(NONE, |slot| slot.first);
        while at != NONE {
            rows.extend(shard.row(holder.shard, at, now));
            at = shard.slots[at].next;
        }
        rows
    }

    /// All that is held, in no order.
    pub(crate) fn all(&self) -> Vec<LeaseRow> {
        let now = self.now();
        let mut rows = Vec::new();
        self.each_slot(|shard, shard_at, at| rows.extend(shard.row(shard_at, at, now)));
        rows
    }

    /// The oldest rows that are wanted behind the one with this key, and how many of the wanted
    /// there are in all. Only rows that may be among them are made, unless it takes a row to
    /// tell which are wanted.
    pub(crate) fn oldest(
        &self,
        from: u128,
        most: usize,
        wanted: Option<&dyn Fn(&LeaseRow) -> bool>,
    ) -> (Vec<LeaseRow>, usize) {
        let now = self.now();
        let mut first: BTreeMap<u128, LeaseRow> = BTreeMap::new();
        let mut total = 0;
        self.each_slot(|shard, shard_at, at| {
            let slot = &shard.slots[at];
            if !slot.is_shown() {
                return;
            }
            let place = shard.ticket(shard_at, at).place;
            let key = u128::from(slot.since) << 32 | u128::from(place);
            let last = first.last_key_value().map(|(last, _)| *last);
            let fits = first.len() < most || last.is_some_and(|last| key < last);
            let is_first = key > from && fits;
            if wanted.is_none() && !is_first {
                total += 1;
                return;
            }
            let Some(row) = shard.row(shard_at, at, now) else {
                return;
            };
            if wanted.is_some_and(|wanted| !wanted(&row)) {
                return;
            }
            total += 1;
            if is_first && most > 0 {
                first.insert(key, row);
                if first.len() > most {
                    first.pop_last();
                }
            }
        });
        (first.into_values().collect(), total)
    }

    /// Look at every place of every shard. Others have their turn between slices, so what
    /// comes and goes meanwhile is seen or not.
    fn each_slot(&self, mut look: impl FnMut(&Shard, u32, u32)) {
        for shard_at in 0..self.shards.len() as u32 {
            self.each_slot_of(shard_at, |shard, at| look(shard, shard_at, at));
        }
    }

    fn each_slot_of(&self, shard_at: u32, mut look: impl FnMut(&Shard, u32)) {
        let mut next = 0;
        loop {
            let shard = self.shards[shard_at as usize].lock();
            let end = shard.slots.end().min(next + SLICE);
            let there = (next..end).map(|at| at as u32);
            let there = there.filter(|at| shard.slots.find(*at).is_some());
            there.for_each(|at| look(&shard, at));
            if end == shard.slots.end() {
                return;
            }
            next = end;
        }
    }

    /// About the number of held things; never fewer.
    pub(crate) fn places(&self) -> usize {
        self.shards
            .iter()
            .map(|shard| shard.lock().slots.places())
            .sum()
    }

    /// Asks that wait, of holders that are wanted.
    pub(crate) fn asked(
        &self,
        wanted: impl Fn(&Holder) -> bool,
    ) -> Vec<(Ticket, Arc<Holder>, Arc<Later>)> {
        let mut asked = Vec::new();
        self.each_slot(|shard, shard_at, at| {
            let slot = &shard.slots[at];
            let LeaseEntry::Asked(later) = &slot.thing else {
                return;
            };
            if slot.is_refused {
                return;
            }
            if let Some(card) = shard.card_of(at).filter(|card| wanted(card)) {
                let ticket = shard.ticket(shard_at, at);
                asked.push((ticket, card, Arc::clone(later)));
            }
        });
        asked
    }

    /// A holder that holds something that is wanted.
    pub(crate) fn holder_of(&self, wanted: impl Fn(&Grant) -> bool) -> Option<Arc<Holder>> {
        self.shards.iter().find_map(|shard| {
            let shard = shard.lock();
            let is_it = |slot: &Slot| slot.thing.grant().is_some_and(&wanted);
            let (place, _) = shard.slots.iter().find(|(_, slot)| is_it(slot))?;
            shard.card_of(place)
        })
    }

    /// Something is held that is wanted.
    pub(crate) fn has(&self, wanted: impl Fn(&Grant) -> bool) -> bool {
        self.shards.iter().any(|shard| {
            let is_it = |slot: &Slot| slot.thing.grant().is_some_and(&wanted);
            shard.lock().slots.iter().any(|(_, slot)| is_it(slot))
        })
    }

    /// All that is held and wanted, for so long.
    pub(crate) fn late(&self, wanted: impl Fn(&Grant, Duration) -> bool) -> Vec<LeaseRow> {
        let now = self.now();
        let mut rows = Vec::new();
        self.each_slot(|shard, shard_at, at| {
            let slot = &shard.slots[at];
            let held = Duration::from_nanos(now.saturating_sub(slot.since));
            if slot.thing.grant().is_some_and(|grant| wanted(grant, held)) {
                rows.extend(shard.row(shard_at, at, now));
            }
        });
        rows
    }
}

impl Slot {
    /// It has something that is held or waited for.
    const fn is_shown(&self) -> bool {
        let is_there = match &self.thing {
            LeaseEntry::Held(_) | LeaseEntry::Answered(..) => true,
            // There is nothing to wait for any more.
            LeaseEntry::Asked(_) => !self.is_refused,
            LeaseEntry::None => false,
        };
        is_there && self.secret != 0
    }
}

impl Shard {
    fn row(&self, shard: u32, at: u32, now: u64) -> Option<LeaseRow> {
        let slot = &self.slots[at];
        let card = self.card_of(at).filter(|_| slot.secret != 0)?;
        let (name, value, is_waiting) = match &slot.thing {
            LeaseEntry::Held(grant) | LeaseEntry::Answered(grant, _) => {
                (grant.name(), grant.value(), false)
            }
            // There is nothing to wait for any more.
            LeaseEntry::Asked(_) if slot.is_refused => return None,
            LeaseEntry::Asked(later) => (later.name().to_owned(), String::new(), true),
            LeaseEntry::None => return None,
        };
        Some(LeaseRow {
            ticket: self.ticket(shard, at),
            name,
            value,
            held: Duration::from_nanos(now.saturating_sub(slot.since)),
            note: slot.note.as_deref().map(str::to_owned),
            card,
            is_waiting,
            since: slot.since,
        })
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use rideau_core::cluster::SlotTag;

    use super::*;
    use crate::state::ticket::TicketKind;

    fn open(lease_table: &LeaseTable) -> HolderId {
        lease_table.open(Arc::new(Holder {
            name: Mutex::default(),
            user: "".into(),
            session: None,
            connection: None,
        }))
    }

    fn keep(lease_table: &LeaseTable, holder: HolderId) -> Ticket {
        let kept = lease_table.keep(
            holder,
            (TicketKind::Lock, SlotTag::NONE),
            LeaseEntry::None,
            None,
            usize::MAX,
            0,
        );
        kept.ok().expect("the holder is there")
    }

    fn end(lease_table: &LeaseTable, holder: HolderId) {
        let ending = lease_table.close(holder).expect("it has not ended");
        while !lease_table.end_some(&ending, EndReason::Lost).is_empty() {}
    }

    #[test]
    fn a_crowd_of_holders_leaves_few_places() {
        let lease_table = LeaseTable::default();
        let stays = open(&lease_table);
        let ticket = keep(&lease_table, stays);
        let crowd: Vec<HolderId> = (0..10_000).map(|_| open(&lease_table)).collect();
        for holder in &crowd {
            for _ in 0..20 {
                keep(&lease_table, *holder);
            }
        }
        assert!(lease_table.places() >= 200_000);
        crowd.iter().for_each(|holder| end(&lease_table, *holder));
        assert!(lease_table.places() <= 10_000, "{}", lease_table.places());
        let holders = lease_table
            .shards
            .iter()
            .map(|shard| shard.lock().holders.places());
        assert!(holders.sum::<usize>() <= 10_000);
        assert_eq!(
            lease_table.count(stays),
            1,
            "a holder that stays keeps its leases"
        );
        assert!(lease_table.take(ticket, None, EndReason::Released).is_ok());
    }

    #[test]
    fn a_holder_is_not_taken_for_one_that_had_its_place() {
        let lease_table = LeaseTable::default();
        let (first, ticket) = {
            let first = open(&lease_table);
            (first, keep(&lease_table, first))
        };
        end(&lease_table, first);
        // As many as there are shards: one of them has the same place.
        let others: Vec<HolderId> = (0..64).map(|_| open(&lease_table)).collect();
        assert!(
            others
                .iter()
                .any(|other| other.at == first.at && other.shard == first.shard)
        );
        for other in &others {
            keep(&lease_table, *other);
        }
        assert!(lease_table.close(first).is_none());
        assert_eq!(lease_table.count(first), 0);
        let kept = lease_table.keep(
            first,
            (TicketKind::Lock, SlotTag::NONE),
            LeaseEntry::None,
            None,
            usize::MAX,
            0,
        );
        assert!(kept.is_err());
        assert!(matches!(
            lease_table.take(ticket, None, EndReason::Released),
            Err(NotHeld::Stale { .. })
        ));
    }
}
