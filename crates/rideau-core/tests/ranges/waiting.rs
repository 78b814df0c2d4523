//! Asks that wait for values are served in the order in which they came.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rideau_core::allocator::{
    Ask, Class, Interval, Key, Kind, Place, Prefer, RangeOptions, Refused, Reservation, Span,
    Standing, Start, Told, Waiters, Which,
};
use rideau_core::{Instant, Reason, Reply, Rng, Ticket};

use crate::bench::{Bench, options};

const VALUES: u128 = 24;

/// A waiting ask, by its number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Who(u64);

impl Reply for Who {
    /// Every tenth goes away without a word.
    fn is_gone(&self) -> bool {
        self.0 % 10 == 9
    }
}

/// A bench with the asks that wait at it.
struct Hall {
    bench: Bench,
    waiters: Waiters<Who>,
    told: Vec<Told<Who>>,
    next: u64,
}

impl Hall {
    fn new(ranges: &[(&str, &str)]) -> Self {
        Self {
            bench: Bench::new(ranges),
            waiters: Waiters::new(1_000),
            told: Vec::new(),
            next: 0,
        }
    }

    /// Ask now, and wait for this many seconds if nothing is there.
    fn ask(&mut self, ask: &Ask<'_>, seconds: u64) -> Result<Vec<Reservation>, Waits> {
        let Bench {
            machine,
            effects,
            now,
        } = &mut self.bench;
        let mut granted = Vec::new();
        let told = &mut self.told;
        let waiters = &mut self.waiters;
        match waiters.reserve(machine, ask, *now, effects, &mut granted, told) {
            Ok(()) => Ok(granted),
            Err(Refused::Exhausted { .. }) if seconds > 0 => {
                let who = Who(self.next);
                self.next += 1;
                let deadline = *now + Duration::from_secs(seconds);
                let ticket = waiters.wait(machine, ask, deadline, who, *now);
                Err(ticket.map_or_else(Waits::Not, |ticket| Waits::Since(who, ticket)))
            }
            Err(refused) => Err(Waits::Not(refused)),
        }
    }

    fn one(&mut self, name: &str, seconds: u64) -> Result<Vec<Reservation>, Waits> {
        let prefer = [self.bench.prefer(name, 0)];
        self.ask(&Ask::new(&prefer), seconds)
    }

    fn waits(&mut self, name: &str, seconds: u64) -> (Who, Ticket) {
        self.one(name, seconds).unwrap_err().since()
    }

    fn release(&mut self, held: Reservation) {
        self.bench.release(held).unwrap();
        self.serve();
    }

    fn serve(&mut self) {
        let Bench {
            machine,
            effects,
            now,
        } = &mut self.bench;
        self.waiters.serve(machine, *now, effects, &mut self.told);
    }

    /// Do all that is due.
    fn sweep(&mut self) {
        let Bench {
            machine,
            effects,
            now,
        } = &mut self.bench;
        for _ in 0..1_000 {
            if self.waiters.deadline(machine).is_none_or(|due| due > *now) {
                return;
            }
            self.waiters.advance(machine, *now, effects, &mut self.told);
        }
        panic!("what is due at a time comes to an end");
    }

    /// The asks that were told something, and the values that each got.
    fn told(&mut self) -> Vec<(Who, Result<Vec<u128>, Refused>)> {
        let told = self.told.drain(..);
        told.map(|told| (told.reply, told.answer.map(|all| values(&all))))
            .collect()
    }

    fn cancel(&mut self, ticket: Ticket) -> Option<Who> {
        let (machine, now) = (&mut self.bench.machine, self.bench.now);
        let cancelled = self.waiters.cancel(ticket, machine, now);
        self.serve();
        cancelled.map(|(who, _)| who)
    }
}

#[derive(Debug)]
enum Waits {
    Since(Who, Ticket),
    Not(Refused),
}

impl Waits {
    fn since(self) -> (Who, Ticket) {
        match self {
            Self::Since(who, ticket) => (who, ticket),
            Self::Not(refused) => panic!("{refused}"),
        }
    }
}

fn values(granted: &[Reservation]) -> Vec<u128> {
    granted.iter().map(|one| one.value).collect()
}

fn within(tier: u8, first: u128, last: u128) -> Prefer {
    Prefer {
        tier,
        place: Place::Within(Interval::new(first, last).unwrap()),
    }
}

