//! State that callers and the writing thread share.

use std::mem;
use std::sync::Arc;
use std::task::Waker;
use std::thread::{self, JoinHandle, ThreadId};
use std::time::{self, Duration};

use parking_lot::{Condvar, Mutex, MutexGuard};
use rideau_core::Instant;
use rideau_core::allocator::{Ask, Effects, Event, Parts, Refused, Reservation, Told, Waiters};
use tokio::sync::broadcast::WeakSender;

use super::Failed;
use super::answer::Committed;
use super::clocks::Continued;
use super::durable::Durable;
use super::idle_hook;
use super::partitions::{Hosted, HostedParts};
use super::reserving::ReplySlot;
use super::taken::TakenLogs;
use crate::store::{Loaded, StoreError};

/// What threads do that say when they [rest] waits for that no longer,
const OWED_MAX: Duration = Duration::from_millis(1);
/// nor do more answers.
const WAITING_MAX: u64 = 512;

/// The last of its owners ends the thread.
pub(super) struct Handle {
    pub(super) shared: Arc<Shared>,
    pub(super) loaded: Loaded,
    thread: ThreadId,
    committer: Mutex<Option<JoinHandle<()>>>,
}

pub(super) struct Shared {
    pub(super) inner: Mutex<Inner>,
    /// Something was logged, or the end has come.
    pub(super) logged: Arc<Condvar>,
    pub(super) safe: Arc<Durable>,
    pub(super) clock: Continued,
    /// Partitions come and go.
    pub(super) hosted: Option<Hosted>,
    /// The thread has the only strong one, so that events end with it.
    pub(super) events: WeakSender<Event>,
}

pub(super) struct Inner {
    pub(super) machine: Parts,
    pub(super) effects: Effects,
    /// The turn in which what is logged from now on will be written.
    turn: u64,
    /// The asks that wait for values,
    pub(super) waiters: Waiters<ReplySlot>,
    /// what they are told,
    pub(super) told: Vec<Told<ReplySlot>>,
    /// and which tasks are to be woken once the lock is free.
    pub(super) woken: Vec<Waker>,
    pub(super) failed: Option<Arc<StoreError>>,
    pub(super) is_closing: bool,
    /// Nothing more is given out.
    pub(super) is_refusing: bool,
    /// That nothing more comes is written down.
    pub(super) has_stopped: bool,
    pub(super) sleep: Sleep,
    /// How many answers wait for entries that are logged and not taken.
    pub(super) waiting: u64,
    /// Since when it is left to a thread to wake the one that writes.
    pub(super) owed_since: Option<Instant>,
    pub(super) hosted: Option<HostedParts>,
}

/// How the thread waits while nothing is logged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sleep {
    Awake,
    /// It looks at the clock then.
    Light {
        until: Instant,
    },
    /// Nothing can come due.
    Deep,
    /// It waits until this many wait for it.
    Gathers {
        target: u64,
    },
}

impl Shared {
    pub(super) fn new(
        machine: Parts,
        effects: Effects,
        clock: Continued,
        events: WeakSender<Event>,
        waiters_max: u32,
    ) -> Self {
        Self {
            inner: Mutex::new(Inner {
                machine,
                effects,
                turn: 1,
                waiters: Waiters::new(waiters_max),
                told: Vec::new(),
                woken: Vec::new(),
                failed: None,
                is_closing: false,
                is_refusing: false,
                has_stopped: false,
                sleep: Sleep::Awake,
                waiting: 0,
                owed_since: None,
                hosted: None,
            }),
            logged: Arc::default(),
            safe: Arc::default(),
            clock,
            hosted: None,
            events,
        }
    }

    /// The same, with partitions that come and go.
    pub(super) fn hosting(mut self, hosted: Hosted, parts: HostedParts) -> Self {
        self.hosted = Some(hosted);
        self.inner.get_mut().hosted = Some(parts);
        self
    }

