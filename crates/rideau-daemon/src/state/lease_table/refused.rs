//! Answers that are kept with their tickets, so that they can be fetched again and again.

use super::{LeaseEntry, LeaseTable, Rare, Shard};
use crate::state::answer::Outcome;
use crate::state::end::EndReason;
use crate::state::ticket::Ticket;

/// This many refused asks are kept of each holder, so that it can fetch the answer
/// again and again.
const REFUSED_MAX: usize = 1024;

impl LeaseTable {
    /// An ask with `ASYNC` was granted at once, and this is the answer.
    pub(crate) fn set_answer(&self, ticket: Ticket, outcome: Outcome) {
        let Ok((mut shard, at)) = self.find(ticket) else {
            return;
        };
        let thing = &mut shard.slots[at].thing;
        *thing = match std::mem::replace(thing, LeaseEntry::None) {
            LeaseEntry::Held(grant) => LeaseEntry::Answered(grant, Box::new(outcome)),
            other => other,
        };
    }

    /// An ask got a refusal, which is kept for its holder. It counts no more among what
    /// the holder has.
    pub(crate) fn refuse(&self, ticket: Ticket) {
        let now = self.now();
        let Ok((mut shard, at)) = self.find(ticket) else {
            return;
        };
        let forgotten = shard.refuse(at, now);
        drop(shard);
        drop(forgotten);
    }
}

impl Shard {
    /// Keep a refusal. Says what is forgotten for it, if there are too many.
    fn refuse(&mut self, at: u32, now: u64) -> Option<LeaseEntry> {
        let slot = &mut self.slots[at];
        slot.since = now;
        slot.is_refused = true;
        let (secret, holder) = (slot.secret, slot.holder);
        let owner = &mut self.holders[holder];
        let Rare {
            refused_len,
            refused,
            ..
        } = &mut **owner.rare.get_or_insert_default();
        *refused_len += 1;
        refused.push_back((at, secret));
        if refused.len() <= REFUSED_MAX {
            return None;
        }
        let (oldest, secret) = refused.pop_front()?;
        let slot = self.slots.find_mut(oldest);
        let slot = slot.filter(|slot| slot.secret == secret)?;
        let thing = std::mem::replace(&mut slot.thing, LeaseEntry::None);
        self.free_slot(oldest, now, EndReason::Refused);
        Some(thing)
    }
}
