//! Clients that hold locks. Each has a connection, asks for how long it may rely on what
//! it holds, and uses it for no longer.

use std::time::Duration;

use rideau_core::cluster::Incarnation;

use crate::bugs::Bug;
use crate::locks::{LIMITS, what};
use crate::world::{Event, Happening, MILLI, PARTITIONS, SECOND, World};

/// One client.
pub(crate) struct LockClient {
    /// Nanoseconds of its clock in a microsecond of the truth.
    pub(crate) rate: u64,
    conn: Option<Conn>,
    wish: LockWish,
    /// Counts turns: one that was planned for an earlier wish is dropped.
    turn: u64,
    /// The lock may be used until then.
    sure_until: u64,
    until: u64,
    /// When it was told that it holds the lock.
    since: u64,
}

#[derive(Clone, Copy)]
struct Conn {
    id: u64,
    host: usize,
    life: u64,
}

/// What a client waits for or has.
#[derive(Clone, Debug)]
enum LockWish {
    None,
    Asked {
        ticket: u64,
        of: (u32, u8),
        is_cancelled: bool,
    },
    Held {
        ticket: u64,
        of: (u32, u8),
        node: Incarnation,
    },
    /// The lease is given back: the node, or another one, will say so.
    Releasing {
        ticket: u64,
        partition: u32,
        is_elsewhere: bool,
    },
}

/// What a client is told over its connection.
#[derive(Clone, Debug)]
pub(crate) enum HolderNews {
    Granted {
        ticket: u64,
        node: Incarnation,
    },
    Refused {
        ticket: u64,
    },
    Released {
        ticket: u64,
    },
    Sure {
        sent: u64,
        sure: Duration,
    },
    /// The connection is closed.
    Closed,
}

/// A lease that is given back at another node.
#[derive(Clone, Debug)]
pub(crate) struct Release {
    pub(crate) id: u64,
    pub(crate) client: usize,
    pub(crate) partition: u32,
    pub(crate) node: Incarnation,
    pub(crate) ticket: u64,
    /// The node that the client asked.
    pub(crate) at: usize,
}

impl LockClient {
    pub(crate) const fn new(rate: u64) -> Self {
        Self {
            rate,
            conn: None,
            wish: LockWish::None,
            turn: 0,
            sure_until: 0,
            until: 0,
            since: 0,
        }
    }

    /// The ticket of what it holds, over which connection.
    pub(crate) const fn held(&self) -> Option<(usize, u64)> {
        match (&self.wish, self.conn) {
            (LockWish::Held { ticket, .. }, Some(conn)) => Some((conn.host, *ticket)),
            _ => None,
        }
    }

    /// Whether it waits for an answer.
    pub(crate) const fn waits(&self) -> bool {
        matches!(
            self.wish,
            LockWish::Asked { .. } | LockWish::Releasing { .. }
        )
    }
}

impl World {
    /// A client does something.
    pub(crate) fn holder_turn(&mut self, client: usize, turn: u64) -> Result<(), String> {
        let it = &self.holders[client];
        if it.turn != turn {
            return Ok(());
        }
        let Some(conn) = it.conn else {
            self.connect(client);
            return Ok(());
        };
        match it.wish.clone() {
            LockWish::None if self.faults.quiet => self.next_turn(client, SECOND),
            LockWish::None => self.ask_lock(client, conn),
            LockWish::Asked {
                ticket,
                of,
                is_cancelled,
            } => {
                // It has waited long enough, and cancels; if that is not answered, it leaves.
                if is_cancelled || self.chance(300) {
                    self.leave(client);
                } else {
                    let is_cancelled = true;
                    self.holders[client].wish = LockWish::Asked {
                        ticket,
                        of,
                        is_cancelled,
                    };
                    self.send_node(conn, |conn| Event::LockRelease { conn, ticket });
                    self.next_turn(client, SECOND);
                }
            }
            LockWish::Held { .. } => self.hold_turn(client, conn),
            LockWish::Releasing {
                ticket,
                partition,
                is_elsewhere,
            } => {
                if is_elsewhere && !self.chance(300) {
                    let is_elsewhere = false;
                    self.holders[client].wish = LockWish::Releasing {
                        ticket,
                        partition,
                        is_elsewhere,
                    };
                    self.send_node(conn, |conn| Event::LockRelease { conn, ticket });
                    self.next_turn(client, SECOND);
                } else {
                    self.leave(client);
                }
            }
        }
        Ok(())
    }

