//! Laws that hold for every input, checked against slow and obvious models.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod apps;
mod broker;
mod cluster;
mod codel;
mod digests;
mod fair;
mod hall;
mod keyed;
mod locks;
mod meters;
mod overload;
mod paced;
mod plain;
mod pool;
mod protector;
mod queues;
mod rate_limit;
mod regulator;
mod valves;
mod waiting_room;
mod worth;

use proptest::test_runner::Config;

/// A quarter of these cases, and eight times all of them in a soak. One that fails is
/// printed and not kept in a file.
fn cases(cases: u32) -> Config {
    let cases = match std::env::var_os("RIDEAU_SOAK") {
        Some(_) => cases * 8,
        None => cases / 4,
    };
    Config {
        failure_persistence: None,
        ..Config::with_cases(cases)
    }
}
