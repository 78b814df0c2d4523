//! Layers of tower over a regulator, a pool and a broker, and the responses for axum.

use std::future::{Ready, poll_fn, ready};
use std::task::{Context, Poll};
use std::time::Duration;

use axum_core::extract::FromRequestParts;
use axum_core::response::IntoResponse;
use http::{Request, StatusCode};
use rideau::axum::{Granted, Lent};
use rideau::tower::{LendLayer, Limit, LimitLayer, MeetLayer, ServiceError};
use rideau::{
    AskOptions, Broker, BrokerOptions, Clock, Held, Manager, Match, Pool, PoolOptions, Reason,
    Regulator, RegulatorOptions, valve,
};
use tower_layer::Layer;
use tower_service::Service;

const S: Duration = Duration::from_secs(1);

struct Numbers;

impl Manager for Numbers {
    type Member = u32;
    type Error = std::io::Error;

    async fn start(&self) -> std::io::Result<u32> {
        Ok(7)
    }
}

/// Answers even requests with half of them, and fails for others.
#[derive(Clone)]
struct Halve;

impl Service<u32> for Halve {
    type Response = u32;
    type Error = String;
    type Future = Ready<Result<u32, String>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), String>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: u32) -> Self::Future {
        let half = request.is_multiple_of(2).then_some(request / 2);
        ready(half.ok_or_else(|| format!("{request} is odd")))
    }
}

impl Service<(Held<'static, Numbers>, u32)> for Halve {
    type Response = u32;
    type Error = String;
    type Future = Ready<Result<u32, String>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), String>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, (number, request): (Held<'static, Numbers>, u32)) -> Self::Future {
        ready(Ok(*number + request))
    }
}

impl Service<(Match<u32>, u32)> for Halve {
    type Response = u32;
    type Error = String;
    type Future = Ready<Result<u32, String>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), String>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, (worker, request): (Match<u32>, u32)) -> Self::Future {
        let sum = worker.value + request;
        worker.peer.done();
        ready(Ok(sum))
    }
}

async fn is_ready<T: Service<u32>>(service: &mut T) -> Result<(), T::Error> {
    poll_fn(|context| service.poll_ready(context)).await
}

fn one_at_a_time() -> Regulator {
    let valve = valve::Options::Open(valve::Open { max: 1 });
    Regulator::new_by(RegulatorOptions::new(valve), &Clock::paused())
        .expect("the options break no rule")
}

fn limited(regulator: &Regulator) -> Limit<Halve> {
    LimitLayer::new(regulator)
        .on(AskOptions::within(S))
        .layer(Halve)
}

