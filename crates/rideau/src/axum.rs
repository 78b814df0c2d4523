//! Extractors and responses for [axum](https://docs.rs/axum).
//!
//! A handler that has a [`Lent`] among its arguments is called with a member of a pool, and one
//! that has a [`Granted`] with a lease of a regulator. The pool or the regulator is the state of
//! the router, or a part of it that `FromRef` finds. A request that is refused is answered with
//! [`Overloaded`]: the handler is not called.
//!
//! ```
//! use rideau::axum::{Lent, Overloaded};
//! use rideau::{Manager, Pool};
//!
//! # struct Sessions;
//! # impl Manager for Sessions {
//! #     type Member = String;
//! #     type Error = std::convert::Infallible;
//! #     async fn start(&self) -> Result<String, Self::Error> {
//! #         Ok("a session".into())
//! #     }
//! # }
//! async fn name(Lent(session): Lent<Sessions>) -> String {
//!     session.clone()
//! }
//!
//! // The same by hand.
//! async fn same(pool: Pool<Sessions>) -> Result<String, Overloaded> {
//!     Ok(pool.take().await?.clone())
//! }
//! ```
//!
//! With `Router::new().route("/", get(name)).with_state(pool)` the pool is the state.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum_core::extract::{FromRef, FromRequestParts};
use axum_core::response::{IntoResponse, Response};
use http::request::Parts;
use http::{HeaderName, StatusCode, header};
use rideau_core::{Reason, Refusal};

use crate::ask_options::AskOptions;
use crate::pool::{Held, Manager, NotTaken, Pool};
use crate::regulator::{Lease, Regulator};

/// A member of the pool in the router's state, for as long as the handler keeps it.
pub struct Lent<M: Manager>(pub Held<'static, M>);

/// A lease of the regulator in the router's state, for as long as the handler keeps it.
#[derive(Debug)]
pub struct Granted(pub Lease);

/// A request that was refused: 503 with `Retry-After`, and with `rideau-id`, the id of a log
/// line that says all that is known.
///
/// The client is told the reason alone: holders and errors of other servers are none of its
/// business.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Overloaded {
    id: u64,
    refusal: Refusal,
}

/// The header with the id of a refusal.
const ID: HeaderName = HeaderName::from_static("rideau-id");

impl Overloaded {
    fn new(refusal: Refusal, text: &dyn fmt::Display) -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let id = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        let reason = refusal.reason.word();
        tracing::info!(
            id = format_args!("d-{id}"),
            reason,
            "a request was refused: {text}"
        );
        Self { id, refusal }
    }

    /// The id, as the client and the log have it.
    pub fn id(&self) -> String {
        format!("d-{}", self.id)
    }

    /// The reason, and when to ask again.
    pub fn refusal(&self) -> &Refusal {
        &self.refusal
    }

    /// Whole seconds, for that is all that the header can say; none if there is no better time.
    fn retry_after(&self) -> Option<u64> {
        let span = self.refusal.retry_after;
        let seconds = span.as_secs() + u64::from(span > Duration::from_secs(span.as_secs()));
        (self.refusal.reason != Reason::Closed).then_some(seconds.max(1))
    }
}

impl From<NotTaken> for Overloaded {
    fn from(no: NotTaken) -> Self {
        Self::new(no.refusal, &no)
    }
}

impl From<Refusal> for Overloaded {
    fn from(refusal: Refusal) -> Self {
        Self::new(refusal, &refusal)
    }
}

impl IntoResponse for Overloaded {
    fn into_response(self) -> Response {
        let (reason, id) = (self.refusal.reason, self.id());
        let text = format!("{reason} ({}) [{id}]\n", reason.word());
        let mut response = (StatusCode::SERVICE_UNAVAILABLE, [(ID, id)], text).into_response();
        if let Some(seconds) = self.retry_after() {
            response
                .headers_mut()
                .insert(header::RETRY_AFTER, seconds.into());
        }
        response
    }
}

impl<M: Manager<Member: fmt::Debug>> fmt::Debug for Lent<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lent").field(&self.0).finish()
    }
}

impl<M, S> FromRequestParts<S> for Lent<M>
where
    M: Manager,
    Pool<M>: FromRef<S>,
    S: Send + Sync,
{
    type Rejection = Overloaded;

    async fn from_request_parts(_: &mut Parts, state: &S) -> Result<Self, Overloaded> {
        let take = Pool::from_ref(state).take_owned(AskOptions::default());
        Ok(Self(take.await?))
    }
}

impl<S> FromRequestParts<S> for Granted
where
    Regulator: FromRef<S>,
    S: Send + Sync,
{
    type Rejection = Overloaded;

    async fn from_request_parts(_: &mut Parts, state: &S) -> Result<Self, Overloaded> {
        let asking = Regulator::from_ref(state).begin_ask(AskOptions::default());
        Ok(Self(asking.await?))
    }
}
