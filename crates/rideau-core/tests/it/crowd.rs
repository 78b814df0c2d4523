//! Very many at once: no call does more than its share, and no ask is lost.
//!
//! The counts here are such that a call whose work grows with the number of
//! waiting asks would take minutes.

use std::cell::Cell;
use std::num::NonZeroU32;
use std::rc::Rc;
use std::time::Duration;

use rideau_core::broker::{self, Broker};
use rideau_core::locks::{self, Claim, Count, Full, Grant, Lines};
use rideau_core::pool::{self, Came, Pool, Priority};
use rideau_core::queue::{
    AskOptions, ENDS_MAX, FairOptions, Options, Order, Queue, Shedding, Turn,
};
use rideau_core::regulator::{self, Regulator};
use rideau_core::{Flow, Instant, Ledger, Machine, Reason, Reply, Settings, valve};

const MANY: usize = 100_000;
const ENDS: usize = ENDS_MAX as usize;
const DUE: Instant = Instant::from_nanos(1_000_000_000);
const LATE: Instant = Instant::from_nanos(2_000_000_000);

struct Name;

impl Reply for Name {}

/// How many units of a lock are held.
struct Held(Rc<Cell<u64>>);

impl Count for Held {
    type Units = ();

    fn held(&self) -> u64 {
        self.0.get()
    }

    fn take(&mut self, claim: Claim) -> Result<(Grant, ()), Full> {
        let ordinal = claim.ordinal(self.0.get())?;
        self.0.set(ordinal);
        let grant = Grant {
            units: claim.units,
            ordinal,
            fence: 1,
        };
        Ok((grant, ()))
    }

    fn mark_waiting(&mut self, _: bool) {}
}

/// All give up at the same time.
fn terms() -> AskOptions {
    AskOptions {
        deadline: Some(DUE),
        promised: true,
        ..AskOptions::new(Instant::START)
    }
}

fn queue(shedding: Shedding) -> Options {
    Options {
        shedding,
        max: None,
        ..Options::default()
    }
}

#[test]
fn a_call_ends_no_more_waits_than_it_may() {
    for order in [Order::Fifo, Order::Lifo] {
        let options = Options {
            order,
            ..queue(Shedding::Never)
        };
        let mut queue = Queue::new(options, Instant::START).unwrap();
        let (mut ledger, mut shed) = (Ledger::default(), Vec::new());
        for _ in 0..5000 {
            let ticket = ledger.open(());
            queue.push(ticket, &terms(), &mut ledger, Instant::START, &mut shed);
        }
        let last = ledger.open(());
        let forever = AskOptions::new(Instant::START);
        queue.push(last, &forever, &mut ledger, Instant::START, &mut shed);
        assert_eq!(shed, []);

        // Serves, looks and newcomers all count, and none is served too late.
        let mut calls = 0;
        let served = loop {
            calls += 1;
            let before = shed.len();
            let turn = match calls % 3 {
                0 => queue.pop(&mut ledger, LATE, &mut shed),
                1 => {
                    queue.advance(&mut ledger, LATE, &mut shed);
                    Turn::More
                }
                _ => {
                    let ticket = ledger.open(());
                    queue.push(ticket, &terms(), &mut ledger, LATE, &mut shed);
                    Turn::More
                }
            };
            // A newcomer that is late itself is one more.
            assert!(shed.len() - before <= ENDS + 1);
            match turn {
                Turn::Of(ticket) => break ticket,
                Turn::Empty => panic!("an ask waits"),
                Turn::More => {
                    let is_due = queue.deadline().is_some_and(|due| due <= LATE);
                    assert!(is_due || queue.len() == 1);
                }
            }
        };
        assert_eq!(served, last);
        assert!(calls >= 5);
        assert!(shed.iter().all(|gone| gone.reason == Reason::Deadline));
        assert_eq!(queue.deadline(), None);
    }
}

#[test]
fn a_law_ends_no_more_waits_in_a_call_either() {
    let (target, interval) = (Duration::from_millis(5), Duration::from_millis(100));
    let laws = [
        Shedding::Timeout { wait_max: interval },
        Shedding::MinDelay { target, interval },
        Shedding::BoundedCoDel {
            target,
            interval,
            wait_max: target,
        },
        Shedding::Paced { wait_cap: None },
    ];
    for shedding in laws {
        let mut queue = Queue::new(queue(shedding.clone()), Instant::START).unwrap();
        let (mut ledger, mut shed) = (Ledger::default(), Vec::new());
        for _ in 0..5000 {
            let ticket = ledger.open(());
            let terms = AskOptions::new(Instant::START);
            queue.push(ticket, &terms, &mut ledger, Instant::START, &mut shed);
        }
        let (mut now, mut most) = (Instant::START, 0);
        while let Some(due) = queue.deadline().filter(|due| *due < LATE) {
            now = due.max(now);
            let before = shed.len();
            queue.advance(&mut ledger, now, &mut shed);
            most = most.max(shed.len() - before);
        }
        assert!(most <= ENDS, "{most} at once under {shedding:?}");
        assert!(queue.len() <= 4, "{} under {shedding:?}", queue.len());
    }
}

