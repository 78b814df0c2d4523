//! The interface of all machines, so that one driver can run them.

use crate::time::Instant;

/// A decision machine: inputs with `now` come in, effects go out.
pub trait Machine {
    /// Something the machine wants done.
    type Effect;

    /// When the machine has to be advanced next.
    fn deadline(&self) -> Option<Instant>;

    /// Do what is due by `now`.
    fn advance(&mut self, now: Instant, effects: &mut Vec<Self::Effect>);

    /// How many wait, as far as it says something of how long one waits here.
    fn waiting(&self) -> usize {
        0
    }
}
