//! The laws, each with the state it needs.

use super::codel::{CoDel, Verdict};
use super::custom::Own;
use super::min_delay::MinDelay;
use super::options::Shedding;
use super::paced::Paced;
use super::standing::Standing;
use crate::refusal::Reason;
use crate::time::{Instant, nanos};

/// A law of the queue's options, with the state it needs.
#[derive(Debug)]
pub(super) enum Law {
    Never,
    Timeout(u64),
    CoDel(CoDel),
    MinDelay(MinDelay),
    Standing(Standing),
    Paced(Paced),
    Custom(Box<Own>),
}

impl Law {
    pub(super) fn new(shedding: &Shedding, now: Instant) -> Self {
        let (target, interval, bound) = law_spans(shedding);
        match shedding {
            Shedding::Never => Self::Never,
            Shedding::Timeout { wait_max } => Self::Timeout(nanos(*wait_max)),
            Shedding::CoDel { .. } | Shedding::BoundedCoDel { .. } => {
                Self::CoDel(CoDel::new(target, interval, bound, now))
            }
            Shedding::MinDelay { .. } => Self::MinDelay(MinDelay::new(target, interval, now)),
            Shedding::Standing { .. } => Self::Standing(Standing::new(target, interval, now)),
            Shedding::Paced { .. } => Self::Paced(Paced::new()),
            Shedding::Custom(custom) => Self::Custom(Box::new(Own::new(custom, now))),
        }
    }
}

/// Target, interval and bound of a law, in nanoseconds.
pub(super) fn law_spans(shedding: &Shedding) -> (u64, u64, u64) {
    match *shedding {
        Shedding::Never
        | Shedding::Timeout { .. }
        | Shedding::Paced { .. }
        | Shedding::Custom(_) => (0, 0, u64::MAX),
        Shedding::BoundedCoDel {
            target,
            interval,
            wait_max,
        } => (nanos(target), nanos(interval), nanos(wait_max)),
        Shedding::CoDel { target, interval }
        | Shedding::MinDelay { target, interval }
        | Shedding::Standing { target, interval } => (nanos(target), nanos(interval), u64::MAX),
    }
}

pub(super) fn expired(sent: Instant, wait_max: u64, now: Instant) -> Verdict {
    if sent.after(wait_max) <= now {
        Verdict::Shed(Reason::Timeout)
    } else {
        Verdict::Keep
    }
}
