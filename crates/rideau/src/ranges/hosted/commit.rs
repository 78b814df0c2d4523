//! The thread that writes what a node decides, and lets time do its work.
//!
//! It is as the thread of ranges that are alone, but that it writes to the log that the
//! partitions of the node share. A section begins with the clock of its partition: the
//! next owner goes on from there. Of a partition in which something ends the clock is
//! written now and then, though nothing else is.

use std::mem;
use std::sync::Arc;
use std::task::Waker;
use std::thread;
use std::time::{self, Duration};

use parking_lot::MutexGuard;
use rideau_core::Instant;
use rideau_core::allocator::{Clock, Entry, Event};
use rideau_core::cluster::Partitions;
use tokio::sync::broadcast::Sender;

use super::sections::{self, TakenSection};
use super::snapshots::Round;
use crate::ranges::ownership::Ownership;
use crate::ranges::shared::{Inner, Shared, Sleep};
use crate::ranges::turns::{TICK, Turn, Turns};
use crate::store::{PartitionLog, StoreError};

/// The clock of a partition is written at least as often, while something ends there.
const CLOCKS: Duration = Duration::from_secs(5);

pub(super) struct NodeCommitter {
    pub(super) turns: Turns,
    pub(super) log: Arc<dyn PartitionLog>,
    /// When the clock of each partition was written last.
    clocks: Vec<Instant>,
    /// How the clocks of the system stood, not long ago.
    read: Option<Clock>,
    /// When to look at all partitions again.
    look_at: time::Instant,
    pub(super) round: Option<Round>,
    partitions: Partitions,
}

/// The work of one turn.
pub(super) struct NodeTurn {
    turn: Turn,
    sections: Vec<TakenSection>,
    closing: Vec<Arc<Ownership>>,
    spent: Vec<(u32, u64)>,
}

impl NodeCommitter {
    pub(super) fn new(
        shared: Arc<Shared>,
        log: Arc<dyn PartitionLog>,
        events: Sender<Event>,
    ) -> Self {
        let partitions = shared.hosted().partitions;
        Self {
            turns: Turns::new(shared, events),
            log,
            clocks: vec![Instant::START; partitions.count() as usize],
            read: None,
            look_at: time::Instant::now(),
            round: None,
            partitions,
        }
    }

    /// Until the last handle is gone.
    pub(super) fn run(self) {
        let mut guarded = Guarded(self);
        while guarded.0.work() {}
    }

    /// One turn. Says whether there will be another.
    fn work(&mut self) -> bool {
        let turn = self.next_turn();
        let (is_last, waiting) = (turn.turn.is_last, turn.turn.waiting);
        let since = time::Instant::now();
        let others = self.carry_out(turn);
        if is_last {
            return false;
        }
        if waiting > 0 {
            self.turns.gather(since.elapsed(), waiting, others);
        }
        self.snapshot_some();
        true
    }

    /// Wait until something was logged or is due, do a part of what is due, and take what
    /// is to be written.
    fn next_turn(&mut self) -> NodeTurn {
        let shared = Arc::clone(&self.turns.shared);
        let mut inner = shared.inner.lock();
        loop {
            let now = shared.clock.now();
            let mut spent = Vec::new();
            let instant = time::Instant::now();
            if instant >= self.look_at {
                self.look_at = instant + TICK;
                inner.many().look_again();
                spent = inner.many().take_spent();
            }
            let is_due = inner.advance(now, &shared.safe);
            let is_last = inner.stop_if_closing();
            let has_news = inner.has_news() || !spent.is_empty() || self.round.is_some();
            if is_due || is_last || has_news || self.is_clock_due(&mut inner, now) {
                let mut turn = self.take(&mut inner, is_last);
                turn.spent = spent;
                let woken = mem::take(&mut inner.woken);
                // A thread that waits for the lock goes before the next step.
                MutexGuard::unlock_fair(inner);
                woken.into_iter().for_each(Waker::wake);
                return turn;
            }
            let due = inner.waiters.deadline(&inner.machine);
            let pause = due.map_or(TICK, |due| inner.pause(due, now));
            let until = now + pause;
            inner.sleep = Sleep::Light { until };
            shared.logged.wait_for(&mut inner, pause);
            inner.sleep = Sleep::Awake;
        }
    }

    /// Has the clock of a partition to be written, though nothing else is?
    fn is_clock_due(&self, inner: &mut Inner, now: Instant) -> bool {
        let mut ending = inner.many().ending();
        ending.any(|partition| self.is_clock_old(partition, now))
    }

    fn is_clock_old(&self, partition: u32, now: Instant) -> bool {
        now >= self.clocks[partition as usize] + CLOCKS
    }

