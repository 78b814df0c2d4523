//! Shares one number of members out among the pools of many keys.
//!
//! A pool that needs one more member asks for room before it starts one, and
//! what it does not use goes back. The budget never sees a member: it hears
//! how pools stand and says which may have one more and which has to do with
//! one less.

mod share;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::machine::Machine;
use crate::settings::{OptionError, Rule};
use crate::time::Instant;

use self::share::{Share, Totals};

/// The pool of one key; never given twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct KeyId(pub u64);

/// How a pool that asks for room stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Standing {
    /// Grows with every look: an older one says nothing any more.
    pub version: u64,
    /// How many members may be there.
    pub room: usize,
    /// How many are there, from before their start until they are really gone.
    pub size: usize,
    /// How many of them are not stopping.
    pub live: usize,
    /// How many more would be started if there was room.
    pub lack: usize,
    /// How many wait.
    pub len: usize,
    /// Since when the member is idle that is idle longest. Known only while the
    /// pool is pressed.
    pub idle: Option<Instant>,
    /// How often it was given room.
    pub given: u64,
    /// How often room was taken from it, or would have been.
    pub taken: u64,
    /// How often pressing began and ended, as far as it was told.
    pub press: u64,
}

/// Whether pools are pressed after pressing began and ended so often.
pub fn is_pressed(press: u64) -> bool {
    press % 2 == 1
}

/// How room is shared out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// How many members there may be over all keys, whatever they do.
    pub max: usize,
    /// So long a key that is busy keeps its members though others have fewer
    /// and wait.
    pub turn: Duration,
}

/// An order for a pool. It reports its standing afterwards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// Have room for one more, and be pressed or not.
    Give {
        /// As in [`Press`](Self::Press).
        press: u64,
    },
    /// Retire the member that is idle longest, if no take waits, and have room
    /// for one less.
    Evict,
    /// Have room for one less: the next member that is released goes.
    Cede,
    /// Others need what is idle, or do not any more: while they do, every change
    /// of that is news.
    Press {
        /// How often this began and ended: an order may overtake another.
        press: u64,
    },
}

/// An effect of a budget.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Tell a pool what to do.
    Order {
        /// The key of the pool.
        key: KeyId,
        /// What.
        order: Order,
    },
    /// Nothing is known of this key that is worth remembering: forget it if no
    /// take is about to use it.
    Forget(KeyId),
}

/// Which key may have how many members.
///
/// Invariants: the claims of all keys, each the larger of the room it has or
/// was ordered and the size it was last heard to have, are never over `max`,
/// unless that was lowered, and then they only shrink. A pool's size grows only
/// within its room, and its room only by order; so there are never more
/// members than `max`. While any key lacks a member, one of these is true: a
/// unit is on its way back, every idle member is being asked for, or every key
/// that has more than its turn is.
#[derive(Debug)]
pub struct Budget {
    options: Options,
    shares: BTreeMap<KeyId, Share>,
    totals: Totals,
    /// The keys that lack members: the poorest first, and then the one that
    /// asked first.
    asking: BTreeSet<(usize, u64, KeyId)>,
    /// The keys that have a member to evict, the longest idle first.
    idle: BTreeSet<(Instant, KeyId)>,
    /// The keys that could cede one, the richest first, and then the one that
    /// has had it longest.
    rich: BTreeSet<(Reverse<usize>, Instant, KeyId)>,
    /// The keys that were told to cede one, and when.
    ceding: BTreeMap<KeyId, Instant>,
    /// The keys that have nothing and want nothing.
    empty: BTreeSet<KeyId>,
    asks: u64,
    /// How often pressing began and ended.
    press: u64,
    /// When there is no need any more to press any pool.
    relax: Option<Instant>,
    /// When the turn of a key is over.
    turn_over: Option<Instant>,
}

impl Options {
    /// Whether the options make a budget.
    ///
    /// # Errors
    ///
    /// If one of them breaks a rule.
    pub fn validate(&self) -> Result<(), OptionError> {
        match self.max {
            0 => Err(OptionError::new("max", Rule::Zero)),
            _ => Ok(()),
        }
    }
}

impl Budget {
    /// A budget that no key has a part of yet.
    ///
    /// # Errors
    ///
    /// If an option breaks a rule.
    pub fn new(options: Options) -> Result<Self, OptionError> {
        options.validate()?;
        Ok(Self {
            options,
            shares: BTreeMap::new(),
            totals: Totals::default(),
            asking: BTreeSet::new(),
            idle: BTreeSet::new(),
            rich: BTreeSet::new(),
            ceding: BTreeMap::new(),
            empty: BTreeSet::new(),
            asks: 0,
            press: 0,
            relax: None,
            turn_over: None,
        })
    }

