//! Checks for laws, valves and meters of your own, to call from your tests.
//!
//! Each function drives the very machine that ships with the given options
//! through random schedules, and panics with the number of the schedule and
//! the rule if one is broken. The laws that come with the library pass them.
//! A schedule follows from its number, so that a failure can be repeated.
//!
//! ```
//! use rideau_core::queue::{CustomLaw, Shedding};
//! use rideau_core::{Instant, kit};
//!
//! /// Sheds asks that waited for a second.
//! #[derive(Debug)]
//! struct Second;
//!
//! const SECOND: u64 = 1_000_000_000;
//!
//! impl CustomLaw for Second {
//!     fn sheds_at_serve(&mut self, oldest: Instant, now: Instant) -> bool {
//!         self.sheds(oldest, now)
//!     }
//!
//!     fn sheds(&mut self, oldest: Instant, now: Instant) -> bool {
//!         oldest.after(SECOND) <= now
//!     }
//!
//!     fn due(&self, oldest: Instant) -> Option<Instant> {
//!         Some(oldest.after(SECOND))
//!     }
//! }
//!
//! kit::check_shedding(&Shedding::custom("second", |_| Second), 0..100);
//! ```

mod meters;
mod queues;
mod valves;

pub use meters::check_meter;
pub use queues::check_shedding;
pub use valves::check_valve;

use crate::rng::Rng;

/// A span of time: often none, mostly short, sometimes long.
fn span(rng: &mut Rng) -> u64 {
    const MS: u64 = 1_000_000;
    match rng.below(8) {
        0 | 1 => 0,
        2..=5 => rng.below(20 * MS),
        6 => rng.below(1000 * MS),
        _ => rng.below(60_000 * MS),
    }
}
