//! The server that is replaced: it serves until the newer one does.

use std::time::Duration;

use crate::machine::Machine;
use crate::time::Instant;

use super::{UPGRADE_PROTOCOL, UpgradeFault};

/// The older of two servers.
///
/// Invariant: what only one of them can have open is closed here from
/// [`Close`](OldSideEffect::Close) on until [`Open`](OldSideEffect::Open), and `Open` comes
/// only when the newer one is gone, or cannot be ended.
#[derive(Debug)]
pub struct OldSide {
    stage: Stage,
    limits: OldSideLimits,
}

/// How long each step of the newer server may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OldSideLimits {
    /// To check the config.
    pub check: Duration,
    /// To say that it is there.
    pub hello: Duration,
    /// To have its applications ready.
    pub ready: Duration,
    /// The older one has so long to close what both cannot have open.
    pub close: Duration,
    /// To serve, when it may.
    pub serving: Duration,
    /// To be gone when it was killed.
    pub gone: Duration,
}

impl Default for OldSideLimits {
    fn default() -> Self {
        Self {
            check: Duration::from_secs(30),
            hello: Duration::from_secs(30),
            ready: Duration::from_secs(120),
            close: Duration::from_secs(10),
            serving: Duration::from_secs(60),
            gone: Duration::from_secs(5),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Idle,
    Checking {
        until: Instant,
    },
    /// It was started.
    Greeting {
        until: Instant,
    },
    /// It has the listeners, and starts its applications.
    Warming {
        until: Instant,
    },
    /// It waits; what both cannot have open is being closed here.
    Closing {
        until: Instant,
    },
    /// It was told that it may.
    Trusting {
        until: Instant,
    },
    /// It was killed.
    Ending {
        fault: UpgradeFault,
        is_closed: bool,
        until: Instant,
    },
    /// It serves, and this one finishes.
    Over,
}

/// What an upgrade is waiting for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UpgradeStep {
    /// The newer program checks the config.
    Checking,
    /// The newer server starts.
    Starting,
    /// Its applications start.
    Warming,
    /// The store is closed.
    Closing,
    /// The newer server opens the store, and serves.
    Opening,
    /// The newer server failed, and is being ended.
    Ending,
    /// The newer server serves, and this one finishes what it began.
    Finishing,
}

impl UpgradeStep {
    /// One lower-case word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Checking => "checking",
            Self::Starting => "starting",
            Self::Warming => "warming",
            Self::Closing => "closing",
            Self::Opening => "opening",
            Self::Ending => "ending",
            Self::Finishing => "finishing",
        }
    }
}

/// What the driver of the older server has to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OldSideEffect {
    /// Have the newer program check the config.
    Check,
    /// Start it.
    Start,
    /// Send it the listeners, and what it has to know.
    Offer,
    /// Close what both cannot have open.
    Close,
    /// Tell it that it may serve.
    Yours,
    /// End it.
    Kill,
    /// Open again what was closed.
    Open,
    /// Tell operators that nothing came of it.
    Fail(UpgradeFault),
    /// Let no new client in, finish what was begun, and end.
    Leave,
}

/// An upgrade is under way already.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UpgradeRunning;

type Effects = Vec<OldSideEffect>;

impl OldSide {
    /// A server that serves.
    pub const fn new(limits: OldSideLimits) -> Self {
        Self {
            stage: Stage::Idle,
            limits,
        }
    }

    /// An operator asks for an upgrade.
    ///
    /// # Errors
    ///
    /// If one is under way.
    pub fn ask(&mut self, now: Instant, effects: &mut Effects) -> Result<(), UpgradeRunning> {
        self.advance(now, effects);
        if self.stage != Stage::Idle {
            return Err(UpgradeRunning);
        }
        effects.push(OldSideEffect::Check);
        self.stage = Stage::Checking {
            until: now + self.limits.check,
        };
        Ok(())
    }

    /// The newer program has checked the config.
    pub fn checked(&mut self, is_good: bool, now: Instant, effects: &mut Effects) {
        self.advance(now, effects);
        if !matches!(self.stage, Stage::Checking { .. }) {
            return;
        }
        if !is_good {
            self.stage = Stage::Idle;
            return effects.push(OldSideEffect::Fail(UpgradeFault::CheckFailed));
        }
        effects.push(OldSideEffect::Start);
        self.stage = Stage::Greeting {
            until: now + self.limits.hello,
        };
    }

    /// It could not be started.
    pub fn not_started(&mut self, now: Instant, effects: &mut Effects) {
        self.advance(now, effects);
        if matches!(self.stage, Stage::Greeting { .. }) {
            self.stage = Stage::Idle;
            effects.push(OldSideEffect::Fail(UpgradeFault::NotStarted));
        }
    }

    /// The newer server is there, and speaks this protocol.
    pub fn hello(&mut self, protocol: u32, now: Instant, effects: &mut Effects) {
        self.advance(now, effects);
        if !matches!(self.stage, Stage::Greeting { .. }) {
            return;
        }
        if protocol != UPGRADE_PROTOCOL {
            return self.end(UpgradeFault::OtherProtocol, now, effects);
        }
        effects.push(OldSideEffect::Offer);
        self.stage = Stage::Warming {
            until: now + self.limits.ready,
        };
    }

