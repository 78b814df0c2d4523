//! Which processes there are, and what each is doing.

use std::collections::HashMap;

use crate::time::Instant;

use super::effect::{Leaving, ProcessId};
use super::options::Options;
use super::server::ServerRecord;
use super::stats::State;

/// A process from before its start until nothing of it is left.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) id: ProcessId,
    pub(super) app: u32,
    pub(super) generation: u64,
    pub(super) doing: Doing,
    /// Sessions that take a place.
    pub(super) sessions: usize,
    /// Streams that take none.
    pub(super) streams: usize,
    /// Sessions that are no streams, and since when there are as many.
    pub(super) inside: usize,
    pub(super) inside_since: Instant,
    pub(super) finished: u64,
    /// It has answered a request, so its code works.
    pub(super) has_answered: bool,
    /// Since when it starts, then since when it is ready.
    pub(super) since: Instant,
    /// When it was last used.
    pub(super) used: Instant,
    /// Its lot, in 128ths of how far its limits are from those of the others.
    pub(super) lot: i64,
    pub(super) memory: u64,
    pub(super) timeouts: Strikes,
    pub(super) broken: Strikes,
    /// It goes as soon as there is another in its stead.
    pub(super) outgoing: Option<Leaving>,
    /// Where it stands among the places of its app, if it has a free one.
    pub(super) place: Option<Place>,
    /// When the machine will look whether it was idle for too long.
    pub(super) idle_due: Instant,
    /// When its life is over.
    pub(super) life_due: Instant,
    /// When it has run for so long that its start went well.
    pub(super) proven_due: Instant,
    /// What is known of it if others have started it.
    pub(super) server: Option<Box<ServerRecord>>,
}

/// The state of a process, with the data of that state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Doing {
    Starting {
        /// One of its app goes when it is ready: both have one room.
        replaces: bool,
    },
    Ready,
    Disabled,
    /// A server that does not answer.
    Down {
        why: Leaving,
    },
    Draining {
        why: Leaving,
        until: Instant,
    },
    Stopping {
        why: Leaving,
    },
}

/// Where a free place stands among those of its app, the best first: newest
/// code, fewest sessions, last used.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Place {
    age: u64,
    sessions: usize,
    unused: u64,
    pub(super) slot: u32,
}

#[cfg(test)]
impl Place {
    /// One that stands somewhere.
    pub(super) fn new(age: u64, sessions: u64, slot: u32) -> Self {
        Self {
            age,
            sessions: sessions as usize,
            unused: 0,
            slot,
        }
    }
}

/// Counts of repeated failures.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Strikes {
    count: u32,
    last: Instant,
}

/// How many processes do what, of one app or of all.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Counts {
    pub(super) starting: usize,
    /// How many of them take the room of a process that will end.
    pub(super) replacing: usize,
    pub(super) ready: usize,
    pub(super) disabled: usize,
    /// Servers that do not answer.
    pub(super) down: usize,
    /// On their way out.
    pub(super) ending: usize,
}

/// Processes by slot and by id.
#[derive(Debug, Default)]
pub(super) struct Processes {
    slots: Vec<Option<Process>>,
    free: Vec<u32>,
    by_id: HashMap<ProcessId, u32>,
    last: u64,
}

/// Limits of processes differ by up to a tenth.
const LOTS: i64 = 128;

impl Process {
    pub(super) fn new(id: ProcessId, app: u32, generation: u64, lot: u64, now: Instant) -> Self {
        Self {
            id,
            app,
            generation,
            doing: Doing::Starting { replaces: false },
            sessions: 0,
            streams: 0,
            inside: 0,
            inside_since: now,
            finished: 0,
            has_answered: false,
            since: now,
            used: now,
            lot: lot.cast_signed() % (2 * LOTS + 1) - LOTS,
            memory: 0,
            timeouts: Strikes::default(),
            broken: Strikes::default(),
            outgoing: None,
            place: None,
            idle_due: Instant::NEVER,
            life_due: Instant::NEVER,
            proven_due: Instant::NEVER,
            server: None,
        }
    }

    pub(super) fn is_ready(&self) -> bool {
        self.doing == Doing::Ready
    }

    /// It serves no client.
    pub(super) fn is_unused(&self) -> bool {
        self.sessions == 0 && self.streams == 0
    }

    pub(super) fn is_idle(&self) -> bool {
        self.is_ready() && self.is_unused()
    }

    /// It was started, and not told to go.
    pub(super) fn is_there(&self) -> bool {
        matches!(
            self.doing,
            Doing::Ready | Doing::Disabled | Doing::Down { .. }
        )
    }

