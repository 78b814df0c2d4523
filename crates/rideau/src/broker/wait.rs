//! A wait at a broker: a future whose drop gives the place up.

use std::ops::Deref;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use rideau_core::{Reason, Refusal, Ticket};

use super::role::{Came, Reply, Role, Told};
use super::{Answer, Asking, BrokerDriver, Offering, Refused};
use crate::cell::{Bond, Cell, Ended, Seat};
use crate::peer::Peer;
use crate::terms::Terms;

/// Somebody in one role waits, or will.
pub(crate) struct Wait<D, R, A, O>
where
    D: Deref<Target = BrokerDriver<A, O>>,
    R: Role<A, O>,
    A: Send + 'static,
    O: Send + 'static,
{
    driver: D,
    /// What to bring: a future does nothing until it is polled.
    fresh: Option<(R::Brings, Terms)>,
    place: Option<Place<R::Brings, R::Gets>>,
    /// An answer that nobody has taken yet.
    answer: Option<Box<Answer<R::Brings, R::Gets>>>,
}

/// A place in the queue.
pub(crate) struct Place<V, W> {
    ticket: Ticket,
    cell: Arc<Cell<Told<V, W>>>,
}

/// What one who comes finds.
pub(crate) enum Coming<V, W> {
    Answered(Answer<V, W>),
    Waiting(Place<V, W>),
}

impl<V, W> Coming<V, W> {
    /// The answer to one who did not want to wait.
    pub(super) fn at_once(self) -> Answer<V, W> {
        match self {
            Self::Answered(answer) => answer,
            Self::Waiting(_) => unreachable!("who does not want to wait is answered at once"),
        }
    }
}

/// Come to the broker: meet somebody, be turned away, or take a place.
pub(crate) fn come<R, A, O>(
    driver: &BrokerDriver<A, O>,
    value: R::Brings,
    terms: &Terms,
    wait: bool,
    waker: Option<&Waker>,
) -> Coming<R::Brings, R::Gets>
where
    R: Role<A, O>,
    A: Send + 'static,
    O: Send + 'static,
{
    let door = driver.shell().0.door();
    if !door.admits(R::SIDE) {
        let refusal = Refusal {
            reason: Reason::Protected,
            waited: Duration::ZERO,
            len: door.len(),
            retry_after: RETRY_AFTER,
        };
        return Coming::Answered(Err(Refused { refusal, value }));
    }
    driver.step(|step| {
        let terms = terms.since(step.sent, wait);
        let reply = Reply { value, cell: None };
        let came = R::come(step.machine, &terms, reply, step.now, step.effects);
        if door.is_guarded() {
            door.set_len(step.machine.len(R::SIDE));
        }
        match came {
            Came::Answered(_, own) => Coming::Answered(R::take_own(own, step.after)),
            Came::Waits(ticket) => {
                let cell = Arc::new(Cell::new(waker.cloned()));
                let reply = R::reply_mut(step.machine, ticket).expect("who got no answer waits");
                reply.cell = Some(Arc::clone(&cell));
                Coming::Waiting(Place { ticket, cell })
            }
        }
    })
}

/// The protector corrects itself about this often.
const RETRY_AFTER: Duration = Duration::from_millis(100);

impl<D, R, A, O> Wait<D, R, A, O>
where
    D: Deref<Target = BrokerDriver<A, O>>,
    R: Role<A, O>,
    A: Send + 'static,
    O: Send + 'static,
{
    /// A wait that begins when it is polled.
    pub(super) fn new(driver: D, value: R::Brings, terms: Terms) -> Self {
        Self {
            driver,
            fresh: Some((value, terms)),
            place: None,
            answer: None,
        }
    }

    /// A wait that begins now.
    pub(super) fn begin(driver: D, value: R::Brings, terms: Terms) -> Self {
        let (place, answer) = match come::<R, A, O>(&driver, value, &terms, true, None) {
            Coming::Answered(answer) => (None, Some(Box::new(answer))),
            Coming::Waiting(place) => (Some(place), None),
        };
        Self {
            driver,
            fresh: None,
            place,
            answer,
        }
    }

    pub(super) fn ticket(&self) -> Option<Ticket> {
        self.place.as_ref().map(|place| place.ticket)
    }

    /// The answer, if it was there at the beginning.
    pub(super) fn answered(&mut self) -> Option<Answer<R::Brings, R::Gets>> {
        self.answer.take().map(|answer| *answer)
    }
}

impl<D, R, A, O> Future for Wait<D, R, A, O>
where
    D: Deref<Target = BrokerDriver<A, O>>,
    R: Role<A, O>,
    A: Send + 'static,
    O: Send + 'static,
{
    type Output = Answer<R::Brings, R::Gets>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if let Some(place) = &this.place {
            let told = ready!(place.cell.poll(context));
            let place = this.place.take().expect("it was just seen");
            return Poll::Ready(receive(told, place));
        }
        if let Some(answer) = this.answered() {
            return Poll::Ready(answer);
        }
        let (value, terms) = this.fresh.take().expect("nobody polls after the answer");
        match come::<R, A, O>(&this.driver, value, &terms, true, Some(context.waker())) {
            Coming::Waiting(place) => {
                this.place = Some(place);
                Poll::Pending
            }
            // Let other tasks run now and then, for whoever always finds a peer
            // would never yield. The answer is made by then, so that no
            // scheduler's budget looks like a refusal.
            Coming::Answered(answer) => {
                if pin!(tokio::task::consume_budget())
                    .poll(context)
                    .is_pending()
                {
                    this.answer = Some(Box::new(answer));
                    return Poll::Pending;
                }
                Poll::Ready(answer)
            }
        }
    }
}

// Nothing in a wait is pinned: the cell has an address of its own.
impl<D, R, A, O> Unpin for Wait<D, R, A, O>
where
    D: Deref<Target = BrokerDriver<A, O>>,
    R: Role<A, O>,
    A: Send + 'static,
    O: Send + 'static,
{
}

impl<D, R, A, O> Drop for Wait<D, R, A, O>
where
    D: Deref<Target = BrokerDriver<A, O>>,
    R: Role<A, O>,
    A: Send + 'static,
    O: Send + 'static,
{
    fn drop(&mut self) {
        let Some(Place { ticket, cell }) = &self.place else {
            return;
        };
        cell.leave();
        let gone = self
            .driver
            .step(|step| step.machine.cancel(*ticket, step.now, step.effects));
        // A match may have come first: then its peer learns that we left.
        if gone.is_none() && matches!(cell.take(), Some(Ok(_))) {
            cell.end(Seat::Waiter, Ended::Down);
        }
    }
}

/// What a waiter is told becomes its answer; the cell becomes the bond.
fn receive<V: Send + 'static, W: Send + 'static>(
    told: Told<V, W>,
    place: Place<V, W>,
) -> Answer<V, W> {
    told.map(|met| met.into_match(Peer::new(place.cell, Seat::Waiter)))
}

impl<A: Send + 'static, O: Send + 'static> Future for Asking<A, O> {
    type Output = Answer<A, O>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context)
    }
}

impl<A: Send + 'static, O: Send + 'static> Future for Offering<A, O> {
    type Output = Answer<O, A>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context)
    }
}
