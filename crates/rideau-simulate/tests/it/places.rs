//! The places differ in what they know, and in who may be served.

use std::time::Duration;

use rideau_core::{Reason, Settings, valve};
use rideau_simulate::{Arrivals, Place, Scenario, Service};

use crate::{MS, run, scenario};

fn valve(words: &str) -> Place {
    let valve = valve::Options::parse(Settings::parse(words).unwrap()).unwrap();
    Place::Regulator { valve }
}

#[test]
fn all_places_serve_alike_where_none_is_shed() {
    let mut pool = run(&scenario("kind=never"));
    for place in [
        Place::Queue { is_blind: false },
        Place::Queue { is_blind: true },
        Place::Broker,
        valve("kind=open max=8"),
    ] {
        let mut other = run(&Scenario {
            place: place.clone(),
            ..scenario("kind=never")
        });
        for part in [0.5, 0.9, 0.99, 1.0] {
            let (one, two) = (pool.waits.quantile(part), other.waits.quantile(part));
            assert_eq!(one, two, "{place:?} {part}");
        }
    }
}

#[test]
fn members_that_have_to_start_make_the_first_wait() {
    let start = Duration::from_millis(300);
    let mut outcome = run(&Scenario {
        place: Place::Pool { start },
        ..scenario("kind=never")
    });
    assert!(outcome.waits.longest() >= start);
    assert!(outcome.waits.quantile(0.5) < Duration::from_millis(20));
    assert_eq!(outcome.granted, outcome.requests);
}

#[test]
fn a_valve_that_lets_too_many_run_makes_all_slow() {
    let useful = |place| {
        let outcome = run(&Scenario {
            place,
            arrivals: Arrivals::Poisson { per_s: 1600.0 },
            service: Service::Fixed { mean: 10 * MS },
            useful: Some(Duration::from_millis(500)),
            ..scenario("kind=paced")
        });
        (outcome.goodput_per_s(), outcome.shed_for(Reason::Bound))
    };
    let (narrow, shed) = useful(valve("kind=open max=8"));
    assert!(shed > 1_000 && (700.0..801.0).contains(&narrow), "{narrow}");
    // With half of the servers in use half as many are served.
    let (half, _) = useful(valve("kind=open max=4"));
    assert!((350.0..401.0).contains(&half), "{half}");
}

#[test]
fn a_valve_that_stays_shut_ends_the_run() {
    let outcome = run(&Scenario {
        place: valve("kind=open max=0"),
        ..scenario("kind=never")
    });
    assert_eq!((outcome.granted, outcome.waiting), (0, outcome.requests));
}

#[test]
fn an_option_that_breaks_a_rule_is_an_error() {
    let mut broken = scenario("");
    broken.queue.min = u32::MAX;
    for place in [
        broken.place.clone(),
        Place::Broker,
        Place::Queue { is_blind: true },
        valve("kind=open"),
    ] {
        let scenario = Scenario {
            place,
            ..broken.clone()
        };
        let error = rideau_simulate::simulate(&scenario, &mut |_| ()).unwrap_err();
        assert!(error.to_string().contains("`max`"), "{error}");
    }
}
