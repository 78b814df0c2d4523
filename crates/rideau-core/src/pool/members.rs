//! The members of a pool: which there are, and what each is doing.
//!
//! Keeps the books and decides nothing. A slot is counted from before the
//! start of its member until that is really gone.

use crate::ledger::NONE;
use crate::time::Instant;

use super::effect::{MemberId, Retired};

/// The state of a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Doing {
    /// There is no member.
    Nothing,
    /// It is being started, until then at the latest.
    Starting { until: Instant },
    /// It can be taken; it was released at `since`.
    Idle { since: Instant },
    /// A holder has it, or a taker can take it without asking.
    Out,
    /// It is being checked, until then at the latest.
    Checking { until: Instant },
    /// It is being stopped, until then at the latest; then it is dropped.
    Stopping { until: Instant },
}

/// One slot and the member in it.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) id: MemberId,
    pub(super) doing: Doing,
    pub(super) born: Instant,
    /// When its life is over.
    pub(super) until: Instant,
    pub(super) generation: u64,
    /// Why it goes before its time.
    pub(super) leaves: Option<Retired>,
    /// Neighbours among the idle: less and more recently released.
    older: u32,
    newer: u32,
}

/// How many members are doing what.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Being started.
    pub starting: usize,
    /// Can be taken.
    pub idle: usize,
    /// Held by a holder.
    pub held: usize,
    /// Being checked.
    pub checking: usize,
    /// Being stopped.
    pub stopping: usize,
}

/// All slots.
///
/// Invariants: the counts are those of what the members are doing; the idle
/// ones are linked in the order of their release; a free slot does nothing.
#[derive(Debug)]
pub(super) struct Members {
    slots: Vec<Member>,
    free: Vec<u32>,
    counts: Counts,
    oldest: u32,
    newest: u32,
    last_id: u64,
}

impl Counts {
    /// All of them.
    pub fn size(&self) -> usize {
        self.live() + self.stopping
    }

    /// How many are not stopping.
    pub fn live(&self) -> usize {
        self.starting + self.idle + self.held + self.checking
    }

    fn of(&mut self, doing: Doing) -> Option<&mut usize> {
        match doing {
            Doing::Nothing => None,
            Doing::Starting { .. } => Some(&mut self.starting),
            Doing::Idle { .. } => Some(&mut self.idle),
            Doing::Out => Some(&mut self.held),
            Doing::Checking { .. } => Some(&mut self.checking),
            Doing::Stopping { .. } => Some(&mut self.stopping),
        }
    }
}

impl Members {
    pub(super) fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            counts: Counts::default(),
            oldest: NONE,
            newest: NONE,
            last_id: 0,
        }
    }

    pub(super) fn counts(&self) -> Counts {
        self.counts
    }

    /// The member in a slot.
    #[inline]
    pub(super) fn at(&self, slot: u32) -> &Member {
        &self.slots[slot as usize]
    }

    #[inline]
    pub(super) fn at_mut(&mut self, slot: u32) -> &mut Member {
        &mut self.slots[slot as usize]
    }

    /// The slot still has this member.
    pub(super) fn has(&self, slot: u32, id: MemberId) -> bool {
        let there = self.slots.get(slot as usize);
        there.is_some_and(|member| member.id == id && member.doing != Doing::Nothing)
    }

    /// Every slot with a member.
    pub(super) fn slots(&self) -> impl Iterator<Item = u32> + use<> {
        let there = |(slot, member): (usize, &Member)| {
            (member.doing != Doing::Nothing).then_some(slot as u32)
        };
        let slots: Vec<u32> = self.slots.iter().enumerate().filter_map(there).collect();
        slots.into_iter()
    }

    /// The idle one released longest ago.
    pub(super) fn oldest(&self) -> Option<u32> {
        (self.oldest != NONE).then_some(self.oldest)
    }

    /// The idle one released last.
    pub(super) fn newest(&self) -> Option<u32> {
        (self.newest != NONE).then_some(self.newest)
    }

    /// The next idle one that was released after this one.
    pub(super) fn newer(&self, slot: u32) -> Option<u32> {
        let newer = self.at(slot).newer;
        (newer != NONE).then_some(newer)
    }

    /// A member begins.
    pub(super) fn begin(&mut self, generation: u64, now: Instant, until: Instant) -> u32 {
        self.last_id += 1;
        let member = Member {
            id: MemberId(self.last_id),
            doing: Doing::Starting { until },
            born: now,
            until: Instant::NEVER,
            generation,
            leaves: None,
            older: NONE,
            newer: NONE,
        };
        self.counts.starting += 1;
        match self.free.pop() {
            Some(slot) => {
                *self.at_mut(slot) = member;
                slot
            }
            None => {
                self.slots.push(member);
                (self.slots.len() - 1) as u32
            }
        }
    }

    /// A member does something else from now on.
    #[inline]
    pub(super) fn turn(&mut self, slot: u32, doing: Doing) {
        let was = self.at(slot).doing;
        if let Doing::Idle { .. } = was {
            self.unlink(slot);
        }
        if let Some(count) = self.counts.of(was) {
            *count -= 1;
        }
        if let Some(count) = self.counts.of(doing) {
            *count += 1;
        }
        self.at_mut(slot).doing = doing;
        match doing {
            Doing::Idle { since } => self.link(slot, since),
            Doing::Nothing => self.free.push(slot),
            _ => (),
        }
    }

    /// Put an idle one in the order of release.
    fn link(&mut self, slot: u32, since: Instant) {
        let mut newer = NONE;
        let mut older = self.newest;
        // Those that lay in the idle cache may come later than younger ones.
        while older != NONE && self.idle_since(older) > since {
            newer = older;
            older = self.at(older).older;
        }
        let member = self.at_mut(slot);
        (member.older, member.newer) = (older, newer);
        self.join(older, slot);
        self.join(slot, newer);
    }

    fn unlink(&mut self, slot: u32) {
        let Member { older, newer, .. } = *self.at(slot);
        self.join(older, newer);
    }

    /// Make two idle ones neighbours.
    fn join(&mut self, older: u32, newer: u32) {
        match older {
            NONE => self.oldest = newer,
            slot => self.at_mut(slot).newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            slot => self.at_mut(slot).older = older,
        }
    }

    pub(super) fn idle_since(&self, slot: u32) -> Instant {
        match self.at(slot).doing {
            Doing::Idle { since } => since,
            _ => unreachable!("only idle ones are linked"),
        }
    }

    pub(super) fn check(&self) {
        if !cfg!(debug_assertions) {
            return;
        }
        let mut counts = Counts::default();
        for member in &self.slots {
            if let Some(count) = counts.of(member.doing) {
                *count += 1;
            }
        }
        assert_eq!(counts, self.counts, "the counts are those of the members");
        let (mut idle, mut at, mut last) = (0, self.oldest, Instant::START);
        while at != NONE {
            let since = self.idle_since(at);
            assert!(last <= since, "idle ones lie in the order of release");
            (idle, last, at) = (idle + 1, since, self.at(at).newer);
        }
        assert_eq!(idle, counts.idle, "all idle ones are linked");
        assert_eq!(self.free.len() + counts.size(), self.slots.len());
    }
}
