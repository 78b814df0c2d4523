//! The connections there are.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::broadcast;

use crate::state::holder::{Holder, HolderId};
use crate::state::push::PushQueue;

/// The connections there are.
pub(crate) struct Clients {
    serial: AtomicU64,
    all: Mutex<BTreeMap<u64, Arc<ClientCard>>>,
    /// How many see every command.
    monitors: AtomicUsize,
    lines: broadcast::Sender<Arc<str>>,
}

/// The state of a connection that others may read.
pub struct ClientCard {
    /// Its number.
    pub id: u64,
    /// Where it comes from.
    pub address: String,
    /// Where it came to.
    pub local: String,
    /// The card that it has as a holder.
    pub card: Mutex<Arc<Holder>>,
    /// The holder that it is.
    pub holder: Mutex<HolderId>,
    /// How to tell it something.
    pub outbox: Arc<PushQueue>,
    /// When it came.
    pub since: Instant,
    /// When it last said something, in milliseconds since it came.
    pub heard_ms: AtomicU64,
    /// The client library's name and version.
    pub library: Mutex<(String, String)>,
    /// Where its last command is among all.
    pub last: AtomicUsize,
    /// Its session.
    pub session: Mutex<Option<String>>,
    /// A command of it waits.
    pub is_waiting: AtomicBool,
    /// It listens to events.
    pub is_listening: AtomicBool,
    /// How often it released what another connection had taken.
    pub foreign_releases: AtomicU64,
    /// Commands it sent.
    pub commands: AtomicU64,
}

impl ClientCard {
    /// The card of a holder that has come just now, and may be told this many bytes.
    pub(crate) fn new(
        id: u64,
        address: String,
        (holder, at): (&Arc<Holder>, HolderId),
        bytes_max: usize,
    ) -> Self {
        Self {
            id,
            address,
            local: String::new(),
            card: Mutex::new(Arc::clone(holder)),
            holder: Mutex::new(at),
            outbox: Arc::new(PushQueue::new(bytes_max)),
            since: Instant::now(),
            heard_ms: AtomicU64::new(0),
            library: Mutex::default(),
            last: AtomicUsize::new(usize::MAX),
            session: Mutex::new(None),
            is_waiting: AtomicBool::new(false),
            is_listening: AtomicBool::new(false),
            foreign_releases: AtomicU64::new(0),
            commands: AtomicU64::new(0),
        }
    }
}

impl Default for Clients {
    fn default() -> Self {
        Self {
            serial: AtomicU64::new(0),
            all: Mutex::new(BTreeMap::new()),
            monitors: AtomicUsize::new(0),
            lines: broadcast::channel(1024).0,
        }
    }
}

impl Clients {
    /// The number of the next connection.
    pub(crate) fn next_id(&self) -> u64 {
        self.serial.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// A connection came.
    pub(crate) fn add(&self, client: &Arc<ClientCard>) {
        self.all.lock().insert(client.id, Arc::clone(client));
    }

    /// A connection is gone.
    pub(crate) fn remove(&self, id: u64) {
        self.all.lock().remove(&id);
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.all.lock().len()
    }

    /// There is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All of them, the oldest first.
    pub(crate) fn all(&self) -> Vec<Arc<ClientCard>> {
        self.all.lock().values().cloned().collect()
    }

    /// One of them.
    pub(crate) fn find(&self, id: u64) -> Option<Arc<ClientCard>> {
        self.all.lock().get(&id).cloned()
    }

    /// See every command from now on.
    pub(crate) fn monitor(&self) -> broadcast::Receiver<Arc<str>> {
        self.monitors.fetch_add(1, Ordering::Relaxed);
        self.lines.subscribe()
    }

    /// A client that saw every command is gone.
    pub(crate) fn end_monitor(&self) {
        self.monitors.fetch_sub(1, Ordering::Relaxed);
    }

    /// A client sees every command.
    pub(crate) fn is_monitored(&self) -> bool {
        self.monitors.load(Ordering::Relaxed) > 0
    }

    /// How many see every command.
    pub(crate) fn monitors(&self) -> usize {
        self.monitors.load(Ordering::Relaxed)
    }

    /// Show a command to the clients that see every one.
    pub(crate) fn show(&self, line: &str) {
        let _ = self.lines.send(line.into());
    }
}

impl ClientCard {
    /// It is one request of another protocol, and no connection to go with.
    pub const fn connection_less(&self) -> bool {
        self.id == 0
    }

    /// It said something at this time.
    pub fn hear(&self, now: Instant) {
        let since = now.saturating_duration_since(self.since);
        let since = since.as_secs() * 1000 + u64::from(since.subsec_millis());
        self.heard_ms.store(since, Ordering::Relaxed);
    }

    /// For how long it has said nothing.
    pub fn silent(&self) -> Duration {
        let heard = Duration::from_millis(self.heard_ms.load(Ordering::Relaxed));
        self.since.elapsed().saturating_sub(heard)
    }
}
