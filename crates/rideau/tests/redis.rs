//! Connections to a real Redis server.

#[path = "server/redis.rs"]
mod server;

use redis::{AsyncCommands, AsyncConnectionConfig, RedisResult};
use rideau::adapters::{Redis, RedisConnection};
use rideau::{About, Held, Manager, Pool, PoolOptions, Retired, queue};
use server::{PATIENCE, Server, until};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::task::JoinSet;
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

/// Members of a pool, the tasks that use them, and what each of those does
/// after the server was restarted.
const MEMBERS: usize = 4;
const HOLDERS: usize = 50;
const SHARE: usize = 20;

#[derive(Default)]
struct Board {
    answered: AtomicUsize,
    failed: AtomicUsize,
    restarted: AtomicBool,
}

/// Count until the server was restarted, and then for a share; whatever fails is
/// tried again.
async fn work(pool: Pool<Redis>, board: Arc<Board>) {
    let mut share = SHARE;
    while share > 0 {
        let restarted = board.restarted.load(Ordering::SeqCst);
        let mut connection = pool.take().await.expect("no take is shed");
        match connection.incr::<_, _, u64>("count", 1).await {
            Ok(_) => {
                board.answered.fetch_add(1, Ordering::SeqCst);
                share -= usize::from(restarted);
            }
            Err(_) => {
                board.failed.fetch_add(1, Ordering::SeqCst);
                Held::fail(connection);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_costs_a_pool_no_more_than_the_commands_under_way() {
    let server = Server::start().await;
    let options = PoolOptions {
        max: MEMBERS,
        queue: queue::Options::timeout(PATIENCE),
        ..PoolOptions::default()
    };
    let redis = Redis {
        // A slow answer is no failure here.
        config: AsyncConnectionConfig::new().set_response_timeout(None),
        ..Redis::open(server.address()).unwrap()
    };
    let pool = Pool::new(redis, options).unwrap();
    let board = Arc::new(Board::default());
    let mut holders = JoinSet::new();
    for _ in 0..HOLDERS {
        holders.spawn(work(pool.clone(), Arc::clone(&board)));
    }

    let mut observer = server.observer().await;
    until("all are at work", async || {
        assert!(observer.count().await <= MEMBERS);
        board.answered.load(Ordering::SeqCst) > 10 * HOLDERS
    })
    .await;
    assert_eq!(board.failed.load(Ordering::SeqCst), 0);
    let server = server.restart().await;
    board.restarted.store(true, Ordering::SeqCst);

    let mut observer = server.observer().await;
    until("all have done their share", async || {
        assert!(observer.count().await <= MEMBERS);
        while let Some(holder) = holders.try_join_next() {
            holder.unwrap();
        }
        holders.is_empty()
    })
    .await;
    let failed = board.failed.load(Ordering::SeqCst);
    assert!(failed <= MEMBERS, "{failed} commands failed");
    let retired: u64 = pool.stats().retired.iter().sum();
    assert!(retired > 0, "no member noticed the restart");

    let mut held = Vec::new();
    for _ in 0..MEMBERS {
        held.push(soon(pool.take()).await.unwrap());
    }
    for connection in &mut held {
        connection.ping::<()>().await.unwrap();
    }
    assert_eq!(observer.count().await, MEMBERS);
    drop(held);
    soon(pool.close(PATIENCE)).await;
    until("all are gone", async || observer.count().await == 0).await;
}
