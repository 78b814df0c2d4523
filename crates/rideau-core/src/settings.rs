//! Options as words: `target = 100ms`, `max = 2000`.
//!
//! Files, commands and live changes all arrive as pairs of words. Each kind of
//! options takes the pairs it knows; what is left over is an error, never
//! ignored.

use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

use crate::time::Lead;

/// An option that cannot be used, and the rule it breaks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OptionError {
    /// Which option, as the asker wrote it.
    pub option: String,
    /// The rule that it breaks.
    pub rule: Rule,
}

/// The rule that an option breaks.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Rule {
    /// No such option here; `near` is the closest one there is.
    Unknown {
        /// The option that was probably meant.
        near: Option<&'static str>,
    },
    /// The option stands there twice.
    Twice,
    /// The option has to be given.
    Missing,
    /// It is over another option that bounds it.
    Over {
        /// The bound.
        bound: &'static str,
    },
    /// It has to be more than zero.
    Zero,
    /// It has to lie between these two, both included.
    Outside {
        /// The least that is allowed.
        least: u64,
        /// The most that is allowed.
        most: u64,
    },
    /// A span is a number and a unit.
    NotASpan,
    /// It has to be a whole number.
    NotANumber,
    /// It has to be one of these words.
    NotOneOf(&'static [&'static str]),
    /// A hash of a hash spreads flows no further.
    NestedHash,
    /// It means something only together with another option.
    OnlyWith {
        /// The other, as it has to be.
        other: &'static str,
    },
    /// A list within a list combines nothing that one list would not.
    NestedList,
    /// The same thing is named twice in one list.
    Repeated,
    /// It takes part in a list that must not be empty.
    Empty,
    /// There is no tokio runtime around us.
    NoRuntime,
    /// It starts members ahead of need where they are shared out by need.
    AheadOfNeed,
}

impl OptionError {
    /// `option` breaks `rule`.
    pub fn new(option: impl Into<String>, rule: Rule) -> Self {
        Self {
            option: option.into(),
            rule,
        }
    }

    /// The same error inside a part of a larger whole: `target` of `ask`
    /// becomes `ask.target`.
    #[must_use]
    pub fn within(self, part: &str) -> Self {
        Self {
            option: format!("{part}.{}", self.option),
            rule: self.rule,
        }
    }
}

impl fmt::Display for OptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "option `{}` ", self.option)?;
        match &self.rule {
            Rule::Unknown { near: Some(near) } => {
                write!(f, "is unknown; did you mean `{near}`?")
            }
            Rule::Unknown { near: None } => f.write_str("is unknown; remove it"),
            Rule::Twice => f.write_str("stands there twice; keep one"),
            Rule::Missing => f.write_str("is missing; give it a value"),
            Rule::Over { bound } => write!(f, "is over `{bound}`; lower it or raise `{bound}`"),
            Rule::Zero => f.write_str("is zero; it has to be more"),
            Rule::Outside { least, most } => write!(f, "has to lie between {least} and {most}"),
            Rule::NotASpan => {
                f.write_str("is not a span of time; write a number and ns, us, ms, s, m or h")
            }
            Rule::NotANumber => f.write_str("is not a whole number that fits"),
            Rule::NotOneOf(words) => write!(f, "has to be one of {}", words.join(", ")),
            Rule::NestedHash => f.write_str("hashes a hash; hash the flow once"),
            Rule::OnlyWith { other } => write!(f, "needs `{other}`"),
            Rule::NestedList => f.write_str("is a list within a list; write one list"),
            Rule::Repeated => f.write_str("names the same thing twice; keep one"),
            Rule::Empty => f.write_str("is empty; name at least one"),
            Rule::NoRuntime => {
                f.write_str("is not there; make the pool inside a tokio runtime, or give it one")
            }
            Rule::AheadOfNeed => {
                f.write_str("starts members ahead of need, which keyed pools do not; leave it out")
            }
        }
    }
}

impl std::error::Error for OptionError {}

/// Fails if an option is zero that must not be.
pub(crate) fn check_not_zero(option: &str, is_zero: bool) -> Result<(), OptionError> {
    if is_zero {
        return Err(OptionError::new(option, Rule::Zero));
    }
    Ok(())
}

/// Pairs of words that have not been taken yet.
#[derive(Clone, Debug)]
pub struct Settings {
    pairs: Vec<(String, String)>,
    known: Vec<&'static str>,
}

