//! What holds in every interleaving of threads that share a shelf.

#[path = "../../tests/loom/explore.rs"]
mod explore;

use std::sync::Arc;

use loom::thread;

use super::*;
use crate::sync::{AtomicU32, Mutex, lock};
use explore::{at_once, explore};

struct Slot {
    next: AtomicU32,
    /// Written before each put, with no order of its own.
    note: AtomicU32,
}

impl Slot {
    fn new() -> Self {
        Self {
            next: AtomicU32::new(0),
            note: AtomicU32::new(0),
        }
    }
}

impl Linked for Slot {
    fn next(&self) -> &AtomicU32 {
        &self.next
    }
}

/// A shelf and its slots, as all threads see them.
#[derive(Clone)]
struct Shared(Arc<(Shelf, Slots<Slot>)>);

impl Shared {
    /// Three slots, of which these lie on the shelf.
    fn open(shards: usize, indexes: &[u32]) -> Self {
        let (shelf, slots) = (Shelf::new(shards), Slots::new(Slot::new, 2));
        slots.grow_to(3);
        shelf.open(&slots, indexes);
        Self(Arc::new((shelf, slots)))
    }

    fn take(&self, own: usize) -> Option<u32> {
        let taken = self.0.0.take_near(own, &self.0.1);
        taken.map(|(index, _)| index)
    }

    fn put(&self, own: usize, index: u32) -> bool {
        self.0.0.put_near(own, &self.0.1, index)
    }

    fn close(&self) -> Vec<u32> {
        let mut drained = Vec::new();
        self.0.0.close(&self.0.1, &mut drained);
        drained
    }

    fn reopen(&self, indexes: &[u32]) {
        self.0.0.open(&self.0.1, indexes);
    }

    fn takes(&self) -> u64 {
        self.0.0.takes()
    }

    fn write(&self, index: u32) {
        self.0.1.get(index).note.store(1, Ordering::Relaxed);
    }

    fn read(&self, index: u32) -> u32 {
        self.0.1.get(index).note.load(Ordering::Relaxed)
    }
}

/// All that anybody has are these, each once.
fn assert_all(has: impl IntoIterator<Item = u32>, all: &[u32]) {
    let mut has: Vec<u32> = has.into_iter().collect();
    has.sort_unstable();
    assert_eq!(has, all);
}

#[test]
fn who_takes_sees_what_the_other_wrote_before_it_put() {
    let ends = explore(|| {
        let shelf = Shared::open(1, &[0]);
        let put = {
            let shelf = shelf.clone();
            move || {
                shelf.write(1);
                shelf.put(0, 1)
            }
        };
        let take = || {
            let taken = shelf.take(0);
            (taken, taken.map(|index| shelf.read(index)))
        };
        let (end, put) = at_once(take, put);
        assert!(put);
        assert_all(shelf.close().into_iter().chain(end.0), &[0, 1]);
        assert_eq!(shelf.takes(), 1);
        end
    });
    assert_eq!(ends, [(Some(0), Some(0)), (Some(1), Some(1))]);
}

/// Another put and another take lie between the two: they must hand on what
/// the first put wrote.
#[test]
fn who_takes_late_sees_what_was_written_before_an_early_put() {
    let ends = explore(|| {
        let shelf = Shared::open(1, &[]);
        let early = {
            let shelf = shelf.clone();
            move || {
                shelf.write(0);
                assert!(shelf.put(0, 0));
            }
        };
        let between = {
            let shelf = shelf.clone();
            move || {
                assert!(shelf.put(0, 1));
                shelf.take(0)
            }
        };
        let late = || {
            let taken = shelf.take(0);
            let seen = taken.filter(|index| *index == 0).map(|_| shelf.read(0));
            (taken, seen)
        };
        let early = thread::spawn(early);
        let ((taken, seen), other) = at_once(late, between);
        early.join().expect("it put");
        let held = taken.into_iter().chain(other);
        assert_all(shelf.close().into_iter().chain(held), &[0, 1]);
        seen
    });
    assert_eq!(ends, [None, Some(1)]);
}

#[test]
fn one_of_two_gets_the_only_one() {
    let ends = explore(|| {
        let shelf = Shared::open(1, &[2]);
        let other = shelf.clone();
        let end = at_once(|| shelf.take(0), move || other.take(0));
        assert_eq!(shelf.takes(), 1);
        end
    });
    assert_eq!(ends, [(None, Some(2)), (Some(2), None)]);
}

#[test]
fn what_is_put_while_the_shelf_closes_is_drained_or_refused() {
    let ends = explore(|| {
        let shelf = Shared::open(1, &[0]);
        let put = {
            let shelf = shelf.clone();
            move || {
                shelf.write(1);
                shelf.put(0, 1)
            }
        };
        let close = || {
            let drained = shelf.close();
            let seen = drained.contains(&1).then(|| shelf.read(1));
            (drained, seen)
        };
        at_once(close, put)
    });
    let all = [((vec![0], None), false), ((vec![0, 1], Some(1)), true)];
    assert_eq!(ends, all);
}

