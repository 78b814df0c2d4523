//! A meter that the user of the library brings.

use std::fmt::Debug;

use super::{Effect, Reading};
use crate::custom::Custom;
use crate::time::Instant;

/// A meter of your own.
///
/// It turns the readings of a machine into effects: alarms, values for a
/// balancer, rows for a protector, leads for regulators. Calls come with a
/// `now` that never runs backwards. A meter is pure: it has no clock, and does
/// the same for the same calls. [`kit`](crate::kit) has checks for it.
pub trait CustomMeter: Debug + Send {
    /// The machine took a reading.
    fn feed(&mut self, reading: &Reading, now: Instant, effects: &mut Vec<Effect>);

    /// When the meter has to be fed even if nothing happens. If that has passed
    /// when it was fed, it is fed a millisecond later.
    fn deadline(&self) -> Option<Instant> {
        None
    }

    /// The meter ends: withdraw what was published, and clear alarms.
    fn end(&mut self, effects: &mut Vec<Effect>) {
        let _ = effects;
    }
}

/// A meter is not fed more often by time alone.
const LEAST_GAP: u64 = 1_000_000;

/// A meter of the user's, and when it was fed last.
#[derive(Debug)]
pub(super) struct Own {
    made_by: Custom<dyn CustomMeter>,
    meter: Box<dyn CustomMeter>,
    fed: Instant,
}

impl Own {
    pub(super) fn new(custom: Custom<dyn CustomMeter>, now: Instant) -> Self {
        Self {
            meter: custom.make(now),
            made_by: custom,
            fed: now,
        }
    }

    pub(super) fn reconfigure(
        &mut self,
        custom: Custom<dyn CustomMeter>,
        now: Instant,
        effects: &mut Vec<Effect>,
    ) {
        if self.made_by != custom {
            self.end(effects);
            *self = Self::new(custom, now);
        }
    }

    pub(super) fn name(&self) -> &'static str {
        self.made_by.name()
    }

    pub(super) fn feed(&mut self, reading: &Reading, now: Instant, effects: &mut Vec<Effect>) {
        self.fed = now;
        self.meter.feed(reading, now, effects);
    }

    pub(super) fn deadline(&self) -> Instant {
        let deadline = self.meter.deadline().unwrap_or(Instant::NEVER);
        deadline.max(self.fed.after(LEAST_GAP))
    }

    pub(super) fn end(&mut self, effects: &mut Vec<Effect>) {
        self.meter.end(effects);
    }
}
