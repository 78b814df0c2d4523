//! Log entries of all parts that one turn took, until they are written.
//!
//! Usually that is one batch with a section for each part that logged something. What is
//! more than the store would have in one batch goes into another.

use std::ops::Range;
use std::time::Duration;

use rideau_core::Instant;
use rideau_core::allocator::Entry;

use super::clocks::Continued;
use crate::store::{BatchSection, Store, StoreError};

/// The clocks are written down as often, if anything is: it takes as long as a
/// small batch.
const CLOCKS: Duration = Duration::from_millis(100);

pub(super) struct TakenLogs {
    /// By part.
    logs: Vec<Vec<u8>>,
    /// The parts whose logs are not empty.
    touched: Vec<usize>,
    /// This many bytes of them are written all the same,
    written: usize,
    /// and this many if the last try succeeds later.
    tried: usize,
    /// When the clocks were last written down in each part.
    clocks: Vec<Option<Instant>>,
    /// The batch for the store, if it is not all that was taken.
    batch: Vec<u8>,
}

impl TakenLogs {
    pub(super) fn new(parts: usize) -> Self {
        Self {
            logs: vec![Vec::new(); parts],
            touched: Vec::with_capacity(parts),
            written: 0,
            tried: 0,
            clocks: vec![None; parts],
            batch: Vec::new(),
        }
    }

    pub(super) fn parts(&self) -> usize {
        self.logs.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.touched.is_empty()
    }

    /// Take what a part has logged, and leave an empty log behind.
    pub(super) fn take(&mut self, part: usize, log: &mut Vec<u8>) {
        debug_assert!(
            self.logs[part].is_empty(),
            "what was taken has been written"
        );
        if !log.is_empty() {
            std::mem::swap(&mut self.logs[part], log);
            self.touched.push(part);
        }
    }

    /// The last batch is written after all.
    pub(super) fn resume(&mut self) {
        self.written = self.tried;
    }

    /// Make all of it safe. If that fails, what is not written is kept for later.
    pub(super) fn write(
        &mut self,
        store: &mut dyn Store,
        clock: &Continued,
        is_last: bool,
    ) -> Result<(), StoreError> {
        if self.is_empty() {
            return Ok(());
        }
        let now = clock.now();
        let is_fresh = |part: &usize| self.clocks[*part].is_some_and(|at| now < at + CLOCKS);
        let has_clocks = self.touched.iter().all(is_fresh);
        let fits = self.len() <= store.batch_len_max();
        if has_clocks && !is_last && fits && self.written == 0 {
            self.tried = self.len();
            match self.touched[..] {
                [part] => store.append(&[self.section(part)])?,
                _ => store.append(&self.sections())?,
            }
        } else {
            self.append_with_clocks(store, clock)?;
            for part in &self.touched {
                self.clocks[*part] = Some(now);
            }
        }
        self.forget();
        Ok(())
    }

    /// Nothing of it is to be written.
    pub(super) fn forget(&mut self) {
        for part in self.touched.drain(..) {
            self.logs[part].clear();
        }
        (self.written, self.tried) = (0, 0);
    }

    fn len(&self) -> usize {
        let logs = self.touched.iter().map(|part| &self.logs[*part]);
        logs.map(Vec::len).sum()
    }

    fn section(&self, part: usize) -> BatchSection<'_> {
        BatchSection {
            partition: part as u32,
            bytes: &self.logs[part],
        }
    }

    fn sections(&self) -> Vec<BatchSection<'_>> {
        let touched = self.touched.iter();
        touched.map(|part| self.section(*part)).collect()
    }

    /// In each part the clocks come first, so that nothing follows the word that it
    /// stopped.
    fn append_with_clocks(
        &mut self,
        store: &mut dyn Store,
        clock: &Continued,
    ) -> Result<(), StoreError> {
        let mut clocks = Vec::new();
        Entry::Clock(clock.written()).put(&mut clocks);
        let len_max = store.batch_len_max();
        let mut begun = None;
        while self.written < self.len() {
            let cuts = self.fill_batch(len_max, &clocks, &mut begun);
            let sections = cuts.into_iter().map(|(part, cut)| BatchSection {
                partition: part as u32,
                bytes: &self.batch[cut],
            });
            let sections: Vec<BatchSection<'_>> = sections.collect();
            store.append(&sections)?;
            self.written = self.tried;
        }
        Ok(())
    }

    /// Put the next batch together, and say where the sections are in it. Parts come in
    /// order, and the last that was begun has its clocks.
    fn fill_batch(
        &mut self,
        len_max: usize,
        clocks: &[u8],
        begun: &mut Option<usize>,
    ) -> Vec<(usize, Range<usize>)> {
        self.batch.clear();
        self.tried = self.written;
        let mut cuts = Vec::new();
        let mut before = 0;
        for part in self.touched.iter().copied() {
            let log = &self.logs[part];
            let rest = &log[self.tried.saturating_sub(before).min(log.len())..];
            before += log.len();
            if rest.is_empty() {
                continue;
            }
            let clocks = if *begun == Some(part) { &[] } else { clocks };
            let room = len_max.saturating_sub(self.batch.len() + clocks.len());
            let whole = Entry::whole(rest, room);
            if whole > room && !cuts.is_empty() {
                break;
            }
            let start = self.batch.len();
            self.batch.extend_from_slice(clocks);
            self.batch.extend_from_slice(&rest[..whole]);
            cuts.push((part, start..self.batch.len()));
            *begun = Some(part);
            self.tried += whole;
            if whole < rest.len() {
                break;
            }
        }
        cuts
    }
}