#[test]
fn the_first_ask_is_served_first_and_told_once() {
    let mut hall = Hall::new(&[("few", "0-1")]);
    let held: Vec<_> = (0..2).map(|_| hall.one("few", 0).unwrap()[0]).collect();
    let (anna, _) = hall.waits("few", 60);
    let (_, bert) = hall.waits("few", 60);
    let (cleo, _) = hall.waits("few", 60);
    assert_eq!(hall.waiters.len(), 3);
    assert_eq!(hall.cancel(bert), Some(Who(1)));
    assert_eq!(hall.cancel(bert), None);
    hall.release(held[1]);
    assert_eq!(hall.told(), [(anna, Ok(vec![1]))]);
    hall.release(held[0]);
    assert_eq!(hall.told(), [(cleo, Ok(vec![0]))]);
    assert!(hall.waiters.is_empty() && hall.told().is_empty());
}

#[test]
fn the_last_ask_leaves_nothing_to_be_done_when_cancelled() {
    let mut hall = Hall::new(&[("few", "0-1")]);
    let held: Vec<_> = (0..2).map(|_| hall.one("few", 0).unwrap()[0]).collect();
    let (anna, ticket) = hall.waits("few", 60);
    let (machine, now) = (&mut hall.bench.machine, hall.bench.now);
    let cancelled = hall.waiters.cancel(ticket, machine, now);
    assert_eq!(cancelled.map(|(who, _)| who), Some(anna));
    hall.release(held[0]);
    hall.sweep();
    assert_eq!(values(&hall.one("few", 0).unwrap()), [0], "it is anybody's");
}

#[test]
fn what_time_frees_goes_to_waiting_asks() {
    let mut hall = Hall::new(&[]);
    let quarantined = RangeOptions {
        start: Start::Quarantine,
        cool: Duration::from_secs(5),
        ..options("0-1")
    };
    hall.bench.add("few", quarantined);
    let (anna, _) = hall.waits("few", 3_600);
    hall.bench.after(900);
    hall.sweep();
    assert_eq!(hall.told(), [(anna, Ok(vec![0]))]);
    let last = hall.one("few", 0).unwrap()[0];
    let (bert, _) = hall.waits("few", 3_600);
    let (cleo, _) = hall.waits("few", 3_600);
    hall.release(last);
    assert!(hall.told().is_empty(), "it rests");
    hall.bench.after(6);
    hall.sweep();
    assert_eq!(hall.told(), [(bert, Ok(vec![1]))], "its rest is over");
    hall.bench.after(60);
    hall.sweep();
    assert_eq!(hall.told(), [(cleo, Ok(vec![0]))], "a hold has ended");
}

#[test]
fn a_range_that_grows_serves_waiting_asks_and_one_that_goes_tells_them() {
    let mut hall = Hall::new(&[("few", "0-0"), ("other", "8-8")]);
    hall.one("few", 0).unwrap();
    let (anna, _) = hall.waits("few", 60);
    let (bert, _) = hall.waits("few", 60);
    hall.bench.add("few", options("0-1"));
    hall.serve();
    assert_eq!(hall.told(), [(anna, Ok(vec![1]))]);
    let few = hall.bench.machine.range("few").unwrap();
    let (machine, effects, now) = (
        &mut hall.bench.machine,
        &mut hall.bench.effects,
        hall.bench.now,
    );
    machine.remove_range(few, effects).unwrap();
    let waiters = &mut hall.waiters;
    waiters.let_range_go(few, machine, now, &mut hall.told);
    assert_eq!(hall.told(), [(bert, Err(Refused::Draining))]);
}

