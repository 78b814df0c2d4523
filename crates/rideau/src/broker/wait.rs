//! A wait at a broker: a future whose drop gives the place up.

use std::mem;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use rideau_core::Ticket;

use super::match_cell::{MatchCell, Told};
use super::role::{AskReply, Machine, Role, introduce};
use super::{Answer, Asking, BrokerDriver, Offering, Refused};
use crate::ask_options::AskOptions;
use crate::coop;
use crate::meter_outputs::MeterOutputs;
use crate::peer::{Match, Peer};
use crate::reply_slot::MatchSide;

/// An ask or an offer that waits, or will.
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
    /// A future does nothing until it is polled. None once it has been.
    Fresh(Option<V>),
    /// The same, on terms of its own.
    FreshOn(Option<Box<(V, AskOptions)>>),
    /// It has a place in the queue.
    Waiting {
        ticket: Ticket,
        /// None once it has been taken out with its answer.
        match_cell: Option<Arc<MatchCell<V, W>>>,
    },
    /// The answer has not been taken yet.
    Answered(Box<Answer<V, W>>),
    Over,
}

impl<V, W> State<V, W> {
    fn waiting(ticket: Ticket, match_cell: Arc<MatchCell<V, W>>) -> Self {
        let match_cell = Some(match_cell);
        Self::Waiting { ticket, match_cell }
    }
}

/// The result of an ask or an offer at its arrival.
pub(crate) enum Coming<V, W> {
    Met(Match<W>),
    Refused(Refused<V>),
    Waiting(Ticket, Arc<MatchCell<V, W>>),
}

impl<V, W> Coming<V, W> {
    /// The answer to an ask or an offer that did not want to wait.
    pub(super) fn at_once(self) -> Answer<V, W> {
        match self {
            Self::Met(met) => Ok(met),
            Self::Refused(refused) => Err(refused),
            Self::Waiting(..) => unreachable!("an ask that does not wait is answered at once"),
        }
    }
}

/// Come to the broker: meet a waiter, be turned away, or take a place and be
/// woken there.
#[inline]
pub(crate) fn come<R, A, O>(
    driver: &BrokerDriver<A, O>,
    value: R::Brings,
    terms: &AskOptions,
    wait: bool,
    waker: Option<&Waker>,
) -> Coming<R::Brings, R::Gets>
where
    R: Role<A, O>,
    A: Send + 'static,
    O: Send + 'static,
{
    let signals = &driver.shell().0;
    // Most admissions are not guarded.
    let _admitted = if signals.admission().is_guarded() {
        match signals.admit(R::SIDE) {
            Ok(admitted) => Some(admitted),
            Err(refusal) => return Coming::Refused(Refused { refusal, value }),
        }
    } else {
        None
    };
    let mut section = driver.section();
    let step = section.step();
    let terms = terms.since(step.sent, wait);
    let (machine, now) = (step.machine, step.now);
    if let Some(found) = R::find(machine, &terms, now, step.effects) {
        publish_len::<R, A, O>(signals, machine);
        // The machine has let go of the waiter it found, which is told when the
        // lock is released: one memory less to bring along while others wait
        // for it.
        let mut after = section.leave();
        let met = introduce(value, found, &mut after);
        after.run();
        return Coming::Met(met);
    }
    if !machine.may_wait(&terms) {
        let (_, refusal) = machine.turn_away(R::SIDE, &terms, now, step.effects);
        publish_len::<R, A, O>(signals, machine);
        section.leave().run();
        return Coming::Refused(Refused { refusal, value });
    }
    let match_cell = Arc::new(MatchCell::new(waker.cloned()));
    let reply = AskReply {
        value,
        match_cell: Arc::clone(&match_cell),
    };
    let queued = R::queue(machine, &terms, reply, now, step.effects);
    publish_len::<R, A, O>(signals, machine);
    section.leave().run();
    match queued {
        Ok(ticket) => Coming::Waiting(ticket, match_cell),
        Err(refused) => Coming::Refused(refused),
    }
}

/// Tell a guarded admission how many wait behind it.
#[inline]
fn publish_len<R: Role<A, O>, A, O>(signals: &MeterOutputs, machine: &Machine<A, O>) {
    if signals.admission().is_guarded() {
        signals.admission().set_len(machine.len(R::SIDE));
    }
}

