//! Which valve, and its numbers, as a value or as words.

use std::slice;

use crate::settings::{OptionError, Rule, Settings};
use crate::time::Instant;

use super::{Breaker, CoDel, CustomLaw, Gradient, Open, Rate, Relative};
use crate::custom::Custom;

/// The kinds as they are written.
const KINDS: &[&str] = &[
    "open", "relative", "codel", "rate", "breaker", "gradient", "least_of",
];

/// Which valve, and its numbers.
///
/// `usize::MAX` as a `max` is no limit, and the default.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Options {
    /// A fixed number of leases.
    Open(Open),
    /// One lease for each lead below a target.
    Relative(Relative),
    /// Ever more leases while leads stay below a target.
    CoDel(CoDel),
    /// Limits leases within any span of time.
    Rate(Rate),
    /// None for a while after too many went wrong.
    Breaker(Breaker),
    /// Limits leases to the number that do not make each other slower.
    Gradient(Gradient),
    /// Whatever a law of your own decides.
    Custom(Custom<dyn CustomLaw>),
    /// Open only if each of these is; none of them may be such a list itself.
    LeastOf(Vec<Self>),
}

impl Options {
    /// A law of your own. `make` is called for each valve that needs one, with the
    /// instant from which on it counts. The name is shown where kinds are.
    pub fn custom<L: CustomLaw + 'static>(
        name: &'static str,
        make: impl Fn(Instant) -> L + Send + Sync + 'static,
    ) -> Self {
        Self::Custom(Custom::new(name, move |now| -> Box<dyn CustomLaw> {
            Box::new(make(now))
        }))
    }

    /// Options from words: `kind=relative target=-10ms min=1 max=3`.
    ///
    /// What is not given has its default. The parts of `kind=least_of` are
    /// numbered: `1.kind=rate 1.limit=10 2.kind=open 2.max=5`.
    ///
    /// # Errors
    ///
    /// For the first word that is not known, cannot be read or breaks a rule.
    pub fn parse(settings: Settings) -> Result<Self, OptionError> {
        Self::parse_as(settings, |settings| {
            parse_parts(settings).map(Self::LeastOf)
        })
    }

    fn parse_as(
        mut settings: Settings,
        parse_list: fn(&mut Settings) -> Result<Self, OptionError>,
    ) -> Result<Self, OptionError> {
        let kind = settings
            .word("kind", KINDS)?
            .ok_or_else(|| OptionError::new("kind", Rule::Missing))?;
        let options = match KINDS[kind] {
            "open" => Self::Open(Open::parse(&mut settings)?),
            "relative" => Self::Relative(Relative::parse(&mut settings)?),
            "codel" => Self::CoDel(CoDel::parse(&mut settings)?),
            "rate" => Self::Rate(Rate::parse(&mut settings)?),
            "breaker" => Self::Breaker(Breaker::parse(&mut settings)?),
            "gradient" => Self::Gradient(Gradient::parse(&mut settings)?),
            _ => parse_list(&mut settings)?,
        };
        settings.finish()?;
        options.check()?;
        Ok(options)
    }

    /// The kind as it is written.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Open(_) => "open",
            Self::Relative(_) => "relative",
            Self::CoDel(_) => "codel",
            Self::Rate(_) => "rate",
            Self::Breaker(_) => "breaker",
            Self::Gradient(_) => "gradient",
            Self::Custom(custom) => custom.name(),
            Self::LeastOf(_) => "least_of",
        }
    }

    /// # Errors
    ///
    /// For the first option that breaks a rule.
    pub(crate) fn check(&self) -> Result<(), OptionError> {
        match self {
            Self::Open(_) | Self::Custom(_) => Ok(()),
            Self::Relative(relative) => relative.check(),
            Self::CoDel(codel) => codel.check(),
            Self::Rate(rate) => rate.check(),
            Self::Breaker(breaker) => breaker.check(),
            Self::Gradient(gradient) => gradient.check(),
            Self::LeastOf(parts) => check_parts(parts),
        }
    }

    /// Checked options without the list.
    pub(super) fn parts(&self) -> &[Self] {
        match self {
            Self::LeastOf(parts) => parts,
            one => slice::from_ref(one),
        }
    }
}

