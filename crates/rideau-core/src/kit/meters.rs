//! Rules that every meter has to keep.

use std::collections::HashMap;
use std::ops::Range;
use std::time::Duration;

use super::span;
use crate::meter::{Effect, Meters, Options, Reading};
use crate::rng::Rng;
use crate::time::{Instant, Lead};

/// How many things happen in one schedule.
const STEPS: u32 = 400;
/// A meter whose time has come is fed so often at one instant at most.
const ROUNDS_MAX: u32 = 1000;

/// Check a meter in schedules of these numbers:
///
/// - an alarm is raised and cleared in turns, and clear at the end;
/// - what is published for a balancer or a protector is withdrawn at the end;
/// - whenever the meter is due, feeding it makes it due later, so that no
///   driver spins;
/// - the same schedule ends the same.
///
/// # Panics
///
/// If a rule is broken, or the options are.
pub fn check_meter(options: &Options, schedules: Range<u64>) {
    for number in schedules {
        let (once, again) = (run(options, number), run(options, number));
        assert_eq!(once, again, "schedule {number}: the meter is not pure");
    }
}

fn run(options: &Options, number: u64) -> Vec<Effect> {
    let mut rng = Rng::new(number);
    let (mut now, mut effects) = (Instant::from_nanos(rng.below(1 << 40)), Vec::new());
    let meters = Meters::new(vec![options.clone()], now, &mut effects);
    let mut meters = meters.expect("the options keep their rules");
    for _ in 0..STEPS {
        let reading = reading(&mut rng);
        meters.feed(&reading, now, &mut effects);
        let until = now.after(span(&mut rng));
        let mut rounds = 0;
        while let Some(due) = meters.deadline()
            && due <= until
        {
            rounds = if due > now { 0 } else { rounds + 1 };
            assert!(
                rounds < ROUNDS_MAX,
                "schedule {number}: the meter is due again and again at one instant"
            );
            now = now.max(due);
            meters.feed(&reading, now, &mut effects);
            // Sixty seconds by milliseconds are enough to see it.
            if effects.len() > 100_000 {
                break;
            }
        }
        now = until;
    }
    meters.end(&mut effects);
    check_effects(&effects, number);
    effects
}

fn reading(rng: &mut Rng) -> Reading {
    let lead = i64::try_from(span(rng)).expect("a span is short");
    Reading {
        queue_delay: Duration::from_nanos(span(rng)),
        process_delay: Duration::from_nanos(span(rng)),
        lead: Lead::from_nanos(if rng.below(2) == 0 { -lead } else { lead }),
        backlog: usize::try_from(rng.below(50)).expect("it is small"),
        is_deserted: rng.below(8) == 0,
    }
}

fn check_effects(effects: &[Effect], number: u64) {
    let mut alarms = HashMap::new();
    let (mut is_ranked, mut is_protected) = (false, false);
    for effect in effects {
        match effect {
            Effect::Alarm { alarm, set } => {
                let was = alarms.insert(alarm.clone(), *set).unwrap_or(false);
                assert!(!set || !was, "schedule {number}: {alarm} was raised twice");
            }
            Effect::Better { .. } => is_ranked = true,
            Effect::Unrank => is_ranked = false,
            Effect::Protect { .. } => is_protected = true,
            Effect::Unprotect => is_protected = false,
            Effect::Update { .. } => (),
        }
    }
    for (alarm, set) in alarms {
        assert!(
            !set,
            "schedule {number}: {alarm} is still raised at the end"
        );
    }
    assert!(!is_ranked, "schedule {number}: a rank is left at the end");
    assert!(!is_protected, "schedule {number}: a row is left at the end");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meter::CustomMeter;
    use crate::settings::Settings;

    #[test]
    fn the_meters_of_the_library_keep_the_rules() {
        for words in [
            "kind=overload target=5ms interval=100ms",
            "kind=underload target=-5ms interval=100ms",
            "kind=better",
            "kind=pie",
            "kind=update entries=size:offer:50ms",
        ] {
            let options = Options::parse(Settings::parse(words).unwrap()).unwrap();
            check_meter(&options, 0..20);
        }
    }

    /// Raises an alarm while asks wait.
    #[derive(Debug)]
    struct Waiting {
        is_set: bool,
        forgets: bool,
    }

    impl Waiting {
        fn set(&mut self, set: bool, effects: &mut Vec<Effect>) {
            if self.is_set != set {
                self.is_set = set;
                let alarm = "waiting".into();
                effects.push(Effect::Alarm { alarm, set });
            }
        }
    }

    impl CustomMeter for Waiting {
        fn feed(&mut self, reading: &Reading, _now: Instant, effects: &mut Vec<Effect>) {
            self.set(reading.lead > Lead::from_nanos(0), effects);
        }

        fn end(&mut self, effects: &mut Vec<Effect>) {
            if !self.forgets {
                self.set(false, effects);
            }
        }
    }

    fn waiting(name: &'static str, forgets: bool) -> Options {
        Options::custom(name, move |_| Waiting {
            is_set: false,
            forgets,
        })
    }

    #[test]
    fn meters_of_ones_own_go_by_name() {
        check_meter(&waiting("one", false), 0..20);
        let (now, mut effects) = (Instant::from_nanos(7), Vec::new());
        let (one, other) = (waiting("one", false), waiting("other", false));
        let twice = Meters::new(vec![one.clone(), one.clone()], now, &mut effects);
        assert!(twice.is_err());
        let mut meters = Meters::new(vec![one.clone(), other], now, &mut effects).unwrap();
        let reading = Reading {
            lead: Lead::from_nanos(1),
            ..Reading::default()
        };
        meters.feed(&reading, now, &mut effects);
        assert_eq!(effects.len(), 2);
        // One goes, and the other stays as it is.
        meters.reconfigure(vec![one], now, &mut effects).unwrap();
        meters.feed(&reading, now, &mut effects);
        assert_eq!(effects.len(), 3);
    }

    #[test]
    #[should_panic(expected = "still raised at the end")]
    fn a_meter_that_forgets_its_alarm_is_found() {
        check_meter(&waiting("one", true), 0..20);
    }
}
