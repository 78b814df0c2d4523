//! The suite by which the default shedding policy is judged: cells of servers, holds, arrivals
//! and clients, each under the default and under time-outs.
//!
//! All policies of a cell get the same arrivals and the same holds. A serve is useful within the
//! wait that the client named, or else within five holds or half a second. The ratio of a cell
//! is that of the useful serves to those of the time-out that turns out best; the regret is what
//! is missing from one.

mod cell;
mod families;

pub use cell::{Asker, Holds, Pattern, Policy, SuiteCell};
pub use families::{Family, families, patterns, places};

use rideau_core::OptionError;

use crate::outcome::RunOutcome;
use crate::run::simulate;

/// One cell under a policy, beside the best time-out.
#[derive(Clone, Debug)]
pub struct Judged {
    /// Which time-out was best in hindsight.
    pub best: Policy,
    /// The useful serves of it.
    pub best_useful: u64,
    /// What became of the requests under the policy.
    pub outcome: RunOutcome,
}

impl Judged {
    /// Useful serves in parts of those of the best time-out.
    pub fn ratio(&self) -> f64 {
        self.outcome.useful as f64 / self.best_useful.max(1) as f64
    }

    /// What is missing from the best; less than nothing if the policy was better.
    pub fn regret(&self) -> f64 {
        1.0 - self.ratio()
    }
}

/// Run a cell under a policy and under time-outs, of which a thorough judge tries more.
///
/// # Errors
///
/// Never for the cells of this suite: their options hold.
pub fn judge(cell: &SuiteCell, policy: Policy, is_thorough: bool) -> Result<Judged, OptionError> {
    let (mut best, mut best_useful) = (Policy::Never, 0);
    let timeouts = cell.timeouts(is_thorough).into_iter().map(Policy::Timeout);
    for timeout in timeouts.chain([Policy::Never]) {
        let useful = run(cell, timeout)?.useful;
        if useful > best_useful {
            (best, best_useful) = (timeout, useful);
        }
    }
    Ok(Judged {
        best,
        best_useful,
        outcome: run(cell, policy)?,
    })
}

/// Run a cell under a policy.
///
/// # Errors
///
/// Never for the cells of this suite: their options hold.
pub fn run(cell: &SuiteCell, policy: Policy) -> Result<RunOutcome, OptionError> {
    simulate(&cell.scenario(policy), &mut |_| ())
}
