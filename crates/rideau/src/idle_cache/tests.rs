//! What an idle cache does for one thread, and that it loses nothing among several.

use std::hint;
use std::sync::mpsc;
use std::thread;

use super::*;
use crate::sync::{AtomicU64, Mutex, lock};

fn open(shards: usize, members: &[u32]) -> IdleCache<u32> {
    let cache = IdleCache::new(shards);
    reopen(&cache, members);
    cache
}

fn reopen(cache: &IdleCache<u32>, members: &[u32]) {
    cache.open(members.len(), |at| members[at]);
}

fn take(cache: &IdleCache<u32>) -> Option<u32> {
    cache.take().map(|(member, _)| member)
}

fn close(cache: &IdleCache<u32>) -> Vec<u32> {
    let mut drained = Vec::new();
    cache.close(|member| drained.push(member));
    drained
}

#[test]
fn a_new_shelf_is_closed() {
    let cache = IdleCache::new(2);
    assert!(cache.is_closed());
    assert!(cache.home().is_closed());
    assert_eq!(take(&cache), None);
    assert_eq!(cache.home().put(0), Err(0));
    assert_eq!(close(&cache), []);
}

#[test]
fn what_was_put_last_is_taken_first() {
    let cache = open(1, &[3, 1]);
    assert_eq!(cache.home().put(0), Ok(()));
    assert_eq!(cache.home().put(2), Ok(()));
    let taken = [(); 5].map(|()| take(&cache));
    assert_eq!(taken, [Some(2), Some(0), Some(1), Some(3), None]);
    assert!(!cache.is_closed());
}

#[test]
fn what_a_close_drained_lies_as_before_when_it_is_opened_with_that() {
    let cache = open(1, &[5, 39, 0]);
    assert_eq!(cache.home().put(17), Ok(()));
    let drained = close(&cache);
    assert_eq!(drained, [5, 39, 0, 17]);
    assert!(cache.is_closed());
    assert_eq!(cache.home().put(1), Err(1));
    assert_eq!(take(&cache), None);

    reopen(&cache, &drained);
    let taken = [(); 5].map(|()| take(&cache));
    assert_eq!(taken, [Some(17), Some(0), Some(39), Some(5), None]);
}

#[test]
fn closing_again_changes_nothing() {
    let cache = open(2, &[0, 1]);
    assert_eq!(close(&cache).len(), 2);
    assert_eq!(close(&cache), []);
    assert!(cache.is_closed());
}

#[test]
fn the_shards_are_filled_in_turn_and_emptied_from_the_own_one_on() {
    let cache = open(3, &[0, 1, 2, 3, 4, 5]);
    assert_eq!(cache.shards.len(), 4);
    let take = |own| cache.take_near(own).map(|(member, _)| member);
    assert_eq!([take(1), take(1)], [Some(5), Some(1)]);
    assert_eq!([take(1), take(1), take(1)], [Some(2), Some(3), Some(4)]);
    assert_eq!(cache.near(3).put(8), Ok(()));
    assert_eq!([take(1), take(1), take(1)], [Some(8), Some(0), None]);
}

#[test]
fn a_thread_takes_what_it_put_whatever_lies_on_other_shards() {
    let cache = &open(4, &[0, 1, 2, 3]);
    thread::scope(|scope| {
        for own in 4..8 {
            let both = move || {
                assert_eq!(cache.home().put(own), Ok(()));
                assert_eq!(take(cache), Some(own));
            };
            // One after the other, for two may have the same shard.
            scope.spawn(both).join().expect("it took what it put");
        }
    });
}

#[test]
fn takes_are_counted_but_not_what_a_close_drains() {
    let cache = open(2, &[0, 1, 2]);
    assert_eq!(cache.takes(), 0);
    assert!(take(&cache).is_some());
    assert!(take(&cache).is_some());
    assert_eq!(cache.takes(), 2);
    assert_eq!(cache.home().put(3), Ok(()));
    let drained = close(&cache);
    assert_eq!((drained.len(), cache.takes()), (2, 2));
    close(&cache);
    assert_eq!(take(&cache), None);
    assert_eq!(cache.takes(), 2);

    reopen(&cache, &drained);
    assert_eq!(cache.takes(), 2);
    while take(&cache).is_some() {}
    assert_eq!(cache.takes(), 4);
}

#[test]
fn every_take_from_a_shard_has_its_number() {
    let cache = open(1, &[7]);
    for number in 1..4 {
        assert_eq!(cache.take(), Some((7, number)));
        assert_eq!(cache.home().put(7), Ok(()));
    }
}

#[test]
fn it_is_bare_when_nothing_lies_there() {
    let cache = open(2, &[4]);
    assert!(!cache.is_bare());
    assert_eq!(take(&cache), Some(4));
    assert!(cache.is_bare());
    close(&cache);
    assert!(cache.is_bare());
}

