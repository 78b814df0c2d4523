//! deadpool, managed: a semaphore, and a mutex around a queue of members.
//!
//! It recycles a member, which asks the manager, at every take.

use std::convert::Infallible;

use deadpool::managed::{Manager, Metrics, Object, Pool, QueueMode, RecycleResult};

use super::{Lender, MEMBERS, Maker, Member};

pub(super) struct Deadpool(Pool<Maker>);

impl Lender for Deadpool {
    const NAME: &'static str = "deadpool";
    type Held<'a> = Object<Maker>;

    async fn start() -> Self {
        let pool = Pool::builder(Maker)
            .max_size(MEMBERS)
            .queue_mode(QueueMode::Lifo)
            .build();
        Self(pool.expect("a pool without timeouts needs no runtime"))
    }

    async fn take(&self) -> Object<Maker> {
        self.0.get().await.expect("every start succeeds")
    }
}

impl Manager for Maker {
    type Type = Member;
    type Error = Infallible;

    async fn create(&self) -> Result<Member, Infallible> {
        Ok(Member::default())
    }

    async fn recycle(&self, _: &mut Member, _: &Metrics) -> RecycleResult<Infallible> {
        Ok(())
    }
}
