//! Members that can be taken without asking the pool each time.

use crate::ledger::Reply;
use crate::time::Instant;

use super::members::Doing;
use super::{Mode, Pool, Reuse};

impl<R: Reply> Pool<R> {
    /// Let idle members go where they can be taken without asking, if nobody
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
        while let Some(slot) = next {
            next = self.members.newer(slot);
            self.members.turn(slot, Doing::Out);
            lent.push(slot);
        }
    }

    /// Nobody could be wronged by members that are taken without asking.
    #[inline]
    pub fn may_lend(&self) -> bool {
        self.mode == Mode::Running
            && self.lines.is_empty()
            && self.valve.is_none()
            && self.options.reuse == Reuse::Lifo
            && self.members.counts().live() <= self.options.max
    }

    /// A member that was lent has been idle since then.
    pub fn recall(&mut self, slot: u32, since: Instant) {
        debug_assert_eq!(self.members.at(slot).doing, Doing::Out);
        self.members.turn(slot, Doing::Idle { since });
        let member = self.members.at(slot);
        if member.leaves.is_some() {
            // It was lost while it lay there: nobody else will notice.
            self.lives.push(member.until, (slot, member.id));
        }
    }
}
