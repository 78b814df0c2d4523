//! Publishes how long an ask and an offer have to expect to wait here, so that
//! a balancer can prefer the better of two machines.

use std::time::Duration;

use super::{Effect, Reading, check_more_than_zero};
use crate::settings::{OptionError, Settings};
use crate::time::Instant;

/// Values by which a balancer prefers the better of two machines.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Better {
    /// No ask is told to expect more; also told before the first reading.
    ///
    /// A lead grows without end while nothing comes, so it has to be bounded.
    pub ask_upper: Duration,
    /// No offer is told to expect more; also told before the first reading.
    pub offer_upper: Duration,
    /// How old the values get before an idle machine refreshes them.
    pub update: Duration,
}

#[derive(Debug)]
pub(super) struct BetterMeter {
    options: Better,
    next: Instant,
}

impl Default for Better {
    fn default() -> Self {
        Self {
            ask_upper: Duration::from_secs(5),
            offer_upper: Duration::from_secs(5),
            update: Duration::from_millis(100),
        }
    }
}

impl Better {
    pub(super) fn take(settings: &mut Settings) -> Result<Self, OptionError> {
        let default = Self::default();
        Ok(Self {
            ask_upper: settings.span("ask_upper")?.unwrap_or(default.ask_upper),
            offer_upper: settings.span("offer_upper")?.unwrap_or(default.offer_upper),
            update: settings.span("update")?.unwrap_or(default.update),
        })
    }

    pub(super) fn check(&self) -> Result<(), OptionError> {
        check_more_than_zero("update", self.update)
    }
}

impl BetterMeter {
    pub(super) fn new(options: Better, now: Instant, effects: &mut Vec<Effect>) -> Self {
        effects.push(Effect::Better {
            ask: options.ask_upper,
            offer: options.offer_upper,
        });
        Self { options, next: now }
    }

    pub(super) fn feed(&mut self, reading: &Reading, now: Instant, effects: &mut Vec<Effect>) {
        let delay = reading.queue_delay.saturating_add(reading.process_delay);
        let ask = delay.saturating_add(reading.lead.waited());
        let offer = delay.saturating_add(reading.lead.reversed().waited());
        effects.push(Effect::Better {
            ask: ask.min(self.options.ask_upper),
            offer: offer.min(self.options.offer_upper),
        });
        self.next = now + self.options.update;
    }

    /// The published values stay until the next reading, which is due at once.
    pub(super) fn reconfigure(&mut self, options: Better, now: Instant) {
        self.options = options;
        self.next = now;
    }

    pub(super) const fn deadline(&self) -> Instant {
        self.next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Lead;

    #[test]
    fn the_side_that_waits_expects_its_lead_more_up_to_its_bound() {
        let mut meter = BetterMeter::new(Better::default(), Instant::START, &mut Vec::new());
        let table = [
            (0, 4, 4),
            (20, 24, 4),
            (-20, 4, 24),
            (6000, 5000, 4),
            (-6000, 4, 5000),
        ];
        for (lead, ask, offer) in table {
            let reading = Reading {
                queue_delay: Duration::from_millis(3),
                process_delay: Duration::from_millis(1),
                lead: Lead::from_nanos(lead * 1_000_000),
                backlog: 0,
                is_deserted: false,
            };
            let mut effects = Vec::new();
            meter.feed(&reading, Instant::START, &mut effects);
            let (ask, offer) = (Duration::from_millis(ask), Duration::from_millis(offer));
            assert_eq!(effects, [Effect::Better { ask, offer }], "lead {lead}");
        }
    }
}
