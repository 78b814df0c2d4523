//! A part of the keys: found without a lock, changed under one.
//!
//! Everything unsafe of the keyed locks is in this file and in the grave's. A node
//! is the memory of one key. It is made and taken off its table under the lock of
//! its shard, and read by any thread at any time. What keeps it alive is one of
//! four things:
//!
//! * a [`Pin`]: a node that is taken off a table is buried, and the grave is not
//!   emptied before every pin that was there at that time is gone. Pins say
//!   nothing about the key: it may be retired meanwhile, and its word says so;
//! * the lock of the shard: without it nothing is taken off;
//! * [`Units`]: a node is taken off only once its word is retired, and that only
//!   works while nothing is held. Units are made of what a word gave, and give
//!   it back when they are dropped;
//! * a [`Pinned`]: a node is not retired while `pins` counts any. The first is
//!   made under the lock, which the thread that retires has as well.
//!
//! A table that is too small is replaced and buried in the same way; its nodes
//! move. A reader of an old table, or of one that is being changed, may miss a
//! key, and then looks again under the lock. No reader finds a wrong one. When
//! the shard goes, nodes that are held or pinned stay: a guard was forgotten.

#![allow(unsafe_code)]

use std::borrow::Borrow;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};

use rideau_core::locks::{Claim, Grant};

use super::board::Spot;
use super::call::Call;
use super::grave::{Grave, Pin};
use super::rules::Mark;
use super::stub::{Home, Stub};
use super::table::Table;
use super::word::{No, Road, Word};
use crate::sync::{AtomicPtr, AtomicU32, Mutex, MutexGuard, Ordering, lock};

/// The memory of one key.
///
/// In this order: what every thread looks at is mostly on one cache line, and
/// what is next to it there, the end of another node, is hardly ever looked at. A
/// line for each alone would take twice the memory.
#[repr(C, align(16))]
pub(super) struct Node<K> {
    key: K,
    word: Word,
    pub(super) mark: Mark,
    hash: u64,
    pins: AtomicU32,
}

/// Keys whose hashes begin alike.
pub(super) struct Shard<K> {
    /// Null as long as there is no key.
    table: AtomicPtr<Table<Node<K>>>,
    nodes: Mutex<Nodes<K>>,
    /// Threads that share the shard compare its keys at the same time.
    _shares: PhantomData<Node<K>>,
}

/// What changes under the lock.
struct Nodes<K> {
    len: usize,
    /// No key was ever given a larger fence among those that were forgotten.
    fence: u64,
    /// The thread that has the lock may be the one that ends a key.
    _owns: PhantomData<Node<K>>,
}

/// A shard whose lock the caller has.
pub(super) struct Locked<'a, K> {
    shard: &'a Shard<K>,
    nodes: MutexGuard<'a, Nodes<K>>,
    /// What is buried under the lock ends later: what keys do then is up to
    /// their authors.
    grave: &'a Grave,
}

/// Units of a key that a holder has, until it drops them.
pub(super) struct Units<K, H: Home> {
    loose: Loose<K>,
    /// There until the units are dropped.
    home: ManuallyDrop<H>,
}

/// Units that were taken and have no home yet. They stay taken for ever unless
/// they get one.
///
/// All fields are as wide as a register, so that moving it never reads back part
/// of what was just written.
#[must_use]
pub(super) struct Loose<K> {
    node: NonNull<Node<K>>,
    /// What to give back, and where to tell, is known without a look at the node,
    /// which others may be busy with.
    stub: Stub,
    fence: u64,
}

/// A key that is not forgotten as long as this exists.
pub(super) struct Pinned<K> {
    node: NonNull<Node<K>>,
}

/// The same, and then the sweeper is called, which passes over what is pinned.
pub(super) struct Kept<K, C: Call> {
    /// There until this is dropped.
    pinned: ManuallyDrop<Pinned<K>>,
    call: C,
}

