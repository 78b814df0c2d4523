//! Mean waits, beside those that queueing theory has in closed form.

use rideau_simulate::{Arrivals, RunEnd, Scenario, Service};

use crate::{MS, run, scenario};

/// The mean wait of a queue with exponential gaps and times, by Erlang's formula, in parts of
/// the mean time.
fn erlang_wait(servers: u32, load: f64) -> f64 {
    let offered = load * f64::from(servers);
    // The share of lost calls, by recursion over servers.
    let lost = (1..=servers).fold(1.0, |lost, n| {
        offered * lost / (f64::from(n) + offered * lost)
    });
    let waits = lost / (1.0 - load * (1.0 - lost));
    waits / (f64::from(servers) * (1.0 - load))
}

fn mean_wait(servers: u32, load: f64, service: Service, requests: u64) -> f64 {
    let capacity = f64::from(servers) * 100.0;
    let outcome = run(&Scenario {
        servers,
        arrivals: Arrivals::Poisson { per_s: capacity },
        load,
        service,
        end: RunEnd::Requests(requests),
        ..scenario("kind=never max=none")
    });
    assert_eq!(outcome.granted, requests);
    assert!((outcome.utilisation / load - 1.0).abs() < 0.03);
    outcome.waits.mean().as_secs_f64() / 0.01
}

#[test]
fn mean_waits_are_those_of_theory() {
    // Few, and at loads where waits do not depend on each other for long: many are simulated
    // where it is fast.
    for (servers, load) in [(1, 0.5), (2, 0.6), (8, 0.7)] {
        let service = Service::Exponential { mean: 10 * MS };
        let found = mean_wait(servers, load, service, 150_000);
        let wanted = erlang_wait(servers, load);
        assert!(
            (found / wanted - 1.0).abs() < 0.08,
            "{servers} at {load}: {found} {wanted}"
        );
    }
}

/// By Pollaczek and Khinchine: with fixed times waits are half as long.
#[test]
fn fixed_times_halve_the_wait() {
    let found = mean_wait(1, 0.5, Service::Fixed { mean: 10 * MS }, 150_000);
    assert!((found / 0.5 - 1.0).abs() < 0.08, "{found}");
}

#[test]
fn the_formula_is_right() {
    assert!((erlang_wait(1, 0.5) - 1.0).abs() < 1e-9);
    assert!((erlang_wait(1, 0.9) - 9.0).abs() < 1e-9);
    // Two servers: load squared, over one less that.
    assert!((erlang_wait(2, 0.6) - 0.36 / 0.64).abs() < 1e-9);
}
