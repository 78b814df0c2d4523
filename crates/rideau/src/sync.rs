//! The primitives that loom replaces when it explores our interleavings.

#[cfg(rideau_loom)]
pub(crate) use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering},
};
#[cfg(not(rideau_loom))]
pub(crate) use parking_lot::{Mutex, MutexGuard};

/// A lock that is free again with a plain write, for sections that are short:
/// no thread can be told to wake up, so a thread that waits has to look again.
#[cfg(not(rideau_loom))]
pub(crate) type Latch<T> = spin::mutex::SpinMutex<T, spin::Yield>;
#[cfg(rideau_loom)]
pub(crate) type Latch<T> = Mutex<T>;

#[cfg(not(rideau_loom))]
pub(crate) type LatchGuard<'a, T> = spin::mutex::SpinMutexGuard<'a, T, spin::Yield>;
#[cfg(rideau_loom)]
pub(crate) type LatchGuard<'a, T> = MutexGuard<'a, T>;
#[cfg(not(rideau_loom))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

#[cfg(not(rideau_loom))]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

#[cfg(not(rideau_loom))]
pub(crate) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    mutex.try_lock()
}

#[cfg(rideau_loom)]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no model panics under a lock")
}

#[cfg(rideau_loom)]
pub(crate) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    mutex.try_lock().ok()
}

#[cfg(not(rideau_loom))]
#[inline]
pub(crate) fn latch<T>(latch: &Latch<T>) -> LatchGuard<'_, T> {
    latch.lock()
}

#[cfg(not(rideau_loom))]
#[inline]
pub(crate) fn try_latch<T>(latch: &Latch<T>) -> Option<LatchGuard<'_, T>> {
    latch.try_lock()
}

/// As `try_latch`, with some more looks: unless a thread has it and does not
/// leave.
#[inline]
pub(crate) fn latch_soon<T>(latch: &Latch<T>) -> Option<LatchGuard<'_, T>> {
    try_latch(latch).or_else(|| look_for(latch))
}

#[cold]
fn look_for<T>(latch: &Latch<T>) -> Option<LatchGuard<'_, T>> {
    (0..LOOKS_MAX).find_map(|_| {
        std::hint::spin_loop();
        try_latch(latch)
    })
}

/// So often one looks whether a latch is free before one goes elsewhere.
const LOOKS_MAX: u32 = if cfg!(rideau_loom) { 0 } else { 64 };

#[cfg(rideau_loom)]
pub(crate) fn latch<T>(latch: &Latch<T>) -> LatchGuard<'_, T> {
    lock(latch)
}

#[cfg(rideau_loom)]
pub(crate) fn try_latch<T>(latch: &Latch<T>) -> Option<LatchGuard<'_, T>> {
    try_lock(latch)
}

#[cfg(not(rideau_loom))]
#[inline]
pub(crate) fn into_inner<T>(latch: Latch<T>) -> T {
    latch.into_inner()
}

#[cfg(rideau_loom)]
pub(crate) fn into_inner<T>(latch: Latch<T>) -> T {
    latch.into_inner().expect("no model panics under a lock")
}
