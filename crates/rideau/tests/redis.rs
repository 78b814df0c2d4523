//! Connections to a real Redis server.

#[path = "server/redis.rs"]
mod server;

use redis::{AsyncCommands, AsyncConnectionConfig, RedisResult};
use rideau::adapters::{Redis, RedisConnection};
use rideau::{About, Manager, Retired};
use server::{PATIENCE, Server, until};
use tokio::time::timeout;

/// What a test waits for, which must come.
async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(PATIENCE, future).await.expect("it takes too long")
}

async fn started(redis: &Redis) -> RedisConnection {
    soon(redis.start()).await.expect("the server is ready")
}

async fn check(redis: &Redis, connection: &mut RedisConnection) -> RedisResult<()> {
    soon(redis.check(connection, &About::default())).await
}

#[tokio::test]
async fn a_started_connection_answers_and_is_checked() {
    let server = Server::start().await;
    for address in [server.address(), server.unix_address()] {
        let redis = Redis::open(address).unwrap();
        let mut connection = started(&redis).await;
        connection.set::<_, _, ()>("key", 42).await.unwrap();
        assert_eq!(connection.get::<_, u32>("key").await.unwrap(), 42);
        assert!(!redis.is_broken(&mut connection));
        check(&redis, &mut connection).await.unwrap();
    }
}

#[tokio::test]
async fn a_pipeline_goes_over_a_lent_connection() {
    let server = Server::start().await;
    let redis = Redis::open(server.address()).unwrap();
    let mut connection = started(&redis).await;
    let mut pipeline = redis::pipe();
    pipeline.atomic().incr("key", 1).incr("key", 2);
    let sums: (u32, u32) = pipeline.query_async(&mut *connection).await.unwrap();
    assert_eq!(sums, (1, 3));
}

#[tokio::test]
async fn a_server_that_is_not_there_is_an_error() {
    let redis = Redis::open("redis://127.0.0.1:1/").unwrap();
    assert!(soon(redis.start()).await.is_err());
}

#[tokio::test]
async fn a_connection_that_the_server_cuts_is_lost_and_broken() {
    let server = Server::start().await;
    let mut observer = server.observer().await;
    let redis = Redis::open(server.address()).unwrap();
    let mut connection = started(&redis).await;
    let lost = redis.lost(&connection);

    observer.terminate().await;
    soon(lost).await;
    assert!(redis.is_broken(&mut connection));
    assert!(check(&redis, &mut connection).await.is_err());
}

#[tokio::test]
async fn a_restart_of_the_server_loses_a_connection_and_another_can_start() {
    let server = Server::start().await;
    let redis = Redis::open(server.address()).unwrap();
    let connection = started(&redis).await;
    let lost = redis.lost(&connection);

    let _server = server.restart().await;
    soon(lost).await;
    let mut connection = started(&redis).await;
    check(&redis, &mut connection).await.unwrap();
}

#[tokio::test]
async fn a_stopped_connection_is_gone_although_a_clone_of_it_is_kept() {
    let server = Server::start().await;
    let mut observer = server.observer().await;
    let redis = Redis::open(server.address()).unwrap();
    let connection = started(&redis).await;
    let mut kept = (*connection).clone();
    let lost = redis.lost(&connection);
    until("it is there", async || observer.count().await == 1).await;

    soon(redis.stop(connection, Retired::Idle)).await;
    soon(lost).await;
    until("it is gone", async || observer.count().await == 0).await;
    assert!(kept.ping::<()>().await.is_err());
}

#[tokio::test]
async fn an_abort_ends_the_command_that_runs() {
    let server = Server::start().await;
    let mut observer = server.observer().await;
    let redis = Redis {
        config: AsyncConnectionConfig::new().set_response_timeout(None),
        ..Redis::open(server.address()).unwrap()
    };
    let mut connection = started(&redis).await;
    let abort = redis.abort(&connection).expect("it can be aborted");
    let held = tokio::spawn(async move {
        let popped: Result<(String, String), _> = connection.blpop("nothing", 600.0).await;
        (connection, popped)
    });
    until("it is blocked", async || observer.blocked().await == 1).await;

    std::thread::spawn(abort).join().unwrap();
    let (mut connection, popped) = soon(held).await.unwrap();
    assert!(popped.is_err());
    assert!(redis.is_broken(&mut connection));
    until("it is gone", async || observer.count().await == 0).await;
}
