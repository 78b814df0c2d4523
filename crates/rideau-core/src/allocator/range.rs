//! A range: which values it has, how they are given out, and how many are in
//! which state.

use std::fmt;
use std::time::Duration;

use super::claimed::ClaimedValues;
use super::free::Free;
use super::interval::{self, Interval};
use super::limits::TIERS_MAX;
use super::size::Size;
use super::span::Span;
use super::value::Kind;
use crate::time::Instant;

/// Which range.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RangeId(pub(super) u16);

impl RangeId {
    pub(super) fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// Which of the free values is given out.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Order {
    /// The lowest.
    #[default]
    Lowest,
    /// Any.
    Random,
    /// The one that has been free for longest.
    OldestFreed,
}

/// When an answer is given.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Class {
    /// When what it says would survive a power cut.
    #[default]
    Sync,
    /// At once, from values that were claimed before: no value is ever given
    /// twice, but what was written beside one in the last moment may be lost.
    Claimed,
    /// At once; nothing is written down.
    Memory,
}

/// The state of a value after its time.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum OnExpire {
    /// It is free.
    #[default]
    Release,
    /// It stays apart for a while, so that a client that hears of it can decide.
    Notify,
}

/// The state of all values when nothing is known of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    /// They are free.
    Free,
    /// They may have holders, which are waited for.
    Quarantine,
}

/// How a range is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RangeOptions {
    /// Its values.
    pub spans: Vec<Span>,
    /// Values among them that are never given out.
    pub skip: Vec<Span>,
    /// Which free value is given out.
    pub order: Order,
    /// When an answer is given.
    pub class: Class,
    /// How long a value is held after a write that does not say so.
    pub ttl: Duration,
    /// The longest time that a holder can hold a value without a sign of life.
    pub ttl_max: Duration,
    /// How long a value is held after an ask that does not say so: a
    /// forgotten one comes back soon.
    pub offer_ttl: Duration,
    /// How long values are kept apart of which nothing is known.
    pub quarantine: Duration,
    /// How long values are kept apart that lost their holder.
    pub detach: Duration,
    /// How long values rest that were given back.
    pub cool: Duration,
    /// The state of a value after its time.
    pub on_expire: OnExpire,
    /// The state of all values when nothing is known of them.
    pub start: Start,
    /// Only a caller that knows the fence can change a reservation.
    pub needs_fence: bool,
}

impl RangeOptions {
    /// These values, with everything else as it usually is.
    pub fn new(spans: Vec<Span>) -> Self {
        Self {
            spans,
            skip: Vec::new(),
            order: Order::default(),
            class: Class::default(),
            ttl: Duration::from_secs(3_600),
            ttl_max: Duration::from_secs(30 * 24 * 3_600),
            offer_ttl: Duration::from_secs(30),
            quarantine: Duration::from_secs(900),
            detach: Duration::from_secs(900),
            cool: Duration::ZERO,
            on_expire: OnExpire::default(),
            start: Start::Free,
            needs_fence: true,
        }
    }

    /// As it usually is for values that are not written down.
    pub fn in_memory(spans: Vec<Span>) -> Self {
        Self {
            class: Class::Memory,
            start: Start::Quarantine,
            ..Self::new(spans)
        }
    }

    /// Values of class `claimed` are given away and prolonged for so long before
    /// it is written down; a caller that wants more waits. In whole milliseconds.
    pub(super) fn promise(&self) -> Duration {
        let longest = self.ttl.max(self.offer_ttl);
        let millis = u64::from(longest.subsec_nanos().div_ceil(1_000_000));
        Duration::from_secs(longest.as_secs()).saturating_add(Duration::from_millis(millis))
    }

    /// The values that a range can give out.
    pub(super) fn intervals(&self) -> Vec<Interval> {
        let spans: Vec<_> = self.spans.iter().map(|span| span.interval).collect();
        let skip: Vec<_> = self.skip.iter().map(|span| span.interval).collect();
        interval::minus(&spans, &skip)
    }

    pub(super) fn check(&self) -> Result<(), RangeError> {
        if self.intervals().is_empty() {
            return Err(RangeError::Empty);
        }
        let spans = [self.ttl, self.ttl_max, self.offer_ttl];
        if spans.iter().any(Duration::is_zero) {
            return Err(RangeError::NoTime);
        }
        if self.ttl > self.ttl_max || self.offer_ttl > self.ttl_max {
            return Err(RangeError::TtlOverMax);
        }
        let longest = [self.ttl_max, self.quarantine, self.detach, self.cool];
        if longest.iter().any(|span| *span > TIME_MAX) {
            return Err(RangeError::TooLong);
        }
        let mut intervals: Vec<_> = self.spans.iter().map(|span| span.interval).collect();
        intervals.sort_by_key(|interval| interval.first());
        match intervals
            .windows(2)
            .find(|two| two[1].first() <= two[0].last())
        {
            Some(two) => Err(RangeError::Repeated(two[1])),
            None => Ok(()),
        }
    }
}

