//! Matches clients that ask with workers that offer themselves.
//!
//! The handle of the core's broker. A wait is a future whose drop cancels it;
//! a match hands each party the other as a [`Peer`].

mod match_cell;
mod role;
mod wait;

use std::fmt;
use std::sync::Arc;

use rideau_core::broker::{self as core, Gone, Options, Stats};
use rideau_core::{OptionError, Refusal, Side, Tag, Ticket};

use crate::after::After;
use crate::ask_options::AskOptions;
use crate::clock::Clock;
use crate::driver::{Driver, Shell};
use crate::meter_outputs::{MeterOutputs, Rank};
use crate::now::Now;
use crate::peer::Match;
use crate::regulator::Regulator;
use crate::seed::seed;
use crate::thread::block_on;
use role::{AskRole, Effect, Machine, OfferRole};
use wait::{Wait, come};

/// A place where asks meet offers. `A` is what an ask brings, `O` what an offer
/// brings; each party receives the other's.
///
/// Clones are the same broker. When the last is gone the broker closes, and
/// each ask and offer that still waits is told so.
pub struct Broker<A: Send + 'static, O: Send + 'static> {
    driver: Arc<BrokerDriver<A, O>>,
    _owner: Arc<Owner<A, O>>,
}

/// Closes the broker with its last handle.
struct Owner<A: Send + 'static, O: Send + 'static>(Arc<BrokerDriver<A, O>>);

impl<A: Send + 'static, O: Send + 'static> Drop for Owner<A, O> {
    fn drop(&mut self) {
        self.0
            .step(|step| step.machine.close(step.now, step.effects));
    }
}

/// A refusal, with what the refused ask or offer had brought.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Refused<V> {
    /// Why, after how long, how many wait, and when to ask again.
    pub refusal: Refusal,
    /// The value that the refused ask or offer had brought.
    pub value: V,
}

/// An ask under way: the ticket now, the answer later. Dropping it cancels.
#[must_use = "dropping it cancels the ask"]
pub struct Asking<A: Send + 'static, O: Send + 'static>(OwnedWait<AskRole, A, O>);

/// An offer under way: the ticket now, the answer later. Dropping it cancels.
#[must_use = "dropping it cancels the offer"]
pub struct Offering<A: Send + 'static, O: Send + 'static>(OwnedWait<OfferRole, A, O>);

type BrokerDriver<A, O> = Driver<Machine<A, O>, BrokerShell>;
type OwnedWait<R, A, O> = Wait<Arc<BrokerDriver<A, O>>, R, A, O>;
type Answer<V, W> = Result<Match<W>, Refused<V>>;

impl<A: Send + 'static, O: Send + 'static> Broker<A, O> {
    /// Open a broker. It can be made and used with or without a runtime.
    ///
    /// # Errors
    ///
    /// If an option breaks a rule.
    pub fn new(options: Options) -> Result<Self, OptionError> {
        Self::new_by(options, &Clock::system())
    }

    /// As [`new`](Self::new), by a given clock.
    ///
    /// # Errors
    ///
    /// If an option breaks a rule.
    pub fn new_by(options: Options, clock: &Clock) -> Result<Self, OptionError> {
        Self::open(None, options, clock)
    }

    /// As [`new`](Self::new), with a name by which the log tells its alarms from those
    /// of others.
    ///
    /// # Errors
    ///
    /// If an option breaks a rule.
    pub fn named(name: &str, options: Options) -> Result<Self, OptionError> {
        Self::open(Some(name), options, &Clock::system())
    }

    fn open(name: Option<&str>, options: Options, clock: &Clock) -> Result<Self, OptionError> {
        let mut effects = Vec::new();
        let machine = core::Broker::new(options, clock.now(), &mut effects)?;
        let shell = BrokerShell(MeterOutputs::new("broker", name, seed()));
        let driver = Driver::start(machine, effects, shell, clock.clone());
        let _owner = Arc::new(Owner(Arc::clone(&driver)));
        Ok(Self { driver, _owner })
    }

