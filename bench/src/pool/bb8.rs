//! bb8: a mutex around a queue of members, and a notification for waiting
//! tasks.
//!
//! By default it tests a member at every take (`test_on_check_out`), and so it
//! does here; the test does nothing.

use std::convert::Infallible;

use bb8::{ManageConnection, Pool, PooledConnection, QueueStrategy};

use super::{Lender, MEMBERS, Maker, Member};

pub(super) struct Bb8(Pool<Maker>);

impl Lender for Bb8 {
    const NAME: &'static str = "bb8";
    type Held<'a> = PooledConnection<'a, Maker>;

    async fn start() -> Self {
        let pool = Pool::builder()
            .max_size(MEMBERS as u32)
            .queue_strategy(QueueStrategy::Lifo)
            .build(Maker);
        Self(pool.await.expect("nothing is started yet"))
    }

    async fn take(&self) -> PooledConnection<'_, Maker> {
        self.0.get().await.expect("waits are short here")
    }
}

impl ManageConnection for Maker {
    type Connection = Member;
    type Error = Infallible;

    async fn connect(&self) -> Result<Member, Infallible> {
        Ok(Member::default())
    }

    async fn is_valid(&self, _: &mut Member) -> Result<(), Infallible> {
        Ok(())
    }

    fn has_broken(&self, _: &mut Member) -> bool {
        false
    }
}
