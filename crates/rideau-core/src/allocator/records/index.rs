//! Finds numbers by hash, in little more room than they need.
//!
//! A great many small tables, each of buckets one cache line wide, filled
//! to over nine tenths. A table grows by a sixth on its own, in place and
//! without hashing anything again, so that no insertion ever pays for all.
//! Tables take their room from one store and give it back there: the
//! system's allocator would be left with holes of every size.

/// The upper bits of a hash choose the table, the lower are kept.
const TABLE_BITS: u32 = 10;
/// Numbers in a bucket.
const WIDTH: usize = 10;
/// Buckets in a segment, which is what tables grow by.
const SEGMENT: usize = 4;
/// Segments in a block, which is what the store grows by.
const BLOCK: usize = 256;

#[derive(Debug)]
pub(super) struct Index {
    tables: Box<[Table]>,
    store: Store,
    /// The content of a table while it is resized.
    scratch: Vec<(u16, u32)>,
}

#[derive(Clone, Debug, Default)]
struct Table {
    segments: Vec<u32>,
    len: u32,
}

#[derive(Debug, Default)]
struct Store {
    blocks: Vec<Box<[Bucket]>>,
    vacant: Vec<u32>,
}

#[derive(Clone, Copy, Default, Debug)]
#[repr(align(64))]
struct Bucket {
    numbers: [u32; WIDTH],
    hashes: [u16; WIDTH],
    len: u16,
    /// How many numbers found this bucket full and went on. While there are none,
    /// a lookup that does not find a number here need not go any further.
    passed: u16,
}

impl Index {
    pub(super) fn new() -> Self {
        Self {
            tables: vec![Table::default(); 1 << TABLE_BITS].into_boxed_slice(),
            store: Store::default(),
            scratch: Vec::new(),
        }
    }

    /// A number with this hash that is the right one.
    pub(super) fn find(&self, hash: u64, is_right: impl Fn(u32) -> bool) -> Option<u32> {
        let table = &self.tables[table_of(hash)];
        let (bucket, at) = table.find(&self.store, hash as u16, is_right)?;
        Some(self.store.bucket(table, bucket).numbers[at])
    }

    /// Read something where this hash is looked for first.
    pub(super) fn touch(&self, hash: u64) -> u16 {
        let table = &self.tables[table_of(hash)];
        match table.buckets() {
            0 => 0,
            buckets => self.store.bucket(table, home(hash as u16, buckets)).len,
        }
    }

    /// Add a number, which may be there already.
    pub(super) fn insert(&mut self, hash: u64, number: u32) {
        let table = &mut self.tables[table_of(hash)];
        let (len, most) = (table.len as usize + 1, table.buckets() * WIDTH);
        if len * 16 > most * 15 {
            let segments = table.segments.len() * 7 / 6;
            table.resize(
                &mut self.store,
                segments.max(1 + table.segments.len()),
                &mut self.scratch,
            );
        }
        table.insert(&mut self.store, hash as u16, number);
    }

    /// Take a number out; false if it is not there.
    pub(super) fn remove(&mut self, hash: u64, number: u32) -> bool {
        let table = &mut self.tables[table_of(hash)];
        let found = table.find(&self.store, hash as u16, |other| other == number);
        let Some((bucket, at)) = found else {
            return false;
        };
        table.remove(&mut self.store, hash as u16, bucket, at);
        let (len, most) = (table.len as usize, table.buckets() * WIDTH);
        let segments = (len * 6 / 5).div_ceil(SEGMENT * WIDTH);
        if len * 2 < most && segments < table.segments.len() {
            table.resize(&mut self.store, segments, &mut self.scratch);
        }
        true
    }

    /// Put `new` where `old` is, with the same hash.
    pub(super) fn replace(&mut self, hash: u64, old: u32, new: u32) {
        let table = &self.tables[table_of(hash)];
        let found = table.find(&self.store, hash as u16, |other| other == old);
        if let Some((bucket, at)) = found {
            self.store.bucket_mut(table, bucket).numbers[at] = new;
        }
    }

    /// Everything this index has from the system.
    pub(super) fn bytes(&self) -> usize {
        let lists = |table: &Table| table.segments.capacity() * size_of::<u32>();
        self.store.bytes()
            + self.tables.len() * size_of::<Table>()
            + self.tables.iter().map(lists).sum::<usize>()
            + self.scratch.capacity() * size_of::<(u16, u32)>()
    }
}

impl Table {
    fn buckets(&self) -> usize {
        self.segments.len() * SEGMENT
    }

    fn find(
        &self,
        store: &Store,
        hash: u16,
        is_right: impl Fn(u32) -> bool,
    ) -> Option<(usize, usize)> {
        let buckets = self.buckets();
        let mut bucket = home(hash, buckets);
        for _ in 0..buckets {
            let here = store.bucket(self, bucket);
            for at in 0..WIDTH.min(here.len as usize) {
                if here.hashes[at] == hash && is_right(here.numbers[at]) {
                    return Some((bucket, at));
                }
            }
            if here.passed == 0 {
                return None;
            }
            bucket = self.next(bucket);
        }
        None
    }

    /// There is room: the caller has seen to it.
    fn insert(&mut self, store: &mut Store, hash: u16, number: u32) {
        let mut bucket = home(hash, self.buckets());
        let here = loop {
            let here = store.bucket_mut(self, bucket);
            if (here.len as usize) < WIDTH {
                break here;
            }
            here.passed = here.passed.saturating_add(1);
            bucket = self.next(bucket);
        };
        here.numbers[here.len as usize] = number;
        here.hashes[here.len as usize] = hash;
        here.len += 1;
        self.len += 1;
    }

