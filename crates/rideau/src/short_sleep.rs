//! Sleeps of a thread that are about as short as asked for.
//!
//! The system puts wakes off to do several at once, by default for up to fifty
//! microseconds: a hundred decisions of a machine.

use std::thread;
use std::time::Duration;

/// Sleep for so long, and some microseconds that falling asleep takes.
#[cfg(target_os = "linux")]
pub(crate) fn short_sleep(span: Duration) {
    use std::num::NonZero;

    use rustix::thread::{current_timer_slack, set_current_timer_slack};

    let before = current_timer_slack().ok().and_then(NonZero::new);
    // Where it cannot be set, the short_sleep is longer: nothing is lost but time.
    let _ = set_current_timer_slack(NonZero::new(1));
    thread::sleep(span);
    let _ = set_current_timer_slack(before);
}

/// Sleep for so long, and as much longer as the system likes.
#[cfg(not(target_os = "linux"))]
pub(crate) fn short_sleep(span: Duration) {
    thread::sleep(span);
}
