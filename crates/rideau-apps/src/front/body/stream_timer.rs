//! Waits for an answer to turn out to be a stream, and for the end of a stream.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use rideau_core::apps::StreamWatch;
use tokio::time::{Instant, Sleep};

use crate::apps::Session;

/// The clock of one answer that was not there as a whole.
pub(super) struct StreamTimer {
    /// When its request had its place.
    granted: Instant,
    phase: Phase,
    /// When to look next, or sooner.
    timer: Pin<Box<Sleep>>,
}

enum Phase {
    /// It takes a place as yet.
    Request(StreamWatch),
    Stream {
        /// Over when the process has to go and the grace is over.
        ended: Pin<Box<dyn Future<Output = ()> + Send>>,
        /// It ends when nothing comes for so long.
        idle: Option<Duration>,
        moved: Instant,
    },
}

/// A timer that is not needed yet.
const FAR: Duration = Duration::from_secs(24 * 60 * 60);

impl StreamTimer {
    /// Of an answer that waits for its process for the first time.
    pub(super) fn new(granted: std::time::Instant, has_length: bool) -> Self {
        let watch = StreamWatch::new(rideau_core::Instant::START, has_length);
        Self {
            granted: granted.into(),
            phase: Phase::Request(watch),
            timer: Box::pin(tokio::time::sleep(FAR)),
        }
    }

    /// It is a stream from now on.
    pub(super) fn begin_stream(&mut self, session: &Session) {
        if let Phase::Stream { .. } = self.phase {
            return;
        }
        session.streamed();
        let http = &session.process().app.config.load().http;
        let (grace, drained) = (http.stream_grace, session.process().drained());
        self.phase = Phase::Stream {
            ended: Box::pin(async move {
                drained.await;
                tokio::time::sleep(grace).await;
            }),
            idle: http.stream_idle,
            moved: Instant::now(),
        };
    }

    /// Something came.
    pub(super) fn moves(&mut self) {
        match &mut self.phase {
            Phase::Request(watch) => watch.moves(),
            Phase::Stream { moved, idle, .. } if idle.is_some() => *moved = Instant::now(),
            Phase::Stream { .. } => (),
        }
    }

    /// Nothing comes; ready when it is a stream that has to end.
    pub(super) fn poll_wait(&mut self, session: &Session, context: &mut Context<'_>) -> Poll<()> {
        loop {
            let now = Instant::now();
            let due = match &mut self.phase {
                Phase::Request(watch) => {
                    let since = rideau_core::Instant::START;
                    let now = since + now.saturating_duration_since(self.granted);
                    watch.waits(now);
                    if watch.is_stream(now) {
                        self.begin_stream(session);
                        continue;
                    }
                    watch.due().map(|due| self.granted + due.since(since))
                }
                Phase::Stream { ended, idle, moved } => {
                    if ended.as_mut().poll(context).is_ready() {
                        return Poll::Ready(());
                    }
                    idle.map(|idle| *moved + idle)
                }
            };
            let Some(due) = due else {
                return Poll::Pending;
            };
            if due <= now {
                return Poll::Ready(());
            }
            // One that rings too soon costs less than one that is set for every part.
            if self.timer.deadline() > due {
                self.timer.as_mut().reset(due);
            }
            if self.timer.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            self.timer.as_mut().reset(due);
        }
    }
}
