//! What is said when a child cannot be started, word for word.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rideau_process::{OutputLine, Process, Program, Ready, StartError};

use crate::harness::{Harness, LONG, exists, number_in, program, python, runs, shell, until};

const SOON: Duration = Duration::from_millis(300);

/// What was said, and that nothing is left.
async fn failure(harness: &Harness, program: &Program) -> String {
    let error = harness.start(program).await.unwrap_err();
    assert_eq!(harness.files(), [""; 0], "{error}");
    error.to_string()
}

/// What was said of a child that spoke before it was late, however slow the
/// machine is.
async fn lateness(harness: &Harness, program: &mut Program) -> StartError {
    program.start_timeout = SOON;
    loop {
        let error = harness.start(program).await.unwrap_err();
        if !error.lines().is_empty() || program.start_timeout > LONG {
            return error;
        }
        program.start_timeout *= 2;
    }
}

#[tokio::test]
async fn a_program_that_is_not_there_is_named_with_where_it_was_looked_for() {
    let harness = Harness::new();
    let mut missing = program(&["pgproxy-none"], Ready::Started);
    missing.env = vec![("PATH".to_owned(), "/bin:/none".to_owned())];
    assert_eq!(
        failure(&harness, &missing).await,
        "`pgproxy-none` was not found in /bin:/none"
    );
    let missing = program(&["/none/pgproxy"], Ready::Started);
    assert_eq!(
        failure(&harness, &missing).await,
        "`/none/pgproxy` was not found"
    );
}

#[tokio::test]
async fn a_program_that_cannot_be_run_is_told_from_one_that_is_missing() {
    let harness = Harness::new();
    let closed = harness.write("closed", "#!/bin/sh\n");
    assert_eq!(
        failure(&harness, &program(&[&closed], Ready::Started)).await,
        format!("`{closed}` cannot be run: Permission denied (os error 13)")
    );
    let mut found = program(&["closed"], Ready::Started);
    found.env = vec![("PATH".to_owned(), harness.path().display().to_string())];
    assert_eq!(
        failure(&harness, &found).await,
        format!("`{closed}` cannot be run: permission denied")
    );
    let alone = harness.script("alone", "#!/none/interpreter\n");
    assert_eq!(
        failure(&harness, &program(&[&alone], Ready::Started)).await,
        format!("`{alone}` cannot be run: its interpreter was not found")
    );
    let text = harness.script("text", "no program");
    assert_eq!(
        failure(&harness, &program(&[&text], Ready::Started)).await,
        format!("`{text}` cannot be run: Exec format error (os error 8)")
    );
}

#[tokio::test]
async fn a_directory_that_is_none_is_named() {
    let harness = Harness::new();
    let mut lost = program(&["sleep", "1"], Ready::Started);
    lost.directory = Some("/none".into());
    assert_eq!(
        failure(&harness, &lost).await,
        "cannot run in the directory /none: No such file or directory (os error 2)"
    );
    lost.directory = Some("/dev/null".into());
    assert_eq!(
        failure(&harness, &lost).await,
        "cannot run in the directory /dev/null: not a directory"
    );
}

#[tokio::test]
async fn a_program_that_could_never_be_ready_is_not_started() {
    let harness = Harness::new();
    let nothing = program(&[], Ready::Started);
    assert_eq!(
        failure(&harness, &nothing).await,
        "there is no program to start"
    );
    assert_eq!(
        failure(&harness, &program(&["sleep", "1"], Ready::Socket)).await,
        "it would be waited for at {socket}, but neither its arguments nor its environment \
         name that"
    );
    assert_eq!(
        failure(&harness, &program(&["sleep", "1"], Ready::Port)).await,
        "it would be waited for at {port}, but neither its arguments nor its environment \
         name that"
    );
}

#[tokio::test]
async fn a_process_that_ends_before_it_is_ready_is_quoted() {
    let harness = Harness::new();
    let never = || Ready::Line("never".to_owned());
    assert_eq!(
        failure(&harness, &shell("echo one; echo two >&2; exit 3", never()))
            .await
            .replace("two | one", "one | two"),
        "`sh` exited with code 3 before it was ready; it said last: one | two"
    );
    assert_eq!(
        failure(&harness, &shell("exit 0", never())).await,
        "`sh` exited with code 0 before it was ready; it said nothing"
    );
    assert_eq!(
        failure(
            &harness,
            &shell("printf unfinished; kill -SEGV $$", never())
        )
        .await,
        "`sh` was ended by SIGSEGV before it was ready; it said last: unfinished"
    );
}

