//! A queue alone, with servers behind it.

use std::time::Duration;

use rideau_core::queue::{AskOptions, Capacity, Load, Options, Queue, Shed, Turn};
use rideau_core::{Instant, Ledger, OptionError, Ticket};

use super::{Site, Told};

/// A queue, and how many servers are idle.
#[derive(Debug)]
pub(crate) struct QueueSite {
    queue: Queue,
    ledger: Ledger<u32>,
    load: Load,
    is_blind: bool,
    idle: u32,
    shed: Vec<Shed>,
}

impl QueueSite {
    pub(crate) fn new(options: Options, servers: u32, is_blind: bool) -> Result<Self, OptionError> {
        let mut load = Load::default();
        if !is_blind {
            load.capacity = Capacity::Units(servers);
        }
        let mut queue = Queue::new(options, Instant::START)?;
        queue.bear(load);
        Ok(Self {
            queue,
            ledger: Ledger::default(),
            load,
            is_blind,
            idle: servers,
            shed: Vec::new(),
        })
    }

    /// `len` waited when the call began.
    fn tell(&mut self, len: usize, now: Instant, told: &mut Vec<Told>) {
        for (before, gone) in self.shed.drain(..).enumerate() {
            let sent = self.ledger.sent(gone.ticket);
            let client = self.ledger.close(gone.ticket);
            told.push(Told::Refused {
                client: client.expect("a shed ask has a client"),
                refusal: self.queue.refuse(gone.reason, sent, now),
                len: Some(len - before),
            });
        }
    }
}

impl Site for QueueSite {
    fn ask(
        &mut self,
        client: u32,
        terms: &AskOptions,
        now: Instant,
        told: &mut Vec<Told>,
    ) -> Option<Ticket> {
        if self.idle > 0 && self.queue.is_empty() {
            self.idle -= 1;
            told.push(Told::Granted { client, hold: 0 });
            return None;
        }
        let ticket = self.ledger.open(client);
        let len = self.queue.len() + 1;
        self.queue
            .push(ticket, terms, &mut self.ledger, now, &mut self.shed);
        self.tell(len, now, told);
        Some(ticket)
    }

    fn end(&mut self, _hold: u32, held: u64, now: Instant, told: &mut Vec<Told>) {
        if !self.is_blind {
            self.load.ended(Duration::from_nanos(held));
            self.queue.bear(self.load);
        }
        self.idle += 1;
        while self.idle > 0 {
            let len = self.queue.len();
            let turn = self.queue.pop(&mut self.ledger, now, &mut self.shed);
            self.tell(len, now, told);
            match turn {
                Turn::Of(ticket) => {
                    let client = self.ledger.close(ticket);
                    let client = client.expect("an ask that waits has a client");
                    self.idle -= 1;
                    told.push(Told::Granted { client, hold: 0 });
                }
                Turn::Empty => return,
                Turn::More => (),
            }
        }
    }

    fn leave(&mut self, ticket: Ticket, now: Instant, told: &mut Vec<Told>) -> bool {
        let len = self.queue.len();
        let waited = self
            .queue
            .remove(ticket, &mut self.ledger, now, &mut self.shed);
        if waited {
            self.ledger.close(ticket);
        }
        self.tell(len, now, told);
        waited
    }

    fn deadline(&self) -> Option<Instant> {
        self.queue.deadline()
    }

    fn advance(&mut self, now: Instant, told: &mut Vec<Told>) {
        let len = self.queue.len();
        self.queue.advance(&mut self.ledger, now, &mut self.shed);
        self.tell(len, now, told);
    }

    fn waiting(&self) -> usize {
        self.queue.len()
    }
}
