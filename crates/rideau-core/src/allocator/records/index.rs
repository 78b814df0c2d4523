//! Finds numbers by hash, in little more room than they need.
//!
//! A great many small tables, each of buckets one cache line wide, filled
//! to over nine tenths. A table grows by an eighth on its own, without
//! hashing anything again, so that no insertion ever pays for all.

/// The upper bits of a hash choose the table, the lower are kept.
const TABLE_BITS: u32 = 10;
/// Numbers in a bucket.
const WIDTH: usize = 10;

#[derive(Debug)]
pub(super) struct Index {
    tables: Box<[Table]>,
}

#[derive(Clone, Debug, Default)]
struct Table {
    buckets: Box<[Bucket]>,
    len: u32,
}

#[derive(Clone, Copy, Default, Debug)]
#[repr(align(64))]
struct Bucket {
    numbers: [u32; WIDTH],
    hashes: [u16; WIDTH],
    len: u16,
    /// How many numbers found this bucket full and went on. While there are
    /// none, who does not find a number here need not look any further.
    passed: u16,
}

impl Index {
    pub(super) fn new() -> Self {
        Self {
            tables: vec![Table::default(); 1 << TABLE_BITS].into_boxed_slice(),
        }
    }

    /// A number with this hash that is the right one.
    pub(super) fn find(&self, hash: u64, is_right: impl Fn(u32) -> bool) -> Option<u32> {
        let table = &self.tables[table_of(hash)];
        let (bucket, at) = table.find(hash as u16, is_right)?;
        Some(table.buckets[bucket].numbers[at])
    }

    /// Add a number, which may be there already.
    pub(super) fn insert(&mut self, hash: u64, number: u32) {
        let table = &mut self.tables[table_of(hash)];
        let (len, most) = (table.len as usize + 1, table.buckets.len() * WIDTH);
        if len * 16 > most * 15 {
            table.resize(table.buckets.len() * 9 / 8 + 1);
        }
        table.insert(hash as u16, number);
    }

    /// Take a number out; false if it is not there.
    pub(super) fn remove(&mut self, hash: u64, number: u32) -> bool {
        let table = &mut self.tables[table_of(hash)];
        let Some((bucket, at)) = table.find(hash as u16, |other| other == number) else {
            return false;
        };
        table.remove(hash as u16, bucket, at);
        let (len, buckets) = (table.len as usize, table.buckets.len());
        if len * 2 < buckets * WIDTH && (buckets > 2 || len == 0) {
            table.resize((len * 6 / 5).div_ceil(WIDTH));
        }
        true
    }

    /// Put `new` where `old` is, with the same hash.
    pub(super) fn replace(&mut self, hash: u64, old: u32, new: u32) {
        let table = &mut self.tables[table_of(hash)];
        if let Some((bucket, at)) = table.find(hash as u16, |other| other == old) {
            table.buckets[bucket].numbers[at] = new;
        }
    }

    /// Everything this index has from the system.
    pub(super) fn bytes(&self) -> usize {
        let buckets: usize = self.tables.iter().map(|table| table.buckets.len()).sum();
        buckets * size_of::<Bucket>() + self.tables.len() * size_of::<Table>()
    }
}

impl Table {
    fn find(&self, hash: u16, is_right: impl Fn(u32) -> bool) -> Option<(usize, usize)> {
        let mut bucket = home(hash, self.buckets.len());
        for _ in 0..self.buckets.len() {
            let here = &self.buckets[bucket];
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
    fn insert(&mut self, hash: u16, number: u32) {
        let mut bucket = home(hash, self.buckets.len());
        while self.buckets[bucket].len as usize == WIDTH {
            let passed = &mut self.buckets[bucket].passed;
            *passed = passed.saturating_add(1);
            bucket = self.next(bucket);
        }
        let here = &mut self.buckets[bucket];
        here.numbers[here.len as usize] = number;
        here.hashes[here.len as usize] = hash;
        here.len += 1;
        self.len += 1;
    }

    fn remove(&mut self, hash: u16, found: usize, at: usize) {
        let mut bucket = home(hash, self.buckets.len());
        while bucket != found {
            // Once it has reached the top it is no longer a count.
            let passed = &mut self.buckets[bucket].passed;
            *passed -= u16::from(*passed != u16::MAX);
            bucket = self.next(bucket);
        }
        let here = &mut self.buckets[bucket];
        here.len -= 1;
        let last = here.len as usize;
        (here.numbers[at], here.hashes[at]) = (here.numbers[last], here.hashes[last]);
        self.len -= 1;
    }

    fn resize(&mut self, buckets: usize) {
        let fresh = vec![Bucket::default(); buckets].into_boxed_slice();
        let old = std::mem::replace(&mut self.buckets, fresh);
        self.len = 0;
        for bucket in &old {
            for at in 0..bucket.len as usize {
                self.insert(bucket.hashes[at], bucket.numbers[at]);
            }
        }
    }

    const fn next(&self, bucket: usize) -> usize {
        if bucket + 1 == self.buckets.len() {
            0
        } else {
            bucket + 1
        }
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
        assert_eq!(index.bytes(), Index::new().bytes(), "all room goes back");
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
