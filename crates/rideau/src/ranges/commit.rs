//! The thread that makes the log safe, and lets time do its work.
//!
//! Whatever was logged while one batch was being written is the next one: the
//! more there is to do, the more shares one write, and where writes are slow it
//! [waits](super::gather) a little for more to come. Between two batches it takes
//! a piece of a snapshot when one is due, and ends what has run out, a bounded
//! part of it each time.

use std::mem;
use std::sync::Arc;
use std::task::Waker;
use std::thread;
use std::time::{self, Duration};

use parking_lot::MutexGuard;
use rideau_core::Instant;
use rideau_core::allocator::{Entry, Event, SnapshotAt};
use tokio::sync::broadcast::Sender;

use super::batching::Gather;
use super::durable::Safe;
use super::shared::{Inner, Shared, Sleep};
use crate::store::{Store, StoreError};

/// How late the end of a hold may be noticed by callers that only watch.
const TICK: Duration = Duration::from_millis(100);
/// No sleep is shorter.
const MOMENT: Duration = Duration::from_millis(1);
/// A piece of a snapshot has about this many bytes.
const CHUNK: usize = 256 * 1024;
/// A batch has at most about this many bytes, which every store takes. What is
/// more goes into another.
const BATCH: usize = 16 * 1024 * 1024;
/// The clocks are written down as often, if anything is: it takes as long as a
/// small batch.
const CLOCKS: Duration = Duration::from_millis(100);

/// A store that could not be written is tried again as often,
const RETRY: Duration = Duration::from_millis(500);
/// and a snapshot after a while.
const SNAPSHOT_AGAIN: Duration = Duration::from_secs(30);

pub(super) struct Committer {
    shared: Arc<Shared>,
    store: Box<dyn Store>,
    events: Sender<Event>,
    /// Logged and not written.
    taken: Vec<u8>,
    /// This many bytes of it are written all the same,
    written: usize,
    /// and this many if the last try succeeds later.
    tried: usize,
    /// What is told when all of it is.
    turn: Option<Turn>,
    /// What the store is given, when that is not all that was taken.
    batch: Vec<u8>,
    clocks_written: Option<Instant>,
    gather: Gather,
    snapshot: Option<SnapshotAt>,
    snapshot_bytes: u64,
    log_bytes_min: u64,
    last_snapshot_bytes: u64,
    /// No snapshot is begun before, as the last one failed.
    snapshot_after: Option<time::Instant>,
}

/// What was found to do.
pub(super) struct Turn {
    position: u64,
    /// As many answers wait for it.
    waiting: u64,
    events: Vec<Event>,
    is_last: bool,
}

impl Committer {
    pub(super) fn new(shared: Arc<Shared>, store: Box<dyn Store>, events: Sender<Event>) -> Self {
        Self {
            shared,
            store,
            events,
            taken: Vec::new(),
            written: 0,
            tried: 0,
            turn: None,
            batch: Vec::new(),
            clocks_written: None,
            gather: Gather::default(),
            snapshot: None,
            snapshot_bytes: 0,
            log_bytes_min: u64::MAX,
            last_snapshot_bytes: 0,
            snapshot_after: None,
        }
    }

    /// Take snapshots from when the log has more bytes than this, and twice
    /// those of the last one.
    pub(super) fn snapshots_after(self, log_bytes_min: u64, last_snapshot_bytes: u64) -> Self {
        Self {
            log_bytes_min,
            last_snapshot_bytes,
            ..self
        }
    }

    /// Until the last handle is gone, or the store fails.
    pub(super) fn run(self) {
        let mut guarded = Guarded(self);
        while let Err(error) = guarded.0.work() {
            if !guarded.0.recover(error) {
                return;
            }
        }
    }

