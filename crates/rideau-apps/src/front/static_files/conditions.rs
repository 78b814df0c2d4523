//! What a client gets of a file: all of it, a part, or only word that it has not changed.
//!
//! The order is that of RFC 9110, 13.2.2.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::http1::fields::is;

/// What a request says of what its client has already, and of what it wants.
#[derive(Clone, Default, Debug)]
pub(in crate::front) struct Conditions {
    /// Lists that stood in several fields are joined by commas.
    pub(in crate::front) if_match: Option<Vec<u8>>,
    pub(in crate::front) if_none_match: Option<Vec<u8>>,
    pub(in crate::front) if_modified_since: Option<Vec<u8>>,
    pub(in crate::front) if_unmodified_since: Option<Vec<u8>>,
    pub(in crate::front) if_range: Option<Vec<u8>>,
    pub(in crate::front) range: Option<Vec<u8>>,
}

/// What tells one version of a file from another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::front) struct Validators {
    /// With its quotes.
    pub(in crate::front) etag: String,
    /// In seconds since 1970.
    pub(in crate::front) modified: u64,
}

/// What a client gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::front) enum Outcome {
    Whole,
    /// From this byte on, this many.
    Part {
        from: u64,
        len: u64,
    },
    /// It has it already.
    NotModified,
    /// It wanted another version.
    Failed,
    /// There is nothing where it wants to have something from.
    Unsatisfiable,
}

impl Conditions {
    /// What its client gets of a file of this length.
    pub(in crate::front) fn decide(&self, is_get: bool, file: &Validators, len: u64) -> Outcome {
        let is_newer = |date: &[u8]| seconds(date).is_some_and(|date| file.modified > date);
        let has_failed = match (&self.if_match, &self.if_unmodified_since) {
            (Some(tags), _) => !has_tag(tags, &file.etag, true),
            (None, Some(date)) => is_newer(date),
            (None, None) => false,
        };
        if has_failed {
            return Outcome::Failed;
        }
        let is_known = match (&self.if_none_match, &self.if_modified_since) {
            (Some(tags), _) => has_tag(tags, &file.etag, false),
            (None, Some(date)) => seconds(date).is_some_and(|date| file.modified <= date),
            (None, None) => false,
        };
        if is_known {
            return Outcome::NotModified;
        }
        match &self.range {
            Some(range) if is_get && self.is_same_range(file) => part(range, len),
            _ => Outcome::Whole,
        }
    }

    /// A part would belong to what the client has.
    fn is_same_range(&self, file: &Validators) -> bool {
        match self.if_range.as_deref() {
            None => true,
            Some(tag @ [b'"' | b'W', ..]) if tag.contains(&b'"') => tag == file.etag.as_bytes(),
            Some(date) => seconds(date) == Some(file.modified),
        }
    }
}

/// A date in seconds since 1970.
fn seconds(date: &[u8]) -> Option<u64> {
    let date = httpdate::parse_http_date(str::from_utf8(date).ok()?).ok()?;
    let since = date.duration_since(UNIX_EPOCH).ok()?;
    Some(since.as_secs())
}

/// A date as it is written.
pub(in crate::front) fn date(seconds: u64) -> String {
    // No calendar has more.
    let most = 253_402_300_799;
    let date: SystemTime = UNIX_EPOCH + Duration::from_secs(seconds.min(most));
    httpdate::fmt_http_date(date)
}

/// Whether a list of tags has this one, which is a strong one. `*` has each.
fn has_tag(list: &[u8], tag: &str, is_strict: bool) -> bool {
    if list.trim_ascii() == b"*" {
        return true;
    }
    let mut rest = list;
    loop {
        rest = rest.trim_ascii_start();
        if let Some(behind) = rest.strip_prefix(b",") {
            rest = behind;
            continue;
        }
        let strong = rest.strip_prefix(b"W/");
        let is_weak = strong.is_some();
        let quoted = strong.unwrap_or(rest);
        let Some(opened) = quoted.strip_prefix(b"\"") else {
            return false;
        };
        let Some(len) = memchr::memchr(b'"', opened) else {
            return false;
        };
        if quoted[..len + 2] == *tag.as_bytes() && !(is_weak && is_strict) {
            return true;
        }
        rest = &opened[len + 1..];
    }
}

