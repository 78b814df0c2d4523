//! What one peer has asked this node: asks that run, and answers that the peer may not
//! have heard.
//!
//! Frames of a link arrive in order. So the answer to a ping says that the peer has read
//! every answer that was sent before that ping. Until then the row of an answer is kept:
//! if the peer cancels the ask, what it became has to be undone.

use std::collections::{HashMap, VecDeque};
use std::mem;
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::options::LinkLimits;

/// After this many rows an extra ping asks whether they were heard.
const ROWS_A_PING: usize = 256;
/// A peer that has more rows unheard does not answer pings as it should.
const ROWS_MAX: usize = 64 << 10;

/// The asks of one peer.
#[derive(Default)]
pub(super) struct Served {
    /// The highest id so far. Ids of a peer only grow, so a smaller one is a copy.
    newest: u64,
    running: HashMap<u64, RunningAsk>,
    running_len: usize,
    unheard: VecDeque<UnheardRow>,
    /// Rows since the last ping.
    since_ping: usize,
    next_ping: u64,
    pings: VecDeque<(u64, Instant)>,
    rtt: Option<Duration>,
    is_gone: bool,
}

struct RunningAsk {
    len: usize,
    task: Option<AbortHandle>,
}

struct UnheardRow {
    /// The row is forgotten when the peer has answered this ping.
    ping: u64,
    id: u64,
    row: Vec<u8>,
}

/// How to treat an ask.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AskAdmission {
    /// Run it.
    New,
    /// It is or was running, or the peer is gone.
    Copy,
    /// The peer has broken a limit.
    Flood,
}

/// The outcome of a cancelled ask.
#[derive(Debug)]
pub(super) enum CancelledAsk {
    /// It runs.
    Running(Option<AbortHandle>),
    /// It took this.
    Took(Vec<u8>),
    /// Nothing, or the ask never came.
    Nothing,
}

impl Served {
    /// An ask came.
    pub(super) fn admit(&mut self, id: u64, len: usize, limits: &LinkLimits) -> AskAdmission {
        if id <= self.newest || self.is_gone {
            return AskAdmission::Copy;
        }
        let is_full = self.running.len() >= limits.asks_max;
        if is_full || self.running_len + len > limits.bytes_max || self.unheard.len() > ROWS_MAX {
            return AskAdmission::Flood;
        }
        self.newest = id;
        self.running_len += len;
        self.running.insert(id, RunningAsk { len, task: None });
        AskAdmission::New
    }

    /// The ask could not be answered at once, and this task runs it. The task ends if the
    /// peer is gone meanwhile.
    pub(super) fn runs_in(&mut self, id: u64, task: AbortHandle) {
        match self.running.get_mut(&id) {
            Some(ask) => ask.task = Some(task),
            None => task.abort(),
        }
    }

    /// The ask has its answer. False if it was cancelled before.
    pub(super) fn finish(&mut self, id: u64) -> bool {
        let ask = self.running.remove(&id);
        self.running_len -= ask.as_ref().map_or(0, |ask| ask.len);
        ask.is_some()
    }

    /// The answer of an ask took this, and is on its way. Returns whether a ping is due.
    pub(super) fn took(&mut self, id: u64, row: Vec<u8>) -> bool {
        let ping = self.next_ping;
        self.unheard.push_back(UnheardRow { ping, id, row });
        self.since_ping += 1;
        self.since_ping >= ROWS_A_PING
    }

    /// The peer does not want an ask any more.
    pub(super) fn cancel(&mut self, id: u64) -> CancelledAsk {
        // An ask that was lost with an older link cannot come any more.
        self.newest = self.newest.max(id);
        if let Some(ask) = self.running.remove(&id) {
            self.running_len -= ask.len;
            return CancelledAsk::Running(ask.task);
        }
        let found = self.unheard.iter().rposition(|row| row.id == id);
        match found.and_then(|at| self.unheard.remove(at)) {
            Some(unheard) => CancelledAsk::Took(unheard.row),
            None => CancelledAsk::Nothing,
        }
    }

    /// A new link begins. Pings of older ones are not answered any more, so rows wait for
    /// the first ping of this one. Before the peer answers it, it cancels what it has not
    /// heard.
    pub(super) fn begin_link(&mut self) {
        self.pings.clear();
    }