    fn remove(&mut self, store: &mut Store, hash: u16, found: usize, at: usize) {
        let mut bucket = home(hash, self.buckets());
        while bucket != found {
            // Once it has reached the top it is no longer a count.
            let passed = &mut store.bucket_mut(self, bucket).passed;
            *passed -= u16::from(*passed != u16::MAX);
            bucket = self.next(bucket);
        }
        let here = store.bucket_mut(self, bucket);
        here.len -= 1;
        let last = here.len as usize;
        (here.numbers[at], here.hashes[at]) = (here.numbers[last], here.hashes[last]);
        self.len -= 1;
    }

    fn resize(&mut self, store: &mut Store, segments: usize, scratch: &mut Vec<(u16, u32)>) {
        // Look at all buckets first: memory then brings many at a time.
        let lens = (0..self.buckets()).map(|bucket| u32::from(store.bucket(self, bucket).len));
        std::hint::black_box(lens.sum::<u32>());
        scratch.clear();
        for bucket in 0..self.buckets() {
            let here = store.bucket_mut(self, bucket);
            let len = here.len as usize;
            scratch.extend((0..len).map(|at| (here.hashes[at], here.numbers[at])));
            (here.len, here.passed) = (0, 0);
        }
        if segments < self.segments.len() {
            store.vacant.extend(self.segments.drain(segments..));
            self.segments.shrink_to_fit();
        } else {
            let more = segments - self.segments.len();
            self.segments.reserve_exact(more);
            self.segments.extend((0..more).map(|_| store.take()));
        }
        self.len = 0;
        for (hash, number) in scratch {
            self.insert(store, *hash, *number);
        }
    }

    fn next(&self, bucket: usize) -> usize {
        if bucket + 1 == self.buckets() {
            0
        } else {
            bucket + 1
        }
    }
}

impl Store {
    fn bucket(&self, table: &Table, bucket: usize) -> &Bucket {
        let segment = table.segments[bucket / SEGMENT] as usize;
        &self.blocks[segment / BLOCK][segment % BLOCK * SEGMENT + bucket % SEGMENT]
    }

    fn bucket_mut(&mut self, table: &Table, bucket: usize) -> &mut Bucket {
        let segment = table.segments[bucket / SEGMENT] as usize;
        &mut self.blocks[segment / BLOCK][segment % BLOCK * SEGMENT + bucket % SEGMENT]
    }

    /// A segment whose buckets are empty.
    fn take(&mut self) -> u32 {
        if self.vacant.is_empty() {
            let first = (self.blocks.len() * BLOCK) as u32;
            let block = vec![Bucket::default(); BLOCK * SEGMENT];
            self.blocks.push(block.into_boxed_slice());
            self.vacant.extend((first..first + BLOCK as u32).rev());
        }
        self.vacant.pop().expect("a block was just added")
    }

    fn bytes(&self) -> usize {
        self.blocks.len() * BLOCK * SEGMENT * size_of::<Bucket>()
            + self.blocks.capacity() * size_of::<Box<[Bucket]>>()
            + self.vacant.capacity() * size_of::<u32>()
    }
}

const fn table_of(hash: u64) -> usize {
    (hash >> (64 - TABLE_BITS)) as usize
}

/// Where to look first among this many buckets.
const fn home(hash: u16, buckets: usize) -> usize {
    (hash as usize * buckets) >> 16
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::rng::{Rng, mix};

    impl Index {
        /// Whether no table has any room.
        pub(in crate::allocator::records) fn is_empty(&self) -> bool {
            let room = |table: &Table| table.segments.is_empty() && table.len == 0;
            self.tables.iter().all(room)
                && self.store.vacant.len() == self.store.blocks.len() * BLOCK
        }
    }

    #[test]
    fn a_bucket_is_a_cache_line() {
        assert_eq!((size_of::<Bucket>(), align_of::<Bucket>()), (64, 64));
    }

    #[test]
    fn numbers_are_found_while_tables_grow_and_shrink() {
        let mut rng = Rng::new(11);
        let (mut index, mut model) = (Index::new(), BTreeSet::new());
        // All in eight tables, so that these become large.
        let hash = |number: u32| mix(u64::from(number)) & !(0x7f << (64 - TABLE_BITS));
        for step in 0..200_000_u64 {
            let grow = (step / 40_000) % 2 == 0;
            let number = rng.below(30_000) as u32;
            if (rng.below(4) != 0) == grow {
                if model.insert(number) {
                    index.insert(hash(number), number);
                }
            } else {
                assert_eq!(index.remove(hash(number), number), model.remove(&number));
            }
            let probe = rng.below(30_000) as u32;
            let found = index.find(hash(probe), |other| other == probe);
            assert_eq!(found.is_some(), model.contains(&probe));
        }
        for number in &model {
            assert!(index.remove(hash(*number), *number));
        }
        assert!(index.is_empty(), "all room goes back to the store");
    }

    #[test]
    fn the_same_hash_many_times_is_slow_but_right() {
        let mut index = Index::new();
        for number in 0..500 {
            index.insert(42, number);
        }
        index.replace(42, 250, 9_000);
        assert_eq!(index.find(42, |number| number == 250), None);
        for number in (0..500).filter(|number| *number != 250) {
            assert_eq!(index.find(42, |other| other == number), Some(number));
            assert!(index.remove(42, number));
        }
        assert_eq!(index.find(42, |_| true), Some(9_000));
    }

    #[test]
    fn many_numbers_cost_less_than_eight_bytes_each() {
        let mut index = Index::new();
        let mut worst = 0.0_f64;
        for number in 0..1_000_000_u32 {
            index.insert(mix(u64::from(number)), number);
            if number > 500_000 && number % 10_000 == 0 {
                worst = worst.max(index.bytes() as f64 / f64::from(number));
            }
        }
        assert!(worst < 8.0, "{worst}");
    }
}
