//! The server that takes over: it serves when the older one lets it, or is gone.

use std::time::Duration;

use crate::machine::Machine;
use crate::time::Instant;

use super::UpgradeFault;

/// The newer of two servers.
///
/// Invariant: it accepts no client while the older one may.
#[derive(Debug)]
pub struct NewSide {
    stage: Stage,
    limits: NewSideLimits,
}

/// How long it waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewSideLimits {
    /// For the listeners.
    pub offer: Duration,
    /// For its applications, and then for the word that it may serve.
    pub ready: Duration,
    /// For the older one, beyond the time that it needs to finish.
    pub finish: Duration,
}

impl Default for NewSideLimits {
    fn default() -> Self {
        Self {
            offer: Duration::from_secs(30),
            // The older one has the same limit, and says so if it is there.
            ready: Duration::from_secs(150),
            finish: Duration::from_secs(10),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// It has said that it is there.
    Greeting { until: Instant },
    /// It has the listeners, and starts its applications.
    Warming { until: Instant },
    /// They are ready.
    Waiting { until: Instant },
    /// It lets clients in, and opens what the older one has closed.
    Opening { has_older: bool },
    /// It serves; the older one has to be gone by then.
    Serving { until: Option<Instant> },
    /// It ends.
    Over,
}

/// How far applications are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Warmth {
    /// Some have yet to be ready.
    Cold,
    /// Each is ready, or fails at the older server as well.
    Ready,
    /// One fails, and not at the older server.
    Fails,
}

/// What the driver of the newer server has to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NewSideEffect {
    /// Start the applications.
    Warm,
    /// Say that they are ready.
    Ready,
    /// Let clients in, and open what the older one has closed.
    Open,
    /// Say that it serves.
    Serving,
    /// End the older server: it hangs.
    KillOlder,
    /// Say why, if the older one is there, and end.
    Quit(UpgradeFault),
}

type Effects = Vec<NewSideEffect>;

impl NewSide {
    /// One that has said that it is there.
    pub fn new(limits: NewSideLimits, now: Instant) -> Self {
        let until = now + limits.offer;
        Self {
            stage: Stage::Greeting { until },
            limits,
        }
    }

    /// The listeners came.
    pub fn offered(&mut self, now: Instant, effects: &mut Effects) {
        self.advance(now, effects);
        if matches!(self.stage, Stage::Greeting { .. }) {
            effects.push(NewSideEffect::Warm);
            let until = now + self.limits.ready;
            self.stage = Stage::Warming { until };
        }
    }

    /// This is how far the applications are.
    pub fn warmed(&mut self, warmth: Warmth, now: Instant, effects: &mut Effects) {
        self.advance(now, effects);
        match (self.stage, warmth) {
            (Stage::Warming { .. }, Warmth::Ready) => {
                effects.push(NewSideEffect::Ready);
                let until = now + self.limits.ready;
                self.stage = Stage::Waiting { until };
            }
            (Stage::Warming { .. }, Warmth::Fails) => self.quit(UpgradeFault::AppFails, effects),
            _ => (),
        }
    }

    /// The older server says that this one may serve.
    pub fn yours(&mut self, now: Instant, effects: &mut Effects) {
        self.advance(now, effects);
        if matches!(self.stage, Stage::Waiting { .. }) {
            effects.push(NewSideEffect::Open);
            self.stage = Stage::Opening { has_older: true };
        }
    }

    /// The older server is gone: its last word may not have come. There is no other server,
    /// so this one serves, ready or not.
    pub fn older_gone(&mut self, now: Instant, effects: &mut Effects) {
        match &mut self.stage {
            Stage::Greeting { .. } | Stage::Warming { .. } | Stage::Waiting { .. } => {
                effects.push(NewSideEffect::Open);
                self.stage = Stage::Opening { has_older: false };
            }
            Stage::Opening { has_older } => *has_older = false,
            Stage::Serving { until } => *until = None,
            Stage::Over => (),
        }
        self.advance(now, effects);
    }

    /// What the older one had closed is open here, and clients are served. The older one
    /// needs so long to finish.
    pub fn opened(&mut self, finishes: Duration, now: Instant, effects: &mut Effects) {
        let Stage::Opening { has_older } = self.stage else {
            return;
        };
        let until = has_older.then(|| now + (finishes + self.limits.finish));
        if has_older {
            effects.push(NewSideEffect::Serving);
        }
        self.stage = Stage::Serving { until };
    }

    /// It could not be opened.
    pub fn not_opened(&mut self, effects: &mut Effects) {
        if matches!(self.stage, Stage::Opening { .. }) {
            self.quit(UpgradeFault::NotOpened, effects);
        }
    }

    /// Whether the older server is gone, or need not be looked after any more.
    pub const fn is_alone(&self) -> bool {
        matches!(self.stage, Stage::Serving { until: None })
    }

    fn quit(&mut self, fault: UpgradeFault, effects: &mut Effects) {
        self.stage = Stage::Over;
        effects.push(NewSideEffect::Quit(fault));
    }
}

impl Machine for NewSide {
    type Effect = NewSideEffect;

    fn deadline(&self) -> Option<Instant> {
        match self.stage {
            Stage::Greeting { until } | Stage::Warming { until } | Stage::Waiting { until } => {
                Some(until)
            }
            Stage::Serving { until } => until,
            Stage::Opening { .. } | Stage::Over => None,
        }
    }

    fn advance(&mut self, now: Instant, effects: &mut Effects) {
        if self.deadline().is_none_or(|until| now < until) {
            return;
        }
        match self.stage {
            Stage::Greeting { .. } | Stage::Waiting { .. } => {
                self.quit(UpgradeFault::Silent, effects);
            }
            Stage::Warming { .. } => self.quit(UpgradeFault::NotReady, effects),
            Stage::Serving { .. } => {
                self.stage = Stage::Serving { until: None };
                effects.push(NewSideEffect::KillOlder);
            }
            Stage::Opening { .. } | Stage::Over => (),
        }
    }
}
