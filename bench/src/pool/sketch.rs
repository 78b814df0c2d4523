//! The least that a pool with waiters can be made of: how far any pool could
//! get here.
//!
//! One mutex, a stack of what is idle, a queue of waiters, one stamp for each
//! of them, and members that are handed over without the lock. No law, no
//! numbers, no checks, and a member is nothing but a number, so it is a roof
//! and no peer.

use std::collections::VecDeque;
use std::iter;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

use super::{Lender, MEMBERS, Member};

pub(super) struct Sketch {
    clock: quanta::Clock,
    inner: Mutex<Inner>,
}

struct Inner {
    idle: Vec<Member>,
    /// No task waits while anything is idle.
    waiting: VecDeque<Waiter>,
    /// How long the tasks that were served had waited.
    waited: u64,
}

struct Waiter {
    since: u64,
    answer: Arc<AtomicU64>,
    waker: Waker,
}

/// What an answer is until there is one, and when it is not wanted any more.
const NONE: u64 = u64::MAX;
const LEFT: u64 = u64::MAX - 1;

pub(super) struct Lent<'a> {
    from: &'a Sketch,
    member: Member,
}

struct Take<'a> {
    from: &'a Sketch,
    answer: Option<Arc<AtomicU64>>,
}

impl Lender for Sketch {
    const NAME: &'static str = "sketch (roof)";
    type Held<'a> = Lent<'a>;

    async fn start() -> Self {
        let members = iter::repeat_with(Member::default).take(MEMBERS);
        Self {
            clock: quanta::Clock::new(),
            inner: Mutex::new(Inner {
                idle: members.collect(),
                waiting: VecDeque::new(),
                waited: 0,
            }),
        }
    }

    fn take(&self) -> impl Future<Output = Lent<'_>> + Send {
        let answer = None;
        Take { from: self, answer }
    }
}

impl Sketch {
    fn put(&self, member: Member) {
        let mut inner = self.inner.lock();
        if inner.waiting.is_empty() {
            return inner.idle.push(member);
        }
        let now = self.clock.raw();
        while let Some(waiter) = inner.waiting.pop_front() {
            let answer = waiter.answer.compare_exchange(
                NONE,
                member.uses,
                Ordering::Release,
                Ordering::Relaxed,
            );
            if answer.is_ok() {
                inner.waited += now.saturating_sub(waiter.since);
                drop(inner);
                return waiter.waker.wake();
            }
        }
        inner.idle.push(member);
    }

    fn lend(&self, member: Member) -> Lent<'_> {
        Lent { from: self, member }
    }
}

impl<'a> Future for Take<'a> {
    type Output = Lent<'a>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Lent<'a>> {
        let from = self.from;
        if let Some(answer) = &self.answer {
            let uses = answer.load(Ordering::Acquire);
            if uses == NONE {
                return Poll::Pending;
            }
            self.answer = None;
            return Poll::Ready(from.lend(Member { uses }));
        }
        let mut inner = from.inner.lock();
        if let Some(member) = inner.idle.pop() {
            drop(inner);
            return Poll::Ready(from.lend(member));
        }
        let answer = Arc::new(AtomicU64::new(NONE));
        inner.waiting.push_back(Waiter {
            since: from.clock.raw(),
            answer: Arc::clone(&answer),
            waker: context.waker().clone(),
        });
        drop(inner);
        self.answer = Some(answer);
        Poll::Pending
    }
}

impl Drop for Take<'_> {
    fn drop(&mut self) {
        let Some(answer) = &self.answer else {
            return;
        };
        match answer.swap(LEFT, Ordering::Acquire) {
            NONE => (),
            uses => self.from.put(Member { uses }),
        }
    }
}

impl Deref for Lent<'_> {
    type Target = Member;

    fn deref(&self) -> &Member {
        &self.member
    }
}

impl DerefMut for Lent<'_> {
    fn deref_mut(&mut self) -> &mut Member {
        &mut self.member
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        self.from.put(mem::take(&mut self.member));
    }
}
