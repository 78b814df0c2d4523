//! One cell of the suite: servers, holds, arrivals and askers.

use rideau_core::Rng;

pub(crate) const MS: u64 = 1_000_000;
pub(crate) const SECOND: u64 = 1000 * MS;

/// Servers, and the asks for them.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    pub(crate) servers: u32,
    /// The mean hold in nanoseconds.
    pub(crate) hold: u64,
    pub(crate) holds: Holds,
    pub(crate) load: Load,
    pub(crate) asker: Asker,
    /// Until when they come, and until when serves count.
    pub(crate) until: u64,
    pub(crate) seed: u64,
}

/// How the holds spread around their mean.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Holds {
    Fixed,
    Exponential,
    /// With a sigma of one and a half.
    LogNormal,
    /// One in twenty takes twenty times as long.
    Mixed,
}

/// How many come, in parts of what the servers can do.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Load {
    Steady(f64),
    /// Three times as many as can be served for so long, and then few for three
    /// times as long.
    Bursts(u64),
    /// Twice as many for so long, and then none for as long.
    OnOff(u64),
    /// From a tenth to three times.
    Ramp,
    /// Seven in ten; every hundred holds all servers stall for five.
    Stall,
    /// Three times as many for a fifth of the time, then half.
    Recovery,
}

/// What the askers do.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Asker {
    /// Wait as long as they may.
    Patient,
    /// Say for how long they wait.
    Told(u64),
    /// Leave after so long, and do not say so before.
    Leaves(u64),
    /// When refused, come again when they were told to.
    Follows,
}

impl Cell {
    /// As many come all the time: long enough for a thousand to be served, and
    /// for overload to last.
    pub(crate) fn steady(load: f64, servers: u32, hold: u64) -> Self {
        let served = 1500 * hold / u64::from(servers);
        let served = (served as f64 / load.min(1.0)) as u64;
        Self {
            servers,
            hold,
            holds: Holds::Exponential,
            load: Load::Steady(load),
            asker: Asker::Patient,
            until: served.max(100 * hold).max(10 * SECOND),
            seed: 1,
        }
    }

    /// A serve is of use to an ask that did not name its wait within this time.
    pub(crate) fn useful_within(&self) -> u64 {
        (5 * self.hold).max(500 * MS)
    }

    /// When each comes.
    pub(crate) fn arrivals(&self) -> Vec<u64> {
        let mut rng = Rng::new(self.seed.wrapping_mul(0x517c_c1b7).wrapping_add(1));
        let capacity = f64::from(self.servers) / self.hold as f64;
        let (mut arrivals, mut at) = (Vec::new(), 0.0);
        let until = self.until as f64;
        while at < until {
            let load = self.load_at(at / until, at);
            let change = self.next_load(at);
            let next = at + exponential(&mut rng) / (capacity * load);
            if next > change {
                at = change;
                continue;
            }
            at = next;
            arrivals.push(at as u64);
        }
        arrivals
    }

    /// A sequence of holds, one for each serve.
    pub(crate) fn hold_times(&self) -> impl FnMut() -> u64 + use<> {
        let mut rng = Rng::new(self.seed.wrapping_mul(0x2545_f491).wrapping_add(7));
        let (mean, holds) = (self.hold as f64, self.holds);
        move || {
            let hold = match holds {
                Holds::Fixed => mean,
                Holds::Exponential => mean * exponential(&mut rng),
                Holds::LogNormal => mean * (1.5 * normal(&mut rng) - 1.125).exp(),
                Holds::Mixed => {
                    let short = mean / (0.95 + 0.05 * 20.0);
                    if unit(&mut rng) < 0.05 {
                        20.0 * short
                    } else {
                        short
                    }
                }
            };
            (hold as u64).max(1)
        }
    }

    /// When a hold ends that begins now.
    pub(crate) fn end_of(&self, now: u64, hold: u64) -> u64 {
        if self.load != Load::Stall {
            return now + hold;
        }
        let (every, stall) = (100 * self.hold, 5 * self.hold);
        let mut end = now + hold;
        let mut at = now / every * every;
        while at < end {
            // What falls into a stall is not worked on.
            if at > 0 && at + stall > now {
                end += at + stall - now.max(at);
            }
            at += every;
        }
        end
    }

    fn load_at(&self, part: f64, at: f64) -> f64 {
        match self.load {
            Load::Steady(load) => load,
            Load::Bursts(on) => {
                if at % (4.0 * on as f64) < on as f64 {
                    3.0
                } else {
                    0.2
                }
            }
            Load::OnOff(on) => {
                if at % (2.0 * on as f64) < on as f64 {
                    2.0
                } else {
                    0.0
                }
            }
            Load::Ramp => 0.1 + 2.9 * part,
            Load::Stall => 0.7,
            Load::Recovery => {
                if part < 0.2 {
                    3.0
                } else {
                    0.5
                }
            }
        }
    }

    /// When the load changes next, if it does by steps.
    fn next_load(&self, at: f64) -> f64 {
        let step = match self.load {
            Load::Bursts(on) | Load::OnOff(on) => on as f64,
            _ => return f64::INFINITY,
        };
        // A hair further, so that no step is met twice.
        ((at / step).floor() + 1.0) * step + 1.0
    }
}

fn unit(rng: &mut Rng) -> f64 {
    (rng.draw() >> 11) as f64 / (1_u64 << 53) as f64
}

fn exponential(rng: &mut Rng) -> f64 {
    -(1.0 - unit(rng)).ln()
}

fn normal(rng: &mut Rng) -> f64 {
    let radius = (2.0 * exponential(rng)).sqrt();
    radius * (std::f64::consts::TAU * unit(rng)).cos()
}
