//! Ids of requests: unique and unguessable.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// The id of a request.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Id {
    /// By us.
    Ours([u8; 2 * HALF]),
    /// By a peer that is trusted, in letters that can be seen.
    Theirs(Box<[u8]>),
}

/// Makes names for requests.
pub(super) struct Ids {
    /// The digits that all ids of this run begin with.
    run: [u8; HALF],
    key: u64,
    next: AtomicU64,
}

const HALF: usize = 16;

impl Ids {
    pub(super) fn new() -> Self {
        let random = || getrandom::u64().expect("the system has random bits");
        Self {
            run: digits(random()),
            key: random(),
            next: AtomicU64::new(0),
        }
    }

    pub(super) fn next(&self) -> Id {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut text = [0; 2 * HALF];
        text[..HALF].copy_from_slice(&self.run);
        text[HALF..].copy_from_slice(&digits(mixed(number ^ self.key)));
        Id::Ours(text)
    }
}

impl AsRef<[u8]> for Id {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Ours(text) => text,
            Self::Theirs(text) => text,
        }
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(self.as_ref()))
    }
}

/// Another number for each number.
fn mixed(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

fn digits(number: u64) -> [u8; HALF] {
    let [high, low] = [number >> 32, number & u64::from(u32::MAX)].map(eight_digits);
    let mut digits = [0; HALF];
    digits[..HALF / 2].copy_from_slice(&high);
    digits[HALF / 2..].copy_from_slice(&low);
    digits
}

/// The digits of a number below 2^32, all at a time: one in each byte of a word.
fn eight_digits(number: u64) -> [u8; HALF / 2] {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let pairs = (number | number << 16) & 0x0000_ffff_0000_ffff;
    let bytes = (pairs | pairs << 8) & 0x00ff_00ff_00ff_00ff;
    let digits = (bytes | bytes << 4) & (15 * ONES);
    // Those above nine reach into the upper half of their byte.
    let letters = (digits + 6 * ONES) >> 4 & ONES;
    // Letters are this much further than the digits that they would follow.
    let further = u64::from(b'a' - b'9' - 1);
    (digits + u64::from(b'0') * ONES + letters * further).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::{Id, Ids, digits};

    #[test]
    fn a_number_is_written_as_usual() {
        for number in [0, 1, 0x9a, 0x0123_4567_89ab_cdef, 1 << 63, u64::MAX] {
            assert_eq!(&digits(number), format!("{number:016x}").as_bytes());
        }
    }

    #[test]
    fn no_two_requests_have_one_name() {
        let ids = Ids::new();
        let names: HashSet<_> = (0..10_000).map(|_| ids.next()).collect();
        assert_eq!(names.len(), 10_000);
        let is_digit = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
        let is_good = |name: &Id| name.as_ref().len() == 32 && name.as_ref().iter().all(is_digit);
        assert!(names.iter().all(is_good));
    }
}