    /// Let no caller have an answer until the store can be written again. Says whether
    /// it can.
    fn recover(&mut self, error: StoreError) -> bool {
        let name = self.store.name().to_owned();
        // A snapshot that finds no room does not keep batches from being written.
        if error.can_pass() && matches!(self.store.recover(), Ok(true)) {
            tracing::warn!(store = name, %error, "the store failed, and was opened again");
            self.resume();
            return true;
        }
        tracing::error!(store = name, %error, "values are not given out");
        let mut can_pass = error.can_pass();
        self.shared.fail(error);
        while can_pass && self.shared.rests(RETRY) {
            match self.store.recover() {
                Ok(true) => {
                    tracing::warn!(store = name, "the store can be written again");
                    self.resume();
                    self.shared.recover();
                    return true;
                }
                Ok(false) => can_pass = false,
                Err(error) if error.can_pass() => (),
                Err(error) => {
                    tracing::error!(store = name, %error, "values are not given out any more");
                    self.shared.fail(error);
                    can_pass = false;
                }
            }
        }
        false
    }

    /// What was tried last is written, and no snapshot is begun for a while.
    fn resume(&mut self) {
        self.written = self.tried;
        self.snapshot = None;
        self.snapshot_after = Some(time::Instant::now() + SNAPSHOT_AGAIN);
    }

    fn work(&mut self) -> Result<(), StoreError> {
        loop {
            let turn = match self.turn.take() {
                Some(turn) => turn,
                None => self.next_turn(),
            };
            let since = time::Instant::now();
            let turn = self.commit_turn(turn)?;
            let took = since.elapsed();
            let others = self.publish(turn.position, turn.events);
            if turn.is_last {
                return Ok(());
            }
            if turn.waiting > 0 {
                self.gather.written(took, turn.waiting, others);
                self.gather();
            }
            self.snapshot_some()?;
        }
    }

    /// Wait until something was logged or is due, do a part of what is due, and
    /// take what is to be written.
    fn next_turn(&mut self) -> Turn {
        let shared = Arc::clone(&self.shared);
        let mut inner = shared.inner.lock();
        loop {
            let now = shared.clock.now();
            let is_due = inner.advance(now, &shared.safe);
            let is_last = inner.stop_if_closing();
            if is_due || is_last || inner.has_news() || self.snapshot.is_some() {
                let turn = self.take(&mut inner, is_last);
                let woken = mem::take(&mut inner.woken);
                // A thread that waits for the lock goes before the next step.
                MutexGuard::unlock_fair(inner);
                woken.into_iter().for_each(Waker::wake);
                return turn;
            }
            if let Some(due) = inner.waiters.deadline(&inner.machine) {
                let pause = inner.pause(due, now);
                let until = now + pause;
                inner.sleep = Sleep::Light { until };
                shared.logged.wait_for(&mut inner, pause);
            } else {
                inner.sleep = Sleep::Deep;
                shared.logged.wait(&mut inner);
            }
            inner.sleep = Sleep::Awake;
        }
    }

    /// Wait for the callers that were just answered to come back, if that is worth
    /// it.
    fn gather(&mut self) {
        let Some(wait) = self.gather.wait() else {
            return;
        };
        let mut inner = self.shared.inner.lock();
        let until = time::Instant::now() + wait.most;
        while inner.waiting < wait.target && !inner.is_closing {
            let target = wait.target;
            inner.sleep = Sleep::Gathers { target };
            if self.shared.logged.wait_until(&mut inner, until).timed_out() {
                break;
            }
        }
        inner.sleep = Sleep::Awake;
        self.gather.came(wait, inner.waiting);
    }

    fn take(&mut self, inner: &mut Inner, is_last: bool) -> Turn {
        debug_assert!(self.taken.is_empty(), "what was taken has been written");
        mem::swap(&mut self.taken, &mut inner.effects.log);
        inner.owed_since = None;
        let events = inner.effects.events.as_mut().map(mem::take);
        if self.events.receiver_count() == 0 {
            inner.effects.events = None;
        }
        Turn {
            position: inner.effects.position(),
            waiting: mem::take(&mut inner.waiting),
            events: events.unwrap_or_default(),
            is_last,
        }
    }

