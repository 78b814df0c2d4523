//! The machines that can be simulated, seen by the run as one thing.

mod broker;
mod pool;
mod queue;
mod regulator;

use rideau_core::pool::MemberId;
use rideau_core::queue::AskOptions;
use rideau_core::{Instant, Refusal, Reply, Ticket};

pub(crate) use broker::BrokerSite;
pub(crate) use pool::PoolSite;
pub(crate) use queue::QueueSite;
pub(crate) use regulator::RegulatorSite;

/// A place that serves.
pub(crate) trait Site {
    /// The client in this slot asks. Its ticket, if it may be waiting.
    fn ask(
        &mut self,
        client: u32,
        terms: &AskOptions,
        now: Instant,
        told: &mut Vec<Told>,
    ) -> Option<Ticket>;

    /// What was granted as this hold is over, after this long.
    fn end(&mut self, hold: u32, held: u64, now: Instant, told: &mut Vec<Told>);

    /// The client that waits with this ticket hangs up. False if it does not wait.
    fn leave(&mut self, ticket: Ticket, now: Instant, told: &mut Vec<Told>) -> bool;

    /// When to advance it next.
    fn deadline(&self) -> Option<Instant>;

    /// Do what is due.
    fn advance(&mut self, now: Instant, told: &mut Vec<Told>);

    /// How many wait.
    fn waiting(&self) -> usize;

    /// The start of a member is done.
    fn started(&mut self, _slot: u32, _id: MemberId, _now: Instant, _told: &mut Vec<Told>) {}
}

/// What a place decided.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Told {
    /// A client is served from now on.
    Granted { client: u32, hold: u32 },
    /// A client gets nothing. `len` is how many waited, as far as that is known.
    Refused {
        client: u32,
        refusal: Refusal,
        len: Option<usize>,
    },
    /// A member has to be started.
    Starts { slot: u32, id: MemberId },
}

/// The slot of a client, as the machines keep it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ClientSlot(pub(crate) u32);

impl Reply for ClientSlot {}
