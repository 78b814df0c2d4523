//! One cell: servers, holds, arrivals and clients.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rideau_core::queue::{Options, Shedding};

use crate::arrivals::{Arrivals, RateStep};
use crate::clients::{Patience, Retries};
use crate::scenario::{Place, RunEnd, Scenario, Stalls};
use crate::service::Service;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;

/// Servers, and the requests for them.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SuiteCell {
    /// How many are served at a time.
    pub servers: u32,
    /// The mean hold in nanoseconds.
    pub hold: u64,
    /// How the holds spread around it.
    pub holds: Holds,
    /// How many come.
    pub load: Pattern,
    /// What the clients do.
    pub asker: Asker,
    /// Until when they come, and until when serves count.
    pub until: u64,
    /// Where chance comes from.
    pub seed: u64,
}

/// How the holds spread around their mean.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Holds {
    /// Not at all.
    Fixed,
    /// As of a server that forgets.
    Exponential,
    /// With a sigma of one and a half.
    LogNormal,
    /// One in twenty takes twenty times as long.
    Mixed,
}

/// How many come, in parts of what the servers can do.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Pattern {
    /// The same all the time.
    Steady(f64),
    /// Three times as many as can be served for this long, and then few for three times as
    /// long.
    Bursts(u64),
    /// Twice as many for this long, and then none for as long.
    OnOff(u64),
    /// From a tenth to three times.
    Ramp,
    /// Seven in ten; every hundred holds all servers stall for five.
    Stall,
    /// Three times as many for a fifth of the time, then half.
    Recovery,
}

/// What the clients do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asker {
    /// They wait as long as they may.
    Patient,
    /// They say for how long they wait.
    Named(u64),
    /// They leave after this long, and do not say so before.
    Leaves(u64),
    /// When refused, they come again when they were told to.
    Follows,
}

/// Which shedding policy, and what it knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Policy {
    /// The default, which knows capacity and holds.
    Default,
    /// The default where neither is known.
    Blind,
    /// All that waited this long are shed.
    Timeout(Duration),
    /// None is shed.
    Never,
}

impl SuiteCell {
    /// As many come all the time: long enough for a thousand to be served, and for overload to
    /// last.
    pub fn steady(load: f64, servers: u32, hold: u64) -> Self {
        let served = 1500 * hold / u64::from(servers);
        let served = (served as f64 / load.min(1.0)) as u64;
        Self {
            servers,
            hold,
            holds: Holds::Exponential,
            load: Pattern::Steady(load),
            asker: Asker::Patient,
            until: served.max(100 * hold).max(10 * SECOND),
            seed: 1,
        }
    }

    /// A serve is of use to a client that did not name its wait within this time.
    pub fn useful_within(&self) -> u64 {
        (5 * self.hold).max(500 * MS)
    }

    /// The cell as a scenario.
    pub fn scenario(&self, policy: Policy) -> Scenario {
        let shedding = match policy {
            Policy::Timeout(wait_max) => Shedding::Timeout { wait_max },
            Policy::Never => Shedding::Never,
            Policy::Default | Policy::Blind => Shedding::Paced { wait_cap: None },
        };
        let (patience, retries) = match self.asker {
            Asker::Patient => (Patience::Endless, Retries::None),
            Asker::Named(wait) => (Patience::Named(Duration::from_nanos(wait)), Retries::None),
            Asker::Leaves(after) => (
                Patience::HangsUp(Duration::from_nanos(after)),
                Retries::None,
            ),
            Asker::Follows => (Patience::Endless, Retries::AsTold { times: u32::MAX }),
        };
        Scenario {
            place: Place::Queue {
                is_blind: policy == Policy::Blind,
            },
            servers: self.servers,
            queue: Options {
                shedding,
                max: None,
                ..Options::default()
            },
            arrivals: self.arrivals(),
            load: 1.0,
            service: self.service(),
            stalls: (self.load == Pattern::Stall).then(|| Stalls {
                every: Duration::from_nanos(100 * self.hold),
                span: Duration::from_nanos(5 * self.hold),
            }),
            patience,
            retries,
            useful: Some(Duration::from_nanos(self.useful_within())),
            flows: 1,
            is_busy: false,
            end: RunEnd::At(Duration::from_nanos(self.until)),
            from: Duration::ZERO,
            keeps_serves: false,
            seed: self.seed,
        }
    }