/// Ten years: no time is longer.
pub const TIME_MAX: Duration = Duration::from_secs(10 * 365 * 24 * 3_600);

/// Why a range cannot be like that.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RangeError {
    /// It has no values.
    Empty,
    /// It has these values twice.
    Repeated(Interval),
    /// Another range has some of these values.
    Overlaps {
        /// The other.
        name: String,
        /// Where it begins there.
        interval: Interval,
        /// How values are printed there.
        kind: Kind,
    },
    /// A time has to be more than zero.
    NoTime,
    /// A usual time is longer than the longest.
    TtlOverMax,
    /// A time of over ten years.
    TooLong,
    /// A name that is empty, longer than 64 bytes, or has other characters
    /// than letters, digits, `-`, `_` and `.`.
    BadName,
    /// Its class cannot be changed while values have holders.
    ClassHeld,
    /// The limit of ranges is reached.
    TooMany,
    /// It is being taken away.
    Draining,
}

impl fmt::Display for RangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("a range needs at least one value"),
            Self::Repeated(interval) => write!(
                f,
                "the values from {} to {} are named twice",
                interval.first(),
                interval.last()
            ),
            Self::Overlaps {
                name,
                interval,
                kind,
            } => write!(
                f,
                "the range `{name}` has the values from {} to {} already",
                kind.print(interval.first()),
                kind.print(interval.last())
            ),
            Self::NoTime => f.write_str("ttl, ttl_max and offer_ttl have to be more than zero"),
            Self::TtlOverMax => f.write_str("ttl and offer_ttl can be ttl_max at most"),
            Self::TooLong => f.write_str("no time can be longer than ten years"),
            Self::BadName => f.write_str(
                "the name of a range has 1 to 64 letters, digits, dots, dashes and underscores",
            ),
            Self::ClassHeld => {
                f.write_str("the class can be changed only while no value has a holder: drain it")
            }
            Self::TooMany => f.write_str("the limit of ranges is reached"),
            Self::Draining => f.write_str("the range is draining: wait until it is gone"),
        }
    }
}

impl std::error::Error for RangeError {}

/// Values of which it is not known whether they have a holder.
#[derive(Debug)]
pub(super) struct Quarantine {
    pub(super) values: Free,
    pub(super) until: Instant,
}

/// A range and its values.
#[derive(Debug)]
pub(super) struct Range {
    pub(super) name: String,
    pub(super) options: RangeOptions,
    /// With values that were taken away from it but have holders still.
    pub(super) size: Size,
    pub(super) free: Free,
    pub(super) stock: ClaimedValues,
    pub(super) quarantine: Option<Quarantine>,
    pub(super) reserved: u64,
    pub(super) detached: u64,
    pub(super) cooling: u64,
    pub(super) is_draining: bool,
    pub(super) tiers: [u64; TIERS_MAX as usize],
}

impl Range {
    /// How many values are in a record each.
    pub(super) fn held(&self) -> u64 {
        self.reserved + self.detached + self.cooling
    }

    pub(super) fn stats(&self) -> RangeStats {
        let quarantined = self.quarantine.as_ref();
        // A partition may have none of the values of a range.
        let first = self.options.spans.first();
        RangeStats {
            name: self.name.clone(),
            first: first.map_or(0, |span| span.interval.first()),
            kind: first.map_or(Kind::Number, |span| span.kind),
            size: self.size,
            free: self.free.count() + self.stock.count(),
            reserved: self.reserved,
            quarantined: quarantined.map_or(Size::ZERO, |held| held.values.count()),
            quarantined_until: quarantined.map(|held| held.until),
            detached: self.detached,
            cooling: self.cooling,
            tiers: self.tiers,
            is_draining: self.is_draining,
            bytes: self.free.bytes()
                + self.stock.bytes()
                + quarantined.map_or(0, |held| held.values.bytes()),
        }
    }
}

/// A range in numbers. Free, reserved, quarantined, detached and cooling values
/// together are all values.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RangeStats {
    /// Its name.
    pub name: String,
    /// The lowest value of its first span.
    pub first: u128,
    /// How that is printed.
    pub kind: Kind,
    /// How many values it has.
    pub size: Size,
    /// Can be given out.
    pub free: Size,
    /// Have a holder.
    pub reserved: u64,
    /// May have a holder.
    pub quarantined: Size,
    /// When those that were not asked for become free.
    pub quarantined_until: Option<Instant>,
    /// Had a holder, and wait for a client to decide.
    pub detached: u64,
    /// Were given back, and rest.
    pub cooling: u64,
    /// How often a value was given out in each tier.
    pub tiers: [u64; TIERS_MAX as usize],
    /// It gives out nothing more, and goes when no holder has any.
    pub is_draining: bool,
    /// The memory of its free values.
    pub bytes: usize,
}