    /// One more session fits in, where these are the most.
    pub(super) fn has_room(&self, most: usize, options: &Options) -> bool {
        self.is_ready() && self.sessions < most && !(options.one_each && self.finished > 0)
    }

    /// Where it stands now; those that will go come last.
    pub(super) fn standing(&self, slot: u32) -> Place {
        let age = match self.outgoing {
            Some(_) => u64::MAX,
            None => u64::MAX - 1 - self.generation,
        };
        Place {
            age,
            sessions: self.sessions,
            unused: u64::MAX - self.used.as_nanos(),
            slot,
        }
    }

    /// A limit of this very process, up to a tenth off the one of all.
    pub(super) fn own_limit(&self, limit: u64) -> u64 {
        let tenth = i128::from(limit / 10);
        let off = tenth * i128::from(self.lot) / i128::from(LOTS);
        u64::try_from(i128::from(limit) + off).unwrap_or(u64::MAX)
    }

    pub(super) fn state(&self) -> State {
        match self.doing {
            Doing::Starting { .. } => State::Starting,
            Doing::Ready => State::Ready,
            Doing::Disabled => State::Disabled,
            Doing::Down { why } => State::Down(why),
            Doing::Draining { why, .. } => State::Draining(why),
            Doing::Stopping { why } => State::Stopping(why),
        }
    }
}

impl Strikes {
    /// Once more. True if that is as often as may be.
    pub(super) fn add(&mut self, options: &Options, now: Instant) -> bool {
        let is_close = self.last + options.timeouts_window >= now;
        self.count = if is_close { self.count + 1 } else { 1 };
        self.last = now;
        self.count >= options.timeouts_max
    }
}

impl Counts {
    /// Processes that were not told to go.
    pub(super) fn used(self) -> usize {
        self.starting + self.ready + self.disabled + self.down
    }

    /// The room they take: a start in the stead of another takes none.
    pub(super) fn taken(self) -> usize {
        self.used() - self.replacing
    }

    pub(super) fn live(self) -> usize {
        self.used() + self.ending
    }

    pub(super) fn add(&mut self, doing: Doing) {
        if doing == (Doing::Starting { replaces: true }) {
            self.replacing += 1;
        }
        *self.of(doing) += 1;
    }

    pub(super) fn remove(&mut self, doing: Doing) {
        if doing == (Doing::Starting { replaces: true }) {
            self.replacing -= 1;
        }
        *self.of(doing) -= 1;
    }

    fn of(&mut self, doing: Doing) -> &mut usize {
        match doing {
            Doing::Starting { .. } => &mut self.starting,
            Doing::Ready => &mut self.ready,
            Doing::Disabled => &mut self.disabled,
            Doing::Down { .. } => &mut self.down,
            Doing::Draining { .. } | Doing::Stopping { .. } => &mut self.ending,
        }
    }
}

impl Processes {
    pub(super) fn next_id(&mut self) -> ProcessId {
        self.last += 1;
        ProcessId(self.last)
    }

    pub(super) fn insert(&mut self, process: Process) -> u32 {
        let id = process.id;
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            u32::try_from(self.slots.len() - 1).expect("processes are numbered by 32 bits")
        });
        self.slots[slot as usize] = Some(process);
        self.by_id.insert(id, slot);
        slot
    }

    pub(super) fn remove(&mut self, slot: u32) -> Process {
        let process = self.slots[slot as usize].take();
        let process = process.expect("what goes was there");
        self.by_id.remove(&process.id);
        self.free.push(slot);
        process
    }

    pub(super) fn find(&self, id: ProcessId) -> Option<u32> {
        self.by_id.get(&id).copied()
    }

    pub(super) fn at(&self, slot: u32) -> &Process {
        let process = self.slots[slot as usize].as_ref();
        process.expect("a slot in use has a process")
    }

    pub(super) fn at_mut(&mut self, slot: u32) -> &mut Process {
        let process = self.slots[slot as usize].as_mut();
        process.expect("a slot in use has a process")
    }

    /// The process of this id, if that is the one in the slot.
    pub(super) fn still(&self, slot: u32, id: ProcessId) -> Option<&Process> {
        let process = self.slots.get(slot as usize)?.as_ref();
        process.filter(|process| process.id == id)
    }

    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// All, by slot.
    pub(super) fn all(&self) -> impl Iterator<Item = (u32, &Process)> {
        let slots = self.slots.iter().zip(0..);
        slots.filter_map(|(process, slot)| Some((slot, process.as_ref()?)))
    }
}
