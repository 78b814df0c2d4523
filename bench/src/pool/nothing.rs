//! No pool at all: each take makes a member of its own.
//!
//! Nothing here decides whose turn it is but the runtime: how fair that is to
//! tasks that never wait shows in this row.

use std::ops::{Deref, DerefMut};

use super::{Lender, Member};

pub(super) struct Nothing;

pub(super) struct Own(Member);

impl Lender for Nothing {
    const NAME: &'static str = "no pool";
    type Held<'a> = Own;

    async fn start() -> Self {
        Self
    }

    async fn take(&self) -> Own {
        Own(Member::default())
    }
}

impl Deref for Own {
    type Target = Member;

    fn deref(&self) -> &Member {
        &self.0
    }
}

impl DerefMut for Own {
    fn deref_mut(&mut self) -> &mut Member {
        &mut self.0
    }
}
