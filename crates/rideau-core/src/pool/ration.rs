//! How a pool lives on room that it shares with others.
//!
//! Its `max` is its own limit; room is what a budget over many pools lets it
//! have of a limit over all of them. Members that start or stop take room as
//! well.

use crate::keyed::{Order, Standing, is_pressed};
use crate::ledger::Reply;
use crate::time::Instant;

use super::effect::{Effect, Retired};
use super::{Mode, Pool};

/// The room of a pool, and its standing.
#[derive(Debug)]
pub(super) struct Ration {
    room: usize,
    given: u64,
    taken: u64,
    press: u64,
    /// How it stood when the budget looked last.
    told: Standing,
    /// The budget was called to look, and did not come yet.
    called: bool,
}

impl<R: Reply> Pool<R> {
    /// From now on there are no more members than there is room for, and there
    /// is no room yet. Only for a pool that has none.
    pub fn ration(&mut self) {
        debug_assert_eq!(self.members.counts().size(), 0);
        self.ration = Some(Box::new(Ration {
            room: 0,
            given: 0,
            taken: 0,
            press: 0,
            told: Standing::default(),
            called: false,
        }));
    }

    /// Do what the budget that shares room out has decided. It looks
    /// afterwards, by [`stand`](Self::stand) in the same step.
    pub fn obey(&mut self, order: Order, now: Instant, effects: &mut Vec<Effect<R>>) {
        let lone = self.lines.is_empty();
        let oldest = self.members.oldest();
        let Some(ration) = &mut self.ration else {
            return;
        };
        // The budget that orders looks afterwards.
        ration.called = true;
        match order {
            Order::Give { press } => {
                ration.given += 1;
                ration.room += 1;
                ration.press = ration.press.max(press);
            }
            Order::Evict => {
                ration.taken += 1;
                if let Some(slot) = oldest.filter(|_| lone) {
                    ration.room = ration.room.saturating_sub(1);
                    self.retire(slot, Retired::Surplus, now, effects);
                }
            }
            Order::Cede => {
                ration.taken += 1;
                ration.room = ration.room.saturating_sub(1);
                while self.is_ceding()
                    && let Some(slot) = self.members.oldest()
                {
                    self.retire(slot, Retired::Surplus, now, effects);
                }
            }
            Order::Press { press } => ration.press = ration.press.max(press),
        }
        self.finish(now, effects);
    }

    /// How the pool stands. Room that it does not need is given back.
    pub fn stand(&mut self, now: Instant) -> Standing {
        let mut standing = self.standing(now);
        let Some(ration) = &mut self.ration else {
            return standing;
        };
        if standing.lack == 0 {
            ration.room = ration.room.min(standing.size);
            standing.room = ration.room;
        }
        standing.version += 1;
        ration.told = standing;
        ration.called = false;
        standing
    }

    /// Close for good, if there are no members and no take waits.
    pub fn forget(&mut self, effects: &mut Vec<Effect<R>>) -> bool {
        let is_empty = self.members.counts().size() == 0 && self.lines.is_empty();
        if is_empty && self.mode != Mode::Closed {
            self.mode = Mode::Closed;
            effects.push(Effect::Closed);
        }
        if is_empty {
            self.ration = None;
        }
        is_empty
    }

    /// How many members may be there.
    #[inline]
    pub(super) fn max(&self) -> usize {
        match &self.ration {
            Some(ration) => ration.room.min(self.options.max),
            None => self.options.max,
        }
    }

    /// Others need what is idle here.
    #[inline]
    pub(super) fn is_pressed(&self) -> bool {
        self.ration
            .as_ref()
            .is_some_and(|ration| is_pressed(ration.press))
    }

    /// There are more members than there is room for: they go as they are
    /// released. What was started for a take serves once before.
    pub(super) fn is_ceding(&self) -> bool {
        let live = self.members.counts().live();
        let ration = self.ration.as_ref();
        self.mode == Mode::Running && ration.is_some_and(|ration| live > ration.room)
    }

    /// Call the budget that shares room out if there is news.
    #[cold]
    pub(super) fn tell_standing(&mut self, now: Instant, effects: &mut Vec<Effect<R>>) {
        let standing = self.standing(now);
        let Some(ration) = &mut self.ration else {
            return;
        };
        let told = ration.told;
        let spare = standing.lack == 0 && standing.size < standing.room;
        // Whether a take waits matters only to pools that need what is idle,
        // and to a budget that wants to forget the pool.
        let matters = is_pressed(ration.press) || standing.size == 0;
        let waits = matters && (standing.len == 0) != (told.len == 0);
        let len = told.len;
        if !ration.called && (spare || waits || Standing { len, ..standing } != told) {
            ration.called = true;
            effects.push(Effect::Look);
        }
    }

    fn standing(&self, now: Instant) -> Standing {
        let counts = self.members.counts();
        let Some(ration) = &self.ration else {
            return Standing::default();
        };
        let idle = self.members.oldest().filter(|_| is_pressed(ration.press));
        Standing {
            version: ration.told.version,
            room: ration.room,
            size: counts.size(),
            live: counts.live(),
            lack: self.lack(now),
            len: self.lines.len(),
            idle: idle.map(|slot| self.members.idle_since(slot)),
            given: ration.given,
            taken: ration.taken,
            press: ration.press,
        }
    }

    /// How many more would be started if there was room.
    fn lack(&self, now: Instant) -> usize {
        let closing = matches!(self.mode, Mode::Closing { .. } | Mode::Closed);
        if closing || !self.failures.may_start(now) {
            return 0;
        }
        let counts = self.members.counts();
        let wanted = self.wanted(counts, now);
        let below = self.options.max.saturating_sub(counts.size());
        let starts = self.starts_max().saturating_sub(counts.starting);
        wanted.min(below).min(starts)
    }
}
