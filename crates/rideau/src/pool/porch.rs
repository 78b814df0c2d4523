//! Takers who wait without the pool's lock, and members handed on to them.
//!
//! While all members are held and many wait, threads would meet at the pool's
//! lock twice for each take: more time goes into moving its memory from core to
//! core than into the work. Where the machine has nothing to decide but who
//! came first, it sends all who wait to the porch. There they stand in one
//! line for every few threads, and who gives a member back hands it to the
//! first in its own line: all that this needs is in one core's memory.
//!
//! # Why nobody is forgotten, and nothing is given twice
//!
//! Each line has a latch, and all that is done to it is in one order. Every step
//! of the machine closes the porch first, under the pool's lock, and takes
//! everybody in. Who comes is either before the close of its line in that
//! order, and taken in; or after it, and then it finds the line closed and goes
//! to the pool's lock. A member that comes back is either handed on before the
//! close, which the taker finds in its cell; or it goes to the pool's lock as
//! well. If nobody is found in any line, it also goes there.
//!
//! # Why nobody is overtaken for long
//!
//! Every few turns a thread looks at the other lines too, and serves who came
//! first of all. If somebody has waited here for as long as the machine has
//! patience, its timer, or whoever comes to serve, closes the porch.
//!
//! # Why nobody waits for a latch for long
//!
//! A latch is held for a few moves of memory. Should its thread lose its core
//! just then, others of its line let the system run somebody else until it is
//! done: they would do no better at the pool's lock, whose owner has to wait for
//! the same latch. Those of other lines go elsewhere.

use std::collections::VecDeque;
use std::task::Waker;
use std::time::Duration;

use crossbeam_utils::CachePadded;
use rideau_core::pool::{Apart, Grant};
use rideau_core::queue::Terms;
use rideau_core::{Histogram, Instant};

use super::cell::Cell;
use super::stock::{NO_CELL, Reply};
use crate::shelf::{Slots, thread_number};
use crate::sync::{
    AtomicBool, AtomicU32, AtomicU64, Latch, LatchGuard, Ordering, latch, latch_soon,
};

/// Lines of takers, one for every few threads.
///
/// A closed line is empty, and changes only under the pool's lock.
pub(super) struct Porch {
    /// As many as some power of two.
    lines: Box<[CachePadded<Line>]>,
    /// Who waits for so many nanoseconds has to be taken in.
    patience: AtomicU64,
}

struct Line {
    /// Changes only under both the latch and the pool's lock.
    open: AtomicBool,
    /// When the first came, as those see it who have not got the latch.
    first: AtomicU64,
    /// So many turns of those who serve here before one looks elsewhere, about.
    turns: AtomicU32,
    crowd: Latch<Crowd>,
}

/// Who waits in a line, and what became of the others.
struct Crowd {
    waiting: VecDeque<Apart<Reply>>,
    /// Cells for those who come.
    cells: Vec<u32>,
    /// There while the line is open: most pools never need it.
    served: Option<Served>,
}

/// What is counted while the porch is open.
#[derive(Default)]
pub(super) struct Served {
    pub(super) waits: Histogram,
    pub(super) holds: Histogram,
}

/// Somebody whose turn it is; its line stays as it is meanwhile.
pub(super) struct Turn<'a> {
    line: &'a Line,
    crowd: LatchGuard<'a, Crowd>,
}

/// Nobody is first.
const NOBODY: u64 = u64::MAX;
/// After so many turns one looks who came first of all, and as long as that is
/// somebody else.
const LOOK_EVERY: u32 = 16;
/// Somebody elsewhere goes first if it has waited for this part longer than who is
/// first in the own line: to go there has its price.
const SLACK: u64 = 8;
/// So many more may come to each line before cells are fetched from elsewhere.
pub(super) const CELLS: usize = 16;
/// So many places a line keeps when nobody is left.
const KEPT: usize = 1024;
/// So often one looks for the porch before one has it closed: it may be opened
/// while one waits for the pool's lock.
pub(super) const TRIES: usize = 2;

impl Porch {
    /// A closed porch with so many lines, or more to make it a power of two.
    pub(super) fn new(lines: usize) -> Self {
        let lines = lines.max(1).next_power_of_two();
        Self {
            lines: (0..lines).map(|_| Line::new().into()).collect(),
            patience: AtomicU64::new(0),
        }
    }

    pub(super) fn lines(&self) -> usize {
        self.lines.len()
    }

