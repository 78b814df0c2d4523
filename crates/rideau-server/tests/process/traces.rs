//! That nothing is left: after many starts, and after a daemon was killed.
//!
//! What is counted belongs to the whole program, so these tests run again alone.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;

use rideau_process::{Program, Ready, RunFolder};
use rideau_testing::{Start, command};

use crate::harness::{
    ALONE, Harness, STAGE, alone, exists, files, number_in, program, python, runs, shell, until,
};

const SERVER: &str = "
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.bind(sys.argv[1])
s.listen()
while True: s.accept()
";

#[tokio::test]
async fn a_hundred_starts_and_stops_leave_nothing() {
    if std::env::var_os(ALONE).is_none() {
        let name = "traces::a_hundred_starts_and_stops_leave_nothing";
        let mut again = alone(name, "count");
        assert!(again.wait().unwrap().success());
        return;
    }
    let harness = Harness::new();
    let programs = [
        python(SERVER, Ready::Socket),
        shell(
            "echo ready; sleep 1000 & wait",
            Ready::Line("ready".to_owned()),
        ),
        program(&["sleep", "1000"], Ready::Started),
        shell("exit 1", Ready::Notify),
        program(&["/none"], Ready::Started),
    ];
    // What is made once and kept is there after the first round.
    round(&harness, &programs).await;
    let before = open_files();
    for _ in 0..20 {
        round(&harness, &programs).await;
        assert_eq!(harness.files(), [""; 0]);
    }
    // On a busy machine the first round may have been closing some of its own.
    until("all files closed", || open_files() <= before).await;
    // The reaper is one, and waits for as long as the folder is open.
    until("the last child's burial", || children() == 1).await;
    drop(harness);
    assert_eq!(children(), 0);
}

/// Every program once; every third child is dropped and not stopped.
async fn round(harness: &Harness, programs: &[Program]) {
    for program in programs {
        let Ok(process) = harness.start(program).await else {
            continue;
        };
        if process.id() % 3 == 0 {
            let pid = process.pid();
            drop(process);
            until("the child's burial", || !exists(pid)).await;
            until("an empty folder", || harness.files().is_empty()).await;
        } else {
            process.stop().await.unwrap();
        }
    }
}

fn open_files() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

/// How many children we have, zombies too.
fn children() -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let lists = tasks.map(|task| fs::read_to_string(task.unwrap().path().join("children")));
    lists
        .map(|list| list.unwrap_or_default().split_whitespace().count())
        .sum()
}

#[tokio::test]
async fn a_killed_daemon_leaves_no_process() {
    if let Some(run) = std::env::var_os(ALONE) {
        let folder = RunFolder::open(Path::new(&run)).unwrap();
        return be_killed(folder.with_stage(Path::new(STAGE))).await;
    }
    let harness = Harness::new();
    let run = harness.path().join("daemon");
    let name = "traces::a_killed_daemon_leaves_no_process";
    let mut daemon = alone(name, run.to_str().unwrap());
    let server = number_in(&run.join("server")).await;
    let outlived = number_in(&run.join("outlived")).await;
    let leader = group(outlived);
    assert!(runs(server) && runs(outlived) && runs(leader));
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    // The folder is not opened, and still they go.
    until("the end of all", || {
        ![server, outlived, leader].into_iter().any(runs)
    })
    .await;
    until("an empty folder", || files(&run) == ["outlived", "server"]).await;
    let folder = RunFolder::open(&run).unwrap();
    assert_eq!(folder.ended(), 0);
}

#[tokio::test]
async fn what_a_killed_daemon_left_is_ended_by_the_next() {
    if let Some(run) = std::env::var_os(ALONE) {
        return be_killed(RunFolder::open(Path::new(&run)).unwrap()).await;
    }
    let harness = Harness::new();
    let run = harness.path().join("daemon");
    let name = "traces::what_a_killed_daemon_left_is_ended_by_the_next";
    let mut daemon = alone(name, run.to_str().unwrap());
    let (server, outlived) = (
        number_in(&run.join("server")).await,
        number_in(&run.join("outlived")).await,
    );
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    assert!(runs(server) && runs(outlived), "they still run");
    let leader = group(outlived);
    until("the leader's end", || !runs(leader)).await;

    // It was killed before it could write down which process it had started.
    let mut sleep = command("sleep");
    sleep.arg("1000").process_group(0);
    let mark = run.join("76");
    let mut unrecorded = sleep.env("RIDEAU_PROCESS", mark).start();
    fs::write(run.join("76.pid"), "").unwrap();
    // What a record says of a stranger is not believed.
    let mut stranger = sleep.env_remove("RIDEAU_PROCESS").start();
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let record = format!("{} 1 {boot}", stranger.id());
    fs::write(run.join("77.pid"), record).unwrap();

    let folder = RunFolder::open(&run).unwrap();
    assert_eq!(folder.ended(), 3);
    until("the server's end", || !runs(server)).await;
    until("the end of the process that outlived its leader", || {
        !runs(outlived)
    })
    .await;
    unrecorded.wait().unwrap();
    assert!(stranger.try_wait().unwrap().is_none(), "it was not ours");
    stranger.kill().unwrap();
    stranger.wait().unwrap();
    assert_eq!(files(&run), ["outlived", "server"]);
}

fn group(pid: i32) -> i32 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, rest) = stat.rsplit_once(')').unwrap();
    rest.split_whitespace().nth(2).unwrap().parse().unwrap()
}

/// The daemon that is killed: one child of its listens, and of another only a
/// child is left, which has not ended when the daemon dies.
async fn be_killed(folder: RunFolder) {
    let run = folder.path();
    let start = async |program: &Program| {
        let process = rideau_process::Process::start(program, &folder, |_| ());
        process.await.unwrap()
    };
    let mut parent = shell(
        "sh -c 'echo $$ >pid; exec sleep 1000' & while ! test -s pid; do sleep 0.01; done
         mv pid outlived; echo ready; while kill -0 $PPID; do sleep 0.01; done",
        Ready::Line("ready".to_owned()),
    );
    parent.directory = Some(run.to_owned());
    let _parent = start(&parent).await;
    let server = start(&python(SERVER, Ready::Socket)).await;
    fs::write(run.join("server"), format!("{}\n", server.pid())).unwrap();
    std::future::pending().await
}
