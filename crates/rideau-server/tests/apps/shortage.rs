//! Too few files and too few processes, for a while.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use rideau_testing::{command, skipped};

use crate::harness::{Harness, folder, until};
use crate::tiny;

/// Another user than those of other tests, because limits count per user.
const USER: u32 = 54_321;

/// Give a server that runs another limit; what it may have at most is left. The
/// command runs as the user that the server runs as.
fn limit(harness: &Harness, user: &str, what: &str, most: &str) {
    let limit = format!("{user} prlimit --pid {} --{what}={most}:", harness.pid());
    let done = command("sh").args(["-c", &limit]).status();
    assert!(done.unwrap().success(), "{limit}");
}

fn refused(harness: &Harness, host: &str) {
    let answer = harness.ask("GET", host, "/", b"").unwrap();
    assert_eq!(answer.status, 503, "{answer:?}");
    assert_eq!(
        answer.field("X-Rideau-Error"),
        Some("app_failing"),
        "{answer:?}"
    );
    assert!(answer.field("Retry-After").is_some(), "{answer:?}");
}

fn serves(harness: &Harness, host: &str) -> bool {
    harness
        .ask("GET", host, "/", b"")
        .is_ok_and(|answer| answer.status == 200)
}

/// Two apps, for one of which there is a process.
fn two(app: &str) -> String {
    let one =
        |name| format!("[app.{name}]\nhosts = [\"{name}\"]\nbackoff_max = \"500ms\"\n{app}\n");
    one("here") + &one("there")
}

/// Scenario 40: too few files from the start, and then enough again.
#[test]
fn a_server_without_files_refuses_and_recovers() {
    let folder = folder();
    Harness::write(
        &folder,
        "",
        "[app.shop]\nexec = APP\nbackoff_max = \"500ms\"\n",
    );
    let harness = Harness::start_limited(&folder, "ulimit -n 72");
    // Idle connections take what a start would need.
    let idle: Vec<_> = (0..60)
        .map_while(|_| std::net::TcpStream::connect(harness.front).ok())
        .collect();
    thread::sleep(Duration::from_millis(300));
    let timeout = Some(Duration::from_secs(2));
    let mut stream = std::net::TcpStream::connect(harness.front).unwrap();
    stream.set_read_timeout(timeout).unwrap();
    let request = b"GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n";
    std::io::Write::write_all(&mut stream, request).unwrap();
    let mut said = String::new();
    let _ = std::io::Read::read_to_string(&mut stream, &mut said);
    // It waits to be let in, or is told that nothing can be started.
    assert!(
        said.is_empty() || said.starts_with("HTTP/1.1 503"),
        "{said}"
    );
    drop((idle, stream));
    until("it serves again", || harness.get("/").status == 200);
    harness.end();
}

/// Scenario 40: files run out while it serves.
#[test]
fn a_start_without_files_fails_and_others_are_served() {
    let folder = folder();
    let harness = Harness::new(&folder, &two("exec = APP"));
    assert!(serves(&harness, "here"));
    // A client's connection is possible, and one to the process that is there.
    limit(&harness, "", "nofile", &files(&harness, 3).to_string());
    refused(&harness, "there");
    assert!(serves(&harness, "here"));
    limit(&harness, "", "nofile", "1024");
    until("it serves again", || serves(&harness, "there"));
    harness.end();
}

/// The limit at which as many more files can be opened.
fn files(harness: &Harness, more: usize) -> usize {
    let open = fs::read_dir(format!("/proc/{}/fd", harness.pid())).unwrap();
    let open = open.flatten().map(|entry| entry.file_name());
    let open: Vec<usize> = open
        .map(|name| name.to_str().unwrap().parse().unwrap())
        .collect();
    let free = (0..).filter(|number| !open.contains(number));
    free.take(more + 1).last().unwrap()
}

/// Scenario 40: no more processes, and then as many as one wants. They are
/// counted per user, and those of root are not counted.
#[test]
fn a_start_without_processes_fails_and_others_are_served() {
    tiny::serve_if_asked();
    let folder = folder();
    let name = "shortage::a_start_without_processes_fails_and_others_are_served";
    Harness::write(&folder, "", &two(&tiny::keys(name)));
    let become_other =
        format!("setpriv --reuid={USER} --regid={USER} --clear-groups --pdeathsig KILL");
    if !may_run(&become_other) {
        return skipped("only root may run programs as another user, in a folder open to it");
    }
    for path in [folder.clone(), folder.join("rideau.toml")] {
        std::os::unix::fs::chown(path, Some(USER), Some(USER)).unwrap();
    }
    let harness = Harness::start_limited(&folder, &format!("exec {become_other} \"$0\" \"$@\""));
    assert!(serves(&harness, "here"));
    limit(&harness, &become_other, "nproc", &tasks().to_string());
    refused(&harness, "there");
    assert!(serves(&harness, "here"));
    limit(&harness, &become_other, "nproc", "1000");
    until("it serves again", || serves(&harness, "there"));
    harness.end();
}

/// Another user may run this program and the server.
fn may_run(become_other: &str) -> bool {
    let programs = [
        std::env::current_exe().unwrap(),
        Path::new(env!("CARGO_BIN_EXE_rideau")).to_owned(),
    ];
    programs.iter().all(|program| {
        let line = format!("exec {become_other} test -x {}", program.display());
        let done = command("sh").args(["-c", &line]).status();
        done.is_ok_and(|status| status.success())
    })
}

/// Processes and threads of the other user.
fn tasks() -> usize {
    let all = fs::read_dir("/proc").unwrap().flatten();
    let counts = all.filter_map(|entry| {
        use std::os::unix::fs::MetadataExt;
        let is_its = entry.metadata().ok()?.uid() == USER;
        let tasks = fs::read_dir(entry.path().join("task")).ok()?;
        is_its.then(|| tasks.count())
    });
    counts.sum()
}