#[test]
fn an_ask_for_several_keeps_what_there_is_until_it_has_all_or_goes() {
    let mut hall = Hall::new(&[("few", "0-3")]);
    let held: Vec<_> = (0..4).map(|_| hall.one("few", 0).unwrap()[0]).collect();
    let prefer = [hall.bench.prefer("few", 0)];
    let three = Ask {
        count: 3,
        ..Ask::new(&prefer)
    };
    let (anna, _) = hall.ask(&three, 60).unwrap_err().since();
    let (bert, _) = hall.waits("few", 60);
    hall.release(held[0]);
    hall.release(held[2]);
    assert!(hall.told().is_empty(), "two are not three, and are anna's");
    assert!(hall.one("few", 0).is_err(), "nobody overtakes");
    hall.release(held[1]);
    assert_eq!(hall.told(), [(anna, Ok(vec![0, 1, 2]))]);
    // The next ask for several values gives up.
    let (_, cleo) = hall.ask(&three, 60).unwrap_err().since();
    let (dora, _) = hall.waits("few", 60);
    hall.release(held[3]);
    assert_eq!(hall.told(), [(bert, Ok(vec![3]))]);
    hall.bench
        .machine
        .release(0, Some(5), hall.bench.now, &mut hall.bench.effects)
        .unwrap();
    hall.serve();
    assert!(hall.told().is_empty());
    hall.cancel(cleo);
    assert_eq!(hall.told(), [(dora, Ok(vec![0]))]);
}

#[test]
fn an_ask_for_a_certain_value_holds_up_no_other() {
    let mut hall = Hall::new(&[("few", "0-1")]);
    let held: Vec<_> = (0..2).map(|_| hall.one("few", 0).unwrap()[0]).collect();
    let (anna, _) = hall
        .ask(&Ask::new(&[within(0, 1, 1)]), 60)
        .unwrap_err()
        .since();
    let (bert, _) = hall.waits("few", 60);
    hall.release(held[0]);
    assert_eq!(hall.told(), [(bert, Ok(vec![0]))]);
    hall.release(held[1]);
    assert_eq!(hall.told(), [(anna, Ok(vec![1]))]);
}

