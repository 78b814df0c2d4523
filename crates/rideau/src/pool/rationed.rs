//! Pools that have no more members than an overseer gives them room for.

use std::sync::Arc;

use rideau_core::OptionError;
use rideau_core::keyed::{Order, Standing};
use rideau_core::pool::{self as core, Options};
use tokio::runtime::Handle;

use super::manager::Manager;
use super::shell::{Overseer, PoolShell, PoolTables};
use super::tasks::Tasks;
use super::{Pool, shards};
use crate::clock::Clock;
use crate::driver::Driver;

impl<M: Manager> Pool<M> {
    /// Open a pool that has no room for members yet. Its instants are those of
    /// the clock; whenever there is news the overseer should look at it.
    pub(crate) fn rationed(
        manager: M,
        options: Options,
        runtime: Handle,
        clock: Clock,
        overseer: Overseer,
    ) -> Result<Self, OptionError> {
        let shards = shards(options.max);
        let shell = PoolShell::new(None, manager, &options, Tasks::on(runtime), shards);
        let shell = shell.overseen_by(overseer);
        let mut effects = Vec::new();
        let mut pool = core::Pool::new(options, clock.now(), &mut effects)?;
        debug_assert!(effects.is_empty(), "nothing starts without room");
        pool.ration();
        let driver = Driver::start(PoolTables::new(pool), effects, shell, clock);
        driver.shell().belong_to(&driver);
        Ok(Self { driver })
    }

    /// Do as ordered, and say how the pool stands then.
    pub(crate) fn obey(&self, order: Order) -> Standing {
        self.driver.step(|step| {
            let pool = &mut step.machine.pool;
            pool.obey(order, step.now, step.effects);
            pool.stand(step.now)
        })
    }

    /// How the pool stands.
    pub(crate) fn stand(&self) -> Standing {
        self.driver.step(|step| step.machine.pool.stand(step.now))
    }

    /// Both are handles of one pool.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.driver, &other.driver)
    }

    /// Close the pool, if it has no members and no take waits.
    pub(crate) fn forget(&self) -> bool {
        self.driver
            .step(|step| step.machine.pool.forget(step.effects))
    }
}
