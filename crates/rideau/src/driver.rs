//! Runs any machine: one lock, one clock, one timer task.
//!
//! A step takes the lock, reads the clock, lets the machine decide, hands its
//! effects on in the order of decisions, and wakes the tasks they concern after the
//! lock is released.
//!
//! Other crates of this workspace run their machines on it, too. It is for them
//! alone: no promise is made that it stays as it is.

use std::hint;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use crossbeam_utils::CachePadded;
use rideau_core::{Instant, Machine};

pub use crate::after::After;
use crate::clock::Clock;
use crate::short_sleep::short_sleep;
use crate::sync::{Mutex, MutexGuard, lock, try_lock};
use crate::timer::{TimerWake, timers};

/// Deadlines are looked at again this long after a panic.
const PAUSE: Duration = Duration::from_millis(100);

/// Carries a machine's effects out.
pub trait Shell<M: Machine>: Send + Sync + 'static {
    /// Carry one effect out. The driver's lock is held: what could wait, wake or
    /// call back goes into `after`.
    fn perform(&self, effect: M::Effect, after: &mut After);

    /// A step begins; nothing has been asked of the machine yet.
    #[inline]
    fn begin(&self, machine: &mut M) {
        let _ = machine;
    }

    /// A step ends; all effects have been carried out.
    #[inline]
    fn end(&self, machine: &mut M) {
        let _ = machine;
    }
}

/// A machine, its shell, and the time that moves it on.
pub struct Driver<M: Machine, S> {
    inner: Mutex<Inner<M>>,
    shell: S,
    /// Apart from what changes: a thread that finds the lock taken reads it, too.
    clock: CachePadded<Clock>,
    contention: CachePadded<Contention>,
    timer: Arc<TimerWake>,
}

/// What threads look at when they find the lock taken. It decides nothing but how
/// long they sleep, and so no model needs to know of it.
#[derive(Default)]
struct Contention {
    /// When one last found it taken.
    met: AtomicU64,
    /// How many waited for what the machine gives when the lock was released.
    waiting: AtomicU32,
}

#[repr(C)]
struct Inner<M: Machine> {
    /// The latest `now` that the machine was given: time never runs backwards.
    last: Instant,
    /// When the timer task will look without being rung for.
    armed: Instant,
    effects: Vec<M::Effect>,
    machine: M,
}

/// The state that one step works with.
pub struct Step<'a, M: Machine> {
    /// Decides.
    pub machine: &'a mut M,
    /// Its effects, which are carried out when the step ends.
    pub effects: &'a mut Vec<M::Effect>,
    /// Work for after the lock is released.
    pub after: &'a mut After,
    /// When the caller came, before it waited for the lock.
    pub sent: Instant,
    /// The time of the step.
    pub now: Instant,
}

/// The lock is held, and a thread decides.
pub(crate) struct Section<'a, M: Machine, S> {
    driver: &'a Driver<M, S>,
    inner: MutexGuard<'a, Inner<M>>,
    sent: Instant,
    after: After,
}

impl<M, S> Driver<M, S>
where
    M: Machine<Effect: Send> + Send + 'static,
    S: Shell<M>,
{
    /// Run a machine; the first effects are those of its start.
    pub fn start(machine: M, effects: Vec<M::Effect>, shell: S, clock: Clock) -> Arc<Self> {
        let driver = Arc::new(Self {
            inner: Mutex::new(Inner {
                last: Instant::START,
                armed: Instant::NEVER,
                effects,
                machine,
            }),
            shell,
            clock: CachePadded::new(clock),
            contention: CachePadded::default(),
            timer: Arc::new(TimerWake::new()),
        });
        driver.step(|_| ());
        driver.start_timer();
        driver
    }

    /// Start the task that advances the machine at its deadlines.
    fn start_timer(self: &Arc<Self>) {
        // Loom knows no timers: its models set no deadlines.
        if cfg!(rideau_loom) {
            return;
        }
        let keep = keep_deadlines(Arc::downgrade(self), Arc::clone(&self.timer));
        let runtime = self.clock().runtime().unwrap_or_else(|| timers());
        drop(runtime.spawn(keep));
    }

    /// The shell, which carries effects out.
    pub fn shell(&self) -> &S {
        &self.shell
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Let the machine decide something, and carry out what it decides.
    #[inline]
    pub fn step<T>(&self, decide: impl FnOnce(&mut Step<'_, M>) -> T) -> T {
        let mut section = self.section();
        let decision = decide(&mut section.step());
        section.leave().run();
        decision
    }

    /// As `step`, for a caller that has something to do between the decision and
    /// the wakes, when the lock is released already.
    #[inline]
    pub(crate) fn section(&self) -> Section<'_, M, S> {
        let (mut inner, sent) = self.enter();
        self.shell.begin(&mut inner.machine);
        Section {
            driver: self,
            inner,
            sent,
            after: After::default(),
        }
    }

    /// Do what is due, and say when to look again.
    pub(crate) fn advance(&self) -> Option<Instant> {
        let mut section = self.section();
        // Whatever is due then need not ring for the task that is here now.
        section.inner.armed = Instant::START;
        let step = section.step();
        // If more is due than a machine does at once, what it did is carried
        // out first, and others have their turn at the lock.
        if step.machine.deadline().is_some_and(|due| due <= step.now) {
            step.machine.advance(step.now, step.effects);
        }
        section.carry_out();
        let Section {
            mut inner, after, ..
        } = section;
        let due = inner.machine.deadline();
        inner.armed = due.unwrap_or(Instant::NEVER);
        drop(inner);
        after.run();
        due
    }

    /// Look at the machine without changing it.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&M, Instant) -> T) -> T {
        let (inner, _) = self.enter();
        look(&inner.machine, inner.last)
    }

    /// Take the lock and read the clock in it. One reading does if the lock was
    /// free: then the caller came now.
    #[inline]
    fn enter(&self) -> (MutexGuard<'_, Inner<M>>, Instant) {
        if let Some(mut inner) = try_lock(&self.inner) {
            inner.last = self.clock.now().max(inner.last);
            let now = inner.last;
            return (inner, now);
        }
        let sent = self.clock.now();
        let mut inner = self.wait_for_lock(sent);
        inner.last = self.clock.now().max(inner.last);
        // The counters of two cores may differ slightly.
        let sent = sent.min(inner.last);
        (inner, sent)
    }
}