    /// Ask for a worker, and wait for one.
    ///
    /// # Errors
    ///
    /// A refusal, if the ask was turned away or shed.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives the place up. If a worker was just assigned,
    /// it learns that this party went away.
    pub fn ask(&self, value: A) -> impl Future<Output = Answer<A, O>> + Send + '_ {
        Wait::<_, AskRole, A, O>::new(&*self.driver, value, None)
    }

    /// As [`ask`](Self::ask), on given terms.
    pub fn ask_on(
        &self,
        value: A,
        terms: AskOptions,
    ) -> impl Future<Output = Answer<A, O>> + Send + '_ {
        Wait::<_, AskRole, A, O>::new(&*self.driver, value, Some(terms))
    }

    /// Offer oneself, and wait for a client.
    ///
    /// # Errors
    ///
    /// A refusal, if the offer was turned away or shed.
    ///
    /// # Cancel safety
    ///
    /// As [`ask`](Self::ask).
    pub fn offer(&self, value: O) -> impl Future<Output = Answer<O, A>> + Send + '_ {
        Wait::<_, OfferRole, A, O>::new(&*self.driver, value, None)
    }

    /// As [`offer`](Self::offer), on given terms.
    pub fn offer_on(
        &self,
        value: O,
        terms: AskOptions,
    ) -> impl Future<Output = Answer<O, A>> + Send + '_ {
        Wait::<_, OfferRole, A, O>::new(&*self.driver, value, Some(terms))
    }

    /// Ask for a worker that waits already; never wait.
    ///
    /// # Errors
    ///
    /// A refusal, if no offer waits.
    pub fn try_ask(&self, value: A) -> Answer<A, O> {
        come::<AskRole, A, O>(&self.driver, value, &AskOptions::USUAL, false, None).at_once()
    }

    /// Offer oneself to a client that waits already; never wait.
    ///
    /// # Errors
    ///
    /// A refusal, if no ask waits.
    pub fn try_offer(&self, value: O) -> Answer<O, A> {
        come::<OfferRole, A, O>(&self.driver, value, &AskOptions::USUAL, false, None).at_once()
    }

    /// Ask on a plain thread, which sleeps until there is an answer.
    ///
    /// # Errors
    ///
    /// As [`ask`](Self::ask).
    pub fn ask_blocking(&self, value: A, terms: AskOptions) -> Answer<A, O> {
        block_on(self.ask_on(value, terms))
    }

    /// Offer oneself on a plain thread, which sleeps until there is an answer.
    ///
    /// # Errors
    ///
    /// As [`offer`](Self::offer).
    pub fn offer_blocking(&self, value: O, terms: AskOptions) -> Answer<O, A> {
        block_on(self.offer_on(value, terms))
    }

    /// Take a place among the asks; the answer can be awaited later.
    pub fn begin_ask(&self, value: A, terms: AskOptions) -> Asking<A, O> {
        Asking(Wait::begin(Arc::clone(&self.driver), value, &terms))
    }

    /// Take a place among the offers; the answer can be awaited later.
    pub fn begin_offer(&self, value: O, terms: AskOptions) -> Offering<A, O> {
        Offering(Wait::begin(Arc::clone(&self.driver), value, &terms))
    }

    /// Ask: the answer if there is one at once, else the wait for it.
    pub fn ask_now(&self, value: A, terms: AskOptions) -> Now<Answer<A, O>, Asking<A, O>> {
        let mut asking = self.begin_ask(value, terms);
        match asking.0.answered() {
            Some(answer) => Now::Answered(answer),
            None => Now::Waiting(asking),
        }
    }

    /// Offer: the answer if there is one at once, else the wait for it.
    pub fn offer_now(&self, value: O, terms: AskOptions) -> Now<Answer<O, A>, Offering<A, O>> {
        let mut offering = self.begin_offer(value, terms);
        match offering.0.answered() {
            Some(answer) => Now::Answered(answer),
            None => Now::Waiting(offering),
        }
    }

    /// Refuse, as cancelled, all that wait with this tag. Says how many.
    pub fn cancel_tag(&self, tag: Tag) -> usize {
        self.driver.step(|step| {
            let gone = step.machine.cancel_tag(tag, step.now, step.effects);
            let count = gone.len();
            gone.into_iter()
                .for_each(|gone| role::refuse(gone, step.after));
            count
        })
    }

    /// Cancel one that waits, by its ticket. False if it does not wait.
    pub fn cancel(&self, ticket: Ticket) -> bool {
        self.driver.step(|step| {
            let gone = step.machine.cancel(ticket, step.now, step.effects);
            gone.map(|gone| role::refuse(gone, step.after)).is_some()
        })
    }

    /// How many wait on a side.
    pub fn len(&self, side: Side) -> usize {
        self.driver.look(|machine, _| machine.len(side))
    }

    /// No ask and no offer waits.
    pub fn is_empty(&self) -> bool {
        self.driver.look(|machine, _| machine.is_empty())
    }

    /// The broker's numbers.
    pub fn stats(&self) -> Stats {
        let mut stats = self.driver.look(core::Broker::stats);
        let admission = self.driver.shell().0.admission();
        admission.count_refused(Side::Ask, &mut stats.asks);
        admission.count_refused(Side::Offer, &mut stats.offers);
        stats
    }

    /// How likely the protector refuses an ask now, from 0 to 1; published
    /// by a `pie` meter.
    pub fn refused_chance(&self, side: Side) -> f64 {
        self.driver.shell().0.admission().chance(side)
    }

    /// Why the last asks were shed and what would help, in plain words.
    pub fn explain(&self) -> String {
        let explained = self.driver.look(|machine, _| machine.explain());
        self.driver.shell().0.explain(explained)
    }

    /// Alarms that the meters have raised.
    pub fn alarms(&self) -> Vec<String> {
        self.driver.shell().0.alarms()
    }

    /// The waits to expect here, as a balancer compares them; published by a
    /// `better` meter.
    pub fn rank(&self) -> Arc<Rank> {
        Arc::clone(self.driver.shell().0.rank())
    }

    /// From now on the update meter's entries for `name` go to `regulator`, as
    /// long as it lives. The regulator that had that name before gets no more.
    pub fn feed(&self, name: &str, regulator: &Regulator) {
        self.driver.shell().0.connect(name, regulator.fed());
    }

    /// How the broker is set up.
    pub fn options(&self) -> Options {
        self.driver.look(|machine, _| machine.options())
    }

    /// Change everything at once; all waiters keep their places, but those for
    /// which a lower `max` leaves no room.
    ///
    /// # Errors
    ///
    /// If an option breaks a rule; then nothing has changed.
    pub fn reconfigure(&self, options: Options) -> Result<(), OptionError> {
        self.driver
            .step(|step| step.machine.reconfigure(options, step.now, step.effects))
    }

    /// Answer every ask and offer that waits, and refuse each that comes from
    /// now on.
    pub fn close(&self) {
        self.driver
            .step(|step| step.machine.close(step.now, step.effects));
    }
}

