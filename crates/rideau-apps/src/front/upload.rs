//! Bodies of requests: their source, and how a process gets them.
//!
//! It is a stream that is pulled: a process that cannot take more is not given more.

mod inflow;
mod passing;
mod read;

use std::io;
use std::task::{Context, Poll};

use h2::RecvStream;
use hyper::body::Bytes;

pub(super) use self::inflow::{Inflow, Unread};
pub(super) use self::passing::{Fate, Passing};
pub(super) use self::read::{peek, read};
use super::body_buffer::{BodyBuffer, WholeBody};
use super::broken::{Broken, Part};

/// The source of a body, part by part.
pub(super) trait Incoming: Send {
    /// The next part of it; none after its end.
    fn poll_part(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>>;
}

/// Where a body comes from.
pub(super) enum Source {
    Http1(Box<dyn Incoming>),
    Http2(RecvStream),
}

/// The body of a request, as a process gets it.
pub(super) enum Upload {
    /// Nothing.
    Empty,
    /// All of it, which can be sent again.
    Whole(WholeBody),
    /// All of it, in a file as far as it is long.
    Buffered(Box<BodyBuffer>),
    /// As it comes.
    Passing(Box<Passing>),
}

/// How long an upload is, as a process is told it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Extent {
    /// There is none.
    Nothing,
    Length(u64),
    Unknown,
}

impl Source {
    fn poll_part(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        match self {
            Self::Http1(body) => body.poll_part(context),
            // What it says at its end is left out.
            Self::Http2(incoming) => incoming.poll_data(context).map(|part| {
                let part = part.transpose().map_err(io::Error::other)?;
                Ok(part.inspect(|part| {
                    // It may send as much again.
                    let _ = incoming.flow_control().release_capacity(part.len());
                }))
            }),
        }
    }
}

impl Upload {
    /// It can be had once more.
    pub(super) const fn is_kept(&self) -> bool {
        matches!(self, Self::Empty | Self::Whole(_))
    }

    /// The same once more, if it is still there as a whole.
    pub(super) fn again(&self) -> Option<Self> {
        match self {
            Self::Empty => Some(Self::Empty),
            Self::Whole(whole) => Some(Self::Whole(whole.clone())),
            Self::Buffered(_) | Self::Passing(_) => None,
        }
    }

    /// More of it is to come, and the client takes its time.
    pub(super) fn is_awaited(&self) -> bool {
        matches!(self, Self::Passing(passing) if passing.fate.is_awaited())
    }

    pub(super) fn extent(&self) -> Extent {
        match self {
            Self::Empty => Extent::Nothing,
            Self::Whole(whole) => Extent::Length(whole.bytes.len() as u64),
            Self::Buffered(buffer) => Extent::Length(buffer.len()),
            Self::Passing(passing) => passing.len.map_or(Extent::Unknown, Extent::Length),
        }
    }

    pub(super) fn poll_part(&mut self, context: &mut Context<'_>) -> Poll<Part> {
        match self {
            Self::Empty => Poll::Ready(None),
            Self::Whole(whole) => {
                let bytes = std::mem::take(&mut whole.bytes);
                *self = Self::Empty;
                Poll::Ready((!bytes.is_empty()).then_some(Ok(bytes)))
            }
            Self::Buffered(buffer) => buffer.poll_pop(context).map(|part| {
                let part = part.map_err(|_| Broken("its file cannot be read"));
                part.transpose()
            }),
            Self::Passing(passing) => passing.poll_part(context),
        }
    }
}
