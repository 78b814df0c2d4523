//! Counts of a range that nodes report to each other.

use rideau::allocator::{RangeStats, Size};

/// How many values of a range are in which state, on one node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RangeNumbers {
    size: Size,
    free: Size,
    quarantined: Size,
    reserved: u64,
    detached: u64,
    cooling: u64,
    tiers: Vec<u64>,
}

impl RangeNumbers {
    /// The counts of this node.
    pub(crate) fn of(stats: &RangeStats) -> Self {
        Self {
            size: stats.size,
            free: stats.free,
            quarantined: stats.quarantined,
            reserved: stats.reserved,
            detached: stats.detached,
            cooling: stats.cooling,
            tiers: stats.tiers.to_vec(),
        }
    }

    /// As other nodes read it.
    pub(crate) fn write(&self) -> Vec<u8> {
        let sizes = [self.size, self.free, self.quarantined];
        let counts = [self.reserved, self.detached, self.cooling];
        let sizes = sizes.iter().map(ToString::to_string);
        let counts = counts.iter().chain(&self.tiers).map(ToString::to_string);
        let all: Vec<String> = sizes.chain(counts).collect();
        all.join(" ").into_bytes()
    }

    /// Parses the counts of another node.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let mut words = str::from_utf8(bytes).ok()?.split(' ');
        // Of all numbers only one is too large for this: that of all there are.
        let mut size = || {
            let word = words.next()?;
            let small = word.parse::<u128>().ok();
            Some(small.map_or(Size::ALL, Size::new))
        };
        let (all, free, quarantined) = (size()?, size()?, size()?);
        let mut counts = words.map(|word| word.parse().ok());
        let mut count = || counts.next().flatten();
        Some(Self {
            size: all,
            free,
            quarantined,
            reserved: count()?,
            detached: count()?,
            cooling: count()?,
            tiers: counts.collect::<Option<_>>()?,
        })
    }

    /// Add what another node has to what this one has.
    pub(crate) fn add_to(&self, stats: &mut RangeStats) {
        stats.size = stats.size.saturating_add(self.size);
        stats.free = stats.free.saturating_add(self.free);
        stats.quarantined = stats.quarantined.saturating_add(self.quarantined);
        stats.reserved += self.reserved;
        stats.detached += self.detached;
        stats.cooling += self.cooling;
        for (sum, tier) in stats.tiers.iter_mut().zip(&self.tiers) {
            *sum += tier;
        }
    }
}
