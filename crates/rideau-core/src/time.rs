//! Points in time and signed spans, as values that can be written down.
//!
//! Nothing here reads a clock: the driver of a machine owns one.

use std::fmt;
use std::ops::Add;
use std::time::Duration;

/// A point on the driver's monotonic clock, counted from the driver's start.
///
/// Unlike [`std::time::Instant`] it can be written down: tests and
/// simulations need no clock to make one. The resolution is a nanosecond.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(u64);

impl Instant {
    /// When the driver started.
    pub const START: Self = Self(0);
    /// Later than every instant a clock will show: "never".
    pub const NEVER: Self = Self(u64::MAX);

    /// The instant this many nanoseconds after the start.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the start.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The span from `earlier` to here.
    ///
    /// # Panics
    ///
    /// If `earlier` is later: a driver must never let time run backwards.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.nanos_since(earlier))
    }

    /// As [`since`](Self::since), in nanoseconds.
    ///
    /// # Panics
    ///
    /// If `earlier` is later.
    pub fn nanos_since(self, earlier: Self) -> u64 {
        self.0.checked_sub(earlier.0).expect("time runs forwards")
    }

    /// The instant `nanos` later, or [`NEVER`](Self::NEVER) where no clock
    /// reaches.
    #[must_use]
    pub const fn after(self, nanos: u64) -> Self {
        Self(self.0.saturating_add(nanos))
    }

    /// How much later `other` is than this instant; negative if it is earlier.
    pub fn lead_over(self, other: Self) -> Lead {
        Lead::from_nanos(other.0.cast_signed().saturating_sub(self.0.cast_signed()))
    }

    /// This instant as a deadline: none if it is [`NEVER`](Self::NEVER).
    pub fn finite(self) -> Option<Self> {
        (self != Self::NEVER).then_some(self)
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        self.after(nanos(span))
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.finite() {
            Some(_) => write!(f, "{:?}", Duration::from_nanos(self.0)),
            None => f.write_str("never"),
        }
    }
}

/// How much earlier one party of a match came than the other.
///
/// Positive: this party was there first and waited. Negative: it was waited
/// for. Zero: both came at once.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Lead(i64);

impl Lead {
    /// Both came at once.
    pub const ZERO: Self = Self(0);

    /// A lead of this many nanoseconds.
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// The lead in nanoseconds.
    pub const fn as_nanos(self) -> i64 {
        self.0
    }

    /// The other party's view of the same match.
    #[must_use]
    pub const fn reversed(self) -> Self {
        Self(self.0.saturating_neg())
    }

    /// How long this party waited for the other to come.
    pub const fn waited(self) -> Duration {
        Duration::from_nanos(if self.0 > 0 { self.0.unsigned_abs() } else { 0 })
    }
}

impl fmt::Debug for Lead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { '-' } else { '+' };
        write!(f, "{sign}{:?}", Duration::from_nanos(self.0.unsigned_abs()))
    }
}

/// A span as people read it: `1.5ms`, and `0s` if there was none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Brief(pub Duration);

impl fmt::Display for Brief {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Duration::ZERO => f.write_str("0s"),
            span => write!(f, "{span:.1?}"),
        }
    }
}

/// A span in nanoseconds; spans over 584 years count as that.
pub(crate) fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lead_is_positive_for_the_first_to_come() {
        let (first, second) = (Instant::from_nanos(10), Instant::from_nanos(35));
        assert_eq!(first.lead_over(second), Lead::from_nanos(25));
        assert_eq!(second.lead_over(first), Lead::from_nanos(-25));
        assert_eq!(second.lead_over(first).waited(), Duration::ZERO);
    }

    #[test]
    fn no_time_is_not_counted_in_nanoseconds() {
        assert_eq!(Brief(Duration::ZERO).to_string(), "0s");
        assert_eq!(Brief(Duration::from_micros(1_520)).to_string(), "1.5ms");
        assert_eq!(Brief(Duration::from_nanos(7)).to_string(), "7.0ns");
    }

    #[test]
    fn never_is_not_a_deadline_and_stays_never() {
        assert_eq!(Instant::NEVER.finite(), None);
        assert_eq!(Instant::NEVER.after(1), Instant::NEVER);
        assert_eq!(Instant::START + Duration::MAX, Instant::NEVER);
    }
}