    fn arrivals(&self) -> Arrivals {
        let capacity = f64::from(self.servers) / self.hold as f64 * SECOND as f64;
        let step = |nanos, load: f64| RateStep {
            nanos,
            per_s: capacity * load,
        };
        let again = |steps: &[RateStep]| Arrivals::Curve {
            steps: steps.into(),
            repeats: true,
        };
        match self.load {
            Pattern::Steady(load) => Arrivals::Poisson {
                per_s: capacity * load,
            },
            Pattern::Stall => Arrivals::Poisson {
                per_s: capacity * 0.7,
            },
            Pattern::Bursts(on) => again(&[step(on, 3.0), step(3 * on, 0.2)]),
            Pattern::OnOff(on) => again(&[step(on, 2.0), step(on, 0.0)]),
            Pattern::Recovery => again(&[
                step(self.until / 5, 3.0),
                step(self.until - self.until / 5, 0.5),
            ]),
            Pattern::Ramp => {
                const STEPS: u32 = 1000;
                let load = |at: u32| 0.1 + 2.9 * (f64::from(at) + 0.5) / f64::from(STEPS);
                let nanos = self.until / u64::from(STEPS);
                let steps: Arc<[_]> = (0..STEPS).map(|at| step(nanos, load(at))).collect();
                Arrivals::Curve {
                    steps,
                    repeats: false,
                }
            }
        }
    }

    const fn service(&self) -> Service {
        let mean = self.hold;
        match self.holds {
            Holds::Fixed => Service::Fixed { mean },
            Holds::Exponential => Service::Exponential { mean },
            Holds::LogNormal => Service::LogNormal { mean, sigma: 1.5 },
            Holds::Mixed => Service::Mixed {
                mean,
                part: 0.05,
                times: 20.0,
            },
        }
    }

    /// The time-outs to compare with.
    pub(super) fn timeouts(&self, is_thorough: bool) -> Vec<Duration> {
        let useful = self.useful_within();
        let mut timeouts = vec![100 * MS, 200 * MS, useful * 9 / 10, 2 * useful];
        if let Asker::Named(wait) = self.asker {
            timeouts.push(wait / 2);
        }
        if is_thorough {
            let more = [
                50, 450, 900, 2_000, 4_500, 9_000, 13_500, 30_000, 60_000, 135_000,
            ];
            timeouts.extend(more.map(|ms| ms * MS));
        }
        timeouts.into_iter().map(Duration::from_nanos).collect()
    }
}

impl fmt::Display for SuiteCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let span = Duration::from_nanos;
        match self.load {
            Pattern::Steady(load) => write!(f, "load {load}")?,
            Pattern::Bursts(on) => write!(f, "bursts of {:?}", span(on))?,
            Pattern::OnOff(on) => write!(f, "on and off, {:?} each", span(on))?,
            Pattern::Ramp => f.write_str("ramp to 3")?,
            Pattern::Stall => f.write_str("load 0.7 with stalls")?,
            Pattern::Recovery => f.write_str("load 3, then 0.5")?,
        }
        write!(f, ", {} servers, {:?}", self.servers, span(self.hold))?;
        f.write_str(match self.holds {
            Holds::Fixed => " fixed",
            Holds::Exponential => "",
            Holds::LogNormal => " log-normal",
            Holds::Mixed => " mixed",
        })?;
        match self.asker {
            Asker::Patient => Ok(()),
            Asker::Named(wait) => write!(f, ", WAIT {:?}", span(wait)),
            Asker::Leaves(after) => write!(f, ", hang up after {:?}", span(after)),
            Asker::Follows => f.write_str(", come again as told"),
        }
    }
}