#[test]
fn what_is_taken_while_the_shelf_closes_is_not_drained() {
    let ends = explore(|| {
        let shelf = Shared::open(1, &[0, 1]);
        let take = {
            let shelf = shelf.clone();
            move || shelf.take(0)
        };
        let end = at_once(|| shelf.close(), take);
        assert_eq!(shelf.takes(), u64::from(end.1.is_some()));
        assert_eq!(shelf.take(0), None);
        end
    });
    assert_eq!(ends, [(vec![0], Some(1)), (vec![0, 1], None)]);
}

/// The pool in small: who finds nothing waits under the lock, and who cannot
/// put hands over under the lock.
#[test]
fn who_waits_is_served_by_who_puts() {
    let ends = explore(|| {
        let shelf = Shared::open(2, &[]);
        let pool = Arc::new(Mutex::new((false, None)));
        let put = {
            let (shelf, pool) = (shelf.clone(), Arc::clone(&pool));
            move || {
                if shelf.put(1, 0) {
                    return "put";
                }
                let mut pool = lock(&pool);
                assert!(pool.0, "who closed the shelf waits");
                pool.1 = Some(0);
                "handed over"
            }
        };
        let ask = || {
            if shelf.take(0).is_some() {
                return "taken";
            }
            let mut pool = lock(&pool);
            if shelf.close().is_empty() {
                pool.0 = true;
                return "waits";
            }
            shelf.reopen(&[]);
            "drained"
        };
        let end = at_once(ask, put);
        assert_eq!(lock(&pool).1.is_some(), end.0 == "waits");
        end
    });
    let all = [
        ("drained", "put"),
        ("taken", "put"),
        ("waits", "handed over"),
    ];
    assert_eq!(ends, all);
}

/// The one reads that 1 lies over 0; the other takes both and puts 1 back.
#[test]
fn a_stale_link_is_not_followed() {
    let ends = explore(|| {
        let shelf = Shared::open(1, &[0, 1]);
        let swap = {
            let shelf = shelf.clone();
            move || {
                let mut has: Vec<u32> = [(); 2].iter().filter_map(|()| shelf.take(0)).collect();
                assert!(shelf.put(0, has.remove(0)));
                has
            }
        };
        let (taken, has) = at_once(|| shelf.take(0), swap);
        let held = has.iter().copied().chain(taken);
        assert_all(shelf.close().into_iter().chain(held), &[0, 1]);
        (taken, has)
    });
    let all = [
        (None, vec![0]),
        (Some(0), vec![]),
        (Some(1), vec![]),
        (Some(1), vec![0]),
    ];
    assert_eq!(ends, all);
}

/// The same, but who has the lock keeps 0 and lays 1 down again.
#[test]
fn a_link_from_before_a_close_is_not_followed() {
    let ends = explore(|| {
        let shelf = Shared::open(1, &[0, 1]);
        let swap = {
            let shelf = shelf.clone();
            move || {
                let mut has = shelf.close();
                let back = has.iter().position(|index| *index == 1);
                let back: Vec<u32> = back.map(|at| has.remove(at)).into_iter().collect();
                shelf.reopen(&back);
                has
            }
        };
        let (taken, has) = at_once(|| shelf.take(0), swap);
        let held = has.into_iter().chain(taken);
        assert_all(shelf.close().into_iter().chain(held), &[0, 1]);
        taken
    });
    assert_eq!(ends, [None, Some(1)]);
}

#[test]
fn with_two_shards_nothing_is_lost_while_the_shelf_closes() {
    let ends = explore(|| {
        let shelf = Shared::open(2, &[0, 1]);
        let take = {
            let shelf = shelf.clone();
            move || [shelf.take(0), shelf.take(0)]
        };
        let put = {
            let shelf = shelf.clone();
            move || shelf.put(1, 2)
        };
        let take = thread::spawn(take);
        let put = thread::spawn(put);
        let drained = shelf.close();
        let taken = take.join().expect("it took");
        let put = put.join().expect("it put");
        let refused = (!put).then_some(2);
        let held = taken.into_iter().flatten().chain(refused);
        assert_all(drained.into_iter().chain(held), &[0, 1, 2]);
        assert_eq!(shelf.takes(), taken.iter().flatten().count() as u64);
        (taken, put)
    });
    let all = [
        ([None, None], false),
        ([None, None], true),
        ([Some(0), None], false),
        ([Some(0), None], true),
        ([Some(0), Some(1)], false),
        ([Some(0), Some(1)], true),
        ([Some(0), Some(2)], true),
    ];
    assert_eq!(ends, all);
}