    fn connect(&mut self, client: usize) {
        let running: Vec<_> = (0..self.hosts.len())
            .filter(|host| self.hosts[*host].process.is_some() && !self.hosts[*host].drains)
            .collect();
        if self.faults.quiet || running.is_empty() {
            self.next_turn(client, SECOND);
            return;
        }
        let host = running[self.rng.below(running.len() as u64) as usize];
        let id = self.next_ask;
        self.next_ask += 1;
        let life = self.hosts[host].life;
        self.running(host).conns.insert(id, client);
        self.holders[client].conn = Some(Conn { id, host, life });
        let delay = self.delay();
        self.next_turn(client, delay);
    }

    fn ask_lock(&mut self, client: usize, conn: Conn) {
        let partition = self.rng.below(u64::from(PARTITIONS)) as u32;
        let key = self.rng.below(LIMITS.len() as u64) as u8;
        let waits = self.chance(700);
        let ticket = self.next_ask;
        self.next_ask += 1;
        self.holders[client].wish = LockWish::Asked {
            ticket,
            of: (partition, key),
            is_cancelled: false,
        };
        let what = what(key, waits);
        self.send_node(conn, |conn| Event::LockAsk {
            conn,
            ticket,
            partition,
            what,
        });
        let patience = 500 * MILLI + self.rng.below(4 * SECOND);
        self.next_turn(client, patience);
    }

    /// A client that holds a lock asks how sure that is, or gives it back.
    fn hold_turn(&mut self, client: usize, conn: Conn) {
        let it = &self.holders[client];
        let LockWish::Held { ticket, of, node } = it.wish.clone() else {
            return;
        };
        if it.until > self.now || self.faults.quiet {
            if it.sure_until + 2 * SECOND < self.now {
                self.leave(client);
                return;
            }
            let sent = self.now;
            self.send_node(conn, |conn| Event::LockSure { conn, sent });
            let pause = 100 * MILLI + self.rng.below(400 * MILLI);
            self.next_turn(client, pause);
            return;
        }
        self.leases.stops(client);
        let partition = of.0;
        match self.rng.below(10) {
            0..5 => {
                self.holders[client].wish = LockWish::Releasing {
                    ticket,
                    partition,
                    is_elsewhere: false,
                };
                self.send_node(conn, |conn| Event::LockRelease { conn, ticket });
            }
            5..8 => self.leave(client),
            _ => {
                let at = self.rng.below(self.hosts.len() as u64) as usize;
                self.holders[client].wish = LockWish::Releasing {
                    ticket,
                    partition,
                    is_elsewhere: true,
                };
                let id = self.next_ask;
                self.next_ask += 1;
                let release = Release {
                    id,
                    client,
                    partition,
                    node,
                    ticket,
                    at,
                };
                let delay = self.delay();
                self.for_process(at, delay, Event::ReleaseHere { release });
            }
        }
        self.next_turn(client, SECOND);
    }

    /// Close the connection: everything that was held over it ends.
    fn leave(&mut self, client: usize) {
        self.leases.stops(client);
        let it = &mut self.holders[client];
        it.wish = LockWish::None;
        if let Some(conn) = it.conn.take() {
            self.send_node(conn, |conn| Event::LockClose { conn });
        }
        let pause = self.rng.below(300 * MILLI);
        self.next_turn(client, pause);
    }

