//! Watches how long a machine keeps its askers waiting, and tells others.
//!
//! A meter decides nothing: it turns the readings of a machine into alarms,
//! values for a balancer, chances for a protector, and leads for a regulator.
//! The driver of the machine carries them there.

mod alarm;
mod better;
mod custom;
mod panel;
mod pie;
mod update;

use std::mem;
use std::time::Duration;

use crate::custom::Custom;
use crate::protector::Row;
use crate::settings::{OptionError, Rule, Settings};
use crate::time::{Instant, Lead};

pub use alarm::{Overload, Underload};
pub use better::Better;
pub use custom::CustomMeter;
pub(crate) use panel::{Panel, READ_AFTER};
pub use pie::{Pie, PieSide};
pub use update::{Entry, Update};

use alarm::AlarmMeter;
use better::BetterMeter;
use custom::Own;
use pie::PieMeter;
use update::UpdateMeter;

/// The meters of one machine, at most one of each kind.
///
/// They are fed in the order of their options.
#[derive(Debug)]
pub struct Meters {
    meters: Vec<Meter>,
}

/// A reading of a machine at one instant.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reading {
    /// How long an input waits before the machine takes it.
    pub queue_delay: Duration,
    /// How long the machine takes for an input.
    pub process_delay: Duration,
    /// What an ask would get if it was matched now: positive while asks wait,
    /// negative while offers do.
    pub lead: Lead,
    /// How many inputs the machine has not taken yet.
    pub backlog: usize,
    /// Nothing waits on either side, so nothing waits for asks.
    pub is_deserted: bool,
}

/// Which meter to have, and its numbers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Options {
    /// An alarm while inputs wait long for the machine.
    Overload(Overload),
    /// An alarm while the machine waits long for asks.
    Underload(Underload),
    /// Values by which a balancer prefers the better of two machines.
    Better(Better),
    /// Chances at which a protector refuses asks and offers.
    Pie(Pie),
    /// Leads from which regulators learn what is scarce.
    Update(Update),
    /// Whatever a meter of your own tells. There may be one of each name.
    Custom(Custom<dyn CustomMeter>),
}

/// An effect of a meter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Raise or clear an alarm.
    Alarm {
        /// The name of the alarm.
        alarm: String,
        /// Whether it is raised.
        set: bool,
    },
    /// Publish how long either side has to expect to wait here.
    Better {
        /// For an ask.
        ask: Duration,
        /// For an offer.
        offer: Duration,
    },
    /// Withdraw what was published for a balancer.
    Unrank,
    /// Publish the row of the admission to the machine, and count the
    /// admitted from zero.
    Protect {
        /// The row.
        row: Row,
    },
    /// Withdraw the row of the admission.
    Unprotect,
    /// Tell a regulator how long its side leads.
    Update {
        /// The name of the regulator.
        regulator: String,
        /// The lead, from the view of the side it asked for.
        lead: Lead,
    },
}

impl Meters {
    /// Meters that start at `now`.
    ///
    /// # Errors
    ///
    /// If an option breaks its rule, two meters are of one kind, or two share
    /// an alarm; then nothing is pushed to `effects`.
    pub fn new(
        options: Vec<Options>,
        now: Instant,
        effects: &mut Vec<Effect>,
    ) -> Result<Self, OptionError> {
        let mut meters = Self { meters: Vec::new() };
        meters.reconfigure(options, now, effects)?;
        Ok(meters)
    }

    /// The machine took a reading.
    pub fn feed(&mut self, reading: &Reading, now: Instant, effects: &mut Vec<Effect>) {
        for meter in &mut self.meters {
            meter.feed(reading, now, effects);
        }
    }

    /// Replace the options: all of them, or none if one is wrong.
    ///
    /// Kinds that are gone end, then new ones start, then the others change and
    /// keep what they know.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new); then nothing changes.
    pub fn reconfigure(
        &mut self,
        options: Vec<Options>,
        now: Instant,
        effects: &mut Vec<Effect>,
    ) -> Result<(), OptionError> {
        check(&options)?;
        let kinds: Vec<Kind> = options.iter().map(Options::kind).collect();
        self.meters.retain_mut(|meter| {
            let stays = kinds.contains(&meter.kind());
            if !stays {
                meter.end(effects);
            }
            stays
        });

        let known: Vec<Kind> = self.meters.iter().map(Meter::kind).collect();
        let (changed, added): (Vec<_>, Vec<_>) = options
            .into_iter()
            .partition(|options| known.contains(&options.kind()));
        for options in added {
            self.meters.push(Meter::new(options, now, effects));
        }
        for options in changed {
            let kind = options.kind();
            let mut of_kind = self.meters.iter_mut().filter(|meter| meter.kind() == kind);
            let meter = of_kind.next().expect("what changes is known");
            meter.reconfigure(options, now, effects);
        }
        let place = |meter: &Meter| kinds.iter().position(|kind| *kind == meter.kind());
        self.meters.sort_by_key(place);
        Ok(())
    }

