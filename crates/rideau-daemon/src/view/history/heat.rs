//! How many waits were how long, column by column, for heat maps.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

/// The upper bounds of the rows, in microseconds; above the last one is one row more.
pub(crate) const BOUNDS_US: [u64; 16] = [
    100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000,
    1_000_000, 2_000_000, 5_000_000, 10_000_000,
];
/// Rows of a column.
pub(crate) const ROWS: usize = BOUNDS_US.len() + 1;
/// Columns that are kept of each thing.
pub(crate) const COLUMNS: usize = 120;
/// Things of which they are kept: all of them take 4 MB.
const THINGS_MAX: usize = 512;

/// Waits of one column, by row.
pub(crate) type Column = [u32; ROWS];

/// The columns of all things.
pub(super) struct Heats {
    /// A column is of this many samples.
    each: u32,
    of: HashMap<String, Heat>,
}

/// The columns of one thing, the newest last. The last one still grows.
#[derive(Default)]
struct Heat {
    columns: VecDeque<Column>,
    samples: u32,
    is_seen: bool,
}

/// The row of a wait.
pub(super) fn row(wait: Duration) -> usize {
    let micros = u64::try_from(wait.as_micros()).unwrap_or(u64::MAX);
    BOUNDS_US.partition_point(|bound| *bound < micros)
}

impl Heats {
    /// Columns for so long, of samples that are so far apart.
    pub(super) fn new(span: Duration, step: Duration) -> Self {
        let samples = span.as_nanos() / step.as_nanos().max(1);
        let each = samples / COLUMNS as u128;
        Self {
            each: u32::try_from(each).unwrap_or(u32::MAX).max(1),
            of: HashMap::new(),
        }
    }

    /// The new waits of a thing.
    pub(super) fn add(&mut self, name: &str, waits: &Column) {
        if !self.of.contains_key(name) {
            if self.of.len() >= THINGS_MAX {
                return;
            }
            self.of.insert(name.to_owned(), Heat::default());
        }
        let heat = self
            .of
            .get_mut(name)
            .expect("it was put in if it was missing");
        heat.is_seen = true;
        if heat.columns.is_empty() || heat.samples == self.each {
            if heat.columns.len() == COLUMNS {
                heat.columns.pop_front();
            }
            heat.columns.push_back([0; ROWS]);
            heat.samples = 0;
        }
        heat.samples += 1;
        let column = heat.columns.back_mut().expect("one was put in");
        for (sum, count) in column.iter_mut().zip(waits) {
            *sum = sum.saturating_add(*count);
        }
    }

    /// All things had their turn: what was not among them is forgotten.
    pub(super) fn end(&mut self) {
        self.of.retain(|_, heat| std::mem::take(&mut heat.is_seen));
    }

    /// The columns of a thing, the oldest first.
    pub(super) fn columns(&self, name: &str) -> Vec<Column> {
        let heat = self.of.get(name);
        heat.map_or_else(Vec::new, |heat| heat.columns.iter().copied().collect())
    }

    /// How long a column is, in samples.
    pub(super) const fn each(&self) -> u32 {
        self.each
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_in_the_row_whose_bound_it_does_not_exceed() {
        let row_of = |micros| row(Duration::from_micros(micros));
        assert_eq!([row_of(0), row_of(100), row_of(101)], [0, 0, 1]);
        assert_eq!(row_of(10_000_000), ROWS - 2);
        assert_eq!(row_of(10_000_001), ROWS - 1);
    }

    #[test]
    fn a_column_sums_up_samples_and_old_ones_go() {
        let mut heats = Heats::new(Duration::from_secs(240), Duration::from_secs(1));
        assert_eq!(heats.each(), 2);
        let mut waits = [0; ROWS];
        for sample in 0..(2 * COLUMNS as u32 + 3) {
            waits[3] = sample;
            heats.add("broker.a", &waits);
            heats.end();
        }
        let columns = heats.columns("broker.a");
        assert_eq!(columns.len(), COLUMNS);
        let newest = 2 * COLUMNS as u32 + 2;
        assert_eq!(columns[COLUMNS - 1][3], newest);
        assert_eq!(columns[COLUMNS - 2][3], newest - 1 + newest - 2);
        heats.end();
        assert!(heats.columns("broker.a").is_empty(), "it has gone");
    }
}
