//! The word of a key: how many units are held, and the last fence.
//!
//! All that happens to a key is a change of this one word, so all of it is in
//! one order. A take is a compare-and-swap that adds its units only to the
//! count that it found small enough; a refusal is a load. Nothing has to be
//! undone, ever.
//!
//! # Three marks
//!
//! * `RETIRED`: the key was forgotten with this word, for good. Look it up
//!   again.
//! * `WAITED`: an ask waits in the line. A holder that gives back has to tell
//!   the line, and a take goes through it.
//! * `BUSY`: a caller takes of several keys at once and holds the locks of their
//!   shards. A take or a look waits for that lock; units come back all the same.
//!
//! # Fences
//!
//! A fence is 64 bits wide, and the word has room for 34. The others are in
//! `halves`, which says in which half of the 34-bit circle the word is. It is
//! moved on *before* the word enters the next half, under the lock of the
//! shard. So a thread that reads it after the word finds the word's half or the
//! next one, and the parity says which: a half lasts 8 thousand million takes.
//!
//! Few words ever leave the first round of the circle, and those that did say
//! so: `FAR`. Of the others the word is all, and nothing else is read of memory
//! that others write at the same time.

use std::hint;

use rideau_core::locks::{Claim, Grant};

use crate::sync::{AtomicU64, Ordering};

/// A word is `[retired][busy][waited][far][held: 26][fence: 34]`.
const FENCE_BITS: u32 = 34;
const FENCE: u64 = (1 << FENCE_BITS) - 1;
const HALF: u64 = 1 << (FENCE_BITS - 1);
const HELD_BITS: u32 = 26;
const HELD: u64 = ((1 << HELD_BITS) - 1) << FENCE_BITS;
const FAR: u64 = 1 << (FENCE_BITS + HELD_BITS);
const WAITED: u64 = FAR << 1;
const BUSY: u64 = FAR << 2;
const RETIRED: u64 = FAR << 3;

/// How many units of a key can be held, whatever its capacity. Claims are made
/// with no larger one.
pub(super) const UNITS_MAX: u64 = HELD >> FENCE_BITS;

/// Pauses before another look at a word that others change: half a microsecond.
const PAUSES: u32 = 32;

/// In this order: a take reads the first alone.
#[repr(C)]
pub(super) struct Word {
    word: AtomicU64,
    halves: AtomicU64,
}

/// Why a word gave nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum No {
    /// This many are held: too many for this claim.
    Full(u64),
    /// The key was forgotten with this word.
    Retired,
    /// Others wait, and have to be asked first.
    Waited,
    /// Ask again under the lock of the shard: a caller takes of several keys,
    /// or the fence enters the next half.
    Locked,
}

/// The word when units came back: how many are held, and whether an ask waits
/// for them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Left(u64);

impl Left {
    /// None is held.
    #[inline]
    pub(super) fn is_idle(self) -> bool {
        self.0 & HELD == 0
    }

    /// An ask waits for units.
    #[inline]
    pub(super) fn is_waited(self) -> bool {
        self.0 & WAITED != 0
    }

    /// There is nothing to tell, if it is known whether it is idle.
    #[inline]
    pub(super) fn is_no_news(self, is_known: bool) -> bool {
        let left = self.0 & (HELD | WAITED);
        // Neither nothing at all, nor the mark: one branch, and that foreseen.
        (left | u64::from(is_known)).wrapping_sub(1) < WAITED - 1
    }
}

/// The word after a take in the usual case, or one that gave nothing.
#[derive(Clone, Copy)]
pub(super) struct Reading(u64);

impl Reading {
    /// Nothing was read that tells why: it has to be asked in another way.
    pub(super) const UNCLEAR: Self = Self(FAR);

    /// The grant of a claim by this word.
    #[inline(always)]
    pub(super) fn grant(self, claim: Claim) -> Grant {
        grant(claim, self.0, self.0 & FENCE)
    }

    /// How many are held, of a word that gave nothing, if that is why.
    #[inline(always)]
    pub(super) fn full(self) -> Option<u64> {
        (self.0 < FAR).then_some(self.0 >> FENCE_BITS)
    }
}

/// A kind of caller that takes units.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Taker {
    /// Any caller.
    Any,
    /// The line of the asks that wait.
    Line,
    /// A caller with the lock of the shard.
    Lock,
    /// A caller with the lock of the shard, for the line.
    LineAndLock,
}

impl Taker {
    /// The marks that stop this taker.
    const fn stops(self) -> u64 {
        match self {
            Self::Any => WAITED | BUSY,
            Self::Line => BUSY,
            // It is its own mark, or there is none.
            Self::Lock => WAITED,
            Self::LineAndLock => 0,
        }
    }

    const fn has_lock(self) -> bool {
        matches!(self, Self::Lock | Self::LineAndLock)
    }
}

impl Word {
    /// A word of which nothing is held, whose fences come after `fence`.
    pub(super) fn new(fence: u64) -> Self {
        Self {
            word: AtomicU64::new((fence & FENCE) | far(fence)),
            halves: AtomicU64::new(fence / HALF),
        }
    }

