//! What became of the requests of a run.

use std::time::Duration;

use rideau_core::Reason;

use crate::waits::Waits;

/// What became of the requests of a run. Each that came was granted, shed, has left, or waits.
#[derive(Clone, Debug)]
pub struct RunOutcome {
    /// How many came.
    pub requests: u64,
    /// How often they asked: more than once, if refused clients come again.
    pub asks: u64,
    /// How many were served.
    pub granted: u64,
    /// How many were served in time to be of use.
    pub useful: u64,
    /// How many were refused for good, by the reason they were told last; see
    /// [`Reason::index`].
    pub shed: [u64; Reason::ALL.len()],
    /// How often any was refused, by reason.
    pub refusals: [u64; Reason::ALL.len()],
    /// How many hung up before they were served.
    pub left: u64,
    /// How many waited or meant to come again when the run ended.
    pub waiting: u64,
    /// The most that waited at one time.
    pub waiting_max: usize,
    /// How long those waited that were served, from when they asked first.
    pub waits: Waits,
    /// When the run ended.
    pub span: Duration,
    /// The part of the time of the servers in which they served.
    pub utilisation: f64,
    /// The fewest that waited when the shedding policy shed one of them, where a queue is
    /// simulated alone.
    pub shed_at_least: Option<usize>,
    /// How many were shed by the policy after they had been let wait, although they had named
    /// their wait.
    pub promises_broken: u64,
    /// When each was served and how long it had waited, in nanoseconds, if that was wanted.
    pub serves: Vec<(u64, u64)>,
}

impl Default for RunOutcome {
    fn default() -> Self {
        Self {
            requests: 0,
            asks: 0,
            granted: 0,
            useful: 0,
            shed: [0; Reason::ALL.len()],
            refusals: [0; Reason::ALL.len()],
            left: 0,
            waiting: 0,
            waiting_max: 0,
            waits: Waits::default(),
            span: Duration::ZERO,
            utilisation: 0.0,
            shed_at_least: None,
            promises_broken: 0,
            serves: Vec::new(),
        }
    }
}

impl RunOutcome {
    /// How many were refused for good.
    pub fn shed_total(&self) -> u64 {
        self.shed.iter().sum()
    }

    /// How many were refused for good for this reason.
    pub fn shed_for(&self, reason: Reason) -> u64 {
        self.shed[reason.index()]
    }

    /// The reasons for which any was refused for good, with how many.
    pub fn reasons(&self) -> impl Iterator<Item = (Reason, u64)> + '_ {
        let all = Reason::ALL.into_iter().zip(self.shed);
        all.filter(|(_, count)| *count > 0)
    }

    /// Useful serves in a second.
    pub fn goodput_per_s(&self) -> f64 {
        let span = self.span.as_secs_f64();
        if span > 0.0 {
            self.useful as f64 / span
        } else {
            0.0
        }
    }

    /// The part of the requests that got nothing: shed, or gone while they waited.
    pub fn lost(&self) -> f64 {
        (self.shed_total() + self.left) as f64 / self.requests.max(1) as f64
    }
}
