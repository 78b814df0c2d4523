//! An ask that waits, with all that belongs to it.

use std::time::Duration;

use super::ask::{Ask, Key, Place, Prefer, Vouched};
use super::fields::Fields;

/// An ask for values that outlives the call that it came with.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    prefer: Box<[Prefer]>,
    ttl: Option<Duration>,
    data: Fields,
    keys: Box<[(Box<[u8]>, bool)]>,
    id: Option<Box<[u8]>>,
    count: u32,
    partial: bool,
    owner: Option<Box<[u8]>>,
    vouched: Option<Vouched>,
}

impl Asked {
    pub(super) fn of(ask: &Ask<'_>) -> Self {
        let keys = ask.keys.iter();
        Self {
            prefer: ask.prefer.into(),
            ttl: ask.ttl,
            data: ask.data.clone(),
            keys: keys.map(|key| (key.bytes.into(), key.unique)).collect(),
            id: ask.id.map(Into::into),
            count: ask.count,
            partial: ask.partial,
            owner: ask.owner.map(Into::into),
            vouched: ask.vouched,
        }
    }

    pub(super) fn with<T>(&self, then: impl FnOnce(&Ask<'_>) -> T) -> T {
        let keys = self.keys.iter();
        let keys: Vec<Key<'_>> = keys
            .map(|(bytes, unique)| Key {
                bytes,
                unique: *unique,
            })
            .collect();
        then(&Ask {
            prefer: &self.prefer,
            ttl: self.ttl,
            data: &self.data,
            keys: &keys,
            id: self.id.as_deref(),
            count: self.count,
            partial: self.partial,
            owner: self.owner.as_deref(),
            vouched: self.vouched,
        })
    }

    pub(super) fn prefer(&self) -> &[Prefer] {
        &self.prefer
    }

    pub(super) fn places(&self) -> impl Iterator<Item = Place> + '_ {
        self.prefer.iter().map(|prefer| prefer.place)
    }

    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// It wants several values or none.
    pub(super) fn is_several(&self) -> bool {
        self.count > 1 && !self.partial
    }

    /// An ask with its own names may have a value already.
    pub(super) fn has_names(&self) -> bool {
        self.id.is_some() || !self.keys.is_empty()
    }

    /// About how much memory it uses.
    pub(super) fn bytes(&self) -> usize {
        let keys = self.keys.iter();
        let keys: usize = keys.map(|(bytes, _)| bytes.len() + 24).sum();
        let id = self.id.as_ref().map_or(0, |id| id.len());
        let owner = self.owner.as_ref().map_or(0, |owner| owner.len());
        size_of::<Self>() + size_of_val(&*self.prefer) + self.data.weight() + keys + id + owner
    }
}
