//! Where one who waits finds its answer, and later learns of its peer's end.
//!
//! The one memory of a wait: the machine's reply and the waiting future share
//! it, and after a match the two parties do.

use std::fmt;
use std::task::{Context, Poll, Waker};

use crate::after::After;
use crate::sync::{AtomicBool, AtomicU8, Mutex, Ordering, lock};

/// An answer of type `T`, once, and the bond of the two who met.
pub(crate) struct Cell<T> {
    inner: Mutex<Inner<T>>,
    gone: AtomicBool,
    ends: AtomicU8,
}

struct Inner<T> {
    answer: Option<T>,
    /// Whom to wake: the waiter first for its answer, then each for the other's
    /// end.
    waiter: Option<Waker>,
    /// Behind a pointer, for few who come watch whom they met.
    comer: Option<Box<Waker>>,
}

/// Which of the two who met one is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Seat {
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

/// A cell as the two who met see it, whatever the answer was.
pub(crate) trait Bond: Send + Sync {
    /// One of the two ends the match. Only its first word counts.
    fn end(&self, seat: Seat, how: Ended);
    /// How the other ended the match, if it did.
    fn ended(&self, seat: Seat) -> Option<Ended>;
    /// As `ended`, but wake the one in `seat` when it has.
    fn poll_ended(&self, seat: Seat, context: &Context<'_>) -> Poll<Ended>;
}

impl Seat {
    const fn other(self) -> Self {
        match self {
            Self::Waiter => Self::Comer,
            Self::Comer => Self::Waiter,
        }
    }

    /// The four bits of a seat: done, down, wants to know of the other's end.
    const fn bits(self, bits: u8) -> u8 {
        bits << (4 * self as u8)
    }
}

const DONE: u8 = 1;
const DOWN: u8 = 2;
const WATCHES: u8 = 4;

impl<T> Cell<T> {
    pub(crate) fn new() -> Self {
        Self {
            inner: Mutex::new(Inner {
                answer: None,
                waiter: None,
                comer: None,
            }),
            gone: AtomicBool::new(false),
            ends: AtomicU8::new(0),
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

    /// Take the answer, if it is there.
    pub(crate) fn take(&self) -> Option<T> {
        lock(&self.inner).answer.take()
    }

    /// Take the answer, or be woken when it is there.
    pub(crate) fn poll(&self, context: &Context<'_>) -> Poll<T> {
        let mut inner = lock(&self.inner);
        match inner.answer.take() {
            Some(answer) => Poll::Ready(answer),
            None => {
                let before = inner.watch(Seat::Waiter, context);
                drop(inner);
                drop(before);
                Poll::Pending
            }
        }
    }

    /// The waiter leaves; nobody should answer it any more.
    pub(crate) fn leave(&self) {
        self.gone.store(true, Ordering::Release);
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }
}

impl<T: Send> Bond for Cell<T> {
    fn end(&self, seat: Seat, how: Ended) {
        let bit = match how {
            Ended::Done => DONE,
            Ended::Down => DOWN,
        };
        let before = self.ends.fetch_or(seat.bits(bit), Ordering::AcqRel);
        if before & seat.other().bits(WATCHES) != 0 {
            let waker = lock(&self.inner).take_waker(seat.other());
            waker.into_iter().for_each(Waker::wake);
        }
    }

    fn ended(&self, seat: Seat) -> Option<Ended> {
        let ends = self.ends.load(Ordering::Acquire);
        if ends & seat.other().bits(DONE) != 0 {
            Some(Ended::Done)
        } else if ends & seat.other().bits(DOWN) != 0 {
            Some(Ended::Down)
        } else {
            None
        }
    }

    fn poll_ended(&self, seat: Seat, context: &Context<'_>) -> Poll<Ended> {
        if let Some(ended) = self.ended(seat) {
            return Poll::Ready(ended);
        }
        let before = lock(&self.inner).watch(seat, context);
        drop(before);
        // The end may have come since: whoever ends after this bit is set will
        // wake us, whoever ended before is seen now.
        self.ends.fetch_or(seat.bits(WATCHES), Ordering::AcqRel);
        self.ended(seat).map_or(Poll::Pending, Poll::Ready)
    }
}

impl<T> Inner<T> {
    /// Remember whom to wake. Whom we would have woken before is given back, to
    /// be dropped outside of the lock.
    #[must_use]
    fn watch(&mut self, seat: Seat, context: &Context<'_>) -> Option<Waker> {
        let waker = context.waker().clone();
        match seat {
            Seat::Waiter => self.waiter.replace(waker),
            Seat::Comer => self.comer.replace(Box::new(waker)).map(|waker| *waker),
        }
    }

    fn take_waker(&mut self, seat: Seat) -> Option<Waker> {
        match seat {
            Seat::Waiter => self.waiter.take(),
            Seat::Comer => self.comer.take().map(|waker| *waker),
        }
    }
}
