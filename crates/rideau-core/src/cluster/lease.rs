//! The lease of a node's key, and until when the node may rely on it.
//!
//! etcd counts from when it got a keepalive, the node from when it sent it, and the node
//! takes a fifth less. So the node stops before etcd deletes its key, while the rates of
//! their clocks differ by less than a fifth.

use std::time::Duration;

use crate::time::{Instant, nanos};

use super::options::Options;
use super::planted::planted;

/// A lease that was granted.
#[derive(Clone, Debug)]
pub(super) struct NodeLease {
    pub(super) id: u64,
    ttl: Duration,
    /// Answers of other streams do not count.
    stream: u64,
    /// When the keepalive was sent that has no answer yet.
    asked: Option<Instant>,
    /// When the next keepalive is sent.
    next: Instant,
    valid_until: Instant,
}

/// The result of a keepalive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum KeepAnswer {
    /// It answers nothing that was asked.
    Stale,
    /// The lease lives.
    Live,
    /// The lease is gone.
    Gone,
}

impl NodeLease {
    /// A lease that was asked for at this moment.
    pub(super) fn new(id: u64, stream: u64, asked: Instant, options: &Options) -> Self {
        let ttl = options.lease;
        Self {
            id,
            ttl,
            stream,
            asked: None,
            next: asked + ttl / 5,
            valid_until: valid_until(asked, ttl),
        }
    }

    /// From this instant on the node may not rely on it.
    pub(super) const fn valid_until(&self) -> Instant {
        self.valid_until
    }

    pub(super) const fn stream(&self) -> u64 {
        self.stream
    }

    /// When something is to be sent or given up.
    pub(super) fn deadline(&self) -> Instant {
        match self.asked {
            Some(asked) => asked + self.ttl / 5,
            None => self.next,
        }
    }

    /// Give up a keepalive that has had its time. Its stream may still bring an answer,
    /// which must not count for the next keepalive.
    pub(super) fn time_out(&mut self, now: Instant, options: &Options) -> bool {
        let due = self.asked.is_some_and(|asked| asked + self.ttl / 5 <= now);
        if due {
            self.asked = None;
            if !planted!(options, StreamKept) {
                self.stream += 1;
            }
        }
        due
    }

    /// Whether a keepalive is to be sent now.
    pub(super) fn asks(&mut self, now: Instant) -> bool {
        let due = self.asked.is_none() && self.next <= now;
        if due {
            self.asked = Some(now);
            self.next = now + self.ttl / 5;
        }
        due
    }

    /// A keepalive was answered.
    pub(super) fn kept(
        &mut self,
        stream: u64,
        ttl: Duration,
        now: Instant,
        options: &Options,
    ) -> KeepAnswer {
        if stream != self.stream {
            return KeepAnswer::Stale;
        }
        let Some(asked) = self.asked.take() else {
            return KeepAnswer::Stale;
        };
        if ttl.is_zero() && !planted!(options, KeptWithoutTime) {
            return KeepAnswer::Gone;
        }
        let from = if planted!(options, ValidFromAnswer) {
            now
        } else {
            asked
        };
        self.valid_until = self.valid_until.max(valid_until(from, self.ttl));
        KeepAnswer::Live
    }
}

fn valid_until(from: Instant, ttl: Duration) -> Instant {
    from.after(nanos(ttl) / 5 * 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    fn lease() -> (NodeLease, Options) {
        let options = Options::new("c", "n");
        (NodeLease::new(1, 1, at(0), &options), options)
    }

    #[test]
    fn a_keepalive_counts_from_when_it_was_sent() {
        let (mut lease, options) = lease();
        assert_eq!(lease.valid_until(), at(4_000));
        assert!(!lease.asks(at(999)));
        assert!(lease.asks(at(1_000)));
        assert!(!lease.asks(at(1_500)), "one is outstanding");
        let kept = lease.kept(1, Duration::from_secs(5), at(1_900), &options);
        assert_eq!((kept, lease.valid_until()), (KeepAnswer::Live, at(5_000)));
    }

    #[test]
    fn a_late_answer_counts_for_nothing() {
        let (mut lease, options) = lease();
        assert!(lease.asks(at(1_000)));
        assert!(lease.time_out(at(2_000), &options));
        assert!(lease.asks(at(2_000)));
        let late = lease.kept(1, Duration::from_secs(5), at(2_100), &options);
        assert_eq!((late, lease.valid_until()), (KeepAnswer::Stale, at(4_000)));
        let kept = lease.kept(2, Duration::from_secs(5), at(2_200), &options);
        assert_eq!((kept, lease.valid_until()), (KeepAnswer::Live, at(6_000)));
        let again = lease.kept(2, Duration::from_secs(5), at(2_300), &options);
        assert_eq!(again, KeepAnswer::Stale);
    }

    #[test]
    fn an_answer_without_time_is_the_end() {
        let (mut lease, options) = lease();
        assert!(lease.asks(at(1_000)));
        assert_eq!(
            lease.kept(1, Duration::ZERO, at(1_100), &options),
            KeepAnswer::Gone
        );
    }
}
