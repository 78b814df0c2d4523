//! Connections to a real PostgreSQL server.

#[path = "server/postgres.rs"]
mod server;
#[path = "../examples/pool_tutorial.rs"]
#[allow(dead_code, reason = "its `main` is not used here")]
mod tutorial;

use rideau::adapters::{Postgres, PostgresClient, Recycle};
use rideau::{About, Held, Manager, Pool, PoolOptions, Retired, queue};
use server::{PATIENCE, Server, until};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_postgres::error::SqlState;

/// What a test waits for, which must come.
async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(PATIENCE, future).await.expect("it takes too long")
}

async fn started(postgres: &Postgres) -> PostgresClient {
    soon(postgres.start()).await.expect("the server is ready")
}

/// What is known of a member that has been used.
fn used() -> About {
    let mut about = About::default();
    about.uses = 1;
    about
}

async fn setting(client: &PostgresClient, name: &str) -> String {
    let row = client
        .query_one("select current_setting($1)", &[&name])
        .await;
    row.expect("the setting exists").get(0)
}

#[tokio::test]
async fn a_started_connection_answers_and_is_checked() {
    let server = Server::shared().await;
    let postgres = Postgres::new(server.config("answers"));
    let mut client = started(&postgres).await;
    let row = client.query_one("select 6 * 7", &[]).await.unwrap();
    assert_eq!(row.get::<_, i32>(0), 42);
    assert!(!postgres.is_broken(&mut client));
    soon(postgres.check(&mut client, &used())).await.unwrap();
}

#[tokio::test]
async fn a_manager_is_read_from_a_string() {
    let postgres: Postgres = "postgresql://anna@127.0.0.1:5433/shop".parse().unwrap();
    assert_eq!(postgres.config.get_ports(), [5433]);
    assert_eq!(postgres.config.get_dbname(), Some("shop"));
    assert_eq!(postgres.recycle, Recycle::Fast);
    assert!("host".parse::<Postgres>().is_err());
}

#[tokio::test]
async fn a_server_that_is_not_there_is_an_error() {
    let postgres: Postgres = "host=127.0.0.1 port=1 user=anna".parse().unwrap();
    assert!(soon(postgres.start()).await.is_err());
}

#[tokio::test]
async fn a_connection_that_the_server_cuts_is_lost_and_broken() {
    let server = Server::shared().await;
    let observer = server.observer().await;
    let postgres = Postgres::new(server.config("cut"));
    let mut client = started(&postgres).await;
    let lost = postgres.lost(&client);

    observer.terminate("cut").await;
    soon(lost).await;
    assert!(postgres.is_broken(&mut client));
    assert!(soon(postgres.check(&mut client, &used())).await.is_err());
    soon(postgres.stop(client, Retired::Lost)).await;
}

#[tokio::test]
async fn a_restart_of_the_server_loses_a_connection_and_another_can_start() {
    let server = Server::start().await;
    let postgres = Postgres::new(server.config("restarted"));
    let mut client = started(&postgres).await;
    let lost = postgres.lost(&client);

    let _server = server.restart().await;
    soon(lost).await;
    assert!(postgres.is_broken(&mut client));
    let mut client = started(&postgres).await;
    soon(postgres.check(&mut client, &used())).await.unwrap();
}

#[tokio::test]
async fn a_stopped_connection_is_gone_from_the_server() {
    let server = Server::shared().await;
    let observer = server.observer().await;
    let postgres = Postgres::new(server.config("stopped"));
    let client = started(&postgres).await;
    let lost = postgres.lost(&client);
    assert_eq!(observer.count("stopped").await, 1);

    soon(postgres.stop(client, Retired::Idle)).await;
    soon(lost).await;
    until("it is gone", async || observer.count("stopped").await == 0).await;
}

#[tokio::test]
async fn an_abort_ends_the_query_that_runs() {
    let server = Server::shared().await;
    let observer = server.observer().await;
    let postgres = Postgres::new(server.config("aborted"));
    let client = started(&postgres).await;
    let lost = postgres.lost(&client);
    let abort = postgres.abort(&client).expect("it can be aborted");
    let held = tokio::spawn(async move {
        let slept = client.batch_execute("select pg_sleep(600)").await;
        (client, slept)
    });
    until("it sleeps", async || observer.busy("aborted").await == 1).await;

    // A pool may be closed on a plain thread.
    std::thread::spawn(abort).join().unwrap();
    let (mut client, slept) = soon(held).await.unwrap();
    assert!(slept.unwrap_err().is_closed());
    soon(lost).await;
    assert!(postgres.is_broken(&mut client));
    until("it is gone", async || observer.count("aborted").await == 0).await;
}

