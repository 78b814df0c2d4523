//! Partitions that come and go: their fences, clocks, logs and what is told of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rideau_core::Instant;
use rideau_core::allocator::{
    Ask, Class, Clock, Effects, Entry, Fields, Options, Parts, Place, Prefer, RangeOptions,
    Refused, Reservation, Rest, Span, Standing, Start, Which,
};
use rideau_core::cluster::Partitions;

const COUNT: u32 = 4;
const SECOND: Duration = Duration::from_secs(1);

/// The partitions of a node, and what was written of them.
struct Host {
    parts: Parts,
    effects: Effects,
    now: Instant,
    /// The epoch in which each may be decided on; none is zero.
    gate: Arc<[AtomicU64; COUNT as usize]>,
    written: Vec<Vec<Vec<u8>>>,
}

impl Host {
    fn new() -> Self {
        let gate: Arc<[AtomicU64; COUNT as usize]> = Arc::default();
        let asked = Arc::clone(&gate);
        let serves = move |partition: u32| {
            let epoch = asked[partition as usize].load(Ordering::Relaxed);
            (epoch > 0).then_some(epoch)
        };
        let range = |name: &str, class, span| {
            let options = RangeOptions {
                class,
                start: Start::Free,
                ..RangeOptions::new(vec![Span::parse(span).unwrap()])
            };
            (name.to_owned(), options)
        };
        let ranges = vec![
            range("sync", Class::Sync, "0-39"),
            range("memory", Class::Memory, "100-139"),
        ];
        let partitions = Partitions::new(COUNT, 0).unwrap();
        let parts = Parts::in_cluster(partitions, &Options::default(), ranges, serves);
        Self {
            parts: parts.unwrap(),
            effects: Effects::new(),
            now: Instant::START + 1_000 * SECOND,
            gate,
            written: vec![Vec::new(); COUNT as usize],
        }
    }

    fn open(&self, partition: u32, epoch: u64) {
        self.gate[partition as usize].store(epoch, Ordering::Relaxed);
    }

    fn load(&mut self, partition: u32, epoch: u64, pieces: &[Vec<u8>]) {
        let many = self.parts.many_mut().unwrap();
        let mut restore = many.restore(partition, epoch);
        pieces.iter().for_each(|piece| restore.read(piece).unwrap());
        many.put(restore.finish(self.now));
    }

    fn begin(&mut self, partition: u32, epoch: u64) {
        self.open(partition, epoch);
        let many = self.parts.many_mut().unwrap();
        assert!(many.begin(partition, epoch, self.now, &mut self.effects));
    }

    fn take(&mut self, partition: u32, epoch: u64, pieces: &[Vec<u8>]) {
        self.load(partition, epoch, pieces);
        self.begin(partition, epoch);
    }

    fn close(&mut self, partition: u32) {
        let many = self.parts.many_mut().unwrap();
        assert!(many.close(partition, self.now, &mut self.effects));
        self.open(partition, 0);
    }

    fn after(&mut self, span: Duration) {
        self.now = self.now + span;
    }

    /// All that was logged is safe, with the clocks before it.
    fn write(&mut self) {
        let process = Clock {
            now: self.now,
            wall: 0,
            boot: 0,
            since_boot: Duration::ZERO,
        };
        let many = self.parts.many().unwrap();
        for partition in many.logging() {
            let mut clock = Vec::new();
            Entry::Clock(many.clock(partition, process)).put(&mut clock);
            self.written[partition as usize].push(clock);
        }
        let (parts, written) = (&mut self.parts, &mut self.written);
        parts.take_logs(&mut self.effects, |part, log| {
            written[part].push(std::mem::take(log));
        });
        assert_eq!(self.parts.log_len(&self.effects), 0);
        self.parts.durable();
    }

    fn pieces(&self, partition: u32) -> &[Vec<u8>] {
        &self.written[partition as usize]
    }

    fn reserve(&mut self, range: &str) -> Result<Reservation, Refused> {
        self.effects.wait = false;
        self.effects.rests.clear();
        let place = Place::Range(self.parts.range(range).unwrap());
        let prefer = [Prefer { tier: 0, place }];
        let ask = Ask {
            ttl: Some(60 * SECOND),
            ..Ask::new(&prefer)
        };
        let mut granted = Vec::new();
        let reserved = self
            .parts
            .reserve(&ask, self.now, &mut self.effects, &mut granted);
        reserved.map(|()| granted[0])
    }

