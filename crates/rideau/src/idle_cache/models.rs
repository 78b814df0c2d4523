//! What holds in every interleaving of threads that share an idle cache.
//!
//! To loom most of what is done under a latch is done at once, so that hardly
//! any thread finds one taken. Where that matters a model goes the way of a
//! thread that did.

#[path = "../../tests/loom/explore.rs"]
mod explore;

use std::sync::Arc;

use loom::thread;

use super::*;
use crate::sync::{AtomicU32, Mutex, lock};
use explore::{at_once, explore};

/// An idle cache, and a note of each of three members, as all threads see them.
#[derive(Clone)]
struct Shared(Arc<(IdleCache<u32>, [AtomicU32; 3])>);

impl Shared {
    /// These lie in the idle cache.
    fn open(shards: usize, members: &[u32]) -> Self {
        let notes = [0; 3].map(AtomicU32::new);
        let shared = Self(Arc::new((IdleCache::new(shards), notes)));
        shared.reopen(members);
        shared
    }

    fn take(&self, own: usize) -> Option<u32> {
        let taken = self.0.0.take_near(own);
        taken.map(|(member, _)| member)
    }

    fn put(&self, own: usize, member: u32) -> bool {
        self.0.0.near(own).put(member).is_ok()
    }

    fn close(&self) -> Vec<u32> {
        let mut drained = Vec::new();
        self.0.0.close(|member| drained.push(member));
        drained
    }

    fn reopen(&self, members: &[u32]) {
        self.0.0.open(members.len(), |at| members[at]);
    }

    fn takes(&self) -> u64 {
        self.0.0.takes()
    }

    /// With no order of its own.
    fn write(&self, member: u32) {
        self.0.1[member as usize].store(1, Ordering::Relaxed);
    }

    fn read(&self, member: u32) -> u32 {
        self.0.1[member as usize].load(Ordering::Relaxed)
    }
}

/// All members that any thread has are these, each once.
fn assert_all(has: impl IntoIterator<Item = u32>, all: &[u32]) {
    let mut has: Vec<u32> = has.into_iter().collect();
    has.sort_unstable();
    assert_eq!(has, all);
}

#[test]
fn a_take_sees_what_the_other_wrote_before_it_put() {
    let ends = explore(|| {
        let cache = Shared::open(1, &[0]);
        let put = {
            let cache = cache.clone();
            move || {
                cache.write(1);
                cache.put(0, 1)
            }
        };
        let take = || {
            let taken = cache.take(0);
            (taken, taken.map(|member| cache.read(member)))
        };
        let (end, put) = at_once(take, put);
        assert!(put);
        assert_all(cache.close().into_iter().chain(end.0), &[0, 1]);
        assert_eq!(cache.takes(), 1);
        end
    });
    assert_eq!(ends, [(Some(0), Some(0)), (Some(1), Some(1))]);
}

/// Another put and another take lie between the two: they must hand on what
/// the first put wrote.
#[test]
fn a_late_take_sees_what_was_written_before_an_early_put() {
    let ends = explore(|| {
        let cache = Shared::open(1, &[]);
        let early = {
            let cache = cache.clone();
            move || {
                cache.write(0);
                assert!(cache.put(0, 0));
            }
        };
        let between = {
            let cache = cache.clone();
            move || {
                assert!(cache.put(0, 1));
                cache.take(0)
            }
        };
        let late = || {
            let taken = cache.take(0);
            let seen = taken.filter(|member| *member == 0).map(|_| cache.read(0));
            (taken, seen)
        };
        let early = thread::spawn(early);
        let ((taken, seen), other) = at_once(late, between);
        early.join().expect("it put");
        let held = taken.into_iter().chain(other);
        assert_all(cache.close().into_iter().chain(held), &[0, 1]);
        seen
    });
    assert_eq!(ends, [None, Some(1)]);
}

#[test]
fn one_of_two_gets_the_only_one() {
    let ends = explore(|| {
        let cache = Shared::open(1, &[2]);
        let other = cache.clone();
        let end = at_once(|| cache.take(0), move || other.take(0));
        assert_eq!(cache.takes(), 1);
        end
    });
    assert_eq!(ends, [(None, Some(2)), (Some(2), None)]);
}

