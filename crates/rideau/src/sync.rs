//! The primitives that loom replaces when it explores our interleavings.

use std::sync::PoisonError;

#[cfg(rideau_loom)]
pub(crate) use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU8, Ordering},
};
#[cfg(not(rideau_loom))]
pub(crate) use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU8, Ordering},
};

/// Lock, whatever happened to the last who held it: every section leaves what
/// it guards consistent before it can panic.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
