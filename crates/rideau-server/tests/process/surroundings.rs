//! What a child has around it: its environment, its directory, its folder.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;

use rideau_process::{Ready, RunFolder};

use crate::harness::{ALONE, Harness, alone, program, shell, texts};

#[tokio::test]
async fn the_daemons_secrets_stay_with_the_daemon() {
    if std::env::var_os(ALONE).is_none() {
        // A test must not change its own environment, so another has the secret.
        let name = "surroundings::the_daemons_secrets_stay_with_the_daemon";
        let mut again = alone(name, "secret");
        assert!(again.wait().unwrap().success());
        return;
    }
    let harness = Harness::new();
    let mut program = program(&["env"], Ready::Started);
    let given = [
        ("TZ", "Europe/Zurich"),
        ("AT", "{name} {id} {socket}"),
        ("LAST", "1"),
    ];
    program.env = given
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
    let process = harness.start(&program).await.unwrap();
    assert!(process.exited().await.is_clean());
    process.stop().await.unwrap();

    let lines = texts(&process);
    let found: BTreeMap<_, _> = lines
        .iter()
        .map(|line| line.split_once('=').unwrap())
        .collect();
    let socket = harness.folder.path().join("1.sock");
    assert_eq!(found["TZ"], "Europe/Zurich", "what is given goes first");
    assert_eq!(found["AT"], format!("test 1 {}", socket.display()));
    assert_eq!(found["PATH"], std::env::var("PATH").unwrap());
    let known = ["AT", "HOME", "LANG", "LAST", "PATH", "RIDEAU_PROCESS", "TZ"];
    let others: Vec<_> = found.keys().filter(|name| !known.contains(name)).collect();
    assert!(others.is_empty(), "{others:?}");
}

#[tokio::test]
async fn a_child_runs_in_its_directory_and_hears_nothing() {
    let harness = Harness::new();
    harness.script(
        "here",
        "#!/bin/sh
pwd
cat
ls -l /proc/self/fd
echo end
exec sleep 1000
",
    );
    let mut program = program(&["./here"], Ready::Line("end".to_owned()));
    program.directory = Some(harness.path().to_owned());
    let process = harness.start(&program).await.unwrap();
    let lines = texts(&process);
    assert_eq!(lines[0], harness.path().to_str().unwrap());
    let run = harness.folder.path().to_str().unwrap();
    let ours: Vec<_> = lines.iter().filter(|line| line.contains(run)).collect();
    assert!(ours.is_empty(), "it has our files open: {ours:?}");
}

#[tokio::test]
async fn a_child_leads_a_group_of_its_own() {
    let harness = Harness::new();
    let process = harness
        .start(&shell("exec sleep 1000", Ready::Started))
        .await
        .unwrap();
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.pid())).unwrap();
    let group = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(2);
    assert_eq!(group.unwrap(), process.pid().to_string());
}

#[test]
fn a_folder_is_one_daemons_and_closed_to_others() {
    let harness = Harness::new();
    let path = harness.folder.path();
    assert_eq!(
        fs::metadata(path).unwrap().permissions().mode() & 0o777,
        0o700
    );
    let refusal = |path| {
        let error = RunFolder::open(path).err().unwrap();
        (error.kind(), error.to_string())
    };
    assert_eq!(
        refusal(path),
        (
            ErrorKind::AddrInUse,
            "another daemon has it open".to_owned()
        )
    );

    let open = harness.path().join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    let invalid = |why: &str| (ErrorKind::InvalidInput, why.to_owned());
    assert_eq!(refusal(&open), invalid("other users may write to it"));

    let long = harness.path().join("long".repeat(30));
    assert_eq!(refusal(&long), invalid("its path is longer than 79 bytes"));
}
