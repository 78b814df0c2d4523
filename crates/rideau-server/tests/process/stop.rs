//! How children end: asked, killed, dropped or by themselves.

use std::time::Duration;

use rideau_process::{Exit, OutputLine, Process, Ready, Signal};
use rideau_testing::signal;

use crate::harness::{Harness, LONG, exists, number_in, program, runs, shell, until};

const TERM: i32 = 15;
const KILL: i32 = 9;

/// A child with a grandchild, both of which were started with `trap`.
async fn family(harness: &Harness, trap: &str) -> (Process, i32) {
    let script = format!(
        "{trap}
         sh -c '{trap}
               echo $$ >grandchild; while :; do sleep 0.01; done' &
         while ! test -s grandchild; do sleep 0.01; done
         echo ready
         while :; do sleep 0.01; done"
    );
    let mut program = shell(&script, Ready::Line("ready".to_owned()));
    program.directory = Some(harness.path().to_owned());
    let process = harness.start(&program).await.unwrap();
    let grandchild = number_in(&harness.path().join("grandchild")).await;
    assert!(runs(grandchild));
    (process, grandchild)
}

#[tokio::test]
async fn a_stop_ends_the_whole_group() {
    let harness = Harness::new();
    let (process, grandchild) = family(&harness, "trap - TERM").await;
    assert_eq!(process.stop().await, Some(Exit::Signal(TERM)));
    assert!(!exists(process.pid()), "it is reaped");
    assert!(!runs(grandchild));
    assert_eq!(harness.files(), [""; 0]);
    assert_eq!(process.stop().await, Some(Exit::Signal(TERM)), "once more");
}

#[tokio::test]
async fn a_panic_over_a_child_ends_that_child_alone() {
    let harness = Harness::new();
    let script = "echo ready; echo planted; exec sleep 1000";
    let program = shell(script, Ready::Line("ready".to_owned()));
    let hear = |line: &OutputLine| assert!(line.text != "planted", "as it was told");
    let process = Process::start(&program, &harness.folder, hear)
        .await
        .unwrap();
    tokio::time::timeout(LONG, process.gone()).await.unwrap();
    assert!(!process.is_alive());
    until("the child's end", || !runs(process.pid())).await;
    let other = harness.start(&program).await.unwrap();
    assert!(other.is_alive());
    assert!(other.stop().await.is_some());
}

#[tokio::test]
async fn a_process_that_ignores_the_signal_is_killed_with_its_group() {
    let harness = Harness::new();
    let (process, grandchild) = family(&harness, "trap \"\" TERM").await;
    let within = Duration::from_millis(200);
    let exit = process.stop_with(Signal::Term, within).await;
    assert_eq!(exit, Some(Exit::Signal(KILL)));
    until("the grandchild's end", || !runs(grandchild)).await;
}

#[tokio::test]
async fn a_grandchild_may_finish_its_work_after_the_child_is_gone() {
    let harness = Harness::new();
    let script = "
        sh -c 'trap \"sleep 0.3; echo finished >work; exit 0\" TERM
               echo $$ >grandchild; while :; do sleep 0.01; done' &
        while ! test -s grandchild; do sleep 0.01; done
        echo ready; wait";
    let mut program = shell(script, Ready::Line("ready".to_owned()));
    program.directory = Some(harness.path().to_owned());
    let process = harness.start(&program).await.unwrap();
    assert_eq!(process.stop().await, Some(Exit::Signal(TERM)));
    let work = std::fs::read_to_string(harness.path().join("work")).unwrap();
    assert_eq!(work, "finished\n");
}

#[tokio::test]
async fn a_grandchild_that_ignores_the_signal_is_killed_after_the_child_is_gone() {
    let harness = Harness::new();
    let script = "
        sh -c 'trap \"\" TERM; echo $$ >grandchild; while :; do sleep 0.01; done' &
        while ! test -s grandchild; do sleep 0.01; done
        echo ready; wait";
    let mut program = shell(script, Ready::Line("ready".to_owned()));
    program.directory = Some(harness.path().to_owned());
    program.stop_timeout = Duration::from_secs(2);
    let process = harness.start(&program).await.unwrap();
    let grandchild = number_in(&harness.path().join("grandchild")).await;
    assert_eq!(process.stop().await, Some(Exit::Signal(TERM)));
    until("the grandchild's end", || !runs(grandchild)).await;
}

#[tokio::test]
async fn a_program_chooses_its_signal_and_its_code() {
    let harness = Harness::new();
    let script = "trap 'exit 7' QUIT; echo ready; while :; do sleep 0.01; done";
    let mut program = shell(script, Ready::Line("ready".to_owned()));
    program.stop_signal = Signal::Quit;
    let process = harness.start(&program).await.unwrap();
    assert_eq!(process.stop().await, Some(Exit::Code(7)));
}

