//! Inputs by chance: those that were kept are tried first, then those of seeds.
//!
//! `RIDEAU_FUZZ=100000` tries as many seeds, `RIDEAU_FUZZ=7..9` those alone, and
//! `RIDEAU_SOAK` fifty times as many as usual. An input that fails is shortened
//! for as long as it still fails, written to a file and printed with its seed.
//! Moved to `tests/corpus/KIND`, that file is tried first from then on.

use std::any::Any;
use std::env;
use std::fs;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use rideau_core::Rng;

/// As often a shorter input is tried.
const SHORTER_MAX: u32 = 2_000;
/// So much longer is a soak.
const SOAK: u64 = 50;

/// What is wrong, if anything is.
pub type Tried = Result<(), String>;

/// Try every kept input of a kind, and then one of each seed.
pub fn run(
    kind: &str,
    usual: u64,
    make: impl Fn(&mut Rng) -> Vec<u8>,
    mut trial: impl FnMut(&[u8]) -> Tried,
) {
    for (name, input) in corpus(kind) {
        if let Err(why) = attempt(&mut trial, &input) {
            panic!("{kind}/{name}: {why}");
        }
    }
    for seed in seeds(usual) {
        let input = make(&mut Rng::new(seed));
        if let Err(why) = attempt(&mut trial, &input) {
            let short = shorten(input, |input| attempt(&mut trial, input).is_err());
            let last = attempt(&mut trial, &short).err();
            let file = env::temp_dir().join(format!("rideau-fuzz-{kind}-{seed}"));
            let kept = fs::write(&file, &short).is_ok();
            panic!(
                "{kind}, seed {seed}: {why}\nshorter: {}\n{}\nin {} ({kept})",
                last.unwrap_or_else(|| "it does not fail each time".into()),
                short.escape_ascii(),
                file.display()
            );
        }
    }
}

fn attempt(trial: &mut impl FnMut(&[u8]) -> Tried, input: &[u8]) -> Tried {
    let tried = catch_unwind(AssertUnwindSafe(|| trial(input)));
    tried.unwrap_or_else(|panic| Err(format!("panicked: {}", message(&*panic))))
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("no message")
}

/// The inputs that were kept, by name.
pub fn corpus(kind: &str) -> Vec<(String, Vec<u8>)> {
    let home = env::var_os("CARGO_MANIFEST_DIR").expect("cargo runs the tests");
    let folder = PathBuf::from(home).join("tests/corpus").join(kind);
    let files = fs::read_dir(&folder).expect("every kind has a folder");
    let mut all: Vec<_> = files
        .map(|file| {
            let file = file.expect("the folder can be read");
            let input = fs::read(file.path()).expect("so can its files");
            (file.file_name().to_string_lossy().into_owned(), input)
        })
        .collect();
    all.sort();
    assert!(!all.is_empty(), "{} is empty", folder.display());
    all
}

fn seeds(usual: u64) -> Range<u64> {
    let wanted = env::var("RIDEAU_FUZZ").ok();
    let number = |text: &str| text.trim().parse().expect("RIDEAU_FUZZ has numbers");
    match wanted.as_deref().map(|text| text.split_once("..")) {
        Some(Some((from, to))) => number(from)..number(to),
        Some(None) => 0..number(&wanted.unwrap_or_default()),
        None if env::var_os("RIDEAU_SOAK").is_some() => 0..usual * SOAK,
        None => 0..usual,
    }
}

/// Leave out lines, then words, then bytes, as long as it still fails.
fn shorten(mut input: Vec<u8>, mut fails: impl FnMut(&[u8]) -> bool) -> Vec<u8> {
    let mut tries = 0;
    let ends: [fn(u8) -> bool; 3] = [|byte| byte == b'\n', |byte| byte == b' ', |_| true];
    for is_end in ends {
        let mut len = parts(&input, is_end).len().div_ceil(2);
        while len > 0 {
            let mut at = 0;
            while at < parts(&input, is_end).len() && tries < SHORTER_MAX {
                let parts = parts(&input, is_end);
                let (before, rest) = parts.split_at(at);
                let behind = rest.get(len..).unwrap_or_default();
                let shorter = [before.concat(), behind.concat()].concat();
                tries += 1;
                if fails(&shorter) {
                    input = shorter;
                } else {
                    at += len;
                }
            }
            len /= 2;
        }
    }
    input
}

fn parts(input: &[u8], is_end: fn(u8) -> bool) -> Vec<&[u8]> {
    input.split_inclusive(|byte| is_end(*byte)).collect()
}

/// A number below `bound`, as an index.
pub fn below(rng: &mut Rng, bound: usize) -> usize {
    rng.below(bound as u64) as usize
}

/// True once in this many times.
pub fn is_once_in(rng: &mut Rng, times: usize) -> bool {
    below(rng, times) == 0
}

/// One of them.
pub fn one<'a, T: ?Sized>(rng: &mut Rng, of: &[&'a T]) -> &'a T {
    of[below(rng, of.len())]
}

/// Make some mistakes in good bytes, or none.
pub fn damage(bytes: &mut Vec<u8>, rng: &mut Rng, words: &[&[u8]]) {
    for _ in 0..below(rng, 4) {
        let at = below(rng, bytes.len() + 1);
        let to = at + below(rng, (bytes.len() - at).min(40) + 1);
        match below(rng, 7) {
            0 => drop(bytes.drain(at..to)),
            1 if at < bytes.len() => bytes[at] = rng.draw() as u8,
            2 if at < bytes.len() => bytes[at] ^= 1 << below(rng, 8),
            3 => {
                let again = bytes[at..to].to_vec();
                drop(bytes.splice(at..at, again));
            }
            4 => drop(bytes.splice(at..to, one(rng, words).iter().copied())),
            _ => drop(bytes.splice(at..at, one(rng, words).iter().copied())),
        }
    }
}

#[test]
fn an_input_that_fails_is_shortened() {
    let input = b"one two three\nfour five six\nseven eight nine\n".to_vec();
    let fails = |input: &[u8]| input.windows(2).any(|two| two == b"iv");
    assert_eq!(shorten(input, fails), b"iv");
}
