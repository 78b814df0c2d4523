//! Counting locks by key: a limited number of units of a key.
//!
//! The limit is not the key's but the caller's: each says how many units there
//! may be as it sees the world now, and is granted some exactly if fewer are
//! held at that moment. Callers may differ, and change their minds while units
//! are held. No caller has to be told of a new limit.

mod acquire;
mod acquire_many;
mod entry;
mod forget;
mod handle;
mod keys;
mod line;
mod map;
#[cfg(all(test, rideau_loom))]
mod models;
mod owner;
mod rules;
#[cfg(all(test, not(rideau_loom)))]
mod stress;
#[cfg(not(rideau_loom))]
mod sweeper;
mod taken;
mod word;

use std::borrow::Borrow;
use std::fmt;
use std::hash::Hash;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rideau_core::locks::{Capacity, Claim, Full};
use rideau_core::{OptionError, Reason, Refusal, queue};

pub use self::acquire_many::FullAt;
pub use self::handle::LockHandle;
pub use self::owner::{NotHeld, Owner};
pub use self::rules::KeyRule;
use crate::ask_options::AskOptions;
use crate::clock::Clock;
use crate::keyed::Key;
use crate::now::Now;
use crate::thread::block_on;
use keys::{Keys, Origin, Source, Taken};
use line::Wait;
use word::UNITS_MAX;

/// Counting locks by key.
///
/// Clones are the same locks. There is nothing to set up: a key is known while
/// units of it are held, and costs nothing when it is not. A unit is held as
/// long as its [`Lock`] is kept, wherever that is: in a task, a thread or a
/// struct.
///
/// ```
/// use rideau::{Capacity, Locks};
///
/// let locks: Locks<String> = Locks::new();
/// // Three connections for each back-end, and there is one.
/// let first = locks.acquire("db", Capacity::new(3, 1))?;
/// let second = locks.acquire("db", Capacity::new(3, 1))?;
/// let third = locks.acquire("db", Capacity::new(3, 1))?;
/// assert_eq!(third.ordinal(), 3);
/// assert!(locks.acquire("db", Capacity::new(3, 1)).is_err());
/// // A caller that sees two back-ends may have more.
/// let fourth = locks.acquire("db", Capacity::new(3, 2))?;
/// drop(first);
/// let no = locks.acquire("db", Capacity::new(3, 1)).unwrap_err();
/// assert_eq!(no.held, 3);
/// # Ok::<(), rideau::Full>(())
/// ```
///
/// A lock is given back once, and by its holder alone:
///
/// ```compile_fail,E0382
/// let locks: rideau::Locks<String> = rideau::Locks::new();
/// let lock = locks.acquire("db", 1).expect("it is free");
/// lock.release();
/// lock.release();
/// ```
///
/// What ends a holder ends its locks: a return, a panic that unwinds, a task
/// that is aborted. What no guard can see: [`std::mem::forget`], a cycle of
/// reference counts, and a process that aborts.
pub struct Locks<K: Key> {
    keys: Arc<Keys<K>>,
}

/// How one waits for a unit, and where fences begin.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct LocksOptions {
    /// Where asks that want to wait do so. Each key has a queue of its own for
    /// asks that see the same capacity and want the same number of units.
    pub queue: queue::Options,
    /// Fences are larger than this. A process that restarts and wants fences to
    /// grow on gives the largest that was seen before, or a clock's reading.
    pub fence: u64,
}

/// Units of a key that one holds until this is dropped.
#[must_use = "dropping a lock gives its units back at once"]
pub struct Lock<'a, K: Key>(Taken<'a, K>);

/// Why units could not be taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Denied {
    /// Too few are free.
    Full(Full),
    /// The limit of keys is reached, and all of them are in use.
    Keys,
}

/// A wait for units: the place now, the answer later. Dropping it gives the
/// place up, or the units if they were granted just then.
#[must_use = "dropping a wait gives the place up"]
pub struct Acquiring<K: Key>(Wait<K>);

