//! Units that were taken, and keys that are kept known.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use rideau_core::locks::Grant;

use super::entry::Entry;
use super::keys::{Keys, Origin, Source, Taken};
use crate::key::Key;

/// A key that is not forgotten as long as this exists. Dropping it lists the key if it is
/// idle then.
pub(super) struct Pinned<K: Key, R: Deref<Target = Keys<K>>> {
    keys: R,
    entry: Arc<Entry<K>>,
}

/// The same, and all keys are kept too, so that each ask that waits is served.
pub(super) type Kept<K> = Pinned<K, Arc<Keys<K>>>;

const ORDINAL_SHIFT: u32 = 32;

impl<'a, K: Key> Taken<'a, K> {
    #[inline(always)]
    pub(super) fn new(source: Source<'a, K>, origin: Origin<'a, K>, grant: Grant) -> Self {
        Self {
            source,
            origin,
            units: (grant.ordinal << ORDINAL_SHIFT) | u64::from(grant.units),
            fence: grant.fence,
            waited: 0,
        }
    }

    /// The numbers the units were granted with.
    pub(super) fn grant(&self) -> Grant {
        Grant {
            units: self.units as u32,
            ordinal: self.units >> ORDINAL_SHIFT,
            fence: self.fence,
        }
    }

    #[inline(always)]
    pub(super) fn entry(&self) -> &Arc<Entry<K>> {
        match &self.source {
            Source::Found(entry) => entry,
            Source::Pinned(entry) => entry,
        }
    }

    fn keys(&self) -> &Keys<K> {
        match &self.origin {
            Origin::Borrowed(keys) => keys,
            Origin::Owned(keys) => keys,
        }
    }

    /// How long the units were waited for.
    pub(super) fn waited(&self) -> Duration {
        Duration::from_nanos(self.waited)
    }

    pub(super) fn set_waited(&mut self, waited: Duration) {
        self.waited = u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX);
    }

    /// The grant alone: the units stay taken.
    pub(super) fn into_grant(mut self) -> Grant {
        let grant = self.grant();
        self.units = 0;
        grant
    }
}

impl<K: Key> Drop for Taken<'_, K> {
    #[inline(always)]
    fn drop(&mut self) {
        let entry = self.entry();
        let left = entry.word().give_back(u64::from(self.units as u32));
        // That no unit is held does not matter while the key is pinned.
        let is_pinned = matches!(self.source, Source::Pinned(_));
        if !left.is_no_news(is_pinned || entry.is_listed()) {
            self.keys().came_back(entry, left, is_pinned);
        }
    }
}

impl<K: Key, R: Deref<Target = Keys<K>>> Pinned<K, R> {
    /// An entry that was just pinned.
    pub(super) fn new(keys: R, entry: Arc<Entry<K>>) -> Self {
        Self { keys, entry }
    }

    #[inline]
    pub(super) fn entry(&self) -> &Arc<Entry<K>> {
        &self.entry
    }

    #[inline]
    pub(super) fn keys(&self) -> &R {
        &self.keys
    }
}

impl<K: Key> Clone for Kept<K> {
    fn clone(&self) -> Self {
        self.entry.pin();
        Self::new(Arc::clone(&self.keys), Arc::clone(&self.entry))
    }
}

impl<K: Key, R: Deref<Target = Keys<K>>> Drop for Pinned<K, R> {
    fn drop(&mut self) {
        if self.entry.unpin() && self.entry.idle().is_some() {
            self.keys.list(&self.entry);
        }
    }
}
