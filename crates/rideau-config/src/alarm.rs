//! Alarms of the file: a number of a thing, a limit, and where a message goes.
//!
//! Which numbers there are is said by the server's description of each kind of thing, of which
//! `alarm/numbers.txt` is a copy. Whether there is a thing of a name is for `rules.rs`.

use std::fmt;
use std::time::Duration;

use rideau_core::alarm::Comparison;

use super::key::Key;
use super::keyed::Keyed;
use super::kinds::{Maybe, OrNone, Span, Text, Written};
use super::near::near;
use super::section::{Made, Section};
use super::table::section;
use super::words::{self, SIZE_UNITS, SPAN_UNITS};

/// Every number that an alarm can look at: its kind, its name and its unit.
pub const ALARM_NUMBERS: &str = include_str!("alarm/numbers.txt");
/// There are no more alarms.
pub const ALARMS_MAX: usize = 256;
/// Kinds of which there is one thing, which has no name.
const NAMELESS: [&str; 2] = ["server", "cluster"];
const SAMPLE: &str = "write KIND.NAME.NUMBER, one of <, <=, > and >=, and a limit, such as \
                      \"pool.pg.waiting > 10\"";

section! {
    /// A number of a thing that is watched.
    #[derive(Clone, PartialEq, Debug)]
    pub struct AlarmConfig {
        plain {
            /// Its name.
            name: String = String::new();
        }
        /// What is wrong: a number, a comparison and a limit. The number is `KIND.NAME.NUMBER`,
        /// the limit a number, a part as `1%`, a span or a size.
        when: AlarmRule = AlarmRule::default(), Text, Live, usual = "required",
            sample = r#""broker.checkout.drop_rate > 1%""#;
        /// The alarm is on when it was so for this long without a break.
        hold: Duration = Duration::ZERO, Span, Live, name = "for", sample = r#""30s""#;
        /// Where a message goes when it begins and when it ends: JSON, by POST.
        post: Option<PostUrl> = None, OrNone<Text>, Live;
    }
}

/// The key of its name, which a table has in its header.
pub(super) const NAME: Key = Key {
    name: "name",
    form: <Maybe<Text> as super::kinds::Kind<Option<String>>>::FORM,
    help: &["Its name, which no other alarm has."],
    usual: "required",
    sample: "\"checkout is shedding\"",
    ..Key::BARE
};

/// When an alarm is on: a number of a thing, and a limit for it.
#[derive(Clone, PartialEq, Debug)]
pub struct AlarmRule {
    /// The kind of the thing, such as `pool`; `group` is a group of pools.
    pub kind: &'static str,
    /// The name of the thing; empty if there is only one.
    pub name: String,
    /// The name of the number.
    pub number: &'static str,
    /// Its unit.
    pub unit: AlarmUnit,
    /// Which values are beyond the limit.
    pub comparison: Comparison,
    /// The limit, in the unit of the number.
    pub limit: f64,
    /// The limit as it is written.
    limit_text: String,
}

/// The unit of a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AlarmUnit {
    /// It counts something.
    Count,
    /// A part of all, from 0 to 1.
    Share,
    /// Bytes.
    Bytes,
    /// A span in microseconds.
    Micros,
    /// A span in milliseconds.
    Millis,
    /// A span in seconds.
    Seconds,
}

/// Where messages of an alarm go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PostUrl(String);

impl AlarmUnit {
    /// All of them, with the word for each.
    pub const ALL: [(Self, &'static str); 6] = [
        (Self::Count, "count"),
        (Self::Share, "share"),
        (Self::Bytes, "bytes"),
        (Self::Micros, "us"),
        (Self::Millis, "ms"),
        (Self::Seconds, "s"),
    ];

    /// The span that a number of this unit is, if it is one.
    pub fn span(self, number: f64) -> Option<Duration> {
        let nanos = (number * self.nanos()?).max(0.0);
        nanos
            .is_finite()
            .then(|| Duration::from_nanos(nanos as u64))
    }

    /// How many nanoseconds one of it is, if it is of a span.
    const fn nanos(self) -> Option<f64> {
        match self {
            Self::Micros => Some(1e3),
            Self::Millis => Some(1e6),
            Self::Seconds => Some(1e9),
            _ => None,
        }
    }

    /// A limit as it is written.
    fn read(self, text: &str) -> Option<f64> {
        let number = |text: &str| {
            let digits = text.trim().replace('_', "");
            let is_plain = digits
                .bytes()
                .all(|byte| byte.is_ascii_digit() || byte == b'.');
            digits.parse::<f64>().ok().filter(|_| is_plain)
        };
        match self {
            Self::Count => number(text),
            Self::Share => match text.strip_suffix('%') {
                Some(percent) => number(percent).map(|percent| percent / 100.0),
                None => number(text),
            },
            Self::Bytes => words::size(text).map(|bytes| bytes as f64),
            _ => Some(words::span(text)?.as_nanos() as f64 / self.nanos()?),
        }
    }

    /// How a limit has to be written.
    fn hint(self) -> String {
        match self {
            Self::Count => "write a number, such as 2".into(),
            Self::Share => "write a part, such as 1%".into(),
            Self::Bytes => format!("write a number and {SIZE_UNITS}, such as 64MiB"),
            _ => format!("write a number and {SPAN_UNITS}, such as 200ms"),
        }
    }
}

impl AlarmRule {
    /// The rule that a text says.
    ///
    /// # Errors
    ///
    /// What is wrong, and what to write.
    pub fn parse(text: &str) -> Result<Self, (String, String)> {
        let whole = || (format!("{text:?} is no rule of an alarm"), SAMPLE.into());
        // A pattern of locks may have such letters; a limit has none.
        let at = text.rfind(['<', '>']).ok_or_else(whole)?;
        let (path, rest) = text.split_at(at);
        let (word, limit) = match rest.as_bytes().get(1) {
            Some(b'=') => rest.split_at(2),
            _ => rest.split_at(1),
        };
        let mut all = Comparison::ALL.into_iter();
        let comparison = all.find(|one| one.word() == word).ok_or_else(whole)?;
        let (kind, name, number) = parts(path.trim()).ok_or_else(whole)?;
        let (kind, number, unit) = number_of(kind, name, number)?;
        let limit_text = limit.trim().to_owned();
        let limit = unit.read(&limit_text).ok_or_else(|| {
            let message = format!("{limit_text:?} is no limit for `{number}`");
            (message, unit.hint())
        })?;
        Ok(Self {
            kind,
            name: name.into(),
            number,
            unit,
            comparison,
            limit,
            limit_text,
        })
    }

