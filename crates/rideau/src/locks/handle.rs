//! A key looked up once, for callers that want it often.

use std::fmt;
use std::sync::Arc;

use rideau_core::locks::{Capacity, Full};

use super::entry::Entry;
use super::keys::{Keys, Origin, Source, Taken};
use super::taken::Kept;
use super::{Lock, claim};
use crate::key::Key;

/// A key looked up once, for callers that want it often.
///
/// Its key is not forgotten as long as this exists.
pub struct LockHandle<K: Key>(Kept<K>);

impl<K: Key> LockHandle<K> {
    /// A handle of an entry that was just pinned.
    pub(super) fn new(keys: &Arc<Keys<K>>, entry: Arc<Entry<K>>) -> Self {
        Self(Kept::new(Arc::clone(keys), entry))
    }

    /// Take one unit, exactly if fewer than `capacity` are held.
    ///
    /// # Errors
    ///
    /// If that many or more are held.
    #[inline]
    pub fn acquire(&self, capacity: impl Into<Capacity>) -> Result<Lock<'_, K>, Full> {
        self.acquire_many(1, capacity)
    }

    /// Take several units, all or none.
    ///
    /// # Errors
    ///
    /// If more would be held than `capacity`, or none is asked for.
    #[inline]
    pub fn acquire_many(
        &self,
        units: u32,
        capacity: impl Into<Capacity>,
    ) -> Result<Lock<'_, K>, Full> {
        let (kept, claim) = (&self.0, claim(units, capacity));
        let grant = kept.keys().acquire_pinned(kept.entry(), claim)?;
        let origin = Origin::Borrowed(kept.keys());
        Ok(Lock(Taken::new(
            Source::Pinned(kept.entry()),
            origin,
            grant,
        )))
    }

    /// As [`acquire_many`](Self::acquire_many), and the lock borrows nothing.
    ///
    /// # Errors
    ///
    /// If more would be held than `capacity`, or none is asked for.
    pub fn acquire_owned(
        &self,
        units: u32,
        capacity: impl Into<Capacity>,
    ) -> Result<Lock<'static, K>, Full> {
        let (keys, entry) = (self.0.keys(), self.0.entry());
        let grant = keys.acquire_pinned(entry, claim(units, capacity))?;
        let origin = Origin::Owned(Arc::clone(keys));
        Ok(Lock(Taken::new(
            Source::Found(Arc::clone(entry)),
            origin,
            grant,
        )))
    }

    /// How many units are held.
    pub fn held(&self) -> u64 {
        self.0.keys().held_of(self.0.entry())
    }

    /// The key.
    pub fn key(&self) -> &K {
        self.0.entry().key()
    }
}

impl<K: Key> Clone for LockHandle<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K: Key + fmt::Debug> fmt::Debug for LockHandle<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockHandle")
            .field("key", self.key())
            .field("held", &self.held())
            .finish_non_exhaustive()
    }
}
