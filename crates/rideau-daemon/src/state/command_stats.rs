//! How often each command was executed, and how long that took.
//!
//! A connection looks at the clock once when it has read something and once when all of
//! that is done: commands that came together share the time that they took together. A
//! command that waits is timed alone, from its turn to its answer. Reading and writing
//! are not in it. Every command is counted, at the end of what came with it.

use std::sync::atomic::{AtomicU64, Ordering};

/// Up to how many nanoseconds each column counts; the last has no end.
const BOUNDS: [u64; 14] = [
    10_000,
    50_000,
    100_000,
    500_000,
    1_000_000,
    5_000_000,
    10_000_000,
    50_000_000,
    100_000_000,
    500_000_000,
    1_000_000_000,
    5_000_000_000,
    10_000_000_000,
    30_000_000_000,
];

/// This many connections can count at a time without a thought of each other.
const SHARDS: usize = 4;

/// The numbers of all commands since the start.
pub(crate) struct CommandStats {
    names: &'static [&'static str],
    rows: Box<[Row]>,
}

/// One command in one shard. The next begins where no other processor writes.
#[derive(Default)]
#[repr(align(64))]
struct Row {
    columns: [AtomicU64; BOUNDS.len() + 1],
    nanos: AtomicU64,
    failed: AtomicU64,
}

/// The commands that a connection executed in one batch.
#[derive(Debug, Default)]
pub(crate) struct Batch(Vec<Run>);

/// This many of one command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    at: usize,
    count: u64,
    failed: u64,
}

/// The numbers of one command.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Timing {
    /// Its name.
    pub command: &'static str,
    /// How often it was answered with an error.
    pub failed: u64,
    /// How often it was answered otherwise.
    pub done: u64,
    /// How many seconds all of that took.
    pub sum: f64,
    /// How many took this many seconds at most, and more than the one before.
    pub columns: Vec<(f64, u64)>,
}

/// The label of unknown commands.
const UNKNOWN: &str = "unknown";

/// The names of all commands, in the order of their table.
pub(crate) type CommandNames = &'static [&'static str];

impl CommandStats {
    /// Nothing yet, of the commands with these names.
    pub(crate) fn new(names: &'static [&'static str]) -> Self {
        let rows = SHARDS * (names.len() + 1);
        Self {
            names,
            rows: (0..rows).map(|_| Row::default()).collect(),
        }
    }

    /// The name of the command at this place of the table; nothing if there is none.
    pub(crate) fn name(&self, at: usize) -> &'static str {
        self.names.get(at).copied().unwrap_or_default()
    }

    /// The rows of the command at this place, one of each shard.
    fn rows(&self, at: usize) -> impl Iterator<Item = &Row> {
        self.rows.iter().skip(at).step_by(self.names.len() + 1)
    }

    /// Count what a connection did, which took this many nanoseconds.
    pub(crate) fn add(&self, connection: u64, batch: &mut Batch, nanos: u64) {
        let count: u64 = batch.0.iter().map(|run| run.count).sum();
        let each = nanos / count.max(1);
        for run in batch.0.drain(..) {
            self.add_run(connection, run, each);
        }
    }

    /// Count some of one command, each of which took this many nanoseconds.
    pub(crate) fn add_run(&self, connection: u64, run: Run, nanos: u64) {
        let shard = connection as usize % SHARDS;
        let row = &self.rows[shard * (self.names.len() + 1) + run.at];
        let bound = BOUNDS.iter().position(|bound| nanos <= *bound);
        let column = &row.columns[bound.unwrap_or(BOUNDS.len())];
        column.fetch_add(run.count, Ordering::Relaxed);
        row.nanos.fetch_add(nanos * run.count, Ordering::Relaxed);
        if run.failed > 0 {
            row.failed.fetch_add(run.failed, Ordering::Relaxed);
        }
    }

    /// Times of the commands that were executed, in the order of the table.
    pub(crate) fn all(&self) -> Vec<Timing> {
        let names = self.names.iter().copied();
        let all = names.chain([UNKNOWN]).enumerate();
        let all = all.map(|(at, name)| self.of(at, name));
        all.filter(|one| one.done + one.failed > 0).collect()
    }

    /// How often a command was executed.
    pub(crate) fn count(&self, command: &str) -> u64 {
        let Some(at) = self.names.iter().position(|name| *name == command) else {
            return 0;
        };
        let columns = self.rows(at).flat_map(|row| &row.columns);
        columns.map(|column| column.load(Ordering::Relaxed)).sum()
    }

    fn of(&self, at: usize, command: &'static str) -> Timing {
        let mut counts = [0; BOUNDS.len() + 1];
        let (mut nanos, mut failed) = (0, 0);
        for row in self.rows(at) {
            for (count, column) in counts.iter_mut().zip(&row.columns) {
                *count += column.load(Ordering::Relaxed);
            }
            nanos += row.nanos.load(Ordering::Relaxed);
            failed += row.failed.load(Ordering::Relaxed);
        }
        let bounds = BOUNDS.iter().map(|bound| *bound as f64 / 1e9);
        let columns = bounds.chain([f64::INFINITY]).zip(counts).collect();
        Timing {
            command,
            failed,
            done: counts.iter().sum::<u64>().saturating_sub(failed),
            sum: nanos as f64 / 1e9,
            columns,
        }
    }
}

