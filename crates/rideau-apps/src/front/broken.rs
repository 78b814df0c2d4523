//! Why a body came to its end too soon.

use std::fmt;

use hyper::body::Bytes;

/// A body that came to its end too soon, and why.
#[derive(Clone, Copy, Debug)]
pub(super) struct Broken(pub(super) &'static str);

/// The app ended before its answer did.
pub(super) const CUT: Broken = Broken("answer_broken");
/// The app took too long for it.
pub(super) const SLOW: Broken = Broken("request_timeout");

/// It is a stream, and its process has to go, or nothing came of it for too long.
pub(super) const STREAM_OVER: Broken = Broken("stream_over");

/// A part of a body, or why there is none any more.
pub(super) type Part = Option<Result<Bytes, Broken>>;

impl Broken {
    /// For programs, if an app is to blame.
    pub(super) const fn word(self) -> &'static str {
        self.0
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Broken {}