#[tokio::test]
async fn giving_up_on_a_stop_cancels_what_still_runs() {
    let server = Server::shared().await;
    let observer = server.observer().await;
    let postgres = Postgres::new(server.config("orphan"));
    let client = started(&postgres).await;
    // Sent, and then no task is there for the answer.
    drop(
        client
            .simple_query_raw("select pg_sleep(600)")
            .await
            .unwrap(),
    );
    until("it sleeps", async || observer.busy("orphan").await == 1).await;

    let stop = postgres.stop(client, Retired::Closed);
    assert!(timeout(Duration::from_millis(50), stop).await.is_err());
    until("it is gone", async || observer.count("orphan").await == 0).await;
}

#[tokio::test]
async fn a_fast_check_leaves_the_session_as_it_is() {
    let server = Server::shared().await;
    let postgres = Postgres::new(server.config("fast"));
    let mut client = started(&postgres).await;
    client
        .batch_execute("begin; set work_mem = '1MB'")
        .await
        .unwrap();
    soon(postgres.check(&mut client, &used())).await.unwrap();
    assert_eq!(setting(&client, "work_mem").await, "1MB");
}

#[tokio::test]
async fn a_clean_check_undoes_what_the_last_holder_left() {
    let server = Server::shared().await;
    let postgres = Postgres {
        recycle: Recycle::Clean,
        ..Postgres::new(server.config("clean"))
    };
    let mut client = started(&postgres).await;
    let untouched = setting(&client, "work_mem").await;
    let left = "create temporary table leftover (); set work_mem = '1MB'; \
        select pg_advisory_lock(7); begin; create table unfinished ()";
    client.batch_execute(left).await.unwrap();
    // The driver's own statements, for types it does not know, must survive.
    let kind = "create type pg_temp.mood as enum ('calm')";
    client.batch_execute(kind).await.unwrap();
    client.prepare("select 'calm'::pg_temp.mood").await.unwrap();

    soon(postgres.check(&mut client, &used())).await.unwrap();
    assert_eq!(setting(&client, "work_mem").await, untouched);
    let gone = "select to_regclass('leftover') is null and to_regclass('unfinished') is null \
        and not exists (select from pg_locks where locktype = 'advisory' and objid = 7)";
    let row = client.query_one(gone, &[]).await.unwrap();
    assert!(row.get::<_, bool>(0));
    client.batch_execute(kind).await.unwrap();
    client.prepare("select 'calm'::pg_temp.mood").await.unwrap();
}

#[tokio::test]
async fn a_clean_check_ends_a_failed_transaction() {
    let server = Server::shared().await;
    let postgres = Postgres {
        recycle: Recycle::Clean,
        ..Postgres::new(server.config("failed"))
    };
    let mut client = started(&postgres).await;
    client.batch_execute("begin").await.unwrap();
    assert!(client.batch_execute("select 1 / 0").await.is_err());
    let refused = client.batch_execute("select 1").await.unwrap_err();
    let failed = SqlState::IN_FAILED_SQL_TRANSACTION;
    assert_eq!(refused.code(), Some(&failed));

    soon(postgres.check(&mut client, &used())).await.unwrap();
    client.batch_execute("select 1").await.unwrap();
    // And once more, on a connection that needs no cleaning.
    soon(postgres.check(&mut client, &used())).await.unwrap();
}

/// Members of a pool, the tasks that use them, and what each of those does
/// after the server was restarted.
const MEMBERS: usize = 8;
const HOLDERS: usize = 200;
const SHARE: usize = 20;

#[derive(Default)]
struct Board {
    answered: AtomicUsize,
    failed: AtomicUsize,
    restarted: AtomicBool,
}

