//! Effects of an allocator: log entries and events.

use super::entry::Entry;
use super::range::RangeId;
use crate::time::Instant;

/// The effects of one or several calls.
#[derive(Default, Debug)]
pub struct Effects {
    /// Entries to write down, in order.
    pub log: Vec<u8>,
    /// The answer must wait until all that was logged so far is safe.
    pub wait: bool,
    /// Events, if the caller wants them.
    pub events: Option<Vec<Event>>,
    /// The partitions that the decision rests on, each once, if partitions come and go.
    pub rests: Vec<Rest>,
    entries: u64,
}

/// A partition that a decision rests on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rest {
    /// Which.
    pub partition: u32,
    /// The decision logged something there: when that is safe, the partition was owned
    /// after the decision.
    pub is_logged: bool,
}

/// The log of one machine of several.
#[derive(Default, Debug)]
pub(super) struct PartLog {
    bytes: Vec<u8>,
    entries: u64,
}

/// Something that happened to a value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// Which event it is, counted from the first.
    pub number: u64,
    /// When.
    pub at: Instant,
    /// What.
    pub what: What,
    /// To which value.
    pub value: u128,
    /// Its range; none if that was taken away.
    pub range: Option<RangeId>,
    /// The number of the holder whose value it is, or was.
    pub fence: u64,
    /// Its owner, if that is known.
    pub owner: Option<Box<[u8]>>,
}

/// A change of a value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum What {
    /// It has a holder.
    Reserved,
    /// Something was written beside it, or it is held for longer.
    Updated,
    /// Its time ran out.
    Expired,
    /// It was given back.
    Released,
    /// Its holder was forgotten.
    Cancelled,
}

impl PartLog {
    /// How many bytes were not taken.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// How many entries were logged, ever.
    pub(super) fn position(&self) -> u64 {
        self.entries
    }

    pub(super) fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }
}

impl Effects {
    /// Nothing to do, and no caller that wants to know.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many entries were logged, ever.
    pub fn position(&self) -> u64 {
        self.entries
    }

    /// Log into another log from now on, and leave that of until now in its place.
    pub(super) fn swap_log(&mut self, log: &mut PartLog) {
        std::mem::swap(&mut self.log, &mut log.bytes);
        std::mem::swap(&mut self.entries, &mut log.entries);
    }

    /// The decision rests on this partition.
    pub(super) fn rest_on(&mut self, partition: u32) {
        if self.rest(partition).is_none() {
            self.rests.push(Rest {
                partition,
                is_logged: false,
            });
        }
    }

    /// Something was logged in this partition.
    pub(super) fn logged_in(&mut self, partition: u32) {
        if let Some(rest) = self.rest(partition) {
            rest.is_logged = true;
        }
    }

    fn rest(&mut self, partition: u32) -> Option<&mut Rest> {
        let mut rests = self.rests.iter_mut();
        rests.find(|rest| rest.partition == partition)
    }

    pub(super) fn log(&mut self, entry: &Entry<'_>) {
        entry.put(self.entry());
    }

    /// Where to write an entry, which counts from now on.
    pub(super) fn entry(&mut self) -> &mut Vec<u8> {
        self.entries += 1;
        &mut self.log
    }
}
