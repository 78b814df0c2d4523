//! Inputs of an allocator.

use std::time::Duration;

use super::fields::Fields;
use super::interval::Interval;
use super::limits::{COUNT_MAX, KEY_LEN_MAX, KEYS_MAX, OWNER_LEN_MAX, PLACES_MAX, TIERS_MAX};
use super::range::RangeId;
use super::refused::Refused;

/// Where to look for a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// In a range.
    Range(RangeId),
    /// Between two numbers, in whatever ranges are there.
    Within(Interval),
}

/// A place, and how much it is preferred.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prefer {
    /// Zero is the best; one is looked at when all of zero are taken; and so on.
    pub tier: u8,
    /// Where.
    pub place: Place,
}

/// A name under which a reservation is found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Key<'a> {
    /// The key; a namespace is part of it.
    pub bytes: &'a [u8],
    /// At most one reservation has it.
    pub unique: bool,
}

/// The owner of a key's partition says that no record elsewhere has the key for itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Vouched {
    /// The partition of the key.
    pub partition: u32,
    /// The ownership in which it was said.
    pub epoch: u64,
    /// The partition of the record that has the key, or had it. The word counts only where
    /// that is: if it has moved meanwhile, the record has, too.
    pub beside: Option<u32>,
}

/// An ask for values.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// Where to look, in this order within a tier.
    pub prefer: &'a [Prefer],
    /// How long they are wanted; without it, for as long as the range offers.
    pub ttl: Option<Duration>,
    /// The data of each value.
    pub data: &'a Fields,
    /// Under what it is found.
    pub keys: &'a [Key<'a>],
    /// An ask that comes again with this gets the same answer.
    pub id: Option<&'a [u8]>,
    /// How many values.
    pub count: u32,
    /// Take fewer than that if there are not enough.
    pub partial: bool,
    /// The new owner. Another owner's values are not given again for a key.
    pub owner: Option<&'a [u8]>,
    /// Where other nodes have partitions, an ask with an id or with a key for itself needs
    /// this.
    pub vouched: Option<Vouched>,
}

impl<'a> Ask<'a> {
    /// One value from here, with nothing beside it.
    pub fn new(prefer: &'a [Prefer]) -> Self {
        const NONE: &Fields = &Fields::new();
        Self {
            prefer,
            ttl: None,
            data: NONE,
            keys: &[],
            id: None,
            count: 1,
            partial: false,
            owner: None,
            vouched: None,
        }
    }

    pub(super) fn check(&self) -> Result<(), Refused> {
        match self.prefer {
            [] => return Err(Refused::NoPlace),
            places if places.len() > PLACES_MAX => return Err(Refused::TooManyPlaces),
            places if places.iter().any(|place| place.tier >= TIERS_MAX) => {
                return Err(Refused::BadTier);
            }
            _ => (),
        }
        if self.count == 0 || self.count > COUNT_MAX {
            return Err(Refused::BadCount);
        }
        if self.count > 1 && self.keys.iter().any(|key| key.unique) {
            return Err(Refused::UniqueForMany);
        }
        if self.ttl.is_some_and(|ttl| ttl.is_zero()) {
            return Err(Refused::NoTime);
        }
        if let Some(id) = self.id {
            check_key(id)?;
        }
        check_owner(self.owner)?;
        check_keys(self.keys)?;
        check_data(self.data)
    }
}

/// Which reservation is meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Which<'a> {
    /// The record of this value.
    Value(u128),
    /// The record with this key.
    Key(&'a [u8]),
}

/// The proof that an asker may change a value.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Proof<'a> {
    /// The holder's number; not needed for values without a holder.
    pub fence: Option<u64>,
    /// The value must belong to this owner, if its owner is known. Without it the
    /// owner does not matter.
    pub owner: Option<&'a [u8]>,
}

impl From<Option<u64>> for Proof<'_> {
    fn from(fence: Option<u64>) -> Self {
        Self { fence, owner: None }
    }
}

/// New data and keys of a value, and its time.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// The holder's number; not needed for values without a holder.
    pub fence: Option<u64>,
    /// Without it, the range's own.
    pub ttl: Option<Duration>,
    /// All the data, or a patch of it.
    pub data: &'a Fields,
    /// All its keys, or further ones; none changes nothing.
    pub keys: &'a [Key<'a>],
    /// Take the value if it is free.
    pub claim: bool,
    /// The owner that writes this. A value that has a holder must belong to this
    /// owner, and one that has none does so from then on.
    pub owner: Option<&'a [u8]>,
    /// The holder may be another owner: it was shown otherwise that this is right.
    pub any_owner: bool,
    /// Where other nodes have partitions, a key for the record itself needs this.
    pub vouched: Option<Vouched>,
}

impl<'a> Change<'a> {
    /// Nothing but this data.
    pub fn new(data: &'a Fields) -> Self {
        Self {
            fence: None,
            ttl: None,
            data,
            keys: &[],
            claim: false,
            owner: None,
            any_owner: false,
            vouched: None,
        }
    }

    pub(super) fn proof(&self) -> Proof<'a> {
        Proof {
            fence: self.fence,
            owner: self.owner.filter(|_| !self.any_owner),
        }
    }

    pub(super) fn check(&self) -> Result<(), Refused> {
        check_owner(self.owner)?;
        check_keys(self.keys)?;
        check_data(self.data)
    }
}

fn check_owner(owner: Option<&[u8]>) -> Result<(), Refused> {
    let is_good = owner.is_none_or(|owner| owner.len() <= OWNER_LEN_MAX);
    is_good.then_some(()).ok_or(Refused::BadOwner)
}

pub(super) fn check_key(key: &[u8]) -> Result<(), Refused> {
    let is_good = !key.is_empty() && key.len() <= KEY_LEN_MAX && key[0] != 0;
    is_good.then_some(()).ok_or(Refused::BadKey)
}

fn check_keys(keys: &[Key<'_>]) -> Result<(), Refused> {
    if keys.len() > KEYS_MAX {
        return Err(Refused::TooManyKeys);
    }
    keys.iter().try_for_each(|key| check_key(key.bytes))
}

pub(super) fn check_data(data: &Fields) -> Result<(), Refused> {
    match data.weighs_over(super::fields::DATA_LEN_MAX) {
        true => Err(Refused::TooMuchData),
        false => Ok(()),
    }
}
