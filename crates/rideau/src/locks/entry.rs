//! The entry of one key, and when it may be removed.
//!
//! The map has one reference to an entry, and so has each lock, handle and line of the
//! key. References keep memory and nothing else: a thread that found an entry may be late.
//! Whether the key is still known, its word says.
//!
//! # How a key comes and goes
//!
//! * A key is added under the lock of its shard, after a look under that lock found none.
//!   So there is at most one entry of a key that is not retired.
//! * Its entry stays in the map when the last unit comes back. The thread that brings it
//!   puts the entry on the idle list of its rule, unless it is listed already.
//! * A thread that looks through the list forgets a key that was idle for a while: under
//!   the lock of the shard it finds the key unpinned, changes the word from idle to
//!   `RETIRED`, remembers its fence for the next entry, and removes it from the map.
//!
//! # No unit is lost, and none is granted twice
//!
//! * Units are added to a word that is not retired, by a compare-and-swap. A word is
//!   retired by a compare-and-swap from the value that was seen idle, and each take makes
//!   another fence of it. So a word has units or is retired, never both.
//! * `RETIRED` is never taken back. A thread that found such an entry takes the lock of the
//!   shard, where the entry is in the map no longer, and adds the key anew.
//! * A lock has a reference to the entry that it was taken of, so units come back to the
//!   word that counted them.
//! * Handles and lines pin their key. A pin is made under the lock of the shard, or by a
//!   thread that has one, so it is not made between the look at the pins and the change to
//!   `RETIRED`.
//!
//! # No idle key is missed
//!
//! A thread that makes a key idle first changes the word or the pins and then reads
//! `LISTED`. A thread that takes an entry off the list first clears `LISTED` and then looks
//! at both. All of these are in one order, so one of the two sees what the other did.

use std::ptr;
#[cfg(not(rideau_loom))]
use std::sync::atomic::fence;
use std::sync::atomic::{AtomicU32 as PlainU32, Ordering};

#[cfg(rideau_loom)]
use loom::sync::atomic::fence;

use super::word::Word;
use crate::sync::AtomicU32;

/// In this order: what a take touches is next to the counts of the entry's `Arc`.
#[repr(C)]
pub(super) struct Entry<K> {
    word: Word,
    /// How often the key is pinned, in steps of `PIN`, and `LISTED`.
    pins: AtomicU32,
    /// Changed under the lock of the shard.
    rule: PlainU32,
    key: K,
    hash: u64,
}

/// The entry is in the idle list of its rule, or a thread is about to put it there.
const LISTED: u32 = 1;
const PIN: u32 = 2;

impl<K> Entry<K> {
    /// A key that is pinned once, and whose fences come after `fence`.
    pub(super) fn new(key: K, hash: u64, rule: u32, fence: u64) -> Self {
        Self {
            word: Word::new(fence),
            pins: AtomicU32::new(PIN),
            rule: PlainU32::new(rule),
            key,
            hash,
        }
    }

    #[inline]
    pub(super) fn word(&self) -> &Word {
        &self.word
    }

    #[inline]
    pub(super) fn hash(&self) -> u64 {
        self.hash
    }

    #[inline]
    pub(super) fn key(&self) -> &K {
        &self.key
    }

    /// Its name while there is a reference to it.
    pub(super) fn address(&self) -> usize {
        ptr::from_ref(self).addr()
    }

    pub(super) fn rule(&self) -> u32 {
        self.rule.load(Ordering::Relaxed)
    }

    pub(super) fn set_rule(&self, rule: u32) {
        self.rule.store(rule, Ordering::Relaxed);
    }

    /// Keep the key known. Under the lock of the shard, or by a thread that has pinned
    /// it already.
    pub(super) fn pin(&self) {
        self.pins.fetch_add(PIN, Ordering::Relaxed);
    }

    /// Pin it no longer. True if that was the last pin of a key that is not listed.
    pub(super) fn unpin(&self) -> bool {
        self.pins.fetch_sub(PIN, Ordering::SeqCst) == PIN
    }

    #[inline]
    pub(super) fn is_listed(&self) -> bool {
        // Loom takes one order of all for less than it is, but knows fences.
        #[cfg(rideau_loom)]
        fence(Ordering::SeqCst);
        self.pins.load(Ordering::SeqCst) & LISTED != 0
    }

    /// True if it was not listed before: the caller puts it on the list.
    pub(super) fn mark_listed(&self) -> bool {
        self.pins.fetch_or(LISTED, Ordering::SeqCst) & LISTED == 0
    }

    /// The caller has taken it off the list.
    pub(super) fn mark_unlisted(&self) {
        self.pins.fetch_and(!LISTED, Ordering::SeqCst);
    }

    /// The word, if no unit is held, no ask waits and the key is not pinned.
    pub(super) fn idle(&self) -> Option<u64> {
        fence(Ordering::SeqCst);
        let is_pinned = self.pins.load(Ordering::SeqCst) >= PIN;
        self.word.idle().filter(|_| !is_pinned)
    }
}

#[cfg(all(test, not(rideau_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_idle_when_it_is_neither_held_nor_pinned() {
        let entry = Entry::new("db", 7, 0, 0);
        assert_eq!(entry.idle(), None);
        entry.pin();
        assert!(!entry.unpin() && entry.unpin());
        assert_eq!(entry.idle(), Some(0));
        assert!(entry.mark_listed() && !entry.mark_listed());
        assert_eq!(entry.idle(), Some(0), "a list does not keep it");
        entry.pin();
        assert!(!entry.unpin(), "it is listed already");
        entry.mark_unlisted();
        assert!(!entry.is_listed());
    }
}