#[test]
fn an_ask_past_its_wait_is_told_and_a_crowd_is_refused_with_numbers() {
    let mut hall = Hall::new(&[("few", "0-0")]);
    hall.waiters = Waiters::new(2);
    let prefer = [hall.bench.prefer("few", 0)];
    let long = Ask {
        ttl: Some(Duration::from_secs(3_600)),
        ..Ask::new(&prefer)
    };
    hall.ask(&long, 0).unwrap();
    let (anna, _) = hall.waits("few", 5);
    hall.waits("few", 60);
    match hall.one("few", 60) {
        Err(Waits::Not(Refused::Crowded(refusal))) => {
            assert_eq!((refusal.reason, refusal.len), (Reason::Full, 2));
        }
        other => panic!("{other:?}"),
    }
    hall.bench.after(5);
    hall.sweep();
    let told = hall.told();
    assert!(matches!(&told[..], [(who, Err(Refused::Exhausted { .. }))] if *who == anna));
    let two = Ask { count: 2, ..long };
    let in_vain = hall.ask(&two, 60);
    let size = rideau_core::allocator::Size::ONE;
    let free = rideau_core::allocator::Size::ZERO;
    match in_vain {
        Err(Waits::Not(refused)) => assert_eq!(refused, Refused::Exhausted { free, size }),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_ask_with_a_key_of_its_own_gets_what_that_has_at_the_end() {
    let mut hall = Hall::new(&[("few", "0-0"), ("more", "4-9")]);
    hall.one("few", 0).unwrap();
    let keys = [Key {
        bytes: b"mac",
        unique: true,
    }];
    let few = [hall.bench.prefer("few", 0)];
    let more = [hall.bench.prefer("more", 0)];
    let ask = |prefer| Ask {
        keys: &keys,
        ..Ask::new(prefer)
    };
    let (anna, _) = hall.ask(&ask(&few), 5).unwrap_err().since();
    assert_eq!(values(&hall.ask(&ask(&more), 0).unwrap()), [4]);
    hall.bench.after(5);
    hall.sweep();
    assert_eq!(hall.told(), [(anna, Ok(vec![4]))]);
}

/// A waiting ask, as the model sees it.
#[derive(Clone, Debug)]
struct Asked {
    ticket: Ticket,
    prefer: Vec<Prefer>,
    is_several: bool,
    until: Instant,
}

/// Random asks, ends and changes, and the rules of waiting after each.
struct Laws {
    rng: Rng,
    hall: Hall,
    waiting: BTreeMap<u64, Asked>,
    answered: BTreeSet<u64>,
    held: Vec<Reservation>,
}

impl Laws {
    fn new(seed: u64) -> Self {
        let mut laws = Self {
            rng: Rng::new(seed),
            hall: Hall::new(&[]),
            waiting: BTreeMap::new(),
            answered: BTreeSet::new(),
            held: Vec::new(),
        };
        for name in ["a", "b", "c"] {
            laws.set_range(name);
        }
        laws
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.rng.below(bound)
    }

    fn set_range(&mut self, name: &str) {
        let home = match name {
            "a" => 0,
            "b" => 8,
            _ => 16,
        };
        let last = home + self.below(7) + 1;
        let interval = Interval::new(home.into(), last.into()).unwrap();
        let kind = Kind::Number;
        let seconds = |n| Duration::from_secs(n);
        let style = self.below(3) as usize;
        let known = self.hall.bench.machine.range(name);
        let known = known.and_then(|id| self.hall.bench.machine.options(id));
        let class = [Class::Sync, Class::Claimed, Class::Memory][style];
        let class = known.map_or(class, |options| options.class);
        let options = RangeOptions {
            class,
            start: [Start::Free, Start::Quarantine][self.below(2) as usize],
            quarantine: seconds(self.below(5)),
            cool: seconds(self.below(2) * 3),
            detach: seconds(self.below(4)),
            ..RangeOptions::new(vec![Span { kind, interval }])
        };
        let (bench, effects) = (&mut self.hall.bench.machine, &mut self.hall.bench.effects);
        // One that drains cannot be changed.
        let _ = bench.set_range(name, options, self.hall.bench.now, effects);
    }

    fn remove_range(&mut self, name: &str) {
        let Bench {
            machine,
            effects,
            now,
        } = &mut self.hall.bench;
        if let Some(id) = machine.range(name) {
            machine.remove_range(id, effects).unwrap();
            let told = &mut self.hall.told;
            self.hall.waiters.let_range_go(id, machine, *now, told);
        }
    }

    fn some_place(&mut self) -> Option<Place> {
        if self.below(4) == 0 {
            let first = u128::from(self.below(VALUES as u64));
            let last = (first + u128::from(self.below(6))).min(VALUES - 1);
            return Some(Place::Within(Interval::new(first, last).unwrap()));
        }
        let name = ["a", "b", "c"][self.below(3) as usize];
        self.hall.bench.machine.range(name).map(Place::Range)
    }

    fn ask(&mut self) {
        let mut prefer = Vec::new();
        for tier in 0..1 + self.below(2) as u8 {
            for _ in 0..1 + self.below(2) {
                prefer.extend(self.some_place().map(|place| Prefer { tier, place }));
            }
        }
        let count = if self.below(4) == 0 {
            1 + self.below(4) as u32
        } else {
            1
        };
        let partial = self.below(3) == 0;
        let ask = Ask {
            count,
            partial,
            ttl: Some(Duration::from_secs(1 + self.below(20))),
            ..Ask::new(&prefer)
        };
        let seconds = self.below(3) * (1 + self.below(30));
        let until = self.hall.bench.now + Duration::from_secs(seconds);
        let answer = self.hall.ask(&ask, seconds);
        self.hear();
        match answer {
            Ok(granted) => {
                for value in values(&granted) {
                    let mut others = self.waiting.iter();
                    let other =
                        others.find(|(who, asked)| *who % 10 != 9 && self.wants(asked, value));
                    assert!(other.is_none(), "{value} was {other:?}'s");
                }
                self.held.extend(granted);
            }
            Err(Waits::Since(who, ticket)) => {
                let is_several = count > 1 && !partial;
                let asked = Asked {
                    ticket,
                    prefer,
                    is_several,
                    until,
                };
                self.waiting.insert(who.0, asked);
            }
            Err(Waits::Not(_)) => (),
        }
    }

    fn wants(&self, asked: &Asked, value: u128) -> bool {
        let machine = &self.hall.bench.machine;
        asked.prefer.iter().any(|prefer| match prefer.place {
            Place::Within(within) => within.contains(value),
            Place::Range(id) => machine.options(id).is_some_and(|options| {
                let mut spans = options.spans.iter();
                spans.any(|span| span.interval.contains(value))
            }),
        })
    }

    /// An ask that is told something waited, is told once, and overtakes no
    /// other.
    fn hear(&mut self) {
        for told in std::mem::take(&mut self.hall.told) {
            let who = told.reply.0;
            let asked = self.waiting.remove(&who).expect("what is told has waited");
            assert!(self.answered.insert(who), "{who} is told twice");
            match told.answer {
                Ok(granted) => {
                    for value in values(&granted) {
                        let mut earlier = self.waiting.range(..who);
                        let other = earlier
                            .find(|(other, asked)| *other % 10 != 9 && self.wants(asked, value));
                        assert!(other.is_none(), "{who} overtook {other:?} for {value}");
                    }
                    self.held.extend(granted);
                }
                Err(Refused::Exhausted { .. }) => {
                    assert!(asked.until <= self.hall.bench.now, "{who} has time");
                }
                Err(Refused::Draining | Refused::TooLong { .. }) => (),
                Err(other) => panic!("{other}"),
            }
        }
    }

    fn leave(&mut self) {
        let len = self.waiting.len() as u64;
        if len == 0 {
            return;
        }
        let at = self.below(len) as usize;
        let (who, asked) = self.waiting.iter().nth(at).unwrap();
        let (who, ticket) = (*who, asked.ticket);
        let cancelled = self.hall.cancel(ticket);
        // An ask that was gone may have been noticed before.
        assert!(cancelled == Some(Who(who)) || who % 10 == 9);
        self.waiting.remove(&who);
        self.answered.insert(who);
    }

    fn give_back(&mut self) {
        let len = self.held.len() as u64;
        if len == 0 {
            return;
        }
        let at = self.below(len) as usize;
        let one = self.held.swap_remove(at);
        let Bench {
            machine,
            effects,
            now,
        } = &mut self.hall.bench;
        // Its time may have run out.
        let _ = match self.rng.below(4) {
            0 => {
                let which = Which::Value(one.value);
                machine
                    .cancel(which, Some(one.fence), *now, effects)
                    .map(drop)
            }
            _ => machine
                .release(one.value, Some(one.fence), *now, effects)
                .map(drop),
        };
    }

    fn step(&mut self) {
        let nanos = self.below(400_000_000);
        self.hall.bench.now = self.hall.bench.now.after(nanos);
        let name = ["a", "b", "c"][self.below(3) as usize];
        match self.below(40) {
            0..18 => self.ask(),
            18..30 => self.give_back(),
            30..33 => self.leave(),
            33..35 => self.set_range(name),
            35 if self.below(4) == 0 => self.remove_range(name),
            36 => self.hall.bench.after(3),
            37..39 => {
                let position = self.hall.bench.effects.position();
                self.hall.bench.machine.durable(position);
            }
            _ => (),
        }
        if self.below(3) > 0 {
            self.hall.serve();
        }
        self.hear();
    }

    /// No value is free that a waiting ask could have.
    fn check(&mut self) {
        self.hall.sweep();
        for value in 0..VALUES {
            self.hall.bench.stands(value);
        }
        self.hall.sweep();
        self.hear();
        let now = self.hall.bench.now;
        for value in 0..VALUES {
            if self.hall.bench.stands(value) != Standing::Free {
                continue;
            }
            let wanting = self.waiting.iter();
            let mut wanting =
                wanting.filter(|(who, asked)| *who % 10 != 9 && self.wants(asked, value));
            if let Some((who, first)) = wanting.next() {
                assert!(
                    first.is_several,
                    "{value} is free and {who} waits: {first:?}"
                );
            }
        }
        for (who, asked) in &self.waiting {
            assert!(asked.until > now || who % 10 == 9, "{who} waits too long");
        }
    }
}

#[test]
fn no_ask_is_overtaken_and_each_is_told_once_whatever_happens() {
    let mut served = 0;
    for seed in 0..300 {
        let mut laws = Laws::new(seed);
        for step in 0..400 {
            laws.step();
            if step % 8 == 0 {
                laws.check();
            }
        }
        laws.hall.bench.after(10_000);
        laws.check();
        // Asks that went without a word may be let go without one.
        laws.waiting.retain(|who, _| who % 10 != 9);
        assert!(laws.waiting.is_empty(), "seed {seed}: {:?}", laws.waiting);
        assert!(laws.hall.waiters.is_empty());
        served += laws.hall.waiters.tally().served;
    }
    assert!(served > 5_000, "{served}");
}
