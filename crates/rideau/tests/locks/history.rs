//! T15 and K7: what threads did at the same time has an order that explains it.
//!
//! Many short histories, each of a few threads that begin together. Every call
//! is stamped before and after by one clock that only counts.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::thread;

use rideau::{AskOptions, Lock, Locks, LocksOptions};
use rideau_core::Rng;

use crate::checker::{Call, Claim, Deed, by_key, is_explained};
use crate::stage::{MS, patient, times};

const THREADS: usize = 4;
const TURNS: usize = 12;

/// What the threads of a history do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Style {
    /// One key each time.
    Single,
    /// Often several keys at once.
    Several,
    /// Some wait.
    Waiting,
}

/// One thread's part of a history.
struct Scribe<'a> {
    locks: &'a Locks<u8>,
    clock: &'a AtomicU64,
    style: Style,
    keys: u64,
    rng: Rng,
    held: Vec<(u8, u64, Lock<'a, u8>)>,
    calls: Vec<Call>,
}

impl<'a> Scribe<'a> {
    fn record<T>(
        &mut self,
        act: impl FnOnce(&'a Locks<u8>) -> T,
        deed: impl FnOnce(&T) -> Deed,
    ) -> T {
        let pauses = self.rng.below(4) == 0;
        let begin = self.clock.fetch_add(1, SeqCst);
        if pauses {
            thread::yield_now();
        }
        let answer = act(self.locks);
        let end = self.clock.fetch_add(1, SeqCst);
        let deed = deed(&answer);
        self.calls.push(Call { begin, end, deed });
        answer
    }

    fn claim(&mut self) -> Claim {
        Claim {
            key: self.rng.below(self.keys) as u8,
            units: 1 + self.rng.below(4) / 3,
            capacity: 1 + self.rng.below(4),
        }
    }

    fn turn(&mut self) {
        match (self.rng.below(12), self.style) {
            (0, Style::Single) => self.locks.forget_idle(),
            (0..5, Style::Several) => self.acquire_all(),
            (0..3, Style::Waiting) => self.wait(),
            (5, _) => self.look(),
            (6..10, _) if !self.held.is_empty() => self.release(),
            _ => self.acquire(),
        }
    }

    fn acquire(&mut self) {
        let claim = self.claim();
        let Claim {
            key,
            units,
            capacity,
        } = claim;
        let came = self.record(
            |locks| locks.acquire_many(&key, units as u32, capacity),
            |came| match came {
                Ok(lock) => Deed::Grant(vec![(claim, lock.ordinal(), lock.fence())]),
                Err(no) => {
                    assert_eq!((u64::from(no.units), no.capacity), (units, capacity));
                    let claims = vec![claim];
                    Deed::Refuse {
                        claims,
                        at: 0,
                        held: no.held,
                    }
                }
            },
        );
        self.held.extend(came.ok().map(|lock| (key, units, lock)));
    }

    fn acquire_all(&mut self) {
        let claims: Vec<Claim> = (0..2 + self.rng.below(2)).map(|_| self.claim()).collect();
        let asked = claims.iter();
        let asked = asked.map(|claim| (&claim.key, claim.units as u32, claim.capacity));
        let came = self.record(
            |locks| locks.acquire_all(asked),
            |came| match came {
                Ok(got) => {
                    let got = claims.iter().zip(got);
                    let numbers = got.map(|(claim, lock)| (*claim, lock.ordinal(), lock.fence()));
                    Deed::Grant(numbers.collect())
                }
                Err(no) => {
                    let (claims, at) = (claims.clone(), no.at);
                    Deed::Refuse {
                        claims,
                        at,
                        held: no.full.held,
                    }
                }
            },
        );
        let got = claims.iter().zip(came.into_iter().flatten());
        self.held
            .extend(got.map(|(claim, lock)| (claim.key, claim.units, lock)));
    }

    /// Wait a little. Nothing is said about a wait for nothing.
    fn wait(&mut self) {
        let claim = self.claim();
        let Claim {
            key,
            units,
            capacity,
        } = claim;
        let terms = AskOptions {
            wait_max: Some(MS / 5),
            ..AskOptions::default()
        };
        let nothing = Deed::Grant(Vec::new());
        let came = self.record(
            |locks| locks.acquire_blocking(&key, units as u32, capacity, terms),
            |came| match came {
                Ok(lock) => Deed::Grant(vec![(claim, lock.ordinal(), lock.fence())]),
                Err(_) => nothing,
            },
        );
        if came.is_err() {
            self.calls.pop();
        }
        self.held.extend(came.ok().map(|lock| (key, units, lock)));
    }

    fn look(&mut self) {
        let key = self.rng.below(self.keys) as u8;
        self.record(
            |locks| locks.held(&key),
            |held| Deed::Held { key, held: *held },
        );
    }

    fn release(&mut self) {
        let at = self.rng.below(self.held.len() as u64) as usize;
        let (key, units, lock) = self.held.swap_remove(at);
        self.record(move |_| lock.release(), |()| Deed::Release { key, units });
    }
}

/// Let all threads begin at the same time.
fn meet(came: &AtomicUsize) {
    came.fetch_add(1, SeqCst);
    while came.load(SeqCst) < THREADS {
        thread::yield_now();
    }
}

/// What threads did, in no order.
fn record(seed: u64, style: Style) -> Vec<Call> {
    let mut rng = Rng::new(seed);
    let keys = 1 + rng.below(if style == Style::Waiting { 1 } else { 3 });
    let options = LocksOptions {
        queue: patient(),
        fence: rng.below(9),
    };
    let locks = Locks::with(options).unwrap();
    let (clock, came) = (AtomicU64::new(1), AtomicUsize::new(0));
    let play = |mut rng: Rng| {
        rng.draw();
        let mut scribe = Scribe {
            locks: &locks,
            clock: &clock,
            style,
            keys,
            rng,
            held: Vec::new(),
            calls: Vec::new(),
        };
        meet(&came);
        (0..TURNS).for_each(|_| scribe.turn());
        while !scribe.held.is_empty() {
            scribe.release();
        }
        scribe.calls
    };
    let calls = thread::scope(|scope| {
        let threads = (0..THREADS).map(|_| Rng::new(rng.draw()));
        let threads: Vec<_> = threads.map(|rng| scope.spawn(|| play(rng))).collect();
        let parts = threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap());
        parts.collect()
    });
    assert!(locks.all_held().is_empty());
    calls
}

