//! Bodies of answers.
//!
//! It is a stream that is pulled: a client that cannot take more is not given more.

mod buffered;
mod deadline;
mod streaming;

use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Instant;

use hyper::body::Bytes;

use self::buffered::Pumped;
pub(super) use self::deadline::Allowance;
pub(super) use self::streaming::Live;
use super::broken::{Broken, Part};
use crate::http1::message_io::MessageIo;

/// Bodies of answers.
pub(super) enum Answer {
    /// All of it, until it is sent.
    Whole(Bytes),
    /// Streamed from the process.
    Live(Live),
    /// Buffered from the process.
    Pumped(Pumped),
}

impl Answer {
    /// Buffers an answer, so that the process does not wait for the client.
    ///
    /// Most answers are short and have come already, and need no pump.
    pub(super) async fn buffered(mut live: Live) -> Self {
        let came = poll_fn(|context| Poll::Ready(live.poll_part(context))).await;
        let first = match came {
            Poll::Ready(Some(Ok(part))) => Some(part),
            _ => None,
        };
        if live.is_over() && !live.has_trailers() {
            return Self::Whole(first.unwrap_or_default());
        }
        Self::Pumped(Pumped::begin(live, first))
    }

    /// The next part of it; none after its end.
    pub(super) fn poll_part(&mut self, context: &mut Context<'_>) -> Poll<Part> {
        match self {
            Self::Whole(bytes) => {
                let bytes = std::mem::take(bytes);
                Poll::Ready((!bytes.is_empty()).then_some(Ok(bytes)))
            }
            Self::Live(live) => live.poll_part(context),
            Self::Pumped(pumped) => pumped.poll_part(context),
        }
    }

    /// The trailers as bytes; to be called after the last part.
    pub(super) fn take_trailers(&mut self) -> Vec<u8> {
        match self {
            Self::Whole(_) => Vec::new(),
            Self::Live(live) => live.take_trailers(),
            Self::Pumped(pumped) => pumped.take_trailers(),
        }
    }

    /// All of it was taken, and nothing follows.
    pub(super) fn is_over(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_empty(),
            Self::Live(live) => live.is_over() && !live.has_trailers(),
            Self::Pumped(pumped) => pumped.is_over(),
        }
    }

    /// Why there is no more of it, though it was not all.
    pub(super) fn broken(&self) -> Option<Broken> {
        match self {
            Self::Whole(_) => None,
            Self::Live(live) => live.broken(),
            Self::Pumped(pumped) => pumped.broken(),
        }
    }

    /// Hand on what came of it already, if it is of a known length. Says whether
    /// that was all.
    pub(super) fn pour(&mut self, into: &mut MessageIo, now: Instant) -> bool {
        match self {
            Self::Whole(bytes) => {
                into.push(std::mem::take(bytes));
                true
            }
            Self::Live(live) => live.pour(into, now),
            Self::Pumped(_) => false,
        }
    }
}
