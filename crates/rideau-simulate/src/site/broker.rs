//! A broker, to which the servers offer themselves.

use rideau_core::broker::{Broker, Came, Effect, Options};
use rideau_core::queue::{self, AskOptions};
use rideau_core::{Instant, Machine, OptionError, Reply, Side, Ticket};

use super::{ClientSlot, Site, Told};

/// The number of a worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Worker(u32);

impl Reply for Worker {}

/// A broker, and what it has decided last.
#[derive(Debug)]
pub(crate) struct BrokerSite {
    broker: Broker<ClientSlot, Worker>,
    effects: Vec<Effect<ClientSlot, Worker>>,
}

impl BrokerSite {
    pub(crate) fn new(asks: queue::Options, servers: u32) -> Result<Self, OptionError> {
        let options = Options {
            asks,
            ..Options::default()
        };
        let mut effects = Vec::new();
        let broker = Broker::new(options, Instant::START, &mut effects);
        let broker = broker.map_err(|error| OptionError {
            // The words of the queue are those of the asks.
            option: error.option.trim_start_matches("asks.").to_owned(),
            ..error
        })?;
        let mut site = Self { broker, effects };
        for worker in 0..servers {
            site.offer(worker, Instant::START, &mut Vec::new());
        }
        Ok(site)
    }

    fn offer(&mut self, worker: u32, now: Instant, told: &mut Vec<Told>) {
        let terms = AskOptions::new(now);
        let came = self
            .broker
            .offer(&terms, Worker(worker), now, &mut self.effects);
        came.into_effect(&mut self.effects);
        self.tell(told);
    }

    fn tell(&mut self, told: &mut Vec<Told>) {
        for effect in self.effects.drain(..) {
            match effect {
                Effect::Match { ask, offer, .. } => told.push(Told::Granted {
                    client: ask.0,
                    hold: offer.0,
                }),
                Effect::ShedAsk { ask, refusal, .. } => told.push(Told::Refused {
                    client: ask.0,
                    refusal,
                    len: None,
                }),
                _ => (),
            }
        }
    }
}

impl Site for BrokerSite {
    fn ask(
        &mut self,
        client: u32,
        terms: &AskOptions,
        now: Instant,
        told: &mut Vec<Told>,
    ) -> Option<Ticket> {
        let came = self
            .broker
            .ask(terms, ClientSlot(client), now, &mut self.effects);
        let waits = match came {
            Came::Waits(ticket) => Some(ticket),
            Came::Answered(_, own) => {
                self.effects.push(own);
                None
            }
        };
        self.tell(told);
        waits
    }

    fn end(&mut self, hold: u32, _held: u64, now: Instant, told: &mut Vec<Told>) {
        self.offer(hold, now, told);
    }

    fn leave(&mut self, ticket: Ticket, now: Instant, told: &mut Vec<Told>) -> bool {
        let gone = self.broker.cancel(ticket, now, &mut self.effects);
        self.tell(told);
        gone.is_some()
    }

    fn deadline(&self) -> Option<Instant> {
        self.broker.deadline()
    }

    fn advance(&mut self, now: Instant, told: &mut Vec<Told>) {
        self.broker.advance(now, &mut self.effects);
        self.tell(told);
    }

    fn waiting(&self) -> usize {
        self.broker.len(Side::Ask)
    }
}
