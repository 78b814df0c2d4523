//! Which member goes to which take.

use std::time::Duration;

use crate::ledger::Reply;
use crate::queue::AskOptions;
use crate::time::{Instant, nanos};

use super::effect::{Effect, Grant};
use super::members::Doing;
use super::{Mode, Pool, Priority, Reuse};

impl<R: Reply> Pool<R> {
    /// An idle member for a take that came just now.
    #[inline]
    pub(super) fn idle_at_once(
        &mut self,
        terms: &AskOptions,
        now: Instant,
        effects: &mut Vec<Effect<R>>,
    ) -> Option<u32> {
        if self.mode != Mode::Running || !self.lines.is_empty() {
            return None;
        }
        let slot = self.next_idle(now, effects)?;
        // A take that does not wait cannot wait for a check either.
        if !terms.wait || !self.is_stale(slot, now) {
            return Some(slot);
        }
        let fresh = self.fresh_idle(now, effects)?;
        if self.members.counts().checking == 0 {
            self.begin_check(slot, now, effects);
        }
        Some(fresh)
    }

    /// A take gets nothing; the next one should have more luck.
    pub(super) fn help_next(&mut self, now: Instant, effects: &mut Vec<Effect<R>>) {
        let counts = self.members.counts();
        let coming = counts.idle + counts.checking + counts.starting;
        self.ahead = self.ahead.max(1_usize.saturating_sub(coming));
        // Idle ones were not good enough, and no take may wait for a check.
        let helps = self.mode == Mode::Running && self.lines.is_empty() && counts.checking == 0;
        if let Some(slot) = self.members.oldest().filter(|_| helps)
            && self.is_stale(slot, now)
        {
            self.begin_check(slot, now, effects);
        }
    }

    pub(super) fn grant_at_once(
        &mut self,
        slot: u32,
        terms: &AskOptions,
        priority: Priority,
        now: Instant,
    ) -> Grant {
        let lead = terms.sent.lead_over(self.members.idle_since(slot));
        self.lines.find_nobody();
        self.members.turn(slot, Doing::Out);
        self.feed_valve(lead.reversed(), now);
        let idle = self.members.counts().idle;
        if self.options.grow_at.is_some_and(|grow_at| idle <= grow_at) {
            let batch = self.options.init.max(1);
            self.ahead = self.ahead.max(batch.saturating_sub(self.starting()));
        }
        let waited = self.lines.count_passed(priority, terms.sent, now);
        Grant { slot, lead, waited }
    }

    /// The idle member to be taken next; those whose life is over are retired.
    fn next_idle(&mut self, now: Instant, effects: &mut Vec<Effect<R>>) -> Option<u32> {
        loop {
            let slot = match self.options.reuse {
                Reuse::Lifo => self.members.newest()?,
                Reuse::Fifo => self.members.oldest()?,
            };
            match self.why_retire(slot, now) {
                Some(why) => self.retire(slot, why, now, effects),
                None => return Some(slot),
            }
        }
    }

    /// An idle member that need not be checked. Where the first released is the
    /// first taken, the one that is next may have to be while others are fresh.
    fn fresh_idle(&mut self, now: Instant, effects: &mut Vec<Effect<R>>) -> Option<u32> {
        loop {
            let slot = self.members.newest()?;
            if self.is_stale(slot, now) {
                return None;
            }
            match self.why_retire(slot, now) {
                Some(why) => self.retire(slot, why, now, effects),
                None => return Some(slot),
            }
        }
    }

    /// The next taker waits already, and gets nothing unchecked.
    #[inline]
    pub(super) fn is_to_check(&self) -> bool {
        self.options.check_after == Some(Duration::ZERO) && !self.lines.is_empty()
    }

    /// It was idle for so long that it has to be checked.
    pub(super) fn is_stale(&self, slot: u32, now: Instant) -> bool {
        let idle = now.nanos_since(self.members.idle_since(slot).min(now));
        self.options
            .check_after
            .is_some_and(|after| after.is_zero() || idle > nanos(after))
    }

    /// Give idle members to the takes that wait.
    #[inline]
    pub(super) fn serve(&mut self, now: Instant, effects: &mut Vec<Effect<R>>) {
        if self.mode != Mode::Running {
            return;
        }
        while !self.lines.is_empty() {
            let Some(next) = self.next_idle(now, effects) else {
                return;
            };
            let fresh = match self.is_stale(next, now) {
                true if self.lines.len() > self.members.counts().checking => {
                    self.begin_check(next, now, effects);
                    continue;
                }
                true => self.fresh_idle(now, effects),
                false => Some(next),
            };
            let granted = fresh.is_some_and(|slot| self.grant_next(slot, now, effects));
            if !granted {
                return;
            }
        }
    }

    /// A member can be used: by a take that waits, or later.
    #[inline]
    pub(super) fn give(&mut self, slot: u32, now: Instant, effects: &mut Vec<Effect<R>>) {
        if let Some(why) = self.why_retire(slot, now) {
            self.retire(slot, why, now, effects);
        } else if self.mode != Mode::Running {
            self.members.turn(slot, Doing::Idle { since: now });
        } else if !self.grant_next(slot, now, effects) {
            if self.lines.is_empty() {
                self.lines.find_nobody();
            }
            self.members.turn(slot, Doing::Idle { since: now });
        }
    }

    /// Grant a member to the one whose turn it is; false if there is none.
    #[inline]
    pub(super) fn grant_next(
        &mut self,
        slot: u32,
        now: Instant,
        effects: &mut Vec<Effect<R>>,
    ) -> bool {
        let Some((sent, reply, waited)) = self.lines.serve(now) else {
            return false;
        };
        // One that is handed on stays out, and its slot need not be touched.
        let doing = self.members.at(slot).doing;
        let since = match doing {
            Doing::Idle { since } => since,
            _ => now,
        };
        let lead = sent.lead_over(since);
        if doing != Doing::Out {
            self.members.turn(slot, Doing::Out);
        }
        self.feed_valve(lead.reversed(), now);
        let grant = Grant { slot, lead, waited };
        effects.push(Effect::Grant { reply, grant });
        true
    }
}