    /// A client is told something over a connection.
    pub(crate) fn holder_told(
        &mut self,
        client: usize,
        conn: u64,
        news: HolderNews,
    ) -> Result<(), String> {
        let it = &mut self.holders[client];
        if it.conn.is_none_or(|own| own.id != conn) {
            return Ok(());
        }
        self.trace(|| format!("holder {client} is told {news:?}"));
        let it = &mut self.holders[client];
        match (news, it.wish.clone()) {
            (
                HolderNews::Granted { ticket, node },
                LockWish::Asked {
                    ticket: asked,
                    of,
                    is_cancelled: false,
                },
            ) if ticket == asked => {
                it.wish = LockWish::Held { ticket, of, node };
                it.sure_until = self.now;
                it.since = self.now;
                let hold = self.rng.below(4 * SECOND);
                self.holders[client].until = self.now + hold;
                self.next_turn(client, 0);
            }
            (HolderNews::Refused { ticket }, LockWish::Asked { ticket: asked, .. })
            | (HolderNews::Released { ticket }, LockWish::Asked { ticket: asked, .. })
            | (HolderNews::Released { ticket }, LockWish::Releasing { ticket: asked, .. })
                if ticket == asked =>
            {
                it.wish = LockWish::None;
                let pause = self.rng.below(200 * MILLI);
                self.next_turn(client, pause);
            }
            (HolderNews::Sure { sent, sure }, LockWish::Held { of, .. }) if sent >= it.since => {
                let from = if self.bug == Some(Bug::SureFromAnswer) {
                    self.now
                } else {
                    sent
                };
                let until = from + sure.as_nanos() as u64 / it.rate;
                it.sure_until = it.sure_until.max(until);
                if !self.wild {
                    self.leases.uses(of, client, until, self.now)?;
                }
            }
            (HolderNews::Closed, _) => {
                self.leases.stops(client);
                it.conn = None;
                it.wish = LockWish::None;
                self.next_turn(client, 100 * MILLI);
            }
            (HolderNews::Granted { ticket, .. } | HolderNews::Refused { ticket }, wish) => {
                // A grant may cross a cancel, and the cancel ends it. No ask gets two answers.
                let is_again = match wish {
                    LockWish::Held { ticket: own, .. }
                    | LockWish::Releasing { ticket: own, .. } => own == ticket,
                    LockWish::None | LockWish::Asked { .. } => false,
                };
                if is_again {
                    return Err(format!("G6: ask {ticket} was answered twice: {wish:?}"));
                }
            }
            _ => (),
        }
        Ok(())
    }

    /// A lease was given back at another node.
    pub(crate) fn released_elsewhere(&mut self, release: &Release) {
        let it = &mut self.holders[release.client];
        let is_it = match it.wish {
            LockWish::Releasing { ticket, .. } => ticket == release.ticket,
            _ => false,
        };
        self.leases.released(&release.node, release.ticket);
        if is_it {
            it.wish = LockWish::None;
            self.next_turn(release.client, 100 * MILLI);
        }
    }

    /// The process of a host is gone. Most of its clients notice soon.
    pub(crate) fn reset_holders(&mut self, host: usize) {
        let conns = self.hosts[host].process.as_ref();
        let conns = conns.map(|process| process.conns.clone());
        for (conn, client) in conns.into_iter().flatten() {
            if !self.chance(300) {
                let news = HolderNews::Closed;
                let delay = self.delay();
                self.after(delay, Happening::HolderTold { client, conn, news });
            }
        }
    }

    fn send_node(&mut self, conn: Conn, event: impl FnOnce(u64) -> Event) {
        let delay = self.delay();
        let (host, life) = (conn.host, conn.life);
        let event = event(conn.id);
        // What a client sends arrives in order.
        let last = self.sent.entry(conn.id).or_default();
        let at = (self.now + delay).max(*last + 1);
        *last = at;
        self.at(at, Happening::Process { host, life, event });
    }

    pub(crate) fn next_turn(&mut self, client: usize, delay: u64) {
        let it = &mut self.holders[client];
        it.turn += 1;
        let turn = it.turn;
        self.after(delay, Happening::Holder { client, turn });
    }
}
