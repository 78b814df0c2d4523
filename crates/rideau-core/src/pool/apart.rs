//! Takers who can be served without asking the pool each time.

use std::time::Duration;

use crate::histogram::Histogram;
use crate::ids::Ticket;
use crate::ledger::Reply;
use crate::time::Instant;
use crate::waiting::Apart;

use super::effect::Effect;
use super::{Mode, Pool};

impl<R: Reply> Pool<R> {
    /// Nobody could be wronged if each member that comes back fine goes to who
    /// came first without asking, as long as nobody waits for this long: not
    /// who waits now, and not so many more on the usual terms.
    pub fn apart_for(&self, more: usize, now: Instant) -> Option<Duration> {
        let counts = self.members.counts();
        let is_settled = self.mode == Mode::Running
            && self.valve.is_none()
            && self.ration.is_none()
            // Neither more nor fewer are wanted.
            && counts.held == self.max()
            && counts.size() == counts.held
            && self.options.check_after != Some(Duration::ZERO);
        if !is_settled {
            return None;
        }
        self.lines.apart_for(more, now)
    }

    /// Let all who wait go where they are served without asking, those who came
    /// first first.
    pub fn part(&mut self, parts: impl FnMut(Apart<R>)) {
        self.lines.part(parts);
    }

    /// Members came back and were handed on without asking: after such waits,
    /// and held for so long before.
    pub fn served_apart(&mut self, waits: &Histogram, holds: &Histogram) {
        if waits.is_empty() {
            return;
        }
        self.lines.count_apart(waits);
        self.tallies.count_holds(holds);
    }

    /// One who waited apart waits here from now on. Say when the last has come
    /// back by [`rejoined`](Self::rejoined).
    pub fn rejoin(&mut self, apart: Apart<R>, now: Instant) -> Ticket {
        self.lines.rejoin(apart, now)
    }

    /// All who waited apart have come back.
    pub fn rejoined(&mut self, now: Instant, effects: &mut Vec<Effect<R>>) {
        self.finish(now, effects);
    }
}