    /// How many units are held.
    #[inline]
    pub(super) fn held(&self) -> u64 {
        held(self.word.load(Ordering::Acquire))
    }

    /// How many units are held, unless a caller takes of several keys at once
    /// or the key was forgotten.
    pub(super) fn settled(&self) -> Option<u64> {
        let word = self.word.load(Ordering::Acquire);
        (word & (BUSY | RETIRED) == 0).then_some(held(word))
    }

    /// Take what is claimed, exactly if it fits.
    pub(super) fn take(&self, claim: Claim, taker: Taker) -> Result<Grant, No> {
        match self.take_at_once(claim) {
            Ok(word) => Ok(word.grant(claim)),
            Err(word) => match word.full() {
                Some(held) => Err(No::Full(held)),
                None => self.take_with_care(claim, taker),
            },
        }
    }

    /// The same in the usual case, which is the same for every taker: there is no
    /// mark, and no other thread is faster.
    #[inline(always)]
    pub(super) fn take_at_once(&self, claim: Claim) -> Result<Reading, Reading> {
        // A caller that is told of one of several keys that were taken at once
        // and then comes to another sees at least its mark.
        let word = self.word.load(Ordering::Acquire);
        // Marks are above the count, so that with any of them it is too large for
        // every claim: one comparison tells both.
        if !claim.fits(word >> FENCE_BITS) {
            return Err(Reading(word));
        }
        let next = word + 1 + (u64::from(claim.units) << FENCE_BITS);
        if next & (HALF - 1) == 0 || self.exchange(word, next).is_err() {
            return Err(Reading::UNCLEAR);
        }
        Ok(Reading(next))
    }

    /// The same where there are marks, others are faster or the fence is long.
    #[inline(never)]
    pub(super) fn take_with_care(&self, claim: Claim, taker: Taker) -> Result<Grant, No> {
        let units = u64::from(claim.units) << FENCE_BITS;
        let mut word = self.word.load(Ordering::Acquire);
        // If there is no mark, another thread was faster. Loom need not look
        // twice.
        if word < FAR && !cfg!(rideau_loom) {
            word = self.look_later();
        }
        loop {
            let stops = word & (taker.stops() | RETIRED);
            if stops != 0 {
                return Err(stopped(word, stops, claim));
            }
            if !claim.fits(held(word)) {
                return Err(No::Full(held(word)));
            }
            let fence = self.full_fence(word) + 1;
            let next = if fence & (HALF - 1) == 0 {
                self.enter_half(word, fence, taker)? + units
            } else {
                word + 1 + units
            };
            match self.exchange(word, next) {
                Ok(_) => return Ok(grant(claim, next, fence)),
                Err(_) => word = self.look_later(),
            }
        }
    }

    /// Another thread was faster: look again when it had time for a few more.
    /// As long as the word stays with one core, a change is ten times cheaper.
    fn look_later(&self) -> u64 {
        // Loom would follow each pause, and none of them decides anything.
        if !cfg!(rideau_loom) {
            (0..PAUSES).for_each(|_| hint::spin_loop());
        }
        self.word.load(Ordering::Acquire)
    }

    /// Have another word if it is still the same.
    #[inline]
    fn exchange(&self, word: u64, next: u64) -> Result<u64, u64> {
        self.word
            .compare_exchange_weak(word, next, Ordering::AcqRel, Ordering::Acquire)
    }

    /// The word with a fence that begins the next half.
    #[cold]
    fn enter_half(&self, word: u64, fence: u64, taker: Taker) -> Result<u64, No> {
        if !taker.has_lock() {
            return Err(No::Locked);
        }
        self.halves.store(fence / HALF, Ordering::Release);
        Ok((word & !(FENCE | FAR)) | far(fence) | (fence & FENCE))
    }

    /// Give units back that were taken.
    #[inline]
    pub(super) fn give_back(&self, units: u64) -> Left {
        let units = units << FENCE_BITS;
        // In one order with the lists of idle keys.
        let before = self.word.fetch_sub(units, Ordering::SeqCst);
        debug_assert!(before & HELD >= units, "units come back that were taken");
        Left(before - units)
    }

    /// An ask waits, or none any more.
    pub(super) fn mark_waited(&self, waited: bool) {
        if waited {
            self.word.fetch_or(WAITED, Ordering::AcqRel);
        } else {
            self.word.fetch_and(!WAITED, Ordering::AcqRel);
        }
    }

    pub(super) fn is_waited(&self) -> bool {
        self.word.load(Ordering::Relaxed) & WAITED != 0
    }

    /// Keep all takes out, or let them in again. Under the lock of the shard.
    pub(super) fn mark_busy(&self, busy: bool) {
        if busy {
            self.word.fetch_or(BUSY, Ordering::AcqRel);
        } else {
            self.word.fetch_and(!BUSY, Ordering::AcqRel);
        }
    }

    /// What shows whether anything happened since, if nothing is held and there
    /// is no mark.
    pub(super) fn idle(&self) -> Option<u64> {
        let word = self.word.load(Ordering::Relaxed);
        (word & !(FENCE | FAR) == 0).then_some(word)
    }