fn check(seed: u64, style: Style) -> usize {
    let calls = record(seed, style);
    let explained = match by_key(&calls) {
        Some(parts) => parts.iter().all(|part| is_explained(part)),
        None => is_explained(&calls),
    };
    let mut told = calls.clone();
    told.sort_by_key(|call| call.begin);
    assert!(explained, "seed {seed}: no order explains {told:#?}");
    overlaps(&calls)
}

/// How many calls began while another was under way.
fn overlaps(calls: &[Call]) -> usize {
    let under_way = |at: u64| calls.iter().any(|other| other.begin < at && at < other.end);
    calls.iter().filter(|call| under_way(call.begin)).count()
}

fn check_many(style: Style) {
    let overlaps: usize = (0..times(300)).map(|seed| check(seed, style)).sum();
    assert!(overlaps > 300, "{overlaps} calls of all met another");
}

#[test]
fn calls_of_single_keys_have_an_order() {
    check_many(Style::Single);
}

#[test]
fn calls_of_several_keys_have_an_order() {
    check_many(Style::Several);
}

#[test]
fn calls_among_which_some_wait_have_an_order() {
    check_many(Style::Waiting);
}

#[test]
fn what_really_happened_is_not_explained_once_a_number_is_forged() {
    let (mut forged, mut styles) = (0, [Style::Single, Style::Several].into_iter().cycle());
    for seed in 0..60 {
        let calls = record(seed, styles.next().unwrap());
        assert!(is_explained(&calls), "seed {seed}");
        let is_grant = |at: &usize| matches!(calls[*at].deed, Deed::Grant(_));
        for at in (0..calls.len()).filter(is_grant).step_by(5) {
            let mut doctored = calls.clone();
            if let Deed::Grant(grants) = &mut doctored[at].deed {
                // No more than all units of all threads are ever held.
                grants[0].1 += 1_000;
                grants[0].0.capacity += 1_000;
            }
            assert!(!is_explained(&doctored), "seed {seed}, call {at}");
            forged += 1;
        }
    }
    assert!(forged > 100, "{forged}");
}

#[test]
fn a_fence_that_is_given_twice_is_not_explained() {
    let calls = record(1, Style::Single);
    let grants = || calls.iter().enumerate();
    let mut seen = BTreeSet::new();
    let mut forged = 0;
    for (at, call) in grants() {
        let Deed::Grant(granted) = &call.deed else {
            continue;
        };
        let (claim, _, fence) = granted[0];
        seen.insert((claim.key, fence));
        let other = seen
            .iter()
            .find(|(key, other)| *key == claim.key && *other != fence);
        if let Some((_, other)) = other {
            let mut doctored = calls.clone();
            if let Deed::Grant(granted) = &mut doctored[at].deed {
                granted[0].2 = *other;
            }
            assert!(!is_explained(&doctored), "call {at}");
            forged += 1;
        }
    }
    assert!(forged > 0 && is_explained(&calls));
}