impl<A: Send + 'static, O: Send + 'static> Clone for Broker<A, O> {
    fn clone(&self) -> Self {
        Self {
            driver: Arc::clone(&self.driver),
            _owner: Arc::clone(&self._owner),
        }
    }
}

impl<A: Send + 'static, O: Send + 'static> fmt::Debug for Broker<A, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Broker")
            .field("asks", &self.len(Side::Ask))
            .field("offers", &self.len(Side::Offer))
            .finish_non_exhaustive()
    }
}

impl<A: Send + 'static, O: Send + 'static> Asking<A, O> {
    /// The ticket, to cancel by; none if it was refused at once.
    pub fn ticket(&self) -> Option<Ticket> {
        self.0.ticket()
    }

    /// Wait for the answer on a plain thread.
    ///
    /// # Errors
    ///
    /// As [`Broker::ask`].
    pub fn wait(self) -> Answer<A, O> {
        block_on(self)
    }
}

impl<A: Send + 'static, O: Send + 'static> fmt::Debug for Asking<A, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Asking").field(&self.ticket()).finish()
    }
}

impl<A: Send + 'static, O: Send + 'static> Offering<A, O> {
    /// The ticket, to cancel by; none if it was refused at once.
    pub fn ticket(&self) -> Option<Ticket> {
        self.0.ticket()
    }

    /// Wait for the answer on a plain thread.
    ///
    /// # Errors
    ///
    /// As [`Broker::offer`].
    pub fn wait(self) -> Answer<O, A> {
        block_on(self)
    }
}

impl<A: Send + 'static, O: Send + 'static> fmt::Debug for Offering<A, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Offering").field(&self.ticket()).finish()
    }
}

impl<V> fmt::Debug for Refused<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.refusal.fmt(f)
    }
}

impl<V> fmt::Display for Refused<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.refusal.fmt(f)
    }
}

impl<V> std::error::Error for Refused<V> {}

/// Hands the broker's effects on.
pub(crate) struct BrokerShell(MeterOutputs);

impl<A: Send + 'static, O: Send + 'static> Shell<Machine<A, O>> for BrokerShell {
    fn perform(&self, effect: Effect<A, O>, after: &mut After) {
        match effect {
            Effect::ShedAsk { ask, refusal, .. } => ask.refuse(refusal, after),
            Effect::ShedOffer { offer, refusal, .. } => offer.refuse(refusal, after),
            Effect::Forget(Gone::Ask(ask)) => ask.forget(after),
            Effect::Forget(Gone::Offer(offer)) => offer.forget(after),
            Effect::Meter(said) => self.0.say(said, after),
            Effect::Match { .. } => unreachable!("a party that comes takes its own match"),
        }
    }
}
