//! The worth of apps, against one that knows every ask by heart, and on the
//! traffic that it was made for.

mod plain;
mod traces;

use std::time::Duration;

use proptest::prelude::*;
use rideau_core::Instant;
use rideau_core::worth::Worth;

use self::plain::Plain;
use self::traces::{Request, TRACES};
use crate::cases;

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn losses_and_values_are_those_of_a_plain_recomputation(
        max in 1_usize..7, counts_only: bool, inputs in inputs(),
    ) {
        let mut worth = Worth::new(max, counts_only);
        let mut plain = Plain::new(max, counts_only);
        let mut now = Instant::START;
        for input in inputs {
            match input {
                Input::Ask { app, start_time, after } => {
                    now = now + after;
                    worth.asked(app, start_time, now);
                    plain.asked(app, start_time, now);
                }
                Input::Forget(app) => {
                    worth.forget(app);
                    plain.forget(app);
                    prop_assert_eq!(worth.value(app, SECOND, now), 0.0);
                }
                Input::Max(max) => {
                    worth.set_max(max);
                    plain.set_max(max);
                }
                Input::CountsOnly(counts_only) => {
                    worth.set_counts_only(counts_only);
                    plain.set_counts_only(counts_only);
                }
            }
            prop_assert_eq!(worth.len(), plain.len());
            check_losses(&worth.losses(), &plain.losses())?;
            check_losses(&worth.what_if(), &plain.what_if())?;
            let later = now + SECOND;
            for app in 0..APPS {
                let (value, expected) = (
                    worth.value(app, SECOND, later),
                    plain.value(app, SECOND, later),
                );
                prop_assert!(are_close(value, expected), "{app}: {value} {expected}");
            }
        }
    }

    #[test]
    fn a_pool_for_everybody_starts_each_app_once(asked in prop::collection::vec(0_u32..8, 1..200)) {
        let mut worth = Worth::new(8, true);
        let mut weights = 0.0;
        let mut lost = 0.0;
        for (at, app) in asked.iter().enumerate() {
            worth.asked(*app, SECOND, Instant::START + SECOND * at as u32);
            let weight = 0.9998_f64.powi((asked.len() - at) as i32);
            weights += weight;
            lost += if asked[..at].contains(app) { 0.0 } else { weight };
        }
        let losses = worth.losses();
        prop_assert!(losses.iter().all(|(_, loss)| are_close(*loss, lost / weights)));
    }
}

#[test]
fn whom_nobody_asked_for_in_a_day_is_forgotten() {
    let mut worth = Worth::new(4, false);
    for app in 0..1000 {
        worth.asked(app, SECOND, Instant::START + SECOND * app);
    }
    assert_eq!(worth.len(), 1000);
    let noon = Instant::START + DAY / 2;
    worth.asked(7, SECOND, noon);
    assert_eq!(worth.len(), 1000);
    assert!(worth.value(8, SECOND, noon) > 0.0);

    worth.asked(3000, SECOND, Instant::START + DAY + 2000 * SECOND);
    assert_eq!(worth.len(), 2);
    worth.asked(3000, SECOND, noon + DAY + 2000 * SECOND);
    assert_eq!(worth.len(), 1);
}

/// Starts in a pool of ten processes, as the bench `eviction` counts them for
/// the first seed.
const SIMULATED: [(&str, usize); 12] = [
    ("zipf 0.6", 20_692),
    ("zipf 0.8", 17_240),
    ("zipf 1.0", 13_518),
    ("zipf 1.2", 9_791),
    ("drift", 13_957),
    ("phases", 14_093),
    ("visitors", 11_744),
    ("visitors slow", 6_148),
    ("zipf + monitor", 14_571),
    ("visitors + monitor", 12_984),
    ("pages 1/s", 758),
    ("pages 4/s", 1_319),
];

