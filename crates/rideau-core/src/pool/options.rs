//! How a pool grows, keeps and retires its members.

use std::time::Duration;

use crate::queue;
use crate::settings::{OptionError, Rule, Settings, check_not_zero};
use crate::valve;

/// How many members there are, how long they live, and where takers wait.
#[derive(Clone, PartialEq, Debug)]
pub struct Options {
    /// Started with the pool, and kept: idle ones are not retired below this.
    pub init: usize,
    /// How many members there may be, whatever they do: those that start or
    /// stop count.
    pub max: usize,
    /// Kept idle ahead of need, as far as `max` allows.
    pub idle_min: usize,
    /// A take that leaves no more than this many idle starts `init` more, at
    /// least one, ahead of need.
    pub grow_at: Option<usize>,
    /// Idle members are retired after this, the longest idle first.
    pub idle_age_max: Option<Duration>,
    /// How long a member lives. One that is held then goes when it is released.
    pub life_max: Option<Duration>,
    /// Each life is shorter or longer by a chance of up to this, so that
    /// members started together do not end together.
    pub life_jitter: Duration,
    /// A member is retired after this many takes.
    pub uses_max: Option<u64>,
    /// Which idle member is taken first.
    pub reuse: Reuse,
    /// How many may start at the same time.
    pub starts_max: usize,
    /// How long a start or a check may take.
    pub start_timeout: Duration,
    /// How long to wait after starts that failed.
    pub backoff: Backoff,
    /// Refuse takers while no member can be started and none is there,
    /// instead of letting them wait.
    pub fail_fast: bool,
    /// How long a stop may take; then the member is dropped.
    pub stop_timeout: Duration,
    /// A member that was idle for longer is checked before it is taken. Zero
    /// checks each time; none never.
    pub check_after: Option<Duration>,
    /// What becomes of a member whose use was cancelled.
    pub on_cancel: Fate,
    /// What becomes of a member whose use ended with an error.
    pub on_error: Fate,
    /// Where takers wait.
    pub queue: queue::Options,
    /// What decides, between its bounds, whether there may be one more
    /// member: size by regulation instead of by need. It may keep the pool
    /// below `init`. One that goes by leads needs a `min` of at least one: it
    /// learns from members.
    pub valve: Option<valve::Options>,
    /// Where chance comes from.
    pub seed: u64,
}

/// Which idle member is taken first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Reuse {
    /// The one released last: it is warm, and those in surplus grow old.
    #[default]
    Lifo,
    /// The one released first: all are kept warm.
    Fifo,
}

/// How a member is treated after a use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// The next taker gets it.
    Reuse,
    /// It is checked, and then the next taker gets it.
    Check,
    /// It is retired, and another one started in its place.
    Replace,
}

/// How long to wait after starts that failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Backoff {
    /// After the first failure. Twice as long after each one more in a row.
    pub first: Duration,
    /// Never longer than this.
    pub max: Duration,
    /// After this many failures in a row the circuit is open: one start at a
    /// time finds out whether starting works again.
    pub failures: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            init: 0,
            max: 10,
            idle_min: 0,
            grow_at: None,
            idle_age_max: Some(Duration::from_secs(300)),
            life_max: Some(Duration::from_secs(1800)),
            life_jitter: Duration::from_secs(180),
            uses_max: None,
            reuse: Reuse::Lifo,
            starts_max: 4,
            start_timeout: Duration::from_secs(30),
            backoff: Backoff::default(),
            fail_fast: false,
            stop_timeout: Duration::from_secs(5),
            check_after: Some(Duration::from_secs(30)),
            on_cancel: Fate::Replace,
            on_error: Fate::Reuse,
            queue: queue::Options::default(),
            valve: None,
            seed: 0,
        }
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            first: Duration::from_millis(50),
            max: Duration::from_secs(10),
            failures: 3,
        }
    }
}

/// More members than slots can be numbered.
const MAX_MAX: usize = 1 << 18;