impl<M, S> Section<'_, M, S>
where
    M: Machine,
    S: Shell<M>,
{
    #[inline]
    pub(crate) fn step(&mut self) -> Step<'_, M> {
        let Inner {
            machine,
            effects,
            last,
            ..
        } = &mut *self.inner;
        Step {
            machine,
            effects,
            after: &mut self.after,
            sent: self.sent,
            now: *last,
        }
    }

    /// Carry out what was decided, and release the lock. A task that is owed a wake
    /// gets it from what is returned.
    #[inline]
    pub(crate) fn leave(mut self) -> After {
        self.carry_out();
        let Self {
            driver,
            mut inner,
            after,
            ..
        } = self;
        let waiting = u32::try_from(inner.machine.waiting()).unwrap_or(u32::MAX);
        driver.contention.waiting.store(waiting, Ordering::Relaxed);
        let sooner = inner.machine.deadline().filter(|due| *due < inner.armed);
        let Some(due) = sooner else {
            return after;
        };
        inner.armed = due;
        drop(inner);
        driver.timer.ring();
        after
    }

    /// Carry out what was decided; nothing more will be.
    #[inline]
    fn carry_out(&mut self) {
        let Self {
            driver,
            inner,
            after,
            ..
        } = self;
        if !inner.effects.is_empty() {
            for effect in inner.effects.drain(..) {
                driver.shell.perform(effect, after);
            }
        }
        driver.shell.end(&mut inner.machine);
    }
}

impl<M: Machine, S> Driver<M, S> {
    /// Look for the lock seldom, and sleep on it only after many looks.
    ///
    /// Sections are short, but each moves the machine's memory from core to
    /// core. A thread that meets another once has it soon. Where they meet again
    /// and again, the thread that has the lock gets through many sections while the
    /// others keep away: all get more done. They short_sleep meanwhile and are woken by the
    /// clock, so that the thread that has the lock need not look for them; and for
    /// a part of the time that callers wait for the machine, so that few notice.
    #[cold]
    fn wait_for_lock(&self, now: Instant) -> MutexGuard<'_, Inner<M>> {
        // Loom would follow each look, and none of them decides anything.
        if cfg!(rideau_loom) {
            return lock(&self.inner);
        }
        let met = self.contention.met.swap(now.as_nanos(), Ordering::Relaxed);
        if now.as_nanos().saturating_sub(met) < MEET_AGAIN {
            let waiting = self.contention.waiting.load(Ordering::Relaxed);
            let span = u64::from(waiting).saturating_mul(NAP_EACH);
            short_sleep(Duration::from_nanos(span.clamp(NAP_MIN, NAP_MAX)));
        }
        for _ in 0..LOOKS {
            for _ in 0..PAUSES {
                hint::spin_loop();
            }
            if let Some(inner) = try_lock(&self.inner) {
                return inner;
            }
        }
        lock(&self.inner)
    }
}

/// Advance the machine at each deadline until the driver is dropped.
///
/// Between deadlines only the timer is held, so that the driver can go.
async fn keep_deadlines<M, S>(driver: Weak<Driver<M, S>>, timer: Arc<TimerWake>)
where
    M: Machine<Effect: Send> + Send + 'static,
    S: Shell<M>,
{
    while let Some(alive) = driver.upgrade() {
        // Others wait for the deadlines behind one that panics.
        let advance = || alive.advance().map(|due| alive.clock().to_tokio(due));
        let due = catch_unwind(AssertUnwindSafe(advance));
        drop(alive);
        let Ok(due) = due else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        match due {
            None => timer.rung().await,
            // Late or rung for: either way it is time to look.
            Some(due) => drop(tokio::time::timeout_at(due, timer.rung()).await),
        }
    }
}

/// Pauses between two looks for the lock: as long as some sections.
const PAUSES: u32 = 64;
/// How long a thread keeps away for each caller that waits at the machine, in
/// nanoseconds: a part of what all wait anyway. Longer naps cost the last in the
/// queue more, shorter ones all of them.
const NAP_EACH: u64 = 300;
/// Shorter naps cost more than they save.
const NAP_MIN: u64 = 7_000;
/// As long as a hundred sections.
const NAP_MAX: u64 = 50_000;
/// Looks for the lock before sleeping on it.
const LOOKS: u32 = 16;
/// Threads that met at most this many nanoseconds ago meet again and again.
const MEET_AGAIN: u64 = 300_000;

impl<M: Machine, S> Drop for Driver<M, S> {
    fn drop(&mut self) {
        self.timer.ring();
    }
}
