//! Bodies on their way: what a client sends, and what it is sent.
//!
//! Both are streams that are pulled: who cannot take more is not given more.

mod live;
mod pump;
mod read;
mod spool;

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, ready};

use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};

pub(super) use self::live::Live;
use self::pump::Pumped;
pub(super) use self::read::{peek, read};
use self::spool::Spool;
use super::seat::Seat;

/// A body that came to its end too soon.
#[derive(Debug)]
pub(super) struct Broken(&'static str);

/// What a client sends, as a process gets it.
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

/// What a client sends while it is sent on.
pub(super) struct Passing {
    incoming: Incoming,
    /// What was read to see that it is sound.
    first: Option<Bytes>,
    /// As many bytes may still come.
    left: u64,
    fate: Fate,
}

/// What became of a body that was passed on, for who waits for the answer.
#[derive(Clone)]
pub(super) struct Fate(Arc<AtomicU8>);

/// What a client is sent.
pub(super) struct Answer {
    source: Source,
    /// The request is over when this is.
    _visit: Option<Visit>,
}

enum Source {
    /// A page of ours, until it is sent.
    Whole(Option<Bytes>),
    /// What a process sends, as it comes.
    Live(Live),
    /// What a process sent, as far as the client has not taken it.
    Pumped(Pumped),
}

/// A request that is being answered.
pub(super) struct Visit(Arc<Seat>);

impl Upload {
    /// The same once more, if it is still there as a whole.
    pub(super) fn again(&self) -> Option<Self> {
        match self {
            Self::Empty => Some(Self::Empty),
            Self::Whole(bytes) => Some(Self::Whole(bytes.clone())),
            Self::Spooled(_) | Self::Passing(_) => None,
        }
    }

    /// How many bytes it has, if all were read.
    pub(super) fn len(&self) -> Option<u64> {
        match self {
            Self::Empty => Some(0),
            Self::Whole(bytes) => Some(bytes.len() as u64),
            Self::Spooled(spool) => Some(spool.len()),
            Self::Passing(_) => None,
        }
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let this = self.get_mut();
        match this {
            Self::Empty => Poll::Ready(None),
            Self::Whole(bytes) => {
                let bytes = std::mem::take(bytes);
                *this = Self::Empty;
                Poll::Ready((!bytes.is_empty()).then(|| Ok(Frame::data(bytes))))
            }
            Self::Spooled(spool) => {
                let part = spool.pop().map_err(|_| Broken("its file cannot be read"));
                Poll::Ready(part.transpose().map(|part| part.map(Frame::data)))
            }
            Self::Passing(passing) => passing.poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Whole(bytes) => bytes.is_empty(),
            Self::Spooled(spool) => spool.len() == 0,
            Self::Passing(passing) => passing.first.is_none() && passing.incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self.len() {
            Some(len) => SizeHint::with_exact(len),
            None => SizeHint::default(),
        }
    }
}

impl Passing {
    fn poll_frame(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        match ready!(Pin::new(&mut self.incoming).poll_frame(context)) {
            None => Poll::Ready(None),
            Some(Ok(frame)) => {
                let len = frame.data_ref().map_or(0, |part| part.len() as u64);
                match self.left.checked_sub(len) {
                    Some(left) => self.left = left,
                    None => return self.fate.seal(Fate::LONG, "it is too long"),
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Some(Err(_)) => self.fate.seal(Fate::BROKEN, "the client broke it off"),
        }
    }
}

impl Fate {
    const GOOD: u8 = 0;
    const LONG: u8 = 1;
    const BROKEN: u8 = 2;

    fn new() -> Self {
        Self(Arc::new(AtomicU8::new(Self::GOOD)))
    }

    fn seal(&self, fate: u8, why: &'static str) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        self.0.store(fate, Ordering::Relaxed);
        Poll::Ready(Some(Err(Broken(why))))
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

impl Answer {
    /// A page of ours.
    pub(super) fn whole(bytes: Bytes) -> Self {
        let bytes = (!bytes.is_empty()).then_some(bytes);
        Self {
            source: Source::Whole(bytes),
            _visit: None,
        }
    }

    /// What a process sends, as it comes.
    pub(super) fn live(live: Live) -> Self {
        Self {
            source: Source::Live(live),
            _visit: None,
        }
    }

    /// What a process sends, without making it wait for the client.
    ///
    /// Most answers are short and have come already, and need no pump.
    pub(super) async fn buffered(mut live: Live) -> Self {
        let hint = live.size_hint();
        let came = poll_fn(|context| Poll::Ready(live.poll_frame(context))).await;
        let first = match came {
            Poll::Ready(Some(Ok(frame))) => frame.into_data().ok(),
            _ => None,
        };
        if live.is_over() {
            return Self::whole(first.unwrap_or_default());
        }
        Self {
            source: Source::Pumped(Pumped::begin(live, first, hint)),
            _visit: None,
        }
    }

    /// The request is over when this is.
    pub(super) fn with(mut self, visit: Visit) -> Self {
        self._visit = Some(visit);
        self
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        match &mut self.source {
            Source::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Source::Live(live) => live.poll_frame(context),
            Source::Pumped(pumped) => pumped.poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Whole(bytes) => bytes.is_none(),
            Source::Live(live) => live.is_over(),
            Source::Pumped(pumped) => pumped.is_over(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Source::Live(live) => live.size_hint(),
            Source::Pumped(pumped) => pumped.size_hint(),
        }
    }
}

impl Visit {
    pub(super) fn new(seat: &Arc<Seat>) -> Self {
        seat.enter();
        Self(Arc::clone(seat))
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.0.leave();
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Broken {}
