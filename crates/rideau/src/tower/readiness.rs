//! How far a service is with the ask for its next request.

use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// The ask of a service. `W` waits for it, and gives `G`, or `R` if it is refused.
#[derive(Debug)]
pub(super) enum Readiness<W, G, R> {
    /// Nothing was asked for yet.
    Fresh,
    Waiting(W),
    Granted(G),
    Refused(R),
}

impl<W, G, R> Readiness<W, G, R>
where
    W: Future<Output = Result<G, R>> + Unpin,
{
    /// Ask if that was not done yet, and wait for the answer. True if it was granted.
    pub(super) fn poll_granted(
        &mut self,
        ask: impl FnOnce() -> W,
        context: &mut Context<'_>,
    ) -> Poll<bool> {
        if matches!(self, Self::Fresh) {
            *self = Self::Waiting(ask());
        }
        if let Self::Waiting(wait) = self {
            *self = match ready!(Pin::new(wait).poll(context)) {
                Ok(grant) => Self::Granted(grant),
                Err(refusal) => Self::Refused(refusal),
            };
        }
        Poll::Ready(matches!(self, Self::Granted(_)))
    }

    /// The answer, for one request.
    ///
    /// # Panics
    ///
    /// If the service was not ready.
    pub(super) fn take(&mut self) -> Result<G, R> {
        match mem::replace(self, Self::Fresh) {
            Self::Granted(grant) => Ok(grant),
            Self::Refused(refusal) => Err(refusal),
            Self::Fresh | Self::Waiting(_) => {
                panic!("a service is called when `poll_ready` has said that it is ready")
            }
        }
    }
}
