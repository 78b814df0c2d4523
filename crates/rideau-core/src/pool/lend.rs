//! Members that can be taken without asking the pool each time.

use crate::ledger::Reply;
use crate::time::Instant;

use super::members::Doing;
use super::{Mode, Pool, Reuse};

impl<R: Reply> Pool<R> {
    /// Let idle members go where they can be taken without asking, if no take
    /// could be wronged by that; those to be taken first come last.
    pub fn lend(&mut self, lent: &mut Vec<u32>) {
        if !self.may_lend() {
            return;
        }
        let kept = self.options.grow_at.map_or(0, |idle| idle + 1);
        let kept = kept.max(self.options.idle_min);
        let mut next = self.members.oldest();
        for _ in 0..kept {
            next = next.and_then(|slot| self.members.newer(slot));
        }
        self.look = self.next_look(next);
        while let Some(slot) = next {
            next = self.members.newer(slot);
            self.members.turn(slot, Doing::Out);
            lent.push(slot);
        }
    }

    /// When one of those that are out may have been idle for too long: the
    /// first of those that are lent now, or one that is held and will be put
    /// with them unseen.
    fn next_look(&self, lent: Option<u32>) -> Option<Instant> {
        let age = self.options.idle_age_max?;
        let counts = self.members.counts();
        let enough =
            counts.live() > self.options.init && counts.idle + counts.held > self.options.idle_min;
        let held = (counts.held > 0).then_some(self.seen);
        let since = lent.map(|slot| self.members.idle_since(slot)).or(held);
        since.filter(|_| enough).map(|since| since + age)
    }

    /// No take could be wronged by members that are taken without asking.
    #[inline]
    pub fn may_lend(&self) -> bool {
        self.mode == Mode::Running
            && self.lines.is_empty()
            && self.valve.is_none()
            && self.options.reuse == Reuse::Lifo
            && self.members.counts().live() <= self.max()
            // A pool that grows has many steps, and each would call all back.
            && self.members.counts().starting == 0
            && !self.is_pressed()
    }

    /// Members that were lent were taken without asking.
    #[inline]
    pub fn taken_unasked(&mut self) {
        self.lines.find_nobody();
    }

    /// A member that was lent has been idle since then.
    pub fn recall(&mut self, slot: u32, since: Instant) {
        debug_assert_eq!(self.members.at(slot).doing, Doing::Out);
        self.look = None;
        self.lines.find_nobody();
        self.members.turn(slot, Doing::Idle { since });
        let member = self.members.at(slot);
        if member.leaves.is_some() || member.until <= self.seen {
            // Its end came while it was out: nothing else will notice.
            self.lives.push(member.until, (slot, member.id));
        }
    }

    /// Take this very member, if it is idle, whatever waits.
    pub fn take_idle(&mut self, slot: u32) -> bool {
        let is_idle = matches!(self.members.at(slot).doing, Doing::Idle { .. });
        if is_idle {
            self.members.turn(slot, Doing::Out);
        }
        is_idle
    }

    /// Every idle member, the longest idle first.
    pub fn idle_slots(&self) -> Vec<u32> {
        let next = |slot: &u32| self.members.newer(*slot);
        std::iter::successors(self.members.oldest(), next).collect()
    }
}
