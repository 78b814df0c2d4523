//! One pool for each key, and one limit over all of them.
//!
//! Pools come to be when their key is first used and are forgotten when they
//! are empty. The core's budget says which of them may have one more member;
//! what it says and what it hears are messages, so that no lock is held
//! while another is taken.

mod keys;

use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use rideau_core::keyed::{self as core, Budget};
use rideau_core::pool::Stats;
use rideau_core::{OptionError, Reason, Rule};
use tokio::runtime::Handle;

use crate::ask_options::AskOptions;
use crate::clock::Clock;
use crate::driver::Driver;
use crate::key::Key;
use crate::pool::{Held, Manager, NotTaken, Pool};
use crate::thread::block_on;
use crate::timer::Alarm;
use keys::Keys;

/// A pool for each key, with a limit for each and one over all.
///
/// Clones are the same pools. Members of all keys together, from before they
/// are started until they are really gone, are never more than
/// [`max`](KeyedOptions::max).
///
/// When that many are there and another key needs one, the member that has
/// been idle longest of all goes, among those of keys for which no take waits.
/// If none is idle, the taker waits; and a key that has more members than
/// another that waits, or any while the other has none, gives one up after its
/// use, once it has had it for a [`turn`](KeyedOptions::turn). So every key has
/// its turn, however busy the others are.
///
/// A key without members for which no take waits is forgotten.
pub struct KeyedPool<K: Key, M: Manager> {
    driver: Arc<Driver<Budget, Keys<K, M>>>,
}

/// How many members there are over all keys and for each of them.
#[derive(Clone, PartialEq, Debug)]
pub struct KeyedOptions {
    /// The most members over all keys, whatever they do.
    pub max: usize,
    /// So long a key that is busy keeps its members though others have fewer
    /// and wait.
    pub turn: Duration,
    /// The pool of each key; its `max` is the most that one key may have. It
    /// starts nothing ahead of need: `init`, `idle_min`, `grow_at` and `valve`
    /// are left as they are by default.
    pub each: rideau_core::pool::Options,
}

impl Default for KeyedOptions {
    fn default() -> Self {
        Self {
            max: 100,
            turn: Duration::from_secs(1),
            each: rideau_core::pool::Options::default(),
        }
    }
}

impl KeyedOptions {
    fn validate(&self) -> Result<(), OptionError> {
        let within = |error: OptionError| error.within("each");
        self.each.validate().map_err(within)?;
        let each = &self.each;
        let ahead = [
            ("init", each.init > 0),
            ("idle_min", each.idle_min > 0),
            ("grow_at", each.grow_at.is_some()),
            ("valve", each.valve.is_some()),
        ];
        for (option, is_set) in ahead {
            if is_set {
                return Err(within(OptionError::new(option, Rule::AheadOfNeed)));
            }
        }
        self.shares().validate()
    }

    fn shares(&self) -> core::Options {
        core::Options {
            max: self.max,
            turn: self.turn,
        }
    }
}

impl<K: Key, M: Manager> KeyedPool<K, M> {
    /// Pools without any key yet; `manager` makes what starts the members of
    /// one. Members live on the tokio runtime that is around us now.
    ///
    /// # Errors
    ///
    /// If an option breaks a rule, or there is no runtime.
    pub fn new(
        manager: impl Fn(&K) -> M + Send + Sync + 'static,
        options: KeyedOptions,
    ) -> Result<Self, OptionError> {
        Self::new_by(manager, options, &Clock::system())
    }

    /// As [`new`](Self::new), by a given clock.
    ///
    /// # Errors
    ///
    /// If an option breaks a rule, or there is no runtime.
    pub fn new_by(
        manager: impl Fn(&K) -> M + Send + Sync + 'static,
        options: KeyedOptions,
        clock: &Clock,
    ) -> Result<Self, OptionError> {
        let missing = |_| OptionError::new("runtime", Rule::NoRuntime);
        let runtime = Handle::try_current().map_err(missing)?;
        Self::open(runtime, manager, options, clock)
    }

    /// As [`new`](Self::new), with members on a given runtime: for plain
    /// threads.
    ///
    /// # Errors
    ///
    /// If an option breaks a rule.
    pub fn new_on(
        runtime: Handle,
        manager: impl Fn(&K) -> M + Send + Sync + 'static,
        options: KeyedOptions,
    ) -> Result<Self, OptionError> {
        Self::open(runtime, manager, options, &Clock::system())
    }

    fn open(
        runtime: Handle,
        manager: impl Fn(&K) -> M + Send + Sync + 'static,
        options: KeyedOptions,
        clock: &Clock,
    ) -> Result<Self, OptionError> {
        options.validate()?;
        let budget = Budget::new(options.shares())?;
        let keys = Keys::new(Box::new(manager), options, runtime, clock.clone());
        let driver = Driver::start(budget, Vec::new(), keys, clock.clone());
        driver.shell().belong_to(&driver);
        Ok(Self { driver })
    }

