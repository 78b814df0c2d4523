//! What our server should reach beside the address pools of others.

use super::{ALWAYS, MEMORY, REDIS};
use crate::report::OURS;
use crate::talk::Goal;

pub(super) const MANY: &[Goal] = &[
    Goal::new(OURS, ALWAYS, 3.0),
    Goal::new(OURS, REDIS, 1.5),
    Goal::new(MEMORY, REDIS, 2.0),
];

pub(super) const PIPELINED: &[Goal] = &[
    Goal::new(OURS, ALWAYS, 6.0),
    Goal::new(OURS, REDIS, 4.0),
    Goal::new(MEMORY, REDIS, 5.0),
];