impl Options {
    /// Options by their names, as `max=20 queue.max=50`.
    ///
    /// # Errors
    ///
    /// If there is no such option, or a value breaks its rule.
    pub fn parse(mut settings: Settings) -> Result<Self, OptionError> {
        let mut options = Self::default();
        let words = &mut settings;
        set(&mut options.init, words.number("init")?);
        set(&mut options.max, words.number("max")?);
        set(&mut options.idle_min, words.number("idle_min")?);
        options.grow_at = words.number("grow_at")?;
        set(
            &mut options.idle_age_max,
            unless_none(words, "idle_age_max")?,
        );
        set(&mut options.life_max, unless_none(words, "life_max")?);
        set(&mut options.life_jitter, words.span("life_jitter")?);
        options.uses_max = words.number("uses_max")?;
        let reuse = words.word("reuse", &["lifo", "fifo"])?;
        set(
            &mut options.reuse,
            reuse.map(|at| [Reuse::Lifo, Reuse::Fifo][at]),
        );
        set(&mut options.starts_max, words.number("starts_max")?);
        set(&mut options.start_timeout, words.span("start_timeout")?);
        set(&mut options.backoff.first, words.span("backoff_first")?);
        set(&mut options.backoff.max, words.span("backoff_max")?);
        set(&mut options.backoff.failures, words.number("failures")?);
        let fail_fast = words.word("fail_fast", &["no", "yes"])?;
        set(&mut options.fail_fast, fail_fast.map(|at| at == 1));
        set(&mut options.stop_timeout, words.span("stop_timeout")?);
        set(&mut options.check_after, unless_none(words, "check_after")?);
        set(&mut options.on_cancel, fate(words, "on_cancel")?);
        set(&mut options.on_error, fate(words, "on_error")?);
        set(&mut options.seed, words.number("seed")?);
        if let Some(part) = words.part("queue") {
            options.queue = queue::Options::parse(part).map_err(|error| error.within("queue"))?;
        }
        if let Some(part) = words.part("valve") {
            let valve = valve::Options::parse(part).map_err(|error| error.within("valve"))?;
            options.valve = Some(valve);
        }
        settings.finish()?;
        options.validate()?;
        Ok(options)
    }

    /// Whether the options make a pool.
    ///
    /// # Errors
    ///
    /// If one of them breaks a rule.
    pub fn validate(&self) -> Result<(), OptionError> {
        if self.max == 0 || self.max > MAX_MAX {
            let (least, most) = (1, MAX_MAX as u64);
            return Err(OptionError::new("max", Rule::Outside { least, most }));
        }
        not_over("init", "max", self.init, self.max)?;
        not_over("idle_min", "max", self.idle_min, self.max)?;
        not_over("grow_at", "max", self.grow_at.unwrap_or(0), self.max)?;
        check_not_zero("starts_max", self.starts_max == 0)?;
        check_not_zero("start_timeout", self.start_timeout.is_zero())?;
        check_not_zero("stop_timeout", self.stop_timeout.is_zero())?;
        check_not_zero("idle_age_max", self.idle_age_max == Some(Duration::ZERO))?;
        check_not_zero("uses_max", self.uses_max == Some(0))?;
        check_not_zero("backoff_first", self.backoff.first.is_zero())?;
        check_not_zero("failures", self.backoff.failures == 0)?;
        let Backoff { first, max, .. } = self.backoff;
        not_over("backoff_first", "backoff_max", first, max)?;
        if let Some(life_max) = self.life_max {
            check_not_zero("life_max", life_max.is_zero())?;
            // A life shortened by the whole of itself would be none.
            let most = life_max - Duration::from_nanos(1);
            not_over("life_jitter", "life_max", self.life_jitter, most)?;
        }
        let within = |part| move |error: OptionError| error.within(part);
        self.queue.validate().map_err(within("queue"))?;
        match &self.valve {
            Some(valve) => valve
                .check()
                .and_then(|()| opens_for_first(valve))
                .map_err(within("valve")),
            None => Ok(()),
        }
    }
}

