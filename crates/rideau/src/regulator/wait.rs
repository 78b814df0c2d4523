//! A wait for a lease: a future whose drop gives the place or the lease up.

use std::borrow::Borrow;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rideau_core::{Lead, Refusal, Side, Ticket};

use super::{Answer, Effect, Lease, Leasing, RegulatorDriver};
use crate::after::After;
use crate::ask_options::AskOptions;
use crate::coop;
use crate::reply_slot::ReplySlot;

/// Where an ask waits, if it does: one that just came has no cell yet and takes
/// its answer itself.
pub(crate) struct RegulatorReply(Option<Arc<ReplySlot<Told>>>);

/// The answer of a waiter.
type Told = Result<Granted, Refusal>;

/// A grant as a waiter is told of it.
struct Granted {
    lead: Lead,
    waited: Duration,
}

/// An ask waits, or will. `D` is a driver, owned or borrowed.
pub(super) struct Wait<D: Borrow<Arc<RegulatorDriver>>> {
    driver: D,
    state: State,
}

enum State {
    /// A future does nothing until it is polled.
    Fresh(AskOptions),
    Waiting(Place),
    /// The answer has not been taken yet.
    Answered(Answer),
    Over,
}

/// A place in the queue.
struct Place {
    ticket: Ticket,
    cell: Arc<ReplySlot<Told>>,
}

impl<D: Borrow<Arc<RegulatorDriver>>> Wait<D> {
    /// A wait that begins when it is polled.
    pub(super) fn new(driver: D, terms: AskOptions) -> Self {
        let state = State::Fresh(terms);
        Self { driver, state }
    }

    /// A wait that begins now.
    pub(super) fn begin(driver: D, terms: &AskOptions) -> Self {
        let state = come(driver.borrow(), terms, true);
        Self { driver, state }
    }

    pub(super) fn ticket(&self) -> Option<Ticket> {
        match &self.state {
            State::Waiting(place) => Some(place.ticket),
            State::Answered(answer) => answer.as_ref().ok().map(Lease::ticket),
            State::Fresh(_) | State::Over => None,
        }
    }

    /// The answer, if it was there at the beginning.
    pub(super) fn answered(&mut self) -> Option<Answer> {
        match mem::replace(&mut self.state, State::Over) {
            State::Answered(answer) => Some(answer),
            other => {
                self.state = other;
                None
            }
        }
    }
}

impl<D: Borrow<Arc<RegulatorDriver>>> Future for Wait<D> {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer> {
        let this = &mut *self;
        if let State::Fresh(terms) = &this.state {
            this.state = come(this.driver.borrow(), terms, true);
            if matches!(this.state, State::Answered(_)) && coop::is_enough(context) {
                return Poll::Pending;
            }
        }
        if let State::Waiting(place) = &this.state {
            let told = ready!(place.cell.poll(context));
            let (driver, ticket) = (this.driver.borrow(), place.ticket);
            let answer = told.map(|granted| granted.into_lease(driver, ticket));
            this.state = State::Over;
            return Poll::Ready(answer);
        }
        Poll::Ready(
            this.answered()
                .expect("a wait is not polled after its answer"),
        )
    }
}

// Nothing in a wait is pinned: the cell has an address of its own.
impl<D: Borrow<Arc<RegulatorDriver>>> Unpin for Wait<D> {}

impl<D: Borrow<Arc<RegulatorDriver>>> Drop for Wait<D> {
    fn drop(&mut self) {
        let State::Waiting(Place { ticket, cell }) = &self.state else {
            return;
        };
        cell.leave();
        // A grant may have come first: then the lease ends with the wait.
        self.driver.borrow().step(|step| {
            step.machine
                .end(*ticket, true, step.sent, step.now, step.effects)
        });
    }
}

impl Future for Leasing {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer> {
        Pin::new(&mut self.0).poll(context)
    }
}

impl RegulatorReply {
    /// Say yes to an ask that waits.
    pub(super) fn grant(self, lead: Lead, waited: Duration, after: &mut After) {
        self.tell(Ok(Granted { lead, waited }), after);
    }

    /// Say no to an ask that waits.
    pub(super) fn refuse(self, refusal: Refusal, after: &mut After) {
        self.tell(Err(refusal), after);
    }

    fn tell(self, told: Told, after: &mut After) {
        let cell = self.0.expect("an ask that comes takes its own answer");
        cell.answer(told, after);
    }
}

impl rideau_core::Reply for RegulatorReply {
    fn is_gone(&self) -> bool {
        self.0.as_ref().is_some_and(|cell| cell.is_gone())
    }
}

impl Granted {
    fn into_lease(self, driver: &Arc<RegulatorDriver>, ticket: Ticket) -> Lease {
        Lease::new(Arc::clone(driver), ticket, self.lead, self.waited)
    }
}

/// Ask, but never wait.
pub(super) fn try_ask(driver: &Arc<RegulatorDriver>) -> Answer {
    match come(driver, &AskOptions::default(), false) {
        State::Answered(answer) => answer,
        _ => unreachable!("an ask that does not wait is answered at once"),
    }
}

/// Take over a lease.
pub(super) fn adopt(driver: &Arc<RegulatorDriver>) -> Lease {
    let ticket = driver.step(|step| {
        let reply = RegulatorReply(None);
        step.machine.adopt(reply, step.now, step.effects)
    });
    let lead = Lead::from_nanos(0);
    Lease::new(Arc::clone(driver), ticket, lead, Duration::ZERO)
}

/// Come to the regulator: be answered at once, or take a place.
fn come(driver: &Arc<RegulatorDriver>, terms: &AskOptions, wait: bool) -> State {
    let _admitted = match driver.shell().admit(Side::Ask) {
        Ok(admitted) => admitted,
        Err(refusal) => return State::Answered(Err(refusal)),
    };
    let admission = driver.shell().admission();
    let (ticket, came) = driver.step(|step| {
        let terms = terms.since(step.sent, wait);
        let ticket = step
            .machine
            .ask(&terms, RegulatorReply(None), step.now, step.effects);
        if admission.is_guarded() {
            admission.set_len(step.machine.len());
        }
        if let Some(told) = take_own(step.effects) {
            return (ticket, Ok(told));
        }
        let cell = Arc::new(ReplySlot::new());
        let reply = step.machine.ask_mut(ticket);
        reply.expect("an ask without an answer waits").0 = Some(Arc::clone(&cell));
        (ticket, Err(cell))
    });
    // A lease takes the lock when it is dropped, so it is made outside of it.
    match came {
        Ok(told) => State::Answered(told.map(|granted| granted.into_lease(driver, ticket))),
        Err(cell) => State::Waiting(Place { ticket, cell }),
    }
}

/// The answer of an ask that just came, if there is one: no other has no cell.
fn take_own(effects: &mut Vec<Effect>) -> Option<Told> {
    let is_own = |effect: &Effect| match effect {
        Effect::Grant { reply, .. } | Effect::Shed { reply, .. } => reply.0.is_none(),
        Effect::Forget(_) | Effect::Meter(_) => false,
    };
    let at = effects.iter().position(is_own)?;
    Some(match effects.remove(at) {
        Effect::Grant { lead, waited, .. } => Ok(Granted { lead, waited }),
        Effect::Shed { refusal, .. } => Err(refusal),
        Effect::Forget(_) | Effect::Meter(_) => unreachable!("an answer is a grant or a refusal"),
    })
}
