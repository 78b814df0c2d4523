//! A block of values, each free or not, as a bitmap.
//!
//! A place is a value's distance from the first of its block.

/// How many values a chunk has.
pub(super) const PLACES: u16 = 4096;

/// The free places of one block.
///
/// Invariants: a bit of `filled` is set if and only if that word is not zero;
/// `len` counts the set bits of all words, and `runs` how many groups of
/// neighbours they form.
#[derive(Debug)]
pub(super) struct Chunk {
    words: [u64; 64],
    filled: u64,
    len: u16,
    runs: u16,
}

impl Chunk {
    pub(super) const fn new() -> Self {
        Self {
            words: [0; 64],
            filled: 0,
            len: 0,
            runs: 0,
        }
    }

    /// How many places are free.
    pub(super) const fn len(&self) -> u16 {
        self.len
    }

    /// In how many groups of neighbours.
    pub(super) const fn runs(&self) -> u16 {
        self.runs
    }

    pub(super) const fn contains(&self, place: u16) -> bool {
        let (word, bit) = split(place);
        self.words[word] >> bit & 1 == 1
    }

    /// Free a place. False if it was free already.
    pub(super) const fn insert(&mut self, place: u16) -> bool {
        if self.contains(place) {
            return false;
        }
        let (word, bit) = split(place);
        self.words[word] |= 1 << bit;
        self.filled |= 1 << word;
        self.len += 1;
        self.runs = self.runs + 1 - self.neighbours(place);
        true
    }

    /// Take a place. False if it was not free.
    pub(super) const fn remove(&mut self, place: u16) -> bool {
        if !self.contains(place) {
            return false;
        }
        let (word, bit) = split(place);
        self.words[word] &= !(1 << bit);
        if self.words[word] == 0 {
            self.filled &= !(1 << word);
        }
        self.len -= 1;
        self.runs = self.runs + self.neighbours(place) - 1;
        true
    }

    /// Free all from `first` to `last`.
    pub(super) fn insert_all(&mut self, first: u16, last: u16) {
        for (word, mask) in masks(first, last) {
            self.words[word] |= mask;
        }
        self.recount();
    }

    /// Take all from `first` to `last`. Says how many were free.
    pub(super) fn remove_all(&mut self, first: u16, last: u16) -> u16 {
        let before = self.len;
        for (word, mask) in masks(first, last) {
            self.words[word] &= !mask;
        }
        self.recount();
        before - self.len
    }

    /// How many from `first` to `last` are free.
    pub(super) fn count_in(&self, first: u16, last: u16) -> u16 {
        let ones = masks(first, last).map(|(word, mask)| (self.words[word] & mask).count_ones());
        ones.sum::<u32>() as u16
    }

    /// The first free place that is not before this one.
    pub(super) const fn next(&self, from: u16) -> Option<u16> {
        let (word, bit) = split(from);
        let here = self.words[word] & (u64::MAX << bit);
        if here != 0 {
            return Some(place(word, here.trailing_zeros()));
        }
        // Two shifts, because one by 64 is none.
        let later = self.filled & (u64::MAX << word << 1);
        if later == 0 {
            return None;
        }
        let word = later.trailing_zeros() as usize;
        Some(place(word, self.words[word].trailing_zeros()))
    }

    /// The first group of free neighbours that does not begin before this
    /// place, or the rest of the one that is there.
    pub(super) fn next_run(&self, from: u16) -> Option<(u16, u16)> {
        let first = self.next(from)?;
        let (start, bit) = split(first);
        let taken = !self.words[start] & (u64::MAX << bit);
        if taken != 0 {
            return Some((first, place(start, taken.trailing_zeros()) - 1));
        }
        let full = |word: &&u64| **word == u64::MAX;
        let rest = &self.words[start + 1..];
        let word = start + 1 + rest.iter().take_while(full).count();
        let ones = self.words.get(word).map_or(0, |word| word.trailing_ones());
        Some((first, place(word, ones) - 1))
    }

    /// All groups of free neighbours, in order.
    pub(super) fn all_runs(&self) -> impl Iterator<Item = (u16, u16)> {
        let mut from = 0;
        std::iter::from_fn(move || {
            let run = (from < PLACES).then(|| self.next_run(from)).flatten()?;
            from = run.1 + 1;
            Some(run)
        })
    }

