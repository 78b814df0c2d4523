//! One simulated process: the machine that ships, what it carries out for it, and a
//! register for each partition it has.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use rideau_core::Instant;
use rideau_core::cluster::{Cluster, EntryRows, Incarnation, ReportedRow, RowDrops};

use crate::configs::ConfigSide;
use crate::holders::Release;
use crate::locks::LockPart;
use crate::register::{COUNTER_BITS, Entry, Hold, Register, VALUES};
use crate::unique::KeySide;

/// A machine with its clock, and the process on it, if it runs.
pub(crate) struct Host {
    pub(crate) name: String,
    /// Nanoseconds of its clock in a microsecond of the truth.
    pub(crate) rate: u64,
    /// What its clock has lost, if it stops while the machine sleeps.
    pub(crate) lag: u64,
    /// Its clock stands still from here on.
    pub(crate) frozen: Option<u64>,
    /// How far its wall clock is ahead, in microseconds.
    pub(crate) wall: u64,
    /// Counts processes: what was meant for an earlier one is dropped.
    pub(crate) life: u64,
    pub(crate) process: Option<Process>,
    pub(crate) paused_until: u64,
    /// The ids of earlier lives, in its folder.
    pub(crate) formers: Vec<u64>,
    /// Requests to etcd, and answers from there, are lost until then.
    pub(crate) cut_to_etcd: u64,
    pub(crate) cut_from_etcd: u64,
    /// The watch shows nothing until then.
    pub(crate) stalled: u64,
    pub(crate) drains: bool,
    /// It was started with a wrong file of the secret.
    pub(crate) has_wrong_secret: bool,
    /// The lowest and the highest version of the protocol between nodes that it speaks.
    pub(crate) versions: (u32, u32),
    pub(crate) stopped: bool,
}

/// What a process has in memory.
pub(crate) struct Process {
    pub(crate) machine: Cluster,
    pub(crate) parts: BTreeMap<u32, HostedPart>,
    /// Requests to etcd without outcome.
    pub(crate) asked: BTreeSet<u64>,
    pub(crate) reads: BTreeMap<u64, Read>,
    pub(crate) next_read: u64,
    /// What was decided and has not reached the machine yet, in order.
    pub(crate) decided: VecDeque<Decided>,
    /// The entries of each batch that is not written, by partition and number.
    pub(crate) batches: BTreeMap<u64, Vec<(u32, u64)>>,
    /// Answers that wait for an entry.
    pub(crate) waiting: BTreeMap<(u32, u64), Vec<Reply>>,
    /// Asks that the machine has given no route yet.
    pub(crate) routed: BTreeMap<u64, Routed>,
    /// Asks that need no route any more.
    pub(crate) cancelled: BTreeSet<u64>,
    /// Asks that were tried a second time.
    pub(crate) retried: BTreeSet<u64>,
    /// Asks that were passed on to owners.
    pub(crate) forwarded: BTreeSet<u64>,
    pub(crate) links: BTreeMap<usize, PeerLink>,
    /// What is held and asked for behind this node.
    pub(crate) rows: EntryRows,
    /// The partitions of tickets.
    pub(crate) tickets: BTreeMap<u64, u32>,
    /// The clients of its connections.
    pub(crate) conns: BTreeMap<u64, usize>,
    /// The locks of its partitions.
    pub(crate) locks: BTreeMap<u32, LockPart>,
    pub(crate) drops: RowDrops,
    /// The text that all nodes share.
    pub(crate) config: ConfigSide,
    /// Keys that one record may have.
    pub(crate) keys: KeySide,
    /// It has drained, and stops when it vouches for nothing any more.
    pub(crate) is_stopping: bool,
    pub(crate) releases: BTreeMap<u64, Release>,
    pub(crate) watch: Option<(u64, u64)>,
    pub(crate) watch_arrival: u64,
    pub(crate) wake_at: Option<u64>,
}

/// The newest link to another node.
#[derive(Clone, Debug)]
pub(crate) struct PeerLink {
    pub(crate) node: Incarnation,
    pub(crate) link: u64,
}

/// What a route is wanted for.
#[derive(Clone, Debug)]
pub(crate) enum Routed {
    /// A value.
    Value(Ask),
    /// A lock, for a client of this node.
    Row,
    /// A lock, for a client of another node.
    PeerRow {
        node: Incarnation,
        of: (u32, u64),
        row: ReportedRow,
    },
    /// The end of a lease whose row is at another node.
    Release(Release),
}

/// A partition in memory.
pub(crate) struct HostedPart {
    pub(crate) register: Register,
    pub(crate) epoch: u64,
    pub(crate) counter: u64,
    /// The partition's clock at an instant of the host's.
    pub(crate) clock: (u64, Instant),
    /// The entries of reservations that are not written yet, by fence.
    pub(crate) uncommitted: BTreeMap<u64, u64>,
    /// The last entry that has reached the machine.
    pub(crate) appended: u64,
    /// The last entry that is written.
    pub(crate) written: u64,
    /// Tells one load of the partition from the next.
    pub(crate) load: u64,
    /// The pieces of a snapshot that is being made for this epoch.
    pub(crate) snapshot: Option<(u64, Vec<Vec<u8>>)>,
    pub(crate) spent: bool,
}