/// Query until the server was restarted, and then for a share; whatever fails is
/// tried again.
async fn work(pool: Pool<Postgres>, board: Arc<Board>, number: i32) {
    let mut share = SHARE;
    while share > 0 {
        let restarted = board.restarted.load(Ordering::SeqCst);
        let client = pool.take().await.expect("no take is shed");
        match client.query_one("select $1::int4", &[&number]).await {
            Ok(row) => {
                assert_eq!(row.get::<_, i32>(0), number);
                board.answered.fetch_add(1, Ordering::SeqCst);
                share -= usize::from(restarted);
            }
            Err(_) => {
                board.failed.fetch_add(1, Ordering::SeqCst);
                Held::fail(client);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_costs_a_pool_no_more_than_the_queries_under_way() {
    let server = Server::start().await;
    let options = PoolOptions {
        max: MEMBERS,
        queue: queue::Options::timeout(PATIENCE),
        ..PoolOptions::default()
    };
    let pool = Pool::new(Postgres::new(server.config("pooled")), options).unwrap();
    let board = Arc::new(Board::default());
    let mut holders = JoinSet::new();
    for number in 0..HOLDERS {
        let number = i32::try_from(number).unwrap();
        holders.spawn(work(pool.clone(), Arc::clone(&board), number));
    }
    let most = i64::try_from(MEMBERS).unwrap();

    let observer = server.observer().await;
    until("all are at work", async || {
        assert!(observer.count("pooled").await <= most);
        board.answered.load(Ordering::SeqCst) > 10 * HOLDERS
    })
    .await;
    assert_eq!(board.failed.load(Ordering::SeqCst), 0);
    let server = server.restart().await;
    board.restarted.store(true, Ordering::SeqCst);

    let observer = server.observer().await;
    until("all have done their share", async || {
        assert!(observer.count("pooled").await <= most);
        while let Some(holder) = holders.try_join_next() {
            holder.unwrap();
        }
        holders.is_empty()
    })
    .await;
    let failed = board.failed.load(Ordering::SeqCst);
    assert!(failed <= MEMBERS, "{failed} queries failed");
    let retired: u64 = pool.stats().retired.iter().sum();
    assert!(retired > 0, "no member noticed the restart");

    let mut held = Vec::new();
    for _ in 0..MEMBERS {
        held.push(soon(pool.take()).await.unwrap());
    }
    for client in &held {
        client.query_one("select 1", &[]).await.unwrap();
    }
    assert_eq!(observer.count("pooled").await, most);
    drop(held);
    soon(pool.close(PATIENCE)).await;
    until("all are gone", async || observer.count("pooled").await == 0).await;
}

#[tokio::test]
async fn closing_a_pool_at_once_ends_the_queries_of_its_holders() {
    let server = Server::shared().await;
    let observer = server.observer().await;
    let manager = Postgres::new(server.config("closed"));
    let pool = Pool::new(manager, PoolOptions::default()).unwrap();
    let held = tokio::spawn({
        let pool = pool.clone();
        async move {
            let client = pool.take().await.unwrap();
            client.batch_execute("select pg_sleep(600)").await
        }
    });
    until("it sleeps", async || observer.busy("closed").await == 1).await;

    soon(pool.close_now()).await;
    assert!(soon(held).await.unwrap().is_err());
    until("it is gone", async || observer.count("closed").await == 0).await;
}

/// Which session it is, and whether it is in a transaction.
const SESSION: &str = "select pg_backend_pid(), pg_current_xact_id_if_assigned() is not null";

/// A pool of one connection that is cleaned before each hand-out.
fn one_cleaned(server: &Server, name: &str) -> Pool<Postgres> {
    let manager = Postgres {
        recycle: Recycle::Clean,
        ..Postgres::new(server.config(name))
    };
    let options = PoolOptions {
        max: 1,
        check_after: Some(Duration::ZERO),
        ..PoolOptions::default()
    };
    Pool::new(manager, options).expect("these options keep every rule")
}

#[tokio::test]
async fn a_pool_that_cleans_does_not_keep_an_open_transaction_idle() {
    let server = Server::shared().await;
    let pool = one_cleaned(&server, "kept");
    let dirty = soon(pool.take()).await.unwrap();
    let left = "begin; create table kept ()";
    dirty.batch_execute(left).await.unwrap();
    let before = dirty.query_one(SESSION, &[]).await.unwrap();
    assert!(before.get::<_, bool>(1));
    drop(dirty);

    let clean = soon(pool.take()).await.unwrap();
    let after = clean.query_one(SESSION, &[]).await.unwrap();
    assert_eq!(after.get::<_, i32>(0), before.get::<_, i32>(0));
    assert!(!after.get::<_, bool>(1));
}

#[tokio::test]
async fn a_pool_that_cleans_hands_on_no_open_transaction_to_a_waiting_take() {
    let server = Server::shared().await;
    let pool = one_cleaned(&server, "handed-on");
    let dirty = soon(pool.take()).await.unwrap();
    let left = "begin; create table handed_on ()";
    dirty.batch_execute(left).await.unwrap();
    let before = dirty.query_one(SESSION, &[]).await.unwrap();
    assert!(before.get::<_, bool>(1));

    let waiting = tokio::spawn({
        let pool = pool.clone();
        async move {
            let client = pool.take().await.unwrap();
            client.query_one(SESSION, &[]).await.unwrap()
        }
    });
    until("it waits", async || pool.stats().len() == 1).await;
    drop(dirty);
    let after = soon(waiting).await.unwrap();
    assert_eq!(after.get::<_, i32>(0), before.get::<_, i32>(0));
    assert!(!after.get::<_, bool>(1));
}

#[tokio::test]
async fn the_program_of_the_tutorial_serves_or_refuses_everybody() {
    let page = include_str!("../../../docs/tutorial-pool.md");
    let program = include_str!("../examples/pool_tutorial.rs");
    assert!(page.contains(&format!("```rust,no_run\n{program}```\n")));
    let server = Server::shared().await;
    let visits = tutorial::visits(Postgres::new(server.config("tutorial")), 100);
    let (served, refused) = soon(visits).await.unwrap();
    assert_eq!(served + refused, 100);
    assert!(served >= 4, "{served} were served");
}
