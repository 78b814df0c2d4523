//! asyncband's bounded pool: its own semaphore, and a mutex around a queue of
//! members. It has no timers.

use std::convert::Infallible;
use std::sync::Arc;

use asyncband::pool::bounded::{Object, Pool, PoolConfig};
use asyncband::pool::{ManageObject, ObjectStatus, QueueStrategy};

use super::{Lender, MEMBERS, Maker, Member};

pub(super) struct Asyncband(Arc<Pool<Maker>>);

impl Lender for Asyncband {
    const NAME: &'static str = "asyncband";
    type Held<'a> = Object<Maker>;

    async fn start() -> Self {
        let config = PoolConfig::new(MEMBERS).with_queue_strategy(QueueStrategy::Lifo);
        Self(Pool::new(config, Maker))
    }

    async fn take(&self) -> Object<Maker> {
        self.0.get().await.expect("every start succeeds")
    }
}

impl ManageObject for Maker {
    type Object = Member;
    type Error = Infallible;

    async fn create(&self) -> Result<Member, Infallible> {
        Ok(Member::default())
    }

    async fn is_recyclable(&self, _: &mut Member, _: &ObjectStatus) -> Result<(), Infallible> {
        Ok(())
    }
}