    /// Its applications are ready.
    pub fn ready(&mut self, now: Instant, effects: &mut Effects) {
        self.advance(now, effects);
        if matches!(self.stage, Stage::Warming { .. }) {
            effects.push(OldSideEffect::Close);
            self.stage = Stage::Closing {
                until: now + self.limits.close,
            };
        }
    }

    /// What both cannot have open is closed here.
    pub fn closed(&mut self, now: Instant, effects: &mut Effects) {
        match &mut self.stage {
            Stage::Closing { .. } => {
                effects.push(OldSideEffect::Yours);
                self.stage = Stage::Trusting {
                    until: now + self.limits.serving,
                };
            }
            // It came late: it has to be opened again when the newer one is gone.
            Stage::Ending { is_closed, .. } => *is_closed = true,
            _ => (),
        }
        self.advance(now, effects);
    }

    /// The newer server serves.
    pub fn serving(&mut self, now: Instant, effects: &mut Effects) {
        if matches!(self.stage, Stage::Trusting { .. }) {
            self.stage = Stage::Over;
            effects.push(OldSideEffect::Leave);
        }
        self.advance(now, effects);
    }

    /// The newer server gives up, and says why.
    pub fn abort(&mut self, fault: UpgradeFault, now: Instant, effects: &mut Effects) {
        self.advance(now, effects);
        if self.has_newer() {
            self.end(fault, now, effects);
        }
    }

    /// The newer server's process has ended.
    pub fn gone(&mut self, now: Instant, effects: &mut Effects) {
        let (fault, is_closed) = match self.stage {
            Stage::Idle | Stage::Checking { .. } | Stage::Over => return,
            Stage::Greeting { .. } | Stage::Warming { .. } => (UpgradeFault::Ended, false),
            Stage::Closing { .. } | Stage::Trusting { .. } => (UpgradeFault::Ended, true),
            Stage::Ending {
                fault, is_closed, ..
            } => (fault, is_closed),
        };
        self.give_up(fault, is_closed, effects);
        self.advance(now, effects);
    }

    /// The older server was told to stop: it does so without a successor.
    pub fn stop(&mut self, now: Instant, effects: &mut Effects) {
        self.advance(now, effects);
        match self.stage {
            Stage::Checking { .. } => {
                self.stage = Stage::Idle;
                effects.push(OldSideEffect::Fail(UpgradeFault::Stopped));
            }
            _ if self.has_newer() => {
                self.stage = Stage::Idle;
                effects.push(OldSideEffect::Kill);
                effects.push(OldSideEffect::Fail(UpgradeFault::Stopped));
            }
            _ => (),
        }
    }

    /// What it waits for, if an upgrade is under way.
    pub const fn step(&self) -> Option<UpgradeStep> {
        Some(match self.stage {
            Stage::Idle => return None,
            Stage::Checking { .. } => UpgradeStep::Checking,
            Stage::Greeting { .. } => UpgradeStep::Starting,
            Stage::Warming { .. } => UpgradeStep::Warming,
            Stage::Closing { .. } => UpgradeStep::Closing,
            Stage::Trusting { .. } => UpgradeStep::Opening,
            Stage::Ending { .. } => UpgradeStep::Ending,
            Stage::Over => UpgradeStep::Finishing,
        })
    }

    const fn has_newer(&self) -> bool {
        matches!(
            self.stage,
            Stage::Greeting { .. }
                | Stage::Warming { .. }
                | Stage::Closing { .. }
                | Stage::Trusting { .. }
        )
    }

    /// End the newer server; when it is gone, this one goes on.
    fn end(&mut self, fault: UpgradeFault, now: Instant, effects: &mut Effects) {
        let is_closed = matches!(self.stage, Stage::Closing { .. } | Stage::Trusting { .. });
        effects.push(OldSideEffect::Kill);
        self.stage = Stage::Ending {
            fault,
            is_closed,
            until: now + self.limits.gone,
        };
    }

    fn give_up(&mut self, fault: UpgradeFault, is_closed: bool, effects: &mut Effects) {
        self.stage = Stage::Idle;
        if is_closed {
            effects.push(OldSideEffect::Open);
        }
        effects.push(OldSideEffect::Fail(fault));
    }
}

impl Machine for OldSide {
    type Effect = OldSideEffect;

    fn deadline(&self) -> Option<Instant> {
        match self.stage {
            Stage::Idle | Stage::Over => None,
            Stage::Checking { until }
            | Stage::Greeting { until }
            | Stage::Warming { until }
            | Stage::Closing { until }
            | Stage::Trusting { until }
            | Stage::Ending { until, .. } => Some(until),
        }
    }

    fn advance(&mut self, now: Instant, effects: &mut Effects) {
        if self.deadline().is_none_or(|until| now < until) {
            return;
        }
        match self.stage {
            Stage::Checking { .. } => {
                self.stage = Stage::Idle;
                effects.push(OldSideEffect::Fail(UpgradeFault::CheckLate));
            }
            Stage::Greeting { .. } => self.end(UpgradeFault::Silent, now, effects),
            Stage::Warming { .. } => self.end(UpgradeFault::NotReady, now, effects),
            Stage::Closing { .. } => self.end(UpgradeFault::NotClosed, now, effects),
            Stage::Trusting { .. } => self.end(UpgradeFault::NotServing, now, effects),
            Stage::Ending {
                fault, is_closed, ..
            } => self.give_up(fault, is_closed, effects),
            Stage::Idle | Stage::Over => (),
        }
    }
}
