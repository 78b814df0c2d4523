//! Whether a peer sends or takes at least this many bytes a second.
//!
//! Only the time counts in which it is waited for: a peer that waits for others loses
//! nothing by that.

use std::time::Duration;

use crate::time::Instant;

/// How many bytes a second, over which time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MinRateOptions {
    /// Bytes a second.
    pub rate: u64,
    /// Time that is looked at as a whole.
    pub window: Duration,
    /// Time before the first window, in which any rate will do.
    pub grace: Duration,
}

/// Watches one peer.
///
/// Invariant: while a window is open, less than its length was waited in it.
#[derive(Clone, Debug)]
pub struct MinRate {
    options: MinRateOptions,
    phase: RatePhase,
    /// It is waited for since then.
    since: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
enum RatePhase {
    /// Any rate will do for so long.
    Grace { left: Duration },
    /// The next wait opens a window.
    Between,
    /// A window is open for so long, and this many bytes passed in it.
    Window { left: Duration, bytes: u64 },
}

impl MinRate {
    /// It is not waited for yet.
    pub fn new(options: MinRateOptions) -> Self {
        let phase = match options.grace.is_zero() {
            true => RatePhase::Between,
            false => RatePhase::Grace {
                left: options.grace,
            },
        };
        Self {
            options,
            phase,
            since: None,
        }
    }

    /// This many bytes passed, and it is not waited for at the moment. What passes before
    /// the first wait counts in no window.
    pub fn passed(&mut self, bytes: u64, now: Instant) {
        // A window that is over by then is judged when it is waited for again.
        self.pause(now);
        if let RatePhase::Window { bytes: all, .. } = &mut self.phase {
            *all = all.saturating_add(bytes);
        }
    }

    /// It is not waited for at the moment.
    pub fn pause(&mut self, now: Instant) {
        if let Some(since) = self.since.take() {
            self.spend(now.since(since));
        }
    }

    /// It is waited for; says when to look again, or that it is too slow.
    pub fn wait(&mut self, now: Instant) -> Result<Instant, TooSlow> {
        self.pause(now);
        self.since = Some(now);
        loop {
            match self.phase {
                RatePhase::Between => {
                    self.phase = RatePhase::Window {
                        left: self.options.window,
                        bytes: 0,
                    };
                }
                RatePhase::Grace { left } if left.is_zero() => self.phase = RatePhase::Between,
                RatePhase::Window { left, bytes } if left.is_zero() => {
                    let wanted = self.options.window.as_secs_f64() * self.options.rate as f64;
                    if (bytes as f64) < wanted {
                        return Err(TooSlow);
                    }
                    self.phase = RatePhase::Between;
                }
                RatePhase::Grace { left } | RatePhase::Window { left, .. } => {
                    return Ok(now + left);
                }
            }
        }
    }

    fn spend(&mut self, waited: Duration) {
        match &mut self.phase {
            RatePhase::Grace { left } | RatePhase::Window { left, .. } => {
                *left = left.saturating_sub(waited);
            }
            RatePhase::Between => (),
        }
    }
}

/// A peer passed fewer bytes than it had to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooSlow;

#[cfg(test)]
mod tests {
    use super::*;

    const UPLOAD: MinRateOptions = MinRateOptions {
        rate: 500,
        window: Duration::from_secs(20),
        grace: Duration::from_secs(20),
    };
    const DOWNLOAD: MinRateOptions = MinRateOptions {
        rate: 500,
        window: Duration::from_secs(60),
        grace: Duration::ZERO,
    };

    fn at(seconds: f64) -> Instant {
        Instant::START + Duration::from_secs_f64(seconds)
    }

    /// When a peer is given up that passes this many bytes each this many seconds, if it ever
    /// is.
    fn given_up(options: MinRateOptions, bytes: u64, each: f64) -> Option<f64> {
        let mut rate = MinRate::new(options);
        let mut next = each;
        let mut now = 0.0;
        while now < 3600.0 {
            let look = match rate.wait(at(now)) {
                Ok(look) => look.since(Instant::START).as_secs_f64(),
                Err(TooSlow) => return Some(now),
            };
            now = look.min(next);
            if next <= look {
                rate.passed(bytes, at(now));
                next += each;
            }
        }
        None
    }

    #[test]
    fn a_client_that_sends_a_byte_in_five_seconds_is_given_up_after_forty() {
        assert_eq!(given_up(UPLOAD, 1, 5.0), Some(40.0));
        assert_eq!(given_up(UPLOAD, 1, 10_000.0), Some(40.0));
    }

    #[test]
    fn a_client_that_is_fast_enough_may_take_as_long_as_it_likes() {
        assert_eq!(given_up(UPLOAD, 500, 1.0), None);
        assert_eq!(given_up(UPLOAD, 5_000, 9.9), None);
        assert_eq!(given_up(DOWNLOAD, 32_768, 59.0), None);
        assert!(given_up(UPLOAD, 490, 1.0).is_some());
    }

    #[test]
    fn a_client_that_takes_nothing_is_given_up_after_a_window() {
        let mut rate = MinRate::new(DOWNLOAD);
        // What the system takes for it at once is no sign of the client.
        rate.passed(4 << 20, at(0.0));
        let look = rate.wait(at(0.5));
        assert_eq!(look, Ok(at(60.5)));
        assert_eq!(rate.wait(at(60.5)), Err(TooSlow));
    }

    #[test]
    fn only_the_time_counts_in_which_it_is_waited_for() {
        let mut rate = MinRate::new(DOWNLOAD);
        assert_eq!(rate.wait(at(0.0)), Ok(at(60.0)));
        rate.pause(at(30.0));
        assert_eq!(rate.wait(at(1_000.0)), Ok(at(1_030.0)));
        rate.passed(29_999, at(1_029.0));
        assert_eq!(rate.wait(at(2_000.0)), Ok(at(2_001.0)));
        assert_eq!(rate.wait(at(2_001.0)), Err(TooSlow));
    }

    #[test]
    fn each_window_is_looked_at_alone() {
        let mut rate = MinRate::new(DOWNLOAD);
        assert!(rate.wait(at(0.0)).is_ok());
        rate.passed(10 << 20, at(59.0));
        assert!(rate.wait(at(59.0)).is_ok());
        assert_eq!(rate.wait(at(60.0)), Ok(at(120.0)), "that was plenty");
        assert_eq!(rate.wait(at(120.0)), Err(TooSlow), "and then nothing");
    }
}
