//! A call for the sweeper, when somebody needs a key no longer.

use std::sync::{Arc, Weak};

use super::board::Spot;
use super::keys::Keys;
use super::shard::Pinned;
use crate::keyed::Key;

/// Calls the sweeper for a key when it goes: what pinned the key goes before.
pub(super) struct Call<K: Key> {
    keys: Weak<Keys<K>>,
    spot: Spot,
}

/// The same for somebody who keeps the keys too, and so keeps all who wait for
/// them served.
pub(super) struct Farewell<K: Key> {
    keys: Arc<Keys<K>>,
    spot: Spot,
}

impl<K: Key> Farewell<K> {
    pub(super) fn new(keys: &Arc<Keys<K>>, pinned: &Pinned<K>) -> Self {
        Self {
            keys: Arc::clone(keys),
            spot: pinned.node().mark.spot(),
        }
    }

    #[inline]
    pub(super) fn keys(&self) -> &Arc<Keys<K>> {
        &self.keys
    }

    /// The spot of the key, then if not now.
    #[inline]
    pub(super) fn spot(&self) -> Spot {
        self.spot
    }
}

impl<K: Key> Drop for Farewell<K> {
    fn drop(&mut self) {
        self.keys.unpinned(self.spot);
    }
}

impl<K: Key> Call<K> {
    pub(super) fn new(keys: Weak<Keys<K>>, pinned: &Pinned<K>) -> Self {
        let spot = pinned.node().mark.spot();
        Self { keys, spot }
    }

    pub(super) fn keys(&self) -> Option<Arc<Keys<K>>> {
        self.keys.upgrade()
    }
}

impl<K: Key> Drop for Call<K> {
    fn drop(&mut self) {
        if let Some(keys) = self.keys() {
            keys.unpinned(self.spot);
        }
    }
}