    /// How many of the two places beside this one are free.
    const fn neighbours(&self, place: u16) -> u16 {
        let before = place > 0 && self.contains(place - 1);
        let after = place < PLACES - 1 && self.contains(place + 1);
        before as u16 + after as u16
    }

    fn recount(&mut self) {
        let (mut len, mut runs, mut filled, mut carry) = (0, 0, 0, 0);
        for (index, &word) in self.words.iter().enumerate() {
            len += word.count_ones();
            runs += (word & !(word << 1 | carry)).count_ones();
            filled |= u64::from(word != 0) << index;
            carry = word >> 63;
        }
        (self.len, self.runs, self.filled) = (len as u16, runs as u16, filled);
    }
}

/// The word of a place, and its bit there.
const fn split(place: u16) -> (usize, u32) {
    ((place / 64) as usize, (place % 64) as u32)
}

const fn place(word: usize, bit: u32) -> u16 {
    (word * 64) as u16 + bit as u16
}

/// The words from `first` to `last`, and which of their bits are meant.
fn masks(first: u16, last: u16) -> impl Iterator<Item = (usize, u64)> {
    let ((start, low), (end, high)) = (split(first), split(last));
    (start..=end).map(move |word| {
        let above = if word == start {
            u64::MAX << low
        } else {
            u64::MAX
        };
        let below = if word == end {
            u64::MAX >> (63 - high)
        } else {
            u64::MAX
        };
        (word, above & below)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn a_chunk_knows_what_a_plain_list_of_places_knows() {
        let mut rng = Rng::new(11);
        let mut chunk = Chunk::new();
        let mut plain = [false; PLACES as usize];
        for step in 0..20_000 {
            let first = rng.below(4096) as u16;
            let last = first + rng.below(u64::from(PLACES - first).min(200)) as u16;
            let places = usize::from(first)..=usize::from(last);
            match rng.below(8) {
                0 => {
                    chunk.insert_all(first, last);
                    plain[places].fill(true);
                }
                1 => {
                    let free = plain[places.clone()].iter().filter(|free| **free).count();
                    assert_eq!(usize::from(chunk.count_in(first, last)), free);
                    assert_eq!(usize::from(chunk.remove_all(first, last)), free);
                    plain[places].fill(false);
                }
                2..5 => {
                    let free = &mut plain[usize::from(first)];
                    assert_eq!(chunk.insert(first), !*free);
                    *free = true;
                }
                _ => {
                    let free = &mut plain[usize::from(first)];
                    assert_eq!(chunk.remove(first), *free);
                    *free = false;
                }
            }
            if step % 16 == 0 {
                compare(&chunk, &plain);
            }
        }
    }

    #[test]
    fn a_full_chunk_is_one_run() {
        let mut chunk = Chunk::new();
        for place in (0..PLACES).rev() {
            assert!(chunk.insert(place));
        }
        assert_eq!((chunk.len(), chunk.runs()), (PLACES, 1));
        assert_eq!(chunk.next_run(0), Some((0, PLACES - 1)));
        assert_eq!(chunk.next_run(PLACES - 1), Some((PLACES - 1, PLACES - 1)));
        assert_eq!(chunk.remove_all(0, PLACES - 1), PLACES);
        assert_eq!((chunk.len(), chunk.runs(), chunk.next(0)), (0, 0, None));
    }

    fn compare(chunk: &Chunk, plain: &[bool]) {
        let free: Vec<u16> = (0..PLACES).filter(|at| plain[usize::from(*at)]).collect();
        let shown: Vec<u16> = chunk.all_runs().flat_map(|run| run.0..=run.1).collect();
        assert_eq!(shown, free);
        assert_eq!(usize::from(chunk.len()), free.len());
        assert_eq!(usize::from(chunk.runs()), chunk.all_runs().count());
        for from in (0..PLACES).step_by(61) {
            let next = free.iter().copied().find(|place| *place >= from);
            assert_eq!(chunk.next(from), next);
        }
    }
}
