//! Leases that were taken from live holders, until these are told.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{LeaseTable, Rare, SLOT_BITS, Taken};
use crate::state::end::{EndReason, NotHeld};
use crate::state::holder::HolderId;
use crate::state::ticket::Ticket;

/// This many losses of one holder are told one by one.
const LOST_MAX: usize = 64;

/// Something that a holder has lost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lost {
    /// Its ticket.
    pub ticket: Ticket,
    /// Why.
    pub why: EndReason,
    /// When, by the clock of the lease table.
    at: u64,
}

impl Lost {
    /// How long ago that was.
    pub(crate) fn ago(&self, now: u64) -> Duration {
        Duration::from_nanos(now.saturating_sub(self.at))
    }
}

impl LeaseTable {
    /// Take something from its holder, which is told when it is seen again.
    ///
    /// # Errors
    ///
    /// If there is nothing under the ticket.
    pub(crate) fn take_from(&self, ticket: Ticket, why: EndReason) -> Result<Taken, NotHeld> {
        let at = self.now();
        let (mut shard, place) = self.find(ticket)?;
        let slot = &shard.slots[place];
        let (holder, is_told) = (slot.holder, slot.thing.grant().is_some());
        if is_told {
            let rare = shard.holders[holder].rare.get_or_insert_default();
            if rare.lost.len() < LOST_MAX {
                rare.lost.push(Lost { ticket, why, at });
                self.untold.fetch_add(1, Ordering::Release);
            }
        }
        Ok(shard.take_out(ticket.place >> SLOT_BITS, place, at, why))
    }

    /// Some holder has lost something and has not been told.
    #[inline]
    pub(crate) fn has_untold(&self) -> bool {
        self.untold.load(Ordering::Acquire) > 0
    }

    /// The leases that a holder has lost since it was last told.
    pub(crate) fn untold_of(&self, holder: HolderId) -> Vec<Lost> {
        let mut shard = self.shards[holder.shard as usize].lock();
        if shard.holder(holder).is_none() {
            return Vec::new();
        }
        let Some(rare) = &mut shard.holders[holder.at].rare else {
            return Vec::new();
        };
        let lost = std::mem::take(&mut rare.lost);
        self.untold.fetch_sub(lost.len(), Ordering::Release);
        lost
    }

    /// A holder has been told of one loss.
    pub(crate) fn tell_lost(&self, ticket: Ticket) {
        if !self.has_untold() {
            return;
        }
        let mut shard = self.shards[(ticket.place >> SLOT_BITS) as usize].lock();
        for holder in shard.holders.iter_mut() {
            let Some(rare) = &mut holder.rare else {
                continue;
            };
            let before = rare.lost.len();
            rare.lost.retain(|lost| lost.ticket != ticket);
            let told = before - rare.lost.len();
            self.untold.fetch_sub(told, Ordering::Release);
        }
    }

    /// No holder is told of these any more.
    pub(super) fn forget_untold(&self, rare: Option<&Rare>) {
        let count = rare.map_or(0, |rare| rare.lost.len());
        self.untold.fetch_sub(count, Ordering::Release);
    }
}
