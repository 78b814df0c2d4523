//! A body that is passed on to a process while it comes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, ready};

use super::inflow::{Inflow, Unread};
use crate::front::body_buffer::BodyBuffer;
use crate::front::broken::{Broken, Part};

/// What a client sends while it is sent on.
pub(in crate::front) struct Passing {
    /// What came before a process was asked for.
    first: Option<Box<BodyBuffer>>,
    inflow: Inflow,
    /// As many bytes as it says that it has.
    pub(super) len: Option<u64>,
    pub(super) fate: Fate,
}

/// What became of a body that was passed on, for the task that waits for the answer.
#[derive(Clone)]
pub(in crate::front) struct Fate(Arc<AtomicU8>);

impl Passing {
    pub(super) fn new(first: Option<Box<BodyBuffer>>, inflow: Inflow, len: Option<u64>) -> Self {
        Self {
            first,
            inflow,
            len,
            fate: Fate(Arc::new(AtomicU8::new(Fate::GOOD))),
        }
    }

    pub(super) fn poll_part(&mut self, context: &mut Context<'_>) -> Poll<Part> {
        if let Some(first) = &mut self.first {
            match ready!(first.poll_pop(context)) {
                Ok(Some(part)) => return Poll::Ready(Some(Ok(part))),
                Ok(None) => self.first = None,
                Err(_) => return Poll::Ready(Some(Err(Broken("its file cannot be read")))),
            }
        }
        let Poll::Ready(part) = self.inflow.poll_part(context) else {
            self.fate.set(Fate::AWAITED);
            return Poll::Pending;
        };
        // The process may not want the next part soon.
        self.inflow.pause();
        let (fate, why) = match part {
            Ok(part) => {
                self.fate.set(Fate::GOOD);
                return Poll::Ready(part.map(Ok));
            }
            Err(Unread::TooLarge) => (Fate::LONG, "it is too long"),
            Err(Unread::TooSlow) => (Fate::SLOW, "the client is too slow"),
            Err(Unread::Broken | Unread::NoRoom) => (Fate::BROKEN, "the client broke it off"),
        };
        self.fate.set(fate);
        Poll::Ready(Some(Err(Broken(why))))
    }
}

impl Fate {
    const GOOD: u8 = 0;
    const LONG: u8 = 1;
    const SLOW: u8 = 2;
    const BROKEN: u8 = 3;
    /// Nothing is wrong, but the client takes its time.
    const AWAITED: u8 = 4;

    fn set(&self, fate: u8) {
        self.0.store(fate, Ordering::Relaxed);
    }

    /// More of it is to come, and the client takes its time.
    pub(in crate::front) fn is_awaited(&self) -> bool {
        self.0.load(Ordering::Relaxed) == Self::AWAITED
    }

    /// Why it will not come as a whole, if the client is to blame.
    pub(in crate::front) fn unread(&self) -> Option<Unread> {
        match self.0.load(Ordering::Relaxed) {
            Self::LONG => Some(Unread::TooLarge),
            Self::SLOW => Some(Unread::TooSlow),
            Self::BROKEN => Some(Unread::Broken),
            _ => None,
        }
    }
}