    /// There is one key more. Those that were not used lately may go.
    pub fn join(&mut self, key: KeyId, now: Instant, effects: &mut Vec<Effect>) {
        effects.extend(self.empty.iter().copied().map(Effect::Forget));
        self.asks += 1;
        let known = self.shares.insert(key, Share::new(self.asks, now));
        debug_assert!(known.is_none(), "a key joins once");
        self.index(key);
        self.check();
    }

    /// A key was forgotten.
    pub fn forgotten(&mut self, key: KeyId, now: Instant, effects: &mut Vec<Effect>) {
        self.unindex(key);
        self.shares.remove(&key);
        self.ceding.remove(&key);
        self.decide(now, effects);
    }

    /// A pool says how it stands.
    pub fn hear(
        &mut self,
        key: KeyId,
        standing: Standing,
        now: Instant,
        effects: &mut Vec<Effect>,
    ) {
        self.asks += 1;
        let asks = self.asks;
        self.change(key, |share| {
            if standing.version > share.standing.version {
                if share.standing.lack == 0 {
                    share.asked = asks;
                }
                share.standing = standing;
            }
        });
        let share = self.shares.get(&key);
        if share.is_some_and(|share| share.takes() == 0 && share.ceding() == 0) {
            self.ceding.remove(&key);
        }
        if self.empty.contains(&key) {
            effects.push(Effect::Forget(key));
        }
        self.decide(now, effects);
    }

    /// Share out another number. If it is lower, what is too much goes as it
    /// becomes idle or comes back.
    ///
    /// # Errors
    ///
    /// If an option breaks a rule; then nothing has changed.
    pub fn reconfigure(
        &mut self,
        options: Options,
        now: Instant,
        effects: &mut Vec<Effect>,
    ) -> Result<(), OptionError> {
        options.validate()?;
        self.options = options;
        self.decide(now, effects);
        Ok(())
    }

    /// How room is shared out.
    pub fn options(&self) -> Options {
        self.options
    }

    /// How many members there may be now, by what all keys claim.
    pub fn claims(&self) -> usize {
        self.totals.claims
    }

    /// How many keys are known.
    pub fn keys(&self) -> usize {
        self.shares.len()
    }

    fn decide(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        self.give(now, effects);
        self.turn_over = None;
        if self.wanted() > self.coming(|_| true) {
            self.relax = None;
            self.set_pressed(true, effects);
            if self.totals.presses == 0 {
                self.evict(effects);
                self.cede(now, effects);
            }
        } else if self.wanted() == 0 {
            self.keep_ceding(effects);
            if self.is_pressed() && self.relax.is_none() {
                self.relax = Some(now + self.options.turn);
            }
        }
        self.check();
    }

    /// Give what is free to the poorest.
    fn give(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        while let Some(&(_, _, key)) = self.asking.first() {
            let share = &self.shares[&key];
            // What it was told to cede and still has it may as well keep.
            let cost = usize::from(share.standing.size <= share.units());
            if cost > 0 && self.totals.claims + cost > self.options.max {
                return;
            }
            self.asks += 1;
            let (asked, press) = (self.asks, self.press);
            self.change(key, |share| {
                share.given += 1;
                (share.since, share.asked, share.press) = (now, asked, press);
            });
            let order = Order::Give { press };
            effects.push(Effect::Order { key, order });
        }
    }

    /// How many units have to come from some key.
    fn wanted(&self) -> usize {
        self.totals.lack + self.totals.claims.saturating_sub(self.options.max)
    }

    /// How many units are on their way, but for those held by a key that was
    /// told at an instant that does `not_count`.
    fn coming(&self, not_count: impl Fn(Instant) -> bool) -> usize {
        let held = self.ceding.iter().filter(|(_, since)| not_count(**since));
        let held: usize = held.map(|(key, _)| self.shares[key].ceding()).sum();
        self.totals.coming.saturating_sub(held)
    }

    /// Units that will be back soon: what is held for longer than a turn after
    /// it was to be ceded is not counted on.
    fn coming_soon(&self, now: Instant) -> usize {
        self.coming(|since| since + self.options.turn <= now)
    }

    /// Let all pools say what is idle, or let them be.
    fn set_pressed(&mut self, pressed: bool, effects: &mut Vec<Effect>) {
        if self.is_pressed() == pressed {
            return;
        }
        self.press += 1;
        let press = self.press;
        let has_some = |(key, share): (&KeyId, &Share)| (share.claim() > 0).then_some(*key);
        let keys: Vec<KeyId> = self.shares.iter().filter_map(has_some).collect();
        for key in keys {
            self.change(key, |share| share.press = press);
            let order = Order::Press { press };
            effects.push(Effect::Order { key, order });
        }
    }