// SAFETY: a node is shared by all holders of units of it, whatever thread they
// are on: it is reached by shared reference alone, and the last holder drops the
// key.
unsafe impl<K: Send + Sync> Send for Loose<K> {}
// SAFETY: as above.
unsafe impl<K: Send + Sync> Sync for Loose<K> {}
// SAFETY: as above.
unsafe impl<K: Send + Sync> Send for Pinned<K> {}
// SAFETY: as above.
unsafe impl<K: Send + Sync> Sync for Pinned<K> {}

const CELLS_MIN: usize = 8;
/// Added to the pins of a node whose shard is gone.
const ORPHANED: u32 = 1 << 31;

impl<K> Node<K> {
    pub(super) fn word(&self) -> &Word {
        &self.word
    }

    pub(super) fn key(&self) -> &K {
        &self.key
    }

    /// Its name while it is not forgotten.
    pub(super) fn address(&self) -> usize {
        ptr::from_ref(self).addr()
    }

    pub(super) fn pins(&self) -> u32 {
        self.pins.load(Ordering::Acquire)
    }

    /// Take units of the key, exactly if they fit.
    pub(super) fn take(&self, claim: Claim, road: Road) -> Result<Loose<K>, No> {
        let grant = self.word.take(claim, road)?;
        Ok(Loose::new(self.into(), self.mark.spot(), claim, grant))
    }

    /// The same in the usual case. None if it is another.
    #[inline(always)]
    pub(super) fn take_at_once(&self, claim: Claim) -> Result<Loose<K>, Option<u64>> {
        // The spot before the word, with the key that is next to it.
        let spot = self.mark.spot();
        let grant = self.word.take_at_once(claim)?;
        Ok(Loose::new(self.into(), spot, claim, grant))
    }

    /// The same for a take whose home needs no spot, and that is served by this
    /// node in any other case too: beside the word nothing is read.
    #[inline(always)]
    pub(super) fn take_unsaid<E>(
        &self,
        claim: Claim,
        full: impl FnOnce(u64) -> E,
        other: impl FnOnce() -> Result<Loose<K>, E>,
    ) -> Result<Loose<K>, E> {
        let grant = match self.word.take_at_once(claim) {
            Ok(grant) => grant,
            Err(Some(held)) => return Err(full(held)),
            Err(None) => {
                let taken = other()?;
                let is_ours = ptr::eq(taken.node.as_ptr(), self);
                let is_all = taken.stub.units() == claim.units;
                assert!(is_ours && is_all, "all of it was granted, here");
                taken.grant()
            }
        };
        Ok(Loose::new(self.into(), Spot::UNSAID, claim, grant))
    }

    /// The same in any other case.
    pub(super) fn take_with_care(&self, claim: Claim) -> Result<Loose<K>, No> {
        let grant = self.word.take_with_care(claim, Road::Open)?;
        Ok(Loose::new(self.into(), self.mark.spot(), claim, grant))
    }
}

impl<K> Loose<K> {
    /// What the word of a node gave. Nothing else makes any.
    #[inline(always)]
    fn new(node: NonNull<Node<K>>, spot: Spot, claim: Claim, grant: Grant) -> Self {
        Self {
            node,
            // Of the claim, which is known where it was made.
            stub: Stub::new(spot, grant.ordinal, claim.units),
            fence: grant.fence,
        }
    }

    /// What was given at once, or in any other case by another. Both are taken
    /// apart before they meet, so that the usual one stays in registers.
    #[inline(always)]
    pub(super) fn or_else<E>(
        at_once: Result<Self, Option<u64>>,
        claim: Claim,
        full: impl FnOnce(u64) -> E,
        other: impl FnOnce() -> Result<Self, E>,
    ) -> Result<Self, E> {
        let apart = |taken: Self| {
            assert_eq!(taken.stub.units(), claim.units, "all of it was granted");
            (taken.node, taken.stub.spot(), taken.grant())
        };
        let (node, spot, grant) = match at_once {
            Ok(taken) => apart(taken),
            Err(Some(held)) => return Err(full(held)),
            Err(None) => apart(other()?),
        };
        Ok(Self::new(node, spot, claim, grant))
    }

