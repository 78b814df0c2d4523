//! Which requests the front lets in, how often, and when only within TLS.

use std::fmt;
use std::time::Duration;

use super::key::{Form, Key};
use super::keyed::Keyed;
use super::kinds::{Answer, Kind, Maybe, Number, Text, Written, spelled, text_kinds};
use super::section::{Made, Section};
use super::shown::Rows;
use super::table::section;
use super::words::{self, show_span};

/// When a request that came without TLS is sent on to `https`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum HttpsRedirect {
    /// If its host has a certificate, and TLS is spoken.
    #[default]
    Auto,
    /// Never.
    None,
}

spelled! { HttpsRedirect { Auto "auto", None "none" } }

section! {
    /// That browsers should use TLS alone, and for how long.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Hsts {
        /// For this long after each answer; `"0s"` takes it back.
        max_age: Duration = DAY * 180, Days, Connections;
        /// Also for all hosts below.
        subdomains: bool = false, Answer, Connections;
        /// The host may be put on the lists that browsers come with.
        preload: bool = false, Answer, Connections;
    }
}

section! {
    /// How often requests may come.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct RateLimit {
        /// How many pass, and in which time.
        rate: RequestRate = RequestRate::USUAL, Text, Requests, usual = "required",
            sample = r#""20/s""#;
        /// This many may pass at once.
        burst: Option<u32> = None, Maybe<Number>, Requests, bounds = (1, RATE_MAX),
            usual = "the number of `rate`", sample = "40";
        /// Whose requests are counted together: those of a `"client"`, or those with the same
        /// value of a `"header:NAME"` or a `"cookie:NAME"`. Without that value, those of a client.
        by: LimitBy = LimitBy::Client, Text, Requests;
    }
}

/// How many requests in which time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestRate {
    /// This many
    pub count: u32,
    /// in each of these.
    pub per: Duration,
}

/// Whose requests are counted together.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum LimitBy {
    /// Those of an address; of IPv6, those of a /64.
    #[default]
    Client,
    /// Those with the same value of this field, whose name is in small letters.
    Header(String),
    /// Those with the same value of this cookie.
    Cookie(String),
}

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// Lists that browsers come with take no host that promises less.
const PRELOAD_MIN: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// Requests of a rate, and of a burst.
const RATE_MAX: u64 = 1_000_000;
/// Units of a rate that stand alone.
const UNITS: [(&str, u64); 3] = [("s", 1), ("m", 60), ("h", 3600)];

/// How long browsers use TLS alone, or a table, or none.
pub(super) struct HstsValue;
/// A rate, or none.
pub(super) struct RateTable;

text_kinds! {
    /// A span that may be in days.
    pub(super) Days: Duration, Form::Text, |text, key| days(text).ok_or_else(|| (
        format!("`{}` cannot be {text:?}", key.name),
        "write a span, such as \"180d\" or \"12h\"".into(),
    )), |span| show_days(*span);
}

/// Read `180d`, or any span.
fn days(text: &str) -> Option<Duration> {
    let Some(count) = text.strip_suffix('d') else {
        return words::span(text);
    };
    let count: u32 = count.trim_end().parse().ok()?;
    Some(DAY * count)
}

fn show_days(span: Duration) -> String {
    let (days, rest) = (
        span.as_secs() / DAY.as_secs(),
        span.as_nanos() % DAY.as_nanos(),
    );
    match days {
        1.. if rest == 0 => format!("{days}d"),
        _ => show_span(span),
    }
}

impl Kind<Option<Hsts>> for HstsValue {
    const FORM: Form = Form::Any(&[
        Form::Words(&["none"]),
        Form::Text,
        Form::Table(Hsts::KEYS, || Hsts::default().rows()),
    ]);

    fn read(section: &Section<'_>, key: &Key) -> Option<Option<Hsts>> {
        let entry = section.entry(key.name)?;
        if section.is_word(key.name, "none") {
            return Some(None);
        }
        if !entry.item.is_table_like() {
            let max_age = Days::read(section, key)?;
            return Some(Some(Hsts {
                max_age,
                ..Hsts::default()
            }));
        }
        let part = section.part(key)?;
        let mut hsts = Hsts::default();
        hsts.read_keys(&part);
        if hsts.preload && (hsts.max_age < PRELOAD_MIN || !hsts.subdomains) {
            let message = "`preload` needs `subdomains`, and a `max_age` of 365d at least";
            let hint = "browsers put no other host on their lists: write them, or take it away";
            section.notes.error(part.at("preload"), message, hint);
        }
        Some(Some(hsts))
    }

    fn show(value: &Option<Hsts>, key: &Key, rows: &mut Rows) {
        match value {
            Some(hsts) => rows.below(key.name, |rows| hsts.show_keys(rows)),
            None => rows.text(key.name, "none"),
        }
    }
}

