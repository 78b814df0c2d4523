//! Runs any machine: one lock, one clock, one timer task.
//!
//! A step takes the lock, reads the clock, lets the machine decide, hands its
//! effects on in the order of decisions, and wakes whom they concern after the
//! lock is released.

use std::hint;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rideau_core::{Instant, Machine};

use crate::after::After;
use crate::bell::Bell;
use crate::clock::Clock;
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering, lock, try_lock};

/// Carries a machine's effects out.
pub(crate) trait Shell<M: Machine>: Send + Sync + 'static {
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
pub(crate) struct Driver<M: Machine, S> {
    inner: Mutex<Inner<M>>,
    shell: S,
    clock: Clock,
    /// When somebody last found the lock taken.
    met: AtomicU64,
    bell: Arc<Bell>,
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

/// What one step works with.
pub(crate) struct Step<'a, M: Machine> {
    pub(crate) machine: &'a mut M,
    pub(crate) effects: &'a mut Vec<M::Effect>,
    pub(crate) after: &'a mut After,
    /// When the caller came, before it waited for the lock.
    pub(crate) sent: Instant,
    pub(crate) now: Instant,
}

impl<M, S> Driver<M, S>
where
    M: Machine<Effect: Send> + Send + 'static,
    S: Shell<M>,
{
    /// Run a machine; the first effects are those of its start.
    pub(crate) fn start(machine: M, effects: Vec<M::Effect>, shell: S, clock: Clock) -> Arc<Self> {
        let driver = Arc::new(Self {
            inner: Mutex::new(Inner {
                last: Instant::START,
                armed: Instant::NEVER,
                effects,
                machine,
            }),
            shell,
            clock,
            met: AtomicU64::new(0),
            bell: Arc::new(Bell::new()),
        });
        driver.step(|_| ());
        Bell::keep_deadlines(&driver, &driver.bell);
        driver
    }

    pub(crate) fn shell(&self) -> &S {
        &self.shell
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Let the machine decide something, and carry out what it decides.
    #[inline]
    pub(crate) fn step<T>(&self, decide: impl FnOnce(&mut Step<'_, M>) -> T) -> T {
        self.step_and(decide, |result, _| result)
    }

    /// As `step`, and hand the decision over before anybody is woken, but when
    /// the lock is released already.
    #[inline]
    pub(crate) fn step_and<T, U>(
        &self,
        decide: impl FnOnce(&mut Step<'_, M>) -> T,
        hand_over: impl FnOnce(T, &mut After) -> U,
    ) -> U {
        let mut after = After::default();
        let (mut inner, sent) = self.enter();
        let decision = self.decide(&mut inner, sent, &mut after, decide);
        drop(inner);
        let result = hand_over(decision, &mut after);
        if after.rings {
            self.bell.ring();
        }
        after.run();
        result
    }

    /// Do what is due, and say when to look again.
    pub(crate) fn advance(&self) -> Option<Instant> {
        let mut after = After::default();
        let (mut inner, sent) = self.enter();
        // Whatever is due then need not ring for the task that is here now.
        inner.armed = Instant::START;
        self.decide(&mut inner, sent, &mut after, |step| {
            while step.machine.deadline().is_some_and(|due| due <= step.now) {
                step.machine.advance(step.now, step.effects);
            }
        });
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

    #[inline]
    fn decide<T>(
        &self,
        inner: &mut Inner<M>,
        sent: Instant,
        after: &mut After,
        decide: impl FnOnce(&mut Step<'_, M>) -> T,
    ) -> T {
        let Inner {
            machine,
            effects,
            last: now,
            armed,
        } = inner;
        self.shell.begin(machine);
        let result = decide(&mut Step {
            machine,
            effects,
            after,
            sent,
            now: *now,
        });
        if !effects.is_empty() {
            for effect in effects.drain(..) {
                self.shell.perform(effect, after);
            }
        }
        self.shell.end(machine);
        let sooner = machine.deadline().filter(|due| due < armed);
        if let Some(due) = sooner {
            *armed = due;
            after.rings = true;
        }
        result
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
        // The counters of two cores may differ by a hair.
        let sent = sent.min(inner.last);
        (inner, sent)
    }
}

impl<M: Machine, S> Driver<M, S> {
    /// Look for the lock seldom, and sleep on it only after many looks.
    ///
    /// Sections are short, but each moves the machine's memory from core to
    /// core. Who meets the other once has it soon. Where they meet again and
    /// again, whoever has the lock gets through many sections while the others
    /// keep away: all get more done. They sleep meanwhile and are woken by the
    /// clock, so that keeping away costs them nothing, and who has the lock need
    /// not look for them.
    #[cold]
    fn wait_for_lock(&self, now: Instant) -> MutexGuard<'_, Inner<M>> {
        // Loom would follow each look, and none of them decides anything.
        if cfg!(rideau_loom) {
            return lock(&self.inner);
        }
        let met = self.met.swap(now.as_nanos(), Ordering::Relaxed);
        let again = now.as_nanos().saturating_sub(met) < MEET_AGAIN;
        if again {
            thread::sleep(NAP);
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

/// Pauses between two looks for the lock: as long as some sections.
const PAUSES: u32 = 64;
/// As short as there is: the system makes it some fifty microseconds, as long as
/// a hundred sections.
const NAP: Duration = Duration::from_micros(1);
/// Looks for the lock before sleeping on it.
const LOOKS: u32 = 16;
/// Who met at most so many nanoseconds ago meet again and again.
const MEET_AGAIN: u64 = 300_000;

impl<M: Machine, S> Drop for Driver<M, S> {
    fn drop(&mut self) {
        self.bell.ring();
    }
}
