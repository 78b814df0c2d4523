//! The laws, and what a valve may ask of each.

use std::time::Duration;

use crate::time::{Instant, Lead};

use super::bounds::Bounds;
use super::custom::Own;
use super::{Circuit, Open, Options, breaker, codel, gradient, rate, relative};

/// A lease that ended by release.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ending {
    pub(super) held: Duration,
    pub(super) ok: bool,
}

/// Decides between the bounds, by what it was told and when.
#[derive(Debug)]
pub(super) enum Law {
    Open(Open),
    Relative(relative::Law),
    CoDel(codel::Law),
    Rate(rate::Law),
    Breaker(breaker::Law),
    Gradient(gradient::Law),
    Custom(Own),
}

impl Law {
    pub(super) fn new(options: &Options, size: usize, now: Instant) -> Self {
        match options {
            Options::Open(open) => Self::Open(*open),
            Options::Relative(relative) => Self::Relative(relative::Law::new(*relative)),
            Options::CoDel(codel) => Self::CoDel(codel::Law::new(*codel, now)),
            Options::Rate(rate) => Self::Rate(rate::Law::new(*rate, size, now)),
            Options::Breaker(breaker) => Self::Breaker(breaker::Law::new(*breaker)),
            Options::Gradient(gradient) => Self::Gradient(gradient::Law::new(*gradient)),
            Options::Custom(custom) => Self::Custom(Own::new(custom, now)),
            Options::LeastOf(_) => unreachable!("a list within a list breaks a rule"),
        }
    }

    /// These options are of its kind.
    pub(super) fn takes(&self, options: &Options) -> bool {
        match (self, options) {
            (Self::Custom(_), Options::Custom(_)) => true,
            // One of these may have the name of a kind.
            (Self::Custom(_), _) | (_, Options::Custom(_)) => false,
            _ => self.kind() == options.kind(),
        }
    }

    /// Options of the same kind take effect.
    pub(super) fn reconfigure(&mut self, options: &Options, size: usize, now: Instant) {
        match (self, options) {
            (Self::Open(law), Options::Open(open)) => *law = *open,
            (Self::Relative(law), Options::Relative(relative)) => law.reconfigure(*relative),
            (Self::CoDel(law), Options::CoDel(codel)) => law.reconfigure(*codel, now),
            (Self::Rate(law), Options::Rate(rate)) => law.reconfigure(*rate, size, now),
            (Self::Breaker(law), Options::Breaker(breaker)) => law.reconfigure(*breaker, now),
            (Self::Gradient(law), Options::Gradient(gradient)) => law.reconfigure(*gradient),
            (Self::Custom(own), Options::Custom(custom)) => own.reconfigure(custom, now),
            _ => unreachable!("a law takes options of its own kind"),
        }
    }

    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Open(_) => "open",
            Self::Relative(_) => "relative",
            Self::CoDel(_) => "codel",
            Self::Rate(_) => "rate",
            Self::Breaker(_) => "breaker",
            Self::Gradient(_) => "gradient",
            Self::Custom(own) => own.name(),
        }
    }

    /// A law with nothing to decide has equal bounds.
    pub(super) fn bounds(&self) -> Bounds {
        match self {
            Self::Open(open) => open.bounds(),
            Self::Relative(law) => law.bounds(),
            Self::CoDel(law) => law.bounds(),
            Self::Rate(law) => law.bounds(),
            Self::Breaker(law) => law.bounds(),
            Self::Gradient(law) => law.bounds(),
            Self::Custom(own) => own.bounds(),
        }
    }

    /// From when on there is an opening between the bounds; may lie ahead.
    pub(super) fn opening(&self) -> Option<Instant> {
        match self {
            Self::Open(_) | Self::Gradient(_) => None,
            Self::Relative(law) => law.opening(),
            Self::CoDel(law) => law.opening(),
            Self::Rate(law) => law.opening(),
            Self::Breaker(law) => law.opening(),
            Self::Custom(own) => own.opening(),
        }
    }

    /// Whether the driver has to look when the opening comes.
    pub(super) fn has_timer(&self) -> bool {
        matches!(self, Self::Rate(_) | Self::Breaker(_) | Self::Custom(_))
    }

    /// Since when there is room below `min`, if the size is since `small`.
    pub(super) fn small_open_time(&self, small: Instant) -> Instant {
        match self {
            Self::Rate(law) => law.opening().map_or(small, |opening| small.min(opening)),
            _ => small,
        }
    }

    /// Consume one opening.
    pub(super) fn take(&mut self, now: Instant) -> Option<Instant> {
        match self {
            Self::Open(_) | Self::Gradient(_) => None,
            Self::Relative(law) => law.take(),
            Self::CoDel(law) => law.take(now),
            Self::Rate(law) => law.take(),
            Self::Breaker(law) => law.take(now),
            Self::Custom(own) => own.take(now),
        }
    }

    pub(super) fn may_renew(&self, now: Instant) -> bool {
        match self {
            Self::Breaker(law) => law.may_renew(now),
            _ => self.opening().is_some_and(|opening| opening <= now),
        }
    }

    /// Renew a lease, which may.
    pub(super) fn renew(&mut self, now: Instant) -> Instant {
        let open_time = match self {
            Self::Rate(law) => law.renew(now),
            Self::Breaker(_) => Some(now),
            _ => self.take(now),
        };
        open_time.expect("a lease that may be renewed has an opening")
    }

    pub(super) fn update(&mut self, lead: Lead, now: Instant) {
        match self {
            Self::Relative(law) => law.update(lead, now),
            Self::CoDel(law) => law.update(lead, now),
            Self::Custom(own) => own.update(lead, now),
            Self::Open(_) | Self::Rate(_) | Self::Breaker(_) | Self::Gradient(_) => (),
        }
    }

    /// One of `size` leases was used and goes on.
    pub(super) fn learn(&mut self, size: usize, ending: Ending, now: Instant) {
        match self {
            Self::Breaker(law) => law.learn(ending.held, ending.ok, now),
            Self::Gradient(law) => law.learn(ending.held, ending.ok, size),
            Self::Custom(own) => own.learn(ending.held, ending.ok, now),
            _ => (),
        }
    }

    /// One of `size` leases ends; without an ending it was not renewed.
    pub(super) fn end(&mut self, size: usize, ending: Option<Ending>, now: Instant) {
        match (self, ending) {
            (Self::Rate(law), _) => law.end(size, now),
            (Self::Breaker(law), Some(ending)) => law.learn(ending.held, ending.ok, now),
            (Self::Gradient(law), Some(ending)) => law.learn(ending.held, ending.ok, size),
            (Self::Custom(own), Some(ending)) => own.learn(ending.held, ending.ok, now),
            _ => (),
        }
    }

    /// It also says how many leases there should be, from the leads.
    pub(super) fn goes_by_leads(&self) -> bool {
        match self {
            Self::Relative(_) | Self::CoDel(_) => true,
            Self::Custom(own) => own.goes_by_leads(),
            Self::Open(_) | Self::Rate(_) | Self::Breaker(_) | Self::Gradient(_) => false,
        }
    }

    pub(super) fn circuit(&self) -> Option<Circuit> {
        match self {
            Self::Breaker(law) => Some(law.circuit()),
            _ => None,
        }
    }

    pub(super) fn check(&self, size: usize) {
        if let Self::Rate(law) = self {
            law.check(size);
        }
    }
}