    /// Never give anything again, if nothing happened since the word was `idle`.
    pub(super) fn retire(&self, idle: u64) -> bool {
        self.word
            .compare_exchange(idle, idle | RETIRED, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// The fence of the last take.
    pub(super) fn fence(&self) -> u64 {
        self.full_fence(self.word.load(Ordering::Acquire))
    }

    /// The whole fence of a word that was there a moment ago.
    #[inline]
    fn full_fence(&self, word: u64) -> u64 {
        let low = word & FENCE;
        if word & FAR == 0 {
            return low;
        }
        let halves = self.halves.load(Ordering::Acquire);
        // One ahead if the next half was made ready meanwhile.
        let ahead = (halves ^ (low / HALF)) & 1;
        (halves - ahead) * HALF + low % HALF
    }
}

/// Why a mark stops a claim.
#[cold]
fn stopped(word: u64, stops: u64, claim: Claim) -> No {
    if stops & RETIRED != 0 {
        No::Retired
    } else if stops & BUSY != 0 {
        // Also to say no: what is held may be a part of what is being taken
        // together.
        No::Locked
    } else if !claim.fits(held(word)) {
        No::Full(held(word))
    } else {
        No::Waited
    }
}

/// The grant of the claim that led to this word.
const fn grant(claim: Claim, word: u64, fence: u64) -> Grant {
    Grant {
        units: claim.units,
        ordinal: held(word),
        fence,
    }
}

/// The mark of a word with this fence.
const fn far(fence: u64) -> u64 {
    if fence > FENCE { FAR } else { 0 }
}

const fn held(word: u64) -> u64 {
    (word & HELD) >> FENCE_BITS
}

#[cfg(all(test, not(rideau_loom)))]
mod tests {
    use super::*;

    fn claim(units: u32, capacity: u64) -> Claim {
        Claim {
            units,
            capacity: capacity.into(),
        }
    }

    #[test]
    fn a_take_is_exact_and_numbered() {
        let word = Word::new(0);
        let first = word.take(claim(2, 3), Taker::Any).expect("there is room");
        assert_eq!((first.ordinal, first.fence), (2, 1));
        assert_eq!(word.take(claim(2, 3), Taker::Any), Err(No::Full(2)));
        let second = word.take(claim(1, 3), Taker::Any).expect("there is room");
        assert_eq!((second.ordinal, second.fence), (3, 2));
        assert!(!word.give_back(2).is_idle());
        assert!(word.give_back(1).is_idle());
        assert_eq!(word.held(), 0);
    }

    #[test]
    fn fences_grow_through_both_edges_of_their_circle() {
        for edge in [HALF, 2 * HALF, 3 * HALF, 8 * HALF] {
            let word = Word::new(edge - 3);
            for fence in edge - 2..edge {
                let grant = word.take(claim(1, 9), Taker::Any).expect("there is room");
                assert_eq!(grant.fence, fence);
            }
            assert_eq!(word.take(claim(1, 9), Taker::Any), Err(No::Locked));
            for fence in edge..edge + 3 {
                let grant = word.take(claim(1, 9), Taker::Lock).expect("there is room");
                assert_eq!(grant.fence, fence);
            }
            assert_eq!((word.held(), word.fence()), (5, edge + 2));
        }
    }

    #[test]
    fn no_more_units_are_held_than_a_word_can_count() {
        let word = Word::new(0);
        let all = u32::try_from(UNITS_MAX).expect("it has 26 bits");
        let most = claim(all, UNITS_MAX);
        word.take(most, Taker::Any).expect("there is room");
        let more = claim(1, UNITS_MAX);
        assert_eq!(word.take(more, Taker::Any), Err(No::Full(UNITS_MAX)));
        assert!(word.give_back(UNITS_MAX).is_idle());
    }

    #[test]
    fn marks_stop_takes_and_a_retired_word_gives_nothing() {
        let word = Word::new(7);
        word.mark_waited(true);
        assert_eq!(word.take(claim(1, 2), Taker::Any), Err(No::Waited));
        assert!(word.take(claim(1, 2), Taker::Line).is_ok());
        assert!(word.idle().is_none(), "one is held");
        assert!(word.give_back(1).is_waited());
        assert!(word.idle().is_none(), "an ask waits");
        word.mark_waited(false);
        word.mark_busy(true);
        assert_eq!(word.take(claim(1, 2), Taker::Any), Err(No::Locked));
        assert_eq!(word.take(claim(1, 0), Taker::Any), Err(No::Locked));
        assert_eq!(word.take(claim(1, 0), Taker::Lock), Err(No::Full(0)));
        word.mark_busy(false);
        let idle = word.idle().expect("no unit is held");
        assert!(word.take(claim(1, 2), Taker::Any).is_ok());
        assert!(!word.retire(idle), "something happened");
        word.give_back(1);
        assert!(word.retire(word.idle().expect("no unit is held")));
        assert_eq!(word.take(claim(1, 2), Taker::Lock), Err(No::Retired));
        assert_eq!(word.fence(), 9);
    }
}