    /// Exact under the pool's lock, and a guess for everybody else.
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.lines[0].is_open()
    }

    /// How many wait here.
    pub(super) fn len(&self) -> usize {
        let lens = self
            .lines
            .iter()
            .map(|line| latch(&line.crowd).waiting.len());
        lens.sum()
    }

    /// When the first of all came. Only under the pool's lock.
    pub(super) fn first(&self) -> Option<Instant> {
        let firsts = self.lines.iter().filter_map(|line| {
            let crowd = latch(&line.crowd);
            crowd.waiting.front().map(|apart| apart.sent)
        });
        firsts.min()
    }

    pub(super) fn patience(&self) -> Duration {
        Duration::from_nanos(self.patience.load(Ordering::Relaxed))
    }

    /// Let these wait here by when they came, and whoever comes. Every line gets
    /// some cells. Only under the pool's lock, and if closed.
    pub(super) fn open(
        &self,
        patience: Duration,
        waiting: &mut Vec<Apart<Reply>>,
        mut cell: impl FnMut() -> u32,
    ) {
        debug_assert!(!self.is_open(), "an open porch is not opened");
        let patience = u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX);
        self.patience.store(patience, Ordering::Relaxed);
        // Who asked once more stands at the end.
        waiting.sort_by_key(|apart| apart.sent);
        for (at, apart) in waiting.drain(..).enumerate() {
            let line = &self.lines[at & (self.lines.len() - 1)];
            latch(&line.crowd).waiting.push_back(apart);
        }
        // That all are open is seen from the first: it goes last.
        for line in self.lines.iter().rev() {
            let mut crowd = latch(&line.crowd);
            crowd.cells.extend((0..CELLS).map(|_| cell()));
            crowd.served = Some(Served::default());
            line.show_first(&crowd);
            line.open.store(true, Ordering::Relaxed);
        }
    }

    /// Let nobody wait here any more, and take everybody in, those who came
    /// first first, and all cells. Only under the pool's lock.
    pub(super) fn close(&self, waiting: &mut Vec<Apart<Reply>>, cells: &mut Vec<u32>) -> Served {
        let mut served = Served::default();
        for line in &self.lines {
            let mut crowd = latch(&line.crowd);
            line.open.store(false, Ordering::Relaxed);
            waiting.extend(crowd.waiting.drain(..));
            crowd.waiting.shrink_to(KEPT);
            cells.append(&mut crowd.cells);
            if let Some(here) = crowd.served.take() {
                served.waits.add(&here.waits);
                served.holds.add(&here.holds);
            }
            line.show_first(&crowd);
        }
        waiting.sort_by_key(|apart| apart.sent);
        served
    }

    /// Wait here for a member from now on. Says in which cell the answer will
    /// be; none if the porch is closed or full: go to the pool's lock.
    pub(super) fn wait(&self, terms: &Terms, waker: &Waker, cells: &Slots<Cell>) -> Option<u32> {
        if !self.is_open() {
            return None;
        }
        self.wait_near(self.own(), terms, waker, cells)
    }

    fn wait_near(
        &self,
        own: usize,
        terms: &Terms,
        waker: &Waker,
        cells: &Slots<Cell>,
    ) -> Option<u32> {
        let (sent, deadline) = (terms.sent, terms.deadline.unwrap_or(Instant::NEVER));
        // It is somebody else's code that runs for it.
        let waker = waker.clone();
        let (line, mut crowd) = self.room(own)?;
        // Patience is that of this opening only now.
        let patience = self.patience();
        if deadline < sent + patience + patience {
            return None;
        }
        let cell = crowd.cells.pop()?;
        cells.get(cell).clear();
        let reply = Reply { waker, cell };
        crowd.waiting.push_back(Apart {
            sent,
            deadline,
            promised: terms.promised,
            reply,
        });
        if crowd.waiting.len() == 1 {
            line.show_first(&crowd);
        }
        Some(cell)
    }

    /// A line with a free cell.
    #[inline]
    fn room(&self, own: usize) -> Option<(&Line, LatchGuard<'_, Crowd>)> {
        let line = &*self.lines[own];
        let mut crowd = line.crowd()?;
        if crowd.cells.is_empty() {
            crowd.cells = self.fetch_cells(own);
        }
        if !crowd.cells.is_empty() {
            return Some((line, crowd));
        }
        drop(crowd);
        self.others(own).find_map(|line| {
            let crowd = line.crowd_now()?;
            (!crowd.cells.is_empty()).then_some((line, crowd))
        })
    }

    /// Half of the cells of another line. Who has the latch of its own may try
    /// for others, for nobody waits there until one is free.
    #[cold]
    fn fetch_cells(&self, own: usize) -> Vec<u32> {
        let fetched = self.others(own).find_map(|line| {
            let mut crowd = line.crowd_now()?;
            let half = crowd.cells.len() / 2;
            (!crowd.cells.is_empty()).then(|| crowd.cells.split_off(half))
        });
        fetched.unwrap_or_default()
    }

    /// Whose turn it is: who came first in the own line, and now and then who
    /// came first of all. None if the porch is closed, nobody waits or somebody
    /// has waited for too long: go to the pool's lock.
    pub(super) fn turn(&self, now: Instant) -> Option<Turn<'_>> {
        if !self.is_open() {
            return None;
        }
        self.turn_near(self.own(), now)
    }

    fn turn_near(&self, own: usize, now: Instant) -> Option<Turn<'_>> {
        let chosen = self.choose(own, now);
        let elsewhere = (chosen != own).then(|| &*self.lines[chosen]);
        let turn = elsewhere
            .and_then(|line| line.turn(line.crowd_now()?))
            .or_else(|| self.lines[own].turn(self.lines[own].crowd()?))
            .or_else(|| {
                self.others(own)
                    .find_map(|line| line.turn(line.crowd_now()?))
            })?;
        (turn.waited(now) < self.patience()).then_some(turn)
    }

    /// The other lines.
    fn others(&self, own: usize) -> impl Iterator<Item = &Line> {
        let (before, after) = self.lines.split_at(own);
        after[1..].iter().chain(before).map(|line| &**line)
    }

    /// In which line to serve.
    fn choose(&self, own: usize, now: Instant) -> usize {
        let line = &self.lines[own];
        let turns = line.turns.load(Ordering::Relaxed);
        let first = line.first.load(Ordering::Relaxed);
        if turns > 0 && first != NOBODY {
            line.turns.store(turns - 1, Ordering::Relaxed);
            return own;
        }
        let firsts = self.lines.iter().enumerate();
        let firsts = firsts.map(|(at, line)| (line.first.load(Ordering::Relaxed), at));
        let (other, at) = firsts.min().expect("there is a line");
        // As long as others wait for much longer they are served first.
        let slack = now.as_nanos().saturating_sub(first) / SLACK;
        if other.saturating_add(slack) < first {
            return at;
        }
        line.turns.store(LOOK_EVERY, Ordering::Relaxed);
        own
    }

    #[inline]
    fn own(&self) -> usize {
        thread_number() & (self.lines.len() - 1)
    }
}

