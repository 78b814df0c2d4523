//! Why no link came about: counted, and logged at most once a minute.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Between two lines about the same peer and reason.
const LOG_PAUSE: Duration = Duration::from_secs(60);
/// Peers and reasons that are remembered. While there are more, they are only counted.
const LOGGED_MAX: usize = 1_024;

/// Why two nodes have no link.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum RefusalReason {
    /// They have no version of the protocol in common.
    Version,
    /// They are of different clusters.
    Cluster,
    /// One of them does not know the secret.
    Secret,
    /// The incarnation is gone, or the connection reached another one than was meant.
    Incarnation,
    /// The node with the larger name connected.
    Direction,
    /// A newer link is there.
    Superseded,
    /// A certificate is missing, not trusted, or names another node.
    Certificate,
    /// Without TLS only loopback addresses are linked, unless the network is private.
    NeedsTls,
    /// The other side sent something else than a handshake.
    Malformed,
    /// The handshake took too long.
    Late,
    /// Too many connections are in their handshake.
    Crowded,
}

/// A refusal, with what both sides said.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct LinkRefusal {
    pub(super) reason: RefusalReason,
    pub(super) detail: String,
}

/// All refusals so far.
#[derive(Default)]
pub(super) struct RefusalCounts {
    counts: Mutex<[u64; RefusalReason::ALL.len()]>,
    logged: Mutex<LogPauses>,
}

/// When each kind of line was last written.
#[derive(Default)]
struct LogPauses(HashMap<(String, RefusalReason), Instant>);

impl RefusalReason {
    /// Every reason.
    pub const ALL: [Self; 11] = [
        Self::Version,
        Self::Cluster,
        Self::Secret,
        Self::Incarnation,
        Self::Direction,
        Self::Superseded,
        Self::Certificate,
        Self::NeedsTls,
        Self::Malformed,
        Self::Late,
        Self::Crowded,
    ];

    /// Its word in a `goaway` and in metrics.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Version => "version",
            Self::Cluster => "cluster",
            Self::Secret => "secret",
            Self::Incarnation => "incarnation",
            Self::Direction => "direction",
            Self::Superseded => "superseded",
            Self::Certificate => "certificate",
            Self::NeedsTls => "needs_tls",
            Self::Malformed => "malformed",
            Self::Late => "late",
            Self::Crowded => "crowded",
        }
    }

    /// The reason that has this word.
    pub(super) fn of_word(word: &[u8]) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|reason| reason.word().as_bytes() == word)
    }

    /// The reason, with what there is to say about it.
    pub(super) fn with(self, detail: impl fmt::Display) -> LinkRefusal {
        LinkRefusal {
            reason: self,
            detail: detail.to_string(),
        }
    }
}

impl RefusalCounts {
    /// Count a refusal, and log it if that was not done a moment ago. `peer` is the name
    /// of the node, or the address of one that has not proved its name.
    pub(super) fn note(&self, peer: &str, refusal: &LinkRefusal) {
        let LinkRefusal { reason, detail } = refusal;
        self.counts.lock()[*reason as usize] += 1;
        let is_due = self.logged.lock().is_due(peer, *reason, Instant::now());
        if is_due {
            tracing::warn!(peer, reason = reason.word(), %detail, "no link");
        }
    }

    /// How often each reason came up.
    pub(super) fn counts(&self) -> Vec<(RefusalReason, u64)> {
        let counts = *self.counts.lock();
        RefusalReason::ALL.into_iter().zip(counts).collect()
    }
}

impl LogPauses {
    fn is_due(&mut self, peer: &str, reason: RefusalReason, now: Instant) -> bool {
        let is_recent = |at: &Instant| now.duration_since(*at) < LOG_PAUSE;
        let key = (peer.to_owned(), reason);
        if self.0.get(&key).is_some_and(is_recent) {
            return false;
        }
        if self.0.len() >= LOGGED_MAX {
            self.0.retain(|_, at| is_recent(at));
        }
        let has_room = self.0.len() < LOGGED_MAX;
        if has_room {
            self.0.insert(key, now);
        }
        has_room
    }
}

impl fmt::Display for LinkRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason.word(), self.detail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_logged_once_a_minute_for_each_peer() {
        let mut logged = LogPauses::default();
        let start = Instant::now();
        let mut is_due = |peer: &str, reason, after| {
            logged.is_due(peer, reason, start + Duration::from_secs(after))
        };
        assert!(is_due("n1", RefusalReason::Secret, 0));
        assert!(!is_due("n1", RefusalReason::Secret, 59));
        assert!(is_due("n1", RefusalReason::Version, 59));
        assert!(is_due("n2", RefusalReason::Secret, 59));
        assert!(is_due("n1", RefusalReason::Secret, 60));
        assert!(!is_due("n1", RefusalReason::Secret, 61));
    }

    #[test]
    fn strangers_cannot_fill_the_memory_of_the_log() {
        let mut logged = LogPauses::default();
        let start = Instant::now();
        for peer in 0..2 * LOGGED_MAX {
            logged.is_due(&peer.to_string(), RefusalReason::Secret, start);
        }
        assert_eq!(logged.0.len(), LOGGED_MAX);
        assert!(logged.is_due("n1", RefusalReason::Secret, start + LOG_PAUSE));
        assert_eq!(logged.0.len(), 1);
    }

    #[test]
    fn every_reason_has_its_place_and_its_word() {
        let counts = RefusalCounts::default();
        for (reason, times) in RefusalReason::ALL.into_iter().zip(1..) {
            assert_eq!(
                RefusalReason::of_word(reason.word().as_bytes()),
                Some(reason)
            );
            (0..times).for_each(|_| counts.note("n1", &reason.with("")));
        }
        let expected: Vec<_> = RefusalReason::ALL.into_iter().zip(1..).collect();
        assert_eq!(counts.counts(), expected);
    }
}
