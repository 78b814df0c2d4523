//! What is left when the server ends: nothing, however it ends.

use crate::harness::{Harness, Program, files, number_in, runs, until};

use rideau_testing::Signal;

/// A shell that writes down the number of the process it started, and waits for
/// it.
fn pool(yard: &Harness) -> String {
    let file = yard.path("below");
    let script = format!("sleep 1000 & echo $! > {}; wait", file.display());
    format!("[pool.p]\nmember = {{ exec = [\"sh\", \"-c\", \"{script}\"] }}\nmax = 2")
}

/// Start a server and take a member: its number, and that of the process it
/// started.
async fn start(yard: &Harness) -> (Program, [i32; 2]) {
    let _ = std::fs::remove_file(yard.path("below"));
    let server = Program::start(yard, &pool(yard));
    let mut peer = server.peer().await;
    let taken = peer.take("p").await;
    let pids = [
        taken.value.parse().unwrap(),
        number_in(&yard.path("below")).await,
    ];
    // Idle or held makes no difference.
    peer.release(&taken).await;
    (server, pids)
}

#[tokio::test]
async fn a_server_that_is_asked_to_stop_leaves_no_process() {
    for signal in [Signal::TERM, Signal::INT] {
        let yard = Harness::new();
        let (server, pids) = start(&yard).await;
        let mut holder = server.peer().await;
        holder.take("p").await;
        assert!(server.end(signal).await, "{signal:?}");
        assert!(!pids.into_iter().any(runs), "{signal:?}");
        assert_eq!(files(&yard.run_dir()), [""; 0], "{signal:?}");
    }
}

#[tokio::test]
async fn a_server_that_is_killed_leaves_no_process_either() {
    let yard = Harness::new();
    let (server, pids) = start(&yard).await;
    assert!(pids.into_iter().all(runs));
    assert!(!server.end(Signal::KILL).await);
    until("they are gone", || !pids.into_iter().any(runs)).await;
    let (next, pids) = start(&yard).await;
    assert!(next.end(Signal::TERM).await);
    assert!(!pids.into_iter().any(runs));
    assert_eq!(files(&yard.run_dir()), [""; 0]);
}

#[tokio::test]
async fn two_servers_with_one_folder_leave_each_other_alone() {
    let yard = Harness::new();
    let (first, of_first) = start(&yard).await;
    let (second, of_second) = start(&yard).await;
    assert!(of_first.into_iter().all(runs));

    // The second is killed; what it left is ended, and the next has its place.
    assert!(!second.end(Signal::KILL).await);
    until("they are gone", || !of_second.into_iter().any(runs)).await;
    let (third, of_third) = start(&yard).await;
    assert!(of_first.into_iter().all(runs));
    assert!(third.end(Signal::TERM).await);
    assert!(first.end(Signal::TERM).await);
    assert!(!of_first.into_iter().chain(of_third).any(runs));
}

#[tokio::test]
async fn servers_that_are_killed_together_leave_no_process() {
    let yard = Harness::new();
    let (first, of_first) = start(&yard).await;
    let (second, of_second) = start(&yard).await;
    assert!(!first.end(Signal::KILL).await);
    assert!(!second.end(Signal::KILL).await);
    let next = Program::start(&yard, &pool(&yard));
    until("all are gone", || {
        !of_first.into_iter().chain(of_second).any(runs)
    })
    .await;
    assert!(next.end(Signal::TERM).await);
}
