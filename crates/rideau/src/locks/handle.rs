//! A key looked up once, for callers that want it often.

use std::fmt;
use std::sync::Arc;

use rideau_core::locks::{Capacity, Full};

use super::keys::{Keys, Origin};
use super::shard::{Kept, Pinned};
use super::{Lock, claim};
use crate::keyed::Key;

/// A key looked up once, for callers that want it often.
///
/// Its key is not forgotten as long as this exists.
pub struct LockHandle<K: Key>(Kept<K, Arc<Keys<K>>>);

impl<K: Key> LockHandle<K> {
    pub(super) fn new(pinned: Pinned<K>, keys: &Arc<Keys<K>>) -> Self {
        Self(Kept::new(pinned, Arc::clone(keys)))
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
        let (claim, pinned) = (claim(units, capacity), self.0.pinned());
        let full = |held| claim.full(held);
        let other = || self.0.call().acquire_with_care(pinned, claim);
        let taken = pinned.node().take_unsaid(claim, full, other)?;
        Ok(Lock(taken.at(Origin::Kept(&self.0))))
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
        let keys = self.0.call();
        let taken = keys.acquire_pinned(self.0.pinned(), claim(units, capacity))?;
        Ok(Lock(taken.at(Origin::Owned(Arc::clone(keys)))))
    }

    /// How many units are held.
    pub fn held(&self) -> u64 {
        self.0.call().held_pinned(self.0.pinned())
    }

    /// The key.
    pub fn key(&self) -> &K {
        self.0.pinned().node().key()
    }
}

impl<K: Key> Clone for LockHandle<K> {
    fn clone(&self) -> Self {
        Self::new(self.0.pinned().clone(), self.0.call())
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
