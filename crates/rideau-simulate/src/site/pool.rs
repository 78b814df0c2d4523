//! A pool, whose members serve.

use std::time::Duration;

use rideau_core::pool::{Came, Effect, MemberId, Options, Pool, Priority, Use};
use rideau_core::queue::{self, AskOptions};
use rideau_core::{Instant, Machine, OptionError, Ticket};

use super::{ClientSlot, Site, Told};

/// A pool, and what it has decided last.
#[derive(Debug)]
pub(crate) struct PoolSite {
    pool: Pool<ClientSlot>,
    effects: Vec<Effect<ClientSlot>>,
}

impl PoolSite {
    /// Members that take no time to start are there from the beginning. None is checked,
    /// retired or replaced: that is not what is simulated.
    pub(crate) fn new(
        queue: queue::Options,
        servers: u32,
        start: Duration,
    ) -> Result<Self, OptionError> {
        let max = servers as usize;
        let is_there = start.is_zero();
        let options = Options {
            init: if is_there { max } else { 0 },
            max,
            starts_max: max,
            start_timeout: start.max(Duration::from_nanos(1)).saturating_mul(2),
            idle_age_max: None,
            life_max: None,
            check_after: None,
            queue,
            ..Options::default()
        };
        let mut effects = Vec::new();
        let mut pool = Pool::new(options, Instant::START, &mut effects)?;
        while is_there && !effects.is_empty() {
            for effect in std::mem::take(&mut effects) {
                if let Effect::Start { slot, id } = effect {
                    pool.started(slot, id, Instant::START, &mut effects);
                }
            }
        }
        Ok(Self { pool, effects })
    }

    fn tell(&mut self, told: &mut Vec<Told>) {
        for effect in self.effects.drain(..) {
            match effect {
                Effect::Grant { reply, grant } => told.push(Told::Granted {
                    client: reply.0,
                    hold: grant.slot,
                }),
                Effect::Shed { reply, refusal } => told.push(Told::Refused {
                    client: reply.0,
                    refusal,
                    len: None,
                }),
                Effect::Start { slot, id } => told.push(Told::Starts { slot, id }),
                _ => (),
            }
        }
    }
}

impl Site for PoolSite {
    fn ask(
        &mut self,
        client: u32,
        terms: &AskOptions,
        now: Instant,
        told: &mut Vec<Told>,
    ) -> Option<Ticket> {
        let reply = || ClientSlot(client);
        let came = self
            .pool
            .take(terms, Priority::Normal, reply, now, &mut self.effects);
        let waits = match came {
            Came::Granted(grant) => {
                let hold = grant.slot;
                told.push(Told::Granted { client, hold });
                None
            }
            Came::Refused(refusal) => {
                told.push(Told::Refused {
                    client,
                    refusal,
                    len: None,
                });
                None
            }
            Came::Waits(ticket) => Some(ticket),
        };
        self.tell(told);
        waits
    }

    fn end(&mut self, hold: u32, held: u64, now: Instant, told: &mut Vec<Told>) {
        let held = Duration::from_nanos(held);
        self.pool
            .release(hold, Use::Fine, 1, held, now, &mut self.effects);
        self.tell(told);
    }

    fn leave(&mut self, ticket: Ticket, now: Instant, told: &mut Vec<Told>) -> bool {
        let gone = self.pool.cancel(ticket, now, &mut self.effects);
        self.tell(told);
        gone.is_some()
    }

    fn deadline(&self) -> Option<Instant> {
        self.pool.deadline()
    }

    fn advance(&mut self, now: Instant, told: &mut Vec<Told>) {
        self.pool.advance(now, &mut self.effects);
        self.tell(told);
    }

    fn waiting(&self) -> usize {
        self.pool.len()
    }

    fn started(&mut self, slot: u32, id: MemberId, now: Instant, told: &mut Vec<Told>) {
        self.pool.started(slot, id, now, &mut self.effects);
        self.tell(told);
    }
}