    /// Make all that was taken safe. If that fails, its turn is kept for later.
    fn commit_turn(&mut self, turn: Turn) -> Result<Turn, StoreError> {
        match self.commit(turn.is_last) {
            Ok(()) => Ok(turn),
            Err(error) => {
                self.turn = Some(turn);
                Err(error)
            }
        }
    }

    /// Make all that was taken safe.
    fn commit(&mut self, is_last: bool) -> Result<(), StoreError> {
        if self.taken.is_empty() {
            return Ok(());
        }
        let now = self.shared.clock.now();
        let has_clocks = self.clocks_written.is_some_and(|at| now < at + CLOCKS);
        if has_clocks && !is_last && self.taken.len() <= BATCH && self.written == 0 {
            self.tried = self.taken.len();
            self.store.append(&self.taken)?;
        } else {
            self.append_with_clocks(now)?;
        }
        self.taken.clear();
        (self.written, self.tried) = (0, 0);
        Ok(())
    }

    /// The clocks come first, so that nothing follows the word that it stopped.
    fn append_with_clocks(&mut self, now: Instant) -> Result<(), StoreError> {
        self.batch.clear();
        Entry::Clock(self.shared.clock.written()).put(&mut self.batch);
        while self.written < self.taken.len() {
            let rest = &self.taken[self.written..];
            let part = &rest[..Entry::whole(rest, BATCH)];
            self.batch.extend_from_slice(part);
            self.tried = self.written + part.len();
            self.store.append(&self.batch)?;
            self.batch.clear();
            self.written = self.tried;
        }
        self.clocks_written = Some(now);
        Ok(())
    }

    /// Tell the callers that wait for it that the log is safe so far, and say how
    /// many wait for more by then: a caller that is answered comes back in no time.
    /// All others want the lock meanwhile, so it is taken once.
    fn publish(&self, position: u64, events: Vec<Event>) -> u64 {
        let has_moved = position > self.shared.safe.position();
        let others = {
            let mut inner = self.shared.inner.lock();
            if has_moved {
                inner.machine.durable(position);
            }
            inner.waiting
        };
        if has_moved {
            self.shared.safe.move_to(position);
        }
        for event in events {
            // There may be no watcher any more.
            let _ = self.events.send(event);
        }
        others
    }

    /// Begin, go on with or end a snapshot, as is due.
    fn snapshot_some(&mut self) -> Result<(), StoreError> {
        let Some(mut at) = self.snapshot else {
            let log_bytes_min = self.log_bytes_min.max(2 * self.last_snapshot_bytes);
            let is_late = |at: time::Instant| time::Instant::now() < at;
            if self.store.log_bytes() > log_bytes_min && !self.snapshot_after.is_some_and(is_late) {
                self.begin_snapshot()?;
            }
            return Ok(());
        };
        let mut chunk = Vec::with_capacity(CHUNK + 4096);
        let has_more = {
            let inner = self.shared.inner.lock();
            inner.machine.snapshot(&mut at, CHUNK, &mut chunk)
        };
        self.put_chunk(&chunk)?;
        self.snapshot = Some(at);
        if !has_more {
            self.end_snapshot()?;
        }
        Ok(())
    }

    /// The clocks are in it too: perhaps nothing is logged for long after it.
    fn begin_snapshot(&mut self) -> Result<(), StoreError> {
        self.store.begin_snapshot()?;
        self.snapshot = Some(SnapshotAt::default());
        self.snapshot_bytes = 0;
        let mut clocks = Vec::new();
        Entry::Clock(self.shared.clock.written()).put(&mut clocks);
        self.put_chunk(&clocks)
    }

    fn put_chunk(&mut self, chunk: &[u8]) -> Result<(), StoreError> {
        self.snapshot_bytes += chunk.len() as u64;
        if chunk.is_empty() {
            return Ok(());
        }
        self.store.put_chunk(chunk)
    }

