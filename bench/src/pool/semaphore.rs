//! What people write themselves: tokio's semaphore and a mutexed vector.
//!
//! It neither checks nor counts nor times anything, so it is a roof for pools
//! that are made of the same parts.

use std::ops::{Deref, DerefMut};

use tokio::sync::{Semaphore, SemaphorePermit};

use super::mutex_vec::{Locked, Popped};
use super::{Lender, MEMBERS, Member};

pub(super) struct Permits {
    free: Semaphore,
    members: Locked,
}

/// The member goes back before the permit does.
pub(super) struct Permitted<'a> {
    member: Popped<'a>,
    _permit: SemaphorePermit<'a>,
}

impl Lender for Permits {
    const NAME: &'static str = "semaphore";
    type Held<'a> = Permitted<'a>;

    async fn start() -> Self {
        Self {
            free: Semaphore::new(MEMBERS),
            members: Locked::start().await,
        }
    }

    async fn take(&self) -> Permitted<'_> {
        let permit = self.free.acquire().await;
        Permitted {
            _permit: permit.expect("it is never closed"),
            member: self.members.pop(),
        }
    }
}

impl Deref for Permitted<'_> {
    type Target = Member;

    fn deref(&self) -> &Member {
        &self.member
    }
}

impl DerefMut for Permitted<'_> {
    fn deref_mut(&mut self) -> &mut Member {
        &mut self.member
    }
}