#[test]
fn what_is_put_while_the_shelf_closes_is_drained_or_refused() {
    let ends = explore(|| {
        let cache = Shared::open(1, &[0]);
        let put = {
            let cache = cache.clone();
            move || {
                cache.write(1);
                cache.put(0, 1)
            }
        };
        let close = || {
            let drained = cache.close();
            let seen = drained.contains(&1).then(|| cache.read(1));
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
        let cache = Shared::open(1, &[0, 1]);
        let take = {
            let cache = cache.clone();
            move || cache.take(0)
        };
        let end = at_once(|| cache.close(), take);
        assert_eq!(cache.takes(), u64::from(end.1.is_some()));
        assert_eq!(cache.take(0), None);
        end
    });
    assert_eq!(ends, [(vec![0], Some(1)), (vec![0, 1], None)]);
}

/// The pool in small: a take that finds nothing waits under the lock, and a put
/// that fails hands over under the lock, or lays down there what no take waits
/// for. Either may have found all shards busy.
fn ask_and_put(ask_busy: bool, put_busy: bool) -> Vec<(&'static str, &'static str)> {
    explore(move || {
        let cache = Shared::open(2, &[]);
        let pool = Arc::new(Mutex::new((false, None)));
        let put = {
            let (cache, pool) = (cache.clone(), Arc::clone(&pool));
            move || {
                if !put_busy && cache.put(1, 0) {
                    return "put";
                }
                let mut pool = lock(&pool);
                if pool.0 {
                    pool.1 = Some(0);
                    return "handed over";
                }
                assert!(put_busy, "the thread that closed the cache waits");
                assert_eq!(cache.close(), []);
                cache.reopen(&[0]);
                "laid down"
            }
        };
        let ask = || {
            if !ask_busy && cache.take(0).is_some() {
                return "taken";
            }
            let mut pool = lock(&pool);
            if cache.close().is_empty() {
                pool.0 = true;
                return "waits";
            }
            cache.reopen(&[]);
            "drained"
        };
        let end = at_once(ask, put);
        assert_eq!(lock(&pool).1.is_some(), end.0 == "waits");
        end
    })
}

#[test]
fn a_waiting_take_is_served_by_a_put() {
    let all = [
        ("drained", "put"),
        ("taken", "put"),
        ("waits", "handed over"),
    ];
    assert_eq!(ask_and_put(false, false), all);
}

#[test]
fn a_thread_that_finds_the_cache_busy_neither_loses_nor_misses_a_member() {
    let waits = ("waits", "handed over");
    assert_eq!(ask_and_put(true, false), [("drained", "put"), waits]);
    let (drained, taken) = (("drained", "laid down"), ("taken", "laid down"));
    assert_eq!(ask_and_put(false, true), [drained, taken, waits]);
    assert_eq!(ask_and_put(true, true), [drained, waits]);
}

/// The thread that has the lock keeps 0 and lays 1 down again, with something
/// written.
#[test]
fn a_take_of_what_was_laid_down_again_sees_what_was_written_meanwhile() {
    let ends = explore(|| {
        let cache = Shared::open(1, &[0, 1]);
        let swap = {
            let cache = cache.clone();
            move || {
                let mut has = cache.close();
                let back = has.iter().position(|member| *member == 1);
                let back: Vec<u32> = back.map(|at| has.remove(at)).into_iter().collect();
                cache.write(1);
                cache.reopen(&back);
                (has, back)
            }
        };
        let take = || {
            let taken = cache.take(0);
            (taken, taken.map(|member| cache.read(member)))
        };
        let ((taken, seen), (has, back)) = at_once(take, swap);
        let held = has.into_iter().chain(taken);
        assert_all(cache.close().into_iter().chain(held), &[0, 1]);
        (taken, seen, back)
    });
    let all = [
        (None, None, vec![1]),
        (Some(1), Some(0), vec![]),
        (Some(1), Some(1), vec![]),
        (Some(1), Some(1), vec![1]),
    ];
    assert_eq!(ends, all);
}

/// What is written of a member while a thread has it: the put of it sees that,
/// or the thread that wrote it has the member.
#[test]
fn a_put_after_an_open_sees_what_was_written_before_it() {
    let ends = explore(|| {
        let cache = Shared::open(1, &[]);
        let mark = {
            let cache = cache.clone();
            move || {
                let drained = cache.close();
                cache.write(0);
                cache.reopen(&drained);
                drained
            }
        };
        let put = || cache.put(0, 0).then(|| cache.read(0));
        let (seen, drained) = at_once(put, mark);
        assert_eq!(cache.close().is_empty(), seen.is_none());
        (seen, drained)
    });
    let all = [
        (None, vec![]),
        (Some(0), vec![0]),
        (Some(1), vec![]),
        (Some(1), vec![0]),
    ];
    assert_eq!(ends, all);
}

#[test]
fn with_two_shards_nothing_is_lost_while_the_shelf_closes() {
    let ends = explore(|| {
        let cache = Shared::open(2, &[0, 1]);
        let take = {
            let cache = cache.clone();
            move || [cache.take(0), cache.take(0)]
        };
        let put = {
            let cache = cache.clone();
            move || cache.put(1, 2)
        };
        let take = thread::spawn(take);
        let put = thread::spawn(put);
        let drained = cache.close();
        let taken = take.join().expect("it took");
        let put = put.join().expect("it put");
        let refused = (!put).then_some(2);
        let held = taken.into_iter().flatten().chain(refused);
        assert_all(drained.into_iter().chain(held), &[0, 1, 2]);
        assert_eq!(cache.takes(), taken.iter().flatten().count() as u64);
        (taken, put)
    });
    // A take or a put that finds a shard busy, also because it is being closed,
    // goes on to the other one.
    let all = [
        ([None, None], false),
        ([None, None], true),
        ([None, Some(2)], true),
        ([Some(0), None], false),
        ([Some(0), None], true),
        ([Some(0), Some(1)], false),
        ([Some(0), Some(1)], true),
        ([Some(0), Some(2)], true),
        ([Some(1), None], false),
        ([Some(1), None], true),
        ([Some(1), Some(2)], true),
        ([Some(2), None], true),
        ([Some(2), Some(1)], true),
    ];
    assert_eq!(ends, all);
}