#[test]
fn asks_that_the_minimum_spares_are_looked_at_once() {
    let options = Options {
        min: MANY as u32,
        ..queue(Shedding::Standing {
            target: Duration::from_millis(1),
            interval: Duration::from_millis(1),
        })
    };
    let mut queue = Queue::new(options, Instant::START).unwrap();
    let (mut ledger, mut shed) = (Ledger::default(), Vec::new());
    let join = |queue: &mut Queue, ledger: &mut Ledger<usize>, now, shed: &mut Vec<_>| {
        let ticket = ledger.open(0);
        queue.push(ticket, &AskOptions::new(now), ledger, now, shed);
        ticket
    };
    let first: Vec<_> = (0..MANY)
        .map(|_| join(&mut queue, &mut ledger, Instant::START, &mut shed))
        .collect();
    for _ in 0..MANY {
        queue.advance(&mut ledger, LATE, &mut shed);
    }
    assert_eq!(shed, []);
    // One more costs the first its place, and a place that one has left
    // protects the next.
    join(&mut queue, &mut ledger, LATE, &mut shed);
    assert_eq!(shed.len(), 1);
    assert_eq!(
        (shed[0].ticket, shed[0].reason),
        (first[0], Reason::Standing)
    );
    assert!(queue.remove(first[1], &mut ledger, LATE, &mut shed));
    join(&mut queue, &mut ledger, LATE, &mut shed);
    assert_eq!(shed.len(), 1);
    join(&mut queue, &mut ledger, LATE, &mut shed);
    assert_eq!(shed[1].ticket, first[2]);
}

#[test]
fn a_fair_queue_knows_its_oldest_and_its_state_however_many_flows_wait() {
    let options = Options {
        fair: Some(FairOptions {
            flows_max: NonZeroU32::new(MANY as u32).unwrap(),
            ..FairOptions::default()
        }),
        ..queue(Shedding::Standing {
            target: Duration::from_secs(60),
            interval: Duration::from_secs(1),
        })
    };
    let mut queue = Queue::new(options, Instant::START).unwrap();
    let (mut ledger, mut shed) = (Ledger::default(), Vec::new());
    for at in 0..MANY as u64 {
        let now = Instant::from_nanos(at);
        let ticket = ledger.open(at);
        let terms = AskOptions {
            flow: Flow(at),
            ..AskOptions::new(now)
        };
        queue.push(ticket, &terms, &mut ledger, now, &mut shed);
    }
    let (early, soon) = (Instant::from_nanos(999_999_999), DUE);
    for _ in 0..MANY {
        assert_eq!(queue.oldest(), Some(Instant::START));
        assert!(!queue.is_shedding(early) && queue.is_shedding(soon));
    }
    for at in 0..3 {
        assert_eq!(queue.oldest(), Some(Instant::from_nanos(at)));
        let turn = queue.pop(&mut ledger, early, &mut shed);
        assert_eq!(
            turn.ticket().and_then(|ticket| ledger.close(ticket)),
            Some(at)
        );
    }
    assert!(!queue.is_shedding(DUE) && queue.is_shedding(DUE.after(3)));
}

#[test]
fn a_broker_that_is_behind_matches_no_ask_too_late_and_none_twice() {
    let options = broker::Options {
        asks: queue(Shedding::Never),
        ..broker::Options::default()
    };
    let mut effects = Vec::new();
    let mut broker = Broker::new(options, Instant::START, &mut effects).unwrap();
    for _ in 0..5000 {
        let came = broker.ask(&terms(), Name, Instant::START, &mut effects);
        came.into_effect(&mut effects);
    }
    let forever = AskOptions::new(Instant::START);
    let came = broker.ask(&forever, Name, Instant::START, &mut effects);
    let asked = came.into_effect(&mut effects);
    // Three offers come while most of the asks are late, and one leaves again.
    let offer = |broker: &mut Broker<_, _>, effects: &mut Vec<_>| {
        let came = broker.offer(&AskOptions::new(LATE), Name, LATE, effects);
        came.into_effect(effects)
    };
    let [_, second, _] = [(); 3].map(|()| offer(&mut broker, &mut effects));
    assert!(broker.cancel(second, LATE, &mut effects).is_some());
    advance_all(&mut broker, &mut effects, 2 * ENDS);
    let mut matched = Vec::new();
    let mut late = 0;
    for effect in effects {
        match effect {
            broker::Effect::Match { ticket, .. } => matched.push(ticket),
            broker::Effect::ShedAsk { refusal, .. } => {
                assert_eq!(refusal.reason, Reason::Deadline);
                late += 1;
            }
            _ => (),
        }
    }
    assert_eq!((matched.as_slice(), late), ([asked].as_slice(), 5000));
    let stats = broker.stats(LATE);
    assert_eq!((stats.asks_len, stats.offers_len), (0, 1));
}