    /// Wake the thread if it has something to do, or something may come due. A
    /// thread that [rests](rest) does so then.
    fn wake(&self, inner: &mut Inner, now: Instant) {
        let is_needed = match inner.sleep {
            Sleep::Awake => false,
            Sleep::Light { until } => {
                inner.has_news() || inner.is_closing || inner.is_awaited_before(until)
            }
            Sleep::Deep => true,
            Sleep::Gathers { target } => inner.waiting >= target || inner.is_closing,
        };
        if is_needed && !(inner.can_be_owed(now) && idle_hook::owe(&self.logged)) {
            inner.sleep = Sleep::Awake;
            self.logged.notify_one();
        }
    }

    /// Serve the asks that wait for what was just done, wake the tasks it concerns,
    /// and let the lock go.
    pub(super) fn finish(&self, mut inner: MutexGuard<'_, Inner>, now: Instant) {
        if !inner.waiters.is_empty() || !inner.told.is_empty() {
            inner.serve(now, &self.safe);
        }
        self.wake(&mut inner, now);
        let woken = mem::take(&mut inner.woken);
        drop(inner);
        woken.into_iter().for_each(Waker::wake);
    }

    /// Nothing more will be safe.
    pub(super) fn fail(&self, error: StoreError) {
        let error = Arc::new(error);
        let mut inner = self.inner.lock();
        inner.failed = Some(Arc::clone(&error));
        inner.let_waiters_go(self.clock.now(), &self.safe);
        let woken = mem::take(&mut inner.woken);
        drop(inner);
        self.safe.fail(error);
        woken.into_iter().for_each(Waker::wake);
    }
}

impl Shared {
    /// Log entries can be written again.
    pub(super) fn recover(&self) {
        let mut inner = self.inner.lock();
        inner.failed = None;
        self.safe.recover();
    }

    /// Wait for so long, while nothing can be written. Says whether to go on: not if the
    /// end has come.
    pub(super) fn rests(&self, span: Duration) -> bool {
        let mut inner = self.inner.lock();
        let until = time::Instant::now() + span;
        while !inner.is_closing {
            inner.sleep = Sleep::Deep;
            if self.logged.wait_until(&mut inner, until).timed_out() {
                break;
            }
        }
        inner.sleep = Sleep::Awake;
        !inner.is_closing
    }
}

impl Inner {
    pub(super) fn why_not(&self) -> Option<Failed> {
        match &self.failed {
            Some(error) => Some(Failed::Store(Arc::clone(error))),
            None => self.is_closing.then_some(Failed::Closed),
        }
    }

    /// The same for one that wants a value.
    pub(super) fn why_nothing_new(&self) -> Option<Failed> {
        let refusing = self.is_refusing.then_some(Failed::Closed);
        self.why_not().or(refusing)
    }

    /// Is there something to be written or told?
    pub(super) fn has_news(&self) -> bool {
        let events = self.effects.events.as_ref();
        self.has_logged()
            || !self.woken.is_empty()
            || self.hosted.as_ref().is_some_and(HostedParts::has_work)
            || events.is_some_and(|events| !events.is_empty())
    }

    /// The turn that has to be safe for all that was decided until now.
    pub(super) fn turn(&self) -> u64 {
        self.turn - u64::from(!self.has_logged())
    }

    /// The turn of what was just taken, if that was anything, or else of what was taken
    /// last.
    pub(super) fn next_turn(&mut self, has_taken: bool) -> u64 {
        self.turn += u64::from(has_taken);
        self.turn - 1
    }

    /// Was anything logged and not taken?
    pub(super) fn has_logged(&self) -> bool {
        self.log_len() > 0
    }

    /// How many bytes were logged and not taken.
    pub(super) fn log_len(&self) -> usize {
        self.machine.log_len(&self.effects)
    }

    /// Take the logs of all parts.
    pub(super) fn take_logs(&mut self, taken: &mut TakenLogs) {
        let (machine, effects) = (&mut self.machine, &mut self.effects);
        machine.take_logs(effects, |part, log| taken.take(part, log));
    }

    /// All that was taken is safe.
    pub(super) fn durable(&mut self) {
        self.machine.durable();
    }

