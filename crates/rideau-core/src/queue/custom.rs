//! A law that the user of the library brings.

use std::fmt::Debug;

use super::codel::Verdict;
use crate::custom::Custom;
use crate::refusal::Reason;
use crate::time::Instant;

/// A law of your own, over one line of a queue.
///
/// A law only looks at the oldest ask, by when it was sent; it is asked again
/// for the next one until it keeps one. It is never asked about an ask that the
/// queue's `min` protects, and what it wants shed beyond that stays. Calls come
/// with a `now` that never runs backwards. A law is pure: it has no clock, and
/// does the same for the same calls. [`kit`](crate::kit) has checks for it.
pub trait CustomLaw: Debug + Send {
    /// An ask is about to be served. True to shed the oldest before that.
    fn sheds_at_serve(&mut self, oldest: Instant, now: Instant) -> bool;

    /// Time has passed, or an ask has come or gone, and none is served. True to
    /// shed the oldest.
    fn sheds(&mut self, oldest: Instant, now: Instant) -> bool;

    /// When [`sheds`](Self::sheds) has to be asked although nothing happens. If
    /// that is at once or has passed, it is asked a millisecond after the last
    /// time.
    fn due(&self, oldest: Instant) -> Option<Instant>;

    /// The queue is overloaded, as this law sees it.
    fn is_shedding(&self) -> bool {
        false
    }
}

/// A law is not asked more often by time alone.
const LEAST_GAP: u64 = 1_000_000;

/// A law of the user's, and when it was asked last.
#[derive(Debug)]
pub(super) struct Own {
    pub(super) made_by: Custom<dyn CustomLaw>,
    law: Box<dyn CustomLaw>,
    /// It kept the oldest at this time, and nothing came since.
    kept: Instant,
}

impl Own {
    pub(super) fn new(custom: &Custom<dyn CustomLaw>, now: Instant) -> Self {
        Self {
            made_by: custom.clone(),
            law: custom.make(now),
            kept: now,
        }
    }

    /// Judge the oldest before one is served; `spare` if more than the protected
    /// minimum wait.
    pub(super) fn judge(&mut self, oldest: Instant, spare: bool, now: Instant) -> Verdict {
        if spare && self.law.sheds_at_serve(oldest, now) {
            Verdict::Shed(Reason::Custom)
        } else {
            self.kept = now;
            Verdict::Keep
        }
    }

    /// Judge the oldest while none is served.
    pub(super) fn scan(&mut self, oldest: Instant, now: Instant) -> Verdict {
        if self.law.sheds(oldest, now) {
            Verdict::Shed(Reason::Custom)
        } else {
            self.kept = now;
            Verdict::Keep
        }
    }

    pub(super) fn due(&self, oldest: Instant) -> Instant {
        let due = self.law.due(oldest).unwrap_or(Instant::NEVER);
        due.max(self.kept.after(LEAST_GAP))
    }

    pub(super) fn is_shedding(&self) -> bool {
        self.law.is_shedding()
    }
}
