//! Processes that cannot be started: the taker is told why, and so is the
//! operator.

use crate::tests::members::harness::{Harness, Server, until};

const BROKEN: &str = r#"
[pool.p]
member = { exec = ["sh", "-c", "echo no such database >&2; exit 3"], ready = "notify" }
backoff_first = "5ms"
backoff_max = "10ms"
"#;

const SENTENCE: &str =
    "`sh` exited with code 3 before it was ready; it said last: no such database";

#[tokio::test]
async fn a_take_that_waits_in_vain_is_told_what_the_process_said_last() {
    let server = Server::start(BROKEN).await;
    let no = server
        .operator()
        .await
        .ask("TAKE p WAIT 1000")
        .await
        .words();
    assert_ne!(no[0], "go");
    assert!(no[2].contains(SENTENCE), "{no:?}");
    let explained = server.explain("p");
    assert!(explained.contains(SENTENCE), "{explained}");
    server.stop().await;
}

#[tokio::test]
async fn where_no_take_is_to_wait_for_a_broken_program_none_does() {
    let server = Server::start(&format!("{BROKEN}fail_fast = true\nfailures = 1")).await;
    let mut peer = server.operator().await;
    peer.ask("TAKE p WAIT 30000").await;
    until("its failure is known", || {
        server.explain("p").contains(SENTENCE)
    })
    .await;
    let no = peer.ask("TAKE p WAIT 30000").await.words();
    assert_eq!(no[0], "full", "{no:?}");
    assert!(no[2].contains(SENTENCE), "{no:?}");
    server.stop().await;
}

#[tokio::test]
async fn many_failures_are_one_event() {
    let server = Server::start(&format!("{BROKEN}init = 1")).await;
    let failed = || {
        let catalog = server.daemon.catalog.load();
        catalog.pools["p"].pool.stats().starts_failed
    };
    until("several starts have failed", || failed() >= 5).await;
    let wanted = format!("a member could not be started: {SENTENCE}");
    assert_eq!(server.events("p"), [wanted]);
    server.stop().await;
}

#[tokio::test]
async fn a_process_that_is_not_ready_in_time_is_said_to_be_late() {
    let server = Server::start(
        r#"
        [pool.p]
        member = { exec = ["sh", "-c", "echo waiting; exec sleep 1000"], ready = "notify" }
        start_timeout = "100ms"
        "#,
    )
    .await;
    // On a busy machine the program may have said nothing by then.
    let mut operator = server.operator().await;
    let said = loop {
        let no = operator.ask("TAKE p WAIT 3000").await.words();
        assert_eq!(no[0], "timeout", "{no:?}");
        if no[2].contains("it said last: waiting") {
            break no[2].clone();
        }
        assert!(
            no[2].contains("`sh` was not ready within 100ms: "),
            "{no:?}"
        );
    };
    let sentence = "`sh` was not ready within 100ms: READY=1 was not sent";
    assert!(said.contains(sentence), "{said}");
    server.stop().await;
}

#[tokio::test]
async fn a_run_folder_that_cannot_be_is_an_answer_as_well() {
    let harness = Harness::new();
    std::fs::write(harness.run_dir(), "a file").unwrap();
    let server = Server::start_in(harness, &format!("{BROKEN}init = 1")).await;
    let no = server
        .operator()
        .await
        .ask("TAKE p WAIT 1000")
        .await
        .words();
    assert!(no[2].contains("there is no run folder: "), "{no:?}");

    // The next try may find one.
    std::fs::remove_file(server.harness.run_dir()).unwrap();
    until("the program is run", || {
        server.explain("p").contains(SENTENCE)
    })
    .await;
    server.stop().await;
}
