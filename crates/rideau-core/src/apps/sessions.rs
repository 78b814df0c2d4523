//! The sessions that are open.

use crate::time::Instant;

use super::effect::{ProcessId, SessionId};

/// One session: where it is, and since when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Open {
    pub(super) process: ProcessId,
    /// The slot that the process has, or had.
    pub(super) slot: u32,
    pub(super) app: u32,
    /// The code of the process.
    pub(super) generation: u64,
    pub(super) since: Instant,
    pub(super) streamed: Streamed,
    /// Chance led it to its process, between new code and old; and with what chance to the
    /// new.
    pub(super) drawn: Option<f64>,
}

/// Whether a session is a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Streamed {
    No,
    /// It is, and still takes a place.
    Counted,
    /// It is, and takes none.
    Aside,
}

/// Open sessions by number.
///
/// Invariant: a serial is given once; zero stands for a free entry.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    entries: Vec<(u64, Open)>,
    free: Vec<u32>,
    last: u64,
}

impl Sessions {
    pub(super) fn open(&mut self, open: Open) -> SessionId {
        self.last += 1;
        let (serial, process) = (self.last, open.process);
        let entry = if let Some(entry) = self.free.pop() {
            self.entries[entry as usize] = (serial, open);
            entry
        } else {
            self.entries.push((serial, open));
            u32::try_from(self.entries.len() - 1).expect("sessions are numbered by 32 bits")
        };
        SessionId {
            process,
            serial,
            entry,
        }
    }

    pub(super) fn close(&mut self, id: SessionId) -> Option<Open> {
        let (serial, open) = self.entries.get_mut(id.entry as usize)?;
        if *serial != id.serial {
            return None;
        }
        *serial = 0;
        let open = *open;
        self.free.push(id.entry);
        Some(open)
    }

    pub(super) fn at_mut(&mut self, id: SessionId) -> Option<&mut Open> {
        let (serial, open) = self.entries.get_mut(id.entry as usize)?;
        (*serial == id.serial).then_some(open)
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// All that are open.
    pub(super) fn all(&self) -> impl Iterator<Item = &Open> {
        let open = self.entries.iter().filter(|(serial, _)| *serial != 0);
        open.map(|(_, open)| open)
    }
}
