//! Values leased from ranges: what they cost in one process, and over the wire
//! beside the address pools that people build.

mod inside;
mod wire;

use std::env;

use crate::measure::Plan;
use crate::report::Format;

pub(crate) use inside::weigh;

pub(crate) fn run(plan: &Plan, format: Format) {
    // A case over the wire was named.
    if env::var_os("BENCH_CASE").is_none() && env::var_os("BENCH_SUBJECT").is_none() {
        inside::run(plan, format);
    }
    wire::run(plan, format);
}