    /// Returns the number of the next ping, which is sent now.
    pub(super) fn ping(&mut self, now: Instant) -> u64 {
        let seq = self.next_ping;
        self.next_ping += 1;
        self.since_ping = 0;
        self.pings.push_back((seq, now));
        seq
    }

    /// A ping was answered. One that was not sent on this link does not count.
    pub(super) fn pong(&mut self, seq: u64, now: Instant) {
        let Some(at) = self.pings.iter().position(|ping| ping.0 == seq) else {
            return;
        };
        self.rtt = Some(now.duration_since(self.pings[at].1));
        self.pings.drain(..=at);
        while self.unheard.front().is_some_and(|row| row.ping <= seq) {
            self.unheard.pop_front();
        }
    }

    /// Since when the peer has not answered a ping.
    pub(super) fn silent_since(&self) -> Option<Instant> {
        self.pings.front().map(|ping| ping.1)
    }

    /// How long the last ping took.
    pub(super) const fn rtt(&self) -> Option<Duration> {
        self.rtt
    }

    /// Asks that run.
    pub(super) fn running(&self) -> usize {
        self.running.len()
    }

    /// The peer is gone for good. Returns the tasks that are to end.
    pub(super) fn forget(&mut self) -> Vec<AbortHandle> {
        self.is_gone = true;
        self.unheard.clear();
        self.running_len = 0;
        let running = mem::take(&mut self.running);
        running.into_values().filter_map(|ask| ask.task).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: LinkLimits = LinkLimits {
        asks_max: 3,
        bytes_max: 100,
        node_bytes_max: 1_000,
    };

    #[test]
    fn a_second_copy_is_the_same_ask() {
        let mut served = Served::default();
        assert_eq!(served.admit(1, 10, &LIMITS), AskAdmission::New);
        assert_eq!(served.admit(1, 10, &LIMITS), AskAdmission::Copy);
        assert!(served.finish(1));
        assert_eq!(served.admit(1, 10, &LIMITS), AskAdmission::Copy);
        assert!(!served.finish(1));
    }

    #[test]
    fn an_ask_that_was_cancelled_before_it_came_is_not_run() {
        let mut served = Served::default();
        assert!(matches!(served.cancel(4), CancelledAsk::Nothing));
        assert_eq!(served.admit(4, 1, &LIMITS), AskAdmission::Copy);
    }

    #[test]
    fn limits_count_what_runs() {
        let mut served = Served::default();
        for id in 1..=3 {
            assert_eq!(served.admit(id, 30, &LIMITS), AskAdmission::New);
        }
        assert_eq!(served.admit(4, 1, &LIMITS), AskAdmission::Flood);
        assert!(served.finish(2));
        assert_eq!(served.admit(4, 41, &LIMITS), AskAdmission::Flood);
        assert_eq!(served.admit(4, 40, &LIMITS), AskAdmission::New);
    }

    #[test]
    fn a_row_is_kept_until_the_ping_behind_it_is_answered() {
        let mut served = Served::default();
        let now = Instant::now();
        served.ping(now);
        served.took(1, vec![1]);
        served.pong(0, now);
        let second = served.ping(now);
        served.took(2, vec![2]);
        served.pong(second, now);
        assert!(matches!(served.cancel(1), CancelledAsk::Nothing));
        assert!(matches!(served.cancel(2), CancelledAsk::Took(row) if row == [2]));
        assert!(matches!(served.cancel(2), CancelledAsk::Nothing));
    }

    #[test]
    fn a_row_outlives_its_link_until_the_next_one_has_told_what_was_not_heard() {
        let mut served = Served::default();
        let now = Instant::now();
        served.took(1, vec![1]);
        served.took(2, vec![2]);
        let old = served.ping(now);
        served.begin_link();
        served.pong(old, now);
        assert!(matches!(served.cancel(1), CancelledAsk::Took(_)));
        let first = served.ping(now);
        served.pong(first, now);
        assert!(matches!(served.cancel(2), CancelledAsk::Nothing));
        assert_eq!(served.silent_since(), None);
    }
}
