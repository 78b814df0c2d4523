//! The worth of apps, against one that knows every ask by heart.

mod plain;
mod simulation;
mod traces;

use std::time::Duration;

use proptest::prelude::*;
use rideau_core::Instant;
use rideau_core::eviction_score::EvictionScore;

use self::plain::Plain;
use crate::cases;

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn losses_and_values_are_those_of_a_plain_recomputation(
        max in 1_usize..7, counts_only: bool, inputs in inputs(),
    ) {
        let mut worth = EvictionScore::new(max, counts_only);
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
    fn a_pool_for_all_apps_starts_each_app_once(asked in prop::collection::vec(0_u32..8, 1..200)) {
        let mut worth = EvictionScore::new(8, true);
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
fn an_app_not_asked_for_in_a_day_is_forgotten() {
    let mut worth = EvictionScore::new(4, false);
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
