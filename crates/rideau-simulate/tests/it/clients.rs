//! What clients do while they wait, and after a refusal.

use std::time::Duration;

use rideau_core::Reason;
use rideau_simulate::{Arrivals, Patience, Retries, RunEnd, Scenario};

use crate::{run, scenario};

const SPAN: Duration = Duration::from_millis(200);

/// Twice as many come as can be served.
fn overload(queue: &str) -> Scenario {
    Scenario {
        arrivals: Arrivals::Poisson { per_s: 1600.0 },
        ..scenario(queue)
    }
}

#[test]
fn the_same_seed_has_the_same_end() {
    for queue in ["", "kind=codel", "kind=timeout timeout=100ms"] {
        let mut one = run(&overload(queue));
        let mut again = run(&overload(queue));
        assert_eq!(one.waits.quantile(0.9), again.waits.quantile(0.9));
        assert_eq!((one.shed, one.span), (again.shed, again.span));
        let mut other = run(&Scenario {
            seed: 2,
            ..overload(queue)
        });
        assert_ne!(one.waits.quantile(0.9), other.waits.quantile(0.9));
    }
}

#[test]
fn a_client_that_hangs_up_is_not_served() {
    let outcome = run(&Scenario {
        patience: Patience::HangsUp(SPAN),
        ..overload("kind=never")
    });
    assert!(outcome.left > 5_000, "{}", outcome.left);
    assert_eq!(outcome.useful, outcome.granted);
    assert!(outcome.waits.longest() <= SPAN);
}

#[test]
fn a_client_that_gives_up_silently_is_served_in_vain() {
    let outcome = run(&Scenario {
        patience: Patience::Silent(SPAN),
        ..overload("kind=never")
    });
    assert_eq!((outcome.left, outcome.granted), (0, outcome.requests));
    assert!(outcome.useful < outcome.granted / 4, "{}", outcome.useful);
}

#[test]
fn a_named_wait_is_kept_and_a_limit_is_not() {
    let named = run(&Scenario {
        patience: Patience::Named(SPAN),
        ..overload("")
    });
    assert_eq!(named.promises_broken, 0);
    assert_eq!(named.shed_for(Reason::Bound), 0);
    assert!(named.waits.longest() <= SPAN);
    let limited = run(&Scenario {
        patience: Patience::Limit(10 * SPAN),
        ..overload("")
    });
    assert!(limited.shed_for(Reason::Bound) > 5_000);
}

#[test]
fn followers_of_their_appointments_ask_less_often() {
    let times = 5;
    let asks = |retries| {
        let outcome = run(&Scenario {
            retries,
            ..overload("")
        });
        let refused: u64 = outcome.refusals.iter().sum();
        assert_eq!(outcome.asks, outcome.granted + refused);
        assert!(refused >= outcome.shed_total());
        outcome.asks as f64 / outcome.requests as f64
    };
    let none = asks(Retries::None);
    let told = asks(Retries::AsTold { times });
    let blind = asks(Retries::After {
        times,
        span: Duration::from_millis(20),
    });
    assert!(none == 1.0 && told > none && blind > told, "{told} {blind}");
}

#[test]
fn a_run_ends_when_it_is_to_end() {
    let outcome = run(&Scenario {
        end: RunEnd::At(Duration::from_secs(3)),
        ..overload("kind=never max=none")
    });
    assert_eq!(outcome.span, Duration::from_secs(3));
    assert!(outcome.waiting > 2_000, "{}", outcome.waiting);
    assert!(outcome.utilisation > 0.98 && outcome.utilisation <= 1.0);
    let none = run(&Scenario {
        end: RunEnd::Requests(0),
        ..overload("")
    });
    assert_eq!((none.requests, none.span), (0, Duration::ZERO));
}

#[test]
fn turns_by_flow_keep_a_flow_from_waiting_for_others() {
    let outcome = run(&Scenario {
        flows: 4,
        ..overload("kind=timeout timeout=100ms fair_by=flow")
    });
    let half = outcome.requests / 2;
    assert!(outcome.granted.abs_diff(half) < half / 4);
}
