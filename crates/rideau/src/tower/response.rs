//! The response of a service that was asked for.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;

use super::ServiceError;
use crate::regulator::Lease;

pin_project! {
    /// The response, or the refusal. What the request was granted ends with it.
    #[derive(Debug)]
    pub struct ResponseFuture<F, R> {
        #[pin]
        response: Option<F>,
        refusal: Option<R>,
        lease: Option<Lease>,
    }
}

impl<F, R> ResponseFuture<F, R> {
    pub(super) fn of(response: F, lease: Option<Lease>) -> Self {
        Self {
            response: Some(response),
            refusal: None,
            lease,
        }
    }

    pub(super) fn refused(refusal: R) -> Self {
        Self {
            response: None,
            refusal: Some(refusal),
            lease: None,
        }
    }
}

impl<T, E, F, R> Future for ResponseFuture<F, R>
where
    F: Future<Output = Result<T, E>>,
{
    type Output = Result<T, ServiceError<R, E>>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let Some(response) = this.response.as_pin_mut() else {
            let refusal = this.refusal.take();
            let refusal = refusal.expect("a response is not polled after its end");
            return Poll::Ready(Err(ServiceError::Refused(refusal)));
        };
        let answer = ready!(response.poll(context));
        if let Some(lease) = this.lease.take() {
            match &answer {
                Ok(_) => lease.release(),
                Err(_) => lease.fail(),
            }
        }
        Poll::Ready(answer.map_err(ServiceError::Inner))
    }
}
