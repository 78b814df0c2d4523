//! What a shelf does for one thread, and that it loses nothing among several.

use std::hint;
use std::sync::atomic::AtomicBool;
use std::thread;

use super::*;
use crate::sync::{AtomicU32, Mutex, lock};

/// A slot that knows whether somebody has it.
struct Slot {
    next: AtomicU32,
    out: AtomicBool,
    uses: AtomicU64,
    member: Place<u64>,
}

impl Slot {
    fn new() -> Self {
        Self {
            next: AtomicU32::new(0),
            out: AtomicBool::new(true),
            uses: AtomicU64::new(0),
            member: Place::new(),
        }
    }
}

impl Linked for Slot {
    fn next(&self) -> &AtomicU32 {
        &self.next
    }
}

fn slots(len: u32) -> Slots<Slot> {
    let slots = Slots::new(Slot::new, 2);
    slots.grow_to(len);
    slots
}

fn open(shards: usize, len: u32, indexes: &[u32]) -> (Shelf, Slots<Slot>) {
    let (shelf, slots) = (Shelf::new(shards), slots(len));
    shelf.open(&slots, indexes);
    (shelf, slots)
}

fn take(shelf: &Shelf, slots: &Slots<Slot>) -> Option<u32> {
    shelf.take(slots).map(|(index, _)| index)
}

fn close(shelf: &Shelf, slots: &Slots<Slot>) -> Vec<u32> {
    let mut drained = Vec::new();
    shelf.close(slots, &mut drained);
    drained
}

#[test]
fn a_new_shelf_is_closed() {
    let (shelf, slots) = (Shelf::new(2), slots(1));
    assert!(shelf.is_closed());
    assert_eq!(take(&shelf, &slots), None);
    assert!(!shelf.home().put(&slots, 0));
    assert_eq!(close(&shelf, &slots), []);
}

#[test]
fn what_was_put_last_is_taken_first() {
    let (shelf, slots) = open(1, 4, &[3, 1]);
    assert!(shelf.home().put(&slots, 0));
    assert!(shelf.home().put(&slots, 2));
    let taken = [(); 5].map(|()| take(&shelf, &slots));
    assert_eq!(taken, [Some(2), Some(0), Some(1), Some(3), None]);
    assert!(!shelf.is_closed());
}

#[test]
fn what_a_close_drained_lies_as_before_when_it_is_opened_with_that() {
    let (shelf, slots) = open(1, 40, &[5, 39, 0]);
    assert!(shelf.home().put(&slots, 17));
    let mut drained = vec![1];
    shelf.close(&slots, &mut drained);
    assert_eq!(drained, [1, 5, 39, 0, 17]);
    assert!(shelf.is_closed());
    assert!(!shelf.home().put(&slots, 1));
    assert_eq!(take(&shelf, &slots), None);

    shelf.open(&slots, &drained[1..]);
    let taken = [(); 5].map(|()| take(&shelf, &slots));
    assert_eq!(taken, [Some(17), Some(0), Some(39), Some(5), None]);
}

#[test]
fn closing_again_changes_nothing() {
    let (shelf, slots) = open(2, 2, &[0, 1]);
    assert_eq!(close(&shelf, &slots).len(), 2);
    let word = shelf.shards[0].word.load(Ordering::Relaxed);
    assert_eq!(close(&shelf, &slots), []);
    assert_eq!(shelf.shards[0].word.load(Ordering::Relaxed), word);
}

#[test]
fn the_shards_are_filled_in_turn_and_emptied_from_the_own_one_on() {
    let (shelf, slots) = open(3, 9, &[0, 1, 2, 3, 4, 5]);
    assert_eq!(shelf.shards.len(), 4);
    let take = |own| shelf.take_near(own, &slots).map(|(index, _)| index);
    assert_eq!([take(1), take(1)], [Some(5), Some(1)]);
    assert_eq!([take(1), take(1), take(1)], [Some(2), Some(3), Some(4)]);
    assert!(shelf.put_near(3, &slots, 8));
    assert_eq!([take(1), take(1), take(1)], [Some(8), Some(0), None]);
}

#[test]
fn a_thread_takes_what_it_put_whatever_lies_on_other_shards() {
    let (shelf, slots) = open(4, 8, &[0, 1, 2, 3]);
    let shelves = (&shelf, &slots);
    thread::scope(|scope| {
        for own in 4..8 {
            let both = move || {
                let (shelf, slots) = shelves;
                assert!(shelf.home().put(slots, own));
                assert_eq!(take(shelf, slots), Some(own));
            };
            // One after the other, for two may have the same shard.
            scope.spawn(both).join().expect("it took what it put");
        }
    });
}

#[test]
fn takes_are_counted_but_not_what_a_close_drains() {
    let (shelf, slots) = open(2, 4, &[0, 1, 2]);
    assert_eq!(shelf.takes(), 0);
    assert!(take(&shelf, &slots).is_some());
    assert!(take(&shelf, &slots).is_some());
    assert_eq!(shelf.takes(), 2);
    assert!(shelf.home().put(&slots, 3));
    let drained = close(&shelf, &slots);
    assert_eq!((drained.len(), shelf.takes()), (2, 2));
    close(&shelf, &slots);
    assert_eq!(take(&shelf, &slots), None);
    assert_eq!(shelf.takes(), 2);

    shelf.open(&slots, &drained);
    assert_eq!(shelf.takes(), 2);
    while take(&shelf, &slots).is_some() {}
    assert_eq!(shelf.takes(), 4);
}

