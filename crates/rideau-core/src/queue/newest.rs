//! Serves the newest of a line under laws that have to look at the others.

use super::Step;
use super::codel::Verdict;
use super::law::Law;
use super::line::{Limits, Line};
use crate::ledger::NONE;
use crate::refusal::Reason;

impl Line {
    pub(super) fn pop_newest_by_codel<R>(
        &mut self,
        limits: &Limits,
        step: &mut Step<'_, R>,
    ) -> Option<u32> {
        let min = limits.min;
        let Law::CoDel(codel) = &mut self.law else {
            unreachable!("only called for this law");
        };
        if self.plain.tail == NONE {
            codel.found_empty(step.now);
            return None;
        }
        if step.is_spent() {
            return None;
        }
        let was_due = codel.is_due(step.now);
        let had_spare = self.len > min;
        if !had_spare {
            codel.calm(step.now);
        }
        let taken = self.take(self.plain.tail, step)?;
        if !had_spare {
            return Some(taken);
        }
        self.settle(min.saturating_sub(1), limits, step);

        let Law::CoDel(codel) = &mut self.law else {
            unreachable!("the law did not change");
        };
        let sent = step.ledger.place(taken).sent;
        if self.len < min {
            codel.calm(step.now);
        } else if codel.is_over_bound(sent, step.now) {
            step.shed(taken, Reason::Bound);
            return self.pop_newest_by_codel(limits, step);
        } else if self.len == 0
            && was_due
            && let Verdict::Shed(reason) = codel.judge_last(sent, step.now)
        {
            step.shed(taken, reason);
            return None;
        }
        Some(taken)
    }

    /// The oldest tells how long waits are: the newest never waits.
    pub(super) fn pop_newest_by_oldest<R>(
        &mut self,
        limits: &Limits,
        step: &mut Step<'_, R>,
    ) -> Option<u32> {
        while self.plain.head != NONE && !step.is_spent() {
            let spare = self.len > limits.min;
            let waited = step.now.nanos_since(self.plain.sent);
            let verdict = match &mut self.law {
                Law::MinDelay(law) => law.judge(waited, spare, step.now),
                Law::Custom(own) => own.judge(self.plain.sent, spare, step.now),
                _ => unreachable!("only called for these laws"),
            };
            match verdict {
                Verdict::Shed(reason) => self.shed_oldest(reason, step),
                Verdict::Keep => return self.take(self.plain.tail, step),
            }
        }
        None
    }
}
