//! Real pools that share one number of members, with every message between
//! them and the budget delivered late and in any order.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use rideau_core::keyed::{Budget, Effect as Wish, KeyId, Options as Shares, Order, Standing};
use rideau_core::pool::{Came, Effect, MemberId, Options, Pool, Priority, Use};
use rideau_core::queue::{self, AskOptions};
use rideau_core::{Flow, Instant, Machine, Reply, Rng, Ticket};

use crate::cases;

proptest! {
    #![proptest_config(cases(1_000))]

    #[test]
    fn members_over_all_keys_never_exceed_the_budget_and_no_take_is_left_waiting(
        seed: u64, max in 1_usize..6, each in 1_usize..4, keys in 1_u64..6,
    ) {
        let mut town = Town::new(seed, max, each, keys);
        for _ in 0..400 {
            town.act();
            town.check();
        }
        town.come_to_rest();
    }
}

struct Waiter(u64);

impl Reply for Waiter {}

enum Message {
    Look(KeyId),
    Heard(KeyId, Standing),
    Order(KeyId, Order),
}

struct Task {
    key: KeyId,
    slot: u32,
    id: MemberId,
    starts: bool,
}

struct Town {
    rng: Rng,
    now: Instant,
    /// The most claims there may be; more after a lower limit.
    most: usize,
    pools: BTreeMap<KeyId, Pool<Waiter>>,
    budget: Budget,
    messages: Vec<Message>,
    tasks: Vec<Task>,
    held: Vec<(KeyId, u32)>,
    waiting: BTreeMap<u64, (KeyId, Ticket)>,
    came: u64,
    starts_fail: bool,
}

impl Town {
    fn new(seed: u64, max: usize, each: usize, keys: u64) -> Self {
        let now = Instant::START;
        let turn = Duration::from_millis(5);
        let mut town = Self {
            rng: Rng::new(seed),
            now,
            most: max,
            pools: BTreeMap::new(),
            budget: Budget::new(Shares { max, turn }).unwrap(),
            messages: Vec::new(),
            tasks: Vec::new(),
            held: Vec::new(),
            waiting: BTreeMap::new(),
            came: 0,
            starts_fail: true,
        };
        for key in (0..keys).map(KeyId) {
            let options = Options {
                max: each,
                check_after: None,
                queue: queue::Options::timeout(Duration::from_secs(3600)),
                ..Options::default()
            };
            let mut pool = Pool::new(options, now, &mut Vec::new()).unwrap();
            pool.ration();
            town.pools.insert(key, pool);
            town.budget_step(|budget, now, wishes| budget.join(key, now, wishes));
        }
        town
    }

    fn draw(&mut self, below: usize) -> usize {
        self.rng.below(below as u64) as usize
    }

    fn key(&mut self) -> KeyId {
        KeyId(self.draw(self.pools.len()) as u64)
    }

    fn act(&mut self) {
        match self.draw(40) / 3 {
            0 | 1 => self.take(true),
            2 => self.take(false),
            3 | 4 => self.release(),
            5 => self.cancel(),
            6 | 7 => self.end_task(),
            8 => self.pass(Duration::from_millis(2)),
            9..13 => self.deliver(),
            _ => self.change(),
        }
    }

    /// Share another number out. What is over it only shrinks.
    fn change(&mut self) {
        let max = 1 + self.draw(6);
        self.most = self.budget.claims().max(max);
        self.budget_step(|budget, now, wishes| {
            let options = budget.options();
            budget
                .reconfigure(Shares { max, ..options }, now, wishes)
                .unwrap();
        });
    }

    fn take(&mut self, wait: bool) {
        let (key, number, sent) = (self.key(), self.came, self.now);
        self.came += 1;
        let terms = AskOptions {
            sent,
            deadline: None,
            flow: Flow(0),
            tag: None,
            wait,
            promised: false,
        };
        let came = self.pool_step(key, |pool, now, effects| {
            let reply = || Waiter(number);
            pool.take(&terms, Priority::Normal, reply, now, effects)
        });
        match came {
            Came::Granted(grant) => self.held.push((key, grant.slot)),
            Came::Waits(ticket) => {
                self.waiting.insert(number, (key, ticket));
            }
            Came::Refused(_) => assert!(!wait, "a waiting ask is let in"),
        }
    }

    fn release(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let at = self.draw(self.held.len());
        let (key, slot) = self.held.swap_remove(at);
        let used = match self.draw(10) {
            0 => Use::Over(rideau_core::pool::Retired::Failed),
            _ => Use::Fine,
        };
        self.pool_step(key, |pool, now, effects| {
            pool.release(slot, used, 1, Duration::ZERO, now, effects);
        });
    }

    fn cancel(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        let at = self.draw(self.waiting.len());
        let number = *self.waiting.keys().nth(at).unwrap();
        let (key, ticket) = self.waiting.remove(&number).unwrap();
        self.pool_step(key, |pool, now, effects| {
            assert!(pool.cancel(ticket, now, effects).is_some());
        });
    }

