//! What a changed file means for processes that run.

use crate::tests::members::harness::{Server, runs, until};

fn pool(seconds: u32, more: &str) -> String {
    format!("[pool.p]\nmember = {{ exec = [\"sleep\", \"{seconds}\"] }}\nmax = 1\n{more}")
}

#[tokio::test]
async fn another_program_is_for_new_takes_and_a_holder_keeps_the_old() {
    let server = Server::start(&pool(1000, "")).await;
    let mut peer = server.peer().await;
    let taken = peer.take("p").await;
    let old: i32 = taken.value.parse().unwrap();

    let mut other = server.peer().await;
    other.send("TAKE p WAIT 30000").await;
    until("the other waits", || {
        server.explain("p").contains("1 wait.")
    })
    .await;
    server.change(&pool(1001, ""));
    assert!(runs(old));
    assert!(peer.ask("HELD").await.words().contains(&taken.value));
    peer.release(&taken).await;

    // The other has not lost its place.
    let new = other.taken().await.value.parse().unwrap();
    assert_ne!(new, old);
    // The system shows no words of a process while it loads its program.
    until("it is the new program", || {
        let words = std::fs::read_to_string(format!("/proc/{new}/cmdline")).unwrap();
        words == "sleep\x001001\0"
    })
    .await;
    until("the old is gone", || !runs(old)).await;
    server.stop().await;
    assert!(!runs(new));
}

#[tokio::test]
async fn an_idle_process_of_another_program_is_replaced_at_once() {
    let server = Server::start(&pool(1000, "")).await;
    let mut peer = server.peer().await;
    let taken = peer.take("p").await;
    let old = taken.value.parse().unwrap();
    peer.release(&taken).await;
    server.change(&pool(1001, ""));
    until("the old is gone", || !runs(old)).await;
    assert_ne!(peer.take("p").await.value, taken.value);
    server.stop().await;
}

#[tokio::test]
async fn other_limits_leave_processes_alone() {
    let server = Server::start(&pool(1000, "")).await;
    let mut peer = server.peer().await;
    let taken = peer.take("p").await;
    peer.release(&taken).await;
    server.change(&pool(1000, "start_timeout = \"9s\"\nstop_timeout = \"9s\""));
    assert_eq!(peer.take("p").await.value, taken.value);
    server.stop().await;
}

#[tokio::test]
async fn a_pool_that_lends_something_else_leaves_holders_what_they_hold() {
    let server = Server::start(&pool(1000, "")).await;
    let mut peer = server.peer().await;
    let taken = peer.take("p").await;
    let old = taken.value.parse().unwrap();
    server.change("[pool.p]\nmember = { list = [\"a\"] }");
    assert_eq!(server.peer().await.take("p").await.value, "a");
    assert!(runs(old));
    peer.release(&taken).await;
    until("the old is gone", || !runs(old)).await;
    server.stop().await;
}

#[tokio::test]
async fn what_a_removed_pool_had_lent_goes_with_the_server() {
    let server = Server::start(&pool(1000, "")).await;
    let mut peer = server.peer().await;
    let old = peer.take("p").await.value.parse().unwrap();
    server.change("");
    assert!(runs(old));
    server.stop().await;
    assert!(!runs(old));
}
