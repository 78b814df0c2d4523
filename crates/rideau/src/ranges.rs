//! Values leased from ranges: numbers and addresses for a time.
//!
//! One machine behind one lock decides, and one thread makes what it decided
//! safe, all that came in the meantime at once. An answer is given when that is
//! done; what its range does not write down is told at once.

mod answer;
mod clocks;
mod commit;
mod leased;
mod safe;

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rideau_core::Instant;
use rideau_core::allocator::{
    Allocator, Ask, Bytes, Change, Effects, Event, Filter, Held, Options, RangeError, RangeId,
    RangeOptions, RangeStats, Refused, Released, Reservation, Restore, Seen, Standing, Which,
};
use tokio::sync::broadcast;

use crate::store::{Loaded, Piece, Store, StoreError};
use clocks::{Continued, System};
use commit::Committer;
use safe::Safe;

pub use answer::{Answer, Answering, Reached, Until};
pub use leased::Leased;

/// As many events are kept for who watches slowly.
const EVENTS_KEPT: usize = 4_096;
/// What is logged and not yet written has at most about as many bytes; then
/// everybody waits.
const LOG_BYTES_MAX: usize = 16 * 1024 * 1024;
/// As many records are looked at in one step of a release of many.
const STEP: usize = 1_024;

/// How ranges are opened.
#[derive(Clone, Debug, Default)]
pub struct RangesOptions {
    /// The ranges there are, with their names.
    pub ranges: Vec<(String, RangeOptions)>,
    /// What the machine is told.
    pub machine: Options,
}

/// Values leased from ranges. Clones are the same ranges.
#[derive(Clone, Debug)]
pub struct Ranges(Arc<Handle>);

/// The last of its clones ends the thread.
#[derive(Debug)]
struct Handle {
    shared: Arc<Shared>,
    loaded: Loaded,
    committer: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Shared {
    inner: Mutex<Inner>,
    /// Something was logged, or the end has come.
    logged: Condvar,
    safe: Arc<Safe>,
    clock: Continued,
    events: broadcast::Sender<Event>,
}

#[derive(Debug)]
struct Inner {
    machine: Allocator,
    effects: Effects,
    failed: Option<Arc<StoreError>>,
    is_closing: bool,
    has_stopped: bool,
    sleep: Sleep,
}

/// What the thread does while nothing is logged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sleep {
    Awake,
    /// It looks at the clock now and then.
    Light,
    /// Nothing can come due.
    Deep,
}

/// Why there is no answer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Failed {
    /// It was refused, and nothing happened.
    Refused(Refused),
    /// The store failed: nobody knows whether it happened.
    Store(Arc<StoreError>),
    /// The ranges are closed.
    Closed,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refused) => refused.fmt(f),
            Self::Store(error) => write!(f, "the store failed: {error}"),
            Self::Closed => f.write_str("the ranges are closed"),
        }
    }
}

impl Error for Failed {}

impl From<Refused> for Failed {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused)
    }
}

/// Why ranges cannot be opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// The store cannot be used.
    Store(StoreError),
    /// A range cannot be like that.
    Range {
        /// Which.
        name: String,
        /// Why.
        error: RangeError,
    },
    /// There is no thread to be had.
    Thread(std::io::Error),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => error.fmt(f),
            Self::Range { name, error } => write!(f, "range `{name}`: {error}"),
            Self::Thread(error) => write!(f, "no thread can be started: {error}"),
        }
    }
}

impl Error for OpenError {}

