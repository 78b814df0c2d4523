//! Forgets keys that are not held: now and then, or to make room for others.
//!
//! Boards say in which shards there may be such keys of which rules. A shard is
//! looked at if it is marked, and the marks are cleared before, so that none is
//! missed which is made meanwhile.

use std::borrow::Borrow;
use std::collections::HashMap;

use rideau_core::OptionError;

use super::{Keys, Node, Pinned, SHARDS};
use crate::keyed::Key;
use crate::locks::board::{Spot, bits};
use crate::locks::line::Line;
use crate::locks::rules::{Crowd, KeyRule, Mark, NoRoom};
use crate::locks::shard::Locked;
#[cfg(any(test, not(rideau_loom)))]
use crate::sync::Ordering;
use crate::sync::lock;

impl<K: Key> Keys<K> {
    /// Make a key known, if there may be one more.
    pub(super) fn pin<Q>(&self, hash: u64, key: &Q) -> Result<Pinned<K>, NoRoom>
    where
        K: Borrow<Q>,
        Q: Eq + ToOwned<Owned = K> + ?Sized,
    {
        let at = Self::shard_of(hash);
        loop {
            let mut locked = self.lock(at);
            if let Some(pinned) = locked.pin(hash, key) {
                return Ok(pinned);
            }
            if locked.is_crowded() && self.is_dusty(at) {
                // Rather than grow for keys that are not wanted any more.
                let now = self.now();
                let is_over = |mark: &Mark, idle| self.rules.is_over(mark, idle, now);
                self.forget_of(&mut locked, is_over, |_| ());
            }
            let key = key.to_owned();
            let rule = self.rules.of(&key);
            let Err(crowd) = self.rules.enter(rule) else {
                let pinned = locked.add(hash, at, rule, key);
                drop(locked);
                self.tidy();
                return Ok(pinned);
            };
            drop(locked);
            if !self.make_room(crowd) {
                return Err(NoRoom);
            }
        }
    }

    /// Make a key known, however many there are.
    pub(super) fn pin_anyway<Q>(&self, hash: u64, key: &Q) -> Pinned<K>
    where
        K: Borrow<Q>,
        Q: Eq + ToOwned<Owned = K> + ?Sized,
    {
        self.pin(hash, key).unwrap_or_else(|NoRoom| {
            let at = Self::shard_of(hash);
            let mut locked = self.lock(at);
            let pinned = locked.pin(hash, key).unwrap_or_else(|| {
                let key = key.to_owned();
                let rule = self.rules.of(&key);
                self.rules.enter_anyway(rule);
                locked.add(hash, at, rule, key)
            });
            drop(locked);
            self.tidy();
            pinned
        })
    }

    /// Forget now all keys that are not held. What could not be forgotten the
    /// sweeper is called for.
    pub(in crate::locks) fn forget_idle(&self) {
        for shard in 0..SHARDS as u32 {
            let (_, left) = self.forget_at(shard, |_, _| true);
            self.leave(shard, &left);
        }
        self.grave.tidy();
        self.tidy();
    }

    /// Forget what was not held for two sweeps, and for as long as its rule says. False
    /// if there is nothing left to forget or to free. For the sweeper alone: the caller
    /// has to come again if it is told to.
    #[cfg(any(test, not(rideau_loom)))]
    pub(in crate::locks) fn sweep(&self) -> bool {
        self.swept.swap(false, Ordering::SeqCst);
        let now = self.now();
        let mut shards = 0;
        let boards = self.rules.boards();
        for rule in self.rules.all() {
            let slot = self.rules.slot(rule);
            if slot.due.load(Ordering::Relaxed) <= now {
                shards |= boards.shards(self.rules.boards_of(rule));
                slot.was_swept(now);
            }
        }
        for shard in bits(shards) {
            boards.clear(self.rules.boards_in_use(), shard);
            let (_, left) = self.forget_at(shard, |mark, idle| self.rules.is_over(mark, idle, now));
            for rule in left {
                boards.mark(Spot::new(shard, rule));
            }
        }
        let is_tidy = self.grave.tidy();
        let more = !is_tidy || boards.shards(self.rules.boards_in_use()) != 0;
        more && !self.swept.swap(true, Ordering::SeqCst)
    }

