//! The pools that there are, and how they and the budget hear of each other.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::RwLock;
use rideau_core::keyed::{Budget, Effect, KeyId};
use rideau_core::{Reason, Refusal};
use tokio::runtime::Handle;

use super::KeyedOptions;
use crate::after::After;
use crate::clock::Clock;
use crate::driver::{Driver, Shell};
use crate::key::Key;
use crate::pool::{Manager, NotTaken, Overseer, Pool};

/// The pools of all keys.
pub(super) struct Keys<K: Key, M: Manager> {
    manager: Box<dyn Fn(&K) -> M + Send + Sync>,
    runtime: Handle,
    /// One for all pools, so that it can be said what is idle longest.
    clock: Clock,
    known: RwLock<Known<K, M>>,
    me: OnceLock<Weak<Driver<Budget, Self>>>,
}

struct Known<K, M: Manager> {
    ids: HashMap<K, KeyId>,
    pools: HashMap<KeyId, (K, Pool<M>)>,
    last: u64,
    is_closed: bool,
    options: KeyedOptions,
}

impl<K: Key, M: Manager> Keys<K, M> {
    pub(super) fn new(
        manager: Box<dyn Fn(&K) -> M + Send + Sync>,
        options: KeyedOptions,
        runtime: Handle,
        clock: Clock,
    ) -> Self {
        let known = Known {
            ids: HashMap::new(),
            pools: HashMap::new(),
            last: 0,
            is_closed: false,
            options,
        };
        Self {
            manager,
            runtime,
            clock,
            known: RwLock::new(known),
            me: OnceLock::new(),
        }
    }

    pub(super) fn belong_to(&self, driver: &Arc<Driver<Budget, Self>>) {
        let first = self.me.set(Arc::downgrade(driver)).is_ok();
        debug_assert!(first, "keys belong to one budget");
    }

    /// The pool of a key, which may be new.
    pub(super) fn pool(&self, key: &K) -> Result<Pool<M>, NotTaken> {
        let known = self.known.read();
        if known.is_closed {
            return Err(closed());
        }
        if let Some(pool) = known.pool(key) {
            return Ok(pool);
        }
        drop(known);
        self.open(key)
    }

    #[cold]
    fn open(&self, key: &K) -> Result<Pool<M>, NotTaken> {
        let manager = (self.manager)(key);
        let (id, each) = self.known.write().begin();
        let before = each.clone();
        let me = self.me();
        let (runtime, clock) = (self.runtime.clone(), self.clock.clone());
        let pool = Pool::rationed(manager, each, runtime, clock, look(me.clone(), id));
        let pool = pool.expect("the options were validated before");
        // The budget has to know it before any take can wait there.
        if let Some(driver) = me.upgrade() {
            driver.step(|step| step.machine.join(id, step.now, step.effects));
        }
        let mut known = self.known.write();
        let other = match known.is_closed {
            true => Some(Err(closed())),
            false => known.pool(key).map(Ok),
        };
        if other.is_none() {
            known.ids.insert(key.clone(), id);
            known.pools.insert(id, (key.clone(), pool.clone()));
        }
        let each = known.options.each.clone();
        drop(known);
        let Some(other) = other else {
            if each != before {
                let changed = pool.reconfigure(each);
                changed.expect("the options were validated before");
            }
            return Ok(pool);
        };
        if let Some(driver) = me.upgrade() {
            driver.step(|step| step.machine.forgotten(id, step.now, step.effects));
        }
        other
    }

    /// This is still the pool of that key.
    pub(super) fn has(&self, key: &K, pool: &Pool<M>) -> bool {
        let known = self.known.read().pool(key);
        known.is_some_and(|known| known.is_same(pool))
    }

    pub(super) fn options(&self) -> KeyedOptions {
        self.known.read().options.clone()
    }

    /// Pools to come are set up like this; those that are there are handed back.
    pub(super) fn reconfigure(&self, options: &KeyedOptions) -> Vec<Pool<M>> {
        let mut known = self.known.write();
        known.options = options.clone();
        known.all()
    }

    /// There will be no new pools. Those that are there are handed back.
    pub(super) fn close(&self) -> Vec<Pool<M>> {
        let mut known = self.known.write();
        known.is_closed = true;
        known.all()
    }

    pub(super) fn pools(&self) -> Vec<(K, Pool<M>)> {
        self.known.read().pools.values().cloned().collect()
    }

    fn find(&self, id: KeyId) -> Option<Pool<M>> {
        let known = self.known.read();
        known.pools.get(&id).map(|(_, pool)| pool.clone())
    }

    /// Forget a key, if its pool is empty. A caller that has found the pool and did
    /// not ask it yet finds it closed, and looks for the key again.
    fn forget(&self, id: KeyId) -> bool {
        let mut known = self.known.write();
        let is_empty = |(_, pool): &(K, Pool<M>)| pool.forget();
        if !known.pools.get(&id).is_some_and(is_empty) {
            return false;
        }
        let gone = known.pools.remove(&id);
        if let Some((key, _)) = &gone {
            known.ids.remove(key);
        }
        drop(known);
        drop(gone);
        true
    }

    fn me(&self) -> Weak<Driver<Budget, Self>> {
        self.me.get().cloned().unwrap_or_default()
    }
}

impl<K: Key, M: Manager> Known<K, M> {
    fn pool(&self, key: &K) -> Option<Pool<M>> {
        let id = self.ids.get(key)?;
        self.pools.get(id).map(|(_, pool)| pool.clone())
    }

    fn begin(&mut self) -> (KeyId, rideau_core::pool::Options) {
        self.last += 1;
        (KeyId(self.last), self.options.each.clone())
    }

    fn all(&self) -> Vec<Pool<M>> {
        self.pools.values().map(|(_, pool)| pool.clone()).collect()
    }
}

/// Tells the budget how a pool stands.
fn look<K: Key, M: Manager>(me: Weak<Driver<Budget, Keys<K, M>>>, id: KeyId) -> Overseer {
    Arc::new(move || {
        let Some(driver) = me.upgrade() else {
            return;
        };
        if let Some(pool) = driver.shell().find(id) {
            let standing = pool.stand();
            driver.step(|step| step.machine.hear(id, standing, step.now, step.effects));
        }
    })
}

impl<K: Key, M: Manager> Shell<Budget> for Keys<K, M> {
    fn perform(&self, effect: Effect, after: &mut After) {
        let me = self.me();
        after.call(move || {
            let Some(driver) = me.upgrade() else {
                return;
            };
            match effect {
                Effect::Order { key, order } => {
                    if let Some(pool) = driver.shell().find(key) {
                        let standing = pool.obey(order);
                        driver.step(|step| {
                            let budget = &mut step.machine;
                            budget.hear(key, standing, step.now, step.effects);
                        });
                    }
                }
                Effect::Forget(key) => {
                    if driver.shell().forget(key) {
                        driver.step(|step| step.machine.forgotten(key, step.now, step.effects));
                    }
                }
            }
        });
    }
}

fn closed() -> NotTaken {
    let refusal = Refusal {
        reason: Reason::Closed,
        waited: Duration::ZERO,
        len: 0,
        retry_after: Duration::ZERO,
    };
    NotTaken::new(None, refusal, None, None)
}
