//! What is known of one server: a process that others start.

use std::collections::VecDeque;

use crate::time::{Instant, nanos};

use super::learner::Learner;
use super::options::ServerRules;

/// What is known of a server.
#[derive(Debug)]
pub(super) struct ServerRecord {
    pub(super) learner: Learner,
    pub(super) failures: RecentFailures,
    /// The sessions that fit into it, as far as its app counts them.
    pub(super) places: usize,
    /// When it last answered, or got a session while it had none.
    pub(super) heard: Instant,
    /// Looks in a row that found it down.
    pub(super) looks: u32,
    /// When it last came back.
    pub(super) rose: Option<Instant>,
    /// The caller was told to look at it, and has not said what it saw.
    pub(super) is_looked_at: bool,
    /// When it is looked at next, or whether it has to be.
    pub(super) look_due: Instant,
}

/// The last failures of a server, each with how many answers there were before.
#[derive(Debug, Default)]
pub(super) struct RecentFailures {
    recent: VecDeque<(Instant, u64)>,
    pub(super) answers: u64,
}

/// A server that answers more than twenty times as often as it fails is not down.
const ANSWERS_EACH: u64 = 20;

impl ServerRecord {
    pub(super) fn new(learner: Learner, now: Instant) -> Self {
        Self {
            learner,
            failures: RecentFailures::default(),
            places: 0,
            heard: now,
            looks: 0,
            rose: None,
            is_looked_at: false,
            look_due: Instant::NEVER,
        }
    }
}

impl RecentFailures {
    /// One more. Says whether these are too many.
    pub(super) fn add(&mut self, rules: &ServerRules, now: Instant) -> bool {
        let max = rules.failures_max as usize;
        self.recent.push_back((now, self.answers));
        while self.recent.len() > max {
            self.recent.pop_front();
        }
        let Some((first, answers)) = self.recent.front() else {
            return false;
        };
        let most = ANSWERS_EACH * u64::from(rules.failures_max);
        self.recent.len() == max
            && now.since(*first) <= rules.failures_window
            && self.answers - answers <= most
    }

    pub(super) fn forget(&mut self) {
        self.recent.clear();
    }
}

impl ServerRules {
    /// How long to wait before a server is looked at that was found down so often in a row.
    pub(super) fn wait(&self, looks: u32) -> u64 {
        let wait = nanos(self.look_first).saturating_mul(1 << looks.min(63));
        wait.min(nanos(self.look_max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn three_failures_within_the_window_are_too_many() {
        let rules = ServerRules::default();
        let mut failures = RecentFailures::default();
        assert!(!failures.add(&rules, at(0)));
        assert!(!failures.add(&rules, at(6_000)));
        assert!(!failures.add(&rules, at(10_001)), "the first is too old");
        assert!(failures.add(&rules, at(16_000)));
        failures.forget();
        assert!(!failures.add(&rules, at(16_000)));
    }

    #[test]
    fn failures_among_many_answers_are_not() {
        let rules = ServerRules::default();
        let mut failures = RecentFailures::default();
        for (answers, is_down) in [(0, true), (60, true), (61, false), (9_000, false)] {
            failures.forget();
            assert!(!failures.add(&rules, at(0)) && !failures.add(&rules, at(1)));
            failures.answers += answers;
            assert_eq!(failures.add(&rules, at(2)), is_down, "{answers}");
        }
    }

    #[test]
    fn looks_come_ever_more_seldom() {
        let rules = ServerRules::default();
        let waits: Vec<_> = (0..6).map(|looks| rules.wait(looks) / 1_000_000).collect();
        assert_eq!(waits, [500, 1_000, 2_000, 4_000, 5_000, 5_000]);
        assert_eq!(rules.wait(u32::MAX), nanos(rules.look_max));
    }
}
