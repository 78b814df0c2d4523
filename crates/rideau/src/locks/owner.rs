//! An owner that holds any number of units, and gives all back when it ends.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;

use rideau_core::locks::{Capacity, Full};

use super::{Lock, Locks};
use crate::key::Key;

/// A connection, a session or a job that holds units of any number of keys.
///
/// Dropping it gives all of them back: what it held ends with it.
///
/// ```
/// use rideau::Locks;
///
/// let locks: Locks<String> = Locks::new();
/// let mut job = locks.owner();
/// let fence = job.acquire("db", 3)?.fence();
/// job.acquire("disk", 1)?;
/// assert_eq!((job.len(), fence), (2, 1));
/// job.release("disk").expect("it holds one");
/// assert!(job.release("disk").is_err());
/// drop(job);
/// assert_eq!(locks.held("db"), 0);
/// # Ok::<(), rideau::Full>(())
/// ```
pub struct Owner<K: Key> {
    locks: Locks<K>,
    /// None of the lists is empty; the newest lock is last.
    held: HashMap<K, Vec<Lock<'static, K>>>,
}

/// There is nothing to release: the owner holds no unit of that key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotHeld;

impl<K: Key> Owner<K> {
    pub(super) fn new(locks: Locks<K>) -> Self {
        Self {
            locks,
            held: HashMap::new(),
        }
    }

    /// Take one unit of a key, exactly if fewer than `capacity` are held by
    /// all holders.
    ///
    /// # Errors
    ///
    /// If that many or more are held.
    pub fn acquire<Q>(
        &mut self,
        key: &Q,
        capacity: impl Into<Capacity>,
    ) -> Result<&Lock<'static, K>, Full>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        self.acquire_many(key, 1, capacity)
    }

    /// Take several units of a key, all or none.
    ///
    /// # Errors
    ///
    /// If more would be held than `capacity`, or none is asked for.
    pub fn acquire_many<Q>(
        &mut self,
        key: &Q,
        units: u32,
        capacity: impl Into<Capacity>,
    ) -> Result<&Lock<'static, K>, Full>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        let lock = self.locks.acquire_owned(key, units, capacity)?;
        Ok(self.keep(lock))
    }

    /// Hold what was taken elsewhere, by waiting for example.
    pub fn keep(&mut self, lock: Lock<'static, K>) -> &Lock<'static, K> {
        let locks = self.held.entry(lock.key().clone()).or_default();
        locks.push(lock);
        locks.last().expect("it was just put there")
    }

    /// Give back what was taken last of a key.
    ///
    /// # Errors
    ///
    /// If this owner holds nothing of that key, whatever others hold.
    pub fn release<Q>(&mut self, key: &Q) -> Result<(), NotHeld>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let locks = self.held.get_mut(key).ok_or(NotHeld)?;
        let last = locks.pop();
        if locks.is_empty() {
            self.held.remove(key);
        }
        drop(last);
        Ok(())
    }

    /// Give everything back.
    pub fn release_all(&mut self) {
        self.held.clear();
    }

    /// The locks that it holds, in no order.
    pub fn held(&self) -> impl Iterator<Item = &Lock<'static, K>> {
        self.held.values().flatten()
    }

    /// How many locks it holds.
    pub fn len(&self) -> usize {
        self.held.values().map(Vec::len).sum()
    }

    /// It holds nothing.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }
}

impl<K: Key + fmt::Debug> fmt::Debug for Owner<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.held()).finish()
    }
}

impl fmt::Display for NotHeld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nothing of that key is held here")
    }
}

impl std::error::Error for NotHeld {}
