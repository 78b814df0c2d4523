//! Pools by name, added and removed while the program runs.
//!
//! A name stands for one pool at a time. It is free again as soon as its pool
//! is removed, while that is still closing.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rideau_core::OptionError;
use rideau_core::pool::{Options, Stats};

use crate::clock::Clock;
use crate::pool::{Manager, Pool};

/// Pools by name.
///
/// Clones are the same registry.
pub struct Registry<M: Manager> {
    inner: Arc<Mutex<Inner<M>>>,
}

struct Inner<M: Manager> {
    pools: BTreeMap<String, Pool<M>>,
    /// Removed, but not gone: perhaps nothing else sees to their ends.
    closing: Vec<Pool<M>>,
}

/// A pool did not come to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AddError {
    /// Another pool has that name.
    Taken(String),
    /// An option breaks a rule.
    Option(OptionError),
}

/// There is no pool of that name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NoSuchPool(pub String);

impl<M: Manager> Registry<M> {
    /// A registry without pools.
    pub fn new() -> Self {
        let inner = Inner {
            pools: BTreeMap::new(),
            closing: Vec::new(),
        };
        Self {
            inner: Arc::new(Mutex::new(inner)),
        }
    }

    /// Open a pool by that name, as by [`Pool::new`].
    ///
    /// # Errors
    ///
    /// If the name is taken, and then nothing was started; or if an option
    /// breaks a rule.
    pub fn add(&self, name: &str, manager: M, options: Options) -> Result<Pool<M>, AddError> {
        self.fill(name, || Pool::named(name, manager, options))
    }

    /// As [`add`](Self::add), by a given clock.
    ///
    /// # Errors
    ///
    /// As [`add`](Self::add).
    pub fn add_by(
        &self,
        name: &str,
        manager: M,
        options: Options,
        clock: &Clock,
    ) -> Result<Pool<M>, AddError> {
        self.fill(name, || Pool::named_by(name, manager, options, clock))
    }

    /// Let a pool be known by that name.
    ///
    /// # Errors
    ///
    /// If the name is taken.
    pub fn add_pool(&self, name: &str, pool: &Pool<M>) -> Result<(), AddError> {
        self.fill(name, || Ok(pool.clone())).map(drop)
    }

    fn fill(
        &self,
        name: &str,
        pool: impl FnOnce() -> Result<Pool<M>, OptionError>,
    ) -> Result<Pool<M>, AddError> {
        // Dropped after the lock is released: a manager may do anything then.
        let _closed;
        let mut inner = self.inner.lock();
        _closed = inner.take_closed();
        match inner.pools.entry(name.into()) {
            Entry::Occupied(entry) => Err(AddError::Taken(entry.key().clone())),
            Entry::Vacant(entry) => {
                let pool = pool().map_err(AddError::Option)?;
                Ok(entry.insert(pool).clone())
            }
        }
    }

    /// The pool of that name.
    pub fn get(&self, name: &str) -> Option<Pool<M>> {
        self.inner.lock().pools.get(name).cloned()
    }

    /// All names, in their order.
    pub fn names(&self) -> Vec<String> {
        self.inner.lock().pools.keys().cloned().collect()
    }

    /// Remove a pool: each take that waits or comes is refused, what is idle is
    /// stopped now and the rest as it comes back, and after `within` members still
    /// held are revoked. The name is free at once.
    ///
    /// All that happens by itself; the future only says when the last member is
    /// gone.
    ///
    /// # Errors
    ///
    /// If there is no such pool.
    pub fn remove(
        &self,
        name: &str,
        within: Duration,
    ) -> Result<impl Future<Output = ()> + Send + use<M>, NoSuchPool> {
        let _closed;
        let mut inner = self.inner.lock();
        _closed = inner.take_closed();
        let removed = inner.pools.remove(name);
        let pool = removed.ok_or_else(|| NoSuchPool(name.into()))?;
        inner.closing.push(pool.clone());
        drop(inner);
        pool.begin_close(within);
        Ok(async move { pool.closed().await })
    }

    /// Remove a pool at once: members that are held are revoked now.
    ///
    /// # Errors
    ///
    /// If there is no such pool.
    pub fn remove_now(
        &self,
        name: &str,
    ) -> Result<impl Future<Output = ()> + Send + use<M>, NoSuchPool> {
        self.remove(name, Duration::ZERO)
    }

    /// Remove all pools, and wait until the last member of all is gone, also of
    /// those that were removed before. After `within` members still held are revoked, and the
    /// wait ends, whatever their holders do. Says how many members are left then.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing: the pools go on closing.
    pub async fn close(&self, within: Duration) -> usize {
        for name in self.names() {
            // Another caller may have been quicker.
            drop(self.remove(&name, within));
        }
        let closing = self.inner.lock().closing.clone();
        let closing: Vec<_> = closing
            .into_iter()
            .map(|pool| (pool.alarm(within), pool))
            .collect();
        let mut left = 0;
        for (mut alarm, pool) in closing {
            left += pool.closed_before(&mut alarm).await;
        }
        left
    }

    /// As [`Pool::suspend`].
    ///
    /// # Errors
    ///
    /// If there is no such pool.
    pub fn suspend(&self, name: &str) -> Result<(), NoSuchPool> {
        self.find(name).map(|pool| pool.suspend())
    }

    /// As [`Pool::resume`].
    ///
    /// # Errors
    ///
    /// If there is no such pool.
    pub fn resume(&self, name: &str) -> Result<(), NoSuchPool> {
        self.find(name).map(|pool| pool.resume())
    }

    /// As [`Pool::replace`].
    ///
    /// # Errors
    ///
    /// If there is no such pool.
    pub fn replace(&self, name: &str, over: Duration) -> Result<(), NoSuchPool> {
        self.find(name).map(|pool| pool.replace(over))
    }

    /// The numbers of all pools, by name.
    pub fn stats(&self) -> Vec<(String, Stats)> {
        let pools = self.inner.lock().pools.clone();
        let stats = pools.into_iter();
        stats.map(|(name, pool)| (name, pool.stats())).collect()
    }

    fn find(&self, name: &str) -> Result<Pool<M>, NoSuchPool> {
        self.get(name).ok_or_else(|| NoSuchPool(name.into()))
    }
}

impl<M: Manager> Inner<M> {
    fn take_closed(&mut self) -> Vec<Pool<M>> {
        self.closing.extract_if(.., |pool| pool.is_gone()).collect()
    }
}

impl<M: Manager> Default for Registry<M> {
    fn default() -> Self {
        Self::new()
    }
}

impl<M: Manager> Clone for Registry<M> {
    fn clone(&self) -> Self {
        let inner = Arc::clone(&self.inner);
        Self { inner }
    }
}

impl<M: Manager> fmt::Debug for Registry<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry")
            .field("names", &self.names())
            .finish_non_exhaustive()
    }
}

impl fmt::Display for AddError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Taken(name) => write!(
                f,
                "there is a pool named `{name}` already; remove it first, or choose another name"
            ),
            Self::Option(error) => write!(f, "{error}"),
        }
    }
}

impl Error for AddError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Taken(_) => None,
            // Its own words are ours already.
            Self::Option(error) => error.source(),
        }
    }
}

impl fmt::Display for NoSuchPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no pool named `{}`", self.0)
    }
}

impl Error for NoSuchPool {}