    /// What the last piece shows is logged before the snapshot counts.
    fn end_snapshot(&mut self) -> Result<(), StoreError> {
        let turn = {
            let shared = Arc::clone(&self.shared);
            let mut inner = shared.inner.lock();
            self.take(&mut inner, false)
        };
        let turn = self.commit_turn(turn)?;
        self.publish(turn.position, turn.events);
        self.store.end_snapshot()?;
        self.snapshot = None;
        self.last_snapshot_bytes = self.snapshot_bytes;
        Ok(())
    }
}

impl Inner {
    /// Do a part of what is due. Says whether more is.
    fn advance(&mut self, now: Instant, safe: &Arc<Safe>) -> bool {
        let due = |inner: &Self| inner.waiters.deadline(&inner.machine);
        let is_due = |inner: &Self| due(inner).is_some_and(|due| due <= now);
        if !is_due(self) {
            return false;
        }
        let (machine, effects) = (&mut self.machine, &mut self.effects);
        self.waiters.advance(machine, now, effects, &mut self.told);
        self.tell(now, safe);
        is_due(self)
    }

    /// How long to sleep until something is due: an ask that waits for it is told
    /// at once, and others soon enough.
    fn pause(&self, due: Instant, now: Instant) -> Duration {
        if self.waiters.is_empty() {
            return TICK;
        }
        let left = due.as_nanos().saturating_sub(now.as_nanos());
        Duration::from_nanos(left).clamp(MOMENT, TICK)
    }

    /// When all is written, the last word is that it stopped.
    fn stop_if_closing(&mut self) -> bool {
        let stops = self.is_closing && self.effects.log.is_empty();
        if stops && !self.has_stopped {
            self.has_stopped = true;
            Entry::Stopped.put(&mut self.effects.log);
        }
        self.has_stopped
    }
}

/// Lets no caller wait for a thread that is gone.
struct Guarded(Committer);

impl Drop for Guarded {
    fn drop(&mut self) {
        if thread::panicking() {
            let why = "the thread that writes it down has panicked".to_owned();
            self.0.shared.fail(StoreError::Stopped { why });
        }
    }
}

#[cfg(test)]
mod tests {
    use rideau_core::allocator::{
        Allocator, Ask, Effects, Options, Place, Prefer, RangeOptions, Refused, Span, Start, What,
    };

    use super::*;
    use crate::ranges::clocks::{Continued, Dial, Source};
    use crate::store::Platter;

    const HELD: u64 = 1_000_000;
    /// No lock is held for more ends than these.
    const STEP_MAX: usize = 1_024;
    const ASK_MAX: usize = 64 * 256 + 16;

    /// A machine with a range that is full, one with a single value that is
    /// held for long, and one that is free; and what writes it, without a thread.
    fn full(dial: &Dial) -> Committer {
        let mut machine = Allocator::new(&Options::default());
        let mut effects = Effects::new();
        let clock = Continued::start(None, Source::dial(dial));
        for (name, span) in [
            ("full", "1-1000000"),
            ("one", "0"),
            ("free", "2000000-2999999"),
        ] {
            let options = RangeOptions::in_memory(vec![Span::parse(span).unwrap()]);
            let options = RangeOptions {
                start: Start::Free,
                ..options
            };
            let set = machine.set_range(name, options, clock.now(), &mut effects);
            set.unwrap();
        }
        for (name, count, seconds) in [("full", 1_000, 10), ("one", 1, 100_000)] {
            let prefer = within(&machine, name);
            let ask = Ask {
                count,
                ttl: Some(Duration::from_secs(seconds)),
                ..Ask::new(&prefer)
            };
            let mut granted = Vec::new();
            let mut reserve = || machine.reserve(&ask, clock.now(), &mut effects, &mut granted);
            while reserve().is_ok() {}
        }
        effects.events = Some(Vec::new());
        let events = Sender::new(16);
        let shared = Arc::new(Shared::new(machine, effects, clock, events.downgrade(), 10));
        let mut store = Platter::new().open();
        store.load(&mut |_| Ok(())).unwrap();
        Committer::new(shared, Box::new(store), events)
    }

