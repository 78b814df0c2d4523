//! Spans of time, instants and sizes, as people write and read them.

use std::time::Duration;

use rideau_config::human::Span;
pub(crate) use rideau_config::read_span as parse;

/// A number of microseconds as a person reads it.
pub(crate) fn shown(micros: i64) -> String {
    let sign = if micros < 0 { "-" } else { "" };
    format!("{sign}{}", Span::micros(micros.unsigned_abs()))
}

/// How many milliseconds of it the wire is told.
pub(crate) fn millis(span: Duration) -> String {
    span.as_millis().to_string()
}

/// The date and the time of an instant in milliseconds since 1970, at Greenwich.
pub(crate) fn clock(at_ms: u64) -> String {
    let (days, seconds) = (at_ms / 86_400_000, at_ms / 1_000 % 86_400);
    let (year, month, day) = date(days);
    let (hours, minutes) = (seconds / 3_600, seconds / 60 % 60);
    format!(
        "{year:04}-{month:02}-{day:02} {hours:02}:{minutes:02}:{:02}.{:03}Z",
        seconds % 60,
        at_ms % 1_000
    )
}

/// The year, month and day of the calendar, this many days after 1970 began.
///
/// Years are counted from March on, so that a leap day is the last of its year; 400 of
/// them have always as many days.
fn date(days: u64) -> (u64, u64, u64) {
    /// From the first of March of the year 0 to 1970.
    const BEFORE: u64 = 719_468;
    const FOUR_CENTURIES: u64 = 146_097;
    let days = days + BEFORE;
    let (era, day) = (days / FOUR_CENTURIES, days % FOUR_CENTURIES);
    let leaps = day / 1_460 - day / 36_524 + day / (FOUR_CENTURIES - 1);
    let year = (day - leaps) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    // Months have 30.6 days on average from March to February.
    let month = (5 * day + 2) / 153;
    let first = (153 * month + 2) / 5;
    let (month, next) = match month {
        0..10 => (month + 3, 0),
        _ => (month - 9, 1),
    };
    (400 * era + year + next, month, day - first + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_as_people_write_them() {
        for (text, micros) in [
            ("200ms", 200_000),
            ("1.5s", 1_500_000),
            ("10m", 600_000_000),
            ("0s", 0),
            ("0", 0),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_micros(micros)), "{text}");
        }
        for text in ["", "s", "-1s", "1e9s", "5 s", "5d", "nan", "inf"] {
            assert!(parse(text).is_err(), "{text}");
        }
        let wanted = "200 has no unit: write 200ms, 200s, or another: ns, us, ms, s, m or h";
        assert_eq!(parse("200").unwrap_err(), wanted);
    }

    #[test]
    fn an_instant_has_its_date() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00.000Z"),
            (951_782_400, "2000-02-29 00:00:00.000Z"),
            (951_868_800, "2000-03-01 00:00:00.000Z"),
            (1_798_761_599, "2026-12-31 23:59:59.000Z"),
            (4_107_542_400, "2100-03-01 00:00:00.000Z"),
        ] {
            assert_eq!(clock(seconds * 1_000), text);
        }
    }
}