    /// The comparison and the limit: `> 1%`.
    pub fn limit_in_words(&self) -> String {
        format!("{} {}", self.comparison.word(), self.limit_text)
    }

    /// The word for the kind as it is written: a group is written as a pool with an at sign.
    pub fn written_kind(&self) -> &'static str {
        match self.kind {
            "group" => "pool",
            kind => kind,
        }
    }
}

/// The kind, the name and the number of a path. A name may have dots.
fn parts(path: &str) -> Option<(&str, &str, &str)> {
    let (kind, rest) = path.split_once('.')?;
    if NAMELESS.contains(&kind) {
        return Some((kind, "", rest));
    }
    // Nothing behind a name may be a number that is not known, or a name without one.
    let (name, number) = rest.rsplit_once('.').unwrap_or((rest, ""));
    (!name.is_empty()).then_some((kind, name, number))
}

/// Kind, number and unit, as the table of numbers has them.
fn number_of(
    kind: &str,
    name: &str,
    number: &str,
) -> Made<(&'static str, &'static str, AlarmUnit)> {
    let wanted = if kind == "pool" && name.starts_with('@') {
        "group"
    } else {
        kind
    };
    let rows = || ALARM_NUMBERS.lines().filter_map(row);
    let mut known: Vec<&str> = rows().map(|(kind, ..)| kind).collect();
    known.dedup();
    let Some(kind) = known
        .iter()
        .copied()
        .find(|known| *known == wanted && kind != "group")
    else {
        known.retain(|known| *known != "group");
        let hint = match near(kind, known.iter().copied()) {
            _ if kind == "group" => "write pool.@NAME.NUMBER".into(),
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("one of: {}", known.join(", ")),
        };
        return Err((format!("alarms know no kind `{kind}`"), hint));
    };
    let mut of_kind = rows().filter(|(known, ..)| *known == kind);
    if let Some((kind, number, unit)) = of_kind.find(|(_, known, _)| *known == number) {
        return Ok((kind, number, unit));
    }
    let names: Vec<&str> = rows()
        .filter(|(known, ..)| *known == kind)
        .map(|(_, number, _)| number)
        .collect();
    let hint = match near(number, names.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("one of: {}", names.join(", ")),
    };
    let message = match number {
        "" => format!("the rule names no number of {kind} `{name}`"),
        number => format!("a {kind} has no number `{number}`"),
    };
    Err((message, hint))
}

/// A row of the table of numbers.
fn row(line: &'static str) -> Option<(&'static str, &'static str, AlarmUnit)> {
    let mut words = line.split(' ');
    let (kind, number, unit) = (words.next()?, words.next()?, words.next()?);
    let mut all = AlarmUnit::ALL.into_iter();
    let (unit, _) = all.find(|(_, word)| *word == unit)?;
    Some((kind, number, unit))
}

impl Default for AlarmRule {
    /// One that is never broken, of nothing.
    fn default() -> Self {
        Self {
            kind: "",
            name: String::new(),
            number: "",
            unit: AlarmUnit::Count,
            comparison: Comparison::Above,
            limit: f64::INFINITY,
            limit_text: String::new(),
        }
    }
}

impl fmt::Display for AlarmRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.kind.is_empty() {
            return Ok(());
        }
        let kind = self.written_kind();
        let dot = if self.name.is_empty() { "" } else { "." };
        let (name, number) = (&self.name, self.number);
        let limit = self.limit_in_words();
        write!(f, "{kind}{dot}{name}.{number} {limit}")
    }
}

impl Written for AlarmRule {
    fn make(text: &str, _: &Key) -> Made<Self> {
        Self::parse(text)
    }

    fn word(&self) -> String {
        self.to_string()
    }
}

