//! K1 to K8 for any script of calls, one after the other, against one number
//! for each key.

use std::collections::BTreeMap;

use rideau::{Lock, LockHandle, Locks, LocksOptions, NotHeld, Owner, queue};
use rideau_core::Rng;

use crate::stage::{die, panics, times, until};

const KEYS: u64 = 4;

/// The locks, and what must be true of them.
struct Script<'a> {
    locks: &'a Locks<u64>,
    rng: Rng,
    /// The holders beside the owner.
    guards: Vec<Lock<'a, u64>>,
    owner: Owner<u64>,
    /// The units of each of the owner's locks, the newest last.
    owned: BTreeMap<u64, Vec<u64>>,
    handles: Vec<LockHandle<u64>>,
    held: BTreeMap<u64, u64>,
    fences: BTreeMap<u64, u64>,
}

/// What a try asked for, and how it must be answered.
#[derive(Clone, Copy)]
struct Try {
    key: u64,
    units: u32,
    capacity: u64,
}

impl<'a> Script<'a> {
    fn new(locks: &'a Locks<u64>, seed: u64) -> Self {
        Self {
            locks,
            rng: Rng::new(seed),
            guards: Vec::new(),
            owner: locks.owner(),
            owned: BTreeMap::new(),
            handles: Vec::new(),
            held: (0..KEYS).map(|key| (key, 0)).collect(),
            fences: BTreeMap::new(),
        }
    }

    fn draw_try(&mut self) -> Try {
        Try {
            key: self.rng.below(KEYS),
            units: self.rng.below(10).saturating_sub(3).clamp(0, 4) as u32,
            capacity: self.rng.below(9),
        }
    }

    fn fits(&self, of: Try) -> bool {
        of.units > 0 && self.held[&of.key] + u64::from(of.units) <= of.capacity
    }

    /// Whether an answer is right, and count it.
    fn judge(&mut self, of: Try, came: Result<(u64, u64), u64>) {
        let fits = self.fits(of);
        let held = self.held.get_mut(&of.key).unwrap();
        match came {
            Ok((ordinal, fence)) => {
                assert!(fits, "K2");
                *held += u64::from(of.units);
                assert_eq!(ordinal, *held);
                let last = self.fences.insert(of.key, fence).unwrap_or(0);
                assert!(fence > last, "{fence} comes after {last}");
            }
            Err(seen) => {
                assert!(!fits, "K3");
                assert_eq!(seen, *held);
            }
        }
    }

    fn act(&mut self) {
        match self.rng.below(20) {
            0..5 => self.acquire(),
            5 | 6 => self.acquire_by_handle(),
            7 | 8 => self.acquire_all(),
            9..12 => self.acquire_for_owner(),
            12..15 => self.release(),
            15 => self.release_of_owner(),
            16 => self.die_holding(),
            17 => self.locks.forget_idle(),
            18 => self.end_owner(),
            _ => self.handles.clear(),
        }
    }

    fn keep(&mut self, of: Try, came: Result<Lock<'a, u64>, rideau::Full>) {
        let numbers = came.as_ref().map(|lock| (lock.ordinal(), lock.fence()));
        self.judge(of, numbers.map_err(|no| no.held));
        self.guards.extend(came);
    }

    fn acquire(&mut self) {
        let of = self.draw_try();
        let came = match self.rng.below(2) {
            0 => self.locks.acquire_owned(&of.key, of.units, of.capacity),
            _ => self.locks.acquire_many(&of.key, of.units, of.capacity),
        };
        self.keep(of, came);
    }

    fn acquire_by_handle(&mut self) {
        let of = self.draw_try();
        let handle = self.locks.handle(&of.key);
        let came = handle.acquire_owned(of.units, of.capacity);
        assert_eq!(handle.key(), &of.key);
        self.keep(of, came);
        assert_eq!(handle.held(), self.held[&of.key]);
        self.handles.push(handle);
    }

