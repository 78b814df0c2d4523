//! Snapshots that are taken between two batches, a piece each time.
//!
//! When one is due, each part gets a new one in its turn: then no part needs the logs
//! from before the first of them.

use std::sync::Arc;
use std::time;

use rideau_core::allocator::{Entry, SnapshotAt};

use super::Committer;
use crate::store::StoreError;

/// A piece of a snapshot has about this many bytes.
const CHUNK: usize = 256 * 1024;

/// A snapshot of one part after the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Round {
    part: usize,
    at: SnapshotAt,
    /// How many bytes it has so far.
    bytes: u64,
}

impl Committer {
    /// Begin, go on with or end a snapshot, as is due.
    pub(super) fn snapshot_some(&mut self) -> Result<(), StoreError> {
        let Some(mut round) = self.round.take() else {
            let log_bytes_min = self.log_bytes_min.max(2 * self.last_snapshot_bytes);
            let is_late = |at: time::Instant| time::Instant::now() < at;
            if self.store.log_bytes() > log_bytes_min && !self.snapshot_after.is_some_and(is_late) {
                self.begin_snapshot(0, 0)?;
            }
            return Ok(());
        };
        // Many records are smaller than what such a piece may be too long by.
        let len = CHUNK.min(self.store.batch_len_max() / 2);
        let mut chunk = Vec::with_capacity(len + 4096);
        let has_more = {
            let inner = self.turns.shared.inner.lock();
            inner
                .machine
                .snapshot(round.part, &mut round.at, len, &mut chunk)
        };
        round.bytes += self.put_chunk(&chunk)?;
        if has_more {
            self.round = Some(round);
            return Ok(());
        }
        self.end_snapshot()?;
        if round.part + 1 < self.taken.parts() {
            return self.begin_snapshot(round.part + 1, round.bytes);
        }
        self.last_snapshot_bytes = round.bytes;
        Ok(())
    }

    /// The clocks are in it too: perhaps nothing is logged for long after it.
    fn begin_snapshot(&mut self, part: usize, before: u64) -> Result<(), StoreError> {
        self.store.begin_snapshot(part as u32)?;
        let mut clocks = Vec::new();
        Entry::Clock(self.turns.shared.clock.written()).put(&mut clocks);
        let bytes = before + self.put_chunk(&clocks)?;
        let at = SnapshotAt::default();
        self.round = Some(Round { part, at, bytes });
        Ok(())
    }

    /// Put the chunks of this that the store takes. Says how many bytes they have.
    fn put_chunk(&mut self, chunk: &[u8]) -> Result<u64, StoreError> {
        let len_max = self.store.batch_len_max();
        let mut rest = chunk;
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(Entry::whole(rest, len_max));
            self.store.put_chunk(piece)?;
            rest = after;
        }
        Ok(chunk.len() as u64)
    }

    /// Ends the snapshot. Changes up to its last piece are logged first.
    fn end_snapshot(&mut self) -> Result<(), StoreError> {
        let turn = {
            let shared = Arc::clone(&self.turns.shared);
            let mut inner = shared.inner.lock();
            self.take(&mut inner, false)
        };
        let turn = self.commit_turn(turn)?;
        self.turns.publish(turn.number, turn.events);
        self.store.end_snapshot()
    }
}
