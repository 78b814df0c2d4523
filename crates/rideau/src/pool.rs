//! Lends exclusive members: connections, workers, anything that is expensive to start.
//!
//! The handle of the core's pool. A take is a future whose drop gives the
//! position in the queue up; what it gives is a [`Held`] whose drop gives the
//! member back. Members are started, checked and stopped in tasks of their own.

mod caller;
mod caught;
mod close;
mod effects;
mod held;
mod manager;
mod member_tasks;
#[cfg(all(test, rideau_loom))]
mod models;
#[cfg(feature = "keyed")]
mod rationed;
mod refused;
mod reply_slot;
mod shell;
mod slot;
mod start_fault;
mod take;
mod tasks;

use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use rideau_core::pool::{self as core, Circuit, Options, Stats};
use rideau_core::{OptionError, Rule, Tag};
use tokio::runtime::Handle;

use crate::ask_options::AskOptions;
use crate::clock::Clock;
use crate::driver::Driver;
use crate::sync::lock;
use crate::thread::block_on;
use held::Keep;
use refused::Fault;
use shell::{PoolDriver, PoolShell, PoolTables};
use tasks::Tasks;

pub(crate) use shell::Overseer;

pub use held::Held;
pub use manager::{About, Manager};
pub use refused::{Holder, NotTaken, StartError, WhyNot};
pub use start_fault::StartFault;
pub use take::Take;

/// A pool of members that are lent to one holder at a time.
///
/// Clones are the same pool. It works on until the last clone, the last take
/// and the last owned member are gone; then its members are dropped.
///
/// ```
/// use rideau::{Held, Manager, Pool, PoolOptions, Retired, AskOptions};
/// use std::time::Duration;
///
/// struct Numbers;
///
/// impl Manager for Numbers {
///     type Member = u32;
///     type Error = std::convert::Infallible;
///
///     async fn start(&self) -> Result<u32, Self::Error> {
///         Ok(7)
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let options = PoolOptions { init: 2, max: 8, ..PoolOptions::default() };
/// let pool = Pool::start(Numbers, options).await?;
/// assert_eq!(pool.stats().members.idle, 2);
///
/// // Wait no longer than this, whatever the queue allows.
/// let mut number = pool.take_on(AskOptions::within(Duration::from_millis(50))).await?;
/// *number += 1;
/// drop(number);
///
/// // The one that was released last is taken first. It is of no more use.
/// let number = pool.take().await?;
/// assert_eq!(*number, 8);
/// Held::fail(number);
/// assert_eq!(pool.stats().retired_for(Retired::Failed), 1);
///
/// // What becomes of the member depends on how this ends.
/// let double = pool.with(AskOptions::default(), async |number| Ok::<_, ()>(*number * 2)).await?;
/// assert_eq!(double, Ok(14));
///
/// pool.close(Duration::from_secs(1)).await;
/// # Ok(())
/// # }
/// ```
pub struct Pool<M: Manager> {
    driver: Arc<PoolDriver<M>>,
}

impl<M: Manager> Pool<M> {
    /// Open a pool, whose first members start in the background. Members live on
    /// the tokio runtime that is around us now.
    ///
    /// # Errors
    ///
    /// If an option breaks a rule, or there is no runtime.
    pub fn new(manager: M, options: Options) -> Result<Self, OptionError> {
        Self::new_by(manager, options, &Clock::system())
    }

    /// As [`new`](Self::new), by a given clock.
    ///
    /// # Errors
    ///
    /// If an option breaks a rule, or there is no runtime.
    pub fn new_by(manager: M, options: Options, clock: &Clock) -> Result<Self, OptionError> {
        Self::open(None, manager, options, Self::tasks_here()?, clock)
    }

    /// As [`new`](Self::new), with a name by which logs and refusals tell the pool from
    /// others.
    ///
    /// # Errors
    ///
    /// If an option breaks a rule, or there is no runtime.
    pub fn named(name: &str, manager: M, options: Options) -> Result<Self, OptionError> {
        Self::named_by(name, manager, options, &Clock::system())
    }

