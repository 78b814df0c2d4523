//! Requests that turn out to be streams: they last for as long as a client listens, so they
//! take no place, and nothing is learnt of how fast a process is by them.

use std::time::Duration;

use crate::ledger::Reply;
use crate::time::Instant;

use super::Apps;
use super::effect::{AnswerHead, Effect, Ended, SessionId};
use super::sessions::Streamed;

/// Watches an answer that has begun, and says when it turned out to be a stream.
#[derive(Clone, Debug)]
pub struct StreamWatch {
    /// It lasted for too long then; never if it says how long it is.
    lasts: Instant,
    /// Since when nothing comes though more could be taken.
    silent: Option<Instant>,
}

/// An answer with a gap this long is a stream.
const SILENT: Duration = Duration::from_secs(2);
/// An answer that took so long is a stream, if it does not say how long it is.
const LASTS: Duration = Duration::from_secs(30);

/// Answers of these types are streams from their first byte, and the last one's begin so.
const TYPES: [&[u8]; 2] = [b"text/event-stream", b"multipart/x-mixed-replace"];
const TYPES_BEGIN: &[u8] = b"application/grpc";

/// The value of a `Content-Type` says that this is a stream.
pub fn is_stream_type(value: &[u8]) -> bool {
    let end = value.iter().position(|byte| *byte == b';');
    let media = value[..end.unwrap_or(value.len())].trim_ascii();
    let begins = media.get(..TYPES_BEGIN.len());
    TYPES.iter().any(|known| media.eq_ignore_ascii_case(known))
        || begins.is_some_and(|begins| begins.eq_ignore_ascii_case(TYPES_BEGIN))
}

impl StreamWatch {
    /// An answer of a request that had its place at `granted`, and whether it says how long
    /// it is.
    pub fn new(granted: Instant, has_length: bool) -> Self {
        Self {
            lasts: match has_length {
                true => Instant::NEVER,
                false => granted + LASTS,
            },
            silent: None,
        }
    }

    /// More could be taken, and nothing comes.
    pub fn waits(&mut self, now: Instant) {
        self.silent.get_or_insert(now);
    }

    /// Something came, or nothing more can be taken for now.
    pub const fn moves(&mut self) {
        self.silent = None;
    }

    /// When it is a stream, if nothing happens until then.
    pub fn due(&self) -> Option<Instant> {
        let silent = self.silent.map_or(Instant::NEVER, |since| since + SILENT);
        silent.min(self.lasts).finite()
    }

    /// It turned out to be a stream.
    pub fn is_stream(&self, now: Instant) -> bool {
        self.due().is_some_and(|due| due <= now)
    }
}

impl<R: Reply> Apps<R> {
    /// A session turned out to be a stream. If streams take no place, another gets its place;
    /// it is a session to its end all the same. What it was answered, if it had a head,
    /// counts from now on.
    pub fn streamed(
        &mut self,
        session: SessionId,
        head: Option<AnswerHead>,
        now: Instant,
        effects: &mut Vec<Effect<R>>,
    ) {
        let Some(open) = self.sessions.at_mut(session) else {
            return;
        };
        if open.streamed != Streamed::No {
            return;
        }
        if head.is_some() {
            let open = *open;
            self.count_answer(&open, Ended::Answered, head, now);
        }
        let Some(open) = self.sessions.at_mut(session) else {
            return;
        };
        open.streamed = Streamed::Counted;
        let (at, slot, id) = (open.app, open.slot, open.process);
        let Some(process) = self.processes.still(slot, id) else {
            return;
        };
        let streams = process.streams;
        self.change_inside(slot, -1, now);
        let options = &self.app(at).options;
        let takes_place = options.streams_count || options.places() == Some(1);
        // Beyond the most each keeps its place, so that there is an end to them.
        if takes_place || streams >= options.streams_max {
            return;
        }
        let process = self.processes.at_mut(slot);
        process.sessions -= 1;
        process.streams += 1;
        if let Some(open) = self.sessions.at_mut(session) {
            open.streamed = Streamed::Aside;
        }
        self.relist(slot);
        self.finish(at, now, effects);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn some_types_are_streams() {
        for value in [
            "text/event-stream",
            "Text/Event-Stream; charset=utf-8",
            " text/event-stream ;x",
            "application/grpc",
            "application/GRPC+proto",
            "application/grpc-web",
            "multipart/x-mixed-replace;boundary=frame",
        ] {
            assert!(is_stream_type(value.as_bytes()), "{value}");
        }
        for value in [
            "",
            ";",
            "text/plain",
            "text/event-streams",
            "application/gr",
            "text/plain; a=text/event-stream",
        ] {
            assert!(!is_stream_type(value.as_bytes()), "{value}");
        }
    }

    #[test]
    fn a_gap_of_two_seconds_makes_a_stream() {
        let mut watch = StreamWatch::new(at(0), true);
        assert_eq!(watch.due(), None);
        watch.waits(at(1_000));
        watch.waits(at(2_000));
        assert_eq!(watch.due(), Some(at(3_000)));
        assert!(!watch.is_stream(at(2_999)));
        watch.moves();
        assert!(
            !watch.is_stream(at(60_000)),
            "a slow client is not its fault"
        );
        watch.waits(at(60_000));
        assert!(watch.is_stream(at(62_000)));
    }

    #[test]
    fn what_lasts_for_half_a_minute_is_a_stream_unless_it_says_how_long_it_is() {
        let mut watch = StreamWatch::new(at(500), false);
        assert_eq!(watch.due(), Some(at(30_500)));
        watch.waits(at(10_000));
        assert_eq!(watch.due(), Some(at(12_000)), "whatever is first");
        watch.moves();
        assert!(watch.is_stream(at(30_500)));
        assert!(!StreamWatch::new(at(500), true).is_stream(at(90_000)));
    }
}