    /// Take a member of a key, and wait for it if none is idle.
    ///
    /// # Errors
    ///
    /// If the take was refused or shed.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up the position in the queue. A member that was
    /// granted just then goes to the next taker of that key unharmed.
    #[track_caller]
    pub fn take(&self, key: &K) -> impl Future<Output = Result<Held<'static, M>, NotTaken>> + Send {
        self.take_on(key, AskOptions::USUAL)
    }

    /// As [`take`](Self::take), on given terms.
    ///
    /// # Errors
    ///
    /// As [`take`](Self::take).
    ///
    /// # Cancel safety
    ///
    /// As [`take`](Self::take).
    #[track_caller]
    pub fn take_on(
        &self,
        key: &K,
        terms: AskOptions,
    ) -> impl Future<Output = Result<Held<'static, M>, NotTaken>> + Send {
        self.take_at(key, terms, Location::caller())
    }

    async fn take_at(
        &self,
        key: &K,
        terms: AskOptions,
        at: &'static Location<'static>,
    ) -> Result<Held<'static, M>, NotTaken> {
        loop {
            let pool = self.driver.shell().pool(key)?;
            match pool.take_owned_at(terms, at).await {
                Err(no) if self.was_forgotten(key, &pool, &no) => (),
                answer => return answer,
            }
        }
    }

    /// Take a member of a key that is idle now; never wait. If there is none,
    /// one is started for the next take, as soon as there is room.
    ///
    /// # Errors
    ///
    /// If none is idle, or others wait.
    #[track_caller]
    pub fn try_take(&self, key: &K) -> Result<Held<'static, M>, NotTaken> {
        loop {
            let pool = self.driver.shell().pool(key)?;
            match pool.try_take_owned() {
                Err(no) if self.was_forgotten(key, &pool, &no) => (),
                answer => return answer,
            }
        }
    }

    /// Take a member on a plain thread, which sleeps until there is an answer.
    ///
    /// # Errors
    ///
    /// As [`take`](Self::take).
    #[track_caller]
    pub fn take_blocking(&self, key: &K, terms: AskOptions) -> Result<Held<'static, M>, NotTaken> {
        block_on(self.take_on(key, terms))
    }

    /// A key's pool was closed only because no take needed it just then.
    fn was_forgotten(&self, key: &K, pool: &Pool<M>, no: &NotTaken) -> bool {
        no.refusal.reason == Reason::Closed && !self.driver.shell().has(key, pool)
    }

    /// Change everything at once: no take that waits and no holder loses anything,
    /// and what is too much goes as it becomes idle or comes back.
    ///
    /// # Errors
    ///
    /// If an option breaks a rule; then nothing has changed.
    pub fn reconfigure(&self, options: KeyedOptions) -> Result<(), OptionError> {
        options.validate()?;
        let shares = options.shares();
        self.driver
            .step(|step| step.machine.reconfigure(shares, step.now, step.effects))?;
        for pool in self.driver.shell().reconfigure(&options) {
            pool.reconfigure(options.each.clone())?;
        }
        Ok(())
    }

    /// How the pools are set up.
    pub fn options(&self) -> KeyedOptions {
        self.driver.shell().options()
    }

    /// The keys that have members or a take that waits, in no order.
    pub fn keys(&self) -> Vec<K> {
        let pools = self.driver.shell().pools();
        pools.into_iter().map(|(key, _)| key).collect()
    }

    /// The numbers of all keys that are known, in no order.
    pub fn stats(&self) -> Vec<(K, Stats)> {
        let pools = self.driver.shell().pools().into_iter();
        pools.map(|(key, pool)| (key, pool.stats())).collect()
    }

    /// Refuse each take that waits or comes, stop what is idle now and the rest as
    /// it comes back, and wait until the last member of all is gone. After `within`
    /// the members still held are revoked, and the wait ends, whatever their holders do.
    /// Says how many members are left then.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing: the pools go on closing.
    pub async fn close(&self, within: Duration) -> usize {
        let clock = self.driver.clock();
        let mut alarm = Alarm::at(clock, clock.now() + within);
        let pools = self.driver.shell().close();
        for pool in &pools {
            pool.begin_close(within);
        }
        let mut left = 0;
        for pool in pools {
            left += pool.closed_before(&mut alarm).await;
        }
        left
    }
}

impl<K: Key, M: Manager> Clone for KeyedPool<K, M> {
    fn clone(&self) -> Self {
        let driver = Arc::clone(&self.driver);
        Self { driver }
    }
}

impl<K: Key, M: Manager> fmt::Debug for KeyedPool<K, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (claims, keys) = self
            .driver
            .look(|budget, _| (budget.claims(), budget.keys()));
        f.debug_struct("KeyedPool")
            .field("keys", &keys)
            .field("size", &claims)
            .finish_non_exhaustive()
    }
}