impl PostUrl {
    /// The URL. It may have a secret in it.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The host and perhaps the port, which are no secret.
    pub fn host(&self) -> &str {
        let (_, rest) = self.0.split_once("://").unwrap_or_default();
        rest.split(['/', '?']).next().unwrap_or_default()
    }

    /// Whether it is within TLS.
    pub fn is_tls(&self) -> bool {
        self.0.starts_with("https://")
    }

    /// What is asked for at the host.
    pub fn path(&self) -> &str {
        let (_, rest) = self.0.split_once("://").unwrap_or_default();
        rest.find(['/', '?']).map_or("/", |at| &rest[at..])
    }
}

impl Written for PostUrl {
    fn make(text: &str, _: &Key) -> Made<Self> {
        let url = Self(text.into());
        let is_known = ["http://", "https://"]
            .iter()
            .any(|scheme| text.starts_with(scheme));
        let host = url.host();
        let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic());
        if is_known && is_plain && !host.is_empty() && !host.contains('@') && !text.contains('#') {
            return Ok(url);
        }
        Err((
            // What is wrong may be secret.
            "`post` is no address that a message can be sent to".into(),
            "write it as \"https://hooks.example/ops\"".into(),
        ))
    }

    fn word(&self) -> String {
        self.0.clone()
    }
}

impl AlarmConfig {
    /// None if it has no rule that can be read; that is noted.
    pub(super) fn read(name: &str, section: &Section<'_>) -> Option<Self> {
        let mut alarm = Self {
            name: name.into(),
            ..Self::default()
        };
        alarm.read_keys(section);
        if !section.has("when") {
            let message = format!("alarm `{name}` has no `when`");
            section.notes.error(section.at.clone(), message, SAMPLE);
        }
        (!alarm.when.kind.is_empty()).then_some(alarm)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> AlarmRule {
        AlarmRule::parse(text).unwrap_or_else(|fault| panic!("{text}: {fault:?}"))
    }

    #[test]
    fn a_rule_is_a_number_of_a_thing_a_comparison_and_a_limit() {
        let rule = parsed("broker.checkout.drop_rate > 1%");
        assert_eq!(
            (rule.kind, &*rule.name, rule.number),
            ("broker", "checkout", "drop_rate")
        );
        assert_eq!((rule.unit, rule.limit), (AlarmUnit::Share, 0.01));
        let rule = parsed("pool.@pg.free<2");
        assert_eq!((rule.kind, &*rule.name), ("group", "@pg"));
        assert_eq!(rule.to_string(), "pool.@pg.free < 2");
        let rule = parsed("pool.pg-1.wait_p99_us >= 200ms");
        assert_eq!(
            (rule.limit, rule.comparison),
            (200_000.0, Comparison::AtLeast)
        );
        let rule = parsed("certificate.shop.expires_s < 240h");
        assert_eq!(rule.limit, 864_000.0);
        assert_eq!(
            rule.unit.span(rule.limit),
            Some(Duration::from_secs(864_000))
        );
        let rule = parsed("server.waiting > 1_000");
        assert_eq!((&*rule.name, rule.limit), ("", 1_000.0));
        assert_eq!(parsed("cluster.etcd_used > 1GiB").limit, f64::from(1 << 30));
    }

    #[test]
    fn names_may_have_dots_and_patterns_may_have_signs() {
        let rule = parsed("app.shop.example.waiting > 10");
        assert_eq!((&*rule.name, rule.number), ("shop.example", "waiting"));
        let rule = parsed("lock.a<b>*.refusals_per_s <= 3");
        assert_eq!(
            (&*rule.name, rule.comparison),
            ("a<b>*", Comparison::AtMost)
        );
        assert_eq!(parsed(&rule.to_string()), rule);
    }

    #[test]
    fn every_row_of_the_table_of_numbers_is_one() {
        for line in ALARM_NUMBERS.lines() {
            let (kind, number, unit) = row(line).unwrap_or_else(|| panic!("{line}"));
            let name = if NAMELESS.contains(&kind) { "" } else { ".a" };
            let limit = match unit {
                AlarmUnit::Count => "1",
                AlarmUnit::Share => "1%",
                AlarmUnit::Bytes => "1B",
                _ => "1s",
            };
            let (kind, name) = if kind == "group" {
                ("pool", ".@a")
            } else {
                (kind, name)
            };
            let text = format!("{kind}{name}.{number} > {limit}");
            assert_eq!(parsed(&text).to_string(), text);
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        let make = |text: &str| PostUrl::make(text, &Key::BARE);
        let url = make("https://hooks.example:8443/ops?token=a").unwrap();
        assert_eq!(
            (url.host(), url.path()),
            ("hooks.example:8443", "/ops?token=a")
        );
        assert!(url.is_tls());
        assert_eq!(make("http://[::1]:80").unwrap().path(), "/");
        for text in [
            "hooks.example",
            "ftp://a/",
            "http:///a",
            "http://u:p@a/",
            "http://a/ b",
        ] {
            let (message, _) = make(text).unwrap_err();
            assert!(!message.contains("u:p"), "{message}");
        }
    }
}