impl<D, R, A, O> Wait<D, R, A, O>
where
    D: Deref<Target = BrokerDriver<A, O>>,
    R: Role<A, O>,
    A: Send + 'static,
    O: Send + 'static,
{
    /// A wait that begins when it is polled; without terms, on the usual ones.
    pub(super) fn new(driver: D, value: R::Brings, terms: Option<AskOptions>) -> Self {
        let state = match terms {
            None => State::Fresh(Some(value)),
            Some(terms) => State::FreshOn(Some(Box::new((value, terms)))),
        };
        Self { driver, state }
    }

    /// A wait that begins now.
    pub(super) fn begin(driver: D, value: R::Brings, terms: &AskOptions) -> Self {
        let state = match come::<R, A, O>(&driver, value, terms, true, None) {
            Coming::Met(met) => State::Answered(Box::new(Ok(met))),
            Coming::Refused(refused) => State::Answered(Box::new(Err(refused))),
            Coming::Waiting(ticket, match_cell) => State::waiting(ticket, match_cell),
        };
        Self { driver, state }
    }

    pub(super) fn ticket(&self) -> Option<Ticket> {
        match &self.state {
            State::Waiting { ticket, .. } => Some(*ticket),
            State::Answered(answer) => answer.as_ref().as_ref().ok().map(|met| met.ticket),
            State::Fresh(_) | State::FreshOn(_) | State::Over => None,
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
    fn begin_polled(
        &mut self,
        value: R::Brings,
        terms: &AskOptions,
        context: &Context<'_>,
    ) -> Poll<Answer<R::Brings, R::Gets>> {
        let waker = Some(context.waker());
        match come::<R, A, O>(&self.driver, value, terms, true, waker) {
            Coming::Waiting(ticket, match_cell) => {
                coop::end();
                self.state = State::waiting(ticket, match_cell);
                Poll::Pending
            }
            Coming::Met(met) if coop::is_enough(context) => {
                self.state = State::Answered(Box::new(Ok(met)));
                Poll::Pending
            }
            Coming::Met(met) => Poll::Ready(Ok(met)),
            Coming::Refused(refused) => Poll::Ready(Err(refused)),
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
        // Each part is taken out alone: a state that was just written is slow to
        // move as a whole.
        if let State::Fresh(value) = &mut this.state {
            let value = value.take().expect("a wait is not polled after its answer");
            return this.begin_polled(value, &AskOptions::USUAL, context);
        }
        if let State::FreshOn(fresh) = &mut this.state {
            let fresh = fresh.take().expect("a wait is not polled after its answer");
            return this.begin_polled(fresh.0, &fresh.1, context);
        }
        if let State::Waiting { ticket, match_cell } = &mut this.state {
            let ticket = *ticket;
            let known = match_cell
                .as_ref()
                .expect("a wait is not polled after its answer");
            // Its peer may have let go already, and then the waiter alone is
            // left.
            if Arc::strong_count(known) == 1 {
                let match_cell = match_cell.take().expect("it was just seen");
                return Poll::Ready(receive_last(ticket, match_cell));
            }
            let told = ready!(known.poll(context));
            let match_cell = match_cell.take().expect("it was just seen");
            return Poll::Ready(receive(told, ticket, match_cell));
        }
        Poll::Ready(
            this.answered()
                .expect("a wait is not polled after its answer"),
        )
    }
}

// Nothing in a wait is pinned: the match has an address of its own.
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
        let State::Waiting {
            ticket,
            match_cell: Some(match_cell),
        } = &self.state
        else {
            return;
        };
        let _left = match_cell.leave();
        let ticket = *ticket;
        let gone = self
            .driver
            .step(|step| step.machine.cancel(ticket, step.now, step.effects));
        // A match may have come first: then its peer learns that we left.
        if gone.is_none() {
            match_cell.abandon();
        }
    }
}

/// Turns the message for a waiter into its answer, and the cell into the bond of the match.
fn receive<V: Send + 'static, W: Send + 'static>(
    told: Told<V, W>,
    ticket: Ticket,
    match_cell: Arc<MatchCell<V, W>>,
) -> Answer<V, W> {
    match told {
        Told::Met(met) => Ok(met.into_match(ticket, Peer::new(match_cell, MatchSide::Waiter))),
        Told::Refused(refused) => Err(*refused),
    }
}

/// The same for a waiter that alone is left of the two that knew the match.
#[inline(always)]
fn receive_last<V: Send + 'static, W: Send + 'static>(
    ticket: Ticket,
    match_cell: Arc<MatchCell<V, W>>,
) -> Answer<V, W> {
    let match_cell = Arc::into_inner(match_cell).expect("the other party has let go");
    match_cell.into_answer(ticket)
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
        assert!(size_of::<MatchCell<u64, u64>>() + 16 + 8 <= 64);
    }
}