fn parse_parts(settings: &mut Settings) -> Result<Vec<Options>, OptionError> {
    let mut parts = Vec::new();
    for place in 1.. {
        let name = place.to_string();
        let Some(part) = settings.part(&name) else {
            break;
        };
        let part = Options::parse_as(part, |_| Err(nested()));
        parts.push(part.map_err(|error| error.within(&name))?);
    }
    Ok(parts)
}

fn check_parts(parts: &[Options]) -> Result<(), OptionError> {
    if parts.is_empty() {
        return Err(OptionError::new("least_of", Rule::Empty));
    }
    for (place, part) in (1..).zip(parts) {
        let checked = match part {
            Options::LeastOf(_) => Err(nested()),
            one => one.check(),
        };
        checked.map_err(|error| error.within(&format!("{place}")))?;
    }
    Ok(())
}

fn nested() -> OptionError {
    OptionError::new("kind", Rule::NestedList)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::time::Lead;
    use crate::valve::script::{check, parse};

    #[test]
    fn words_become_options() {
        let relative = Relative {
            target: Lead::from_nanos(-10_000_000),
            min: 1,
            max: 3,
        };
        let rate = Rate {
            limit: 10,
            interval: Duration::from_secs(60),
            ..Rate::default()
        };
        assert_eq!(
            parse("kind=relative target=-10ms min=1 max=3"),
            Options::Relative(relative)
        );
        assert_eq!(
            parse("kind=least_of 1.kind=rate 1.limit=10 1.interval=1m 2.kind=codel"),
            Options::LeastOf(vec![Options::Rate(rate), Options::CoDel(CoDel::default())])
        );
    }

    #[test]
    fn a_broken_rule_is_named_with_its_option() {
        let over = |bound| Rule::Over { bound };
        let unknown = Rule::Unknown { near: Some("max") };
        let nested = "kind=least_of 1.kind=least_of 1.1.kind=open";
        for (words, option, rule) in [
            ("max=1", "kind", Rule::Missing),
            ("kind=shut", "kind", Rule::NotOneOf(KINDS)),
            ("kind=open mx=1", "mx", unknown),
            ("kind=relative min=2 max=1", "min", over("max")),
            ("kind=relative target=5", "target", Rule::NotASpan),
            ("kind=codel interval=0", "interval", Rule::Zero),
            ("kind=rate interval=0", "interval", Rule::Zero),
            ("kind=rate min=2 max=1", "min", over("max")),
            ("kind=breaker failures=11", "failures", over("window")),
            ("kind=breaker probes=0", "probes", Rule::Zero),
            ("kind=breaker pause=2m", "pause", over("pause_max")),
            ("kind=gradient min=0", "min", Rule::Zero),
            ("kind=least_of", "least_of", Rule::Empty),
            (
                "kind=least_of 1.kind=codel 1.interval=0",
                "1.interval",
                Rule::Zero,
            ),
            (nested, "1.kind", Rule::NestedList),
        ] {
            let parsed = Options::parse(Settings::parse(words).unwrap());
            assert_eq!(parsed, Err(OptionError::new(option, rule)), "{words}");
        }
    }

    #[test]
    fn the_least_of_several_consumes_nothing_unless_all_agree() {
        check(
            "kind=least_of 1.kind=relative 1.target=0 2.kind=rate 2.limit=1 2.interval=10ms",
            "
              5 update -1       -> closed until 10
             11 ask             -> 10, closed
             12 update -1       -> closed
             13 renew           -> stop, closed until 23
             24 ask             -> 23, closed
            ",
        );
    }

    #[test]
    fn the_least_of_several_keeps_the_parts_that_stay() {
        check(
            "kind=relative",
            "
              5 update -1       -> open
              6 options kind=least_of 1.kind=relative 2.kind=open 2.max=1 -> open
              7 ask             -> 6, closed
              8 options kind=open max=2 -> open
              9 ask             -> 8, closed
            ",
        );
    }
}