    fn end_task(&mut self) {
        if self.tasks.is_empty() {
            return;
        }
        let at = self.draw(self.tasks.len());
        let Task {
            key,
            slot,
            id,
            starts,
        } = self.tasks.swap_remove(at);
        let fails = self.starts_fail && self.draw(4) == 0;
        self.pool_step(key, |pool, now, effects| {
            if !starts || fails || pool.started(slot, id, now, effects).is_none() {
                pool.gone(slot, id, now, effects);
            }
        });
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        let keys: Vec<KeyId> = self.pools.keys().copied().collect();
        for key in keys {
            let due = |pool: &Pool<Waiter>, now| pool.deadline().is_some_and(|due| due <= now);
            while due(&self.pools[&key], self.now) {
                self.pool_step(key, |pool, now, effects| pool.advance(now, effects));
            }
        }
        while self.budget.deadline().is_some_and(|due| due <= self.now) {
            self.budget_step(|budget, now, wishes| budget.advance(now, wishes));
        }
    }

    fn deliver(&mut self) {
        if self.messages.is_empty() {
            return;
        }
        let at = self.draw(self.messages.len());
        match self.messages.swap_remove(at) {
            Message::Look(key) => {
                let standing = self.pool_step(key, |pool, now, _| pool.stand(now));
                self.messages.push(Message::Heard(key, standing));
            }
            Message::Heard(key, standing) => {
                self.budget_step(|budget, now, wishes| budget.hear(key, standing, now, wishes));
            }
            Message::Order(key, order) => {
                let standing = self.pool_step(key, |pool, now, effects| {
                    pool.obey(order, now, effects);
                    pool.stand(now)
                });
                self.messages.push(Message::Heard(key, standing));
            }
        }
    }

    fn pool_step<T>(
        &mut self,
        key: KeyId,
        step: impl FnOnce(&mut Pool<Waiter>, Instant, &mut Vec<Effect<Waiter>>) -> T,
    ) -> T {
        let mut effects = Vec::new();
        let pool = self.pools.get_mut(&key).unwrap();
        let result = step(pool, self.now, &mut effects);
        for effect in effects {
            match effect {
                Effect::Grant { reply, grant } => {
                    self.waiting.remove(&reply.0);
                    self.held.push((key, grant.slot));
                }
                Effect::Start { slot, id } => self.tasks.push(Task {
                    key,
                    slot,
                    id,
                    starts: true,
                }),
                Effect::Stop { slot, id, .. } => self.tasks.push(Task {
                    key,
                    slot,
                    id,
                    starts: false,
                }),
                Effect::Look => self.messages.push(Message::Look(key)),
                Effect::Mark { .. } | Effect::Abandon { .. } => (),
                Effect::Shed { .. }
                | Effect::Forget(_)
                | Effect::Check { .. }
                | Effect::Revoke { .. }
                | Effect::Closed => panic!("no call asked for this"),
            }
        }
        result
    }

    fn budget_step(&mut self, step: impl FnOnce(&mut Budget, Instant, &mut Vec<Wish>)) {
        let mut wishes = Vec::new();
        step(&mut self.budget, self.now, &mut wishes);
        for wish in wishes {
            if let Wish::Order { key, order } = wish {
                self.messages.push(Message::Order(key, order));
            }
        }
    }

    fn check(&mut self) {
        let sizes = self.pools.values().map(|pool| pool.counts().size());
        let (size, claims): (usize, usize) = (sizes.sum(), self.budget.claims());
        let most = self.most;
        assert!(size <= claims, "{size} members and only {claims} claims");
        assert!(claims <= most, "{claims} claims of at most {most}");
        self.most = claims.max(self.budget.options().max);
    }

    fn is_at_rest(&self) -> bool {
        let nobody = self.waiting.is_empty() && self.held.is_empty();
        nobody && self.messages.is_empty() && self.tasks.is_empty()
    }

    /// With no new takes, all are served while holders come and go, and then
    /// nothing is left that is claimed beside what is idle.
    fn come_to_rest(&mut self) {
        self.starts_fail = false;
        let mut rounds = 0;
        while !self.is_at_rest() {
            rounds += 1;
            assert!(rounds < 20_000, "an ask is left waiting");
            match rounds % 4 {
                0 => self.release(),
                1 => self.end_task(),
                2 if rounds % 40 == 2 => self.pass(Duration::from_millis(20)),
                _ => self.deliver(),
            }
            self.check();
        }
        self.pass(Duration::from_millis(50));
        while !self.messages.is_empty() {
            self.deliver();
        }
        let idle: usize = self.pools.values().map(|pool| pool.counts().idle).sum();
        assert_eq!(self.budget.claims(), idle);
        let sizes = self.pools.values().map(|pool| pool.counts().size());
        assert_eq!(sizes.sum::<usize>(), idle);
        assert!(idle <= self.budget.options().max);
    }
}
