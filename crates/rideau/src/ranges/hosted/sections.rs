//! Log entries of all partitions that one turn took, until they are appended.

use std::sync::Arc;

use rideau_core::allocator::Entry;

use crate::ranges::ownership::Ownership;
use crate::store::OwnedSection;

/// The entries of one partition in a turn.
pub(super) struct TakenSection {
    pub(super) ownership: Arc<Ownership>,
    pub(super) bytes: Vec<u8>,
    /// This many of them are in the next call,
    cut: usize,
    /// and this many were in earlier ones.
    written: usize,
    /// Nothing more of it can be written.
    pub(super) is_lost: bool,
}

impl TakenSection {
    pub(super) const fn new(ownership: Arc<Ownership>, bytes: Vec<u8>) -> Self {
        Self {
            ownership,
            bytes,
            cut: 0,
            written: 0,
            is_lost: false,
        }
    }

    fn rest(&self) -> &[u8] {
        match self.is_lost {
            true => &[],
            false => &self.bytes[self.written..],
        }
    }
}

/// Choose what the next call has, of at most this many bytes: whole entries, and one at
/// least. There is nothing if all is written.
pub(super) fn cut(sections: &mut [TakenSection], len_max: usize) -> Vec<OwnedSection<'_>> {
    let mut room = len_max;
    let mut is_full = false;
    for section in &mut *sections {
        let rest = section.rest();
        let whole = match is_full || rest.is_empty() {
            true => 0,
            false => Entry::whole(rest, room),
        };
        let fits = whole <= room || room == len_max;
        // The order between partitions is free, but the sections of a call are filled
        // from the first on.
        is_full |= whole < rest.len() || !fits;
        let cut = if fits { whole } else { 0 };
        room = room.saturating_sub(cut);
        section.cut = cut;
    }
    let chosen = sections.iter().filter(|section| section.cut > 0);
    chosen
        .map(|section| OwnedSection {
            partition: section.ownership.partition,
            epoch: section.ownership.epoch,
            bytes: &section.rest()[..section.cut],
        })
        .collect()
}

/// The cut sections are written, except those of these partitions.
pub(super) fn written(sections: &mut [TakenSection], lost: &[u32]) {
    for section in sections.iter_mut().filter(|section| section.cut > 0) {
        section.written += std::mem::take(&mut section.cut);
        section.is_lost |= lost.contains(&section.ownership.partition);
    }
}