    #[inline(always)]
    fn grant(&self) -> Grant {
        Grant {
            units: self.stub.units(),
            ordinal: self.stub.ordinal(),
            fence: self.fence,
        }
    }

    /// Have another ordinal, when several were taken at once.
    pub(super) fn set_ordinal(&mut self, ordinal: u64) {
        self.stub = Stub::new(self.stub.spot(), ordinal, self.stub.units());
    }

    /// Give them a home that hears when they come back.
    #[inline(always)]
    pub(super) fn at<H: Home>(self, home: H) -> Units<K, H> {
        let home = ManuallyDrop::new(home);
        Units { loose: self, home }
    }
}

impl<K: Eq> Shard<K> {
    /// No key; the first fence is larger than `fence`.
    pub(super) fn new(fence: u64) -> Self {
        Self {
            table: AtomicPtr::new(ptr::null_mut()),
            nodes: Mutex::new(Nodes {
                len: 0,
                fence,
                _owns: PhantomData,
            }),
            _shares: PhantomData,
        }
    }

    /// Look a key up. None is not final: it may have been missed. The pin is of
    /// the grave that this shard is always locked with.
    #[inline]
    pub(super) fn find<'p, Q>(&'p self, hash: u64, key: &Q, pin: &'p Pin<'_>) -> Option<&'p Node<K>>
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        let table = pin.load(&self.table);
        // SAFETY: a table is buried after it was replaced, so one that was loaded
        // by a pin lives as long as the pin.
        let table = unsafe { table.as_ref()? };
        let mut at = table.home(hash);
        // One that is being changed might look full for a moment.
        for _ in 0..table.len() {
            let found = pin.load(table.cell(at));
            if found.is_null() {
                return None;
            }
            if Table::hints_at(found, hash) {
                // SAFETY: as for the table, and it is not null.
                let node: &'p Node<K> = unsafe { &*Table::bare(found) };
                if node.key.borrow() == key {
                    return Some(node);
                }
            }
            at = table.next(at);
        }
        None
    }

    pub(super) fn lock<'a>(&'a self, grave: &'a Grave) -> Locked<'a, K> {
        Locked {
            shard: self,
            nodes: lock(&self.nodes),
            grave,
        }
    }
}

impl<K: Eq + 'static> Locked<'_, K> {
    pub(super) fn len(&self) -> usize {
        self.nodes.len
    }