    /// Forget keys that are not wanted, sooner than they would be. False if
    /// there are none.
    #[cold]
    fn make_room(&self, crowd: Crowd) -> bool {
        let boards = match crowd {
            Crowd::Of(rule) => self.rules.boards_of(rule),
            Crowd::All => self.rules.boards_in_use(),
        };
        let is_made = bits(self.rules.boards().shards(boards)).any(|shard| {
            self.rules.boards().clear(boards, shard);
            let (gone, left) = self.forget_at(shard, |mark, _| match crowd {
                Crowd::Of(rule) => mark.rule() == rule,
                Crowd::All => true,
            });
            self.leave(shard, &left);
            gone > 0
        });
        self.tidy();
        is_made
    }

    /// Free what was taken off if it is a lot. The rest is for the sweeper: each
    /// time costs, however little there is.
    fn tidy(&self) {
        if self.grave.is_crowded() {
            self.grave.tidy();
        }
        if !self.grave.is_empty() {
            self.call_sweeper();
        }
    }

    /// Keys of these rules are idle still.
    fn leave(&self, shard: u32, rules: &[u32]) {
        let spots = rules.iter().map(|rule| Spot::new(shard, *rule));
        spots.for_each(|spot| self.idle(spot));
    }

    /// Forget some keys of a shard that are not held. Says how many, and of which
    /// rules the others are.
    fn forget_at(&self, shard: u32, is_over: impl Fn(&Mark, u64) -> bool) -> (usize, Vec<u32>) {
        let lines = self.drop_lines(&self.parts[shard as usize]);
        let mut locked = self.lock(shard);
        let mut left = Vec::new();
        let mut leave = |mark: &Mark| {
            if !left.contains(&mark.rule()) {
                left.push(mark.rule());
            }
        };
        let gone = self.forget_of(&mut locked, is_over, &mut leave);
        // A wait that keeps the line of such a key, for an answer perhaps that
        // it has not taken yet, does not wait in it.
        let is_lined =
            |node: &&Node<K>| node.word().idle().is_some() && lines.contains(&node.address());
        if !lines.is_empty() {
            let lined = locked.nodes().filter(is_lined);
            lined.for_each(|node| leave(&node.mark));
        }
        drop(locked);
        if self.grave.is_crowded() {
            self.grave.tidy();
        }
        (gone, left)
    }

    fn forget_of(
        &self,
        locked: &mut Locked<'_, K>,
        is_over: impl Fn(&Mark, u64) -> bool,
        left: impl FnMut(&Mark),
    ) -> usize {
        let gone = locked.forget(is_over, left);
        gone.iter().for_each(|rule| self.rules.leave(*rule));
        gone.len()
    }

    /// Give all keys rules: those that are known, and those that come. An ask
    /// that waits keeps its place, under the rule its key has now.
    pub(in crate::locks) fn set_rules(
        &self,
        rules: &[KeyRule],
        rule_of: impl Fn(&K) -> usize + Send + Sync + 'static,
    ) -> Result<(), OptionError> {
        let _alone = lock(&self.changing);
        self.rules.set(rules, rule_of)?;
        let mut pinned = HashMap::new();
        for shard in 0..SHARDS as u32 {
            let locked = self.lock(shard);
            for node in locked.nodes() {
                let rule = self.rules.of(node.key());
                if rule != node.mark.rule() {
                    self.rules.move_to(&node.mark, rule);
                }
                if node.pins() > 0 {
                    pinned.insert(node.address(), rule);
                }
            }
        }
        for (address, line) in self.lines() {
            // A line that was made since then follows the new rules already.
            if let Some(rule) = pinned.get(&address) {
                line.reconfigure(&self.rules.slot(*rule).queue())?;
            }
        }
        Ok(())
    }

    pub(super) fn lines(&self) -> Vec<(usize, Line<K>)> {
        let mut all = Vec::new();
        for part in self.parts.iter() {
            let lines = lock(&part.lines);
            let lines = lines.iter();
            all.extend(lines.map(|(address, line)| (*address, Line::new(line.clone()))));
        }
        all
    }
}
