//! Rideau's pool as people get it: with controlled delay and statistics.

use std::convert::Infallible;

use rideau::{Held, Manager, Pool, PoolOptions, queue};

use super::{Lender, MEMBERS, Maker, Member};
use crate::report::OURS;

pub(super) struct Ours(Pool<Maker>);

impl Lender for Ours {
    const NAME: &'static str = OURS;
    type Held<'a> = Held<'a, Maker>;

    async fn start() -> Self {
        let options = PoolOptions {
            init: MEMBERS,
            max: MEMBERS,
            queue: queue::Options {
                max: None,
                ..queue::Options::default()
            },
            ..PoolOptions::default()
        };
        let pool = Pool::start(Maker, options).await;
        Self(pool.expect("these options keep every rule, and every start succeeds"))
    }

    async fn take(&self) -> Held<'_, Maker> {
        self.0.take().await.expect("waits are short here")
    }
}

impl Manager for Maker {
    type Member = Member;
    type Error = Infallible;

    async fn start(&self) -> Result<Member, Infallible> {
        Ok(Member::default())
    }
}
