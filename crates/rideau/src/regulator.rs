//! Grants leases while its valve allows it; other asks wait.
//!
//! The handle of the core's regulator. A wait is a future whose drop cancels
//! it; a grant is a [`Lease`] whose drop releases it.

mod lease;
mod wait;

use std::fmt;
use std::sync::{Arc, Weak};

use rideau_core::regulator::{self as core, Options, Stats};
use rideau_core::{Lead, OptionError, Refusal, Side, Tag, Ticket};

use crate::after::After;
use crate::ask_options::AskOptions;
use crate::clock::Clock;
use crate::driver::{Driver, Shell};
use crate::meter_outputs::{LeadSink, MeterOutputs, Rank};
use crate::now::Now;
use crate::seed::seed;
use crate::thread::block_on;
pub use lease::{Lease, Stopped};
use wait::{RegulatorReply, Wait};

/// A place where asks get a lease, in turn, as the valve opens.
///
/// Clones are the same regulator. It works on until the last clone, the last
/// wait and the last lease are gone.
#[derive(Clone)]
pub struct Regulator {
    driver: Arc<RegulatorDriver>,
}

/// An ask under way: the ticket now, the answer later. Dropping it cancels, or
/// ends the lease if it was granted just then.
#[must_use = "dropping an ask cancels it"]
pub struct Leasing(Wait<Arc<RegulatorDriver>>);

pub(crate) type RegulatorDriver = Driver<Machine, MeterOutputs>;
pub(crate) type Machine = core::Regulator<RegulatorReply>;
type Effect = core::Effect<RegulatorReply>;
type Answer = Result<Lease, Refusal>;