    /// As [`named`](Self::named), by a given clock.
    ///
    /// # Errors
    ///
    /// If an option breaks a rule, or there is no runtime.
    pub fn named_by(
        name: &str,
        manager: M,
        options: Options,
        clock: &Clock,
    ) -> Result<Self, OptionError> {
        Self::open(Some(name), manager, options, Self::tasks_here()?, clock)
    }

    fn tasks_here() -> Result<Tasks, OptionError> {
        let missing = || OptionError::new("runtime", Rule::NoRuntime);
        Tasks::here().ok_or_else(missing)
    }

    /// As [`new`](Self::new), with members on a given runtime: for plain
    /// threads.
    ///
    /// # Errors
    ///
    /// If an option breaks a rule.
    pub fn new_on(runtime: Handle, manager: M, options: Options) -> Result<Self, OptionError> {
        Self::open(None, manager, options, Tasks::on(runtime), &Clock::system())
    }

    /// Open a pool and wait until its first members are there: `init` of them, or
    /// as many as a valve lets start.
    ///
    /// # Errors
    ///
    /// If an option breaks a rule, or a start fails before all are there.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the pool.
    pub async fn start(manager: M, options: Options) -> Result<Self, StartError> {
        Self::start_by(manager, options, &Clock::system()).await
    }

    /// As [`start`](Self::start), by a given clock.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the pool.
    pub async fn start_by(manager: M, options: Options, clock: &Clock) -> Result<Self, StartError> {
        let init = options.init;
        let pool = Self::new_by(manager, options, clock)?;
        pool.has_started(init).await.map_err(StartError::Start)?;
        Ok(pool)
    }

    /// Wait until this number of members is there, or a start failed.
    async fn has_started(&self, members: usize) -> Result<(), Fault> {
        loop {
            let news = self.driver.shell().news.notified();
            let (counts, circuit, is_regulated) = self.driver.look(|tables, now| {
                let pool = &tables.pool;
                let is_regulated = pool.options().valve.is_some();
                (pool.counts(), pool.circuit(now), is_regulated)
            });
            // A valve may keep the pool smaller than that, and then nothing comes.
            let is_all = is_regulated && counts.starting == 0 && circuit == Circuit::Closed;
            if is_all || counts.live() - counts.starting >= members {
                return Ok(());
            }
            if circuit != Circuit::Closed
                && let Some(fault) = self.driver.shell().fault()
            {
                return Err(fault);
            }
            news.await;
        }
    }

    fn open(
        name: Option<&str>,
        manager: M,
        options: Options,
        tasks: Tasks,
        clock: &Clock,
    ) -> Result<Self, OptionError> {
        let mut effects = Vec::new();
        let shards = shards(options.max);
        let shell = PoolShell::new(name, manager, &options, tasks, shards);
        let pool = core::Pool::new(options, clock.now(), &mut effects)?;
        let driver = Driver::start(PoolTables::new(pool), Vec::new(), shell, clock.clone());
        driver.shell().belong_to(&driver);
        // Only now can a start find its way back to us.
        driver.step(|step| step.effects.extend(effects));
        Ok(Self { driver })
    }