impl Batch {
    /// One more of the command at this place of the table.
    #[inline]
    pub(crate) fn add(&mut self, at: usize) {
        match self.0.last_mut() {
            Some(run) if run.at == at => run.count += 1,
            _ => self.add_other(at),
        }
    }

    /// One that has no name we know, behind all of the table: it failed.
    #[cold]
    pub(crate) fn add_unknown(&mut self, behind: usize) {
        self.add(behind);
        self.fail();
    }

    /// The last one failed.
    #[cold]
    pub(crate) fn fail(&mut self) {
        if let Some(run) = self.0.last_mut() {
            run.failed += 1;
        }
    }

    /// Nothing is to be counted.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The last one waits, and is counted alone.
    pub(crate) fn take_last(&mut self) -> Option<Run> {
        let last = self.0.last_mut()?;
        last.count -= 1;
        let at = last.at;
        if last.count == 0 {
            self.0.pop();
        }
        Some(Run {
            at,
            count: 1,
            failed: 0,
        })
    }

    /// Clients that mix commands mix few: the last of them is always the last.
    fn add_other(&mut self, at: usize) {
        match self.0.iter().position(|run| run.at == at) {
            Some(known) => {
                let mut run = self.0.remove(known);
                run.count += 1;
                self.0.push(run);
            }
            None => self.0.push(Run {
                at,
                count: 1,
                failed: 0,
            }),
        }
    }
}

impl Run {
    /// It was answered with an error.
    pub(crate) fn failed(mut self, is_failed: bool) -> Self {
        self.failed = u64::from(is_failed);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_together_shares_its_time() {
        let (timings, mut batch) = (CommandStats::new(&["LOCK", "TAKE"]), Batch::default());
        for at in [0, 1, 0, 1, 1] {
            batch.add(at);
        }
        batch.fail();
        batch.add_unknown(2);
        timings.add(7, &mut batch, 6 * 20_000);
        assert!(batch.is_empty());
        let [first, second, unknown] = timings.all().try_into().unwrap();
        assert_eq!((first.done, first.failed), (2, 0));
        assert_eq!((second.done, second.failed), (2, 1));
        assert_eq!((unknown.command, unknown.failed), ("unknown", 1));
        assert_eq!(first.sum, 40e-6);
        assert_eq!(second.columns[1], (50e-6, 3));
    }

    #[test]
    fn a_command_that_waits_is_timed_alone() {
        let (timings, mut batch) = (CommandStats::new(&["LOCK", "TAKE"]), Batch::default());
        batch.add(0);
        batch.add(0);
        let waits = batch.take_last().unwrap().failed(true);
        timings.add(1, &mut batch, 1_000);
        timings.add_run(2, waits, 60_000_000_000);
        let [timing] = timings.all().try_into().unwrap();
        assert_eq!((timing.done, timing.failed), (1, 1));
        assert_eq!(timing.columns[0].1, 1);
        assert_eq!(timing.columns[14], (f64::INFINITY, 1));
        assert!(batch.take_last().is_none());
    }
}
