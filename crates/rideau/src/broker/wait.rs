//! A wait at a broker: a future whose drop gives the place up.

use std::mem;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use rideau_core::Ticket;
use rideau_core::broker::Found;

use super::meeting::{Meeting, Told};
use super::role::{Reply, Role, introduce};
use super::{Answer, Asking, BrokerDriver, Offering, Refused};
use crate::cell::Seat;
use crate::driver::Step;
use crate::peer::{Match, Peer};
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
    /// It has a place in the queue.
    Waiting {
        ticket: Ticket,
        meeting: Arc<Meeting<V, W>>,
    },
    /// Nobody has taken the answer yet.
    Answered(Box<Answer<V, W>>),
    Over,
}

/// What one who comes finds.
pub(crate) enum Coming<V, W> {
    Answered(Answer<V, W>),
    Waiting(Ticket, Arc<Meeting<V, W>>),
}

impl<V, W> Coming<V, W> {
    /// The answer to one who did not want to wait.
    pub(super) fn at_once(self) -> Answer<V, W> {
        match self {
            Self::Answered(answer) => answer,
            Self::Waiting(..) => unreachable!("who does not want to wait is answered at once"),
        }
    }
}

/// What the machine decides for one who comes. It has let go of whom it found,
/// who is told when the lock is released: one memory less to bring along while
/// others wait for the lock.
enum Came<V, W> {
    Found(V, Found<Reply<W, V>>),
    Waits(Ticket, Arc<Meeting<V, W>>),
    Refused(Refused<V>),
}

/// Come to the broker: meet somebody, be turned away, or take a place and be
/// woken there.
#[inline]
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
    let signals = &driver.shell().0;
    // Most doors are not guarded.
    let _admitted = if signals.door().is_guarded() {
        match signals.admit(R::SIDE) {
            Ok(admitted) => Some(admitted),
            Err(refusal) => return Coming::Answered(Err(Refused { refusal, value })),
        }
    } else {
        None
    };
    let decide = |step: &mut Step<'_, _>| {
        let terms = terms.since(step.sent, wait);
        let (machine, now) = (&mut *step.machine, step.now);
        let came = match R::find(machine, &terms, now, step.effects) {
            Some(found) => Came::Found(value, found),
            None if machine.may_wait(&terms) => {
                let meeting = Arc::new(Meeting::new(waker.cloned()));
                let reply = Reply {
                    value,
                    meeting: Arc::clone(&meeting),
                };
                match R::queue(machine, &terms, reply, now, step.effects) {
                    Ok(ticket) => Came::Waits(ticket, meeting),
                    Err(refused) => Came::Refused(refused),
                }
            }
            None => {
                let (_, refusal) = machine.turn_away(R::SIDE, &terms, now, step.effects);
                Came::Refused(Refused { refusal, value })
            }
        };
        if signals.door().is_guarded() {
            signals.door().set_len(machine.len(R::SIDE));
        }
        came
    };
    driver.step_and(decide, |came, after| match came {
        Came::Found(value, found) => Coming::Answered(Ok(introduce(value, found, after))),
        Came::Waits(ticket, meeting) => Coming::Waiting(ticket, meeting),
        Came::Refused(refused) => Coming::Answered(Err(refused)),
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
        let state = match come::<R, A, O>(&driver, value, terms, true, None) {
            Coming::Answered(answer) => State::Answered(Box::new(answer)),
            Coming::Waiting(ticket, meeting) => State::Waiting { ticket, meeting },
        };
        Self { driver, state }
    }

    pub(super) fn ticket(&self) -> Option<Ticket> {
        match &self.state {
            State::Waiting { ticket, .. } => Some(*ticket),
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
    /// Come at the first poll.
    #[inline]
    fn begin_polled(&mut self, context: &Context<'_>) -> Poll<Answer<R::Brings, R::Gets>> {
        let terms = match &mut self.state {
            State::Fresh { terms, .. } => terms.take(),
            _ => None,
        };
        let State::Fresh { value, .. } = mem::replace(&mut self.state, State::Over) else {
            unreachable!("it was just seen");
        };
        let terms = terms.as_deref().unwrap_or(&Terms::USUAL);
        let waker = Some(context.waker());
        let answer = match come::<R, A, O>(&self.driver, value, terms, true, waker) {
            Coming::Answered(answer) => answer,
            Coming::Waiting(ticket, meeting) => {
                streak::end();
                self.state = State::Waiting { ticket, meeting };
                return Poll::Pending;
            }
        };
        if streak::is_enough(context) {
            self.state = State::Answered(Box::new(answer));
            return Poll::Pending;
        }
        Poll::Ready(answer)
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
        // Each is looked at before it is moved, for then little is.
        if let State::Fresh { .. } = &this.state {
            return this.begin_polled(context);
        }
        if let State::Waiting { meeting, .. } = &this.state {
            let told = ready!(meeting.poll(context));
            let State::Waiting { ticket, meeting } = mem::replace(&mut this.state, State::Over)
            else {
                unreachable!("it was just seen");
            };
            return Poll::Ready(receive(told, ticket, meeting));
        }
        Poll::Ready(this.answered().expect("nobody polls after the answer"))
    }
}

// Nothing in a wait is pinned: the meeting has an address of its own.
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
        let State::Waiting { ticket, meeting } = &self.state else {
            return;
        };
        let _left = meeting.leave();
        let ticket = *ticket;
        let gone = self
            .driver
            .step(|step| step.machine.cancel(ticket, step.now, step.effects));
        // A match may have come first: then its peer learns that we left.
        if gone.is_none() {
            meeting.abandon();
        }
    }
}

/// What a waiter is told becomes its answer; the meeting becomes the bond.
fn receive<V: Send + 'static, W: Send + 'static>(
    told: Told<V, W>,
    ticket: Ticket,
    meeting: Arc<Meeting<V, W>>,
) -> Answer<V, W> {
    match told {
        Told::Met(met) => Ok(Match {
            value: met.value,
            lead: met.lead,
            waited: Duration::from_nanos(met.waited_nanos),
            ticket,
            peer: Peer::new(meeting, Seat::Waiter),
        }),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_and_its_memory_are_small() {
        assert_eq!(size_of::<State<u64, u64>>(), 24);
        // The two counts of an `Arc`, and what an allocator adds.
        assert!(size_of::<Meeting<u64, u64>>() + 16 + 8 <= 64);
    }
}