    pub(super) fn take(&mut self, inner: &mut Inner, is_last: bool) -> NodeTurn {
        let now = self.turns.shared.clock.now();
        let mut partitions = inner.many().logging();
        let ending = inner.many().ending();
        partitions.extend(ending.filter(|partition| self.is_clock_old(*partition, now)));
        partitions.sort_unstable();
        partitions.dedup();
        let mut sections = self.begin_sections(inner, &partitions, now);
        let (machine, effects) = (&mut inner.machine, &mut inner.effects);
        machine.take_logs(effects, |part, log| {
            let at = partitions.binary_search(&(part as u32));
            let at = at.expect("what is taken was logged");
            sections[at].bytes.append(log);
        });
        let owes_turn = mem::take(&mut inner.hosted().owes_turn);
        let has_taken = !sections.is_empty() || owes_turn;
        NodeTurn {
            turn: self.turns.next(inner, has_taken, is_last),
            sections,
            closing: mem::take(&mut inner.hosted().closing),
            spent: Vec::new(),
        }
    }

    /// Sections that have nothing but clocks.
    fn begin_sections(
        &mut self,
        inner: &mut Inner,
        partitions: &[u32],
        now: Instant,
    ) -> Vec<TakenSection> {
        if partitions.is_empty() {
            return Vec::new();
        }
        let process = self.process_clock(now);
        let mut sections = Vec::with_capacity(partitions.len());
        for partition in partitions {
            self.clocks[*partition as usize] = now;
            let mut bytes = Vec::new();
            Entry::Clock(inner.many().clock(*partition, process)).put(&mut bytes);
            let own = inner.hosted().ownerships[*partition as usize].clone();
            let own = own.expect("a partition that logs is here");
            sections.push(TakenSection::new(own, bytes));
        }
        sections
    }

    /// How the clocks stand. To read those of the system takes as long as a small batch.
    fn process_clock(&mut self, now: Instant) -> Clock {
        let read = self.read.filter(|read| now < read.now + TICK);
        let read = read.unwrap_or_else(|| self.turns.shared.clock.written());
        self.read = Some(read);
        // What is later than now was read just now.
        let since = Duration::from_nanos(now.as_nanos().saturating_sub(read.now.as_nanos()));
        Clock {
            now: now.max(read.now),
            wall: read.wall + since.as_millis() as u64,
            since_boot: read.since_boot + since,
            ..read
        }
    }

    /// Write it down, and tell all that has to be told. Says how many wait for more.
    pub(super) fn carry_out(&mut self, turn: NodeTurn) -> u64 {
        let NodeTurn {
            turn,
            mut sections,
            closing,
            spent,
        } = turn;
        self.append(&mut sections, turn.number);
        let mut events = turn.events;
        let is_lost = |partition: u32| {
            let mut sections = sections.iter();
            sections.any(|section| section.is_lost && section.ownership.partition == partition)
        };
        events.retain(|event| !is_lost(self.partitions.of_value(event.value)));
        let others = self.turns.publish(turn.number, events);
        for ownership in closing {
            let Ownership {
                partition, epoch, ..
            } = *ownership;
            let is_closed = {
                let inner = &mut *self.turns.shared.inner.lock();
                inner.hosted().has(&ownership) && inner.many().is_closed(partition)
            };
            if is_closed {
                self.log.closed(partition, epoch);
            }
        }
        for (partition, epoch) in spent {
            self.log.spent(partition, epoch);
        }
        others
    }

    fn append(&self, sections: &mut [TakenSection], turn: u64) {
        let len_max = self.log.append_len_max();
        loop {
            let call = sections::cut(sections, len_max);
            if call.is_empty() {
                return;
            }
            let lost = self.log.append(&call).err();
            let lost = lost.map_or_else(Vec::new, |lost| lost.partitions);
            sections::written(sections, &lost);
            for section in sections.iter().filter(|section| section.is_lost) {
                self.lose(&section.ownership, turn);
            }
        }
    }

    /// What was decided of a partition from this turn on may not be written, so all that is
    /// here of it is wrong.
    fn lose(&self, ownership: &Arc<Ownership>, turn: u64) {
        let shared = &self.turns.shared;
        let mut inner = shared.inner.lock();
        if inner.hosted().has(ownership) {
            shared.end_part(&mut inner, ownership.partition, turn);
        }
    }
}

/// Lets no caller wait for a thread that is gone.
struct Guarded(NodeCommitter);

impl Drop for Guarded {
    fn drop(&mut self) {
        if thread::panicking() {
            let why = "the thread that writes it down has panicked".to_owned();
            self.0.turns.shared.fail(StoreError::Stopped { why });
        }
    }
}