#[tokio::test(start_paused = true)]
async fn a_service_that_is_ready_holds_its_lease_until_the_response() {
    let regulator = one_at_a_time();
    let mut service = limited(&regulator);
    is_ready(&mut service).await.unwrap();
    is_ready(&mut service).await.unwrap();
    assert_eq!(regulator.size(), 1, "it is asked for once");
    let response = service.call(4);
    assert_eq!(regulator.size(), 1);
    assert_eq!(response.await.unwrap(), 2);
    assert_eq!(regulator.size(), 0);

    is_ready(&mut service).await.unwrap();
    let error = service.call(5).await.unwrap_err();
    assert_eq!(error.to_string(), "5 is odd");
    assert!(matches!(error, ServiceError::Inner(_)));
    assert_eq!(regulator.size(), 0);

    // Neither a service nor a response that is dropped keeps its lease.
    is_ready(&mut service).await.unwrap();
    drop(service.call(4));
    assert_eq!(regulator.size(), 0);
    is_ready(&mut service).await.unwrap();
    drop(service);
    assert_eq!((regulator.size(), regulator.len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_the_answer_to_one_request_and_the_service_works_on() {
    let regulator = one_at_a_time();
    let mut service = limited(&regulator);
    let held = regulator.try_ask().unwrap();
    is_ready(&mut service).await.unwrap();
    let ServiceError::Refused(refusal) = service.call(4).await.unwrap_err() else {
        panic!("there is no lease");
    };
    assert_eq!((refusal.reason, refusal.waited), (Reason::Deadline, S));
    drop(held);
    is_ready(&mut service).await.unwrap();
    assert_eq!(service.call(4).await.unwrap(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_clone_waits_for_itself() {
    let regulator = one_at_a_time();
    let mut service = limited(&regulator);
    is_ready(&mut service).await.unwrap();
    let mut clone = service.clone();
    let polled = poll_fn(|context| Poll::Ready(Service::<u32>::poll_ready(&mut clone, context)));
    assert!(polled.await.is_pending());
    assert_eq!(service.call(4).await.unwrap(), 2);
    is_ready(&mut clone).await.unwrap();
    assert_eq!(clone.call(6).await.unwrap(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_request_comes_with_a_member() {
    let options = PoolOptions {
        max: 1,
        ..PoolOptions::default()
    };
    let pool = Pool::new_by(Numbers, options, &Clock::paused()).unwrap();
    let layer = LendLayer::new(&pool).on(AskOptions::within(S));
    let mut service = layer.layer(Halve);
    is_ready(&mut service).await.unwrap();
    assert_eq!(pool.stats().members.held, 1);
    let mut other = service.clone();
    is_ready(&mut other).await.unwrap();
    let error = other.call(1).await.unwrap_err();
    assert!(matches!(&error, ServiceError::Refused(no) if no.refusal.reason == Reason::Deadline));
    assert_eq!(service.call(1).await.unwrap(), 8);
    assert_eq!(pool.stats().members.held, 0);
}

#[tokio::test(start_paused = true)]
async fn a_request_comes_with_a_worker() {
    let broker = Broker::<&str, u32>::new_by(BrokerOptions::default(), &Clock::paused()).unwrap();
    let layer = MeetLayer::new(&broker, "anna").on(AskOptions::within(S));
    let mut service = layer.layer(Halve);
    is_ready(&mut service).await.unwrap();
    let error = service.call(1).await.unwrap_err();
    assert!(matches!(error, ServiceError::Refused(no) if no.reason == Reason::Deadline));

    let worker = broker.begin_offer(10, AskOptions::default());
    is_ready(&mut service).await.unwrap();
    assert_eq!(service.call(1).await.unwrap(), 11);
    assert_eq!(worker.await.unwrap().value, "anna");
}

#[tokio::test(start_paused = true)]
async fn a_handler_gets_a_member_or_its_client_is_told_when_to_come_back() {
    let options = PoolOptions {
        max: 1,
        ..PoolOptions::default()
    };
    let pool = Pool::new_by(Numbers, options, &Clock::paused()).unwrap();
    let (mut parts, ()) = Request::new(()).into_parts();
    let Lent(number) = Lent::<Numbers>::from_request_parts(&mut parts, &pool)
        .await
        .unwrap();
    assert_eq!(*number, 7);
    Held::note(&number, "a secret of the house");
    let refused = pool.take_on(AskOptions::within(S)).await.unwrap_err();
    let answer = rideau::axum::Overloaded::from(refused);
    let id = answer.id();
    let response = answer.into_response();
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(response.headers()["rideau-id"], id.as_str());
    let seconds: u64 = response.headers()["retry-after"]
        .to_str()
        .unwrap()
        .parse()
        .unwrap();
    assert!(seconds >= 1);

    drop(number);
    pool.close_now().await;
    let refused = Lent::<Numbers>::from_request_parts(&mut parts, &pool).await;
    let response = refused.unwrap_err().into_response();
    assert!(!response.headers().contains_key("retry-after"), "never");
}

#[tokio::test(start_paused = true)]
async fn a_handler_gets_a_lease() {
    let regulator = one_at_a_time();
    let (mut parts, ()) = Request::new(()).into_parts();
    let granted = Granted::from_request_parts(&mut parts, &regulator).await;
    assert_eq!(regulator.size(), 1);
    drop(granted);
    assert_eq!(regulator.size(), 0);
    regulator.close();
    let refused = Granted::from_request_parts(&mut parts, &regulator).await;
    assert_eq!(refused.unwrap_err().refusal().reason, Reason::Closed);
}
