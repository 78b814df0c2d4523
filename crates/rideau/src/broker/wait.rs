//! A wait at a broker: a future whose drop gives the place up.

use std::mem;
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
    state: State<R::Brings, R::Gets>,
}

enum State<V, W> {
    /// Has not come yet: a future does nothing until it is polled.
    Fresh { value: V, terms: Terms },
    Waiting(Place<V, W>),
    Answered(Answer<V, W>),
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
        let state = State::Fresh { value, terms };
        Self { driver, state }
    }

    /// A wait that begins now.
    pub(super) fn begin(driver: D, value: R::Brings, terms: Terms) -> Self {
        let state = match come::<R, A, O>(&driver, value, &terms, true, None) {
            Coming::Answered(answer) => State::Answered(answer),
            Coming::Waiting(place) => State::Waiting(place),
        };
        Self { driver, state }
    }

    pub(super) fn ticket(&self) -> Option<Ticket> {
        match &self.state {
            State::Waiting(place) => Some(place.ticket),
            State::Fresh { .. } | State::Answered(_) | State::Over => None,
        }
    }

    /// The answer, if it was there at the beginning.
    pub(super) fn answered(&mut self) -> Option<Answer<R::Brings, R::Gets>> {
        match mem::replace(&mut self.state, State::Over) {
            State::Answered(answer) => Some(answer),
            state => {
                self.state = state;
                None
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
        match mem::replace(&mut this.state, State::Over) {
            State::Fresh { value, terms } => {
                let waker = Some(context.waker());
                match come::<R, A, O>(&this.driver, value, &terms, true, waker) {
                    Coming::Answered(answer) => this.pass_on(answer, context),
                    Coming::Waiting(place) => {
                        this.state = State::Waiting(place);
                        Poll::Pending
                    }
                }
            }
            State::Answered(answer) => Poll::Ready(answer),
            State::Waiting(_) => unreachable!("handled above"),
            State::Over => panic!("polled after the answer"),
        }
    }
}

impl<D, R, A, O> Wait<D, R, A, O>
where
    D: Deref<Target = BrokerDriver<A, O>>,
    R: Role<A, O>,
    A: Send + 'static,
    O: Send + 'static,
{
    /// Give an answer that needed no wait, but let other tasks run now and
    /// then: whoever always finds a peer would never yield. The answer is made
    /// by then, so that no scheduler's budget looks like a refusal.
    fn pass_on(
        &mut self,
        answer: Answer<R::Brings, R::Gets>,
        context: &mut Context<'_>,
    ) -> Poll<Answer<R::Brings, R::Gets>> {
        if pin!(tokio::task::consume_budget()).poll(context).is_pending() {
            self.state = State::Answered(answer);
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
        let gone = self.driver.step(|step| step.machine.cancel(*ticket, step.now, step.effects));
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
