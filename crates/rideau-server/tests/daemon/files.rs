//! Open files: how many there may be, and which clients are told when there are
//! no more.

use std::fs;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

use rideau_testing::{Signal, command, signal};

use crate::server::{Server, until};

/// What the system says of the limits of a process: the usual one and the most.
fn files_of(pid: u32) -> (String, String) {
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    let mut words = line.unwrap().split_whitespace().skip(3);
    (words.next().unwrap().into(), words.next().unwrap().into())
}

#[test]
fn the_server_has_all_files_there_are_and_its_programs_the_usual() {
    let config = "[pool.p]\n\
                  member = { exec = [\"sh\", \"-c\", \"ulimit -Sn > {folder}/soft; \
                  ulimit -Hn > {folder}/hard; exec sleep 1000\"] }\ninit = 1\n";
    let server = Server::with_files(config, 300, 900);
    assert_eq!(files_of(server.pid()), ("900".into(), "900".into()));
    let read = |name| fs::read_to_string(server.folder().join(name)).unwrap_or_default();
    until("the program says its limits", || !read("hard").is_empty());
    assert_eq!((read("soft").trim(), read("hard").trim()), ("300", "900"));
}

#[test]
fn connections_beyond_the_files_are_told_so_and_health_checks_are_answered() {
    let server = Server::with_files("[lock.\"*\"]\n", 300, 300);
    // It says so once it serves.
    let says = |what| until(what, || server.said().contains(what));
    says("open 300 files");
    says("150 of the 10000 connections");
    server.until_alone();
    until("all that may come are there", || {
        let mut crowd: Vec<_> = (0..150).map(|_| server.connect()).collect();
        // The one that looked may be there a little longer.
        let is_full = crowd
            .iter_mut()
            .all(|wire| wire.ask("PING").text() == "PONG");
        let mut late = server.connect();
        let told = late.ask("LOCK key");
        told.is_error(
            "BUSY there is room for 150 connections, because the system lets this server \
            open 300 files",
        );
        assert!(told.text().contains("LimitNOFILE"), "{told}");
        let said = server.get("/readyz");
        assert!(said.starts_with("HTTP/1.1 200 "), "{said}");
        is_full
    });
    server.until_alone();
}

#[test]
fn a_check_says_for_which_connections_there_are_no_files() {
    let server = Server::start();
    let file = server.file();
    let said = |limit: u32| {
        let mut check = command("bash");
        check.args([
            "-c",
            &format!("ulimit -Sn 64; ulimit -Hn {limit}; exec \"$0\" \"$@\""),
        ]);
        check
            .arg(env!("CARGO_BIN_EXE_rideau"))
            .arg("check")
            .arg(&file);
        let output = check.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let short = said(1_000);
    assert!(
        short.contains("warning: The system lets the server open 1000 files"),
        "{short}"
    );
    assert!(short.contains("584 of the 10000 connections"), "{short}");
    let enough = said(11_000);
    assert!(!enough.contains("files"), "{enough}");
}

#[test]
fn a_thousand_may_come_at_once_to_every_listener() {
    // The system may allow fewer.
    let most = fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap();
    let count = most.trim().parse::<usize>().unwrap().min(1_000);
    rideau_process::raise_open_files();
    // The first of all listeners is the one that the test waits for.
    let config = "[front]\nlisten = [\"127.0.0.1:0\"]\n[lock.\"*\"]\n";
    let server = Server::with_http(config);
    let stdout = || fs::read_to_string(server.folder().join("stdout")).unwrap();
    until("it says where it is", || stdout().contains("controlled at"));
    let said = stdout();
    let line = said.lines().find(|line| line.contains("(applications)"));
    let front = line.unwrap().split_whitespace().nth(3).unwrap().to_owned();
    let control = said
        .lines()
        .find(|line| line.contains("controlled at unix:"));
    let control = control.unwrap().split("unix:").nth(1).unwrap();
    let control = control.split(',').next().unwrap();
    // It lets no client in, so the system keeps them.
    signal(server.pid(), Signal::STOP);
    for place in [server.address().to_string(), server.url(), front] {
        let place = place.replace("http://", "");
        let address = place.parse().unwrap();
        let within = std::time::Duration::from_secs(10);
        let connect = |_| TcpStream::connect_timeout(&address, within);
        let crowd: Result<Vec<_>, _> = (0..count).map(connect).collect();
        assert!(crowd.is_ok(), "{place}: {:?}", crowd.err());
    }
    let crowd: Result<Vec<_>, _> = (0..count).map(|_| UnixStream::connect(control)).collect();
    assert!(crowd.is_ok(), "{:?}", crowd.err());
    drop(crowd);
    signal(server.pid(), Signal::CONT);
}
