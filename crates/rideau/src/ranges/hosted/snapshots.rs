//! Snapshots of partitions that the node wants, a piece between two turns.

use std::sync::Arc;

use rideau_core::allocator::{Entry, SnapshotAt};

use super::commit::{NodeCommitter, Round};
use crate::ranges::ownership::Ownership;

/// A chunk has at most this many bytes.
const CHUNK: usize = 256 * 1024;

impl NodeCommitter {
    /// Begin, go on with or end a snapshot, as is due.
    pub(super) fn snapshot_some(&mut self) {
        let Some(mut round) = self.round.take() else {
            self.begin_snapshot();
            return;
        };
        let Ownership {
            partition, epoch, ..
        } = *round.ownership;
        let mut piece = Vec::with_capacity(CHUNK);
        let has_more = {
            let shared = &self.turns.shared;
            let inner = &mut *shared.inner.lock();
            if !inner.hosted().has(&round.ownership) {
                return;
            }
            if round.chunks.is_empty() {
                // Perhaps nothing is logged for long after it.
                let clock = inner.many().clock(partition, shared.clock.written());
                Entry::Clock(clock).put(&mut piece);
            }
            let bytes = CHUNK - piece.len();
            let machine = &inner.machine;
            machine.snapshot(partition as usize, &mut round.at, bytes, &mut piece)
        };
        let mut rest = &piece[..];
        while !rest.is_empty() {
            let (chunk, after) = rest.split_at(Entry::whole(rest, CHUNK));
            round.chunks.push(chunk.to_vec());
            rest = after;
        }
        if has_more {
            self.round = Some(round);
            return;
        }
        // What the last piece shows is appended before the snapshot counts.
        let turn = {
            let shared = Arc::clone(&self.turns.shared);
            let inner = &mut *shared.inner.lock();
            self.take(inner, false)
        };
        self.carry_out(turn);
        let is_here = {
            let inner = &mut *self.turns.shared.inner.lock();
            inner.hosted().has(&round.ownership)
        };
        if is_here {
            self.log.snapshotted(partition, epoch, round.chunks);
        }
    }

    fn begin_snapshot(&mut self) {
        let ownership = {
            let inner = &mut *self.turns.shared.inner.lock();
            let hosted = inner.hosted();
            loop {
                match hosted.snapshots.pop_front() {
                    None => return,
                    Some(wanted) if hosted.has(&wanted) => break wanted,
                    Some(_) => (),
                }
            }
        };
        let Ownership {
            partition, epoch, ..
        } = *ownership;
        self.log.snapshot_begun(partition, epoch);
        self.round = Some(Round {
            ownership,
            at: SnapshotAt::default(),
            chunks: Vec::new(),
        });
    }
}
