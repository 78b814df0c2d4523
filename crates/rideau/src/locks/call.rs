//! A call for the sweeper, when somebody needs a key no longer.

use std::sync::{Arc, Weak};

use super::board::Spot;
use super::keys::Keys;
use crate::keyed::Key;

/// Who calls the sweeper for a key that it had pinned until just now.
pub(super) trait Call {
    fn unpinned(&self, spot: Spot);
}

/// Somebody who keeps the keys too, and so keeps all who wait for them served.
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
