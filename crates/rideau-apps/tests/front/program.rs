//! An app: this very program, started again with a mark in its environment.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::thread;
use std::time::Duration;

/// The process that has this in its environment is the app.
pub(crate) const MARK: &str = "RIDEAU_FRONT_APP";

/// How it is started.
pub(crate) fn command() -> Vec<String> {
    let this = std::env::current_exe().expect("this program");
    let words = ["--exact", "program::serves_if_it_is_the_app", "--nocapture"];
    let this = this.display().to_string();
    std::iter::once(this)
        .chain(words.map(String::from))
        .collect()
}

#[test]
fn serves_if_it_is_the_app() {
    if std::env::var_os(MARK).is_none() {
        return;
    }
    if let Some(path) = std::env::var_os("RIDEAU_SOCKET") {
        let listener = UnixListener::bind(path).expect("a socket");
        for stream in listener.incoming().flatten() {
            let copy = stream.try_clone().expect("a copy");
            thread::spawn(|| serve(stream, copy));
        }
    }
    let port: u16 = std::env::var("PORT")
        .expect("a port")
        .parse()
        .expect("a number");
    let listener = TcpListener::bind(("127.0.0.1", port)).expect("a port");
    for stream in listener.incoming().flatten() {
        let _ = stream.set_nodelay(true);
        let copy = stream.try_clone().expect("a copy");
        thread::spawn(|| serve(stream, copy));
    }
}

fn serve(input: impl Read, mut output: impl Write) {
    let mut input = BufReader::new(input);
    loop {
        let mut first = String::new();
        if input.read_line(&mut first).unwrap_or(0) == 0 {
            return;
        }
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            if input.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
        }
        if first.contains("/hang") {
            thread::sleep(Duration::from_secs(60));
        }
        if first.contains("/slow") {
            thread::sleep(Duration::from_millis(10));
        }
        let pid = std::process::id().to_string();
        let len = pid.len();
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {len}\r\n\r\n{pid}");
        if output.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}
