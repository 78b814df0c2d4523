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
use rideau_core::allocator::Event;
use tokio::sync::broadcast::Sender;

use super::shared::{Inner, Shared, Sleep};
use super::taken::TakenLogs;
use super::turns::{Turn, Turns};
use crate::store::{Store, StoreError};

mod snapshots;

use snapshots::Round;

/// A store that could not be written is tried again as often,
const RETRY: Duration = Duration::from_millis(500);
/// and a snapshot after a while.
const SNAPSHOT_AGAIN: Duration = Duration::from_secs(30);

pub(super) struct Committer {
    turns: Turns,
    store: Box<dyn Store>,
    /// Logged and not written.
    taken: TakenLogs,
    /// The turn to announce when all of it is written.
    turn: Option<Turn>,
    round: Option<Round>,
    log_bytes_min: u64,
    last_snapshot_bytes: u64,
    /// No snapshot is begun before, as the last one failed.
    snapshot_after: Option<time::Instant>,
}

impl Committer {
    pub(super) fn new(shared: Arc<Shared>, store: Box<dyn Store>, events: Sender<Event>) -> Self {
        let parts = shared.inner.lock().machine.count();
        Self {
            turns: Turns::new(shared, events),
            store,
            taken: TakenLogs::new(parts),
            turn: None,
            round: None,
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
        self.turns.shared.fail(error);
        while can_pass && self.turns.shared.rests(RETRY) {
            match self.store.recover() {
                Ok(true) => {
                    tracing::warn!(store = name, "the store can be written again");
                    self.resume();
                    self.turns.shared.recover();
                    return true;
                }
                Ok(false) => can_pass = false,
                Err(error) if error.can_pass() => (),
                Err(error) => {
                    tracing::error!(store = name, %error, "values are not given out any more");
                    self.turns.shared.fail(error);
                    can_pass = false;
                }
            }
        }
        false
    }

    /// The last batch is written after all, and no snapshot begins for a while.
    fn resume(&mut self) {
        self.taken.resume();
        self.round = None;
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
            let others = self.turns.publish(turn.number, turn.events);
            if turn.is_last {
                return Ok(());
            }
            if turn.waiting > 0 {
                self.turns.gather(took, turn.waiting, others);
            }
            self.snapshot_some()?;
        }
    }

    /// Wait until something was logged or is due, do a part of what is due, and
    /// take what is to be written.
    fn next_turn(&mut self) -> Turn {
        let shared = Arc::clone(&self.turns.shared);
        let mut inner = shared.inner.lock();
        loop {
            let now = shared.clock.now();
            let is_due = inner.advance(now, &shared.safe);
            let is_last = inner.stop_if_closing();
            if is_due || is_last || inner.has_news() || self.round.is_some() {
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

    fn take(&mut self, inner: &mut Inner, is_last: bool) -> Turn {
        inner.take_logs(&mut self.taken);
        self.turns.next(inner, !self.taken.is_empty(), is_last)
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
        let clock = &self.turns.shared.clock;
        self.taken.write(&mut *self.store, clock, is_last)
    }
}

/// Lets no caller wait for a thread that is gone.
struct Guarded(Committer);

impl Drop for Guarded {
    fn drop(&mut self) {
        if thread::panicking() {
            let why = "the thread that writes it down has panicked".to_owned();
            self.0.turns.shared.fail(StoreError::Stopped { why });
        }
    }
}

#[cfg(test)]
mod tests;
