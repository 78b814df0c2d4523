//! The server's state, whoever asks: a Redis client, HTTP or a signal.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rideau::{Locks, LocksOptions, OptionError};
use tokio::sync::Semaphore;

use crate::clients::Clients;
use crate::config::Config;
use crate::drops::Drops;
use crate::events::Events;
use crate::holdings::{Gone, HolderId, Holdings, Thing, Why};
use crate::member::Workshop;
use crate::places::{Left, Places};
use crate::sessions::Sessions;
use crate::ticket::Ticket;

/// All that the server knows.
pub struct Daemon {
    /// What it was told.
    pub config: ArcSwap<Config>,
    /// Everything that has a name.
    pub places: ArcSwap<Places>,
    /// The units of all keys.
    pub locks: Locks<Vec<u8>>,
    /// Who holds what.
    pub holdings: Holdings,
    /// The connections.
    pub clients: Clients,
    /// The sessions.
    pub sessions: Sessions,
    /// What happened.
    pub events: Arc<Events>,
    /// The last asks that were refused, to explain them.
    pub drops: Drops,
    /// What was counted.
    pub counts: Counts,
    /// When it began.
    pub started: Instant,
    /// Nobody new is served any more.
    pub draining: AtomicBool,
    /// Turns to check a password.
    pub password_checks: Semaphore,
    /// One change of configuration at a time.
    changing: Mutex<()>,
}

/// What was counted since the start.
#[derive(Default)]
pub struct Counts {
    /// Commands that were executed.
    pub commands: AtomicU64,
    /// Connections that came.
    pub connections: AtomicU64,
    /// Connections that were turned away because there were too many.
    pub turned_away: AtomicU64,
    /// Commands that wait now.
    pub waiting: AtomicUsize,
    /// Commands that were not let wait because too many did.
    pub waits_refused: AtomicU64,
    /// Grants that a holder could not keep because it had too many.
    pub held_refused: AtomicU64,
    /// Requests that were no requests.
    pub protocol_errors: AtomicU64,
    /// Connections that were cut because they did not read.
    pub slow: AtomicU64,
    /// Failed attempts to log in.
    pub denied: AtomicU64,
    /// Things released on another connection than they were taken on.
    pub foreign_releases: AtomicU64,
    /// Things taken back from holders that ended, by [`Why`].
    pub reclaims: [AtomicU64; 8],
    /// Changes of configuration.
    pub changes: AtomicU64,
}

impl Daemon {
    /// A server that was told this.
    ///
    /// # Errors
    ///
    /// If an option breaks a rule.
    pub fn new(config: Config) -> Result<Arc<Self>, OptionError> {
        let events: Arc<Events> = Arc::default();
        let workshop = Workshop::new(&config.server, Arc::clone(&events));
        let places = Places::new(&config, Arc::new(workshop))?;
        // Fences grow on after a restart, unless the clock was set back.
        let fence = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_micros() as u64);
        let queue = places.rules.first().map(|place| place.rule.queue.clone());
        let locks = Locks::with(LocksOptions {
            queue: queue.unwrap_or_default(),
            fence,
        })?;
        Ok(Arc::new(Self {
            password_checks: Semaphore::new(config.limits.password_checks_max),
            config: ArcSwap::from_pointee(config),
            places: ArcSwap::from_pointee(places),
            locks,
            holdings: Holdings::default(),
            clients: Clients::default(),
            sessions: Sessions::default(),
            events,
            drops: Drops::default(),
            counts: Counts::default(),
            started: Instant::now(),
            draining: AtomicBool::new(false),
            changing: Mutex::new(()),
        }))
    }

    /// Change everything at once. Whoever waits or holds keeps its place.
    ///
    /// # Errors
    ///
    /// If an option breaks a rule; then nothing has changed.
    pub fn reconfigure(&self, config: Config) -> Result<(), OptionError> {
        let _one = self.changing.lock();
        let (places, left) = self.places.load().changed(&config)?;
        if let Some(rule) = places.rules.first() {
            self.locks.reconfigure(&rule.rule.queue)?;
        }
        self.places.store(Arc::new(places));
        self.config.store(Arc::new(config));
        self.counts.changes.fetch_add(1, Ordering::Relaxed);
        self.let_go(left);
        Ok(())
    }

    /// Close what a change left behind: nobody waits there any more, and who
    /// holds a member keeps it until it is done.
    fn let_go(&self, left: Left) {
        let drain = self.config.load().server.drain;
        for place in left.pools {
            tokio::spawn(async move { place.pool.close(drain).await });
        }
        left.brokers.iter().for_each(|place| place.broker.close());
        left.regulators
            .iter()
            .for_each(|place| place.regulator.close());
    }

    /// A holder ended: give back all that it held. Says how much that was.
    pub fn end_holder(&self, holder: HolderId, why: Why) -> usize {
        let held = self.holdings.end(holder, why);
        let count = held.len();
        self.counts.reclaims[why as usize].fetch_add(count as u64, Ordering::Relaxed);
        for (_, thing) in held {
            end(thing, why);
        }
        count
    }

    /// End one thing by its ticket. Says who held it.
    ///
    /// # Errors
    ///
    /// If there is nothing under the ticket, or it is not this user's.
    pub fn release(&self, ticket: Ticket, user: Option<&str>, why: Why) -> Result<HolderId, Gone> {
        let taken = self.holdings.take(ticket, user, why)?;
        end(taken.thing, why);
        Ok(taken.holder)
    }

    /// Nobody new is served.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }
}

fn end(thing: Thing, why: Why) {
    match thing {
        Thing::Held(grant) | Thing::Untold(grant, _) => grant.end(why),
        Thing::Asked(later) => drop(later),
        Thing::None => (),
    }
}
