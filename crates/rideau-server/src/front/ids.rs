//! What requests are called: never twice, and never guessed.

use std::sync::atomic::{AtomicU64, Ordering};

use hyper::body::Bytes;
use hyper::header::HeaderValue;

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

    pub(super) fn next(&self) -> HeaderValue {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut text = Vec::with_capacity(2 * HALF);
        text.extend_from_slice(&self.run);
        text.extend_from_slice(&digits(mixed(number ^ self.key)));
        HeaderValue::from_maybe_shared(Bytes::from(text)).expect("digits are plain text")
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
        let names: HashSet<_> = (0..10_000)
            .map(|_| ids.next().as_bytes().to_vec())
            .collect();
        assert_eq!(names.len(), 10_000);
        assert!(names.iter().all(|name| name.len() == 32));
    }
}
