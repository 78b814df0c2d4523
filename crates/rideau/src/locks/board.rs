//! Where it is written down that there may be keys that are not held.
//!
//! A board has a bit for each shard. Every rule has a board: the first ones have
//! one each, and further ones share. A holder that gives the last unit of a key
//! back, or needs it pinned no longer, marks the shard on the board of the key's
//! rule, unless it is marked already; a holder that got it by a handle leaves that
//! to the handle. A thread that looks for such keys, the sweeper or a caller that
//! wants room, clears the marks of a shard, looks at every key that is there, and
//! marks it anew for those that it leaves.
//!
//! # Why the rule may be an old one
//!
//! A guard says where to mark without a look at its key, which others may be busy
//! with: it remembers the [`Spot`] of the moment at which it was granted. Handles
//! and lines look just before they go. If rules change meanwhile, they mark the
//! board of a rule that the key had. That is as good:
//!
//! * No key stays for ever. A mark on whatever board stays until a thread looks at
//!   the whole shard, and the sweeper comes as long as there is a mark. Rules are
//!   never given up, so each board in use is that of a rule whose turn comes.
//! * It does not even stay longer, and makes room when there is none: a rule that
//!   got keys of another looks at the boards of that one too, and at those which
//!   that one got in the same way (`Rules::boards_of`). They are noted before
//!   the key moves. So all boards that may be marked for a key, whenever its guards
//!   were made, are boards of the rule it has. To look at too many costs time and
//!   nothing else.
//! * None is forgotten early, or counted for a wrong rule. A mark says where to
//!   look and no more; what holds for a key is what its own rule says under the
//!   lock of the shard, where rules change too.
//! * A mark that is there is enough, whatever made it. Releases, marks and what
//!   clears them are in one order: if a holder reads, after its release, that the
//!   shard is marked, then the mark is cleared after the release, and the thread
//!   that clears it looks at the key later still and finds it idle. This needs the
//!   same board at both ends and not the right one: a look at a shard is a look at
//!   all of its keys.

#[cfg(not(rideau_loom))]
use std::sync::atomic::fence;

use crossbeam_utils::CachePadded;
#[cfg(rideau_loom)]
use loom::sync::atomic::fence;

use crate::sync::{AtomicU64, Ordering};

/// As many as a guard has room to tell apart, and a set of them is one number.
#[cfg(not(rideau_loom))]
const BOARDS: u32 = 64;
/// Loom cannot follow many.
#[cfg(rideau_loom)]
const BOARDS: u32 = 2;

const SHARD_BITS: u32 = 6;

/// Marks for shards.
///
/// Written seldom, so that reading them costs nothing.
pub(super) struct Boards(CachePadded<[AtomicU64; BOARDS as usize]>);

/// Where to mark that a key is not held: a shard, and a board.
///
/// `[board: 6][shard: 6]`, so that it fits into a guard.
#[derive(Clone, Copy)]
pub(super) struct Spot(u32);

impl Spot {
    pub(super) const BITS: u32 = 12;

    /// For units that do not mark: any spot.
    pub(super) const UNSAID: Self = Self(0);

    #[inline]
    pub(super) fn new(shard: u32, rule: u32) -> Self {
        debug_assert!(shard < 1 << SHARD_BITS, "a board has a bit for each shard");
        Self(((rule % BOARDS) << SHARD_BITS) | shard)
    }

    /// What was packed.
    #[inline]
    pub(super) fn unpack(packed: u32) -> Self {
        Self(packed)
    }

    /// In its lowest bits.
    #[inline]
    pub(super) fn pack(self) -> u32 {
        self.0
    }

    #[inline]
    pub(super) fn shard(self) -> u32 {
        self.0 % (1 << SHARD_BITS)
    }

    #[inline]
    fn bit(self) -> u64 {
        1 << self.shard()
    }

    #[inline]
    fn board(self) -> usize {
        ((self.0 >> SHARD_BITS) % BOARDS) as usize
    }
}

impl Boards {
    /// Nothing is marked.
    pub(super) fn new() -> Self {
        let boards = std::array::from_fn(|_| AtomicU64::new(0));
        Self(CachePadded::new(boards))
    }

    /// The board of a rule, as a set of one.
    pub(super) fn of(rule: u32) -> u64 {
        1 << (rule % BOARDS)
    }

    /// The boards of this many rules.
    pub(super) fn of_first(rules: u32) -> u64 {
        (0..rules.min(BOARDS)).fold(0, |set, rule| set | Self::of(rule))
    }

    #[inline]
    pub(super) fn is_marked(&self, spot: Spot) -> bool {
        // Loom takes one order of all for less than it is, but knows fences.
        #[cfg(rideau_loom)]
        fence(Ordering::SeqCst);
        (self.0[spot.board()].load(Ordering::SeqCst) >> spot.shard()) & 1 != 0
    }

    /// False if it was marked already.
    pub(super) fn mark(&self, spot: Spot) -> bool {
        self.0[spot.board()].fetch_or(spot.bit(), Ordering::SeqCst) & spot.bit() == 0
    }

    /// The shards that are marked on some of these boards.
    pub(super) fn shards(&self, set: u64) -> u64 {
        let boards = bits(set).map(|board| self.0[board as usize].load(Ordering::SeqCst));
        boards.fold(0, |all, shards| all | shards)
    }

    /// From now on these boards say anew what there may be in a shard.
    pub(super) fn clear(&self, set: u64, shard: u32) {
        for board in bits(set) {
            self.0[board as usize].fetch_and(!(1 << shard), Ordering::SeqCst);
        }
        fence(Ordering::SeqCst);
    }
}

/// The places of the bits that are set.
pub(super) fn bits(mut set: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let lowest = (set != 0).then(|| set.trailing_zeros())?;
        set &= set - 1;
        Some(lowest)
    })
}

#[cfg(all(test, not(rideau_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_seen_on_its_board_until_its_shard_is_cleared_there() {
        let boards = Boards::new();
        let spots = [(0, 0), (63, 0), (5, 63), (5, 1)].map(|(shard, rule)| Spot::new(shard, rule));
        for spot in spots {
            let spot = Spot::unpack(spot.pack());
            assert!(!boards.is_marked(spot));
            assert!(boards.mark(spot), "it is news");
            assert!(!boards.mark(spot), "it was said already");
            assert!(boards.is_marked(spot));
        }
        assert!(spots.iter().all(|spot| spot.pack() < 1 << Spot::BITS));
        assert_eq!(boards.shards(Boards::of(0)), 1 | 1 << 63);
        assert_eq!(boards.shards(Boards::of(1) | Boards::of(2)), 1 << 5);
        boards.clear(Boards::of(1), 5);
        assert_eq!(boards.shards(Boards::of(1)), 0);
        assert_eq!(boards.shards(Boards::of_first(64)), 1 | 1 << 5 | 1 << 63);
        boards.clear(Boards::of_first(64), 63);
        assert_eq!(boards.shards(u64::MAX), 1 | 1 << 5);
    }

    #[test]
    fn rules_without_a_board_of_their_own_share() {
        assert_eq!(Boards::of(64), Boards::of(0));
        assert_eq!(Boards::of_first(3), 0b111);
        assert_eq!(Boards::of_first(100), u64::MAX);
        let boards = Boards::new();
        boards.mark(Spot::new(7, 65));
        assert!(boards.is_marked(Spot::new(7, 1)));
    }
}
