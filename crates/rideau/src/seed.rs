//! Seeds for what is drawn outside of tests.

use std::hash::{BuildHasher, RandomState};

/// A seed that differs from process to process and from call to call.
pub(crate) fn seed() -> u64 {
    RandomState::new().hash_one(0)
}
