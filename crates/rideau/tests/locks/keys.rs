//! Keys of many types, and such as panic when they are compared or hashed.

use std::cell::Cell;
use std::hash::{Hash, Hasher};

use rideau::{AskOptions, Locks};

use crate::stage::{die, panics, patient_locks, until};

#[test]
fn keys_are_looked_up_by_what_they_are_borrowed_as() {
    let texts: Locks<String> = Locks::new();
    let held = texts.acquire("db", 1).unwrap();
    assert!(texts.acquire(&String::from("db"), 1).is_err());
    assert_eq!(held.key(), "db");

    let bytes: Locks<Vec<u8>> = Locks::new();
    let held = bytes.acquire(&b"db"[..], 1).unwrap();
    assert!(bytes.acquire(&vec![b'd', b'b'], 1).is_err());
    assert_eq!(bytes.held(&b"d"[..]), 0);
    assert_eq!(held.key(), b"db");

    let numbers: Locks<u64> = Locks::new();
    let held = numbers.acquire(&u64::MAX, 1).unwrap();
    assert!(numbers.acquire(&u64::MAX, 1).is_err());
    assert!(numbers.acquire(&0, 1).is_ok());
    assert_eq!(*held.key(), u64::MAX);

    let pairs: Locks<(u32, &'static str)> = Locks::new();
    let held = pairs.acquire(&(1, "db"), 1).unwrap();
    assert!(pairs.acquire(&(1, "db"), 1).is_err());
    assert!(pairs.acquire(&(2, "db"), 1).is_ok());
    assert_eq!(*held.key(), (1, "db"));

    let units: Locks<()> = Locks::new();
    let _held = units.acquire(&(), 1).unwrap();
    assert!(units.acquire(&(), 1).is_err());
}

/// All keys of this kind have one hash.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Alike(u32);

impl Hash for Alike {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        hasher.write_u8(0);
    }
}

/// K8, where it is hardest. They are few: the map finds a key by its hash, and more keys
/// with one hash than it looks at would make it grow for ever.
#[test]
fn keys_with_one_hash_do_not_interfere() {
    const KEYS: u32 = 12;
    let locks: Locks<Alike> = Locks::new();
    let held: Vec<_> = (0..KEYS)
        .map(|key| locks.acquire_many(&Alike(key), key + 1, 200).unwrap())
        .collect();
    for key in 0..KEYS {
        assert_eq!(locks.held(&Alike(key)), u64::from(key) + 1);
    }
    let mut held: Vec<_> = held.into_iter().map(Some).collect();
    for key in (0..held.len()).step_by(3) {
        held[key] = None;
    }
    locks.forget_idle();
    for key in 0..KEYS {
        let expected = if key % 3 == 0 { 0 } else { u64::from(key) + 1 };
        assert_eq!(locks.held(&Alike(key)), expected);
    }
    drop(held);
    until("an empty map", || locks.is_empty());
}

thread_local! {
    /// This many more calls of a moody key's code go well; none for all.
    static PATIENCE: Cell<Option<u32>> = const { Cell::new(None) };
}

/// A key whose code panics when its patience ends.
#[derive(Debug)]
struct Moody(u32);

fn lose_patience() {
    let Some(left) = PATIENCE.get() else {
        return;
    };
    PATIENCE.set(left.checked_sub(1));
    if left == 0 {
        die();
    }
}

impl Hash for Moody {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        lose_patience();
        hasher.write_u32(self.0);
    }
}

impl PartialEq for Moody {
    fn eq(&self, other: &Self) -> bool {
        lose_patience();
        self.0 == other.0
    }
}

impl Eq for Moody {}

impl Clone for Moody {
    fn clone(&self) -> Self {
        lose_patience();
        Self(self.0)
    }
}

type Act = fn(&Locks<Moody>);

/// Everything that looks a key up: one that is held, and one that is new.
const ACTS: &[Act] = &[
    |locks| drop(locks.acquire(&Moody(1), 9)),
    |locks| drop(locks.acquire(&Moody(2), 9)),
    |locks| drop(locks.acquire(&Moody(1), 0)),
    |locks| drop(locks.acquire_owned(&Moody(2), 2, 9)),
    |locks| drop(locks.acquire_all([(&Moody(2), 1, 9), (&Moody(1), 1, 9)])),
    |locks| drop(locks.acquire_all([(&Moody(1), 1, 9), (&Moody(3), 1, 9)])),
    |locks| drop(locks.handle(&Moody(1))),
    |locks| drop(locks.handle(&Moody(2))),
    |locks| drop(locks.begin_acquire(&Moody(1), 1, 9, AskOptions::default())),
    |locks| drop(locks.begin_acquire(&Moody(1), 1, 1, AskOptions::default())),
    |locks| drop(locks.begin_acquire(&Moody(2), 1, 9, AskOptions::default())),
    |locks| _ = locks.held(&Moody(1)),
    |locks| _ = locks.surplus(&Moody(2), 1),
    |locks| _ = locks.waiting(&Moody(1)),
    |locks| drop(locks.all_held()),
    |locks| {
        let mut job = locks.owner();
        let _ = job.acquire(&Moody(1), 9);
        let _ = job.acquire(&Moody(2), 9);
        let _ = job.release(&Moody(1));
    },
];

#[test]
fn a_key_that_panics_wherever_it_can_harms_nothing() {
    let mut panicked = 0;
    for (number, act) in ACTS.iter().enumerate() {
        for patience in 0..20 {
            let locks: Locks<Moody> = Locks::new();
            let held = locks.acquire(&Moody(1), 1).unwrap();
            PATIENCE.set(Some(patience));
            let died = panics(|| act(&locks));
            PATIENCE.set(None);
            panicked += u32::from(died);
            let said = format!("act {number} after {patience}");
            assert_eq!(locks.held(&Moody(1)), 1, "{said}");
            assert_eq!(locks.held(&Moody(2)), 0, "{said}");
            assert_eq!(locks.acquire(&Moody(1), 2).unwrap().ordinal(), 2, "{said}");
            assert_eq!(locks.acquire(&Moody(2), 1).unwrap().ordinal(), 1, "{said}");
            drop(held);
            // At once, unless a timer looks at a line just now.
            locks.forget_idle();
            until(&said, || locks.is_empty());
            if !died {
                break;
            }
        }
    }
    assert!(panicked > 30, "{panicked}");
}

/// What a panic left behind is found by the sweeper too.
#[test]
fn a_key_whose_neighbour_panicked_is_forgotten() {
    let all: Vec<(Locks<Moody>, _)> = (0..6)
        .map(|patience| {
            let locks: Locks<Moody> = Locks::new();
            let held = locks.acquire_owned(&Moody(1), 1, 9).unwrap();
            PATIENCE.set(Some(patience));
            panics(|| drop(locks.acquire_all([(&Moody(2), 1, 9), (&Moody(1), 1, 9)])));
            PATIENCE.set(None);
            (locks, held)
        })
        .collect();
    for (locks, _held) in &all {
        until("a map of one key", || locks.len() == 1);
    }
}

#[test]
fn keys_wait_for_nothing_but_themselves() {
    let locks = patient_locks();
    let held = locks.acquire("db", 1).unwrap();
    let wait = locks.begin_acquire("db", 1, 1, AskOptions::default());
    assert_eq!((locks.waiting("db"), locks.waiting("disk")), (1, 0));
    assert_eq!(locks.acquire("disk", 1).unwrap().ordinal(), 1);
    drop((held, wait));
}