    /// Take a member, and wait for it if none is idle.
    ///
    /// # Errors
    ///
    /// If the take was refused or shed.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives the position in the queue up. A member that was
    /// granted just then goes to the next taker unharmed, and a start that was
    /// begun goes on.
    #[inline]
    #[track_caller]
    pub fn take(&self) -> Take<'_, M> {
        self.take_on(AskOptions::USUAL)
    }

    /// As [`take`](Self::take), on given terms.
    #[inline]
    #[track_caller]
    pub fn take_on(&self, terms: AskOptions) -> Take<'_, M> {
        Take::new(Keep::Borrowed(&self.driver), terms, Location::caller())
    }

    /// As [`take_on`](Self::take_on), for a member that may outlive this
    /// handle.
    #[track_caller]
    pub fn take_owned(&self, terms: AskOptions) -> Take<'static, M> {
        self.take_owned_at(terms, Location::caller())
    }

    /// As [`take_owned`](Self::take_owned), from a line of the program that may not be our
    /// caller's.
    pub(crate) fn take_owned_at(
        &self,
        terms: AskOptions,
        at: &'static Location<'static>,
    ) -> Take<'static, M> {
        Take::new(Keep::Owned(Arc::clone(&self.driver)), terms, at)
    }

    /// Take a member that is idle now; never wait. It is not checked, however
    /// long it was idle.
    ///
    /// # Errors
    ///
    /// If none is idle, or others wait.
    #[track_caller]
    pub fn try_take(&self) -> Result<Held<'_, M>, NotTaken> {
        self.take().at_once()
    }

    /// As [`try_take`](Self::try_take), for a member that may outlive this
    /// handle.
    ///
    /// # Errors
    ///
    /// As [`try_take`](Self::try_take).
    #[track_caller]
    pub fn try_take_owned(&self) -> Result<Held<'static, M>, NotTaken> {
        self.take_owned(AskOptions::USUAL).at_once()
    }

    /// Take a member on a plain thread, which sleeps until there is an answer.
    ///
    /// # Errors
    ///
    /// As [`take`](Self::take).
    #[track_caller]
    pub fn take_blocking(&self, terms: AskOptions) -> Result<Held<'_, M>, NotTaken> {
        block_on(self.take_on(terms))
    }

    /// Use a member. If the body does not come to its end, or ends with an
    /// error, the pool's `on_cancel` or `on_error` says what becomes of it; if
    /// it panics, the member is replaced.
    ///
    /// # Errors
    ///
    /// If no member could be taken. What the body answers is inside.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the use as `on_cancel` says.
    #[track_caller]
    pub fn with<T, E>(
        &self,
        terms: AskOptions,
        body: impl AsyncFnOnce(&mut M::Member) -> Result<T, E>,
    ) -> impl Future<Output = Result<Result<T, E>, NotTaken>> {
        let take = self.take_on(terms);
        async move {
            let mut held = take.await?;
            let rules = &self.driver.shell().rules;
            held.set_fate(rules.on_cancel());
            let result = body(&mut held).await;
            held.set_fate(match result {
                Ok(_) => core::Fate::Reuse,
                Err(_) => rules.on_error(),
            });
            Ok(result)
        }
    }

    /// Do something with every idle member, one after the other; meanwhile the
    /// others can be taken. One on which it panics is replaced. Says on how
    /// many it came to its end.
    pub async fn each_idle(&self, mut body: impl AsyncFnMut(&mut M::Member)) -> usize {
        let idle = self.driver.step(|step| step.machine.pool.idle_slots());
        let mut done = 0;
        for slot in idle {
            let Some(mut held) = self.take_slot(slot) else {
                continue;
            };
            held.set_fate(self.driver.shell().rules.on_cancel());
            let fate = match caught::caught(body(&mut held)).await {
                Ok(()) => core::Fate::Reuse,
                Err(_) => core::Fate::Replace,
            };
            done += usize::from(fate == core::Fate::Reuse);
            held.set_fate(fate);
        }
        done
    }

    /// How the pool is set up.
    pub fn options(&self) -> Options {
        self.driver.look(|tables, _| tables.pool.options().clone())
    }

    /// Change everything at once. A take that waits keeps its place, and a
    /// holder keeps its member; what is too much goes as it comes back.
    ///
    /// # Errors
    ///
    /// If an option breaks a rule; then nothing has changed.
    pub fn reconfigure(&self, options: Options) -> Result<(), OptionError> {
        let rules = &self.driver.shell().rules;
        self.driver.step(|step| {
            let pool = &mut step.machine.pool;
            pool.reconfigure(options, step.now, step.effects)?;
            rules.set(pool.options());
            Ok(())
        })
    }

    /// Change how many members there may be. Members over the new number go as they come
    /// back, and are never more than before meanwhile; `init` and `idle_min` are lowered to
    /// it if they are over it.
    ///
    /// # Errors
    ///
    /// If the pool may not have this number of members; then nothing has changed.
    pub fn resize(&self, max: usize) -> Result<(), OptionError> {
        let rules = &self.driver.shell().rules;
        self.driver.step(|step| {
            let pool = &mut step.machine.pool;
            let mut options = pool.options().clone();
            options.init = options.init.min(max);
            options.idle_min = options.idle_min.min(max);
            options.max = max;
            pool.reconfigure(options, step.now, step.effects)?;
            rules.set(pool.options());
            Ok(())
        })
    }

    /// The name of the pool, if it was given one.
    pub fn name(&self) -> Option<&str> {
        self.driver.shell().name.as_deref()
    }

    /// Hand nothing out until [`resume`](Self::resume); takers wait.
    pub fn suspend(&self) {
        self.driver.step(|step| step.machine.pool.suspend());
    }

    /// Hand members out again.
    pub fn resume(&self) {
        self.driver
            .step(|step| step.machine.pool.resume(step.now, step.effects));
    }

    /// Replace every member there is, one after the other, over a time. Members
    /// that are held then go when they are released.
    pub fn replace(&self, over: Duration) {
        self.driver.step(|step| {
            let pool = &mut step.machine.pool;
            pool.replace(over, step.now, step.effects);
        });
    }

    /// Refuse, as cancelled, all that wait with this tag. Says how many.
    pub fn cancel_tag(&self, tag: Tag) -> usize {
        let shell = self.driver.shell();
        self.driver.step(|step| {
            let pool = &mut step.machine.pool;
            let gone = pool.cancel_tag(tag, step.now, step.effects);
            let count = gone.len();
            for (reply, refusal) in gone {
                shell.cells.get(reply.cell).refuse(&refusal);
                step.after.wake(reply.waker);
            }
            count
        })
    }

    /// The pool's numbers.
    pub fn stats(&self) -> Stats {
        let shell = self.driver.shell();
        let mut stats = self.driver.step(|step| {
            let tables = &step.machine;
            let prompt = shell.cache.takes().saturating_sub(tables.unfit);
            let mut stats = tables.pool.stats(prompt, step.now);
            stats.takes.came -= tables.broken;
            stats.takes.served -= tables.broken;
            stats
        });
        stats.holds.add(&lock(&shell.holds));
        stats
    }

    /// What the pool is doing, why the last takes got nothing and what would
    /// help, in plain words.
    pub fn explain(&self) -> String {
        let shell = self.driver.shell();
        let mut text = self.driver.step(|step| {
            let tables = &step.machine;
            let prompt = shell.cache.takes().saturating_sub(tables.unfit);
            tables.pool.explain(prompt, step.now)
        });
        if let Some(fault) = take::fault(&self.driver) {
            text.push_str(&format!("The last start failed: {fault}.\n"));
        }
        if let Some(holder) = self.holders().first() {
            text.push_str(&format!("Of the holders, {holder}, longest of all.\n"));
        }
        text
    }

    /// The holders of members, the longest first.
    pub fn holders(&self) -> Vec<Holder> {
        take::holders(&self.driver)
    }

    /// The state of the pool that a choice between pools needs.
    #[cfg(feature = "group")]
    pub(crate) fn show(&self) -> rideau_core::group::Shown {
        let shell = self.driver.shell();
        let (runs, idle, len) = self.driver.look(|tables, _| {
            let pool = &tables.pool;
            (pool.is_running(), pool.counts().idle, pool.len())
        });
        rideau_core::group::Shown {
            is_sound: runs && !shell.is_failing(),
            is_idle: runs && len == 0 && (idle > 0 || !shell.cache.is_bare()),
            len,
        }
    }

    /// The circuit is open.
    pub(crate) fn is_failing(&self) -> bool {
        self.driver.shell().is_failing()
    }

    #[track_caller]
    fn take_slot(&self, slot: u32) -> Option<Held<'_, M>> {
        let taken = self.driver.step(|step| step.machine.pool.take_idle(slot));
        let at = Location::caller();
        taken.then(|| take::seize(Keep::Borrowed(&self.driver), slot, at))
    }
}

/// Idle members are kept near the core that used them, but not so near that a
/// few cores share them all out.
fn shards(max: usize) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    cores.min(max / 4).max(1)
}

impl<M: Manager> Clone for Pool<M> {
    fn clone(&self) -> Self {
        let driver = Arc::clone(&self.driver);
        Self { driver }
    }
}

impl<M: Manager> fmt::Debug for Pool<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (len, counts) = self
            .driver
            .look(|tables, _| (tables.pool.len(), tables.pool.counts()));
        f.debug_struct("Pool")
            .field("len", &len)
            .field("size", &counts.size())
            .finish_non_exhaustive()
    }
}
