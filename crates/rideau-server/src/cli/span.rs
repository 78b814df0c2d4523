//! Spans of time, as people write and read them.

use std::time::Duration;

const UNITS: [(&str, u64); 5] = [
    ("us", 1),
    ("ms", 1_000),
    ("s", 1_000_000),
    ("m", 60_000_000),
    ("h", 3_600_000_000),
];

/// Read `200ms`, `1.5s` or `10m`; a plain number is milliseconds, as on the wire.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let fault = || format!("{text:?} is no span of time; write 200ms, 1.5s or 10m");
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" => 1_000,
        unit => {
            let known = UNITS.iter().find(|(name, _)| *name == unit);
            known.ok_or_else(fault)?.1
        }
    };
    let is_plain = digits
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.');
    let number: f64 = digits.parse().map_err(|_| fault())?;
    let seconds = number * unit as f64 / 1e6;
    if !is_plain {
        return Err(fault());
    }
    Duration::try_from_secs_f64(seconds).map_err(|_| fault())
}

/// A number of microseconds as a person reads it.
pub(crate) fn shown(micros: i64) -> String {
    let sign = if micros < 0 { "-" } else { "" };
    let micros = micros.unsigned_abs();
    let seconds = micros / 1_000_000;
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    let text = match micros {
        0 => "0".into(),
        1..1_000 => format!("{micros} us"),
        1_000..10_000 => format!("{:.1} ms", micros as f64 / 1e3),
        10_000..1_000_000 => format!("{} ms", micros / 1_000),
        _ if seconds < 10 => format!("{:.1} s", micros as f64 / 1e6),
        _ if minutes < 2 => format!("{seconds} s"),
        _ if hours < 2 => format!("{minutes} min"),
        _ if days < 2 => format!("{hours} h {} min", minutes % 60),
        _ => format!("{days} d {} h", hours % 24),
    };
    format!("{sign}{text}")
}

/// How many milliseconds of it the wire is told.
pub(crate) fn millis(span: Duration) -> String {
    span.as_millis().to_string()
}

/// The time of day of an instant in milliseconds since 1970, at Greenwich.
pub(crate) fn clock(at_ms: u64) -> String {
    let seconds = at_ms / 1_000 % 86_400;
    let (hours, minutes) = (seconds / 3_600, seconds / 60 % 60);
    format!(
        "{hours:02}:{minutes:02}:{:02}.{:03}Z",
        seconds % 60,
        at_ms % 1_000
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_as_people_write_them() {
        for (text, micros) in [
            ("200ms", 200_000),
            ("200", 200_000),
            ("1.5s", 1_500_000),
            ("10m", 600_000_000),
            ("0s", 0),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_micros(micros)), "{text}");
        }
        for text in ["", "s", "-1s", "1e9s", "5 s", "5d", "nan", "inf"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn spans_are_shown_with_as_much_as_matters() {
        for (micros, text) in [
            (0, "0"),
            (240, "240 us"),
            (-1_840, "-1.8 ms"),
            (212_300, "212 ms"),
            (4_100_000, "4.1 s"),
            (41_000_000, "41 s"),
            (420_000_000, "7 min"),
            (7_800_000_000, "2 h 10 min"),
            (1_051_200_000_000, "12 d 4 h"),
        ] {
            assert_eq!(shown(micros), text);
        }
    }
}
