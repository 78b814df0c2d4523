//! Values leased from ranges: what they cost in one process, and over the wire
//! beside the address pools that people build.
//!
//! `BENCH_CASE=inside` measures the first alone.

mod inside;
mod wire;

use std::env;

use crate::measure::Plan;
use crate::report::Format;

pub(crate) use inside::weigh;

pub(crate) fn run(plan: &Plan, format: Format) {
    let only = env::var("BENCH_CASE").ok();
    let is_inside = only.as_deref() == Some("inside");
    let is_wire = only.is_some() || env::var_os("BENCH_SUBJECT").is_some();
    if is_inside || !is_wire {
        inside::run(plan, format);
    }
    if !is_inside {
        wire::run(plan, format);
    }
}
