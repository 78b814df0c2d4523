//! Layers of [tower](https://docs.rs/tower) over a regulator, a pool and a broker.
//!
//! `poll_ready` asks, and waits for the grant; `call` uses it, and its future keeps it to its
//! end. So a service is ready only when its request can be served at once. A refusal does not
//! break the service: it is ready as well, and answers that one request with
//! [`ServiceError::Refused`], which has the reason and when to ask again. A clone has neither
//! the grant nor the wait of the service that it comes from.
//!
//! ```
//! use rideau::tower::{LimitLayer, ServiceError};
//! use rideau::{AskOptions, Reason, Regulator, RegulatorOptions, valve};
//! use tower_layer::Layer;
//! # use std::convert::Infallible;
//! # use std::future::poll_fn;
//! # use std::task::{Context, Poll};
//! use tower_service::Service;
//!
//! # #[derive(Clone)]
//! # struct Echo;
//! # impl Service<u32> for Echo {
//! #     type Response = u32;
//! #     type Error = Infallible;
//! #     type Future = std::future::Ready<Result<u32, Infallible>>;
//! #     fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
//! #         Poll::Ready(Ok(()))
//! #     }
//! #     fn call(&mut self, request: u32) -> Self::Future {
//! #         std::future::ready(Ok(request))
//! #     }
//! # }
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let valve = valve::Options::Open(valve::Open { max: 1 });
//! let regulator = Regulator::new(RegulatorOptions::new(valve))?;
//! let terms = AskOptions::within(std::time::Duration::from_millis(10));
//! let mut service = LimitLayer::new(&regulator).on(terms).layer(Echo);
//!
//! poll_fn(|context| service.poll_ready(context)).await?;
//! assert_eq!(regulator.size(), 1);                      // the lease is held already
//! let mut other = service.clone();
//! poll_fn(|context| other.poll_ready(context)).await?;  // refused after 10 ms
//! let Err(ServiceError::Refused(refusal)) = other.call(2).await else {
//!     panic!("there is one lease alone");
//! };
//! assert_eq!(refusal.reason, Reason::Deadline);
//! assert_eq!(service.call(1).await?, 1);
//! assert_eq!(regulator.size(), 0);
//! # Ok(())
//! # }
//! ```

mod layers;
mod readiness;
mod response;

use std::error::Error;
use std::fmt;

pub use layers::{Lend, LendLayer, Limit, LimitLayer, Meet, MeetLayer};
pub use response::ResponseFuture;

/// Why a request got no answer.
#[derive(Clone, Debug)]
pub enum ServiceError<R, E> {
    /// It was refused: the inner service has not seen it.
    Refused(R),
    /// The error of the inner service.
    Inner(E),
}

impl<R: fmt::Display, E: fmt::Display> fmt::Display for ServiceError<R, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => refusal.fmt(f),
            Self::Inner(error) => error.fmt(f),
        }
    }
}

impl<R: Error, E: Error> Error for ServiceError<R, E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        // Their own words are ours already.
        match self {
            Self::Refused(refusal) => refusal.source(),
            Self::Inner(error) => error.source(),
        }
    }
}