#[tokio::test]
async fn a_second_stop_can_be_shorter() {
    let harness = Harness::new();
    let (process, _) = family(&harness, "trap \"\" TERM").await;
    let first = process.stop_with(Signal::Term, LONG * 60);
    let second = process.stop_with(Signal::Term, Duration::from_millis(50));
    let ends = tokio::time::timeout(LONG, async { tokio::join!(first, second) });
    let killed = Some(Exit::Signal(KILL));
    assert_eq!(ends.await.unwrap(), (killed, killed));
}

#[tokio::test]
async fn a_stop_that_is_not_awaited_goes_on() {
    let harness = Harness::new();
    let (process, grandchild) = family(&harness, "trap \"\" TERM").await;
    let stop = process.stop_with(Signal::Term, Duration::from_millis(100));
    assert!(tokio::time::timeout(Duration::ZERO, stop).await.is_err());
    assert_eq!(process.exited().await, Exit::Signal(KILL));
    until("the grandchild's end", || !runs(grandchild)).await;
}

#[tokio::test]
async fn dropping_kills_the_group_and_leaves_no_zombie() {
    let harness = Harness::new();
    let (process, grandchild) = family(&harness, "trap \"\" TERM").await;
    let (pid, exited) = (process.pid(), process.exited());
    drop(process);
    assert_eq!(exited.await, Exit::Signal(KILL));
    until("the child's burial", || !exists(pid)).await;
    until("the grandchild's end", || !runs(grandchild)).await;
    until("an empty folder", || harness.files().is_empty()).await;
}

#[test]
fn a_runtime_that_ends_takes_its_children_along() {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    let harness = Harness::new();
    let first = runtime();
    let process = first.block_on(harness.start(&program(&["sleep", "1000"], Ready::Started)));
    let process = process.unwrap();
    drop(first);
    runtime().block_on(async {
        until("the child's burial", || !exists(process.pid())).await;
        until("an empty folder", || harness.files().is_empty()).await;
        assert_eq!(process.exited().await, Exit::Unknown);
        assert_eq!(process.stop().await, Some(Exit::Unknown));
    });
}

#[tokio::test]
async fn an_end_is_noticed_at_once_and_the_group_goes_along() {
    let harness = Harness::new();
    let (process, grandchild) = family(&harness, "trap \"exit 5\" USR1").await;
    let (exited, again) = (process.exited(), process.exited());
    signal(process.pid(), rideau_testing::Signal::USR1);
    assert_eq!(exited.await, Exit::Code(5));
    assert!(!process.is_alive());
    assert_eq!(again.await, Exit::Code(5));
    until("the grandchild's end", || !runs(grandchild)).await;
    until("an empty folder", || harness.files().is_empty()).await;
    let uptime = process.uptime();
    assert_eq!(process.uptime(), uptime, "it stands still");
    assert_eq!(process.stop().await, Some(Exit::Code(5)));
}

#[tokio::test]
async fn closed_outputs_are_no_end() {
    let harness = Harness::new();
    let script = "echo ready; exec >&- 2>&-; echo $$ >closed; exec sleep 1000";
    let mut program = shell(script, Ready::Line("ready".to_owned()));
    program.directory = Some(harness.path().to_owned());
    let process = harness.start(&program).await.unwrap();
    number_in(&harness.path().join("closed")).await;
    assert!(process.is_alive());
    assert_eq!(process.stop().await, Some(Exit::Signal(TERM)));
}

#[tokio::test]
async fn a_process_that_leaves_the_group_is_ended_with_it() {
    let harness = Harness::new();
    // One is out of the session while its parent lives, and the other has lost it.
    let script = "
        setsid sh -c 'echo $$ >outside; exec sleep 1000' &
        (setsid sh -c 'echo $$ >orphan; exec sleep 1000' &)
        while ! test -s outside || ! test -s orphan; do sleep 0.01; done
        echo ready; wait";
    let mut program = shell(script, Ready::Line("ready".to_owned()));
    program.directory = Some(harness.path().to_owned());
    let process = harness.start(&program).await.unwrap();
    let outside = number_in(&harness.path().join("outside")).await;
    let orphan = number_in(&harness.path().join("orphan")).await;
    assert!(runs(outside) && runs(orphan));
    let stopped = tokio::time::timeout(LONG, process.stop()).await.unwrap();
    assert_eq!(stopped, Some(Exit::Signal(TERM)));
    assert!(!exists(outside) && !exists(orphan), "not even a zombie");
    assert!(process.stuck().is_empty());
}