    fn is_pressed(&self) -> bool {
        is_pressed(self.press)
    }

    /// Take what has been idle longest. It comes sooner than what is held.
    fn evict(&mut self, effects: &mut Vec<Effect>) {
        while self.wanted() > self.coming(|_| true)
            && let Some(&(_, key)) = self.idle.first()
        {
            self.order_back(key, Order::Evict, effects);
        }
    }

    /// Nothing is idle: a key that is busy and has more than others, and has
    /// had it for a turn, gives one up after its use.
    fn cede(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        while self.wanted() > self.coming_soon(now)
            && let Some(&(Reverse(room), since, key)) = self.rich.first()
        {
            let over = self.totals.claims > self.options.max;
            if !over && !self.is_poorer(room, self.coming_soon(now)) {
                break;
            }
            let turn_over = since + self.options.turn;
            if !over && turn_over > now {
                self.turn_over = Some(turn_over);
                break;
            }
            self.ceding.insert(key, now);
            self.order_back(key, Order::Cede, effects);
        }
        let late = self.ceding.values().map(|since| *since + self.options.turn);
        let next = late.filter(|late| *late > now).min();
        self.turn_over = self.turn_over.into_iter().chain(next).min();
    }

    /// No key needs any more what others still hold.
    fn keep_ceding(&mut self, effects: &mut Vec<Effect>) {
        let held = |key: &KeyId| self.shares[key].ceding() > 0;
        let keys: Vec<KeyId> = self.ceding.keys().copied().filter(held).collect();
        let press = self.press;
        for key in keys {
            self.ceding.remove(&key);
            self.change(key, |share| {
                share.given += 1;
                share.press = press;
            });
            let order = Order::Give { press };
            effects.push(Effect::Order { key, order });
        }
    }

    /// The poorest that will still lack one when `coming` units have come
    /// should have one of a key with that much room.
    fn is_poorer(&self, room: usize, coming: usize) -> bool {
        let poorest = self.asking.iter().nth(coming);
        poorest.is_some_and(|(units, _, _)| room > units + 1 || *units == 0)
    }

    fn order_back(&mut self, key: KeyId, order: Order, effects: &mut Vec<Effect>) {
        self.asks += 1;
        let asked = self.asks;
        self.change(key, |share| {
            share.taken += 1;
            // Behind all keys that wait for what it gives.
            share.asked = asked;
        });
        effects.push(Effect::Order { key, order });
    }

    fn change(&mut self, key: KeyId, change: impl FnOnce(&mut Share)) {
        self.unindex(key);
        if let Some(share) = self.shares.get_mut(&key) {
            change(share);
        }
        self.index(key);
    }
}

impl Budget {
    fn index(&mut self, key: KeyId) {
        let Some(share) = self.shares.get(&key) else {
            return;
        };
        self.totals = self.totals.plus(share.totals());
        if share.lack() > 0 {
            self.asking.insert((share.units(), share.asked, key));
        }
        if let Some(since) = share.idle() {
            self.idle.insert((since, key));
        }
        if share.may_cede() {
            let room = Reverse(share.standing.room);
            self.rich.insert((room, share.since, key));
        }
        if share.is_empty() {
            self.empty.insert(key);
        }
    }

    fn unindex(&mut self, key: KeyId) {
        let Some(share) = self.shares.get(&key) else {
            return;
        };
        self.totals = self.totals.minus(share.totals());
        self.asking.remove(&(share.units(), share.asked, key));
        if let Some(since) = share.idle() {
            self.idle.remove(&(since, key));
        }
        let room = Reverse(share.standing.room);
        self.rich.remove(&(room, share.since, key));
        self.empty.remove(&key);
    }

    fn check(&self) {
        if !cfg!(debug_assertions) {
            return;
        }
        let shares = self.shares.values().map(Share::totals);
        let totals = shares.fold(Totals::default(), Totals::plus);
        assert_eq!(totals, self.totals, "the totals are those of the shares");
        let lack = self.shares.values().filter(|share| share.lack() > 0);
        assert_eq!(
            lack.count(),
            self.asking.len(),
            "a pool that lacks members asks"
        );
    }
}

impl Machine for Budget {
    type Effect = Effect;

    fn deadline(&self) -> Option<Instant> {
        self.relax.into_iter().chain(self.turn_over).min()
    }

    fn advance(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        if self.relax.is_some_and(|relax| relax <= now) {
            self.relax = None;
            self.set_pressed(false, effects);
        }
        self.decide(now, effects);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::START + Duration::from_millis(millis)
    }

