//! Connections to a real PostgreSQL server.

#[path = "server/postgres.rs"]
mod server;

use rideau::adapters::{Postgres, PostgresClient, Recycle};
use rideau::{About, Manager, Retired};
use server::{PATIENCE, Server, until};
use tokio::time::timeout;
use tokio_postgres::error::SqlState;

/// What a test waits for, which must come.
async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(PATIENCE, future).await.expect("it takes too long")
}

async fn started(postgres: &Postgres) -> PostgresClient {
    soon(postgres.start()).await.expect("the server is ready")
}

/// What is known of a member that somebody has used.
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

    // Whoever closes a pool may be on a plain thread.
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
    // Sent, and then nobody is there for the answer.
    drop(
        client
            .simple_query_raw("select pg_sleep(600)")
            .await
            .unwrap(),
    );
    until("it sleeps", async || observer.busy("orphan").await == 1).await;

    let stop = postgres.stop(client, Retired::Closed);
    assert!(
        timeout(std::time::Duration::from_millis(50), stop)
            .await
            .is_err()
    );
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
