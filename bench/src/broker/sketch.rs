//! The least that a match can be made of: how far any broker could get here.
//!
//! One mutex, two queues, one stamp for each party, and an answer that is found
//! without the lock. No law, no limit, no numbers, no peer, and nothing but a
//! number can be brought, so it is a roof and no peer.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use tokio::task::coop;

use super::Matcher;

#[derive(Clone)]
pub(super) struct Sketch(Arc<Shared>);

struct Shared {
    clock: quanta::Clock,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// The asks and the offers; one of the two is empty.
    waiting: [VecDeque<Party>; 2],
    /// How long the parties that were found had waited.
    waited: u64,
}

struct Party {
    value: u64,
    since: u64,
    answer: Arc<AtomicU64>,
    waker: Waker,
}

/// What an answer is until there is one, and when it is not wanted any more.
const NONE: u64 = u64::MAX;
const LEFT: u64 = u64::MAX - 1;

struct Wait<'a> {
    shared: &'a Shared,
    side: usize,
    value: u64,
    state: State,
}

enum State {
    Fresh,
    Waiting(Arc<AtomicU64>),
    Yielding(u64),
    Over,
}

impl Matcher for Sketch {
    const NAME: &'static str = "sketch (roof)";

    fn start() -> Self {
        Self(Arc::new(Shared {
            clock: quanta::Clock::new(),
            inner: Mutex::default(),
        }))
    }

    fn ask(&self, value: u64) -> impl Future<Output = u64> + Send {
        self.0.wait(0, value)
    }

    fn offer(&self, value: u64) -> impl Future<Output = u64> + Send {
        self.0.wait(1, value)
    }
}

impl Shared {
    fn wait(&self, side: usize, value: u64) -> Wait<'_> {
        let state = State::Fresh;
        Wait {
            shared: self,
            side,
            value,
            state,
        }
    }
}

impl Wait<'_> {
    fn come(&mut self, context: &mut Context<'_>) -> Poll<u64> {
        let mut inner = self.shared.inner.lock();
        let now = self.shared.clock.raw();
        while let Some(other) = inner.waiting[1 - self.side].pop_front() {
            let answer = other.answer.compare_exchange(
                NONE,
                self.value,
                Ordering::Release,
                Ordering::Relaxed,
            );
            if answer.is_ok() {
                inner.waited += now.saturating_sub(other.since);
                drop(inner);
                other.waker.wake();
                return self.yield_some(other.value, context);
            }
        }
        let answer = Arc::new(AtomicU64::new(NONE));
        self.state = State::Waiting(Arc::clone(&answer));
        inner.waiting[self.side].push_back(Party {
            value: self.value,
            since: now,
            answer,
            waker: context.waker().clone(),
        });
        Poll::Pending
    }

    /// A task that always finds a match lets others run now and then.
    fn yield_some(&mut self, value: u64, context: &mut Context<'_>) -> Poll<u64> {
        match coop::poll_proceed(context) {
            Poll::Ready(proceed) => {
                proceed.made_progress();
                self.state = State::Over;
                Poll::Ready(value)
            }
            Poll::Pending => {
                self.state = State::Yielding(value);
                Poll::Pending
            }
        }
    }
}

impl Future for Wait<'_> {
    type Output = u64;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<u64> {
        let value = match &self.state {
            State::Fresh => return self.come(context),
            State::Waiting(answer) => answer.load(Ordering::Acquire),
            State::Yielding(value) => *value,
            State::Over => unreachable!("a wait is not polled after its answer"),
        };
        if value == NONE {
            return Poll::Pending;
        }
        self.state = State::Over;
        Poll::Ready(value)
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        if let State::Waiting(answer) = &self.state {
            answer.swap(LEFT, Ordering::Relaxed);
        }
    }
}
