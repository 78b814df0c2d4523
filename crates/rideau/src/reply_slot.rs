//! Where a waiter finds its answer, and what two parties that met share.

use std::fmt;
use std::task::{Context, Poll, Waker};

use crate::after::After;
use crate::sync::{AtomicBool, Mutex, Ordering, lock};

/// An answer of type `T`, once.
pub(crate) struct ReplySlot<T> {
    inner: Mutex<Inner<T>>,
    gone: AtomicBool,
}

struct Inner<T> {
    answer: Option<T>,
    waiter: Option<Waker>,
}

/// Which party of a match.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub(crate) enum MatchSide {
    /// It was there first and waited.
    Waiter,
    /// It came and found the other.
    Comer,
}

/// How the other party of a match ended it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Ended {
    /// It said that it is done.
    Done,
    /// It went away without a word: it panicked, was cancelled, or gave up.
    Down,
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Done => "the other party is done",
            Self::Down => "the other party went away",
        })
    }
}

/// The shared state of a match, for both parties.
pub(crate) trait Bond: Send + Sync {
    /// One of the two ends the match. Only its first word counts.
    fn end(&self, side: MatchSide, how: Ended);
    /// How the other ended the match, if it did.
    fn ended(&self, side: MatchSide) -> Option<Ended>;
    /// As `ended`, but wake the party on `side` when the other has ended it.
    fn poll_ended(&self, side: MatchSide, context: &Context<'_>) -> Poll<Ended>;
}

impl MatchSide {
    pub(crate) const fn other(self) -> Self {
        match self {
            Self::Waiter => Self::Comer,
            Self::Comer => Self::Waiter,
        }
    }
}

impl<T> ReplySlot<T> {
    pub(crate) fn new() -> Self {
        Self {
            inner: Mutex::new(Inner {
                answer: None,
                waiter: None,
            }),
            gone: AtomicBool::new(false),
        }
    }

    /// Give the answer.
    pub(crate) fn answer(&self, answer: T, after: &mut After) {
        let mut inner = lock(&self.inner);
        debug_assert!(inner.answer.is_none(), "an ask is answered once");
        inner.answer = Some(answer);
        if let Some(waker) = inner.waiter.take() {
            after.wake(waker);
        }
    }

    /// Take the answer, or be woken when it is there.
    pub(crate) fn poll(&self, context: &Context<'_>) -> Poll<T> {
        let mut inner = lock(&self.inner);
        match inner.answer.take() {
            Some(answer) => Poll::Ready(answer),
            None => {
                let before = inner.waiter.replace(context.waker().clone());
                drop(inner);
                drop(before);
                Poll::Pending
            }
        }
    }

    /// The waiter leaves; it should not be answered any more.
    pub(crate) fn leave(&self) {
        self.gone.store(true, Ordering::Release);
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }
}
