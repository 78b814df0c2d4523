//! Values leased from ranges: numbers and addresses for a time.
//!
//! The machines of all partitions decide, behind one lock: what an ask gets, and whose
//! a key is, may concern several of them. One thread makes what they decided safe, all
//! that came in the meantime at once. An answer is given when that is done; what its
//! range does not write down is told at once.

mod answer;
mod asks;
mod batching;
mod clocks;
mod commit;
mod durable;
mod failed;
mod hosted;
mod idle_hook;
mod leased;
mod ownership;
mod partitions;
mod reserving;
mod shared;
mod taken;
mod turns;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::MutexGuard;
use rideau_core::Instant;
use rideau_core::allocator::{
    Ask, Bytes, Change, Count, Effects, Event, Filter, Held, Interval, Options, Parts, Proof,
    RangeError, RangeId, RangeOptions, RangeStats, Refused, Released, Reservation, RestoreParts,
    Seen, Standing, Which,
};
use rideau_core::cluster::Partitions;
use tokio::sync::broadcast;

use crate::store::{Loaded, Piece, Store, StoreError};
use clocks::{Continued, Source};
use commit::Committer;
use ownership::RestsOn;
use reserving::ReplySlot;
use shared::{Handle, Inner, Shared};

pub use answer::{Answer, Answering, Committed, Reached};
pub use clocks::ManualClocks;
pub use failed::{Failed, OpenError};
pub use hosted::{KeyReport, RangesHost};
pub use idle_hook::rest;
pub use leased::Leased;
pub use reserving::Reserving;

/// This many events are kept for a slow watcher.
const EVENTS_KEPT: usize = 4_096;
/// What is logged and not yet written has at most about this many bytes; then every
/// caller waits.
const LOG_BYTES_MAX: usize = 16 * 1024 * 1024;
/// This many records are looked at in one step of a release of many.
const STEP: usize = 1_024;

/// How ranges are opened.
#[derive(Clone, Debug)]
pub struct RangesOptions {
    /// The ranges there are, with their names.
    pub ranges: Vec<(String, RangeOptions)>,
    /// How they are dealt out. With one partition values are given out in the order of
    /// their range; with several that holds within each partition.
    pub partitions: Partitions,
    /// The options of the machines. Limits are those of all partitions together.
    pub machine: Options,
    /// The most asks that may wait for values.
    pub waiters_max: u32,
    /// No snapshot is taken before the log has more bytes than this, nor before
    /// it has twice those of the last snapshot.
    pub log_bytes_min: u64,
}

impl Default for RangesOptions {
    fn default() -> Self {
        Self {
            ranges: Vec::new(),
            partitions: Partitions::ONE,
            machine: Options::default(),
            waiters_max: 100_000,
            log_bytes_min: 64 * 1024 * 1024,
        }
    }
}

/// Values leased from ranges. Clones are the same ranges.
///
/// When the last of them is dropped, what was decided is written down, and then
/// that nothing more comes.
#[derive(Clone)]
pub struct Ranges(Arc<Handle>);

impl fmt::Debug for Ranges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Millions of values are nothing to look at.
        f.debug_struct("Ranges").finish_non_exhaustive()
    }
}

impl Ranges {
    /// Read everything back from the store, and give out values.
    ///
    /// # Errors
    ///
    /// If the store cannot be read, or a range cannot be like that.
    pub fn open(store: Box<dyn Store>, options: RangesOptions) -> Result<Self, OpenError> {
        Self::open_from(store, options, Source::system())
    }

    /// As [`open`](Self::open), with clocks that a test moves.
    ///
    /// # Errors
    ///
    /// If the store cannot be read, or a range cannot be like that.
    pub fn open_by(
        store: Box<dyn Store>,
        options: RangesOptions,
        clocks: &ManualClocks,
    ) -> Result<Self, OpenError> {
        Self::open_from(store, options, Source::manual(clocks))
    }

    fn open_from(
        mut store: Box<dyn Store>,
        options: RangesOptions,
        source: Source,
    ) -> Result<Self, OpenError> {
        let partitions = options.partitions;
        let restore = RestoreParts::new(partitions, &options.machine, options.ranges);
        let mut restore = restore.map_err(|(name, error)| OpenError::Range { name, error })?;
        let all: Vec<u32> = (0..partitions.count()).collect();
        let loaded = store
            .load(partitions, &all, &mut |part, piece| {
                let (Piece::Snapshot(bytes) | Piece::Batch(bytes)) = piece;
                restore
                    .read(part as usize, bytes)
                    .map_err(|error| error.to_string())
            })
            .map_err(OpenError::Store)?;
        let clock = Continued::start(restore.clock(), source);
        let mut effects = Effects::new();
        let machine = restore.finish(clock.now(), &mut effects);
        let events = broadcast::Sender::new(EVENTS_KEPT);
        let weak = events.downgrade();
        let shared = Shared::new(machine, effects, clock, weak, options.waiters_max);
        let shared = Arc::new(shared);
        let snapshot_bytes = loaded.bytes.saturating_sub(store.log_bytes());
        let committer = Committer::new(Arc::clone(&shared), store, events)
            .snapshots_after(options.log_bytes_min, snapshot_bytes);
        let committer = thread::Builder::new()
            .name("rideau-ranges".to_owned())
            .spawn(|| committer.run())
            .map_err(OpenError::Thread)?;
        Ok(Self(Arc::new(Handle::new(shared, loaded, committer))))
    }