    /// Look a key up, finally.
    pub(super) fn find<Q>(&self, hash: u64, key: &Q) -> Option<&Node<K>>
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        let table = self.table()?;
        let mut at = table.home(hash);
        loop {
            let node = self.node_at(table, at)?;
            if node.hash == hash && node.key.borrow() == key {
                return Some(node);
            }
            at = table.next(at);
        }
    }

    /// Pin a key that is there.
    pub(super) fn pin<Q>(&self, hash: u64, key: &Q) -> Option<Pinned<K>>
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        self.find(hash, key).map(Pinned::new)
    }

    /// Add a key that is not there.
    pub(super) fn add(&mut self, hash: u64, shard: u32, rule: u32, key: K) -> Pinned<K> {
        let node = Box::into_raw(Box::new(Node {
            key,
            word: Word::new(self.nodes.fence),
            mark: Mark::new(shard, rule),
            hash,
            pins: AtomicU32::new(1),
        }));
        if self.is_crowded() {
            self.resize((self.cells() * 2).max(CELLS_MIN));
        }
        let table = self.table().expect("there is a table with room now");
        table.put(hash, node);
        self.nodes.len += 1;
        let node = NonNull::new(node).expect("a box is somewhere");
        Pinned { node }
    }

    /// Whether the next key that is added makes the table grow.
    pub(super) fn is_crowded(&self) -> bool {
        (self.nodes.len + 1) * 4 > self.cells() * 3
    }

    fn cells(&self) -> usize {
        self.table().map_or(0, Table::len)
    }

    /// Every node, in no order.
    pub(super) fn nodes(&self) -> impl Iterator<Item = &Node<K>> {
        let table = self.table();
        let places = 0..table.map_or(0, Table::len);
        places.filter_map(move |at| self.node_at(table?, at))
    }

    /// Forget keys that are not held, waited for or pinned: those that `is_over`
    /// says so of, with their word. The others are `left`. Says which rules the
    /// forgotten ones had.
    pub(super) fn forget(
        &mut self,
        is_over: impl Fn(&Mark, u64) -> bool,
        mut left: impl FnMut(&Mark),
    ) -> Vec<u32> {
        let mut gone = Vec::new();
        for node in self.nodes() {
            let Some(idle) = node.word.idle() else {
                continue;
            };
            if node.pins() > 0 {
                continue;
            }
            if is_over(&node.mark, idle) && node.word.retire(idle) {
                gone.push((NonNull::from(node), node.mark.rule()));
            } else {
                left(&node.mark);
            }
        }
        gone.iter().for_each(|(node, _)| self.take_off(*node));
        let cells = self.cells();
        if self.nodes.len == 0 {
            self.replace(ptr::null_mut());
        } else if self.nodes.len * 8 < cells && cells > CELLS_MIN {
            let enough = (self.nodes.len * 2).next_power_of_two();
            self.resize(enough.max(CELLS_MIN));
        }
        gone.into_iter().map(|(_, rule)| rule).collect()
    }

    /// Take a retired node off the table and bury it.
    fn take_off(&mut self, node: NonNull<Node<K>>) {
        // SAFETY: it is on the table of the shard whose lock is held.
        let (hash, fence) = unsafe { (node.as_ref().hash, node.as_ref().word.fence()) };
        self.nodes.fence = self.nodes.fence.max(fence);
        let table = self.table().expect("what is taken off was on it");
        let mut hole = table.home(hash);
        // The table has the pointer of the box. The one at hand came from a
        // shared reference, and those may not free what they point to.
        let buried = loop {
            let here = table.at(hole);
            if here == node.as_ptr() {
                break here;
            }
            hole = table.next(hole);
        };
        // SAFETY: as above.
        table.clear(hole, |node| unsafe { (*node).hash });
        self.nodes.len -= 1;
        // SAFETY: it came from a box, is on no table that can be loaded from now
        // on, and no thread has units of it or pins it: its word is retired. Keys
        // can be sent (`Key`).
        unsafe { self.grave.bury(buried, size_of::<Node<K>>()) };
    }

    /// Move all nodes to a table of this many cells: a power of two.
    fn resize(&mut self, cells: usize) {
        let table = Table::new(cells);
        if let Some(old) = self.table() {
            for node in (0..old.len()).map(|at| old.at(at)) {
                if !node.is_null() {
                    // SAFETY: as in `node_at`.
                    table.put(unsafe { (*node).hash }, node);
                }
            }
        }
        self.replace(Box::into_raw(Box::new(table)));
    }

    fn replace(&mut self, table: *mut Table<Node<K>>) {
        let old = self.shard.table.swap(table, Ordering::SeqCst);
        if !old.is_null() {
            // SAFETY: it came from a box, cannot be loaded from now on, and has no
            // key of its own.
            unsafe {
                let cells = (*old).len();
                self.grave.bury(old, cells * size_of::<*mut Node<K>>());
            }
        }
    }

    fn table(&self) -> Option<&Table<Node<K>>> {
        // SAFETY: it is replaced by the thread that has the lock and borrows it
        // as its own alone.
        unsafe { self.shard.table.load(Ordering::Relaxed).as_ref() }
    }

    fn node_at(&self, table: &Table<Node<K>>, at: usize) -> Option<&Node<K>> {
        // SAFETY: nothing is taken off a table without the lock that is held.
        unsafe { table.at(at).as_ref() }
    }
}

