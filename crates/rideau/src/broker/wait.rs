//! A wait at a broker: a future whose drop gives the place up.

use std::mem;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rideau_core::Ticket;

use super::role::{Came, Reply, Role, Told};
use super::{Answer, Asking, BrokerDriver, Offering, Refused};
use crate::cell::{Bond, Cell, Ended, Seat};
use crate::peer::Peer;
use crate::streak;
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
    state: State<R::Brings, R::Gets>,
}

/// Small, for a million of them may wait: what is rare lies behind a pointer.
enum State<V, W> {
    /// A future does nothing until it is polled.
    Fresh {
        value: V,
        terms: Option<Box<Terms>>,
    },
    Waiting(Place<V, W>),
    /// Nobody has taken the answer yet.
    Answered(Box<Answer<V, W>>),
    Over,
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
#[inline]
pub(crate) fn come<R, A, O>(
    driver: &BrokerDriver<A, O>,
    value: R::Brings,
    terms: &Terms,
    wait: bool,
) -> Coming<R::Brings, R::Gets>
where
    R: Role<A, O>,
    A: Send + 'static,
    O: Send + 'static,
{
    let signals = &driver.shell().0;
    let _admitted = match signals.admit(R::SIDE) {
        Ok(admitted) => admitted,
        Err(refusal) => return Coming::Answered(Err(Refused { refusal, value })),
    };
    driver.step(|step| {
        let terms = terms.since(step.sent, wait);
        let reply = Reply { value, cell: None };
        let came = R::come(step.machine, &terms, reply, step.now, step.effects);
        if signals.door().is_guarded() {
            signals.door().set_len(step.machine.len(R::SIDE));
        }
        match came {
            Came::Answered(_, own) => Coming::Answered(R::take_own(own, step.after)),
            Came::Waits(ticket) => {
                let cell = Arc::new(Cell::new());
                let reply = R::reply_mut(step.machine, ticket).expect("who got no answer waits");
                reply.cell = Some(Arc::clone(&cell));
                Coming::Waiting(Place { ticket, cell })
            }
        }
    })
}

impl<D, R, A, O> Wait<D, R, A, O>
where
    D: Deref<Target = BrokerDriver<A, O>>,
    R: Role<A, O>,
    A: Send + 'static,
    O: Send + 'static,
{
    /// A wait that begins when it is polled; without terms, on the usual ones.
    pub(super) fn new(driver: D, value: R::Brings, terms: Option<Terms>) -> Self {
        let terms = terms.map(Box::new);
        let state = State::Fresh { value, terms };
        Self { driver, state }
    }

    /// A wait that begins now.
    pub(super) fn begin(driver: D, value: R::Brings, terms: &Terms) -> Self {
        let state = match come::<R, A, O>(&driver, value, terms, true) {
            Coming::Answered(answer) => State::Answered(Box::new(answer)),
            Coming::Waiting(place) => State::Waiting(place),
        };
        Self { driver, state }
    }

    pub(super) fn ticket(&self) -> Option<Ticket> {
        match &self.state {
            State::Waiting(place) => Some(place.ticket),
            State::Answered(answer) => answer.as_ref().as_ref().ok().map(|met| met.ticket),
            State::Fresh { .. } | State::Over => None,
        }
    }

    /// The answer, if it was there at the beginning.
    pub(super) fn answered(&mut self) -> Option<Answer<R::Brings, R::Gets>> {
        match mem::replace(&mut self.state, State::Over) {
            State::Answered(answer) => Some(*answer),
            other => {
                self.state = other;
                None
            }
        }
    }

    /// Wait in a place, but for an answer that is there already.
    fn wait_in(
        &mut self,
        place: Place<R::Brings, R::Gets>,
        context: &Context<'_>,
    ) -> Poll<Answer<R::Brings, R::Gets>> {
        match place.cell.poll(context) {
            Poll::Ready(told) => Poll::Ready(receive(told, place)),
            Poll::Pending => {
                streak::end();
                self.state = State::Waiting(place);
                Poll::Pending
            }
        }
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
        if let State::Waiting(place) = &this.state {
            let told = ready!(place.cell.poll(context));
            let State::Waiting(place) = mem::replace(&mut this.state, State::Over) else {
                unreachable!("it was just seen");
            };
            return Poll::Ready(receive(told, place));
        }
        let (value, terms) = match mem::replace(&mut this.state, State::Over) {
            State::Fresh { value, terms } => (value, terms),
            State::Answered(answer) => return Poll::Ready(*answer),
            State::Waiting(_) | State::Over => panic!("nobody polls after the answer"),
        };
        let terms = terms.as_deref().unwrap_or(&Terms::USUAL);
        let answer = match come::<R, A, O>(&this.driver, value, terms, true) {
            Coming::Waiting(place) => return this.wait_in(place, context),
            Coming::Answered(answer) => answer,
        };
        if streak::is_enough(context) {
            this.state = State::Answered(Box::new(answer));
            return Poll::Pending;
        }
        Poll::Ready(answer)
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
        let State::Waiting(Place { ticket, cell }) = &self.state else {
            return;
        };
        cell.leave();
        let gone = self
            .driver
            .step(|step| step.machine.cancel(*ticket, step.now, step.effects));
        // A match may have come first: then its peer learns that we left.
        if gone.is_none() && matches!(cell.take(), Some(Told::Met(_))) {
            cell.end(Seat::Waiter, Ended::Down);
        }
    }
}

/// What a waiter is told becomes its answer; the cell becomes the bond.
fn receive<V: Send + 'static, W: Send + 'static>(
    told: Told<V, W>,
    place: Place<V, W>,
) -> Answer<V, W> {
    match told {
        Told::Met(met) => Ok(met.into_match(place.ticket, Peer::new(place.cell, Seat::Waiter))),
        Told::Refused(refused) => Err(*refused),
    }
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