    fn within(machine: &Allocator, name: &str) -> [Prefer; 1] {
        [Prefer {
            tier: 0,
            place: Place::Range(machine.range(name).unwrap()),
        }]
    }

    /// Ask for a value of a range, and say how many ends were noticed by it.
    fn ask(committer: &Committer, name: &str) -> (Result<(), Refused>, usize) {
        let shared = &committer.shared;
        let inner = &mut *shared.inner.lock();
        let prefer = within(&inner.machine, name);
        let (now, effects) = (shared.clock.now(), &mut inner.effects);
        let mut granted = Vec::new();
        let before = effects.events.as_ref().map_or(0, Vec::len);
        let answer = inner
            .machine
            .reserve(&Ask::new(&prefer), now, effects, &mut granted);
        let events = inner.effects.events.as_ref().unwrap();
        (answer, ended(&events[before..]))
    }

    fn ended(events: &[Event]) -> usize {
        let ended = events.iter().filter(|event| event.what == What::Expired);
        ended.count()
    }

    #[test]
    fn a_million_that_end_at_once_hold_no_call_up() {
        let dial = Dial::new();
        let mut committer = full(&dial);
        let _watcher = committer.events.subscribe();
        dial.advance(Duration::from_secs(11));
        let mut all_ended = 0;
        let mut turns = 0;
        let mut by_asks = 0;
        while all_ended < HELD as usize {
            let turn = committer.next_turn();
            let noticed = ended(&turn.events) - by_asks;
            assert!(noticed <= STEP_MAX, "{noticed} in one turn");
            turns += 1;
            committer.commit(false).unwrap();
            committer.publish(turn.position, turn.events);
            // Between two turns every ask gets an answer, with little to do.
            by_asks = 0;
            for name in ["free", "full", "one"] {
                let (answer, noticed) = ask(&committer, name);
                let is_right = answer.is_ok() != (name == "one");
                assert!(is_right, "{name} after {all_ended}: {answer:?}");
                assert!(noticed <= ASK_MAX, "{noticed} for {name}");
                by_asks += noticed;
            }
            let inner = committer.shared.inner.lock();
            all_ended = HELD as usize - still_held(&inner);
        }
        // An ask in vain does much of it.
        assert!(turns > 30, "{turns}");
    }

    /// How many of the million are not noticed.
    fn still_held(inner: &Inner) -> usize {
        let full = inner.machine.range("full").unwrap();
        let stats = inner.machine.stats(full).unwrap();
        stats.reserved as usize - stats.tiers[0].saturating_sub(HELD) as usize
    }

    #[test]
    fn what_is_due_takes_turns_when_there_is_no_watcher() {
        let dial = Dial::new();
        let mut committer = full(&dial);
        committer.shared.inner.lock().effects.events = None;
        dial.advance(Duration::from_secs(11));
        let mut before = HELD as usize;
        // After the last step it would wait for more to do.
        while before > STEP_MAX {
            committer.next_turn();
            committer.taken.clear();
            let after = still_held(&committer.shared.inner.lock());
            assert!(before - after <= STEP_MAX, "{before} to {after}");
            before = after;
        }
    }

    #[test]
    fn events_are_collected_for_as_long_as_there_is_a_watcher() {
        let dial = Dial::new();
        let mut committer = full(&dial);
        let is_collecting = |committer: &Committer| {
            let inner = committer.shared.inner.lock();
            inner.effects.events.is_some()
        };
        dial.advance(Duration::from_secs(11));
        let watcher = committer.events.subscribe();
        committer.next_turn();
        assert!(is_collecting(&committer));
        // As if it was written.
        committer.taken.clear();
        drop(watcher);
        committer.next_turn();
        assert!(!is_collecting(&committer));
    }
}
