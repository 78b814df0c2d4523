//! When those who wait do not need the queue.

use std::time::Duration;

use super::{Order, Queue, Shape, Shedding};
use crate::ids::Flow;
use crate::ledger::Ledger;
use crate::time::Instant;

impl Queue {
    /// As long as nobody waits for this long, the queue does nothing but serve
    /// who came first: not for those who wait, and not for so many more on the
    /// usual terms, who give up after twice as long or later.
    pub(crate) fn apart_for<R>(
        &self,
        ledger: &Ledger<R>,
        more: usize,
        now: Instant,
    ) -> Option<Duration> {
        let patience = self.patience()?;
        let Shape::Single(line) = &self.shape else {
            return None;
        };
        let most = self.options.max.map_or(usize::MAX, |max| max as usize);
        let is_plain = self.order == Order::Fifo
            && self.len().saturating_add(more) <= most
            && !self.is_shedding(now);
        if !is_plain {
            return None;
        }
        let is_usual = |slot| {
            let place = ledger.place(slot);
            let until = place.sent + patience;
            place.flow == Flow(0) && place.deadline >= until + patience && until > now
        };
        line.all(ledger, is_usual).then_some(patience)
    }

    /// The law has nothing to say of waits below twice this: whoever was passed
    /// by others meanwhile can be served before it has.
    fn patience(&self) -> Option<Duration> {
        let quiet = match self.options.shedding {
            Shedding::Never => Duration::MAX,
            Shedding::Timeout { wait_max } => wait_max,
            Shedding::CoDel { target, .. } | Shedding::BoundedCoDel { target, .. } => target,
            Shedding::Paced { .. } => super::paced::QUIET,
            Shedding::MinDelay { .. } | Shedding::Standing { .. } | Shedding::Custom(_) => {
                return None;
            }
        };
        Some((quiet / 2).min(PATIENCE_MAX))
    }

    /// Let everybody out of the line, oldest first. Their tickets stay open.
    pub(crate) fn part<R>(&mut self, ledger: &mut Ledger<R>) -> Vec<u32> {
        let slots = self.clear(ledger);
        self.expiry.clear();
        slots
    }
}

/// Who waits for so long is better seen to by the queue, whatever its law.
const PATIENCE_MAX: Duration = Duration::from_secs(1);