    /// Of several keys, also of one several times.
    fn acquire_all(&mut self) {
        let tries: Vec<Try> = (0..self.rng.below(4)).map(|_| self.draw_try()).collect();
        let claims = tries.iter().map(|of| (&of.key, of.units, of.capacity));
        match self.locks.acquire_all(claims) {
            Ok(locks) => {
                assert_eq!(locks.len(), tries.len());
                for (of, lock) in tries.into_iter().zip(locks) {
                    self.keep(of, Ok(lock));
                }
            }
            Err(no) => {
                let of = tries[no.at];
                let before = tries[..no.at].iter().filter(|other| other.key == of.key);
                let before: u64 = before.map(|other| u64::from(other.units)).sum();
                let wanted = self.held[&of.key] + before + u64::from(of.units);
                assert!(
                    of.units == 0 || wanted > of.capacity,
                    "it would have fitted"
                );
            }
        }
    }

    fn acquire_for_owner(&mut self) {
        let of = self.draw_try();
        let came = self.owner.acquire_many(&of.key, of.units, of.capacity);
        let came = came.map(|lock| (lock.ordinal(), lock.fence()));
        self.judge(of, came.map_err(|no| no.held));
        if came.is_ok() {
            self.owned.entry(of.key).or_default().push(of.units.into());
        }
    }

    fn release(&mut self) {
        if self.guards.is_empty() {
            return;
        }
        let at = self.rng.below(self.guards.len() as u64) as usize;
        let lock = self.guards.swap_remove(at);
        *self.held.get_mut(lock.key()).unwrap() -= u64::from(lock.units());
        lock.release();
    }

    fn release_of_owner(&mut self) {
        let key = self.rng.below(KEYS);
        let newest = self.owned.get_mut(&key).and_then(Vec::pop);
        let released = self.owner.release(&key);
        assert_eq!(released, newest.map(drop).ok_or(NotHeld));
        *self.held.get_mut(&key).unwrap() -= newest.unwrap_or(0);
    }

    /// K5 and K6.
    fn die_holding(&mut self) {
        let of = self.draw_try();
        let mut came = None;
        panics(|| {
            let lock = self.locks.acquire_many(&of.key, of.units, of.capacity);
            came = Some(lock.as_ref().map(|_| ()).map_err(|no| no.held));
            die()
        });
        assert_eq!(came.unwrap().is_ok(), self.fits(of));
    }

    fn end_owner(&mut self) {
        self.owner = self.locks.owner();
        for (key, units) in std::mem::take(&mut self.owned) {
            *self.held.get_mut(&key).unwrap() -= units.iter().sum::<u64>();
        }
    }

    /// K1 and K8: every key is as it should be, after every call.
    fn check(&self) {
        for (key, held) in &self.held {
            assert_eq!(self.locks.held(key), *held, "of {key}");
            assert_eq!(self.locks.surplus(key, 2), held.saturating_sub(2));
        }
        let mut all = self.locks.all_held();
        all.sort_unstable();
        let held = self.held.iter().filter(|(_, held)| **held > 0);
        assert_eq!(
            all,
            held.map(|(key, held)| (*key, *held)).collect::<Vec<_>>()
        );
        assert!(self.locks.len() >= all.len());
        assert_eq!(self.owner.len(), self.owned.values().map(Vec::len).sum());
    }
}

#[test]
fn any_script_is_answered_as_one_number_for_each_key_says() {
    for seed in 0..times(2_500) {
        let options = LocksOptions {
            queue: queue::Options::default(),
            // Also where a fence needs more room than its word has.
            fence: (seed % 7) * ((1 << 34) - 9),
        };
        let locks = Locks::with(options).unwrap();
        let said = panics(|| {
            let mut script = Script::new(&locks, seed);
            for _ in 0..40 {
                script.act();
                script.check();
            }
        });
        assert!(!said, "seed {seed}");
        // K4.
        assert!(locks.all_held().is_empty());
        locks.forget_idle();
        assert!(locks.is_empty(), "seed {seed}");
    }
}

/// K4, without any call.
#[test]
fn at_rest_no_key_is_known() {
    let all: Vec<Locks<u64>> = (0..20).map(|_| Locks::new()).collect();
    for (locks, seed) in all.iter().zip(0..) {
        let mut script = Script::new(locks, seed);
        (0..100).for_each(|_| script.act());
    }
    for locks in &all {
        until("an empty map", || locks.is_empty());
    }
}
