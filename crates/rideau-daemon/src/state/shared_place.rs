//! What a node knows of a pool, broker or regulator that all nodes of a cluster share.

use std::sync::atomic::{AtomicBool, Ordering};

/// A thing that lives on the owner of its partition.
pub(crate) struct SharedPlace {
    /// The name whose slot says which partition that is.
    pub(crate) home: Box<str>,
    /// This node is the owner, and knows what is held.
    is_here: AtomicBool,
}

impl SharedPlace {
    /// Something with this home, on another node until this one has taken it over.
    pub(crate) fn new(home: &str) -> Self {
        Self {
            home: home.into(),
            is_here: AtomicBool::new(false),
        }
    }

    /// This node decides about it from now on, or does not any more.
    pub(crate) fn set_here(&self, is_here: bool) {
        self.is_here.store(is_here, Ordering::Release);
    }

    /// Whether this node decides about it.
    pub(crate) fn is_here(&self) -> bool {
        self.is_here.load(Ordering::Acquire)
    }
}
