//! What the simulator finds, beside what is known.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod clients;
mod places;
mod table;
mod theory;

use std::time::Duration;

use rideau_core::queue::Options;
use rideau_core::{Reason, Settings};
use rideau_simulate::{
    Arrivals, Patience, Place, Retries, RunEnd, RunOutcome, Scenario, Service, simulate,
};

const MS: u64 = 1_000_000;

/// Eight servers of 10 ms each, at 700 requests a second.
fn scenario(queue: &str) -> Scenario {
    Scenario {
        place: Place::Pool {
            start: Duration::ZERO,
        },
        servers: 8,
        queue: Options::parse(Settings::parse(queue).unwrap()).unwrap(),
        arrivals: Arrivals::Poisson { per_s: 700.0 },
        load: 1.0,
        service: Service::Exponential { mean: 10 * MS },
        stalls: None,
        patience: Patience::Endless,
        retries: Retries::None,
        useful: None,
        flows: 1,
        is_busy: false,
        end: RunEnd::Requests(20_000),
        from: Duration::ZERO,
        keeps_serves: false,
        seed: 1,
    }
}

/// Run it, and check that each request has exactly one end.
fn run(scenario: &Scenario) -> RunOutcome {
    let outcome = simulate(scenario, &mut |_| ()).unwrap();
    let shed: u64 = Reason::ALL
        .into_iter()
        .map(|reason| outcome.shed_for(reason))
        .sum();
    let ended = outcome.granted + shed + outcome.left + outcome.waiting;
    assert_eq!(outcome.requests, ended, "{scenario:?}");
    assert!(outcome.useful <= outcome.granted);
    outcome
}