    /// Log that nothing more comes.
    pub(super) fn log_stop(&mut self) {
        self.machine.log_stop(&mut self.effects);
    }

    /// Give out values, but none that others wait for.
    pub(super) fn reserve(
        &mut self,
        ask: &Ask<'_>,
        now: Instant,
        granted: &mut Vec<Reservation>,
    ) -> Result<(), Refused> {
        self.effects.wait = false;
        self.effects.rests.clear();
        let (machine, effects) = (&mut self.machine, &mut self.effects);
        self.waiters
            .reserve(machine, ask, now, effects, granted, &mut self.told)
    }

    /// Need the thread not be woken at once? It looks by itself before long.
    fn can_be_owed(&mut self, now: Instant) -> bool {
        let is_light = matches!(self.sleep, Sleep::Light { .. });
        if !is_light || self.is_closing || self.waiting > WAITING_MAX {
            return false;
        }
        now < *self.owed_since.get_or_insert(now) + OWED_MAX
    }

    /// Does an ask wait for what comes due before then?
    fn is_awaited_before(&self, until: Instant) -> bool {
        let due = || self.waiters.deadline(&self.machine);
        !self.waiters.is_empty() && due().is_some_and(|due| due < until)
    }

    /// Serve the asks that wait, as far as can be.
    fn serve(&mut self, now: Instant, safe: &Arc<Durable>) {
        let (machine, effects) = (&mut self.machine, &mut self.effects);
        self.waiters.serve(machine, now, effects, &mut self.told);
        self.tell(now, safe);
    }

    /// Tell the asks that were served. What one that is gone got goes to the next.
    pub(super) fn tell(&mut self, now: Instant, safe: &Arc<Durable>) {
        while !self.told.is_empty() {
            let mut returned = Vec::new();
            let turn = self.turn();
            let mut all = mem::take(&mut self.told);
            for told in all.drain(..) {
                let turn = if told.must_wait { turn } else { 0 };
                self.waiting += u64::from(told.must_wait);
                let answer = told.answer.map_err(Failed::Refused);
                let on = self.rests_on(&told.rests, turn);
                match told.reply.tell(answer, Committed::new(turn, on, safe)) {
                    Ok(waker) => self.woken.extend(waker),
                    Err(granted) => returned.extend(granted),
                }
            }
            self.told = all;
            for one in returned.into_iter().filter(|one| !one.is_known) {
                let (machine, effects) = (&mut self.machine, &mut self.effects);
                // It was given a moment ago.
                let _ = machine.release(one.value, Some(one.fence), now, effects);
            }
            let (machine, effects) = (&mut self.machine, &mut self.effects);
            self.waiters.serve(machine, now, effects, &mut self.told);
        }
    }

    /// No ask will be served any more.
    pub(super) fn let_waiters_go(&mut self, now: Instant, safe: &Arc<Durable>) {
        for cell in self.waiters.close(&mut self.machine, now) {
            let failed = self.why_not().unwrap_or(Failed::Closed);
            let told = cell.tell(Err(failed), Committed::at_once(safe));
            self.woken.extend(told.ok().flatten());
        }
    }
}

impl Handle {
    pub(super) fn new(shared: Arc<Shared>, loaded: Loaded, committer: JoinHandle<()>) -> Self {
        Self {
            shared,
            loaded,
            thread: committer.thread().id(),
            committer: Mutex::new(Some(committer)),
        }
    }

    pub(super) fn close(&self) {
        let mut inner = self.shared.inner.lock();
        inner.is_closing = true;
        let now = self.shared.clock.now();
        inner.let_waiters_go(now, &self.shared.safe);
        self.shared.finish(inner, now);
        // A task that the thread wakes may drop the last handle. The thread cannot
        // wait for itself, and ends after this turn.
        if thread::current().id() == self.thread {
            return;
        }
        // Any other thread that closes waits here for the same.
        let mut committer = self.committer.lock();
        if let Some(committer) = committer.take() {
            // It says itself what went wrong.
            let _ = committer.join();
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.close();
    }
}