#[test]
fn a_pool_that_is_behind_keeps_the_member_for_a_take_that_is_not_late() {
    let options = pool::Options {
        max: 1,
        check_after: None,
        idle_age_max: None,
        life_max: None,
        queue: queue(Shedding::Never),
        ..pool::Options::default()
    };
    let mut effects = Vec::new();
    let mut pool = Pool::new(options, Instant::START, &mut effects).unwrap();
    let take = |pool: &mut Pool<Name>, terms: &AskOptions, effects: &mut Vec<_>| {
        pool.take(terms, Priority::Normal, || Name, Instant::START, effects)
    };
    for _ in 0..5000 {
        assert!(matches!(
            take(&mut pool, &terms(), &mut effects),
            Came::Waits(_)
        ));
    }
    let forever = AskOptions::new(Instant::START);
    assert!(matches!(
        take(&mut pool, &forever, &mut effects),
        Came::Waits(_)
    ));
    let started = effects.iter().find_map(|effect| match effect {
        pool::Effect::Start { slot, id, .. } => Some((*slot, *id)),
        _ => None,
    });
    let (slot, id) = started.unwrap();
    effects.clear();
    pool.started(slot, id, LATE, &mut effects);
    assert!(effects.len() <= 3 * ENDS);
    advance_all(&mut pool, &mut effects, 3 * ENDS);
    let is_grant = |effect: &&pool::Effect<_>| matches!(effect, pool::Effect::Grant { .. });
    let is_shed = |effect: &&pool::Effect<_>| matches!(effect, pool::Effect::Shed { .. });
    assert_eq!(effects.iter().filter(is_grant).count(), 1);
    assert_eq!(effects.iter().filter(is_shed).count(), 5000);
}

#[test]
fn a_regulator_that_is_behind_opens_when_it_is_not() {
    let valve = valve::Options::parse(Settings::parse("kind=open max=1").unwrap()).unwrap();
    let options = regulator::Options {
        queue: queue(Shedding::Never),
        ..regulator::Options::new(valve)
    };
    let mut effects = Vec::new();
    let mut regulator = Regulator::new(options, Instant::START, &mut effects).unwrap();
    let held = regulator.ask(
        &AskOptions::new(Instant::START),
        Name,
        Instant::START,
        &mut effects,
    );
    for _ in 0..5000 {
        regulator.ask(&terms(), Name, Instant::START, &mut effects);
    }
    effects.clear();
    regulator.release(held, true, LATE, LATE, &mut effects);
    assert!(effects.len() <= 2 * ENDS);
    advance_all(&mut regulator, &mut effects, 3 * ENDS);
    assert_eq!(effects.len(), 5000);
    assert!(regulator.stats(LATE).is_open);
}

#[test]
fn locks_that_are_behind_grant_no_ask_too_late() {
    let mut effects = Vec::new();
    let options = queue(Shedding::Never);
    let held = Rc::new(Cell::new(1));
    let count = Held(Rc::clone(&held));
    let mut lines = Lines::new(&options, count, Instant::START).unwrap();
    for _ in 0..5000 {
        lines.ask(Claim::one(1), &terms(), Name, Instant::START, &mut effects);
    }
    let forever = AskOptions::new(Instant::START);
    lines.ask(Claim::one(1), &forever, Name, Instant::START, &mut effects);
    assert!(effects.is_empty());
    held.set(0);
    lines.released(LATE, &mut effects);
    assert!(effects.len() <= 2 * ENDS);
    advance_all(&mut lines, &mut effects, 2 * ENDS);
    let is_grant = |effect: &&locks::Effect<_, _>| matches!(effect, locks::Effect::Grant { .. });
    assert_eq!(effects.iter().filter(is_grant).count(), 1);
    assert_eq!(effects.len(), 5001);
}

/// Advance a machine while it is due, and see that each call is short.
fn advance_all<M: Machine>(machine: &mut M, effects: &mut Vec<M::Effect>, most: usize) {
    for _ in 0..100 {
        if machine.deadline().is_none_or(|due| due > LATE) {
            return;
        }
        let before = effects.len();
        machine.advance(LATE, effects);
        assert!(effects.len() - before <= most + 2);
    }
    panic!("it is due for ever");
}