    fn budget(max: usize) -> Budget {
        let turn = Duration::from_millis(100);
        let mut budget = Budget::new(Options { max, turn }).unwrap();
        for key in 0..4 {
            budget.join(KeyId(key), at(0), &mut Vec::new());
        }
        budget
    }

    /// How a pool stands that has done all that was ordered so far.
    fn stands(budget: &Budget, key: u64, change: impl FnOnce(&mut Standing)) -> Standing {
        let share = &budget.shares[&KeyId(key)];
        let mut standing = Standing {
            version: share.standing.version + 1,
            given: share.given,
            taken: share.taken,
            press: share.press,
            ..share.standing
        };
        change(&mut standing);
        standing
    }

    fn hear(
        budget: &mut Budget,
        key: u64,
        millis: u64,
        change: impl FnOnce(&mut Standing),
    ) -> Vec<(u64, Order)> {
        let standing = stands(budget, key, change);
        let mut effects = Vec::new();
        budget.hear(KeyId(key), standing, at(millis), &mut effects);
        let order = |effect| match effect {
            Effect::Order { key, order } => Some((key.0, order)),
            Effect::Forget(_) => None,
        };
        effects.into_iter().filter_map(order).collect()
    }

    fn has(members: usize) -> impl FnOnce(&mut Standing) {
        move |standing| {
            (standing.room, standing.size, standing.live) = (members, members, members);
            (standing.lack, standing.len) = (0, 0);
        }
    }

    fn lacks(members: usize) -> impl FnOnce(&mut Standing) {
        move |standing| (standing.lack, standing.len) = (members, members)
    }

    #[test]
    fn the_key_with_least_is_given_first_and_then_the_first_to_ask() {
        let mut budget = budget(3);
        let give = Order::Give { press: 0 };
        assert_eq!(hear(&mut budget, 0, 0, lacks(2)), [(0, give), (0, give)]);
        hear(&mut budget, 0, 0, has(2));
        assert_eq!(hear(&mut budget, 1, 0, lacks(1)), [(1, give)]);
        hear(&mut budget, 1, 0, has(1));
        // All are given. The one with two asks first, then two with none.
        for key in [0, 2, 3] {
            let told = hear(&mut budget, key, 1, lacks(1));
            assert!(
                !told
                    .iter()
                    .any(|(_, order)| matches!(order, Order::Give { .. }))
            );
        }
        // What comes back goes to the first of those with nothing.
        let told = hear(&mut budget, 1, 2, has(0));
        assert_eq!(told, [(2, Order::Give { press: 1 })]);
        assert_eq!(budget.claims(), 3);
    }

    #[test]
    fn nothing_is_evicted_before_all_have_said_what_is_idle() {
        let mut budget = budget(2);
        for key in [0, 1] {
            hear(&mut budget, key, 0, lacks(1));
            hear(&mut budget, key, 0, has(1));
        }
        let press = Order::Press { press: 1 };
        assert_eq!(hear(&mut budget, 2, 9, lacks(1)), [(0, press), (1, press)]);
        let idle = |since| move |standing: &mut Standing| standing.idle = Some(at(since));
        assert_eq!(hear(&mut budget, 0, 9, idle(5)), []);
        assert_eq!(hear(&mut budget, 1, 9, idle(3)), [(1, Order::Evict)]);
        // It was taken just then: the other is asked for.
        let taken = hear(&mut budget, 1, 9, |standing| standing.idle = None);
        assert_eq!(taken, [(0, Order::Evict)]);
    }

    #[test]
    fn what_was_said_before_counts_no_more_when_it_comes_late() {
        let mut budget = budget(1);
        let late = stands(&budget, 0, lacks(1));
        hear(&mut budget, 0, 0, lacks(1));
        hear(&mut budget, 0, 0, has(1));
        budget.hear(KeyId(0), late, at(0), &mut Vec::new());
        assert_eq!((budget.claims(), budget.totals.lack), (1, 0));
    }

    #[test]
    fn a_busy_key_keeps_its_member_for_a_turn() {
        let mut budget = budget(1);
        hear(&mut budget, 0, 0, lacks(1));
        hear(&mut budget, 0, 0, has(1));
        hear(&mut budget, 1, 10, lacks(1));
        assert_eq!(hear(&mut budget, 0, 10, |_| ()), []);
        assert_eq!(budget.deadline(), Some(at(100)));
        let mut effects = Vec::new();
        budget.advance(at(100), &mut effects);
        let (key, order) = (KeyId(0), Order::Cede);
        assert_eq!(effects, [Effect::Order { key, order }]);
    }
}