#[tokio::test]
async fn a_process_that_is_late_is_killed_with_all_its_children() {
    let harness = Harness::new();
    let mut late = shell("sleep 1000 & echo $! >pid; echo hm; wait", Ready::Notify);
    late.directory = Some(harness.path().to_owned());
    let error = lateness(&harness, &mut late).await;
    assert_eq!(harness.files(), [""; 0], "{error}");
    assert_eq!(
        error.to_string(),
        format!(
            "`sh` was not ready within {:?}: READY=1 was not sent to its NOTIFY_SOCKET; \
             it said last: hm",
            late.start_timeout
        )
    );
    let grandchild = number_in(&harness.path().join("pid")).await;
    until("the grandchild's end", || !runs(grandchild)).await;

    late = shell("exec sleep 1000", Ready::Line("on {address}".to_owned()));
    late.start_timeout = SOON;
    assert_eq!(
        failure(&harness, &late).await,
        "`sh` was not ready within 300ms: no line had `on {address}` in it; it said nothing"
    );

    late = python("import time; time.sleep(1000)", Ready::Socket);
    late.start_timeout = SOON;
    let said = failure(&harness, &late).await;
    let run = harness.folder.path().display();
    let start = format!("`python3` was not ready within 300ms: nothing listens at {run}/");
    let id = said.strip_prefix(&start).unwrap();
    let id = id.strip_suffix(".sock; it said nothing").unwrap();
    assert!(id.parse::<u64>().is_ok(), "{said}");
}

#[tokio::test]
async fn a_process_that_listens_on_another_port_is_told_which() {
    let harness = Harness::new();
    let script = "
import socket, sys, time
s = socket.create_server(('127.0.0.1', 0))
print(sys.argv[2], s.getsockname()[1], flush=True)
time.sleep(1000)
";
    let mut program = python(script, Ready::Port);
    let mut error = lateness(&harness, &mut program).await;
    // It may have said so just after its ports were looked at.
    while !error.to_string().contains("but at") && program.start_timeout < LONG {
        program.start_timeout *= 2;
        error = harness.start(&program).await.unwrap_err();
    }
    let said = error.lines()[0].text.clone();
    let (told, other) = said.split_once(' ').unwrap();
    assert_eq!(
        error.to_string(),
        format!(
            "`python3` was not ready within {:?}: nothing listens at port {told}, \
             but at {other}; it said last: {said}",
            program.start_timeout
        )
    );
}

#[tokio::test]
async fn a_stranger_at_every_port_is_never_taken_for_the_child() {
    let harness = Harness::new();
    let strangers = Arc::new(Mutex::new(Vec::new()));
    let ports = Arc::clone(&strangers);
    let take = move |line: &OutputLine| {
        let port: u16 = line.text.parse().unwrap();
        let stranger = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
        ports.lock().unwrap().push(stranger);
    };
    let program = shell("echo {port}; exec sleep 1000", Ready::Port);
    let error = Process::start(&program, &harness.folder, take)
        .await
        .unwrap_err();

    let strangers = strangers.lock().unwrap();
    assert_eq!(strangers.len(), 3, "as many ports are tried");
    let last = strangers[2].local_addr().unwrap().port();
    assert_eq!(
        error.to_string(),
        format!(
            "`sh` was given the port {last}, but a process that is not its own listens there; \
             it said last: {last}"
        )
    );
    assert_eq!(harness.files(), [""; 0]);
}

#[tokio::test]
async fn a_start_that_is_not_awaited_leaves_no_child() {
    let harness = Harness::new();
    let pid = harness.path().join("pid");
    let mut program = shell("echo $$ >pid; exec sleep 1000", Ready::Notify);
    program.directory = Some(harness.path().to_owned());
    let child = {
        let start = harness.start(&program);
        tokio::select! {
            started = start => panic!("{started:?}"),
            child = number_in(&pid) => child,
        }
    };
    until("the child's end", || !exists(child)).await;
    until("an empty folder", || harness.files().is_empty()).await;
}

#[tokio::test]
async fn a_process_that_goes_to_the_background_is_started_once_told_so_and_ended() {
    for harness in [Harness::new(), Harness::bare()] {
        let script = "
import os, socket, sys, time
s = socket.create_server(('127.0.0.1', int(sys.argv[2])))
if os.fork():
    while not os.path.exists('servers'): time.sleep(0.01)
    os._exit(0)
os.setsid()
open('servers', 'a').write(f'{os.getpid()}\\n')
time.sleep(1000)
";
        let mut program = python(script, Ready::Line("never".to_owned()));
        program.directory = Some(harness.path().to_owned());
        assert_eq!(
            failure(&harness, &program).await,
            "`python3` went to the background and left 1 running: run it in the foreground; \
             it said nothing"
        );
        let server = number_in(&harness.path().join("servers")).await;
        assert!(!exists(server), "there is no second number in the file");
    }
}
