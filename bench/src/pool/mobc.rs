//! mobc: a semaphore and an asynchronous mutex; a task of its own for every
//! return.
//!
//! By default it would keep only two idle members and start the others anew
//! again and again; here it keeps all. It checks a member at every take.

use std::convert::Infallible;

use mobc::{Connection, Manager, Pool, async_trait};

use super::{Lender, MEMBERS, Maker, Member};

pub(super) struct Mobc(Pool<Maker>);

impl Lender for Mobc {
    const NAME: &'static str = "mobc";
    type Held<'a> = Connection<Maker>;

    async fn start() -> Self {
        let pool = Pool::builder()
            .max_open(MEMBERS as u64)
            .max_idle(MEMBERS as u64)
            .build(Maker);
        Self(pool)
    }

    async fn take(&self) -> Connection<Maker> {
        self.0.get().await.expect("waits are short here")
    }
}

#[async_trait]
impl Manager for Maker {
    type Connection = Member;
    type Error = Infallible;

    async fn connect(&self) -> Result<Member, Infallible> {
        Ok(Member::default())
    }

    async fn check(&self, member: Member) -> Result<Member, Infallible> {
        Ok(member)
    }
}
