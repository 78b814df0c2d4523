//! The thread that makes the log safe, and lets time do its work.
//!
//! Whatever was logged while one batch was being written is the next one: the
//! more there is to do, the more shares one write. Between two batches it takes
//! a piece of a snapshot when one is due, and ends what has run out.

use std::sync::Arc;
use std::time::Duration;

use rideau_core::allocator::{Entry, Event, SnapshotAt};

use super::{Inner, Shared, Sleep};
use crate::store::{Store, StoreError};

/// How late the end of a hold may be noticed by those who only watch.
const TICK: Duration = Duration::from_millis(100);
/// A piece of a snapshot has about as many bytes.
const CHUNK: usize = 256 * 1024;
/// No snapshot is taken before the log has as many bytes.
const LOG_BYTES_MIN: u64 = 64 * 1024 * 1024;

pub(super) struct Committer {
    shared: Arc<Shared>,
    store: Box<dyn Store>,
    batch: Vec<u8>,
    snapshot: Option<SnapshotAt>,
    snapshot_bytes: u64,
    last_snapshot_bytes: u64,
}

/// What was found to do.
struct Turn {
    position: u64,
    events: Vec<Event>,
    is_last: bool,
}

impl Committer {
    pub(super) fn new(shared: Arc<Shared>, store: Box<dyn Store>, loaded_bytes: u64) -> Self {
        Self {
            shared,
            store,
            batch: Vec::new(),
            snapshot: None,
            snapshot_bytes: 0,
            last_snapshot_bytes: loaded_bytes,
        }
    }

    /// Until the last handle is gone, or the store fails.
    pub(super) fn run(mut self) {
        loop {
            let turn = self.next_turn();
            if let Err(error) = self.commit() {
                self.fail(error);
                return;
            }
            self.publish(turn.position, turn.events);
            if turn.is_last {
                return;
            }
            if let Err(error) = self.snapshot_some() {
                self.fail(error);
                return;
            }
        }
    }

    /// Wait until something was logged or is due, and take it.
    fn next_turn(&mut self) -> Turn {
        let shared = Arc::clone(&self.shared);
        let mut inner = shared.inner.lock();
        loop {
            let now = shared.clock.now();
            let inner_ref = &mut *inner;
            if inner_ref.machine.deadline().is_some_and(|due| due <= now) {
                inner_ref.machine.advance(now, &mut inner_ref.effects);
            }
            if inner.is_closing && inner.effects.log.is_empty() && !inner.has_stopped {
                inner.has_stopped = true;
                Entry::Stopped.put(&mut inner.effects.log);
            }
            let has_events = inner.effects.events.as_ref().is_some_and(|e| !e.is_empty());
            let is_last = inner.has_stopped;
            let is_due = inner.machine.deadline().is_some_and(|due| due <= now);
            if !inner.effects.log.is_empty() || has_events || is_last || self.snapshot.is_some() {
                return self.take(&mut inner, is_last);
            }
            if is_due {
                // Others may go first between two steps.
                parking_lot::MutexGuard::bump(&mut inner);
            } else if inner.machine.deadline().is_some() {
                inner.sleep = Sleep::Light;
                shared.logged.wait_for(&mut inner, TICK);
            } else {
                inner.sleep = Sleep::Deep;
                shared.logged.wait(&mut inner);
            }
            inner.sleep = Sleep::Awake;
        }
    }

    fn take(&mut self, inner: &mut Inner, is_last: bool) -> Turn {
        self.batch.clear();
        std::mem::swap(&mut self.batch, &mut inner.effects.log);
        let position = inner.effects.position();
        let events = inner.effects.events.as_mut();
        Turn {
            position,
            events: events.map(std::mem::take).unwrap_or_default(),
            is_last,
        }
    }

    fn commit(&mut self) -> Result<(), StoreError> {
        if self.batch.is_empty() {
            return Ok(());
        }
        // At the beginning, so that nothing follows the word that it stopped.
        let mut clock = Vec::with_capacity(self.batch.len() + 64);
        Entry::Clock(self.shared.clock.written()).put(&mut clock);
        clock.extend_from_slice(&self.batch);
        self.store.append(&clock)
    }

    fn publish(&self, position: u64, events: Vec<Event>) {
        if !self.batch.is_empty() {
            self.shared.inner.lock().machine.durable(position);
        }
        self.shared.safe.move_to(position);
        for event in events {
            // Nobody may be watching any more.
            let _ = self.shared.events.send(event);
        }
    }

    /// Begin, go on with or end a snapshot, as is due.
    fn snapshot_some(&mut self) -> Result<(), StoreError> {
        let Some(mut at) = self.snapshot else {
            if self.store.log_bytes() > LOG_BYTES_MIN.max(2 * self.last_snapshot_bytes) {
                self.store.begin_snapshot()?;
                self.snapshot = Some(SnapshotAt::default());
                self.snapshot_bytes = 0;
            }
            return Ok(());
        };
        let mut chunk = Vec::with_capacity(CHUNK + 4096);
        let has_more = {
            let inner = self.shared.inner.lock();
            inner.machine.snapshot(&mut at, CHUNK, &mut chunk)
        };
        self.snapshot_bytes += chunk.len() as u64;
        if !chunk.is_empty() {
            self.store.put_chunk(&chunk)?;
        }
        self.snapshot = Some(at);
        if !has_more {
            self.end_snapshot()?;
        }
        Ok(())
    }

    /// What the last piece shows is logged before the snapshot counts.
    fn end_snapshot(&mut self) -> Result<(), StoreError> {
        let turn = {
            let shared = Arc::clone(&self.shared);
            let mut inner = shared.inner.lock();
            self.take(&mut inner, false)
        };
        self.commit()?;
        self.publish(turn.position, turn.events);
        self.store.end_snapshot()?;
        self.snapshot = None;
        self.last_snapshot_bytes = self.snapshot_bytes;
        Ok(())
    }

    fn fail(&self, error: StoreError) {
        tracing::error!(store = self.store.name(), %error, "values are not given out any more");
        let error = Arc::new(error);
        self.shared.inner.lock().failed = Some(Arc::clone(&error));
        self.shared.safe.fail(error);
    }
}