/// A law that goes by leads learns them from members that are taken: below one
/// member it would wait for itself.
fn opens_for_first(valve: &valve::Options) -> Result<(), OptionError> {
    match valve {
        valve::Options::Relative(valve::Relative { min, .. })
        | valve::Options::CoDel(valve::CoDel { min, .. }) => check_not_zero("min", *min == 0),
        valve::Options::LeastOf(parts) => (1..).zip(parts).try_for_each(|(place, part)| {
            opens_for_first(part).map_err(|error| error.within(&format!("{place}")))
        }),
        _ => Ok(()),
    }
}

fn not_over<T: PartialOrd>(
    option: &'static str,
    bound: &'static str,
    value: T,
    most: T,
) -> Result<(), OptionError> {
    if value > most {
        return Err(OptionError::new(option, Rule::Over { bound }));
    }
    Ok(())
}

fn set<T>(field: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *field = value;
    }
}

/// A span, or the word `none`.
fn unless_none(
    settings: &mut Settings,
    option: &'static str,
) -> Result<Option<Option<Duration>>, OptionError> {
    if settings.is(option, "none") {
        settings.take(option);
        return Ok(Some(None));
    }
    Ok(settings.span(option)?.map(Some))
}

fn fate(settings: &mut Settings, option: &'static str) -> Result<Option<Fate>, OptionError> {
    let fates = [Fate::Reuse, Fate::Check, Fate::Replace];
    let word = settings.word(option, &["reuse", "check", "replace"])?;
    Ok(word.map(|at| fates[at]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &str) -> Result<Options, OptionError> {
        Options::parse(Settings::parse(words)?)
    }

    fn fault(words: &str) -> (String, Rule) {
        let error = parse(words).unwrap_err();
        (error.option, error.rule)
    }

    #[test]
    fn words_make_options() {
        let options = parse(
            "init=2 max=20 idle_min=1 grow_at=3 idle_age_max=none life_max=1h life_jitter=5m \
             uses_max=1000 reuse=fifo starts_max=8 start_timeout=900ms backoff_first=10ms \
             backoff_max=1s failures=5 fail_fast=yes stop_timeout=2s check_after=0 \
             on_cancel=check on_error=replace queue.wait_cap=5s valve.kind=relative \
             valve.min=1 seed=7",
        );
        let options = options.unwrap();
        assert_eq!((options.init, options.max, options.idle_min), (2, 20, 1));
        assert_eq!(options.grow_at, Some(3));
        assert_eq!(options.idle_age_max, None);
        assert_eq!(options.check_after, Some(Duration::ZERO));
        assert_eq!(options.start_timeout, Duration::from_millis(900));
        assert_eq!(options.backoff.failures, 5);
        assert_eq!(options.on_cancel, Fate::Check);
        assert_eq!(options.reuse, Reuse::Fifo);
        assert!(options.fail_fast && options.valve.is_some());
        assert_eq!(parse("").unwrap(), Options::default());
    }

    #[test]
    fn bad_options_name_the_option_and_the_rule() {
        let over = |bound| Rule::Over { bound };
        assert_eq!(fault("init=3 max=2"), ("init".into(), over("max")));
        assert_eq!(fault("idle_min=11"), ("idle_min".into(), over("max")));
        assert_eq!(
            fault("life_max=1s life_jitter=1s"),
            ("life_jitter".into(), over("life_max"))
        );
        assert_eq!(
            fault("start_timeout=0"),
            ("start_timeout".into(), Rule::Zero)
        );
        assert_eq!(fault("queue.interval=0").0, "queue.interval");
        assert_eq!(
            fault("valve.kind=relative"),
            ("valve.min".into(), Rule::Zero)
        );
        assert_eq!(
            fault("valve.kind=least_of valve.1.kind=open valve.2.kind=codel").0,
            "valve.2.min"
        );
        assert!(matches!(fault("max=0").1, Rule::Outside { least: 1, .. }));
        let near = Some("idle_min");
        assert_eq!(
            fault("idle_mim=1"),
            ("idle_mim".into(), Rule::Unknown { near })
        );
    }
}