/// A thread keeps the latch of the first shard, as if it had lost its core
/// there.
#[test]
fn a_take_that_finds_a_shard_busy_goes_on_to_the_next_and_then_to_the_pool() {
    let cache = open(2, &[0, 1]);
    let first = latch(&cache.shards[0].stack);
    assert_eq!(cache.near(0).put(2), Ok(()));
    let take = || cache.take_near(0).map(|(member, _)| member);
    assert_eq!([take(), take(), take()], [Some(2), Some(1), None]);

    let second = latch(&cache.shards[1].stack);
    assert_eq!(cache.near(0).put(2), Err(2));
    assert_eq!(cache.near(1).put(2), Err(2));
    assert_eq!(take(), None);
    drop((first, second));
    assert_eq!(cache.near(0).put(2), Ok(()));
    assert_eq!(close(&cache), [0, 2]);
}

#[test]
fn a_close_waits_until_every_shard_is_free() {
    let cache = &open(2, &[0, 1]);
    let (tell, told) = mpsc::channel();
    thread::scope(|scope| {
        let mut first = latch(&cache.shards[0].stack);
        scope.spawn(move || tell.send(close(cache)));
        first.lying.push(9);
        assert!(told.try_recv().is_err());
        drop(first);
        let drained = told.recv().expect("it comes to its end");
        assert_eq!(drained, [0, 9, 1]);
    });
}

/// What all threads of a hammering share.
struct Hammer {
    cache: IdleCache<Member>,
    /// As often as each was used, with no order of its own.
    uses: [AtomicU64; Self::LEN],
    /// The pool's lock, and the members that lie there while the idle cache is
    /// closed.
    pool: Mutex<Vec<Member>>,
}

struct Member {
    index: usize,
    uses: u64,
}

impl Hammer {
    const LEN: usize = 6;
    const ROUNDS: u64 = 100_000;

    fn new(shards: usize) -> Self {
        let cache = IdleCache::new(shards);
        cache.open(Self::LEN, |index| Member { index, uses: 0 });
        Self {
            cache,
            uses: [const { AtomicU64::new(0) }; Self::LEN],
            pool: Mutex::new(Vec::new()),
        }
    }

    /// Take a member, use it, and put it back. Says how many were used, and how
    /// many of these came from the idle cache.
    fn use_one(&self) -> (u64, u64) {
        let taken = self.cache.take();
        let from_shelf = taken.is_some();
        let pooled = || lock(&self.pool).pop();
        let Some(mut member) = taken.map(|(member, _)| member).or_else(pooled) else {
            hint::spin_loop();
            return (0, 0);
        };
        let uses = &self.uses[member.index];
        let before = uses.load(Ordering::Relaxed);
        assert_eq!(member.uses, before, "the last to put shows what it wrote");
        member.uses += 1;
        uses.store(before + 1, Ordering::Relaxed);
        if let Err(member) = self.cache.home().put(member) {
            let mut pool = lock(&self.pool);
            if let Err(member) = self.cache.home().put(member) {
                pool.push(member);
            }
        }
        (1, u64::from(from_shelf))
    }

    fn close_and_open(&self) {
        let mut pool = lock(&self.pool);
        self.cache.close(|member| pool.push(member));
        drop(pool);
        hint::spin_loop();
        let mut pool = lock(&self.pool);
        let members = Mutex::new(std::mem::take(&mut *pool));
        let len = lock(&members).len();
        let next = |_| lock(&members).pop().expect("as many as it was told");
        self.cache.open(len, next);
    }

    /// Four threads, one of which closes the idle cache now and then.
    fn run(&self) {
        let threads = thread::scope(|scope| {
            let work = |number| move || self.work(number == 0);
            let threads = [0, 1, 2, 3].map(|number| scope.spawn(work(number)));
            threads.map(|thread| thread.join().expect("no member was out twice"))
        });
        let taken: u64 = threads.iter().map(|(_, taken)| taken).sum();
        assert_eq!(self.cache.takes(), taken);
        let mut all = lock(&self.pool);
        self.cache.close(|member| all.push(member));
        all.sort_unstable_by_key(|member| member.index);
        let indexes: Vec<usize> = all.iter().map(|member| member.index).collect();
        assert_eq!(indexes, (0..Self::LEN).collect::<Vec<_>>());
        let used: u64 = threads.iter().map(|(used, _)| used).sum();
        assert_eq!(all.iter().map(|member| member.uses).sum::<u64>(), used);
    }

    fn work(&self, closes: bool) -> (u64, u64) {
        let mut sum = (0, 0);
        for round in 0..Self::ROUNDS {
            let (used, taken) = self.use_one();
            sum = (sum.0 + used, sum.1 + taken);
            if closes && round % 64 == 0 {
                self.close_and_open();
            }
        }
        sum
    }
}

#[test]
fn among_four_threads_no_member_is_out_twice_and_none_is_lost() {
    Hammer::new(1).run();
}

#[test]
fn with_two_shards_no_member_is_out_twice_and_none_is_lost() {
    Hammer::new(2).run();
}
