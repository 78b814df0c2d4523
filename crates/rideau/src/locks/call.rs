//! A call for the sweeper, when a key is needed no longer.

use std::sync::{Arc, Weak};

use super::board::Spot;
use super::keys::Keys;
use crate::keyed::Key;

/// Calls the sweeper for a key that was pinned until just now.
pub(super) trait Call {
    fn unpinned(&self, spot: Spot);
}

/// A caller that keeps the keys too, and so keeps all asks that wait for them
/// served.
impl<K: Key> Call for Arc<Keys<K>> {
    fn unpinned(&self, spot: Spot) {
        Keys::unpinned(self, spot);
    }
}

/// Where the keys are gone, there is nothing to sweep.
impl<K: Key> Call for Weak<Keys<K>> {
    fn unpinned(&self, spot: Spot) {
        if let Some(keys) = self.upgrade() {
            keys.unpinned(spot);
        }
    }
}
