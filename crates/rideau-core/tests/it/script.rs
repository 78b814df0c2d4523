//! Scripts: one input a line, and what it must bring about.
//!
//! `12.5 out -> b shed codel 110, c | len 3 next 210` reads: at 12.5 ms the
//! input `out` sheds b after 110 ms and delivers c; then three wait and the
//! machine wants to be called at 210 ms. What stands after `|` is optional;
//! without `->` nothing may happen.

use std::collections::HashMap;

use rideau_core::Instant;

/// A machine that a script can drive.
pub(crate) trait Stage {
    /// Carry out one input and say what happened.
    fn act(&mut self, words: &[&str], now: Instant) -> Vec<String>;
    /// A number or instant that the script asks for by name.
    fn look(&self, name: &str) -> String;
}

/// Run a script; panics at the first line that does not hold.
pub(crate) fn check(stage: &mut impl Stage, script: &str) {
    for line in script
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
    {
        let (input, looks) = line.split_once('|').unwrap_or((line, ""));
        let (input, wanted) = input.split_once("->").unwrap_or((input, ""));
        let words: Vec<_> = input.split_whitespace().collect();
        let outcomes = stage.act(&words[1..], millis(words[0]));
        let wanted: Vec<_> = wanted
            .split(',')
            .map(str::trim)
            .filter(|w| !w.is_empty())
            .collect();
        assert_eq!(outcomes, wanted, "at `{line}`");
        let looks: Vec<_> = looks.split_whitespace().collect();
        for pair in looks.chunks(2) {
            assert_eq!(stage.look(pair[0]), pair[1], "{} at `{line}`", pair[0]);
        }
    }
}

/// An instant written as milliseconds, exact to the nanosecond.
pub(crate) fn millis(word: &str) -> Instant {
    let (whole, part) = word.split_once('.').unwrap_or((word, ""));
    let whole: u64 = whole
        .parse()
        .unwrap_or_else(|_| panic!("not a time: {word}"));
    let part: u64 = format!("{part:0<6}").parse().unwrap();
    Instant::from_nanos(whole * 1_000_000 + part)
}

/// Nanoseconds as milliseconds without needless zeros.
pub(crate) fn in_millis(nanos: i128) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let (whole, part) = (nanos.abs() / 1_000_000, nanos.abs() % 1_000_000);
    let text = format!("{sign}{whole}.{part:06}");
    text.trim_end_matches('0').trim_end_matches('.').into()
}

/// An instant for [`Stage::look`].
pub(crate) fn instant(at: Option<Instant>) -> String {
    at.map_or("never".into(), |at| in_millis(at.as_nanos().into()))
}

/// Options given as `name=value` words among the words of an input.
pub(crate) fn options<'a>(words: &[&'a str]) -> HashMap<&'a str, &'a str> {
    words
        .iter()
        .filter_map(|word| word.split_once('='))
        .collect()
}
