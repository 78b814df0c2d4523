//! The values of ranges that this server gives out.
//!
//! The machine and its log are elsewhere; here is what a server adds: a folder that is
//! made only when something is to be kept in it, tickets that no client can guess, and
//! values that go with the connection that asked.

mod follow;
mod numbers;
mod owner;
mod place;
mod secret;
mod store;
mod view;
mod watch;
mod watchers;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rideau::allocator::{Class, Options, RangeError, RangeId};
use rideau::store::{PartitionHost, StoreError};
use rideau::{OpenError, Ranges, RangesOptions};
use tokio::task::AbortHandle;

use crate::state::cluster::Cluster;
use crate::state::tags::TicketTags;
use crate::state::ticket::Ticket;
use rideau_config::{Config, RangeConfig, StoreKind};
use secret::{Origin, Secret};
use store::Folder;

pub(crate) use numbers::RangeNumbers;
pub(crate) use owner::{owner_of, sees_fence};
pub(crate) use place::{NamedRange, NamedRanges, RangeCounts};
pub(crate) use secret::ValueTicket;
pub(crate) use store::{RANGES, folder, mark_moved, moved_to, stored_secret};
pub(crate) use view::{Counted, ViewPlaces};
pub(crate) use watch::Happened;
pub(crate) use watchers::{FarValue, ValueWatchers};

/// All values of all ranges.
pub(crate) struct Values {
    /// The ranges.
    pub ranges: Ranges,
    /// Takes the partitions of a node of a cluster.
    host: Option<Arc<dyn PartitionHost>>,
    secret: Secret,
    tags: TicketTags,
    folder: Option<Folder>,
    /// The tickets of values that go with a connection or a session.
    held: Mutex<HashMap<u128, Ticket>>,
    /// How many end within an hour, by range, and when that was counted.
    ending: Mutex<Option<(Instant, HashMap<RangeId, u64>)>>,
    /// Logs what happens, for a while.
    pub(crate) debug: Mutex<Option<AbortHandle>>,
    /// Clients that hear what happens to values, here and at other nodes.
    pub(crate) watchers: ValueWatchers,
}

/// Why values cannot be given out like that.
#[derive(Debug)]
pub enum NotOpened {
    /// A range cannot be like that.
    Range {
        /// Its name.
        name: String,
        /// Why.
        error: RangeError,
    },
    /// The store cannot be used.
    Store(StoreError),
    /// The folder had reservations before, and they have not been read.
    Unread,
    /// There is no thread to be had.
    Thread(std::io::Error),
    /// Values of a range are held that another shall have.
    Held {
        /// The range that is new or grows.
        name: String,
        /// The one that drains.
        by: String,
    },
}

impl fmt::Display for NotOpened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Range { name, error } => write!(f, "range `{name}`: {error}"),
            Self::Store(error) => write!(f, "the store of the ranges: {error}"),
            Self::Unread => f.write_str(
                "the store's folder has reservations of an earlier run, which are read only at \
                 the start: start the server again with this config",
            ),
            Self::Thread(error) => write!(f, "no thread can be started: {error}"),
            Self::Held { name, by } => write!(
                f,
                "range `{name}` has values of range `{by}`, which is draining: wait until all of \
                 them are released"
            ),
        }
    }
}

impl std::error::Error for NotOpened {}

impl From<OpenError> for NotOpened {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Store(error) => Self::Store(error),
            OpenError::Range { name, error } => Self::Range { name, error },
            OpenError::Thread(error) => Self::Thread(error),
            other => Self::Thread(std::io::Error::other(other.to_string())),
        }
    }
}

