//! What becomes of askers, waiters and holders when the server is asked to stop.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::server::{CONFIG, Server};
use crate::wire::Wire;

const RANGE: &str = r#"
[store]
kind = "memory"

[range.seats]
values = ["1-1"]
start = "free"
"#;

/// A server that gives holders so long.
fn server(drain: &str) -> Server {
    let config = format!("drain = \"{drain}\"\nwait_max = \"1h\"\n{CONFIG}{RANGE}");
    Server::with_http(&config)
}

/// One request of curl's kind, answered when it is read.
fn post(server: &Server, path: &str, session: &str, body: &str) -> TcpStream {
    let place = server.url().replace("http://", "");
    let mut stream = TcpStream::connect(&place).unwrap();
    let len = body.len();
    let session = match session {
        "" => String::new(),
        id => format!("Rideau-Session: {id}\r\n"),
    };
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: {place}\r\n{session}\
         Content-Type: application/json\r\nContent-Length: {len}\r\nConnection: close\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).unwrap();
    stream
}

fn answer(mut stream: TcpStream) -> String {
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    said
}

/// Open a session that lives for an hour without connections.
fn session(server: &Server) -> String {
    let said = answer(post(server, "/v1/sessions", "", r#"{"ttl_ms": 3600000}"#));
    let (_, rest) = said.split_once(r#""id":""#).unwrap();
    rest.split('"').next().unwrap().to_owned()
}

#[test]
fn waiters_are_told_at_once_that_it_is_closed_and_nothing_new_is_granted() {
    // Longer than any test runs: only what is told can end this test.
    let mut server = server("1h");
    let mut holder = server.connect();
    let held: Vec<_> = ["LOCK key", "TAKE one", "REG.ASK few"]
        .map(|take| holder.ask(take).ticket())
        .into();
    let seat = holder.ask("RESERVE seats TTL 3600000");
    assert_eq!(seat.word(), "go", "{seat}");
    let mut other = server.connect();
    let waits = [
        "LOCK key WAIT 3600000",
        "TAKE one WAIT 3600000",
        "ASK desk WAIT 3600000",
        "REG.ASK few WAIT 3600000",
        "RESERVE seats WAIT 3600000",
    ];
    let mut waiters: Vec<Wire> = Vec::new();
    for (at, wait) in waits.iter().enumerate() {
        let mut wire = server.connect();
        wire.send(wait);
        server.until_waiting(at + 1);
        waiters.push(wire);
    }
    let mut later = server.connect3();
    let pending = later.ask("LOCK key WAIT 3600000 ASYNC");
    assert_eq!(pending.word(), "await", "{pending}");
    let web = session(&server);
    let waiting = post(&server, "/v1/lock/key", &web, r#"{"wait_ms": 3600000}"#);
    crate::server::until("it waits", || {
        holder.ask("LOCK.STAT key").field("waiting").int() == 3
    });

    server.ask_to_stop();
    for (wait, waiter) in waits.iter().zip(&mut waiters) {
        let told = waiter.read();
        assert_eq!(told.word(), "closed", "{wait}: {told}");
        assert!(told.at(2).text().contains("stopping"), "{wait}: {told}");
    }
    let told = later.push().to_string();
    assert!(told.contains("closed"), "{told}");
    let told = answer(waiting);
    assert!(told.contains(r#""outcome":"closed""#), "{told}");

    for ask in [
        "LOCK free",
        "LOCK free WAIT 1",
        "TAKE two",
        "ASK desk NB",
        "OFFER desk NB",
        "OFFER desk WAIT 10",
        "REG.ASK few",
        "RESERVE seats",
        "CLAIM 1",
        "POOL.OFFER brought mine",
        "APP.GET nothing",
    ] {
        other.ask(ask).is_error("READONLY the server is stopping");
    }
    let refused = answer(post(&server, "/v1/lock/free", &web, "{}"));
    assert!(
        refused.contains(" 503 ") && refused.contains("READONLY"),
        "{refused}"
    );
    // One that comes now is told as well.
    server
        .connect()
        .read()
        .is_error("READONLY the server is stopping");

    // Holders are left alone, and what they give back is not granted again.
    assert_eq!(holder.ask("HELD").parts().len(), 3);
    for ticket in held {
        assert!(!server.has_ended());
        assert_eq!(holder.ask(&format!("RELEASE {ticket}")).text(), "OK");
    }
    // The last of them ends it, however long it could have had.
    assert!(server.ended().success());
}

#[test]
fn the_server_ends_whatever_is_held_when_the_time_of_holders_is_over() {
    let mut server = server("200ms");
    let mut holder = server.connect();
    for take in ["LOCK key", "TAKE one", "REG.ASK few"] {
        holder.ask(take).ticket();
    }
    // A session needs no connection to hold things.
    let web = session(&server);
    for path in ["/v1/lock/other", "/v1/take/two"] {
        let told = answer(post(&server, path, &web, "{}"));
        assert!(told.contains(r#""outcome":"go""#), "{told}");
    }
    let mut worker = server.connect();
    assert!(
        worker
            .ask("POOL.OFFER brought mine")
            .text()
            .starts_with("o-")
    );
    server.ask_to_stop();
    assert!(server.ended().success());
    assert!(holder.is_closed());
}
