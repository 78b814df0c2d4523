//! A pool's numbers, and what they mean in plain words.

use std::fmt::Write;
use std::time::Duration;

use crate::histogram::Histogram;
use crate::ids::Priority;
use crate::ledger::Reply;
use crate::queue::Shedding;
use crate::time::{Brief, Instant, nanos};
use crate::valve;
use crate::waiting::{Account, Tally};

use super::circuit::Circuit;
use super::effect::Retired;
use super::members::Counts;
use super::{Mode, Pool};

/// A snapshot of a pool's numbers.
#[derive(Clone, Debug)]
pub struct Stats {
    /// Counts of the members, by state.
    pub members: Counts,
    /// How many members there may be.
    pub max: usize,
    /// How many wait, by [`Priority`].
    pub waiting: [usize; Priority::ALL.len()],
    /// How long the oldest of them has waited.
    pub oldest_waited: Duration,
    /// Outcomes of takes.
    pub takes: Tally,
    /// How long members were held. Of takes that found an idle member at once
    /// about one in sixteen is measured.
    pub holds: Histogram,
    /// How long starts took that went well.
    pub starts: Histogram,
    /// How many starts failed or took too long.
    pub starts_failed: u64,
    /// How many members were retired, by [`Retired::index`].
    pub retired: [u64; Retired::ALL.len()],
    /// How many members their holders kept for good.
    pub detached: u64,
    /// How starting goes.
    pub circuit: Circuit,
    /// How often all members have been replaced.
    pub generation: u64,
    /// Nothing is handed out until the pool is resumed.
    pub is_suspended: bool,
    /// The pool is closing or closed.
    pub is_closing: bool,
    /// The parts of the valve, if one sets the size.
    pub valve: Vec<valve::Stats>,
}

/// The counters of a pool.
#[derive(Debug, Default)]
pub(super) struct Tallies {
    holds: Histogram,
    /// About how long the last ones were held, in nanoseconds.
    hold: u64,
    starts: Histogram,
    pub(super) starts_failed: u64,
    pub(super) detached: u64,
    retired: [u64; Retired::ALL.len()],
}

impl Tallies {
    #[inline]
    pub(super) fn count_hold(&mut self, held: Duration) {
        self.holds.record(held);
        let held = nanos(held);
        self.hold = match self.hold {
            0 => held,
            hold => hold - hold / 8 + held / 8,
        };
    }

    pub(super) fn count_start(&mut self, took: Duration) {
        self.starts.record(took);
    }

    pub(super) fn count_retired(&mut self, why: Retired) {
        self.retired[why.index()] += 1;
    }
}

impl Stats {
    /// How many wait in all.
    pub fn len(&self) -> usize {
        self.waiting.iter().sum()
    }

    /// No take waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many members were retired for this reason.
    pub fn retired_for(&self, why: Retired) -> u64 {
        self.retired[why.index()]
    }
}

impl<R: Reply> Pool<R> {
    /// How many wait.
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// No take waits.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Counts of the members, by state.
    pub fn counts(&self) -> Counts {
        self.members.counts()
    }

    /// How starting goes.
    pub fn circuit(&self, now: Instant) -> Circuit {
        self.failures.circuit(self.options.backoff, now)
    }

    /// The pool's numbers; `prompt` takers more were served without asking.
    pub fn stats(&self, prompt: u64, now: Instant) -> Stats {
        let oldest = self.lines.oldest();
        let valve = self.valve.as_ref();
        Stats {
            members: self.members.counts(),
            max: self.options.max,
            waiting: self.lines.lens(),
            oldest_waited: oldest.map_or(Duration::ZERO, |sent| now.since(sent)),
            takes: self.lines.tally().and_prompt(prompt),
            holds: self.tallies.holds.clone(),
            starts: self.tallies.starts.clone(),
            starts_failed: self.tallies.starts_failed,
            retired: self.tallies.retired,
            detached: self.tallies.detached,
            circuit: self.circuit(now),
            generation: self.generation,
            is_suspended: self.mode == Mode::Suspended,
            is_closing: matches!(self.mode, Mode::Closing { .. } | Mode::Closed),
            valve: valve.map(valve::Valve::stats).unwrap_or_default(),
        }
    }

    /// When asking again has a chance: when starting is tried again, or when
    /// one member has come back for each take before.
    pub(super) fn retry_after(&self, now: Instant) -> Duration {
        let (Circuit::Failing { retry_after, .. } | Circuit::Open { retry_after, .. }) =
            self.circuit(now)
        else {
            // Takes whose line knows its pace have appointments of their own.
            let line = self.lines.line(Priority::Normal).queue();
            let is_paced = matches!(line.options().shedding, Shedding::Paced { .. });
            if is_paced && line.gap().is_some() {
                return Duration::ZERO;
            }
            let turns = (self.lines.len() as u64 + 1).div_ceil(self.options.max as u64);
            return Duration::from_nanos(self.tallies.hold.saturating_mul(turns));
        };
        retry_after
    }

    /// What the pool is doing, why the last takes got nothing and what would
    /// help, in plain words.
    pub fn explain(&self, prompt: u64, now: Instant) -> String {
        let counts = self.members.counts();
        let mut text = format!(
            "{} of at most {} members: {} held, {} idle, {} starting, {} being checked, {} \
             stopping. {} wait.\n",
            counts.size(),
            self.options.max,
            counts.held,
            counts.idle,
            counts.starting,
            counts.checking,
            counts.stopping,
            self.lines.len()
        );
        text.push_str(match self.mode {
            Mode::Running => "",
            Mode::Suspended => "The pool is suspended: takers wait until it is resumed.\n",
            Mode::Closing { .. } | Mode::Closed => "The pool is closing.\n",
        });
        if let Circuit::Failing {
            failures,
            retry_after,
        }
        | Circuit::Open {
            failures,
            retry_after,
        } = self.circuit(now)
        {
            let _ = writeln!(
                text,
                "Starting members has failed {} in a row; the next start is tried in \
                 {}.",
                if failures == 1 {
                    "once".into()
                } else {
                    format!("{failures} times")
                },
                Brief(retry_after)
            );
        }
        let account = Account {
            served: "served",
            scarce: match self.circuit(now) {
                Circuit::Closed => {
                    "Raise `max` if all members are held, hold them for a shorter time, start some \
                     ahead of need (`init`, `idle_min`), or send fewer takers."
                }
                Circuit::Failing { .. } | Circuit::Open { .. } => {
                    "Find out why starting fails: every refusal carries the last error."
                }
            },
            machine: "pool",
        };
        let tally = self.lines.tally().and_prompt(prompt);
        for priority in Priority::ALL {
            let explained = self.lines.line(priority).explain(&account, &tally);
            if let Some(explained) = explained {
                let _ = write!(text, "{explained}");
            }
        }
        text
    }
}
