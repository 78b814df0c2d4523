//! Mean waits of a simulated pool, beside those that queueing theory has in closed form.

use std::time::Duration;

use rideau_core::queue::{Options, Shedding};
use rideau_simulate::{Arrivals, Patience, Place, Retries, RunEnd, Scenario, Service, simulate};

const REQUESTS: u64 = 2_000_000;
const REQUESTS_OF_SOAK: u64 = 10_000_000;

#[test]
fn mean_waits_are_within_two_percent_of_theory() {
    let soak = std::env::var_os("RIDEAU_SOAK").is_some();
    let requests = if soak { REQUESTS_OF_SOAK } else { REQUESTS };
    let mut cells = vec![(1, 0.5), (2, 0.7), (8, 0.6)];
    if soak {
        cells.extend([(1, 0.8), (8, 0.875), (50, 0.9)]);
    }
    for (servers, load) in cells {
        let found = mean_wait(servers, load, requests);
        let wanted = erlang_wait(servers, load);
        let off = found / wanted - 1.0;
        println!("{servers} at {load}: {found:.4}, theory {wanted:.4}, off by {off:+.4}");
        assert!(
            off.abs() < 0.02,
            "{servers} servers at {load}: {found}, {wanted}"
        );
    }
}

/// In parts of the mean time of a request.
fn mean_wait(servers: u32, load: f64, requests: u64) -> f64 {
    let mean = 10_000_000;
    let scenario = Scenario {
        place: Place::Pool {
            start: Duration::ZERO,
        },
        servers,
        queue: Options {
            shedding: Shedding::Never,
            max: None,
            ..Options::default()
        },
        arrivals: Arrivals::Poisson {
            per_s: 100.0 * f64::from(servers),
        },
        load,
        service: Service::Exponential { mean },
        stalls: None,
        patience: Patience::Endless,
        retries: Retries::None,
        useful: None,
        flows: 1,
        is_busy: false,
        end: RunEnd::Requests(requests),
        from: Duration::ZERO,
        keeps_serves: false,
        seed: 1,
    };
    let outcome = simulate(&scenario, &mut |_| ()).unwrap();
    assert_eq!(outcome.granted, requests);
    outcome.waits.mean().as_nanos() as f64 / mean as f64
}

/// By Erlang's formula, in parts of the mean time of a request.
fn erlang_wait(servers: u32, load: f64) -> f64 {
    let offered = load * f64::from(servers);
    let lost = (1..=servers).fold(1.0, |lost, n| {
        offered * lost / (f64::from(n) + offered * lost)
    });
    let waits = lost / (1.0 - load * (1.0 - lost));
    waits / (f64::from(servers) * (1.0 - load))
}