impl Ranges {
    /// Read everything back from the store, and give out values.
    ///
    /// # Errors
    ///
    /// If the store cannot be read, or a range cannot be like that.
    pub fn open(mut store: Box<dyn Store>, options: RangesOptions) -> Result<Self, OpenError> {
        let restore = Restore::new(&options.machine, options.ranges);
        let mut restore = restore.map_err(|(name, error)| OpenError::Range { name, error })?;
        let loaded = store
            .load(&mut |piece| {
                let (Piece::Snapshot(bytes) | Piece::Batch(bytes)) = piece;
                restore.read(bytes).map_err(|error| error.to_string())
            })
            .map_err(OpenError::Store)?;
        let clock = Continued::start(restore.clock(), System::read());
        let mut effects = Effects::new();
        let machine = restore.finish(clock.now(), &mut effects);
        let shared = Arc::new(Shared {
            inner: Mutex::new(Inner {
                machine,
                effects,
                failed: None,
                is_closing: false,
                has_stopped: false,
                sleep: Sleep::Awake,
            }),
            logged: Condvar::new(),
            safe: Arc::default(),
            clock,
            events: broadcast::Sender::new(EVENTS_KEPT),
        });
        let committer = Committer::new(Arc::clone(&shared), store, loaded.bytes);
        let committer = thread::Builder::new()
            .name("rideau-ranges".to_owned())
            .spawn(|| committer.run())
            .map_err(OpenError::Thread)?;
        Ok(Self(Arc::new(Handle {
            shared,
            loaded,
            committer: Mutex::new(Some(committer)),
        })))
    }

    /// Give out values: as many as were asked for, or none.
    pub fn reserve(&self, ask: &Ask<'_>) -> Answer<Vec<Reservation>> {
        self.step(|machine, now, effects| {
            let mut granted = Vec::with_capacity(1);
            machine.reserve(ask, now, effects, &mut granted)?;
            Ok(granted)
        })
    }

    /// As [`reserve`](Self::reserve), pushed to a list of the caller's.
    pub fn reserve_into(&self, ask: &Ask<'_>, granted: &mut Vec<Reservation>) -> Answer<()> {
        self.step(|machine, now, effects| machine.reserve(ask, now, effects, granted))
    }

    /// Give out one value, and take it back when the guard is dropped.
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

    /// Take a certain value that nobody holds, or perhaps somebody.
    pub fn claim(&self, value: u128, change: &Change<'_>) -> Answer<Held> {
        self.step(|machine, now, effects| machine.claim(value, change, now, effects))
    }

    /// Replace what stands beside a value, and hold it from now on.
    pub fn write(&self, which: Which<'_>, change: &Change<'_>) -> Answer<Held> {
        self.step(|machine, now, effects| machine.write(which, change, now, effects))
    }

    /// Lay a patch over what stands beside a value, and hold it from now on.
    pub fn update(&self, which: Which<'_>, change: &Change<'_>) -> Answer<Held> {
        self.step(|machine, now, effects| machine.update(which, change, now, effects))
    }

    /// Hold a value from now on for this long.
    pub fn refresh(
        &self,
        which: Which<'_>,
        fence: Option<u64>,
        ttl: Option<Duration>,
    ) -> Answer<Held> {
        self.step(|machine, now, effects| machine.refresh(which, fence, ttl, now, effects))
    }

    /// Forget the holder, its keys and data. The value stays apart for a while.
    pub fn cancel(&self, which: Which<'_>, fence: Option<u64>) -> Answer<Held> {
        self.step(|machine, now, effects| machine.cancel(which, fence, now, effects))
    }

    /// Give a value back.
    pub fn release(&self, value: u128, fence: Option<u64>) -> Answer<Released> {
        self.step(|machine, now, effects| machine.release(value, fence, now, effects))
    }

    /// Give back all that match, in small steps that let others in between.
    /// Says how many there were.
    pub fn release_all(&self, filter: &Filter) -> Answer<u64> {
        let mut cursor = 0;
        let mut released = 0;
        loop {
            let answer = self.step(|machine, now, effects| {
                Ok(machine.release_some(filter, &mut cursor, STEP, now, effects))
            });
            let (decision, until) = answer.into_parts();
            match decision {
                Ok(Some(some)) => released += some as u64,
                Ok(None) => {
                    return self.step(|_, _, effects| {
                        effects.wait |= released > 0;
                        Ok(released)
                    });
                }
                Err(failed) => {
                    let safe = &self.0.shared.safe;
                    return Answer::new(Err(failed), until.position(), safe);
                }
            }
        }
    }

    /// All reservations that are meant, oldest first.
    pub fn lookup(&self, which: Which<'_>) -> Answer<Vec<Seen>> {
        self.step(|machine, now, effects| Ok(machine.lookup(which, now, effects)))
    }

    /// How a value is.
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