/// The one range that is wanted of this many bytes. Several, and what makes no sense, are all of
/// it.
fn part(range: &[u8], len: u64) -> Outcome {
    let Some(equals) = memchr::memchr(b'=', range) else {
        return Outcome::Whole;
    };
    let (unit, wanted) = (
        range[..equals].trim_ascii(),
        range[equals + 1..].trim_ascii(),
    );
    let Some(dash) = memchr::memchr(b'-', wanted) else {
        return Outcome::Whole;
    };
    let (first, last) = (&wanted[..dash], &wanted[dash + 1..]);
    let (from, to) = match (number(first), number(last)) {
        _ if !is(unit, "bytes") => return Outcome::Whole,
        (Some(from), Some(to)) if from <= to => (from, to),
        (Some(from), None) if last.is_empty() => (from, u64::MAX),
        (None, Some(count)) if first.is_empty() => match count {
            0 => return Outcome::Unsatisfiable,
            count => (len.saturating_sub(count), u64::MAX),
        },
        _ => return Outcome::Whole,
    };
    if from >= len {
        return Outcome::Unsatisfiable;
    }
    Outcome::Part {
        from,
        len: to.min(len - 1) - from + 1,
    }
}

/// A number of digits alone; the largest there is for a larger one.
fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let add = |all: u64, digit: &u8| {
        let digit = u64::from(digit - b'0');
        all.saturating_mul(10).saturating_add(digit)
    };
    Some(digits.iter().fold(0, add))
}

#[cfg(test)]
mod tests {
    use rideau_core::Rng;

    use super::*;

    const SUNDAY: u64 = 784_111_777;
    const SUNDAY_TEXT: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

    fn file() -> Validators {
        Validators {
            etag: "\"a,b\"".into(),
            modified: SUNDAY,
        }
    }

    /// What a GET with these fields gets of ten bytes.
    fn decided(fields: &[(&str, &str)]) -> Outcome {
        let mut said = Conditions::default();
        for (name, value) in fields {
            let place = match *name {
                "match" => &mut said.if_match,
                "none" => &mut said.if_none_match,
                "since" => &mut said.if_modified_since,
                "until" => &mut said.if_unmodified_since,
                "if-range" => &mut said.if_range,
                _ => &mut said.range,
            };
            *place = Some(value.as_bytes().to_vec());
        }
        said.decide(true, &file(), 10)
    }

    fn of_range(range: &str) -> Outcome {
        decided(&[("range", range)])
    }

    #[test]
    fn a_client_that_has_a_file_is_told_so() {
        use Outcome::{NotModified, Whole};
        for (tags, expected) in [
            ("\"a,b\"", NotModified),
            ("W/\"a,b\"", NotModified),
            ("\"x\", W/\"y\" ,\"a,b\"", NotModified),
            ("*", NotModified),
            (" , \"a,b\"", NotModified),
            ("\"a\"", Whole),
            ("a,b", Whole),
            ("\"a,b", Whole),
            ("x, \"a,b\"", Whole),
            ("", Whole),
        ] {
            assert_eq!(decided(&[("none", tags)]), expected, "{tags}");
            // Then the date says nothing.
            let both = [("none", tags), ("since", SUNDAY_TEXT)];
            assert_eq!(decided(&both), expected, "{tags}");
        }
        assert_eq!(decided(&[("since", SUNDAY_TEXT)]), NotModified);
        assert_eq!(
            decided(&[("since", "Sun, 06 Nov 1994 08:49:38 GMT")]),
            NotModified
        );
        assert_eq!(
            decided(&[("since", "Sun, 06 Nov 1994 08:49:36 GMT")]),
            Whole
        );
        assert_eq!(decided(&[("since", "yesterday")]), Whole);
        assert_eq!(date(SUNDAY), SUNDAY_TEXT);
    }