/// What a thread beside the one that decides hands to the machine.
#[derive(Clone, Debug)]
pub(crate) enum Decided {
    Entry {
        partition: u32,
        epoch: u64,
        entry: Entry,
    },
    Closed {
        partition: u32,
        epoch: u64,
    },
    Snapshot {
        partition: u32,
        epoch: u64,
        chunks: Vec<Vec<u8>>,
    },
}

/// A partition that is being read.
#[derive(Clone, Debug)]
pub(crate) struct Read {
    pub(crate) partition: u32,
    pub(crate) epoch: u64,
    pub(crate) snapshot: Option<rideau_core::cluster::SnapshotId>,
    pub(crate) segments: Vec<rideau_core::cluster::Segment>,
}

/// What a client wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wish {
    Reserve {
        ttl: u64,
    },
    /// A value whose record has a key for itself.
    Unique {
        key: u64,
        ttl: u64,
    },
    Release {
        value: u64,
        fence: u64,
    },
    Look {
        value: u64,
    },
}

/// An ask on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ask {
    /// One for each try.
    pub(crate) id: u64,
    /// The same for each try of one wish.
    pub(crate) key: u64,
    pub(crate) partition: u32,
    pub(crate) wish: Wish,
    pub(crate) client: usize,
    pub(crate) entry: usize,
    pub(crate) entry_life: u64,
}

/// What an ask got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    Granted {
        value: u64,
        fence: u64,
    },
    /// The value of any partition.
    GrantedKey {
        partition: u32,
        value: u64,
        fence: u64,
    },
    /// A record has the key.
    KeyTaken,
    Released,
    NotHeld,
    Full,
    Found(Option<u64>),
    Down,
    NotMine,
    Unknown,
    Reset,
}

/// An answer and whose it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Reply {
    pub(crate) ask: Ask,
    pub(crate) answer: Answer,
    /// The ownership that it rests on, if it is not written.
    pub(crate) epoch: Option<u64>,
}

/// What a register did with a wish.
pub(crate) enum Did {
    /// This is the answer, by memory alone.
    Answer(Answer),
    /// This is the answer when the entry is written.
    Write(Entry, Answer),
    /// This is the answer when the entry with that number is written.
    Wait(u64, Answer),
    /// No fence of this epoch is left.
    Spent,
}

impl Host {
    /// What its clock shows.
    pub(crate) fn local(&self, now: u64) -> Instant {
        let now = self.frozen.map_or(now, |frozen| frozen.min(now));
        Instant::from_nanos(now * self.rate - self.lag)
    }

    /// When its clock shows this.
    pub(crate) const fn truly(&self, at: Instant) -> u64 {
        (at.as_nanos() + self.lag).div_ceil(self.rate)
    }

    pub(crate) fn wall(&self, now: u64) -> u64 {
        now + self.wall
    }
}

impl HostedPart {
    /// What the partition's clock shows.
    pub(crate) fn clock(&self, now: Instant) -> u64 {
        let (clock, at) = self.clock;
        clock + now.nanos_since(at) / 1_000
    }

    /// The next value whose time is over, as an entry that frees it.
    pub(crate) fn expired(&self, now: Instant) -> Option<Entry> {
        let clock = self.clock(now);
        let (value, _) = self
            .register
            .holds
            .iter()
            .find(|(_, hold)| hold.end <= clock)?;
        Some(self.entry(*value, None, clock))
    }

    pub(crate) fn serve(&self, ask: &Ask, now: Instant) -> Did {
        let clock = self.clock(now);
        let holds = &self.register.holds;
        match ask.wish {
            Wish::Look { value } => {
                let found = holds.get(&value).map(|hold| hold.fence);
                Did::Answer(Answer::Found(found))
            }
            Wish::Release { value, fence } => match holds.get(&value) {
                Some(hold) if hold.fence == fence => {
                    Did::Write(self.entry(value, None, clock), Answer::Released)
                }
                _ => Did::Answer(Answer::NotHeld),
            },
            Wish::Reserve { ttl } => self.reserve(ask.key, 0, clock + ttl, clock),
            Wish::Unique { key, ttl } => self.reserve(ask.key, key, clock + ttl, clock),
        }
    }

    /// Give a value for an ask, whose record gets this key if it is not zero.
    fn reserve(&self, ask: u64, key: u64, end: u64, clock: u64) -> Did {
        let holds = &self.register.holds;
        if let Some((value, hold)) = holds.iter().find(|(_, hold)| hold.ask == ask) {
            let granted = Answer::Granted {
                value: *value,
                fence: hold.fence,
            };
            return match self.uncommitted.get(&hold.fence) {
                Some(number) => Did::Wait(*number, granted),
                None => Did::Answer(granted),
            };
        }
        let Some(value) = (0..VALUES).find(|value| !holds.contains_key(value)) else {
            return Did::Answer(Answer::Full);
        };
        if self.counter >> COUNTER_BITS != 0 {
            return Did::Spent;
        }
        let fence = self.epoch << 32 | self.counter;
        let hold = Hold {
            ask,
            fence,
            end,
            key,
        };
        let granted = Answer::Granted { value, fence };
        Did::Write(self.entry(value, Some(hold), clock), granted)
    }

    fn entry(&self, value: u64, hold: Option<Hold>, clock: u64) -> Entry {
        Entry {
            number: self.register.number + 1,
            clock,
            value,
            hold,
        }
    }
}
