//! What our server should reach beside Redis.

use crate::report::OURS;
use crate::talk::Goal;

pub(super) const LOCK: &[Goal] = &[goal("redis-incr", 1.0), goal("redis-lua", 3.0)];
pub(super) const LOCK_PIPELINED: &[Goal] = &[goal("redis-incr", 1.5), goal("redis-lua", 3.0)];
pub(super) const TAKE: &[Goal] = &[goal("redis-blpop", 1.3)];

const fn goal(than: &'static str, times: f64) -> Goal {
    Goal::new(OURS, than, times)
}
