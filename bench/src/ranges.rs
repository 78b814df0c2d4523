//! Values leased from ranges: what they cost in one process.

mod inside;

use crate::measure::Plan;
use crate::report::Format;

pub(crate) use inside::weigh;

pub(crate) fn run(plan: &Plan, format: Format) {
    inside::run(plan, format);
}