impl Regulator {
    /// Open a regulator. It can be made and used with or without a runtime.
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
        let machine = core::Regulator::new(options, clock.now(), &mut effects)?;
        let signals = MeterOutputs::new("regulator", name, seed());
        let driver = Driver::start(machine, effects, signals, clock.clone());
        Ok(Self { driver })
    }

    /// Ask for a lease, and wait for it.
    ///
    /// # Errors
    ///
    /// A refusal, if the ask was turned away or shed.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives the place up. If the lease was just granted,
    /// it ends.
    pub fn ask(&self) -> impl Future<Output = Result<Lease, Refusal>> + Send + '_ {
        self.ask_on(AskOptions::default())
    }

    /// As [`ask`](Self::ask), on given terms.
    pub fn ask_on(
        &self,
        terms: AskOptions,
    ) -> impl Future<Output = Result<Lease, Refusal>> + Send + '_ {
        Wait::new(&self.driver, terms)
    }

    /// Ask for a lease that can be had at once; never wait.
    ///
    /// # Errors
    ///
    /// A refusal, if the valve is closed.
    pub fn try_ask(&self) -> Result<Lease, Refusal> {
        wait::try_ask(&self.driver)
    }

    /// Ask on a plain thread, which sleeps until there is an answer.
    ///
    /// # Errors
    ///
    /// As [`ask`](Self::ask).
    pub fn ask_blocking(&self, terms: AskOptions) -> Result<Lease, Refusal> {
        block_on(self.ask_on(terms))
    }

    /// Take a place among the asks; the answer can be awaited later.
    pub fn begin_ask(&self, terms: AskOptions) -> Leasing {
        Leasing(Wait::begin(Arc::clone(&self.driver), &terms))
    }

    /// Ask: the answer if there is one at once, else the wait for it.
    pub fn ask_now(&self, terms: AskOptions) -> Now<Result<Lease, Refusal>, Leasing> {
        let mut leasing = self.begin_ask(terms);
        match leasing.0.answered() {
            Some(answer) => Now::Answered(answer),
            None => Now::Waiting(leasing),
        }
    }

    /// A lease that another regulator has granted goes on here, also if there are more then
    /// than the valve allows. The valve's law begins anew, so this is for a regulator that
    /// takes over from another before it is asked for anything.
    pub fn adopt(&self) -> Lease {
        wait::adopt(&self.driver)
    }

    /// Refuse, as cancelled, all that wait with this tag. Says how many.
    pub fn cancel_tag(&self, tag: Tag) -> usize {
        self.driver.step(|step| {
            let gone = step.machine.cancel_tag(tag, step.now, step.effects);
            let count = gone.len();
            for (reply, refusal) in gone {
                reply.refuse(refusal, step.after);
            }
            count
        })
    }

    /// Cancel one that waits, by its ticket. False if it does not wait: a
    /// lease is not touched.
    pub fn cancel(&self, ticket: Ticket) -> bool {
        self.driver.step(|step| {
            let gone = step.machine.cancel(ticket, step.now, step.effects);
            gone.map(|(reply, refusal)| reply.refuse(refusal, step.after))
                .is_some()
        })
    }

    /// Tell the valve the lead of the callers that want what the leases are for.
    pub fn update(&self, lead: Lead) {
        self.driver.feed(lead);
    }

    /// From now on the update meter's entries for `name` go to `regulator`, as
    /// long as it lives. A regulator that had that name before gets no more.
    pub fn feed(&self, name: &str, regulator: &Self) {
        self.driver.shell().connect(name, regulator.fed());
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.driver.look(|machine, _| machine.len())
    }

    /// No ask waits.
    pub fn is_empty(&self) -> bool {
        self.driver.look(|machine, _| machine.is_empty())
    }

    /// How many leases there are.
    pub fn size(&self) -> usize {
        self.driver.look(|machine, _| machine.size())
    }

    /// The regulator's numbers.
    pub fn stats(&self) -> Stats {
        let mut stats = self.driver.look(core::Regulator::stats);
        let admission = self.driver.shell().admission();
        admission.count_refused(Side::Ask, &mut stats.asks);
        stats
    }

    /// Why asks wait, why the last were shed and what would help, in plain
    /// words.
    pub fn explain(&self) -> String {
        let explained = self.driver.look(core::Regulator::explain);
        self.driver.shell().explain(explained)
    }

    /// Alarms that the meters have raised.
    pub fn alarms(&self) -> Vec<String> {
        self.driver.shell().alarms()
    }

    /// The waits to expect here, as a balancer compares them; published by a
    /// `better` meter.
    pub fn rank(&self) -> Arc<Rank> {
        Arc::clone(self.driver.shell().rank())
    }

    /// How the regulator is set up.
    pub fn options(&self) -> Options {
        self.driver.look(|machine, _| machine.options())
    }

    /// Change everything at once; all asks that wait keep their places and all
    /// holders their leases.
    ///
    /// # Errors
    ///
    /// If an option breaks a rule; then nothing has changed.
    pub fn reconfigure(&self, options: Options) -> Result<(), OptionError> {
        self.driver
            .step(|step| step.machine.reconfigure(options, step.now, step.effects))
    }

    /// Answer every ask that waits, and from now on refuse every ask that comes.
    /// Leases stay until they end; none is renewed.
    pub fn close(&self) {
        self.driver
            .step(|step| step.machine.close(step.now, step.effects));
    }

    /// Where leads for this regulator go; this does not keep it alive.
    pub(crate) fn fed(&self) -> Weak<dyn LeadSink> {
        Arc::downgrade(&self.driver) as Weak<dyn LeadSink>
    }
}

impl fmt::Debug for Regulator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Regulator")
            .field("len", &self.len())
            .field("size", &self.size())
            .finish_non_exhaustive()
    }
}

impl Leasing {
    /// The ticket of the wait, and then of the lease; none once the ask has
    /// been refused or the answer taken.
    pub fn ticket(&self) -> Option<Ticket> {
        self.0.ticket()
    }
}

impl fmt::Debug for Leasing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leasing")
            .field("ticket", &self.ticket())
            .finish_non_exhaustive()
    }
}

impl Shell<Machine> for MeterOutputs {
    fn perform(&self, effect: Effect, after: &mut After) {
        match effect {
            Effect::Grant {
                reply,
                lead,
                waited,
                ..
            } => reply.grant(lead, waited, after),
            Effect::Shed { reply, refusal, .. } => reply.refuse(refusal, after),
            // An ask that leaves holds its cell until its own step, which comes
            // after this one: nothing of the asker's is dropped under the lock.
            Effect::Forget(reply) => drop(reply),
            Effect::Meter(said) => self.say(said, after),
        }
    }
}

impl LeadSink for RegulatorDriver {
    fn feed(&self, lead: Lead) {
        self.step(|step| {
            step.machine.update(lead, step.sent, step.now, step.effects);
        });
    }
}
