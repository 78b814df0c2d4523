//! What requests are called: never twice, and never guessed.

use std::sync::atomic::{AtomicU64, Ordering};

/// Makes names for requests.
pub(super) struct Ids {
    /// What all names of this run begin with, in digits.
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

    pub(super) fn next(&self) -> String {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut text = String::with_capacity(2 * HALF);
        let halves = [&self.run, &digits(mixed(number ^ self.key))];
        for digits in halves {
            text.extend(digits.iter().copied().map(char::from));
        }
        text
    }
}

/// Another number for each number.
fn mixed(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

fn digits(mut number: u64) -> [u8; HALF] {
    let mut digits = [0; HALF];
    for digit in digits.iter_mut().rev() {
        *digit = b"0123456789abcdef"[(number & 15) as usize];
        number >>= 4;
    }
    digits
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::Ids;

    #[test]
    fn no_two_requests_have_one_name() {
        let ids = Ids::new();
        let names: HashSet<_> = (0..10_000).map(|_| ids.next()).collect();
        assert_eq!(names.len(), 10_000);
        assert!(names.iter().all(|name| name.len() == 32));
    }
}