impl Kind<Option<RateLimit>> for RateTable {
    const FORM: Form = Form::Any(&[
        Form::Table(RateLimit::KEYS, || RateLimit::default().rows()),
        Form::Words(&["none"]),
    ]);

    fn read(section: &Section<'_>, key: &Key) -> Option<Option<RateLimit>> {
        if section.is_word(key.name, "none") {
            return Some(None);
        }
        let part = section.part(key)?;
        if !part.has("rate") {
            let message = "`rate_limit` does not say how many requests may pass";
            let hint = "write { rate = \"20/s\", burst = 40 }";
            section.notes.error(section.at(key.name), message, hint);
        }
        let mut limit = RateLimit::default();
        limit.read_keys(&part);
        Some(Some(limit))
    }

    fn show(value: &Option<RateLimit>, key: &Key, rows: &mut Rows) {
        match value {
            Some(limit) => rows.below(key.name, |rows| limit.show_keys(rows)),
            None => rows.text(key.name, "none"),
        }
    }
}

impl RateLimit {
    /// How many may pass at once.
    pub fn burst(&self) -> u32 {
        self.burst.unwrap_or(self.rate.count)
    }
}

impl RequestRate {
    const USUAL: Self = Self {
        count: 20,
        per: Duration::from_secs(1),
    };
}

impl Written for RequestRate {
    fn make(text: &str, _: &Key) -> Made<Self> {
        rate(text).ok_or_else(|| (NotARate(text).to_string(), NotARate::HINT.into()))
    }

    fn word(&self) -> String {
        let unit = UNITS.iter();
        let mut unit = unit.filter(|(_, seconds)| self.per == Duration::from_secs(*seconds));
        let per = unit
            .next()
            .map_or_else(|| show_span(self.per), |(word, _)| (*word).into());
        format!("{}/{per}", self.count)
    }
}

/// A text that is no rate.
struct NotARate<'a>(&'a str);

impl NotARate<'_> {
    const HINT: &'static str =
        "write a number up to 1_000_000 and a time, such as \"20/s\", \"100/m\" or \"5/10s\"";
}

impl fmt::Display for NotARate<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not a rate of requests", self.0)
    }
}

/// The rate that a text stands for.
///
/// # Errors
///
/// The fault, and how to write it.
pub fn read_rate(text: &str) -> Result<RequestRate, String> {
    rate(text).ok_or_else(|| format!("{}: {}", NotARate(text), NotARate::HINT))
}

/// Read `20/s`, or `5/10s`.
fn rate(text: &str) -> Option<RequestRate> {
    let (count, per) = text.split_once('/')?;
    let (count, per) = (count.trim(), per.trim());
    let count: u64 = count.replace('_', "").parse().ok()?;
    let count = (1..=RATE_MAX).contains(&count).then_some(count)?;
    let per = match per.starts_with(|c: char| c.is_ascii_digit()) {
        true => words::span(per)?,
        false => words::span(&format!("1{per}"))?,
    };
    let is_sane = !per.is_zero() && per <= DAY;
    is_sane.then_some(RequestRate {
        count: u32::try_from(count).ok()?,
        per,
    })
}

impl Written for LimitBy {
    fn make(text: &str, _: &Key) -> Made<Self> {
        let is_name = |name: &&str| {
            let is_known = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            !name.is_empty() && name.chars().all(is_known)
        };
        let header = text.strip_prefix("header:").filter(is_name);
        let cookie = text.strip_prefix("cookie:").filter(is_name);
        match (text, header, cookie) {
            ("client", ..) => Ok(Self::Client),
            (_, Some(name), _) => Ok(Self::Header(name.to_ascii_lowercase())),
            (_, _, Some(name)) => Ok(Self::Cookie(name.into())),
            _ => Err((
                format!("`by` cannot be {text:?}"),
                "write \"client\", \"header:X-Api-Key\" or \"cookie:session\"".into(),
            )),
        }
    }

    fn word(&self) -> String {
        match self {
            Self::Client => "client".into(),
            Self::Header(name) => format!("header:{name}"),
            Self::Cookie(name) => format!("cookie:{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_shown_as_they_are_read() {
        for text in ["20/s", "100/m", "5/10s", "1/h", "3/250ms"] {
            let rate = rate(text).unwrap();
            assert_eq!(rate.word(), text);
        }
        assert_eq!(rate("1_000 / 60s").unwrap().word(), "1000/m");
        for bad in [
            "20", "0/s", "20/", "/s", "20/0s", "-1/s", "20/week", "2/25h",
        ] {
            assert_eq!(rate(bad), None, "{bad}");
        }
    }

    #[test]
    fn days_are_shown_as_they_are_read() {
        for text in ["180d", "12h", "0s", "1d"] {
            assert_eq!(days(text).map(show_days).as_deref(), Some(text));
        }
        assert_eq!(days("36h").map(show_days).as_deref(), Some("36h"));
        assert_eq!((days("d"), days("180"), days("-1d")), (None, None, None));
    }
}