impl<K: Key> Locks<K> {
    /// No key, and the usual queue for asks that wait.
    pub fn new() -> Self {
        let locks = Self::with(LocksOptions::default());
        locks.expect("the default options break no rule")
    }

    /// No key yet.
    ///
    /// # Errors
    ///
    /// If an option breaks a rule.
    pub fn with(options: LocksOptions) -> Result<Self, OptionError> {
        Self::with_by(options, &Clock::system())
    }

    /// As [`with`](Self::with), and asks that wait do so by a given clock.
    ///
    /// # Errors
    ///
    /// If an option breaks a rule.
    pub fn with_by(options: LocksOptions, clock: &Clock) -> Result<Self, OptionError> {
        let keys = Keys::new(options, clock)?;
        Ok(Self { keys })
    }

    /// Take one unit of a key, exactly if fewer than `capacity` are held. Never
    /// waits; a refusal writes nothing that others read.
    ///
    /// # Errors
    ///
    /// If that many or more are held.
    #[inline]
    pub fn acquire<Q>(&self, key: &Q, capacity: impl Into<Capacity>) -> Result<Lock<'_, K>, Full>
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
    #[inline]
    pub fn acquire_many<Q>(
        &self,
        key: &Q,
        units: u32,
        capacity: impl Into<Capacity>,
    ) -> Result<Lock<'_, K>, Full>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        let claim = claim(units, capacity);
        let granted = self.keys.acquire(key, claim);
        let (entry, grant) = granted.map_err(|denied| denied.full(claim))?;
        let origin = Origin::Borrowed(&self.keys);
        Ok(Lock(Taken::new(Source::Found(entry), origin, grant)))
    }

    /// As [`acquire_many`](Self::acquire_many), and the lock borrows nothing.
    ///
    /// # Errors
    ///
    /// If more would be held than `capacity`, or none is asked for.
    pub fn acquire_owned<Q>(
        &self,
        key: &Q,
        units: u32,
        capacity: impl Into<Capacity>,
    ) -> Result<Lock<'static, K>, Full>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        let capacity = capacity.into();
        let lock = self.try_acquire_owned(key, units, capacity);
        lock.map_err(|denied| denied.full(claim(units, capacity)))
    }

    /// As [`acquire_owned`](Self::acquire_owned), and says which of the two it
    /// was that there are too many of, units or keys.
    ///
    /// # Errors
    ///
    /// If more would be held than `capacity`, or none is asked for, or there
    /// would be more keys than [may be](Self::set_rules).
    pub fn try_acquire_owned<Q>(
        &self,
        key: &Q,
        units: u32,
        capacity: impl Into<Capacity>,
    ) -> Result<Lock<'static, K>, Denied>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        let (entry, grant) = self.keys.acquire(key, claim(units, capacity))?;
        let origin = Origin::Owned(Arc::clone(&self.keys));
        Ok(Lock(Taken::new(Source::Found(entry), origin, grant)))
    }

    /// Take units of several keys, all or none: each claim is a key, how many
    /// units, and the capacity as the caller sees it. No caller ever sees some
    /// of them taken and the others not.
    ///
    /// # Errors
    ///
    /// If one of them does not fit; then nothing was taken.
    pub fn acquire_all<'q, Q, C>(
        &self,
        claims: impl IntoIterator<Item = (&'q Q, u32, C)>,
    ) -> Result<Vec<Lock<'_, K>>, FullAt>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized + 'q,
        C: Into<Capacity>,
    {
        let claims = claims.into_iter();
        let claims = claims.map(|(key, units, capacity)| (key, claim(units, capacity)));
        let claims: Vec<(&Q, Claim)> = claims.collect();
        let taken = self.keys.acquire_all(&claims)?;
        Ok(taken.into_iter().map(Lock).collect())
    }

    /// Take one unit of a key, and wait in a queue if it cannot be had now.
    ///
    /// The rule stays exact: it is granted when fewer than `capacity` are held.
    /// Asks that see the same capacity and the same number of units are served in the
    /// order of their queue; an ask that comes later passes only those that see
    /// a smaller capacity and cannot be served yet.
    ///
    /// # Errors
    ///
    /// If the queue refused or shed the ask.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives the place up, or what was just granted.
    pub async fn acquire_wait<Q>(
        &self,
        key: &Q,
        capacity: impl Into<Capacity>,
    ) -> Result<Lock<'static, K>, Refusal>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        self.begin_acquire(key, 1, capacity, AskOptions::default())
            .await
    }

    /// As [`acquire_wait`](Self::acquire_wait), for several units and on given
    /// terms.
    ///
    /// # Errors
    ///
    /// If the queue refused or shed the ask.
    pub async fn acquire_wait_on<Q>(
        &self,
        key: &Q,
        units: u32,
        capacity: impl Into<Capacity>,
        terms: AskOptions,
    ) -> Result<Lock<'static, K>, Refusal>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        self.begin_acquire(key, units, capacity, terms).await
    }

    /// Wait on a plain thread, which sleeps until there is an answer.
    ///
    /// # Errors
    ///
    /// If the queue refused or shed the ask.
    pub fn acquire_blocking<Q>(
        &self,
        key: &Q,
        units: u32,
        capacity: impl Into<Capacity>,
        terms: AskOptions,
    ) -> Result<Lock<'static, K>, Refusal>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        block_on(self.begin_acquire(key, units, capacity, terms))
    }

    /// Take units, or a position in the queue; the answer can be awaited later.
    pub fn begin_acquire<Q>(
        &self,
        key: &Q,
        units: u32,
        capacity: impl Into<Capacity>,
        terms: AskOptions,
    ) -> Acquiring<K>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        let claim = claim(units, capacity);
        Acquiring(self.keys.acquire_or_wait(key, claim, &terms))
    }

    /// Take units if they can be had at once, else a position in the queue.
    pub fn acquire_now<Q>(
        &self,
        key: &Q,
        units: u32,
        capacity: impl Into<Capacity>,
        terms: AskOptions,
    ) -> Now<Result<Lock<'static, K>, Refusal>, Acquiring<K>>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        let mut acquiring = self.begin_acquire(key, units, capacity, terms);
        match acquiring.0.take_answer() {
            Some(answer) => Now::Answered(answer),
            None => Now::Waiting(acquiring),
        }
    }

    /// Look a key up once, to take its units often.
    pub fn handle<Q>(&self, key: &Q) -> LockHandle<K>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        LockHandle::new(&self.keys, self.keys.pin_key(key))
    }

    /// An owner that will hold any number of units, and give all back when it
    /// ends.
    pub fn owner(&self) -> Owner<K> {
        Owner::new(self.clone())
    }

    /// How many units of a key are held.
    pub fn held<Q>(&self, key: &Q) -> u64
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.keys.held(key)
    }

    /// By how many more units are held than there may be for a caller that sees
    /// this capacity.
    pub fn surplus<Q>(&self, key: &Q, capacity: impl Into<Capacity>) -> u64
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.held(key).saturating_sub(capacity.into().units())
    }

    /// How many wait for units of a key.
    pub fn waiting<Q>(&self, key: &Q) -> usize
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.keys.waiting(key)
    }

    /// Every key of which units are held, and how many, in no order. They are
    /// looked at one after the other, and may change meanwhile.
    pub fn all_held(&self) -> Vec<(K, u64)> {
        self.keys.all_held()
    }

    /// The same, one after the other, for a caller that keeps few of many. `look` must not
    /// use these locks.
    pub fn each_held(&self, look: impl FnMut(&K, u64)) {
        self.keys.each_held(look);
    }

    /// How many keys are known: those that are held, waited for or looked up by
    /// a handle, and some that were a moment ago.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// No key is known.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forget at once all keys that are not held, rather than soon.
    pub fn forget_idle(&self) {
        self.keys.forget_idle();
    }

    /// Give keys rules of their own: `rule_of` says where among `rules` the
    /// rule of a key is. It holds for keys that are known already, too: an ask
    /// that waits keeps its place, and a holder keeps its units, also if there
    /// are more keys than there may be now.
    ///
    /// Where there are too many keys, none is granted that is not known yet, as
    /// if it had no units; [`try_acquire_owned`](Self::try_acquire_owned) and the
    /// refusals of asks that want to wait say which it was. Callers that look up
    /// [handles](Self::handle) or take [several](Self::acquire_all) are counted, but
    /// not refused.
    ///
    /// # Errors
    ///
    /// If an option breaks a rule; then nothing has changed.
    pub fn set_rules(
        &self,
        rules: &[KeyRule],
        rule_of: impl Fn(&K) -> usize + Send + Sync + 'static,
    ) -> Result<(), OptionError> {
        self.keys.set_rules(rules, rule_of)
    }

    /// At most `max` keys are known, whatever rules they have.
    pub fn set_keys_max(&self, max: usize) {
        self.keys.set_keys_max(max);
    }

    /// How many keys of a rule are known.
    pub fn keys_of(&self, rule: usize) -> usize {
        self.keys.keys_of(rule)
    }

    /// How one waits here.
    pub fn queue(&self) -> queue::Options {
        self.keys.queue()
    }

    /// Change how asks wait; an ask that waits keeps its place.
    ///
    /// # Errors
    ///
    /// If an option breaks a rule; then nothing has changed.
    pub fn reconfigure(&self, queue: &queue::Options) -> Result<(), OptionError> {
        self.keys.set_queue(queue)
    }

    /// Refuse every ask that waits, and every ask that comes to wait. Locks
    /// stay with their holders, and can still be had at once.
    pub fn close(&self) {
        self.keys.close();
    }
}