    #[test]
    fn a_client_that_wants_another_version_is_refused() {
        use Outcome::{Failed, NotModified, Whole};
        assert_eq!(decided(&[("match", "\"x\"")]), Failed);
        assert_eq!(
            decided(&[("match", "W/\"a,b\"")]),
            Failed,
            "weak ones are too weak"
        );
        assert_eq!(decided(&[("match", "\"x\", \"a,b\"")]), Whole);
        assert_eq!(decided(&[("match", "*"), ("none", "\"a,b\"")]), NotModified);
        assert_eq!(decided(&[("until", SUNDAY_TEXT)]), Whole);
        assert_eq!(
            decided(&[("until", "Sun, 06 Nov 1994 08:49:36 GMT")]),
            Failed
        );
        assert_eq!(decided(&[("until", "never"), ("match", "\"a,b\"")]), Whole);
    }

    #[test]
    fn one_range_is_a_part_and_several_are_all() {
        use Outcome::{Unsatisfiable, Whole};
        let part = |from, len| Outcome::Part { from, len };
        for (range, expected) in [
            ("bytes=0-", part(0, 10)),
            ("bytes=2-4", part(2, 3)),
            ("Bytes = 9-9", part(9, 1)),
            ("bytes=9-99999999999999999999999", part(9, 1)),
            ("bytes=-5", part(5, 5)),
            ("bytes=-99", part(0, 10)),
            ("bytes=10-", Unsatisfiable),
            ("bytes=99999999999999999999999-", Unsatisfiable),
            ("bytes=-0", Unsatisfiable),
            ("bytes=4-2", Whole),
            ("bytes=0-1,3-4", Whole),
            ("bytes=0-1,", Whole),
            ("bytes=-", Whole),
            ("bytes=--5", Whole),
            ("bytes=+1-2", Whole),
            ("bytes=1 - 2", Whole),
            ("bytes", Whole),
            ("lines=0-1", Whole),
            ("", Whole),
        ] {
            assert_eq!(of_range(range), expected, "{range}");
        }
        let said = Conditions {
            range: Some(b"bytes=0-0".to_vec()),
            ..Conditions::default()
        };
        assert_eq!(
            said.decide(false, &file(), 10),
            Whole,
            "only a GET has parts"
        );
        assert_eq!(said.decide(true, &file(), 0), Unsatisfiable);
    }

    #[test]
    fn a_range_of_another_version_is_all_of_this_one() {
        use Outcome::Whole;
        let with = |tag| decided(&[("range", "bytes=-5"), ("if-range", tag)]);
        let part = Outcome::Part { from: 5, len: 5 };
        assert_eq!(with("\"a,b\""), part);
        assert_eq!(with(SUNDAY_TEXT), part);
        for other in [
            "W/\"a,b\"",
            "\"x\"",
            "Sun, 06 Nov 1994 08:49:38 GMT",
            "W",
            "Wed, nonsense",
            "*",
            "",
        ] {
            assert_eq!(with(other), Whole, "{other}");
        }
    }

    #[test]
    fn a_part_always_lies_within_the_file() {
        let mut rng = Rng::new(3);
        let letters = b"bytes=0123456789-, ";
        for _ in 0..100_000 {
            let mut range = b"bytes=".to_vec();
            for _ in 0..rng.below(8) {
                range.push(letters[rng.below(letters.len() as u64) as usize]);
            }
            let whole = rng.below(12);
            if let Outcome::Part { from, len } = part(&range, whole) {
                assert!(len > 0 && from + len <= whole, "{range:?} of {whole}");
            }
        }
    }
}
