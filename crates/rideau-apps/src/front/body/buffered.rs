//! What a process sends, taken from it as fast as it comes, for a client that may be
//! slower.
//!
//! What comes is handed on at once. Only while the client takes nothing more is it kept, so
//! that the process is free when it has said all, however long the client takes.

use std::task::{Context, Poll, ready};

use hyper::body::Bytes;

use super::Live;
use crate::front::body_buffer::{BodyBuffer, BufferMax};
use crate::front::broken::{Broken, Part};
use crate::front::budget::Reserved;

/// Bytes of an answer that are kept in memory.
const MEMORY_MAX: usize = 1024 * 1024;

/// What a process sends, and what of it the client has not taken.
pub(in crate::front) struct Buffered {
    /// What came before anything was sent.
    first: Option<Bytes>,
    /// What came then.
    buffer: BodyBuffer,
    live: Live,
}

impl Buffered {
    /// An answer of which this came already. This many bytes are kept in a file; then the
    /// process has to wait.
    pub(super) fn new(live: Live, first: Option<Bytes>, reserved: Reserved, file_max: u64) -> Self {
        let most = BufferMax {
            memory: MEMORY_MAX,
            file: file_max,
        };
        Self {
            first,
            buffer: BodyBuffer::new(reserved, most),
            live,
        }
    }

    fn is_taken(&self) -> bool {
        self.first.is_none() && self.buffer.len() == 0
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_taken() && self.live.is_over() && !self.live.has_trailers()
    }

    pub(super) fn broken(&self) -> Option<Broken> {
        self.live.broken().filter(|_| self.is_taken())
    }

    pub(super) fn take_trailers(&mut self) -> Vec<u8> {
        self.live.take_trailers()
    }

    pub(super) fn poll_part(&mut self, context: &mut Context<'_>) -> Poll<Part> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(first)));
        }
        match ready!(self.buffer.poll_pop(context)) {
            Ok(Some(part)) => Poll::Ready(Some(Ok(part))),
            Ok(None) => self.live.poll_part(context),
            Err(_) => Poll::Ready(Some(Err(Broken("its file cannot be read")))),
        }
    }

    /// The client takes nothing at the moment: keep what comes meanwhile.
    pub(super) fn keep(&mut self, context: &mut Context<'_>) {
        // What has no room waits, and the process with it.
        while let Poll::Ready(Ok(())) = self.buffer.poll_room(context) {
            // Its end is there until the client has taken what was before.
            let Poll::Ready(Some(Ok(part))) = self.live.poll_part(context) else {
                return;
            };
            self.buffer.push(&part);
        }
    }
}