#[test]
fn takes_are_counted_on_when_the_count_of_pops_wraps() {
    let (shelf, slots) = open(1, 1, &[0]);
    let shard = &shelf.shards[0];
    let (word, nearly) = (shard.word.load(Ordering::Relaxed), POPS_MAX - 1);
    shard.word.store(word | (nearly * POP), Ordering::Relaxed);
    shard.pops.store(nearly, Ordering::Relaxed);
    for pops in [POPS_MAX, 0, 1] {
        assert_eq!(shelf.take(&slots), Some((0, pops)));
        assert!(shelf.home().put(&slots, 0));
    }
    assert_eq!(shelf.takes(), 3);
    assert_eq!(close(&shelf, &slots), [0]);
    assert_eq!(shelf.takes(), 3);
}

/// The same first index as before, but another one under it: a take that read
/// its link then must not succeed now.
#[test]
fn a_word_never_comes_back() {
    let (shelf, slots) = open(1, 3, &[0, 1, 2]);
    let word = || shelf.shards[0].word.load(Ordering::Relaxed);
    let before = word();
    assert_eq!([(); 2].map(|()| take(&shelf, &slots)), [Some(2), Some(1)]);
    assert!(shelf.home().put(&slots, 2));
    assert_eq!(first(before), first(word()));
    assert_ne!(before, word());

    let before = word();
    let drained = close(&shelf, &slots);
    assert_eq!(drained, [0, 2]);
    shelf.open(&slots, &[1, 2]);
    assert_eq!(first(before), first(word()));
    assert_ne!(before, word());
}

#[test]
fn the_last_index_fits() {
    let last = LEN_MAX - 1;
    let (shelf, slots) = open(1, LEN_MAX, &[last, 0]);
    assert!(!shelf.is_closed());
    assert_eq!(take(&shelf, &slots), Some(0));
    assert_eq!(take(&shelf, &slots), Some(last));
    assert!(shelf.home().put(&slots, last));
    assert_eq!(close(&shelf, &slots), [last]);
}

/// What all threads of a hammering share.
struct Hammer {
    shelf: Shelf,
    slots: Slots<Slot>,
    /// The pool's lock, and who lies there while the shelf is closed.
    pool: Mutex<Vec<u32>>,
}

impl Hammer {
    const LEN: u32 = 6;
    const ROUNDS: u64 = 100_000;

    fn new(shards: usize) -> Self {
        let (shelf, slots) = (Shelf::new(shards), slots(Self::LEN));
        for index in 0..Self::LEN {
            let slot = slots.get(index);
            slot.out.store(false, Ordering::Relaxed);
            slot.member.put(Box::new(0));
        }
        let all: Vec<u32> = (0..Self::LEN).collect();
        shelf.open(&slots, &all);
        let pool = Mutex::new(Vec::new());
        Self { shelf, slots, pool }
    }

    /// Take a slot, be alone with it, and put it back. Says how many were used,
    /// and how many of these came from the shelf.
    fn use_one(&self) -> (u64, u64) {
        let taken = self.shelf.take(&self.slots);
        let from_shelf = taken.is_some();
        let pooled = || lock(&self.pool).pop();
        let Some(index) = taken.map(|(index, _)| index).or_else(pooled) else {
            hint::spin_loop();
            return (0, 0);
        };
        let slot = self.slots.get(index);
        assert!(!slot.out.swap(true, Ordering::Relaxed), "{index} is out");
        let uses = slot.uses.load(Ordering::Relaxed);
        let mut member = slot.member.take().expect("who has the slot is alone");
        assert_eq!(*member, uses, "the last to put shows what it wrote");
        *member += 1;
        slot.member.put(member);
        slot.uses.store(uses + 1, Ordering::Relaxed);
        slot.out.store(false, Ordering::Relaxed);
        if !self.shelf.home().put(&self.slots, index) {
            let mut pool = lock(&self.pool);
            if !self.shelf.home().put(&self.slots, index) {
                pool.push(index);
            }
        }
        (1, u64::from(from_shelf))
    }

    fn close_and_open(&self) {
        let mut pool = lock(&self.pool);
        self.shelf.close(&self.slots, &mut pool);
        drop(pool);
        hint::spin_loop();
        let mut pool = lock(&self.pool);
        self.shelf.open(&self.slots, &pool);
        pool.clear();
    }

    /// Four threads, one of which closes the shelf now and then.
    fn run(&self) {
        let threads = thread::scope(|scope| {
            let work = |number| move || self.work(number == 0);
            let threads = [0, 1, 2, 3].map(|number| scope.spawn(work(number)));
            threads.map(|thread| thread.join().expect("no slot was out twice"))
        });
        let taken: u64 = threads.iter().map(|(_, taken)| taken).sum();
        assert_eq!(self.shelf.takes(), taken);
        let mut all = lock(&self.pool);
        self.shelf.close(&self.slots, &mut all);
        all.sort_unstable();
        assert_eq!(*all, (0..Self::LEN).collect::<Vec<_>>());
        let uses = |index: &u32| self.slots.get(*index).uses.load(Ordering::Relaxed);
        let used: u64 = threads.iter().map(|(used, _)| used).sum();
        assert_eq!(all.iter().map(uses).sum::<u64>(), used);
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
fn among_four_threads_no_slot_is_out_twice_and_none_is_lost() {
    Hammer::new(1).run();
}

#[test]
fn with_two_shards_no_slot_is_out_twice_and_none_is_lost() {
    Hammer::new(2).run();
}
