//! What requests are called: never twice, and never guessed.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a request is called.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Id {
    /// By us.
    Ours([u8; 2 * HALF]),
    /// By somebody who is trusted, in letters that can be seen.
    Theirs(Box<[u8]>),
}

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
    let digit = |at: usize| (number >> (4 * (HALF - 1 - at)) & 15) as u8;
    // Letters are this much further than the digits that they would follow.
    let letters = |digit: u8| u8::from(digit > 9) * (b'a' - b'9' - 1);
    std::array::from_fn(|at| b'0' + digit(at) + letters(digit(at)))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::{Id, Ids};

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
