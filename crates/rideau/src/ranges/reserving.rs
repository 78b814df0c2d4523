//! A wait for values: a future whose drop gives the place up.

use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use rideau_core::allocator::Reservation;
use rideau_core::{Reply, Ticket};

use super::answer::{Committed, Reached};
use super::{Failed, Ranges};

/// Values that may have to be waited for.
///
/// A caller that drops this gives its place up, and what it may have been given but
/// was not told.
#[must_use = "values are waited for by awaiting it, and dropping it gives the place up"]
pub struct Reserving {
    ranges: Ranges,
    state: State,
}

enum State {
    /// In the queue, with the place where the answer will be.
    Waits {
        cell: ReplySlot,
        ticket: Ticket,
    },
    /// It is decided, and may be told when it is safe.
    Decided {
        decision: Result<Vec<Reservation>, Failed>,
        reached: Reached,
    },
    Over,
}

/// Where an ask that waits for values finds its answer.
#[derive(Clone, Debug, Default)]
pub(super) struct ReplySlot(Arc<Mutex<Found>>);

#[derive(Debug, Default)]
enum Found {
    #[default]
    Nothing,
    /// The waker of a task.
    Waker(Waker),
    Answer(Result<Vec<Reservation>, Failed>, Committed),
    /// The ask will not look.
    Gone,
}

impl Reply for ReplySlot {
    fn is_gone(&self) -> bool {
        matches!(*self.0.lock(), Found::Gone)
    }
}

impl ReplySlot {
    /// Here it is. Says what to wake, or gives the answer back if the ask will not
    /// look.
    pub(super) fn tell(
        &self,
        decision: Result<Vec<Reservation>, Failed>,
        until: Committed,
    ) -> Result<Option<Waker>, Vec<Reservation>> {
        let mut found = self.0.lock();
        match mem::replace(&mut *found, Found::Gone) {
            Found::Gone => Err(decision.unwrap_or_default()),
            Found::Waker(waker) => {
                *found = Found::Answer(decision, until);
                Ok(Some(waker))
            }
            Found::Nothing | Found::Answer(..) => {
                *found = Found::Answer(decision, until);
                Ok(None)
            }
        }
    }

    fn poll(&self, task: &Context<'_>) -> Option<(Result<Vec<Reservation>, Failed>, Committed)> {
        let waker = Found::Waker(task.waker().clone());
        let mut found = self.0.lock();
        let next = match &*found {
            Found::Answer(..) => Found::Gone,
            _ => waker,
        };
        let before = mem::replace(&mut *found, next);
        drop(found);
        match before {
            Found::Answer(decision, until) => Some((decision, until)),
            _ => None,
        }
    }

    /// The ask will not look. What was found is given back.
    fn leave(&self) -> Vec<Reservation> {
        let found = mem::replace(&mut *self.0.lock(), Found::Gone);
        match found {
            Found::Answer(Ok(granted), _) => granted,
            _ => Vec::new(),
        }
    }
}

impl Reserving {
    pub(super) fn answered(
        ranges: Ranges,
        decision: Result<Vec<Reservation>, Failed>,
        until: Committed,
    ) -> Self {
        let reached = until.into_future();
        Self {
            ranges,
            state: State::Decided { decision, reached },
        }
    }

    pub(super) fn waits(ranges: Ranges, cell: ReplySlot, ticket: Ticket) -> Self {
        Self {
            ranges,
            state: State::Waits { cell, ticket },
        }
    }

    /// Is it decided already? Then the caller has to wait only for the disk.
    pub fn is_decided(&self) -> bool {
        !matches!(self.state, State::Waits { .. })
    }

    /// Wait until it is decided, which may not be told at once.
    pub async fn decided(&mut self) {
        std::future::poll_fn(|task| self.poll_decided(task)).await;
    }

    /// The decision, and what has to be safe before it may be told: for callers that
    /// hold back many answers at once. What was given has to be given back from then on.
    ///
    /// # Errors
    ///
    /// The same wait, if it is not decided.
    #[expect(
        clippy::result_large_err,
        reason = "it is the wait itself, which its caller had"
    )]
    pub fn into_parts(mut self) -> Result<(Result<Vec<Reservation>, Failed>, Committed), Self> {
        match mem::replace(&mut self.state, State::Over) {
            State::Decided { decision, reached } => Ok((decision, reached.into_until())),
            other => {
                self.state = other;
                Err(self)
            }
        }
    }

    fn poll_decided(&mut self, task: &Context<'_>) -> Poll<()> {
        if let State::Waits { cell, .. } = &self.state {
            let Some((decision, until)) = cell.poll(task) else {
                return Poll::Pending;
            };
            let reached = until.into_future();
            self.state = State::Decided { decision, reached };
        }
        Poll::Ready(())
    }
}

impl Future for Reserving {
    type Output = Result<Vec<Reservation>, Failed>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Self::Output> {
        if self.poll_decided(task).is_pending() {
            return Poll::Pending;
        }
        let State::Decided { reached, .. } = &mut self.state else {
            unreachable!("a future is not polled after its end");
        };
        let Poll::Ready(reached) = Pin::new(reached).poll(task) else {
            return Poll::Pending;
        };
        match mem::replace(&mut self.state, State::Over) {
            State::Decided { decision, .. } => Poll::Ready(reached.and(decision)),
            State::Waits { .. } | State::Over => unreachable!("it was just decided"),
        }
    }
}

impl Drop for Reserving {
    fn drop(&mut self) {
        let granted = match mem::replace(&mut self.state, State::Over) {
            State::Waits { cell, ticket } => {
                // First, so that an ask that is leaving is not served.
                let granted = cell.leave();
                self.ranges.leave_line(ticket);
                granted
            }
            State::Decided { decision, .. } => decision.unwrap_or_default(),
            State::Over => return,
        };
        for Reservation { value, fence, .. } in granted.into_iter().filter(|one| !one.is_known) {
            // Its time may have run out.
            let _ = self.ranges.release(value, Some(fence)).into_parts();
        }
    }
}

impl std::fmt::Debug for Reserving {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reserving")
            .field("is_decided", &self.is_decided())
            .finish_non_exhaustive()
    }
}
