//! Clients: each has one ask at a time, and relies on what it was told.

use crate::host::{Answer, Ask, Reply, Wish};
use crate::unique::{KEYS, key_partition};
use crate::world::{Event, Happening, MILLI, PARTITIONS, SECOND, World};

/// One client.
#[derive(Default)]
pub(crate) struct Client {
    pub(crate) ask: Option<Ask>,
    /// When the first try of its wish was sent.
    since: u64,
    /// A wish of unknown outcome, to be tried again.
    again: Option<Ask>,
    held: Vec<Held>,
}

/// What a client holds.
#[derive(Clone, Copy)]
struct Held {
    partition: u32,
    value: u64,
    fence: u64,
}

impl World {
    /// A client asks for something.
    pub(crate) fn client_turn(&mut self, client: usize) -> Result<(), String> {
        if self.faults.quiet {
            return Ok(());
        }
        let running: Vec<_> = (0..self.hosts.len())
            .filter(|host| self.hosts[*host].process.is_some())
            .collect();
        if running.is_empty() {
            self.after(SECOND / 5, Happening::Client { client });
            return Ok(());
        }
        let entry = running[self.rng.below(running.len() as u64) as usize];
        let id = self.next_ask;
        self.next_ask += 1;
        let again = self.clients[client].again.take();
        let is_new = again.is_none();
        let (key, partition, wish) = match again {
            Some(ask) => (ask.key, ask.partition, ask.wish),
            None => {
                let (partition, wish) = self.wish(client);
                (id, partition, wish)
            }
        };
        let ask = Ask {
            id,
            key,
            partition,
            wish,
            client,
            entry,
            entry_life: self.hosts[entry].life,
        };
        let it = &mut self.clients[client];
        it.ask = Some(ask);
        if is_new {
            it.since = self.now;
        }
        self.oracle.open.insert(id);
        let delay = self.delay();
        self.for_process(entry, delay, Event::AskHere { ask });
        Ok(())
    }

    fn wish(&mut self, client: usize) -> (u32, Wish) {
        let partition = self.rng.below(u64::from(PARTITIONS)) as u32;
        match self.rng.below(14) {
            10.. => {
                let key = self.rng.below(KEYS);
                let ttl = SECOND / 5 + self.rng.below(2 * SECOND);
                (key_partition(key + 1), Wish::Unique { key: key + 1, ttl })
            }
            0..5 => {
                let ttl = SECOND / 2 + self.rng.below(6 * SECOND);
                (partition, Wish::Reserve { ttl })
            }
            5..8 if !self.clients[client].held.is_empty() => {
                let at = self.rng.below(self.clients[client].held.len() as u64);
                let held = self.clients[client].held.swap_remove(at as usize);
                let (value, fence) = (held.value, held.fence);
                self.oracle.given_back(held.partition, value, fence);
                (held.partition, Wish::Release { value, fence })
            }
            _ => {
                let value = self.rng.below(crate::register::VALUES);
                (partition, Wish::Look { value })
            }
        }
    }

    /// A client is told what became of its ask.
    pub(crate) fn client_told(&mut self, reply: &Reply) -> Result<(), String> {
        let ask = reply.ask;
        if reply.answer == Answer::Reset && !self.oracle.open.contains(&ask.id) {
            return Ok(());
        }
        // The connection is gone with the process.
        let is_gone = ask.entry_life != self.hosts[ask.entry].life;
        if is_gone && reply.answer != Answer::Reset {
            return Ok(());
        }
        self.oracle.answered(ask.id)?;
        self.trace(|| format!("client {} is told {:?}", ask.client, reply.answer));
        self.served += u64::from(!matches!(reply.answer, Answer::Down | Answer::Reset));
        let it = &mut self.clients[ask.client];
        it.ask = None;
        match (reply.answer, ask.wish) {
            (Answer::Granted { value, fence }, Wish::Reserve { ttl }) => {
                self.client_holds(ask.client, (ask.partition, value, fence), ttl)?;
            }
            (
                Answer::GrantedKey {
                    partition,
                    value,
                    fence,
                },
                Wish::Unique { ttl, .. },
            ) => self.client_holds(ask.client, (partition, value, fence), ttl)?,
            (Answer::Unknown | Answer::Reset, Wish::Reserve { .. } | Wish::Unique { .. }) => {
                it.again = Some(ask);
            }
            _ => (),
        }
        let pause = self.rng.below(60 * MILLI);
        self.after(pause, Happening::Client { client: ask.client });
        Ok(())
    }

    /// A client has a value now, and relies on it.
    fn client_holds(
        &mut self,
        client: usize,
        (partition, value, fence): (u32, u64, u64),
        ttl: u64,
    ) -> Result<(), String> {
        let it = &mut self.clients[client];
        it.held.push(Held {
            partition,
            value,
            fence,
        });
        if it.held.len() > 6 {
            it.held.remove(0);
        }
        let until = it.since + if self.wild { 0 } else { ttl * 9 / 10 };
        self.oracle.told(partition, value, fence, until)
    }
}
