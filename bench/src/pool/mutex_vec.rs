//! A bare mutexed vector: the least that a take and a return can be made of.
//!
//! No task can wait for it, so it runs only where none has to.

use std::iter;
use std::mem;
use std::ops::{Deref, DerefMut};

use parking_lot::Mutex;

use super::{Lender, MEMBERS, Member};

pub(super) struct Locked(Mutex<Vec<Member>>);

pub(super) struct Popped<'a> {
    from: &'a Locked,
    member: Member,
}

impl Locked {
    /// # Panics
    ///
    /// If all members are out.
    pub(super) fn pop(&self) -> Popped<'_> {
        let member = self.0.lock().pop();
        Popped {
            from: self,
            member: member.expect("no more come than there are members"),
        }
    }
}

impl Lender for Locked {
    const NAME: &'static str = "mutex-vec";
    type Held<'a> = Popped<'a>;

    async fn start() -> Self {
        let members = iter::repeat_with(Member::default).take(MEMBERS);
        Self(Mutex::new(members.collect()))
    }

    async fn take(&self) -> Popped<'_> {
        self.pop()
    }
}

impl Deref for Popped<'_> {
    type Target = Member;

    fn deref(&self) -> &Member {
        &self.member
    }
}

impl DerefMut for Popped<'_> {
    fn deref_mut(&mut self) -> &mut Member {
        &mut self.member
    }
}

impl Drop for Popped<'_> {
    fn drop(&mut self) {
        let member = mem::take(&mut self.member);
        self.from.0.lock().push(member);
    }
}
