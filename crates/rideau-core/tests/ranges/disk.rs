//! What is written down and what is not yet, with the truth at each moment.

use std::time::Duration;

use rideau_core::Instant;
use rideau_core::allocator::{Allocator, Clock, Entry, Restore, SnapshotAt};

use crate::model::Model;

/// A store that loses what is not safe, and snapshots in small pieces.
#[derive(Default)]
pub(crate) struct Disk {
    snapshot: Vec<Vec<u8>>,
    log: Vec<Vec<u8>>,
    flight: Vec<Batch>,
    building: Option<Building>,
    /// What is true if everything is lost that is not safe.
    pub(crate) safe: Model,
}

struct Batch {
    bytes: Vec<u8>,
    position: u64,
    model: Model,
}

#[derive(Default)]
struct Building {
    at: SnapshotAt,
    pieces: Vec<Vec<u8>>,
    log_from: usize,
}

impl Disk {
    /// Close a batch: it is on its way.
    pub(crate) fn write(&mut self, log: &[u8], position: u64, now: Instant, model: &Model) {
        let mut bytes = Vec::new();
        Entry::Clock(Clock {
            now,
            wall: 0,
            boot: 0,
            since_boot: Duration::ZERO,
        })
        .put(&mut bytes);
        bytes.extend_from_slice(log);
        self.flight.push(Batch {
            bytes,
            position,
            model: model.clone(),
        });
    }

    /// The oldest batch that is on its way is safe.
    pub(crate) fn sync(&mut self) -> Option<u64> {
        if self.flight.is_empty() {
            return None;
        }
        let batch = self.flight.remove(0);
        self.log.push(batch.bytes);
        self.safe = batch.model;
        Some(batch.position)
    }

    /// All that is not safe is lost.
    pub(crate) fn crash(&mut self) {
        self.flight.clear();
        self.building = None;
    }

    /// Take a piece of a snapshot. True if it was the last: then all has to be
    /// safe before it counts.
    pub(crate) fn snapshot(&mut self, machine: &Allocator, bytes: usize) -> bool {
        let log_from = self.log.len();
        let building = self.building.get_or_insert_with(|| Building {
            log_from,
            ..Building::default()
        });
        let mut piece = Vec::new();
        let has_more = machine.snapshot(&mut building.at, bytes, &mut piece);
        building.pieces.push(piece);
        !has_more
    }

    pub(crate) fn end_snapshot(&mut self) {
        assert!(self.flight.is_empty(), "all is safe first");
        let Some(building) = self.building.take() else {
            return;
        };
        self.snapshot = building.pieces;
        self.log.drain(..building.log_from);
    }

    pub(crate) fn load(&self, restore: &mut Restore) {
        for bytes in self.snapshot.iter().chain(&self.log) {
            restore.read(bytes).unwrap();
        }
    }
}
