//! A body as it comes from a client: no longer than it may be, and not too slowly.

use std::io;
use std::task::{Context, Poll, ready};

use hyper::body::Bytes;

use super::Source;
use crate::front::rate_watch::RateWatch;

/// Why a body was not read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::front) enum Unread {
    /// It is longer than it may be.
    TooLarge,
    /// It comes too slowly.
    TooSlow,
    /// It makes no sense, or was broken off.
    Broken,
    /// There is no room for it.
    NoRoom,
}

/// A body as it comes.
pub(in crate::front) struct Inflow {
    source: Source,
    /// How many bytes may still come.
    left: u64,
    watch: RateWatch,
}

impl Inflow {
    pub(in crate::front) fn new(source: Source, body_max: u64, rate_min: Option<u64>) -> Self {
        Self {
            source,
            left: body_max,
            watch: RateWatch::sent(rate_min),
        }
    }

    /// The next part of it, which is one of something; none after its end.
    pub(super) fn poll_part(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, Unread>> {
        loop {
            let Poll::Ready(part) = self.source.poll_part(context) else {
                ready!(self.watch.poll_slow(context));
                return Poll::Ready(Err(Unread::TooSlow));
            };
            let Some(part) = part.map_err(|error| Unread::from(&error))? else {
                return Poll::Ready(Ok(None));
            };
            self.watch.passed(part.len());
            let Some(left) = self.left.checked_sub(part.len() as u64) else {
                return Poll::Ready(Err(Unread::TooLarge));
            };
            self.left = left;
            if !part.is_empty() {
                return Poll::Ready(Ok(Some(part)));
            }
        }
    }

    /// No part of it is waited for.
    pub(super) fn pause(&mut self) {
        self.watch.pause();
    }
}

impl From<&io::Error> for Unread {
    fn from(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::TimedOut => Self::TooSlow,
            _ => Self::Broken,
        }
    }
}