    fn fence(&mut self, value: u128) -> Option<u64> {
        let which = Which::Value(value);
        let seen = self.parts.lookup(which, self.now, &mut self.effects);
        seen.first().map(|seen| seen.fence)
    }

    fn release(&mut self, held: Reservation) -> Result<(), Refused> {
        self.effects.rests.clear();
        let Reservation { value, fence, .. } = held;
        let (now, effects) = (self.now, &mut self.effects);
        let released = self.parts.release(value, Some(fence), now, effects);
        released.map(|_| ())
    }
}

#[test]
fn each_partition_has_the_fences_of_its_epoch() {
    let mut host = Host::new();
    host.take(0, 5, &[]);
    host.take(1, 9, &[]);
    for _ in 0..20 {
        let one = host.reserve("sync").unwrap();
        let epoch = [5, 9][one.value as usize % 4];
        assert_eq!(one.fence >> 32, epoch);
    }
    assert_eq!(host.fence(8), Some((5 << 32) + 3));
    assert!(matches!(
        host.reserve("sync"),
        Err(Refused::Exhausted { .. })
    ));
}

#[test]
fn the_gate_is_asked_before_each_decision() {
    let mut host = Host::new();
    host.take(2, 1, &[]);
    let held = host.reserve("sync").unwrap();
    for epoch in [0, 2] {
        host.open(2, epoch);
        let refused = host.reserve("sync");
        assert!(matches!(refused, Err(Refused::Exhausted { free, .. }) if free.is_zero()));
        let partition = 2;
        assert_eq!(host.release(held), Err(Refused::NotHere { partition }));
        assert!(host.effects.rests.is_empty());
        // Nothing ends meanwhile, and nothing is due.
        host.after(100 * SECOND);
        assert_eq!(
            host.parts
                .stands(held.value, Instant::START, &mut host.effects),
            Standing::Reserved
        );
    }
    host.open(2, 1);
    assert_eq!(host.fence(held.value), None, "its time is over");
    assert!(host.reserve("sync").is_ok());
}

#[test]
fn nothing_is_told_before_the_first_batch_is_safe() {
    let mut host = Host::new();
    host.take(2, 1, &[]);
    host.reserve("memory").unwrap();
    assert!(host.effects.wait);
    host.write();
    host.reserve("memory").unwrap();
    assert!(!host.effects.wait);
    host.close(2);
    host.begin(2, 2);
    host.reserve("memory").unwrap();
    assert!(host.effects.wait);
}

#[test]
fn a_decision_says_which_partitions_it_rests_on() {
    let mut host = Host::new();
    host.take(1, 1, &[]);
    host.write();
    let held = host.reserve("sync").unwrap();
    let rest = |is_logged| Rest {
        partition: 1,
        is_logged,
    };
    assert_eq!(host.effects.rests, [rest(true)]);
    host.release(held).unwrap();
    assert_eq!(host.effects.rests, [rest(true)]);
    host.reserve("memory").unwrap();
    assert_eq!(host.effects.rests, [rest(false)]);
}

#[test]
fn the_clock_of_a_partition_stands_until_it_begins() {
    let (mut a, mut b) = (Host::new(), Host::new());
    a.take(3, 1, &[]);
    let held = a.reserve("sync").unwrap();
    a.after(20 * SECOND);
    let other = a.reserve("sync").unwrap();
    a.write();
    b.after(99 * SECOND);
    b.load(3, 2, a.pieces(3));
    b.after(99 * SECOND);
    b.begin(3, 2);
    b.after(39 * SECOND);
    assert_eq!(b.fence(held.value), Some(held.fence));
    b.after(2 * SECOND);
    assert_eq!(b.fence(held.value), None);
    assert_eq!(b.fence(other.value), Some(other.fence));
    b.after(20 * SECOND);
    assert_eq!(b.fence(other.value), None);
}

