//! The primitives that loom replaces when it explores our interleavings.

#[cfg(not(rideau_loom))]
pub(crate) use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError, Weak,
    atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering},
};

#[cfg(rideau_loom)]
pub(crate) use loom::sync::{
    Arc, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU8, Ordering},
};
#[cfg(rideau_loom)]
pub(crate) use std::sync::{
    PoisonError, Weak,
    atomic::{AtomicU32, AtomicU64},
};

/// Lock, whatever happened to the last who held it: every section leaves what
/// it guards consistent before it can panic.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
