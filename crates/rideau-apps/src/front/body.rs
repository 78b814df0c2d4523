//! Bodies of answers.
//!
//! It is a stream that is pulled: a client that cannot take more is not given more.

mod buffered;
mod compressed;
mod deadline;
mod file;
mod stream_timer;
mod streaming;

use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Instant;

use hyper::body::Bytes;

use self::buffered::Buffered;
pub(super) use self::compressed::Compressed;
pub(super) use self::deadline::Allowance;
pub(super) use self::file::{FILE_PART, FileBody};
pub(super) use self::streaming::{AnswerKind, Live};
use super::broken::{Broken, Part};
use super::budget::Reserved;
use crate::http1::message_io::MessageIo;

/// Bodies of answers.
pub(super) enum Answer {
    /// All of it, until it is sent.
    Whole(Bytes),
    /// Streamed from the process.
    Live(Live),
    /// The same, kept while the client does not take it.
    Buffered(Box<Buffered>),
    /// Read from a file.
    File(Box<FileBody>),
    /// Any of these, compressed while it is sent.
    Compressed(Box<Compressed>),
}

impl Answer {
    /// What a process sends, without making it wait for the client; as much as this is kept
    /// in a file.
    ///
    /// Most answers are short and have come already, and need nothing of what is
    /// reserved.
    pub(super) async fn buffered(
        mut live: Live,
        file_max: u64,
        reserve: impl FnOnce() -> Reserved,
    ) -> Self {
        let came = poll_fn(|context| Poll::Ready(live.poll_part(context))).await;
        let first = match came {
            Poll::Ready(Some(Ok(part))) => Some(part),
            _ => None,
        };
        if live.is_over() && !live.has_trailers() {
            return Self::Whole(first.unwrap_or_default());
        }
        let buffered = Buffered::new(live, first, reserve(), file_max);
        Self::Buffered(Box::new(buffered))
    }

    /// The next part of it; none after its end.
    pub(super) fn poll_part(&mut self, context: &mut Context<'_>) -> Poll<Part> {
        match self {
            Self::Whole(bytes) => {
                let bytes = std::mem::take(bytes);
                Poll::Ready((!bytes.is_empty()).then_some(Ok(bytes)))
            }
            Self::Live(live) => live.poll_part(context),
            Self::Buffered(buffered) => buffered.poll_part(context),
            Self::File(file) => file.poll_part(context),
            Self::Compressed(compressed) => compressed.poll_part(context),
        }
    }

    /// The client takes nothing at the moment, which need not keep the process waiting.
    pub(super) fn keep(&mut self, context: &mut Context<'_>) {
        match self {
            Self::Buffered(buffered) => buffered.keep(context),
            Self::Compressed(compressed) => compressed.keep(context),
            Self::Whole(_) | Self::Live(_) | Self::File(_) => (),
        }
    }

    /// The trailers as bytes; to be called after the last part.
    pub(super) fn take_trailers(&mut self) -> Vec<u8> {
        match self {
            Self::Whole(_) | Self::File(_) => Vec::new(),
            Self::Live(live) => live.take_trailers(),
            Self::Buffered(buffered) => buffered.take_trailers(),
            Self::Compressed(compressed) => compressed.take_trailers(),
        }
    }

    /// All of it was taken, and nothing follows.
    pub(super) fn is_over(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_empty(),
            Self::Live(live) => live.is_over() && !live.has_trailers(),
            Self::Buffered(buffered) => buffered.is_over(),
            Self::File(file) => file.is_over(),
            Self::Compressed(compressed) => compressed.is_over(),
        }
    }

    /// Why there is no more of it, though it was not all.
    pub(super) fn broken(&self) -> Option<Broken> {
        match self {
            Self::Whole(_) => None,
            Self::Live(live) => live.broken(),
            Self::Buffered(buffered) => buffered.broken(),
            Self::File(file) => file.broken(),
            Self::Compressed(compressed) => compressed.broken(),
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
            Self::Buffered(_) | Self::File(_) | Self::Compressed(_) => false,
        }
    }
}
