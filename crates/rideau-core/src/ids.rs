//! Names of asks, of groups of asks, of flows, of priorities, and of the two sides.

use std::hash::{Hash, Hasher};

/// One ask from its start to its end: the id of the wait, then of the lease.
///
/// A ticket is never given twice by one machine, so a late cancel or release
/// cannot reach another ask.
// Packed, for every wait has one, and the waits of a million are counted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(C, packed(4))]
pub struct Ticket {
    pub(crate) serial: u64,
    pub(crate) slot: u32,
}

impl Ticket {
    /// A number that no other ticket of the same machine has.
    pub const fn serial(self) -> u64 {
        self.serial
    }
}

/// A name that an asker chooses, and may share among many asks, to cancel
/// them together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Tag(pub u64);

/// The flow of an ask in a fair queue: a tenant, a user, an address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Flow(pub u64);

impl Flow {
    /// The flow of anything that can be hashed, the same in every process.
    pub fn of<K: Hash + ?Sized>(key: &K) -> Self {
        let mut hasher = Fnv(0xcbf2_9ce4_8422_2325);
        key.hash(&mut hasher);
        Self(hasher.finish())
    }
}

/// Which take is served before which. Each priority has a line of its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Priority {
    /// Before all others.
    Urgent,
    /// As usual.
    #[default]
    Normal,
    /// When no other take waits.
    Background,
}

impl Priority {
    /// Every priority, the first served first.
    pub const ALL: [Self; 3] = [Self::Urgent, Self::Normal, Self::Background];
}

/// The two sides that meet: one asks, and the other offers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Side {
    /// The side that wants a thing.
    Ask,
    /// The side that brings itself as a thing.
    Offer,
}

/// FNV-1a with a final mix: std's hasher is not promised to stay the same.
struct Fnv(u64);

impl Hasher for Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn finish(&self) -> u64 {
        crate::rng::mix(self.0)
    }
}
