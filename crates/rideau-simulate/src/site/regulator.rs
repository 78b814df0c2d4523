//! A regulator, whose valve says how many are served at a time.

use rideau_core::queue::{self, AskOptions};
use rideau_core::regulator::{Effect, Options, Regulator};
use rideau_core::{Instant, Machine, OptionError, Ticket, valve};

use super::{ClientSlot, Site, Told};

/// A regulator, and the tickets of its leases.
#[derive(Debug)]
pub(crate) struct RegulatorSite {
    regulator: Regulator<ClientSlot>,
    effects: Vec<Effect<ClientSlot>>,
    leases: Vec<Ticket>,
    free: Vec<u32>,
}

impl RegulatorSite {
    pub(crate) fn new(queue: queue::Options, valve: valve::Options) -> Result<Self, OptionError> {
        let options = Options {
            queue,
            ..Options::new(valve)
        };
        let mut effects = Vec::new();
        let regulator = Regulator::new(options, Instant::START, &mut effects)?;
        Ok(Self {
            regulator,
            effects,
            leases: Vec::new(),
            free: Vec::new(),
        })
    }

    fn tell(&mut self, told: &mut Vec<Told>) {
        for effect in self.effects.drain(..) {
            match effect {
                Effect::Grant { ticket, reply, .. } => {
                    let hold = self.free.pop().unwrap_or_else(|| {
                        self.leases.push(ticket);
                        u32::try_from(self.leases.len() - 1).expect("they fit into memory")
                    });
                    self.leases[hold as usize] = ticket;
                    told.push(Told::Granted {
                        client: reply.0,
                        hold,
                    });
                }
                Effect::Shed { reply, refusal, .. } => told.push(Told::Refused {
                    client: reply.0,
                    refusal,
                    len: None,
                }),
                Effect::Forget(_) | Effect::Meter(_) => (),
            }
        }
    }
}

impl Site for RegulatorSite {
    fn ask(
        &mut self,
        client: u32,
        terms: &AskOptions,
        now: Instant,
        told: &mut Vec<Told>,
    ) -> Option<Ticket> {
        let ticket = self
            .regulator
            .ask(terms, ClientSlot(client), now, &mut self.effects);
        self.tell(told);
        Some(ticket)
    }

    fn end(&mut self, hold: u32, _held: u64, now: Instant, told: &mut Vec<Told>) {
        let ticket = self.leases[hold as usize];
        self.free.push(hold);
        self.regulator
            .release(ticket, true, now, now, &mut self.effects);
        self.tell(told);
    }

    fn leave(&mut self, ticket: Ticket, now: Instant, told: &mut Vec<Told>) -> bool {
        let gone = self.regulator.cancel(ticket, now, &mut self.effects);
        self.tell(told);
        gone.is_some()
    }

    fn deadline(&self) -> Option<Instant> {
        self.regulator.deadline()
    }

    fn advance(&mut self, now: Instant, told: &mut Vec<Told>) {
        self.regulator.advance(now, &mut self.effects);
        self.tell(told);
    }

    fn waiting(&self) -> usize {
        self.regulator.len()
    }
}