impl<K> Drop for Shard<K> {
    fn drop(&mut self) {
        let table = self.table.load(Ordering::Acquire);
        if table.is_null() {
            return;
        }
        // SAFETY: no other thread has the shard any more, and tables come from
        // boxes.
        let table = unsafe { Box::from_raw(table) };
        for node in (0..table.len()).map(|at| table.at(at)) {
            // SAFETY: nodes on a table are alive.
            let is_unused = unsafe { node.as_ref() }.is_some_and(|node| {
                node.word.idle().is_some() && node.pins.fetch_or(ORPHANED, Ordering::AcqRel) == 0
            });
            if is_unused {
                // SAFETY: no thread has units of it or pins it, and it came from a
                // box. A thread that pins another is told that it is the last to know
                // of it.
                drop(unsafe { Box::from_raw(node) });
            }
        }
    }
}

impl<K, H: Home> Units<K, H> {
    pub(super) fn node(&self) -> &Node<K> {
        // SAFETY: units of it are held.
        unsafe { self.loose.node.as_ref() }
    }

    pub(super) fn home(&self) -> &H {
        &self.home
    }

    pub(super) fn home_mut(&mut self) -> &mut H {
        &mut self.home
    }

    /// The numbers they were granted with.
    pub(super) fn grant(&self) -> Grant {
        self.loose.grant()
    }

    /// Take them from their home.
    pub(super) fn loosen(self) -> Loose<K> {
        let mut units = ManuallyDrop::new(self);
        // SAFETY: neither is used again, and nothing is dropped twice.
        let (loose, home) = unsafe {
            let home = ManuallyDrop::take(&mut units.home);
            (ptr::read(&units.loose), home)
        };
        drop(home);
        loose
    }
}

impl<K, H: Home> Drop for Units<K, H> {
    #[inline(always)]
    fn drop(&mut self) {
        let (node, spot) = (self.node(), self.loose.stub.spot());
        let address = node.address();
        // From here on the node may be gone.
        let left = node.word.give_back(self.loose.stub.units().into());
        // SAFETY: it is taken this once. By value, so that all of this can stay
        // in registers.
        let home = unsafe { ManuallyDrop::take(&mut self.home) };
        home.hear(spot, address, left);
    }
}

impl<K> Pinned<K> {
    /// Pin a node of a shard whose lock the caller has.
    fn new(node: &Node<K>) -> Self {
        node.pins.fetch_add(1, Ordering::Relaxed);
        Self {
            node: NonNull::from(node),
        }
    }

    pub(super) fn node(&self) -> &Node<K> {
        // SAFETY: it is pinned.
        unsafe { self.node.as_ref() }
    }
}

impl<K> Clone for Pinned<K> {
    fn clone(&self) -> Self {
        self.node().pins.fetch_add(1, Ordering::Relaxed);
        Self { node: self.node }
    }
}

impl<K> Drop for Pinned<K> {
    fn drop(&mut self) {
        let before = self.node().pins.fetch_sub(1, Ordering::AcqRel);
        if before == ORPHANED | 1 {
            // SAFETY: the shard is gone and has left it to the last that pins it. It came
            // from a box, and no thread has units of it.
            drop(unsafe { Box::from_raw(self.node.as_ptr()) });
        }
    }
}

impl<K, C: Call> Kept<K, C> {
    pub(super) fn new(pinned: Pinned<K>, call: C) -> Self {
        let pinned = ManuallyDrop::new(pinned);
        Self { pinned, call }
    }

    #[inline]
    pub(super) fn pinned(&self) -> &Pinned<K> {
        &self.pinned
    }

    #[inline]
    pub(super) fn call(&self) -> &C {
        &self.call
    }
}

impl<K, C: Call> Drop for Kept<K, C> {
    fn drop(&mut self) {
        let spot = self.pinned.node().mark.spot();
        // SAFETY: it is dropped this once.
        unsafe { ManuallyDrop::drop(&mut self.pinned) };
        self.call.unpinned(spot);
    }
}
