//! Decides whether one more lease may be granted.
//!
//! A valve knows how many leases there are and what it was told when; the
//! leases themselves belong to the regulator. Here is the mechanism that all
//! valves share: the size, its bounds and the rules that follow from them. The
//! arithmetic on times between the bounds is the laws', in `valve/`.

mod bounds;
mod breaker;
mod codel;
mod custom;
mod gradient;
mod law;
mod open;
mod options;
mod rate;
mod relative;
#[cfg(test)]
mod script;

use std::time::Duration;

use crate::settings::OptionError;
use crate::time::{Instant, Lead};

use self::bounds::Bounds;
use self::law::{Ending, Law};

pub use self::breaker::{Breaker, Circuit};
pub use self::codel::CoDel;
pub use self::custom::CustomLaw;
pub use self::gradient::Gradient;
pub use self::open::Open;
pub use self::options::Options;
pub use self::rate::Rate;
pub use self::relative::Relative;

/// Open or closed for one more lease.
///
/// One part, or several that all have to be open ([`Options::LeastOf`]). Each
/// part is open below its `min` and closed from its `max` on; in between its
/// law decides. Instants given to a valve must not run backwards.
///
/// Invariants: there is at least one part, and all count the same leases.
#[derive(Debug)]
pub struct Valve {
    size: usize,
    parts: Vec<Part>,
}

/// The state of one part of a valve.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stats {
    /// The kind of its options, as in `kind=rate`.
    pub kind: &'static str,
    /// Below this size it is open.
    pub min: usize,
    /// From this size on it is closed.
    pub max: usize,
    /// See [`Valve::open_time`].
    pub open_time: Option<Instant>,
    /// The circuit, if it is a breaker.
    pub circuit: Option<Circuit>,
}

impl Valve {
    /// A valve for `size` leases that exist already.
    ///
    /// # Errors
    ///
    /// If the options break a rule.
    pub fn new(options: &Options, size: usize, now: Instant) -> Result<Self, OptionError> {
        options.check()?;
        let part = |options| Part::new(options, size, now);
        let parts = options.parts().iter().map(part).collect();
        Ok(Self { size, parts })
    }

    /// One more lease. Answers since when the valve was open for it.
    ///
    /// # Panics
    ///
    /// If the valve is closed.
    pub fn ask(&mut self, now: Instant) -> Instant {
        assert!(self.is_open(now), "an ask comes only to an open valve");
        let size = self.size;
        let open_times = self.parts.iter_mut().map(|part| part.ask(size, now));
        let open_time = open_times.max().expect("a valve has a part");
        self.size += 1;
        self.check();
        open_time
    }

    /// A holder wants to keep its lease. Answers since when the valve was open
    /// for that, or nothing: then the lease is gone, and nothing is learned
    /// from how it went.
    pub fn renew(&mut self, now: Instant) -> Option<Instant> {
        let size = self.size;
        if self.parts.iter().all(|part| part.may_renew(size, now)) {
            let open_times = self.parts.iter_mut().map(|part| part.renew(size, now));
            let open_time = open_times.max();
            self.check();
            open_time
        } else {
            self.end(None, now);
            None
        }
    }

    /// A lease ended that was `held` for so long; `ok` if its work went well.
    pub fn release(&mut self, held: Duration, ok: bool, now: Instant) {
        self.end(Some(Ending { held, ok }), now);
    }

    /// The lead of the side that wants leases, as a broker measured it.
    pub fn update(&mut self, lead: Lead, now: Instant) {
        for part in &mut self.parts {
            part.law.update(lead, now);
        }
    }

    /// A holder used what a lease stands for and gave it back; the lease goes
    /// on. `ok` if the work went well.
    pub fn learn(&mut self, held: Duration, ok: bool, now: Instant) {
        let ending = Ending { held, ok };
        for part in &mut self.parts {
            part.learn(self.size, ending, now);
        }
        self.check();
    }

    /// There are more leases than may be.
    pub fn is_over(&self) -> bool {
        let over = |part: &Part| self.size > part.law.bounds().max;
        self.parts.iter().any(over)
    }

    /// It is open, and a law that goes by leads made room: there should be one
    /// more.
    pub fn wants_more(&self, now: Instant) -> bool {
        self.is_open(now) && self.goes_by_leads()
    }

    /// Whether one of the leases should be kept that is not used. Only laws
    /// that go by leads know that; the others say how many there may be.
    pub fn may_renew(&self, now: Instant) -> bool {
        let may_renew = |part: &Part| part.may_renew(self.size, now);
        self.goes_by_leads() && self.parts.iter().all(may_renew)
    }

    fn goes_by_leads(&self) -> bool {
        self.parts.iter().any(|part| part.law.goes_by_leads())
    }

    /// A lease ended, and nothing is to be learned from that.
    pub fn forget(&mut self, now: Instant) {
        self.end(None, now);
    }