impl Values {
    /// Read back what is kept, and give out the values of a config. Fences are larger
    /// than this one, and than those that are kept.
    ///
    /// # Errors
    ///
    /// If the store cannot be used, or a range cannot be like that.
    pub(crate) fn open(
        config: &Config,
        fence: u64,
        cluster: Option<&Cluster>,
    ) -> Result<Self, NotOpened> {
        if let Some(cluster) = cluster {
            return Self::in_cluster(config, fence, cluster);
        }
        let folder = match config.store.kind {
            StoreKind::Embedded => Some(Folder::new(folder(config))),
            StoreKind::Memory => None,
        };
        let is_durable = config.ranges.iter().any(RangeConfig::is_durable);
        let (mut secret, mut origin) = (Secret::random(), Origin::Read);
        if let Some(folder) = folder.as_ref().filter(|_| is_durable) {
            (secret, origin) = folder.open(&secret).map_err(NotOpened::Store)?;
        }
        let store = store::Kept::new(folder.as_ref());
        let ranges = Ranges::open(
            Box::new(store),
            RangesOptions {
                ranges: ranges_of(config),
                machine: machine_of(config, fence),
                // limits.waiters_max counts all asks that wait, and can be changed.
                waiters_max: u32::MAX,
                ..RangesOptions::default()
            },
        )?;
        for note in &ranges.loaded().notes {
            tracing::warn!("{note}");
        }
        let held = ranges.bytes().records_len;
        if let (Some(folder), Origin::Made, 1..) = (&folder, origin, held) {
            tracing::warn!(
                "{} was missing, and a new key was made: tickets of the {held} values that were \
                 given before do not count any more. Holders can use them by FENCE, or they run \
                 out. If there is a copy of the file, stop the server, put it back and start \
                 again.",
                folder.key().display()
            );
        }
        Ok(Self::of(ranges, secret, folder))
    }

    /// Give out the values of the partitions that the node comes to own.
    fn in_cluster(config: &Config, fence: u64, cluster: &Cluster) -> Result<Self, NotOpened> {
        let options = RangesOptions {
            ranges: ranges_of(config),
            partitions: cluster.partitions,
            machine: machine_of(config, fence),
            waiters_max: u32::MAX,
            ..RangesOptions::default()
        };
        let (ranges, host) = Ranges::in_cluster(options, cluster.node.log())?;
        Ok(Self {
            host: Some(Arc::new(host)),
            tags: cluster.tags.clone(),
            ..Self::of(ranges, Secret::of(*cluster.node.secret()), None)
        })
    }

    fn of(ranges: Ranges, secret: Secret, folder: Option<Folder>) -> Self {
        Self {
            ranges,
            host: None,
            secret,
            tags: TicketTags::default(),
            folder,
            held: Mutex::default(),
            ending: Mutex::default(),
            debug: Mutex::default(),
            watchers: ValueWatchers::default(),
        }
    }

    /// The host of the partitions of a cluster node.
    pub(crate) fn host(&self) -> Option<Arc<dyn PartitionHost>> {
        self.host.clone()
    }

    /// Where what must outlive the server is kept, if it is.
    pub(crate) fn folder(&self) -> Option<&std::path::Path> {
        let folder = self.folder.as_ref()?;
        folder.is_open().then(|| folder.path())
    }

    /// Write down that nothing more comes, and let the folder go.
    pub(crate) fn close(&self) {
        self.ranges.close();
        if let Some(folder) = &self.folder {
            folder.close();
        }
    }

    /// How many values of each range end within an hour unless they are
    /// prolonged, as it was some seconds ago. None if there are too many to count.
    pub(crate) fn ending(&self) -> Option<HashMap<RangeId, u64>> {
        const OLD: Duration = Duration::from_secs(5);
        const HOUR: Duration = Duration::from_secs(3_600);
        const MANY: usize = 2_000_000;
        if self.ranges.bytes().records_len > MANY {
            return None;
        }
        let mut ending = self.ending.lock();
        if let Some((at, counted)) = &*ending
            && at.elapsed() < OLD
        {
            return Some(counted.clone());
        }
        let counted = self.ranges.ending_within(HOUR);
        *ending = Some((Instant::now(), counted.clone()));
        Some(counted)
    }