impl Turn<'_> {
    /// How long it has waited.
    fn waited(&self, now: Instant) -> Duration {
        let sent = self.crowd.waiting.front().map_or(now, |apart| apart.sent);
        now.max(sent).since(sent)
    }

    /// Give it the member of this slot, which lies in its place, and free the
    /// cell of who held that for so long. Says whom to wake.
    pub(super) fn serve(
        self,
        (slot, cell): (u32, u32),
        held: Duration,
        now: Instant,
        cells: &Slots<Cell>,
    ) -> Waker {
        let waited = self.waited(now);
        let Self { line, mut crowd } = self;
        let served = crowd.waiting.pop_front();
        let Apart { sent, reply, .. } = served.expect("somebody's turn it is");
        line.show_first(&crowd);
        if cell != NO_CELL {
            crowd.cells.push(cell);
        }
        if let Some(served) = &mut crowd.served {
            served.waits.record(waited);
            served.holds.record(held);
        }
        let lead = sent.lead_over(now.max(sent));
        cells.get(reply.cell).grant(&Grant { slot, lead, waited });
        reply.waker
    }
}

impl Line {
    fn new() -> Self {
        let crowd = Crowd {
            waiting: VecDeque::new(),
            cells: Vec::new(),
            served: None,
        };
        Self {
            open: AtomicBool::new(false),
            first: AtomicU64::new(NOBODY),
            turns: AtomicU32::new(0),
            crowd: Latch::new(crowd),
        }
    }

    #[inline]
    fn is_open(&self) -> bool {
        self.open.load(Ordering::Relaxed)
    }

    /// Alone with who waits here, if the porch is open.
    #[inline]
    fn crowd(&self) -> Option<LatchGuard<'_, Crowd>> {
        let crowd = latch(&self.crowd);
        self.is_open().then_some(crowd)
    }

    /// As `crowd`, unless somebody else is here and does not leave.
    fn crowd_now(&self) -> Option<LatchGuard<'_, Crowd>> {
        latch_soon(&self.crowd).filter(|_| self.is_open())
    }

    /// The turn of who came first, if somebody waits.
    #[inline]
    fn turn<'a>(&'a self, crowd: LatchGuard<'a, Crowd>) -> Option<Turn<'a>> {
        let is_empty = crowd.waiting.is_empty();
        (!is_empty).then_some(Turn { line: self, crowd })
    }

    #[inline]
    fn show_first(&self, crowd: &Crowd) {
        let first = crowd.waiting.front().map(|apart| apart.sent.as_nanos());
        self.first.store(first.unwrap_or(NOBODY), Ordering::Relaxed);
    }
}

#[cfg(all(test, rideau_loom))]
mod models;
#[cfg(all(test, not(rideau_loom)))]
mod tests;