impl Settings {
    /// Settings from pairs of option and value.
    ///
    /// # Errors
    ///
    /// If an option stands there twice.
    pub fn new<'a>(
        pairs: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, OptionError> {
        let mut settings = Self {
            pairs: Vec::new(),
            known: Vec::new(),
        };
        for (option, value) in pairs {
            if settings.pairs.iter().any(|(other, _)| other == option) {
                return Err(OptionError::new(option, Rule::Twice));
            }
            settings.pairs.push((option.into(), value.trim().into()));
        }
        Ok(settings)
    }

    /// Settings from `option=value` words, as a person types them.
    ///
    /// # Errors
    ///
    /// If a word has no `=`, or an option stands there twice.
    pub fn parse(words: &str) -> Result<Self, OptionError> {
        let pair = |word: &'_ str| -> Result<(String, String), OptionError> {
            let (option, value) = word
                .split_once('=')
                .ok_or_else(|| OptionError::new(word, Rule::Missing))?;
            Ok((option.into(), value.into()))
        };
        let pairs: Vec<_> = words
            .split_whitespace()
            .map(pair)
            .collect::<Result<_, _>>()?;
        Self::new(pairs.iter().map(|(o, v)| (o.as_str(), v.as_str())))
    }

    /// Take the value of `option`, if it is there.
    pub fn take(&mut self, option: &'static str) -> Option<String> {
        self.known.push(option);
        let at = self.pairs.iter().position(|(name, _)| name == option)?;
        Some(self.pairs.remove(at).1)
    }

    /// Take a span of time.
    ///
    /// # Errors
    ///
    /// If it is there and is not a number with a unit.
    pub fn span(&mut self, option: &'static str) -> Result<Option<Duration>, OptionError> {
        self.take(option)
            .map(|value| span(&value).ok_or_else(|| OptionError::new(option, Rule::NotASpan)))
            .transpose()
    }

    /// Take a span of time that may be negative.
    ///
    /// # Errors
    ///
    /// If it is there and is not a number with a unit, or over 292 years.
    pub fn lead(&mut self, option: &'static str) -> Result<Option<Lead>, OptionError> {
        self.take(option)
            .map(|value| lead(&value).ok_or_else(|| OptionError::new(option, Rule::NotASpan)))
            .transpose()
    }

    /// Take a whole number.
    ///
    /// # Errors
    ///
    /// If it is there and is not a whole number that fits.
    pub fn number<N: TryFrom<u64>>(
        &mut self,
        option: &'static str,
    ) -> Result<Option<N>, OptionError> {
        self.take(option)
            .map(|value| {
                let number: Option<u64> = value.replace('_', "").parse().ok();
                number
                    .and_then(|number| number.try_into().ok())
                    .ok_or_else(|| OptionError::new(option, Rule::NotANumber))
            })
            .transpose()
    }

    /// Take a whole number that is more than zero.
    ///
    /// # Errors
    ///
    /// If it is there and is not such a number.
    pub fn positive(&mut self, option: &'static str) -> Result<Option<NonZeroU32>, OptionError> {
        self.number(option)?
            .map(|number| NonZeroU32::new(number).ok_or(OptionError::new(option, Rule::Zero)))
            .transpose()
    }

    /// The option is there with just this value.
    pub fn is(&self, option: &str, value: &str) -> bool {
        self.pairs
            .iter()
            .any(|(name, word)| name == option && word == value)
    }

    /// Take one of a fixed set of words, as its place in the set.
    ///
    /// # Errors
    ///
    /// If it is there and is none of them.
    pub fn word(
        &mut self,
        option: &'static str,
        words: &'static [&'static str],
    ) -> Result<Option<usize>, OptionError> {
        self.take(option)
            .map(|value| {
                words
                    .iter()
                    .position(|word| *word == value)
                    .ok_or_else(|| OptionError::new(option, Rule::NotOneOf(words)))
            })
            .transpose()
    }

    /// Take the settings of one part of a larger whole, if there are any:
    /// `ask.target` becomes `target` of the part `ask`.
    pub fn part(&mut self, name: &str) -> Option<Self> {
        let inner = |option: &str| Some(option.strip_prefix(name)?.strip_prefix('.')?.to_owned());
        let mut part = Self {
            pairs: Vec::new(),
            known: Vec::new(),
        };
        self.pairs
            .retain_mut(|(option, value)| match inner(option) {
                Some(option) => {
                    part.pairs.push((option, std::mem::take(value)));
                    false
                }
                None => true,
            });
        (!part.pairs.is_empty()).then_some(part)
    }

    /// The end: everything has to be taken by now.
    ///
    /// # Errors
    ///
    /// For the first option that is not known, with the nearest one that is.
    pub fn finish(self) -> Result<(), OptionError> {
        let Some((option, _)) = self.pairs.first() else {
            return Ok(());
        };
        let near = self
            .known
            .iter()
            .map(|known| (distance(option, known), *known))
            .min()
            .filter(|(distance, known)| *distance <= 1 + known.len() / 4)
            .map(|(_, known)| known);
        Err(OptionError::new(option, Rule::Unknown { near }))
    }
}

