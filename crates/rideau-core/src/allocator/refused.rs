//! Why an allocator did not do what it was asked for.

use std::fmt;
use std::time::Duration;

use super::fields::DATA_LEN_MAX;
use super::limits::{COUNT_MAX, KEY_LEN_MAX, KEYS_MAX, OWNER_LEN_MAX, PLACES_MAX, TIERS_MAX};
use super::size::Size;
use crate::refusal::Refusal;

/// Why nothing happened. Nothing did, whichever it is.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Refused {
    /// No value is free where the asker would have one.
    Exhausted {
        /// How many values are free there; more than none if too many were
        /// asked for at once.
        free: Size,
        /// How many values there are.
        size: Size,
    },
    /// No range has this name.
    UnknownRange,
    /// The range is going away and gives out nothing more.
    Draining,
    /// The value belongs to no range.
    OutOfRange,
    /// The value or key has no holder.
    NotReserved,
    /// The value has a holder already.
    Reserved,
    /// The value was given back, and rests.
    Resting,
    /// The fence is not that of the holder.
    Conflict {
        /// The fence of the current holder.
        fence: u64,
    },
    /// It belongs to another owner.
    Foreign,
    /// The name of an owner is too long.
    BadOwner,
    /// The range wants to be told the fence.
    NoFence,
    /// Several reservations have this key.
    Ambiguous {
        /// How many.
        count: usize,
    },
    /// Another reservation has this key for itself.
    KeyTaken,
    /// Two keys belong to two reservations.
    KeysApart,
    /// One of several reservations cannot have a key for itself.
    UniqueForMany,
    /// No place to look for a value was named.
    NoPlace,
    /// More places were named than are looked at.
    TooManyPlaces,
    /// The tier is none.
    BadTier,
    /// None, or more at once than is done.
    BadCount,
    /// More keys than a reservation may have.
    TooManyKeys,
    /// A key that is empty, too long or begins with a zero byte.
    BadKey,
    /// More data than stands beside a value.
    TooMuchData,
    /// A time of zero.
    NoTime,
    /// A time longer than the range allows.
    TooLong {
        /// The longest.
        ttl_max: Duration,
    },
    /// The limit of held values is reached.
    Full {
        /// The limit.
        reservations_max: usize,
    },
    /// The limit of waiting asks is reached.
    Crowded(Refusal),
    /// The value or the key belongs to a partition that is not served here at present.
    NotHere {
        /// Which.
        partition: u32,
    },
}

impl Refused {
    /// Does it tell what others have done? Then it is true only when that is
    /// safe. All others tell of the ask alone.
    pub const fn tells_of_others(&self) -> bool {
        matches!(
            self,
            Self::Exhausted { .. }
                | Self::NotReserved
                | Self::Reserved
                | Self::Resting
                | Self::Conflict { .. }
                | Self::Foreign
                | Self::Ambiguous { .. }
                | Self::KeyTaken
                | Self::KeysApart
                | Self::Full { .. }
        )
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exhausted { free, size } => {
                write!(f, "{free} of {size} values are free there")
            }
            Self::UnknownRange => f.write_str("there is no range of this name"),
            Self::Draining => f.write_str("the range is draining and gives out nothing more"),
            Self::OutOfRange => f.write_str("the value is outside every range"),
            Self::NotReserved => f.write_str("it is not held"),
            Self::Reserved => f.write_str("it is held already"),
            Self::Resting => f.write_str("it was given back a moment ago and rests"),
            Self::Conflict { fence } => {
                write!(f, "another holder has it, with the fence {fence}")
            }
            Self::Foreign => f.write_str("it belongs to another owner"),
            Self::BadOwner => write!(f, "the name of an owner has at most {OWNER_LEN_MAX} bytes"),
            Self::NoFence => f.write_str("this range needs the fence that came with the value"),
            Self::Ambiguous { count } => {
                write!(f, "{count} reservations have this key: name the value")
            }
            Self::KeyTaken => f.write_str("another reservation has this key for itself"),
            Self::KeysApart => f.write_str("these keys belong to two reservations"),
            Self::UniqueForMany => {
                f.write_str("a unique key or an id of its own goes with one value only")
            }
            Self::NoPlace => f.write_str("name at least one range or interval"),
            Self::TooManyPlaces => write!(f, "name at most {PLACES_MAX} ranges and intervals"),
            Self::BadTier => write!(f, "tiers are numbered from 0 to {}", TIERS_MAX - 1),
            Self::BadCount => write!(f, "from 1 to {COUNT_MAX} values can be had at once"),
            Self::TooManyKeys => write!(f, "a reservation has at most {KEYS_MAX} keys"),
            Self::BadKey => write!(
                f,
                "a key has from 1 to {KEY_LEN_MAX} bytes and does not begin with a zero byte"
            ),
            Self::TooMuchData => write!(f, "the data has at most {DATA_LEN_MAX} bytes"),
            Self::NoTime => f.write_str("a reservation needs a time of more than zero"),
            Self::TooLong { ttl_max } => {
                write!(f, "the range allows {ttl_max:?} at most")
            }
            Self::Full { reservations_max } => {
                write!(f, "{reservations_max} values are held, which is the limit")
            }
            Self::Crowded(refusal) => refusal.fmt(f),
            Self::NotHere { partition } => {
                write!(f, "partition {partition} is not served here at present")
            }
        }
    }
}

impl std::error::Error for Refused {}