    /// End every meter: alarms are cleared and what was published is withdrawn.
    pub fn end(&mut self, effects: &mut Vec<Effect>) {
        for mut meter in mem::take(&mut self.meters) {
            meter.end(effects);
        }
    }

    /// When the meters have to be fed even if nothing happens.
    pub fn deadline(&self) -> Option<Instant> {
        self.meters.iter().map(Meter::deadline).min()?.finite()
    }

    /// Whether there is no meter, so that no reading has to be taken.
    pub fn is_empty(&self) -> bool {
        self.meters.is_empty()
    }
}

impl Options {
    /// A meter of your own. `make` is called for each machine that needs one, with the
    /// instant from which on it counts. The name is shown where kinds are.
    pub fn custom<M: CustomMeter + 'static>(
        name: &'static str,
        make: impl Fn(Instant) -> M + Send + Sync + 'static,
    ) -> Self {
        Self::Custom(Custom::new(name, move |now| -> Box<dyn CustomMeter> {
            Box::new(make(now))
        }))
    }

    /// Options from words; `kind` chooses the meter, and what is not given has
    /// its default.
    ///
    /// # Errors
    ///
    /// If an option is missing, unknown to this kind, or breaks its rule.
    pub fn parse(mut settings: Settings) -> Result<Self, OptionError> {
        let kind = settings
            .word("kind", &Kind::WORDS)?
            .ok_or_else(|| OptionError::new("kind", Rule::Missing))?;
        let options = match Kind::ALL[kind] {
            Kind::Overload => Self::Overload(Overload::take(&mut settings)?),
            Kind::Underload => Self::Underload(Underload::take(&mut settings)?),
            Kind::Better => Self::Better(Better::take(&mut settings)?),
            Kind::Pie => Self::Pie(Pie::take(&mut settings)?),
            Kind::Update => Self::Update(Update::take(&mut settings)?),
            Kind::Custom(_) => unreachable!("it has no word"),
        };
        settings.finish()?;
        options.check()?;
        Ok(options)
    }

    fn check(&self) -> Result<(), OptionError> {
        match self {
            Self::Overload(options) => options.check(),
            Self::Underload(options) => options.check(),
            Self::Better(options) => options.check(),
            Self::Pie(options) => options.check(),
            Self::Update(options) => options.check(),
            Self::Custom(_) => Ok(()),
        }
    }

    fn alarm(&self) -> Option<&str> {
        match self {
            Self::Overload(options) => Some(&options.alarm),
            Self::Underload(options) => Some(&options.alarm),
            Self::Better(_) | Self::Pie(_) | Self::Update(_) | Self::Custom(_) => None,
        }
    }

    fn kind(&self) -> Kind {
        match self {
            Self::Overload(_) => Kind::Overload,
            Self::Underload(_) => Kind::Underload,
            Self::Better(_) => Kind::Better,
            Self::Pie(_) => Kind::Pie,
            Self::Update(_) => Kind::Update,
            Self::Custom(custom) => Kind::Custom(custom.name()),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Overload,
    Underload,
    Better,
    Pie,
    Update,
    Custom(&'static str),
}

impl Kind {
    const ALL: [Self; 5] = [
        Self::Overload,
        Self::Underload,
        Self::Better,
        Self::Pie,
        Self::Update,
    ];
    const WORDS: [&str; 5] = ["overload", "underload", "better", "pie", "update"];

    fn word(self) -> &'static str {
        match self {
            Self::Custom(name) => name,
            kind => {
                let at = Self::ALL.iter().position(|one| *one == kind);
                Self::WORDS[at.expect("all are listed")]
            }
        }
    }
}

#[derive(Debug)]
enum Meter {
    Overload(AlarmMeter),
    Underload(AlarmMeter),
    Better(BetterMeter),
    Pie(PieMeter),
    Update(UpdateMeter),
    Custom(Own),
}

impl Meter {
    fn new(options: Options, now: Instant, effects: &mut Vec<Effect>) -> Self {
        match options {
            Options::Overload(options) => Self::Overload(AlarmMeter::new(options.watch(), effects)),
            Options::Underload(options) => {
                Self::Underload(AlarmMeter::new(options.watch(), effects))
            }
            Options::Better(options) => Self::Better(BetterMeter::new(options, now, effects)),
            Options::Pie(options) => Self::Pie(PieMeter::new(options, now, effects)),
            Options::Update(options) => Self::Update(UpdateMeter::new(options, now)),
            Options::Custom(custom) => Self::Custom(Own::new(custom, now)),
        }
    }

    fn feed(&mut self, reading: &Reading, now: Instant, effects: &mut Vec<Effect>) {
        match self {
            Self::Overload(meter) | Self::Underload(meter) => meter.feed(reading, now, effects),
            Self::Better(meter) => meter.feed(reading, now, effects),
            Self::Pie(meter) => meter.feed(reading, now, effects),
            Self::Update(meter) => meter.feed(reading, now, effects),
            Self::Custom(own) => own.feed(reading, now, effects),
        }
    }

    fn reconfigure(&mut self, options: Options, now: Instant, effects: &mut Vec<Effect>) {
        match (self, options) {
            (Self::Overload(meter), Options::Overload(options)) => {
                meter.reconfigure(options.watch(), now, effects);
            }
            (Self::Underload(meter), Options::Underload(options)) => {
                meter.reconfigure(options.watch(), now, effects);
            }
            (Self::Better(meter), Options::Better(options)) => meter.reconfigure(options, now),
            (Self::Pie(meter), Options::Pie(options)) => meter.reconfigure(options, now, effects),
            (Self::Update(meter), Options::Update(options)) => meter.reconfigure(options, now),
            (Self::Custom(own), Options::Custom(custom)) => own.reconfigure(custom, now, effects),
            _ => unreachable!("a meter stays of its kind"),
        }
    }

    fn end(&mut self, effects: &mut Vec<Effect>) {
        match self {
            Self::Overload(meter) | Self::Underload(meter) => meter.end(effects),
            Self::Better(_) => effects.push(Effect::Unrank),
            Self::Pie(_) => effects.push(Effect::Unprotect),
            Self::Update(_) => (),
            Self::Custom(own) => own.end(effects),
        }
    }

    /// When the meter has to be fed, or never.
    fn deadline(&self) -> Instant {
        match self {
            Self::Overload(meter) | Self::Underload(meter) => meter.deadline(),
            Self::Better(meter) => meter.deadline(),
            Self::Pie(meter) => meter.deadline(),
            Self::Update(meter) => meter.deadline(),
            Self::Custom(own) => own.deadline(),
        }
    }

    fn kind(&self) -> Kind {
        match self {
            Self::Overload(_) => Kind::Overload,
            Self::Underload(_) => Kind::Underload,
            Self::Better(_) => Kind::Better,
            Self::Pie(_) => Kind::Pie,
            Self::Update(_) => Kind::Update,
            Self::Custom(own) => Kind::Custom(own.name()),
        }
    }
}

/// Checks the meters of one machine together.
fn check(options: &[Options]) -> Result<(), OptionError> {
    for (at, one) in options.iter().enumerate() {
        let word = one.kind().word();
        one.check().map_err(|error| error.within(word))?;
        for other in &options[..at] {
            if other.kind() == one.kind() {
                return Err(OptionError::new(word, Rule::Repeated));
            }
            if one.alarm().is_some() && one.alarm() == other.alarm() {
                return Err(OptionError::new("alarm", Rule::Repeated).within(word));
            }
        }
    }
    Ok(())
}

/// A span that has to be more than zero.
fn check_more_than_zero(option: &str, span: Duration) -> Result<(), OptionError> {
    if span.is_zero() {
        return Err(OptionError::new(option, Rule::Zero));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Side;

    const LATE: Instant = Instant::from_nanos(3_000_000_000);

    #[test]
    fn words_become_options_with_defaults() {
        let overload = Overload {
            target: Duration::from_millis(5),
            ..Overload::default()
        };
        let underload = Underload {
            alarm: "bored".into(),
            target: Lead::from_nanos(-20_000_000),
            ..Underload::default()
        };
        let better = Better {
            ask_upper: Duration::from_secs(1),
            ..Better::default()
        };
        let mut pie = Pie {
            max: Some(2000),
            ..Pie::default()
        };
        pie.offer.interval = Duration::from_millis(10);
        let entry = |regulator: &str, side, update| Entry {
            regulator: regulator.into(),
            side,
            update,
        };
        let update = Update {
            entries: vec![
                entry("size", Side::Offer, Duration::from_millis(50)),
                entry("size", Side::Ask, Entry::UPDATE),
            ],
            seed: 7,
        };
        let table = [
            ("kind=overload target=5ms", Options::Overload(overload)),
            (
                "kind=underload alarm=bored target=-20ms",
                Options::Underload(underload),
            ),
            ("kind=better ask_upper=1s", Options::Better(better)),
            ("kind=pie offer.interval=10ms max=2_000", Options::Pie(pie)),
            (
                "kind=update entries=size:offer:50ms,size:ask seed=7",
                Options::Update(update),
            ),
        ];
        for (words, options) in table {
            assert_eq!(parse(words), Ok(options), "{words}");
        }
    }

    #[test]
    fn wrong_words_name_the_option_and_the_rule() {
        let table = [
            ("target=5ms", "kind", Rule::Missing),
            ("kind=bitter", "kind", Rule::NotOneOf(&Kind::WORDS)),
            ("kind=overload interval=0", "interval", Rule::Zero),
            ("kind=overload target=-5ms", "target", Rule::NotASpan),
            ("kind=overload alarm=", "alarm", Rule::Empty),
            ("kind=better update=0", "update", Rule::Zero),
            ("kind=pie ask.interval=0", "ask.interval", Rule::Zero),
            ("kind=pie min=2 max=1", "min", Rule::Over { bound: "max" }),
            ("kind=update", "entries", Rule::Missing),
            ("kind=update entries=", "entries", Rule::Empty),
            ("kind=update entries=a:ask,a:ask", "entries", Rule::Repeated),
            ("kind=update entries=a:ask:0", "entries.update", Rule::Zero),
            ("kind=update entries=a", "entries.side", Rule::Missing),
            ("kind=update entries=:ask", "entries.regulator", Rule::Empty),
        ];
        for (words, option, rule) in table {
            assert_eq!(parse(words), Err(OptionError::new(option, rule)), "{words}");
        }
        let near = Some("ask.target");
        let unknown = OptionError::new("ask.tarqet", Rule::Unknown { near });
        assert_eq!(parse("kind=pie ask.tarqet=5ms"), Err(unknown));
    }

    #[test]
    fn a_kind_and_an_alarm_stand_once() {
        let twice = vec![Options::Better(Better::default()); 2];
        let shared = vec![
            Options::Overload(Overload::default()),
            Options::Underload(Underload {
                alarm: "overload".into(),
                ..Underload::default()
            }),
        ];
        for (options, option) in [(twice, "better"), (shared, "underload.alarm")] {
            let mut effects = Vec::new();
            let error = Meters::new(options, LATE, &mut effects).unwrap_err();
            assert_eq!(error, OptionError::new(option, Rule::Repeated));
            assert_eq!(effects, []);
        }
    }

    #[test]
    fn a_change_that_fails_says_why_and_leaves_every_meter_as_it_was() {
        let mut effects = Vec::new();
        let options = vec![Options::Better(Better::default())];
        let mut meters = Meters::new(options, LATE, &mut effects).unwrap();
        let zero = Pie {
            update: Duration::ZERO,
            ..Pie::default()
        };
        effects.clear();
        let wrong = vec![Options::Pie(zero)];
        let error = meters.reconfigure(wrong, LATE, &mut effects).unwrap_err();
        assert_eq!(error, OptionError::new("pie.update", Rule::Zero));
        assert_eq!(effects, []);
        assert_eq!(meters.deadline(), Some(LATE));
    }

    #[test]
    fn the_first_deadline_stands_until_the_meter_is_fed() {
        let update = Better::default().update;
        let better = Options::Better(Better::default());
        let overload = Options::Overload(Overload::default());
        let mut effects = Vec::new();
        let mut meters = Meters::new(vec![better.clone()], LATE, &mut effects).unwrap();
        meters
            .reconfigure(vec![better, overload], LATE, &mut effects)
            .unwrap();
        assert_eq!(meters.deadline(), Some(LATE));
        meters.feed(&Reading::default(), LATE, &mut effects);
        assert_eq!(meters.deadline(), Some(LATE + update));
    }

    #[test]
    fn the_end_clears_a_raised_alarm_and_withdraws_what_was_published() {
        let options = vec![
            Options::Overload(Overload::default()),
            Options::Underload(Underload::default()),
            Options::Better(Better::default()),
            Options::Pie(Pie::default()),
        ];
        let slow = Reading {
            queue_delay: Duration::from_secs(1),
            ..Reading::default()
        };
        let mut effects = Vec::new();
        let mut meters = Meters::new(options, Instant::START, &mut effects).unwrap();
        meters.feed(&slow, Instant::START, &mut effects);
        meters.feed(&slow, LATE, &mut effects);
        effects.clear();
        meters.end(&mut effects);
        let cleared = Effect::Alarm {
            alarm: "overload".into(),
            set: false,
        };
        assert_eq!(effects, [cleared, Effect::Unrank, Effect::Unprotect]);
        assert!(meters.is_empty());
        assert_eq!(meters.deadline(), None);
    }

    fn parse(words: &str) -> Result<Options, OptionError> {
        Options::parse(Settings::parse(words)?)
    }
}