/// Read `250ms`, `1.5s`, `2h`; `0` needs no unit.
pub(crate) fn span(words: &str) -> Option<Duration> {
    if words == "0" {
        return Some(Duration::ZERO);
    }
    let unit_at = words.find(|c: char| c.is_ascii_alphabetic())?;
    let (number, unit) = words.split_at(unit_at);
    let unit_nanos: u64 = match unit {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    };
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let whole: u64 = whole.parse().ok()?;
    let mut nanos = whole.checked_mul(unit_nanos)?;
    let mut place = unit_nanos;
    for digit in part.chars() {
        place /= 10;
        nanos = nanos.checked_add(place.checked_mul(u64::from(digit.to_digit(10)?))?)?;
    }
    Some(Duration::from_nanos(nanos))
}

/// Read a span with or without a sign: `-20ms`, `1.5s`.
fn lead(words: &str) -> Option<Lead> {
    let (sign, words) = match words.strip_prefix('-') {
        Some(words) => (-1, words),
        None => (1, words),
    };
    let nanos = i64::try_from(span(words)?.as_nanos()).ok()?;
    Some(Lead::from_nanos(sign * nanos))
}

/// The number of letters to change, add or remove to make one word of another.
fn distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in other.bytes().enumerate() {
            let changed = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_units() {
        assert_eq!(span("250ms"), Some(Duration::from_millis(250)));
        assert_eq!(span("1.5s"), Some(Duration::from_millis(1500)));
        assert_eq!(span("2h"), Some(Duration::from_secs(7200)));
        assert_eq!(span("0"), Some(Duration::ZERO));
        for bad in ["", "5", "ms", "5 ms", "-5ms", "5d", "1.x s", "99999999999h"] {
            assert_eq!(span(bad), None, "{bad}");
        }
    }

    #[test]
    fn leads_may_be_negative() {
        assert_eq!(lead("-20ms"), Some(Lead::from_nanos(-20_000_000)));
        assert_eq!(lead("1us"), Some(Lead::from_nanos(1_000)));
        for bad in ["", "-", "--1ms", "-5", "- 5ms", "2562048h"] {
            assert_eq!(lead(bad), None, "{bad}");
        }
    }

    #[test]
    fn an_unknown_option_is_an_error_that_names_the_nearest() {
        let mut settings = Settings::parse("tarqet=5ms").unwrap();
        assert_eq!(settings.span("target"), Ok(None));
        let error = settings.finish().unwrap_err();
        assert_eq!(
            error.to_string(),
            "option `tarqet` is unknown; did you mean `target`?"
        );
    }

    #[test]
    fn a_lead_may_be_negative() {
        let mut settings = Settings::parse("a=-10ms b=1.5us c=--1s").unwrap();
        assert_eq!(settings.lead("a"), Ok(Some(Lead::from_nanos(-10_000_000))));
        assert_eq!(settings.lead("b"), Ok(Some(Lead::from_nanos(1_500))));
        let error = OptionError::new("c", Rule::NotASpan);
        assert_eq!(settings.lead("c"), Err(error));
    }

    #[test]
    fn a_part_takes_what_bears_its_name() {
        let mut settings = Settings::parse("ask.max=1 max=2 asked.max=3").unwrap();
        let mut ask = settings.part("ask").unwrap();
        assert_eq!(ask.number("max"), Ok(Some(1)));
        assert_eq!(ask.finish(), Ok(()));
        assert!(settings.part("ask").is_none());
        assert_eq!(settings.number("max"), Ok(Some(2)));
    }

    #[test]
    fn an_option_stands_once() {
        let error = Settings::parse("max=1 max=2").unwrap_err();
        assert_eq!(error, OptionError::new("max", Rule::Twice));
    }
}