    /// Give out all values that were asked for, or none.
    pub fn reserve(&self, ask: &Ask<'_>) -> Answer<Vec<Reservation>> {
        let mut granted = Vec::with_capacity(1);
        self.reserve_into(ask, &mut granted).map(|()| granted)
    }

    /// As [`reserve`](Self::reserve), pushed to a list of the caller's.
    pub fn reserve_into(&self, ask: &Ask<'_>, granted: &mut Vec<Reservation>) -> Answer<()> {
        let shared = &*self.0.shared;
        let mut inner = shared.inner.lock();
        if let Some(failed) = inner.why_nothing_new() {
            return Answer::new(Err(failed), Committed::at_once(&shared.safe));
        }
        let now = shared.clock.now();
        let decision = inner.reserve(ask, now, granted);
        self.answer(inner, decision, now)
    }

    /// As [`reserve`](Self::reserve), but wait for so long if there are not as
    /// many values. Asks that wait are served in turn: no ask gets a value that an
    /// earlier one waits for. An ask for several at once keeps those that are free
    /// until it has all of them.
    ///
    /// # Errors
    ///
    /// None at once: what it is awaited for tells.
    pub fn reserve_within(&self, ask: &Ask<'_>, wait: Duration) -> Reserving {
        let shared = &*self.0.shared;
        let mut inner = shared.inner.lock();
        if let Some(failed) = inner.why_nothing_new() {
            let until = Committed::at_once(&shared.safe);
            return Reserving::answered(self.clone(), Err(failed), until);
        }
        let now = shared.clock.now();
        let mut granted = Vec::new();
        let mut decision = inner.reserve(ask, now, &mut granted);
        if matches!(decision, Err(Refused::Exhausted { .. })) {
            let cell = ReplySlot::default();
            let deadline = now.after(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX));
            let Inner {
                waiters, machine, ..
            } = &mut *inner;
            match waiters.wait(machine, ask, deadline, cell.clone(), now) {
                Ok(ticket) => {
                    shared.finish(inner, now);
                    return Reserving::waits(self.clone(), cell, ticket);
                }
                Err(refused) => decision = Err(refused),
            }
        }
        let answer = self.answer(inner, decision, now).map(|()| granted);
        let (decision, until) = answer.into_parts();
        Reserving::answered(self.clone(), decision, until)
    }

    /// Give out one value, and take it back when the guard is dropped, or this
    /// future before it.
    ///
    /// An ask with a unique key that has a value shares it: the first guard
    /// that is dropped gives it back.
    ///
    /// # Errors
    ///
    /// If there is none, or the store failed.
    pub async fn lease(&self, ask: &Ask<'_>) -> Result<Leased, Failed> {
        let one = Ask { count: 1, ..*ask };
        let (decision, until) = self.reserve(&one).into_parts();
        let reservation = decision?[0];
        // It exists before the wait, so that a dropped future gives it back.
        let leased = Leased::new(self.clone(), reservation);
        until.await?;
        Ok(leased)
    }

    /// Take a certain value that has no holder, or perhaps one.
    pub fn claim(&self, value: u128, change: &Change<'_>) -> Answer<Held> {
        self.step_new(true, |machine, now, effects| {
            machine.claim(value, change, now, effects)
        })
    }

    /// Replace what stands beside a value, and hold it from now on.
    pub fn write(&self, which: Which<'_>, change: &Change<'_>) -> Answer<Held> {
        self.step_new(change.claim, |machine, now, effects| {
            machine.write(which, change, now, effects)
        })
    }

    /// Lay a patch over what stands beside a value, and hold it from now on.
    pub fn update(&self, which: Which<'_>, change: &Change<'_>) -> Answer<Held> {
        self.step_new(change.claim, |machine, now, effects| {
            machine.update(which, change, now, effects)
        })
    }

    /// Hold a value from now on for this long.
    pub fn refresh<'a>(
        &self,
        which: Which<'_>,
        proof: impl Into<Proof<'a>>,
        ttl: Option<Duration>,
    ) -> Answer<Held> {
        let proof = proof.into();
        self.step(|machine, now, effects| machine.refresh(which, proof, ttl, now, effects))
    }

    /// Forget the holder, its keys and data. The value stays apart for a while.
    pub fn cancel<'a>(&self, which: Which<'_>, proof: impl Into<Proof<'a>>) -> Answer<Held> {
        let proof = proof.into();
        self.step(|machine, now, effects| machine.cancel(which, proof, now, effects))
    }

    /// Give a value back.
    pub fn release<'a>(&self, value: u128, proof: impl Into<Proof<'a>>) -> Answer<Released> {
        let proof = proof.into();
        self.step(|machine, now, effects| machine.release(value, proof, now, effects))
    }

    /// Give back all that match, of one range or of all, in small steps that let
    /// others in between. Says how many there were.
    pub fn release_all(&self, filter: &Filter, range: Option<RangeId>) -> Answer<u64> {
        let mut cursor = 0;
        let mut released = 0;
        let mut before = Committed::at_once(&self.0.shared.safe);
        loop {
            let answer = self.step(|machine, now, effects| {
                Ok(machine.release_some(filter, range, &mut cursor, STEP, now, effects))
            });
            let (decision, until) = answer.into_parts();
            match decision {
                Ok(Some(some)) => released += some as u64,
                Ok(None) => {
                    let answer = self.step(|_, _, effects| {
                        effects.wait |= released > 0;
                        Ok(released)
                    });
                    return answer.after(before);
                }
                Err(failed) => return Answer::new(Err(failed), until),
            }
            before = before.or_later(until);
        }
    }

    /// All reservations that are meant, oldest first.
    pub fn lookup(&self, which: Which<'_>) -> Answer<Vec<Seen>> {
        self.step(|machine, now, effects| {
            let seen = machine.lookup(which, now, effects);
            if let Some(many) = machine.many_mut()
                && (seen.is_empty() || matches!(which, Which::Value(_)))
            {
                many.check_here(which)?;
            }
            // That it has no holder may be as new as anything else.
            effects.wait |= seen.is_empty();
            Ok(seen)
        })
    }

    /// How a value is, be it safe or not.
    pub fn stands(&self, value: u128) -> Standing {
        self.look(|machine, now, effects| machine.stands(value, now, effects))
    }

    /// Add a range, or change the one of this name.
    ///
    /// # Errors
    ///
    /// If it cannot be like that.
    pub fn set_range(&self, name: &str, options: RangeOptions) -> Result<RangeId, RangeError> {
        self.look(|machine, now, effects| machine.set_range(name, options, now, effects))
    }

    /// Take a range away, as soon as none of its values is held. Says
    /// whether that is so already.
    ///
    /// # Errors
    ///
    /// If there is no such range.
    pub fn remove_range(&self, range: RangeId) -> Result<bool, Refused> {
        let shared = &*self.0.shared;
        let mut inner = shared.inner.lock();
        let now = shared.clock.now();
        let Inner {
            machine,
            effects,
            waiters,
            told,
            ..
        } = &mut *inner;
        let removed = machine.remove_range(range, effects);
        if removed.is_ok() {
            waiters.let_range_go(range, machine, now, told);
            inner.tell(now, &shared.safe);
        }
        shared.finish(inner, now);
        removed
    }

    /// The commit that covers all decisions until now, also about ranges.
    pub fn logged(&self) -> Committed {
        let shared = &self.0.shared;
        let turn = shared.inner.lock().turn();
        Committed::new(turn, RestsOn::NOTHING, &shared.safe)
    }

    /// The range of this name.
    pub fn range(&self, name: &str) -> Option<RangeId> {
        self.0.shared.inner.lock().machine.range(name)
    }

    /// The name of a range.
    pub fn name(&self, range: RangeId) -> Option<String> {
        let inner = self.0.shared.inner.lock();
        inner.machine.name(range).map(str::to_owned)
    }

    /// How a range is.
    pub fn options(&self, range: RangeId) -> Option<RangeOptions> {
        self.0.shared.inner.lock().machine.options(range).cloned()
    }

    /// A range in numbers.
    pub fn stats(&self, range: RangeId) -> Option<RangeStats> {
        self.0.shared.inner.lock().machine.stats(range)
    }

    /// How many of these values are in which state, in whatever ranges they are.
    pub fn count(&self, within: Interval) -> Count {
        self.0.shared.inner.lock().machine.tally(within)
    }

    /// All ranges in numbers, by name.
    pub fn all_stats(&self) -> Vec<RangeStats> {
        self.0.shared.inner.lock().machine.all_stats()
    }

    /// The memory that it uses.
    pub fn bytes(&self) -> Bytes {
        self.0.shared.inner.lock().machine.bytes()
    }

    /// Some reservations, from where the cursor is.
    pub fn page(&self, cursor: &mut u64, most: usize) -> Vec<Seen> {
        self.0.shared.inner.lock().machine.page(cursor, most)
    }

    /// How many values of each range end within so long unless they are
    /// prolonged. Looks at all of them, in small steps that let others in
    /// between.
    pub fn ending_within(&self, span: Duration) -> HashMap<RangeId, u64> {
        let until = self.now() + span;
        let (mut cursor, mut counts) = (0, HashMap::new());
        loop {
            let inner = self.0.shared.inner.lock();
            if !inner
                .machine
                .count_ending(until, &mut cursor, STEP, &mut counts)
            {
                return counts;
            }
            MutexGuard::unlock_fair(inner);
        }
    }

    /// The time of the clock of the values.
    pub fn now(&self) -> Instant {
        self.0.shared.clock.now()
    }

    /// The state that was read when they were opened.
    pub fn loaded(&self) -> &Loaded {
        &self.0.loaded
    }

    /// Why no value is given out any more, if so.
    pub fn failed(&self) -> Option<Arc<StoreError>> {
        self.0.shared.inner.lock().failed.clone()
    }

    /// Hear of everything that happens from now on, when it is safe. A watcher that
    /// is slow misses some, which the numbers of the events tell. It ends when the
    /// ranges are closed or their store fails.
    pub fn watch(&self) -> broadcast::Receiver<Event> {
        let shared = &self.0.shared;
        let Some(events) = shared.events.upgrade() else {
            return broadcast::channel(1).1;
        };
        // First, so that a thread that looks for watchers under the lock sees this
        // one.
        let receiver = events.subscribe();
        let mut inner = shared.inner.lock();
        inner.effects.events.get_or_insert_default();
        receiver
    }

    /// Wakes the tasks that wait for answers from the thread on which this runs, if
    /// it is theirs. Nothing needs it, but where hundreds wait in a runtime of one
    /// thread it saves a system call for each of them. There may be one for each such
    /// runtime, which must run for as long as its thread waits for answers. It
    /// never ends.
    pub fn commit_notifier(&self) -> impl Future<Output = ()> + Send + use<> {
        Arc::clone(&self.0.shared.safe).commit_notifier()
    }

    /// Write down what was decided, and then that nothing more comes. Returns
    /// when the store is closed. Later calls are refused; a guard that is
    /// dropped later gives nothing back, so its value is held to its end.
    pub fn close(&self) {
        self.0.close();
    }

    fn look<T>(&self, decide: impl FnOnce(&mut Parts, Instant, &mut Effects) -> T) -> T {
        let shared = &*self.0.shared;
        let mut inner = shared.inner.lock();
        let Inner {
            machine, effects, ..
        } = &mut *inner;
        let now = shared.clock.now();
        let decision = decide(machine, now, effects);
        shared.finish(inner, now);
        decision
    }

    fn step<T>(
        &self,
        decide: impl FnOnce(&mut Parts, Instant, &mut Effects) -> Result<T, Refused>,
    ) -> Answer<T> {
        self.step_new(false, decide)
    }

    /// As [`step`](Self::step), for what may give out a value that was free.
    fn step_new<T>(
        &self,
        is_new: bool,
        decide: impl FnOnce(&mut Parts, Instant, &mut Effects) -> Result<T, Refused>,
    ) -> Answer<T> {
        let shared = &*self.0.shared;
        let mut inner = shared.inner.lock();
        let why = match is_new {
            true => inner.why_nothing_new(),
            false => inner.why_not(),
        };
        if let Some(failed) = why {
            return Answer::new(Err(failed), Committed::at_once(&shared.safe));
        }
        let Inner {
            machine, effects, ..
        } = &mut *inner;
        effects.wait = false;
        effects.rests.clear();
        let now = shared.clock.now();
        let decision = decide(machine, now, effects);
        self.answer(inner, decision, now)
    }

    /// The answer of a decision, to be given when it is safe.
    fn answer<T>(
        &self,
        mut inner: MutexGuard<'_, Inner>,
        decision: Result<T, Refused>,
        now: Instant,
    ) -> Answer<T> {
        let shared = &*self.0.shared;
        let must_wait = match &decision {
            Ok(_) => inner.effects.wait || inner.log_len() > LOG_BYTES_MAX,
            Err(refused) => refused.tells_of_others(),
        };
        let turn = if must_wait { inner.turn() } else { 0 };
        inner.waiting += u64::from(must_wait);
        let on = inner.rests_on(&inner.effects.rests, turn);
        shared.finish(inner, now);
        let until = Committed::new(turn, on, &shared.safe);
        Answer::new(decision.map_err(Failed::Refused), until)
    }
}
