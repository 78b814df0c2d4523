//! Rules that every valve has to keep.

use std::fmt::Write;
use std::ops::Range;
use std::time::Duration;

use super::span;
use crate::rng::Rng;
use crate::time::{Instant, Lead};
use crate::valve::{Options, Valve};

/// How many things happen in one schedule.
const STEPS: u32 = 400;

/// Check a valve in schedules of these numbers:
///
/// - its lower bound is never over its upper one;
/// - it is open below the lower bound, and closed from the upper one on;
/// - a lease is granted since an instant that has come, and a lease that is
///   renewed stays one;
/// - when a closed valve says that it opens by itself, it does;
/// - the same schedule ends the same.
///
/// # Panics
///
/// If a rule is broken, or the options are.
pub fn check_valve(options: &Options, schedules: Range<u64>) {
    for number in schedules {
        let (once, again) = (run(options, number), run(options, number));
        assert_eq!(once, again, "schedule {number}: the valve is not pure");
    }
}

fn run(options: &Options, number: u64) -> String {
    let mut rng = Rng::new(number);
    let mut now = Instant::from_nanos(rng.below(1 << 40));
    let mut valve = Valve::new(options, 0, now).expect("the options keep their rules");
    let mut told = String::new();
    for _ in 0..STEPS {
        match rng.below(6) {
            0 | 1 if valve.is_open(now) => {
                let since = valve.ask(now);
                assert!(since <= now, "schedule {number}: granted since {since:?}");
                let _ = write!(told, "granted {};", now.nanos_since(since));
            }
            2 if valve.size() > 0 => {
                let before = valve.size();
                let stays = valve.renew(now).is_some();
                let left = before - valve.size();
                assert_eq!(
                    left,
                    usize::from(!stays),
                    "schedule {number}: a lease is lost"
                );
                let _ = write!(told, "renewed {stays};");
            }
            3 if valve.size() > 0 => {
                let held = Duration::from_nanos(span(&mut rng));
                valve.release(held, rng.below(4) > 0, now);
            }
            4 => {
                let lead = i64::try_from(span(&mut rng)).expect("a span is short");
                let lead = if rng.below(2) == 0 { -lead } else { lead };
                valve.update(Lead::from_nanos(lead), now);
            }
            _ => {
                if let Some(opens) = valve.deadline().filter(|opens| *opens > now) {
                    assert!(
                        valve.is_open(opens),
                        "schedule {number}: it is closed at {opens:?}, when it should open"
                    );
                }
                now = now.after(span(&mut rng));
            }
        }
        check_bounds(&valve, number, now);
        let _ = write!(told, "{} {};", valve.size(), valve.is_open(now));
    }
    told
}

fn check_bounds(valve: &Valve, number: u64, now: Instant) {
    let (size, parts) = (valve.size(), valve.stats());
    for part in &parts {
        let (kind, min, max) = (part.kind, part.min, part.max);
        assert!(
            min <= max,
            "schedule {number}: {kind} has bounds {min} and {max}"
        );
        assert!(
            size < max || !valve.is_open(now),
            "schedule {number}: {kind} has {size} of {max} leases, and is open"
        );
    }
    let below = parts.iter().all(|part| size < part.min);
    assert!(
        !below || valve.is_open(now),
        "schedule {number}: it is closed below its lower bound"
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;
    use crate::valve::CustomLaw;

    #[test]
    fn the_valves_of_the_library_keep_the_rules() {
        for words in [
            "kind=open max=3",
            "kind=relative target=10ms min=1 max=5",
            "kind=codel target=10ms interval=100ms min=1 max=5",
            "kind=rate limit=3 interval=50ms max=10",
            "kind=breaker",
            "kind=gradient",
            "kind=least_of 1.kind=rate 1.limit=2 1.interval=10ms 2.kind=open 2.max=4",
        ] {
            let options = Options::parse(Settings::parse(words).unwrap()).unwrap();
            check_valve(&options, 0..50);
        }
    }

    /// One lease more for each that went well, and none for a while after one
    /// that did not.
    #[derive(Debug)]
    struct Careful {
        max: usize,
        opens: Instant,
    }

    impl CustomLaw for Careful {
        fn bounds(&self) -> (usize, usize) {
            (1, self.max)
        }

        fn opening(&self) -> Option<Instant> {
            Some(self.opens)
        }

        fn take(&mut self, _now: Instant) {}

        fn learn(&mut self, _held: Duration, ok: bool, now: Instant) {
            if ok {
                self.max += 1;
            } else {
                self.opens = now.after(PAUSE);
            }
        }
    }

    const PAUSE: u64 = 1_000_000;

    fn careful(max: usize) -> Options {
        Options::custom("rate", move |opens| Careful { max, opens })
    }

    #[test]
    fn a_valve_of_ones_own_opens_by_itself_and_keeps_what_it_learned() {
        check_valve(&careful(2), 0..50);
        let (start, options) = (Instant::from_nanos(7), careful(2));
        let mut valve = Valve::new(&options, 0, start).unwrap();
        assert_eq!((valve.ask(start), valve.ask(start)), (start, start));
        assert!(!valve.is_open(start));
        valve.release(Duration::ZERO, false, start);
        assert_eq!(valve.deadline(), Some(start.after(PAUSE)));
        assert!(!valve.is_open(start));
        valve.release(Duration::ZERO, true, start);
        assert!(valve.is_open(start), "one is always let in");
        // The same options keep what was learned, others do not, whatever their name.
        valve.reconfigure(&options, start).unwrap();
        assert_eq!(valve.stats()[0].max, 3);
        let rate = Options::parse(Settings::parse("kind=rate").unwrap()).unwrap();
        valve.reconfigure(&rate, start).unwrap();
        valve.reconfigure(&careful(5), start).unwrap();
        assert_eq!(valve.stats()[0].max, 5);
    }
}
