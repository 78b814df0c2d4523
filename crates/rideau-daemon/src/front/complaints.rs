//! Requests that got no answer, or not all of one, in the log: each with the name
//! that its client was told.
//!
//! Where all requests fail, not all of them are worth a line, and none is worth
//! waiting for the log: each app has a few lines a second.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::date;
use super::errand::{Begun, Errand};
use super::seat::Seat;

/// Lines for one app in one second.
const LINES_MAX: u64 = 10;
/// For how many of them there is room in what is counted, in bits.
const COUNT_BITS: u32 = 24;
/// What became of a request whose client did not wait for its answer.
const CLIENT_GONE: (u16, &str) = (499, "client_gone");

/// How many lines there were of late; the second above their number.
#[derive(Default, Debug)]
pub struct Pace(AtomicU64);

impl Pace {
    /// Whether there is room for another line now, and if so how many there was
    /// none for before.
    fn admit(&self, now: Duration) -> Option<u64> {
        let second = now.as_secs();
        let before = self.0.load(Ordering::Relaxed);
        if before >> COUNT_BITS == second {
            let count = self.0.fetch_add(1, Ordering::Relaxed) & ((1 << COUNT_BITS) - 1);
            return (count < LINES_MAX).then_some(0);
        }
        let first = second << COUNT_BITS | 1;
        let begun = (self.0).compare_exchange(before, first, Ordering::Relaxed, Ordering::Relaxed);
        let count = before & ((1 << COUNT_BITS) - 1);
        // Who lost began the same second, and is counted with the next.
        begun.ok().map(|_| count.saturating_sub(LINES_MAX))
    }
}

impl Begun {
    /// Its client went away before it had all of an answer.
    #[cold]
    pub(super) fn is_gone(&self, seat: &Seat) {
        if let Ok(errand) = &self.errand {
            let (status, word) = CLIENT_GONE;
            errand.app.counts.refused(word);
            errand.complain(self, seat, status, word);
        }
    }

    /// The app did not say all of its answer.
    #[cold]
    pub(super) fn is_cut(&self, seat: &Seat, word: &str) {
        if let Ok(errand) = &self.errand {
            errand.complain(self, seat, 0, word);
        }
    }
}

impl Errand {
    /// Write a line about it, if there is room for one.
    #[cold]
    pub(super) fn complain(&self, begun: &Begun, seat: &Seat, status: u16, error: &str) {
        let Some(left_out) = self.app.pace.admit(date::now()) else {
            return;
        };
        let (app, request, client) = (&*self.app.name, &begun.id, &*seat.peer_text);
        let (method, path) = (&self.method, String::from_utf8_lossy(self.path()));
        if left_out > 0 {
            tracing::warn!(app, left_out, "more requests failed than are logged");
        }
        match status {
            0 => tracing::warn!(app, %request, client, error, "{method} {path}: cut off"),
            500.. => tracing::warn!(app, %request, client, status, error, "{method} {path}"),
            _ => tracing::info!(app, %request, client, status, error, "{method} {path}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_has_few_lines_and_the_next_says_how_many_were_left_out() {
        let pace = Pace::default();
        let at = |second: u64| Duration::from_secs(1_700_000_000 + second);
        let lines = |second, asked| {
            let admitted = (0..asked).map(|_| pace.admit(at(second)));
            admitted.collect::<Vec<_>>()
        };
        assert_eq!(lines(0, 10), [Some(0); 10]);
        assert_eq!(lines(0, 990), [None; 990]);
        assert_eq!(lines(1, 2), [Some(990), Some(0)]);
        assert_eq!(lines(7, 1), [Some(0)]);
    }
}
