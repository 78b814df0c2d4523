//! A body that is compressed while it is sent.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hyper::body::{Buf, Bytes};
use tokio::task::yield_now;

use super::Answer;
use crate::front::broken::{Broken, Part};
use crate::front::budget::Reserved;
use crate::front::encoder::Encoder;

/// Bytes that are compressed before what comes out is sent.
const STEP: usize = 16 << 10;
/// Bytes that are compressed before other clients of the thread have their turn.
const TURN: usize = 32 << 10;

const FAILED: Broken = Broken("answer_broken");

/// A body and what compresses it.
pub(in crate::front) struct Compressed {
    plain: Answer,
    /// A part of it that is not compressed yet.
    part: Bytes,
    encoder: Encoder,
    phase: Phase,
    /// Bytes that were compressed in this turn.
    turn: usize,
    /// Others have their turn.
    pause: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    is_broken: bool,
    /// What the encoder has in memory.
    _reserved: Reserved,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// All that came was handed on.
    Flushed,
    /// The encoder has some of it.
    Holds,
    /// Its end was handed on.
    Over,
}

impl Compressed {
    pub(in crate::front) fn new(plain: Answer, encoder: Encoder, reserved: Reserved) -> Self {
        Self {
            plain,
            part: Bytes::new(),
            encoder,
            phase: Phase::Flushed,
            turn: 0,
            pause: None,
            is_broken: false,
            _reserved: reserved,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.phase == Phase::Over && self.plain.is_over()
    }

    pub(super) fn broken(&self) -> Option<Broken> {
        self.plain.broken().or(self.is_broken.then_some(FAILED))
    }

    pub(super) fn take_trailers(&mut self) -> Vec<u8> {
        self.plain.take_trailers()
    }

    pub(super) fn keep(&mut self, context: &mut Context<'_>) {
        self.plain.keep(context);
    }

    pub(super) fn poll_part(&mut self, context: &mut Context<'_>) -> Poll<Part> {
        let polled = self.poll_compressed(context);
        if polled.is_pending() && self.pause.is_none() {
            self.turn = 0;
        }
        polled
    }

    /// Ready if it is the turn of this body. What others have to do comes first, and what has come
    /// for them from their clients.
    fn poll_turn(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.turn >= TURN {
            let pause = self.pause.get_or_insert_with(|| Box::pin(yield_now()));
            ready!(pause.as_mut().poll(context));
            self.pause = None;
            self.turn = 0;
        }
        Poll::Ready(())
    }

    fn poll_compressed(&mut self, context: &mut Context<'_>) -> Poll<Part> {
        let mut out = Vec::new();
        while out.is_empty() {
            if self.phase == Phase::Over {
                return Poll::Ready(None);
            }
            ready!(self.poll_turn(context));
            let done = if self.part.is_empty() {
                match self.plain.poll_part(context) {
                    Poll::Ready(Some(Ok(part))) => {
                        self.part = part;
                        continue;
                    }
                    Poll::Ready(Some(Err(broken))) => return Poll::Ready(Some(Err(broken))),
                    Poll::Ready(None) => self.finish(&mut out),
                    Poll::Pending if self.phase == Phase::Holds => self.flush(&mut out),
                    Poll::Pending => return Poll::Pending,
                }
            } else {
                self.step(&mut out)
            };
            if let Err(error) = done {
                tracing::debug!("an answer cannot be compressed: {error}");
                self.is_broken = true;
                return Poll::Ready(Some(Err(FAILED)));
            }
        }
        Poll::Ready(Some(Ok(out.into())))
    }

    fn step(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        let len = self.part.len().min(STEP);
        self.encoder.write(&self.part[..len], out)?;
        self.part.advance(len);
        self.phase = Phase::Holds;
        self.turn += len;
        Ok(())
    }

    /// Nothing more is here at the moment: the client gets what was.
    fn flush(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        self.phase = Phase::Flushed;
        self.encoder.flush(out)
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        self.phase = Phase::Over;
        self.encoder.finish(out)
    }
}
