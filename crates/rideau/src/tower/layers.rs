//! The layers, each with its service.

use std::fmt;
use std::task::{Context, Poll, ready};

use rideau_core::Refusal;
use tower_layer::Layer;
use tower_service::Service;

use super::ServiceError;
use super::readiness::Readiness;
use super::response::ResponseFuture;
use crate::ask_options::AskOptions;
use crate::broker::{Asking, Broker, Refused};
use crate::peer::Match;
use crate::pool::{Held, Manager, NotTaken, Pool, Take};
use crate::regulator::{Lease, Leasing, Regulator};

/// Lets a request through when a regulator grants it a lease.
///
/// The lease ends with the response: as one whose work went well, or, if the response is an
/// error, as one whose work did not. Valves learn from that.
#[derive(Clone, Debug)]
pub struct LimitLayer {
    regulator: Regulator,
    terms: AskOptions,
}

impl LimitLayer {
    /// A layer over this regulator.
    pub fn new(regulator: &Regulator) -> Self {
        Self {
            regulator: regulator.clone(),
            terms: AskOptions::default(),
        }
    }

    /// The same, asking on these terms.
    #[must_use]
    pub fn on(self, terms: AskOptions) -> Self {
        Self { terms, ..self }
    }
}

impl<S> Layer<S> for LimitLayer {
    type Service = Limit<S>;

    fn layer(&self, inner: S) -> Limit<S> {
        Limit {
            layer: self.clone(),
            inner,
            readiness: Readiness::Fresh,
        }
    }
}

/// A service behind a regulator, by [`LimitLayer`].
#[derive(Debug)]
pub struct Limit<S> {
    layer: LimitLayer,
    inner: S,
    readiness: Readiness<Leasing, Lease, Refusal>,
}

impl<S: Clone> Clone for Limit<S> {
    fn clone(&self) -> Self {
        self.layer.layer(self.inner.clone())
    }
}

impl<S: Service<Q>, Q> Service<Q> for Limit<S> {
    type Response = S::Response;
    type Error = ServiceError<Refusal, S::Error>;
    type Future = ResponseFuture<S::Future, Refusal>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        let LimitLayer { regulator, terms } = &self.layer;
        let ask = || regulator.begin_ask(*terms);
        if !ready!(self.readiness.poll_granted(ask, context)) {
            return Poll::Ready(Ok(()));
        }
        self.inner.poll_ready(context).map_err(ServiceError::Inner)
    }

    fn call(&mut self, request: Q) -> Self::Future {
        match self.readiness.take() {
            Ok(lease) => ResponseFuture::of(self.inner.call(request), Some(lease)),
            Err(refusal) => ResponseFuture::refused(refusal),
        }
    }
}

/// Gives each request a member of a pool: the inner service is called with both.
pub struct LendLayer<M: Manager> {
    pool: Pool<M>,
    terms: AskOptions,
}

impl<M: Manager> LendLayer<M> {
    /// A layer over this pool.
    pub fn new(pool: &Pool<M>) -> Self {
        Self {
            pool: pool.clone(),
            terms: AskOptions::default(),
        }
    }

    /// The same, taking on these terms.
    #[must_use]
    pub fn on(self, terms: AskOptions) -> Self {
        Self { terms, ..self }
    }
}

impl<M: Manager> Clone for LendLayer<M> {
    fn clone(&self) -> Self {
        Self::new(&self.pool).on(self.terms)
    }
}

impl<M: Manager> fmt::Debug for LendLayer<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LendLayer")
            .field("pool", &self.pool)
            .finish_non_exhaustive()
    }
}

impl<M: Manager, S> Layer<S> for LendLayer<M> {
    type Service = Lend<M, S>;

    fn layer(&self, inner: S) -> Lend<M, S> {
        Lend {
            layer: self.clone(),
            inner,
            readiness: Readiness::Fresh,
        }
    }
}

/// A service whose requests come with a member of a pool, by [`LendLayer`].
pub struct Lend<M: Manager, S> {
    layer: LendLayer<M>,
    inner: S,
    readiness: Readiness<Take<'static, M>, Held<'static, M>, NotTaken>,
}

impl<M: Manager, S: Clone> Clone for Lend<M, S> {
    fn clone(&self) -> Self {
        self.layer.layer(self.inner.clone())
    }
}

