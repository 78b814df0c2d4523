//! The body of an answer on its way to a client that speaks HTTP/2.

use std::future::poll_fn;
use std::task::{Context, Poll, ready};

use h2::{Reason, SendStream};
use hyper::body::Bytes;

use super::Stay;
use crate::front::body::Answer;
use crate::front::broken::Broken;
use crate::front::rate_watch::RateWatch;
use crate::front::reply::read;

/// Bytes that are sent before the client is looked at again.
const STEP: usize = 16 << 10;

/// A body that is being sent.
pub(super) struct Sending {
    pub(super) stream: SendStream<Bytes>,
    pub(super) body: Answer,
    pub(super) watch: RateWatch,
    /// Bytes of it that were handed on.
    pub(super) sent: u64,
}

/// Why not all of it is sent.
enum Unsent {
    /// The client takes it too slowly.
    Slow,
    Broken(h2::Error),
}

/// The next part of a body.
enum Next {
    Part(Bytes),
    End,
    Broken(Broken),
    /// The client does not take it any more.
    Gone,
}

impl Sending {
    /// Send it to its end, or to that of the client's patience.
    pub(super) async fn run(mut self, stay: &mut Stay) {
        self.send_all(stay).await;
        let entry = stay.begun.as_ref().and_then(|begun| begun.log.as_ref());
        if let Some(entry) = entry {
            entry.sent(self.sent);
        }
    }

    async fn send_all(&mut self, stay: &mut Stay) {
        loop {
            let sent = match poll_fn(|context| self.poll_next(context)).await {
                Next::Part(part) => self.send(part).await,
                Next::End => self.end().map(|()| true).map_err(Unsent::Broken),
                Next::Broken(broken) => {
                    stay.is_over = true;
                    if let Some(begun) = &stay.begun {
                        begun.is_cut(&stay.conn, broken.word());
                    }
                    // What was not whole must not seem so.
                    return self.stream.send_reset(Reason::INTERNAL_ERROR);
                }
                Next::Gone => return,
            };
            match sent {
                Ok(false) => (),
                Ok(true) => {
                    stay.is_over = true;
                    return;
                }
                Err(Unsent::Slow) => {
                    stay.is_over = true;
                    if let Some(begun) = &stay.begun {
                        begun.is_slow(&stay.conn);
                    }
                    return self.stream.send_reset(Reason::CANCEL);
                }
                Err(Unsent::Broken(error)) => {
                    return tracing::debug!("an answer cannot be sent: {error}");
                }
            }
        }
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Next> {
        if self.stream.poll_reset(context).is_ready() {
            return Poll::Ready(Next::Gone);
        }
        Poll::Ready(match ready!(self.body.poll_part(context)) {
            Some(Ok(part)) => Next::Part(part),
            Some(Err(broken)) => Next::Broken(broken),
            None => Next::End,
        })
    }

    /// Send a part when the client has room for some of it; says whether it was
    /// the last.
    async fn send(&mut self, mut part: Bytes) -> Result<bool, Unsent> {
        loop {
            if !part.is_empty() {
                // As much as nothing is claimed while others may have something to
                // send: what is sent counts by itself.
                self.stream.reserve_capacity(1);
                poll_fn(|context| self.poll_room(context)).await?;
            }
            let step = part.split_to(part.len().min(STEP));
            self.watch.passed(step.len());
            self.sent += step.len() as u64;
            let is_last = part.is_empty() && self.body.is_over();
            let sent = self.stream.send_data(step, is_last);
            sent.map_err(Unsent::Broken)?;
            if part.is_empty() {
                return Ok(is_last);
            }
        }
    }

    /// Ready when something can be sent.
    fn poll_room(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Unsent>> {
        while self.stream.capacity() == 0 {
            match self.stream.poll_capacity(context) {
                Poll::Ready(Some(room)) => drop(room.map_err(Unsent::Broken)?),
                Poll::Ready(None) => {
                    return Poll::Ready(Err(Unsent::Broken(Reason::CANCEL.into())));
                }
                Poll::Pending => {
                    self.body.keep(context);
                    return self.watch.poll_slow(context).map(|()| Err(Unsent::Slow));
                }
            }
        }
        Poll::Ready(Ok(()))
    }

    fn end(&mut self) -> Result<(), h2::Error> {
        let trailers = self.body.take_trailers();
        if trailers.is_empty() {
            return self.stream.send_data(Bytes::new(), true);
        }
        self.stream.reserve_capacity(0);
        self.stream.send_trailers(read(&trailers))
    }
}
