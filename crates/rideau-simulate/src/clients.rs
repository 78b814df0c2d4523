//! What clients do while they wait, and after a refusal.

use std::time::Duration;

/// How long a client waits, and whether it says so.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Patience {
    /// As long as the queue lets it.
    #[default]
    Endless,
    /// It hangs up after this long, which the server sees.
    HangsUp(Duration),
    /// It names its wait when it asks, as `WAIT` does.
    Named(Duration),
    /// It names none, and the server has a limit for such asks, as `server.wait_default`.
    Limit(Duration),
    /// It gives up after this long and does not say so: it is served in vain.
    Silent(Duration),
}

/// What a client does that was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Retries {
    /// It does not come again.
    #[default]
    None,
    /// It comes when it was told to, and up to a tenth later.
    AsTold {
        /// So often at most.
        times: u32,
    },
    /// It comes after this span, or up to half of it earlier or later, whatever it was told.
    After {
        /// So often at most.
        times: u32,
        /// That span.
        span: Duration,
    },
}