impl<M: Manager, S: fmt::Debug> fmt::Debug for Lend<M, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lend")
            .field("layer", &self.layer)
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

impl<M, S, Q> Service<Q> for Lend<M, S>
where
    M: Manager,
    S: Service<(Held<'static, M>, Q)>,
{
    type Response = S::Response;
    type Error = ServiceError<NotTaken, S::Error>;
    type Future = ResponseFuture<S::Future, NotTaken>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        let LendLayer { pool, terms } = &self.layer;
        let ask = || pool.take_owned(*terms);
        if !ready!(self.readiness.poll_granted(ask, context)) {
            return Poll::Ready(Ok(()));
        }
        self.inner.poll_ready(context).map_err(ServiceError::Inner)
    }

    fn call(&mut self, request: Q) -> Self::Future {
        match self.readiness.take() {
            Ok(held) => ResponseFuture::of(self.inner.call((held, request)), None),
            Err(refusal) => ResponseFuture::refused(refusal),
        }
    }
}

/// Introduces each request to a worker: the inner service is called with the match and the
/// request. The worker is told a copy of one value, such as the name of this client.
pub struct MeetLayer<A: Send + 'static, O: Send + 'static> {
    broker: Broker<A, O>,
    value: A,
    terms: AskOptions,
}

impl<A: Clone + Send + 'static, O: Send + 'static> MeetLayer<A, O> {
    /// A layer over this broker.
    pub fn new(broker: &Broker<A, O>, value: A) -> Self {
        Self {
            broker: broker.clone(),
            value,
            terms: AskOptions::default(),
        }
    }

    /// The same, asking on these terms.
    #[must_use]
    pub fn on(self, terms: AskOptions) -> Self {
        Self { terms, ..self }
    }
}

impl<A: Clone + Send + 'static, O: Send + 'static> Clone for MeetLayer<A, O> {
    fn clone(&self) -> Self {
        Self::new(&self.broker, self.value.clone()).on(self.terms)
    }
}

impl<A: Send + 'static, O: Send + 'static> fmt::Debug for MeetLayer<A, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MeetLayer")
            .field("broker", &self.broker)
            .finish_non_exhaustive()
    }
}

impl<A: Clone + Send + 'static, O: Send + 'static, S> Layer<S> for MeetLayer<A, O> {
    type Service = Meet<A, O, S>;

    fn layer(&self, inner: S) -> Meet<A, O, S> {
        Meet {
            layer: self.clone(),
            inner,
            readiness: Readiness::Fresh,
        }
    }
}

/// A service whose requests come with a worker, by [`MeetLayer`].
pub struct Meet<A: Send + 'static, O: Send + 'static, S> {
    layer: MeetLayer<A, O>,
    inner: S,
    readiness: Readiness<Asking<A, O>, Match<O>, Refused<A>>,
}

impl<A: Clone + Send + 'static, O: Send + 'static, S: Clone> Clone for Meet<A, O, S> {
    fn clone(&self) -> Self {
        self.layer.layer(self.inner.clone())
    }
}

impl<A: Send + 'static, O: Send + 'static, S: fmt::Debug> fmt::Debug for Meet<A, O, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meet")
            .field("layer", &self.layer)
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

impl<A, O, S, Q> Service<Q> for Meet<A, O, S>
where
    A: Clone + Send + 'static,
    O: Send + 'static,
    S: Service<(Match<O>, Q)>,
{
    type Response = S::Response;
    type Error = ServiceError<Refusal, S::Error>;
    type Future = ResponseFuture<S::Future, Refusal>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        let MeetLayer {
            broker,
            value,
            terms,
        } = &self.layer;
        let ask = || broker.begin_ask(value.clone(), *terms);
        if !ready!(self.readiness.poll_granted(ask, context)) {
            return Poll::Ready(Ok(()));
        }
        self.inner.poll_ready(context).map_err(ServiceError::Inner)
    }

    fn call(&mut self, request: Q) -> Self::Future {
        match self.readiness.take() {
            Ok(met) => ResponseFuture::of(self.inner.call((met, request)), None),
            Err(refused) => ResponseFuture::refused(refused.refusal),
        }
    }
}
