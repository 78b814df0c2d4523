//! What can be a key of pools and of locks.

use std::hash::Hash;

/// A key of a keyed pool, or of a lock.
pub trait Key: Clone + Eq + Hash + Send + Sync + 'static {}

impl<K: Clone + Eq + Hash + Send + Sync + 'static> Key for K {}
