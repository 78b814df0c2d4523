//! The turns of a writing thread, for every kind of store.

use std::mem;
use std::sync::Arc;
use std::time::{self, Duration};

use rideau_core::Instant;
use rideau_core::allocator::Event;
use tokio::sync::broadcast::Sender;

use super::batching::Batching;
use super::durable::Durable;
use super::shared::{Inner, Shared, Sleep};

/// How late the end of a hold may be noticed by callers that only watch.
pub(super) const TICK: Duration = Duration::from_millis(100);
/// No sleep is shorter.
const MOMENT: Duration = Duration::from_millis(1);

/// The work of one turn.
pub(super) struct Turn {
    /// Which turn is safe when all of it is written.
    pub(super) number: u64,
    /// How many answers wait for it.
    pub(super) waiting: u64,
    pub(super) events: Vec<Event>,
    pub(super) is_last: bool,
}

pub(super) struct Turns {
    pub(super) shared: Arc<Shared>,
    pub(super) events: Sender<Event>,
    gather: Batching,
}

impl Turns {
    pub(super) fn new(shared: Arc<Shared>, events: Sender<Event>) -> Self {
        Self {
            shared,
            events,
            gather: Batching::default(),
        }
    }

    /// The entries of the logs were taken, if there were any.
    pub(super) fn next(&self, inner: &mut Inner, has_taken: bool, is_last: bool) -> Turn {
        inner.owed_since = None;
        let events = inner.effects.events.as_mut().map(mem::take);
        if self.events.receiver_count() == 0 {
            inner.effects.events = None;
        }
        Turn {
            number: inner.next_turn(has_taken),
            waiting: mem::take(&mut inner.waiting),
            events: events.unwrap_or_default(),
            is_last,
        }
    }

    /// Tell the callers that wait for it that this turn is safe, and say how many wait
    /// for more by then: a caller that is answered comes back in no time.
    /// All others want the lock meanwhile, so it is taken once.
    pub(super) fn publish(&self, turn: u64, events: Vec<Event>) -> u64 {
        let has_moved = turn > self.shared.safe.turn();
        let others = {
            let mut inner = self.shared.inner.lock();
            if has_moved {
                inner.durable();
            }
            inner.waiting
        };
        if has_moved {
            self.shared.safe.move_to(turn);
        }
        for event in events {
            // There may be no watcher any more.
            let _ = self.events.send(event);
        }
        others
    }

    /// A turn that took so long is told to this many callers, and by now others wait. Wait
    /// for those that were answered to come back, if that is worth it.
    pub(super) fn gather(&mut self, took: Duration, answered: u64, others: u64) {
        self.gather.written(took, answered, others);
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
}

impl Inner {
    /// Do a part of what is due. Says whether more is.
    pub(super) fn advance(&mut self, now: Instant, safe: &Arc<Durable>) -> bool {
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
    pub(super) fn pause(&self, due: Instant, now: Instant) -> Duration {
        if self.waiters.is_empty() {
            return TICK;
        }
        let left = due.as_nanos().saturating_sub(now.as_nanos());
        Duration::from_nanos(left).clamp(MOMENT, TICK)
    }

    /// When all is written, the last word is that it stopped.
    pub(super) fn stop_if_closing(&mut self) -> bool {
        let stops = self.is_closing && !self.has_logged();
        if stops && !self.has_stopped {
            self.has_stopped = true;
            self.log_stop();
        }
        self.has_stopped
    }
}
