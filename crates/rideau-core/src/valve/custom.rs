//! A law that the user of the library brings.

use std::fmt::Debug;
use std::time::Duration;

use super::bounds::Bounds;
use crate::custom::Custom;
use crate::time::{Instant, Lead};

/// A law of your own, by which a valve is open or closed.
///
/// The valve counts the leases. It is open while there are fewer than the lower
/// bound, and closed from the upper one on; in between the law decides. Calls
/// come with a `now` that never runs backwards. A law is pure: it has no clock,
/// and does the same for the same calls. [`kit`](crate::kit) has checks for it.
pub trait CustomLaw: Debug + Send {
    /// The numbers of leases below which the valve is open, and from which on it
    /// is closed. They may move in every call that may change the law.
    fn bounds(&self) -> (usize, usize);

    /// Since when the valve is open between the bounds, or from when on it will
    /// be if nothing happens. None if something has to happen first.
    fn opening(&self) -> Option<Instant>;

    /// A lease is granted between the bounds, or renewed there: an opening is
    /// used up, if they are counted.
    fn take(&mut self, now: Instant);

    /// A lease was used for so long, and was given back; `ok` if its work went
    /// well.
    fn learn(&mut self, held: Duration, ok: bool, now: Instant) {
        let _ = (held, ok, now);
    }

    /// The lead of the side that wants leases, as a broker measured it.
    fn update(&mut self, lead: Lead, now: Instant) {
        let _ = (lead, now);
    }

    /// This law goes by leads: it also says how many leases there should be.
    fn goes_by_leads(&self) -> bool {
        false
    }
}

/// A law of the user's.
#[derive(Debug)]
pub(super) struct Own {
    made_by: Custom<dyn CustomLaw>,
    law: Box<dyn CustomLaw>,
}

impl Own {
    pub(super) fn new(custom: &Custom<dyn CustomLaw>, now: Instant) -> Self {
        Self {
            made_by: custom.clone(),
            law: custom.make(now),
        }
    }

    pub(super) fn reconfigure(&mut self, custom: &Custom<dyn CustomLaw>, now: Instant) {
        if self.made_by != *custom {
            *self = Self::new(custom, now);
        }
    }

    pub(super) fn name(&self) -> &'static str {
        self.made_by.name()
    }

    /// Whatever the law says, the lower bound is not over the upper one.
    pub(super) fn bounds(&self) -> Bounds {
        let (min, max) = self.law.bounds();
        Bounds {
            min: min.min(max),
            max,
        }
    }

    pub(super) fn opening(&self) -> Option<Instant> {
        self.law.opening()
    }

    pub(super) fn take(&mut self, now: Instant) -> Option<Instant> {
        let opening = self.law.opening();
        self.law.take(now);
        opening
    }

    pub(super) fn learn(&mut self, held: Duration, ok: bool, now: Instant) {
        self.law.learn(held, ok, now);
    }

    pub(super) fn update(&mut self, lead: Lead, now: Instant) {
        self.law.update(lead, now);
    }

    pub(super) fn goes_by_leads(&self) -> bool {
        self.law.goes_by_leads()
    }
}
