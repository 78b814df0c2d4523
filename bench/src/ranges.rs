//! Values leased from ranges, beside the address pools that people build.

mod wire;

use crate::measure::Plan;
use crate::report::Format;

pub(crate) fn run(plan: &Plan, format: Format) {
    wire::run(plan, format);
}