impl<K: Key> Lock<'_, K> {
    /// How many units of the key were held when these had been granted, these
    /// included.
    pub fn ordinal(&self) -> u64 {
        self.0.grant().ordinal
    }

    /// A number that is larger with each grant of the key. What is protected
    /// can refuse a caller that comes with a smaller one than it has seen.
    pub fn fence(&self) -> u64 {
        self.0.grant().fence
    }

    /// How many units these are.
    pub fn units(&self) -> u32 {
        self.0.grant().units
    }

    /// The key of the units.
    pub fn key(&self) -> &K {
        self.0.entry().key()
    }

    /// How long the grant took.
    pub fn waited(&self) -> Duration {
        self.0.waited()
    }

    /// Give the units back, as dropping does.
    pub fn release(self) {}
}

impl Denied {
    /// The same, as if there were only units.
    fn full(self, claim: Claim) -> Full {
        match self {
            Self::Full(full) => full,
            Self::Keys => claim.full(0),
        }
    }
}

impl From<Full> for Denied {
    fn from(full: Full) -> Self {
        Self::Full(full)
    }
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full(full) => full.fmt(f),
            Self::Keys => Reason::Keys.fmt(f),
        }
    }
}

impl std::error::Error for Denied {}

/// The claim, limited to what a word can count.
#[inline]
fn claim(units: u32, capacity: impl Into<Capacity>) -> Claim {
    let capacity = capacity.into().units().min(UNITS_MAX);
    Claim {
        units,
        capacity: capacity.into(),
    }
}

impl<K: Key> Future for Acquiring<K> {
    type Output = Result<Lock<'static, K>, Refusal>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context)
    }
}

impl<K: Key> Clone for Locks<K> {
    fn clone(&self) -> Self {
        let keys = Arc::clone(&self.keys);
        Self { keys }
    }
}

impl<K: Key> Default for Locks<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Key> fmt::Debug for Locks<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locks")
            .field("keys", &self.len())
            .finish_non_exhaustive()
    }
}

impl<K: Key + fmt::Debug> fmt::Debug for Lock<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock")
            .field("key", self.key())
            .field("units", &self.units())
            .field("ordinal", &self.ordinal())
            .field("fence", &self.fence())
            .finish_non_exhaustive()
    }
}

impl<K: Key> fmt::Debug for Acquiring<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acquiring").finish_non_exhaustive()
    }
}