#[test]
fn a_pool_that_goes_by_worth_starts_as_many_as_the_simulation() {
    let mut found = Vec::new();
    for trace in &TRACES {
        let mut pool = Pool::new(10);
        let requests = trace.requests(30_000, 1);
        let starts = requests.iter().filter(|request| pool.ask(request)).count();
        pool.check_shadow();
        found.push((trace.name, starts));
    }
    let close = found.iter().zip(&SIMULATED).all(|(found, simulated)| {
        found.0 == simulated.0 && found.1.abs_diff(simulated.1) * 50 <= simulated.1
    });
    assert!(close, "{found:?}");
}

/// Apps that take part in the plain recomputation.
const APPS: u32 = 12;

#[derive(Clone, Debug)]
enum Input {
    Ask {
        app: u32,
        start_time: Duration,
        after: Duration,
    },
    Forget(u32),
    Max(usize),
    CountsOnly(bool),
}

fn inputs() -> impl Strategy<Value = Vec<Input>> {
    // Times on no grid: where two apps are worth the same, either may go.
    let after = prop_oneof![
        1_000_u64..500_000,
        500_000_u64..20_000_000,
        20_000_000_u64..2_000_000_000,
        2_000_000_000_u64..60_000_000_000,
    ];
    let ask = (0..APPS, 1_u64..20_000_000, after).prop_map(|(app, start_time, after)| Input::Ask {
        app,
        start_time: Duration::from_micros(start_time),
        after: Duration::from_nanos(after * 1_000 + 7 * start_time % 1_000),
    });
    let input = prop_oneof![
        60 => ask,
        2 => (0..APPS).prop_map(Input::Forget),
        1 => (1_usize..7).prop_map(Input::Max),
        1 => any::<bool>().prop_map(Input::CountsOnly),
    ];
    prop::collection::vec(input, 1..150)
}

fn check_losses<T: PartialEq + std::fmt::Debug>(
    losses: &[(T, f64)],
    expected: &[(T, f64)],
) -> Result<(), TestCaseError> {
    prop_assert_eq!(losses.len(), expected.len());
    for ((name, loss), (other, expected)) in losses.iter().zip(expected) {
        prop_assert_eq!(name, other);
        prop_assert!(are_close(*loss, *expected), "{name:?} {loss} {expected}");
    }
    Ok(())
}

fn are_close(one: f64, other: f64) -> bool {
    (one - other).abs() <= 1e-9 * one.abs().max(other.abs())
}

/// Processes of ten apps; who is worth least makes room.
struct Pool {
    max: usize,
    here: Vec<u32>,
    worth: Worth,
    /// As the worth itself counts them: fading, and all asks beside them.
    starts: f64,
    asks: f64,
}

impl Pool {
    fn new(max: usize) -> Self {
        Self {
            max,
            here: Vec::new(),
            worth: Worth::new(max, true),
            starts: 0.0,
            asks: 0.0,
        }
    }

    /// Returns whether the app has to be started.
    fn ask(&mut self, request: &Request) -> bool {
        let Request { app, at } = *request;
        self.worth.asked(app, SECOND, at);
        let starts = !self.here.contains(&app);
        if starts && self.here.len() == self.max {
            let value = |app: &u32| self.worth.value(*app, SECOND, at);
            let victim = (0..self.max)
                .min_by(|one, other| value(&self.here[*one]).total_cmp(&value(&self.here[*other])));
            self.here.swap_remove(victim.unwrap());
        }
        if starts {
            self.here.push(app);
        }
        self.starts = self.starts * 0.9998 + f64::from(u8::from(starts));
        self.asks = self.asks * 0.9998 + 1.0;
        starts
    }

    /// The shadow of the pool's own size lost what the pool lost.
    fn check_shadow(&self) {
        let what_if = self.worth.what_if();
        let own = what_if.iter().find(|(size, _)| *size == self.max);
        let (shadow, real) = (own.unwrap().1, self.starts / self.asks);
        assert!(are_close(shadow, real), "{shadow} {real}");
    }
}
