//! Where a record is found.

/// Number of a record; it stays the same as long as the record is there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Slot(pub(super) u32);

impl Slot {
    /// The upper bit of a slot's number is never set.
    pub(super) const MAX: u32 = (1 << 31) - 1;
}