    /// Take a range away, as soon as nobody holds any of its values. Says
    /// whether that is so already.
    ///
    /// # Errors
    ///
    /// If there is no such range.
    pub fn remove_range(&self, range: RangeId) -> Result<bool, Refused> {
        self.look(|machine, _, _| machine.remove_range(range))
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

    /// All ranges in numbers, by name.
    pub fn all_stats(&self) -> Vec<RangeStats> {
        let inner = self.0.shared.inner.lock();
        let ranges = inner.machine.ranges();
        ranges
            .filter_map(|(_, id)| inner.machine.stats(id))
            .collect()
    }

    /// What it costs in memory.
    pub fn bytes(&self) -> Bytes {
        self.0.shared.inner.lock().machine.bytes()
    }

    /// Some reservations, from where the cursor is.
    pub fn page(&self, cursor: &mut u32, most: usize) -> Vec<Seen> {
        self.0.shared.inner.lock().machine.page(cursor, most)
    }

    /// What the clock of the values shows.
    pub fn now(&self) -> Instant {
        self.0.shared.clock.now()
    }

    /// What was read back when they were opened.
    pub fn loaded(&self) -> &Loaded {
        &self.0.loaded
    }

    /// Why no value is given out any more, if so.
    pub fn failed(&self) -> Option<Arc<StoreError>> {
        self.0.shared.inner.lock().failed.clone()
    }

    /// Hear of everything that happens from now on, when it is safe. Who is
    /// slow misses some, which the numbers of the events tell.
    pub fn watch(&self) -> broadcast::Receiver<Event> {
        let receiver = self.0.shared.events.subscribe();
        let mut inner = self.0.shared.inner.lock();
        inner.effects.events.get_or_insert_default();
        receiver
    }

    /// Write down that nothing more comes, and end. Later calls are refused.
    pub fn close(&self) {
        self.0.close();
    }

    fn look<T>(&self, decide: impl FnOnce(&mut Allocator, Instant, &mut Effects) -> T) -> T {
        let shared = &*self.0.shared;
        let mut inner = shared.inner.lock();
        let Inner {
            machine, effects, ..
        } = &mut *inner;
        let decision = decide(machine, shared.clock.now(), effects);
        shared.wake(&mut inner);
        decision
    }

    fn step<T>(
        &self,
        decide: impl FnOnce(&mut Allocator, Instant, &mut Effects) -> Result<T, Refused>,
    ) -> Answer<T> {
        let shared = &*self.0.shared;
        let mut inner = shared.inner.lock();
        if let Some(failed) = inner.why_not() {
            return Answer::new(Err(failed), 0, &shared.safe);
        }
        let Inner {
            machine, effects, ..
        } = &mut *inner;
        effects.wait = false;
        let decision = decide(machine, shared.clock.now(), effects);
        let is_full = effects.log.len() > LOG_BYTES_MAX;
        let position = match effects.wait || is_full {
            true => effects.position(),
            false => 0,
        };
        shared.wake(&mut inner);
        drop(inner);
        // A refusal changed nothing, so nothing has to be safe.
        let position = if decision.is_ok() { position } else { 0 };
        Answer::new(decision.map_err(Failed::Refused), position, &shared.safe)
    }
}

impl Shared {
    /// Wake the thread if it has something to do, or something may come due.
    fn wake(&self, inner: &mut Inner) {
        let effects = &inner.effects;
        let has_events = effects
            .events
            .as_ref()
            .is_some_and(|events| !events.is_empty());
        let is_needed = match inner.sleep {
            Sleep::Awake => false,
            Sleep::Light => !effects.log.is_empty() || has_events || inner.is_closing,
            Sleep::Deep => true,
        };
        if is_needed {
            inner.sleep = Sleep::Awake;
            self.logged.notify_one();
        }
    }
}

impl Inner {
    fn why_not(&self) -> Option<Failed> {
        match &self.failed {
            Some(error) => Some(Failed::Store(Arc::clone(error))),
            None => self.is_closing.then_some(Failed::Closed),
        }
    }
}

impl Handle {
    fn close(&self) {
        let Some(committer) = self.committer.lock().take() else {
            return;
        };
        let mut inner = self.shared.inner.lock();
        inner.is_closing = true;
        self.shared.wake(&mut inner);
        drop(inner);
        // It says itself what went wrong.
        let _ = committer.join();
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.close();
    }
}