#[test]
fn a_hand_over_writes_down_what_is_in_memory_and_a_takeover_cannot() {
    let mut a = Host::new();
    a.take(0, 1, &[]);
    let first = a.reserve("memory").unwrap();
    a.write();
    let taken_over = a.pieces(0).to_vec();
    a.close(0);
    a.write();
    let mut b = Host::new();
    b.take(0, 2, a.pieces(0));
    assert_eq!(b.fence(first.value), Some(first.fence));
    // From its first batch on that is not true any more for the owner after it.
    b.write();
    let mut both = a.pieces(0).to_vec();
    both.extend_from_slice(b.pieces(0));
    for pieces in [taken_over, both] {
        let mut c = Host::new();
        c.take(0, 3, &pieces);
        assert_eq!(c.fence(first.value), None);
    }
}

#[test]
fn what_is_forgotten_may_have_a_holder_until_the_quarantine_ends() {
    let mut a = Host::new();
    a.take(0, 1, &[]);
    let held = ["sync", "memory"].map(|range| a.reserve(range).unwrap());
    a.close(0);
    a.write();
    let mut pieces = a.pieces(0).to_vec();
    let mut forgotten = Vec::new();
    Entry::Forgotten.put(&mut forgotten);
    pieces.push(forgotten);
    let mut b = Host::new();
    b.take(0, 2, &pieces);
    for range in ["sync", "memory"] {
        assert!(
            matches!(b.reserve(range), Err(Refused::Exhausted { .. })),
            "{range}"
        );
    }
    for held in held {
        assert_eq!(b.fence(held.value), None);
    }
    // What is told of a value from then on is kept by the next owner.
    let fields = Fields::new();
    let change = rideau_core::allocator::Change::new(&fields);
    let (now, effects) = (b.now, &mut b.effects);
    let adopted = b
        .parts
        .write(Which::Value(held[0].value), &change, now, effects);
    let adopted = adopted.unwrap().fence;
    b.write();
    pieces.extend_from_slice(b.pieces(0));
    let mut c = Host::new();
    c.take(0, 3, &pieces);
    assert_eq!(c.fence(held[0].value), Some(adopted));
    assert!(matches!(c.reserve("sync"), Err(Refused::Exhausted { .. })));
    c.after(3_600 * SECOND);
    let free = c.reserve("sync").unwrap();
    assert_ne!(free.value, held[0].value);
}

#[test]
fn what_a_partition_logged_goes_with_it() {
    let mut host = Host::new();
    host.take(0, 1, &[]);
    host.take(1, 1, &[]);
    host.write();
    for _ in 0..4 {
        host.reserve("sync").unwrap();
    }
    let before = host.parts.log_len(&host.effects);
    let many = host.parts.many_mut().unwrap();
    many.end(0);
    let after = host.parts.log_len(&host.effects);
    assert!(0 < after && after < before);
    host.write();
    // What is read back and has not begun is not written.
    let pieces = host.pieces(1).to_vec();
    host.load(1, 2, &pieces);
    assert_eq!(host.parts.log_len(&host.effects), 0);
    assert_eq!(host.parts.many().unwrap().missing(), [0, 1, 2, 3]);
    host.begin(1, 2);
    assert!(host.parts.log_len(&host.effects) > 0);
    let change = Fields::new();
    let change = rideau_core::allocator::Change::new(&change);
    let (now, effects) = (host.now, &mut host.effects);
    let claimed = host.parts.claim(4, &change, now, effects);
    assert_eq!(claimed, Err(Refused::NotHere { partition: 0 }));
}

#[test]
fn an_epoch_is_spent_once_and_then_nothing_is_decided() {
    let mut host = Host::new();
    let mut last = Vec::new();
    let fence = (7 << 32) + u64::from(u32::MAX) - 2_000;
    Entry::Fence { last: fence }.put(&mut last);
    host.take(1, 7, &[last]);
    assert_eq!(host.parts.many_mut().unwrap().take_spent(), [(1, 7)]);
    assert_eq!(host.parts.many_mut().unwrap().take_spent(), []);
    let mut fences = Vec::new();
    while let Ok(one) = host.reserve("sync") {
        fences.push(one.fence);
        // Of the last not even that is decided, until the next epoch.
        if host.release(one).is_err() {
            break;
        }
    }
    assert!(fences.len() > 900 && fences.is_sorted());
    assert!(fences.iter().all(|fence| fence >> 32 == 7));
    host.close(1);
    host.begin(1, 8);
    assert_eq!(host.reserve("sync").unwrap().fence, (8 << 32) + 1);
    assert!(host.fence(1).is_some(), "what was held still is");
}
