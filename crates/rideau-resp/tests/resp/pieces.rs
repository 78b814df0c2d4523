//! The ways in which bytes may come: whole, in two, one by one, by chance.

use std::time::{Duration, Instant};

use rideau_core::Rng;

/// All ways to cut `bytes` in two, the empty pieces among them.
pub(crate) fn halves(bytes: &[u8]) -> impl Iterator<Item = [&[u8]; 2]> {
    (0..=bytes.len()).map(|at| {
        let (first, second) = bytes.split_at(at);
        [first, second]
    })
}

/// One by one.
pub(crate) fn single(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.chunks(1)
}

/// One by one, for a minute at most: a reader that looks at each byte once
/// needs a second, and one that looks at all old ones again far longer.
pub(crate) fn single_within_a_minute(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let since = Instant::now();
    single(bytes).enumerate().map(move |(at, piece)| {
        let late = at % 1024 == 0 && since.elapsed() > Duration::from_secs(60);
        assert!(!late, "only {at} of {} bytes within a minute", bytes.len());
        piece
    })
}

/// In pieces of some bytes each, by chance.
pub(crate) fn random<'a>(mut bytes: &'a [u8], rng: &mut Rng) -> Vec<&'a [u8]> {
    let mut pieces = Vec::new();
    while !bytes.is_empty() {
        let len = 1 + rng.below(1 + bytes.len() as u64 / 2);
        let (piece, rest) = bytes.split_at((len as usize).min(bytes.len()));
        pieces.push(piece);
        bytes = rest;
    }
    pieces
}