    /// Warn of ranges that begin with values whose holders are unknown: they give out
    /// nothing, and do not look as if.
    pub(crate) fn warn_of_quarantine(&self) {
        for stats in self.ranges.all_stats() {
            let Some(until) = stats.quarantined_until else {
                continue;
            };
            let left = until
                .as_nanos()
                .saturating_sub(self.ranges.now().as_nanos());
            let options = self.ranges.range(&stats.name);
            let options = options.and_then(|id| self.ranges.options(id));
            let class = options.map_or(Class::Sync, |options| options.class);
            tracing::warn!(
                range = %stats.name,
                values = %stats.quarantined,
                seconds = left.div_ceil(1_000_000_000),
                "{}",
                quarantine_text(class, stats.quarantined < stats.size),
            );
        }
    }

    /// Files of the folder that other accounts can read, with advice.
    pub(crate) fn open_to_others(&self) -> Vec<String> {
        let folder = self.folder.as_ref().filter(|folder| folder.is_open());
        folder.map_or_else(Vec::new, |folder| store::open_to_others(folder.path()))
    }

    /// The ticket of a value that is held for a time.
    pub(crate) fn ticket(&self, value: u128, fence: u64) -> ValueTicket {
        self.secret.ticket(value, fence, self.tags.of_value(value))
    }

    /// The value and fence of a ticket that we gave.
    pub(crate) fn read_ticket(&self, text: &[u8]) -> Option<(u128, u64)> {
        self.secret.read(text)
    }

    /// A value goes with the holder of this ticket. Returns the ticket that had it before:
    /// its holder has lost it, and does not know yet.
    #[must_use]
    pub(crate) fn hold(&self, value: u128, ticket: Ticket) -> Option<Ticket> {
        let before = self.held.lock().insert(value, ticket);
        before.filter(|before| *before != ticket)
    }

    /// The ticket of a value that goes with a connection.
    pub(crate) fn held(&self, value: u128) -> Option<Ticket> {
        self.held.lock().get(&value).copied()
    }

    /// A value goes with no holder any more.
    pub(crate) fn let_go(&self, value: u128, ticket: Ticket) {
        let mut held = self.held.lock();
        if held.get(&value) == Some(&ticket) {
            held.remove(&value);
        }
    }
}

/// Why values of a range are not given out after a start, and what can be done about it.
const fn quarantine_text(class: Class, is_part: bool) -> &'static str {
    match (class, is_part) {
        (Class::Memory, _) => {
            "it is not known which of these values have holders, and they are not given out \
             for so long; with start \
             = \"free\" the next start gives them out at once"
        }
        (Class::Claimed, true) => {
            "the server did not end in order: these values were set aside, may have holders that \
             were not written down, and are not given out for so long; the others are"
        }
        (Class::Claimed | Class::Sync, _) => {
            "it is not known which of these values have holders, and they are not given out \
             for so long; a holder \
             that writes to its value keeps it"
        }
    }
}

/// The error for a client whose answers cannot be made safe.
pub(crate) fn unsafe_text(failed: &rideau::Failed) -> String {
    if let rideau::Failed::Unknown { partition } = failed {
        return format!(
            "UNKNOWN this node lost partition {partition} before your last commands were \
             answered, and they may have been done: look, or ask again."
        );
    }
    let until = match failed {
        rideau::Failed::Store(error) if error.can_pass() => "until the store can be written again",
        _ => "any more until the server is started again",
    };
    format!(
        "MISCONF {failed}. It is not known whether your last commands happened: no range answers \
         {until}, and LOOKUP tells then."
    )
}

/// The ranges of a config for the core.
fn ranges_of(config: &Config) -> Vec<(String, rideau::allocator::RangeOptions)> {
    let ranges = config.ranges.iter();
    ranges
        .map(|range| (range.name.clone(), range.options.clone()))
        .collect()
}

fn machine_of(config: &Config, fence: u64) -> Options {
    let mut seed = [0; 8];
    getrandom::fill(&mut seed).expect("the system has random bits");
    Options {
        reservations_max: config.limits.reservations_max,
        fence,
        seed: u64::from_ne_bytes(seed),
    }
}