    /// Other options from now on; every lease stays.
    ///
    /// A part that keeps its place and its kind keeps what it learned, every
    /// other starts anew. No holder loses a lease to a lower `max`, but
    /// renewals are refused until the size fits.
    ///
    /// # Errors
    ///
    /// If the options break a rule; then nothing changes.
    pub fn reconfigure(&mut self, options: &Options, now: Instant) -> Result<(), OptionError> {
        options.check()?;
        let options = options.parts();
        self.parts.truncate(options.len());
        let (kept, added) = options.split_at(self.parts.len());
        for (part, options) in self.parts.iter_mut().zip(kept) {
            part.reconfigure(options, self.size, now);
        }
        let part = |options| Part::new(options, self.size, now);
        self.parts.extend(added.iter().map(part));
        self.check();
        Ok(())
    }

    /// Whether one more lease may be granted.
    pub fn is_open(&self, now: Instant) -> bool {
        self.open_time().is_some_and(|open_time| open_time <= now)
    }

    /// Since when the valve is open, or from when on it will be if nothing
    /// happens. None if something has to happen first.
    pub fn open_time(&self) -> Option<Instant> {
        let open_times = self.parts.iter().map(|part| part.open_time(self.size));
        open_times
            .reduce(|one, other| Some(one?.max(other?)))
            .flatten()
    }

    /// When a closed valve has to be looked at although nothing happened. For
    /// an open valve it is none, or has passed and asks for nothing.
    ///
    /// Only rates and breakers open by themselves: the other laws notice the
    /// time when something happens.
    pub fn deadline(&self) -> Option<Instant> {
        let deadline = self.open_time();
        let mut timers = self.parts.iter().map(|part| part.timer(self.size));
        deadline.filter(|_| timers.any(|timer| timer == deadline))
    }

    /// The number of leases.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Every part in the order of the options.
    pub fn stats(&self) -> Vec<Stats> {
        let stats = |part: &Part| Stats {
            kind: part.law.kind(),
            min: part.law.bounds().min,
            max: part.law.bounds().max,
            open_time: part.open_time(self.size),
            circuit: part.law.circuit(),
        };
        self.parts.iter().map(stats).collect()
    }

    fn end(&mut self, ending: Option<Ending>, now: Instant) {
        assert!(self.size > 0, "a lease that ends was granted");
        for part in &mut self.parts {
            part.end(self.size, ending, now);
        }
        self.size -= 1;
        self.check();
    }

    fn check(&self) {
        debug_assert!(!self.parts.is_empty());
        for part in &self.parts {
            let bounds = part.law.bounds();
            debug_assert!(bounds.min <= bounds.max);
            part.law.check(self.size);
        }
    }
}

/// One law and the bounds of its say.
#[derive(Debug)]
struct Part {
    /// Since when the size is below `min`, if it is.
    small: Instant,
    law: Law,
}

impl Part {
    fn new(options: &Options, size: usize, now: Instant) -> Self {
        Self {
            small: now,
            law: Law::new(options, size, now),
        }
    }

    fn reconfigure(&mut self, options: &Options, size: usize, now: Instant) {
        if self.law.takes(options) {
            let was_small = size < self.law.bounds().min;
            self.law.reconfigure(options, size, now);
            if !was_small && size < self.law.bounds().min {
                self.small = now;
            }
        } else {
            *self = Self::new(options, size, now);
        }
    }

    fn open_time(&self, size: usize) -> Option<Instant> {
        let Bounds { min, max } = self.law.bounds();
        if size < min {
            Some(self.law.small_open_time(self.small))
        } else if size < max {
            self.law.opening()
        } else {
            None
        }
    }

    /// The opening that comes by itself, if only time keeps this part closed.
    fn timer(&self, size: usize) -> Option<Instant> {
        let Bounds { min, max } = self.law.bounds();
        let in_between = min <= size && size < max;
        self.law
            .opening()
            .filter(|_| in_between && self.law.has_timer())
    }

    fn ask(&mut self, size: usize, now: Instant) -> Instant {
        if size < self.law.bounds().min {
            self.law.small_open_time(self.small)
        } else {
            self.law.take(now).expect("an open part has an opening")
        }
    }

    fn may_renew(&self, size: usize, now: Instant) -> bool {
        let Bounds { min, max } = self.law.bounds();
        size <= min || (size <= max && self.law.may_renew(now))
    }

    fn renew(&mut self, size: usize, now: Instant) -> Instant {
        let Bounds { min, .. } = self.law.bounds();
        if size < min {
            self.law.small_open_time(self.small)
        } else if size == min {
            now
        } else {
            self.law.renew(now)
        }
    }

    /// One of `size` leases was used.
    fn learn(&mut self, size: usize, ending: Ending, now: Instant) {
        let was_small = size < self.law.bounds().min;
        self.law.learn(size, ending, now);
        if !was_small && size < self.law.bounds().min {
            self.small = now;
        }
    }

    /// One of `size` leases ends. The bounds may move with what is learned.
    fn end(&mut self, size: usize, ending: Option<Ending>, now: Instant) {
        let was_small = size < self.law.bounds().min;
        self.law.end(size, ending, now);
        if !was_small && size - 1 < self.law.bounds().min {
            self.small = now;
        }
    }
}
