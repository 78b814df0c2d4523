//! Values as they are written: spans, sizes, and text with `${ENV}` in it.

use std::time::Duration;

use rideau_core::{Lead, Settings};

/// The units of a span, as a fault names them.
pub(super) const SPAN_UNITS: &str = "ns, us, ms, s, m or h";
/// The units of a size.
pub(super) const SIZE_UNITS: &str = "B, KiB, MiB or GiB";

const KIB: u64 = 1024;
const SIZES: [(&str, u64); 4] = [
    ("GiB", KIB * KIB * KIB),
    ("MiB", KIB * KIB),
    ("KiB", KIB),
    ("B", 1),
];
const SPANS: [(&str, u128); 6] = [
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// Why a `${…}` cannot be replaced.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Unfilled {
    /// There is no such variable.
    Unset { name: String },
    /// A `${` without its end.
    Open,
    /// The text in the braces is not a name.
    Misnamed { name: String },
}

/// Put the values of variables in: `${NAME}`, `${NAME:-default}`, `$$` for `$`.
pub(super) fn expand(text: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<String, Unfilled> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(behind) = rest.strip_prefix('{') {
            let end = behind.find('}').ok_or(Unfilled::Open)?;
            out.push_str(&variable(&behind[..end], env)?);
            rest = &behind[end + 1..];
        } else {
            rest = rest.strip_prefix('$').unwrap_or(rest);
            out.push('$');
        }
    }
    out.push_str(rest);
    Ok(out)
}

fn variable(words: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<String, Unfilled> {
    let (name, default) = match words.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (words, None),
    };
    let is_name = |name: &str| {
        let mut letters = name.chars();
        letters
            .next()
            .is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
            && letters.all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    if !is_name(name) {
        return Err(Unfilled::Misnamed { name: name.into() });
    }
    let value = env(name).filter(|value| !value.is_empty() || default.is_none());
    value
        .or(default.map(Into::into))
        .ok_or(Unfilled::Unset { name: name.into() })
}

/// Read `200ms` by the rules of the core.
pub(super) fn span(words: &str) -> Option<Duration> {
    let mut settings = Settings::new([("span", words)]).ok()?;
    settings.span("span").ok().flatten()
}

/// The same with or without a sign.
pub(super) fn lead(words: &str) -> Option<Lead> {
    let mut settings = Settings::new([("lead", words)]).ok()?;
    settings.lead("lead").ok().flatten()
}

/// The span that a text stands for.
///
/// # Errors
///
/// The fault, and how to write it.
pub fn read_span(text: &str) -> Result<Duration, String> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    span(text).ok_or_else(|| match is_number {
        true => format!("{text} has no unit: write {text}ms, {text}s, or another: {SPAN_UNITS}"),
        false => format!("{text:?} is not a span of time: write 200ms, 1.5s or 10m"),
    })
}

/// Read `64KiB`.
pub(super) fn size(words: &str) -> Option<u64> {
    let unit_at = words.find(|c: char| c.is_ascii_alphabetic())?;
    let (number, unit) = words.split_at(unit_at);
    let (_, bytes) = SIZES.iter().find(|(word, _)| *word == unit)?;
    let number: u64 = number.trim().replace('_', "").parse().ok()?;
    number.checked_mul(*bytes)
}

/// A span in its largest unit that leaves no fraction.
pub fn show_span(span: Duration) -> String {
    let nanos = span.as_nanos();
    let unit = SPANS.iter().find(|(_, unit)| nanos.is_multiple_of(*unit));
    let (word, unit) = unit.unwrap_or(&("ns", 1));
    if nanos == 0 {
        return "0s".into();
    }
    format!("{}{word}", nanos / unit)
}

/// A size in its largest unit that leaves no fraction.
pub(super) fn show_size(bytes: u64) -> String {
    let unit = SIZES.iter().find(|(_, unit)| bytes.is_multiple_of(*unit));
    match unit {
        Some((word, unit)) if bytes > 0 => format!("{}{word}", bytes / unit),
        _ => format!("{bytes}B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(name: &str) -> Option<String> {
        match name {
            "NODE" => Some("rideau-b".into()),
            "EMPTY" => Some(String::new()),
            _ => None,
        }
    }

    #[test]
    fn variables_are_put_in() {
        for (text, expanded) in [
            ("plain", "plain"),
            ("${NODE}", "rideau-b"),
            ("a-${NODE}-${GONE:-z}", "a-rideau-b-z"),
            ("${EMPTY}", ""),
            ("${EMPTY:-full}", "full"),
            ("${GONE:-}", ""),
            ("$$5 and $${NODE}", "$5 and ${NODE}"),
            ("$argon2id$v=19$m=1", "$argon2id$v=19$m=1"),
        ] {
            assert_eq!(expand(text, &env).as_deref(), Ok(expanded), "{text}");
        }
        let unset = Unfilled::Unset {
            name: "GONE".into(),
        };
        assert_eq!(expand("${GONE}", &env), Err(unset));
        assert_eq!(expand("${NODE", &env), Err(Unfilled::Open));
        assert!(matches!(
            expand("${5}", &env),
            Err(Unfilled::Misnamed { .. })
        ));
    }

    #[test]
    fn sizes_and_spans_are_shown_as_they_are_read() {
        for words in ["64KiB", "1MiB", "3GiB", "1000B"] {
            assert_eq!(size(words).map(show_size).as_deref(), Some(words));
        }
        for words in ["200ms", "90s", "5m", "2h", "1500us", "7ns", "0s"] {
            assert_eq!(span(words).map(show_span).as_deref(), Some(words));
        }
        for bad in ["64", "64KB", "KiB", "1.5MiB", "99999999999GiB"] {
            assert_eq!(size(bad), None, "{bad}");
        }
    }
}
