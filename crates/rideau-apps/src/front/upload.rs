//! Bodies of requests: their source, and how a process gets them.
//!
//! It is a stream that is pulled: a process that cannot take more is not given more.

mod read;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};

use h2::RecvStream;
use hyper::body::Bytes;

pub(super) use self::read::{Unread, peek, read};
use super::broken::{Broken, Part};
use super::spool::Spool;

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
    Whole(Bytes),
    /// All of it, in a file as far as it is long.
    Spooled(Spool),
    /// As it comes.
    Passing(Passing),
}

/// How long an upload is, as a process is told it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Extent {
    /// There is none.
    Nothing,
    Length(u64),
    Unknown,
}

/// A body that is streamed to the process.
pub(super) struct Passing {
    source: Source,
    /// The first part, which was read to see that the body is valid.
    first: Option<Bytes>,
    /// Its length is known: this many bytes.
    len: Option<u64>,
    /// How many bytes may still come.
    left: u64,
    fate: Fate,
}

/// What became of a body that was passed on, for the task that waits for the answer.
#[derive(Clone)]
pub(super) struct Fate(Arc<AtomicU8>);

impl Source {
    fn poll_part(&mut self, context: &mut Context<'_>) -> Poll<Part> {
        match self {
            Self::Http1(body) => body.poll_part(context).map(|part| {
                let part = part.map_err(|_| Broken("the client broke it off"));
                part.transpose()
            }),
            // What it says at its end is left out.
            Self::Http2(incoming) => incoming.poll_data(context).map(|part| {
                let part = part?.map_err(|_| Broken("the client broke it off"));
                Some(part.inspect(|part| {
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
            Self::Whole(bytes) => Some(Self::Whole(bytes.clone())),
            Self::Spooled(_) | Self::Passing(_) => None,
        }
    }

    /// More of it is to come, and the client takes its time.
    pub(super) fn is_awaited(&self) -> bool {
        matches!(self, Self::Passing(passing) if passing.fate.is_awaited())
    }

    pub(super) fn extent(&self) -> Extent {
        match self {
            Self::Empty => Extent::Nothing,
            Self::Whole(bytes) => Extent::Length(bytes.len() as u64),
            Self::Spooled(spool) => Extent::Length(spool.len()),
            Self::Passing(passing) => passing.len.map_or(Extent::Unknown, Extent::Length),
        }
    }

    pub(super) fn poll_part(&mut self, context: &mut Context<'_>) -> Poll<Part> {
        match self {
            Self::Empty => Poll::Ready(None),
            Self::Whole(bytes) => {
                let bytes = std::mem::take(bytes);
                *self = Self::Empty;
                Poll::Ready((!bytes.is_empty()).then_some(Ok(bytes)))
            }
            Self::Spooled(spool) => {
                let part = spool.pop().map_err(|_| Broken("its file cannot be read"));
                Poll::Ready(part.transpose())
            }
            Self::Passing(passing) => passing.poll_part(context),
        }
    }
}

impl Passing {
    fn poll_part(&mut self, context: &mut Context<'_>) -> Poll<Part> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(first)));
        }
        let Poll::Ready(part) = self.source.poll_part(context) else {
            self.fate.set(Fate::AWAITED);
            return Poll::Pending;
        };
        self.fate.set(Fate::GOOD);
        match part {
            None => Poll::Ready(None),
            Some(Ok(part)) => match self.left.checked_sub(part.len() as u64) {
                Some(left) => {
                    self.left = left;
                    Poll::Ready(Some(Ok(part)))
                }
                None => self.fate.seal(Fate::LONG, "it is too long"),
            },
            Some(Err(_)) => self.fate.seal(Fate::BROKEN, "the client broke it off"),
        }
    }
}

impl Fate {
    const GOOD: u8 = 0;
    const LONG: u8 = 1;
    const BROKEN: u8 = 2;
    /// Nothing is wrong, but the client takes its time.
    const AWAITED: u8 = 3;

    fn new() -> Self {
        Self(Arc::new(AtomicU8::new(Self::GOOD)))
    }

    fn set(&self, fate: u8) {
        self.0.store(fate, Ordering::Relaxed);
    }

    fn seal(&self, fate: u8, why: &'static str) -> Poll<Part> {
        self.set(fate);
        Poll::Ready(Some(Err(Broken(why))))
    }

    /// More of it is to come, and the client takes its time.
    pub(super) fn is_awaited(&self) -> bool {
        self.0.load(Ordering::Relaxed) == Self::AWAITED
    }

    /// It was longer than it may be.
    pub(super) fn was_too_long(&self) -> bool {
        self.0.load(Ordering::Relaxed) == Self::LONG
    }

    /// The client broke it off, or it made no sense.
    pub(super) fn was_broken(&self) -> bool {
        self.0.load(Ordering::Relaxed) == Self::BROKEN
    }
}
