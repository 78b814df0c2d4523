//! Streams and asks over HTTP follow users that change, and count for their quotas.

use std::sync::OnceLock;

use rideau_config::Quota;
use rideau_config::password::Hash;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::TcpStream;

use crate::tests::admin::web::{CONFIG, LONG, Reply, Server};

/// A user whose name and password are `a`.
const AUTH: &str = "Authorization: Basic YTph";

fn config(user: Option<&str>) -> String {
    static HASH: OnceLock<String> = OnceLock::new();
    let hash = HASH.get_or_init(|| Hash::of(b"a").unwrap().as_str().into());
    let other = format!("[user.ops]\npassword = '{hash}'\nallow = [\"@admin\"]\n");
    let user = user.map(|keys| format!("[user.a]\npassword = '{hash}'\n{keys}\n"));
    format!("{CONFIG}{other}{}", user.unwrap_or_default())
}

async fn start(user: &str) -> Server {
    Server::start(&config(Some(user))).await
}

fn apply(server: &Server, user: Option<&str>) {
    server.daemon.apply(&config(user), "test").unwrap();
}

struct Watcher(Lines<BufReader<TcpStream>>);

impl Watcher {
    async fn open(server: &Server, path: &str) -> Self {
        let stream = server.open(&format!("GET {path}"), &[AUTH], "").await;
        let mut lines = BufReader::new(stream).lines();
        let first = lines.next_line().await.unwrap().unwrap();
        assert!(first.contains(" 200 "), "{first}");
        Self(lines)
    }

    /// The next event, none at the end.
    async fn next(&mut self) -> Option<(String, Value)> {
        let mut kind = String::new();
        loop {
            let line = tokio::time::timeout(LONG, self.0.next_line()).await;
            let line = line.expect("the stream goes on or ends").unwrap()?;
            if let Some(word) = line.strip_prefix("event: ") {
                kind = word.into();
            }
            if let Some(json) = line.strip_prefix("data: ") {
                return Some((kind, serde_json::from_str(json).unwrap()));
            }
        }
    }

    /// What it is told before its end.
    async fn last(&mut self) -> Value {
        loop {
            let (kind, said) = self.next().await.expect("it says why it ends");
            if kind == "denied" {
                assert_eq!(self.next().await, None);
                return said;
            }
        }
    }
}

#[tokio::test]
async fn a_stream_ends_when_its_user_may_not_watch_any_more_and_says_so() {
    for path in ["/api/v1/stream", "/api/v1/events"] {
        let server = start("allow = [\"@all\"]").await;
        let mut watcher = Watcher::open(&server, path).await;
        apply(&server, Some("allow = [\"lock\"]"));
        let said = watcher.last().await;
        assert_eq!(said["code"], "NOPERM", "{said}");
        is_told(&server, "a", &said["error"]);
        server
            .until(|daemon| daemon.quotas.of("a").now(Quota::Streams) == 0)
            .await;

        apply(&server, Some("allow = [\"@all\"]"));
        let mut watcher = Watcher::open(&server, path).await;
        apply(&server, None);
        let said = watcher.last().await;
        assert_eq!(said["code"], "NOAUTH", "{said}");
    }
}

/// The newest event says that a user was denied something, and why.
fn is_told(server: &Server, user: &str, why: &Value) {
    let events = server.daemon.events.newest(50);
    let mut denied = events.iter().filter(|event| event.kind == "denied");
    let told = denied.next().expect("a denial is told");
    assert_eq!((&*told.name, denied.next().is_none()), (user, true));
    let why = why.as_str().unwrap();
    assert!(told.text.ends_with(&format!(": {why}")), "{}", told.text);
}

#[tokio::test]
async fn no_stream_goes_on_when_users_come() {
    let server = Server::start(CONFIG).await;
    let mut watcher = Watcher::open(&server, "/api/v1/events").await;
    apply(&server, None);
    let said = watcher.last().await;
    assert_eq!(said["code"], "NOAUTH");
    is_told(&server, "default", &said["error"]);
}

#[tokio::test]
async fn a_stream_is_silent_about_what_its_user_may_not_see_any_more() {
    let server = start("allow = [\"@all\"]").await;
    let mut watcher = Watcher::open(&server, "/api/v1/events").await;
    let events = &server.daemon.events;
    events.add("pool", "pg", "one".into(), None);
    assert_eq!(watcher.next().await.unwrap().1["text"], "one");
    apply(&server, Some("allow = [\"@all\"]\non = [\"pool:x\"]"));
    events.add("pool", "pg", "hidden".into(), None);
    events.add("pool", "x", "two".into(), None);
    assert_eq!(watcher.next().await.unwrap().1["text"], "two");
}

#[tokio::test]
async fn an_ask_that_waits_is_answered_no_when_its_user_may_not_have_it_any_more() {
    for (user, code) in [(Some("allow = [\"session\"]"), 403), (None, 401)] {
        let server = start("allow = [\"@all\"]").await;
        let opened = server.send("POST /v1/sessions", &[AUTH], "").await;
        let session = format!("Rideau-Session: {}", opened.text("id"));
        let headers = [AUTH, session.as_str()];
        for _ in 0..2 {
            let taken = server.send("POST /v1/take/pg", &headers, "").await;
            assert_eq!(taken.status, 200, "{taken:?}");
        }
        let wait = r#"{"wait_ms":20000}"#;
        let mut waits = server.open("POST /v1/take/pg", &headers, wait).await;
        server
            .until(|daemon| daemon.quotas.of("a").now(Quota::Waiting) == 1)
            .await;
        apply(&server, user);
        let mut said = String::new();
        let read = waits.read_to_string(&mut said);
        tokio::time::timeout(LONG, read).await.unwrap().unwrap();
        let reply = Reply::parse(&said);
        assert_eq!(reply.status, code, "{said}");
        is_told(&server, "a", &Value::from(reply.text("error")));
        assert_eq!(server.daemon.quotas.of("a").now(Quota::Waiting), 0);
    }
}

/// A body may come long after the head.
#[tokio::test]
async fn what_a_user_may_do_is_looked_up_when_the_body_is_there() {
    let action = "Rideau-Csrf: 1";
    for (path, body) in [
        ("/api/v1/config/apply", format!("{CONFIG}# other")),
        ("/v1/take/pg", r#"{"wait_ms":20000}"#.to_owned()),
    ] {
        for (user, code) in [(Some("allow = [\"session\"]"), 403), (None, 401)] {
            let server = start("allow = [\"@all\", \"@admin\"]").await;
            let opened = server.send("POST /v1/sessions", &[AUTH], "").await;
            let session = format!("Rideau-Session: {}", opened.text("id"));
            server
                .until(|daemon| daemon.quotas.of("a").now(Quota::Http) == 0)
                .await;
            let (first, rest) = body.split_at(5);
            let mut text = format!(
                "POST {path} HTTP/1.1\r\nConnection: close\r\nHost: {}\r\n",
                server.http
            );
            for line in [
                AUTH,
                action,
                &session,
                &format!("Content-Length: {}", body.len()),
            ] {
                text += &format!("{line}\r\n");
            }
            let mut stream = TcpStream::connect(server.http).await.unwrap();
            stream
                .write_all(format!("{text}\r\n{first}").as_bytes())
                .await
                .unwrap();
            server
                .until(|daemon| daemon.quotas.of("a").now(Quota::Http) == 1)
                .await;
            apply(&server, user);
            stream.write_all(rest.as_bytes()).await.unwrap();
            let mut said = String::new();
            let read = stream.read_to_string(&mut said);
            tokio::time::timeout(LONG, read).await.unwrap().unwrap();
            let reply = Reply::parse(&said);
            assert_eq!(reply.status, code, "{path}: {said}");
            is_told(&server, "a", &Value::from(reply.text("error")));
        }
    }
}

#[tokio::test]
async fn connections_of_http_count_for_their_user() {
    let server = start("allow = [\"@all\"]\nhttp_connections_max = 1").await;
    let watcher = Watcher::open(&server, "/api/v1/events").await;
    let more = server.send("GET /api/v1/pools", &[AUTH], "").await;
    assert_eq!(more.status, 429, "{more:?}");
    let said = more.text("error");
    let begin = "user.a.http_connections_max (1) reached";
    assert!(said.starts_with(begin), "{said}");
    drop(watcher);
    server
        .until(|daemon| daemon.quotas.of("a").now(Quota::Http) == 0)
        .await;
    let again = server.send("GET /api/v1/pools", &[AUTH], "").await;
    assert_eq!(again.status, 200, "{again:?}");
}

#[tokio::test]
async fn what_a_user_holds_it_can_give_back_whatever_else_it_may_do_by_now() {
    let server = start("allow = [\"@all\"]").await;
    let opened = server.send("POST /v1/sessions", &[AUTH], "").await;
    let session = format!("Rideau-Session: {}", opened.text("id"));
    let headers = [AUTH, session.as_str()];
    let taken = server
        .send("POST /v1/take/pg", &headers, "")
        .await
        .text("ticket");
    apply(&server, Some("allow = [\"info\"]"));
    let again = server.send("POST /v1/take/pg", &headers, "").await;
    assert_eq!(again.status, 403, "{again:?}");
    let path = format!("DELETE /v1/grants/{taken}");
    assert_eq!(server.send(&path, &[AUTH], "").await.status, 200);
    let path = format!("DELETE /v1/sessions/{}", opened.text("id"));
    assert_eq!(server.send(&path, &[AUTH], "").await.status, 200);
}

#[tokio::test]
async fn streams_sessions_and_waits_over_http_count_for_their_user() {
    let quotas = "allow = [\"@all\"]\nstreams_max = 1\nsessions_max = 1\nwaiting_max = 0";
    let server = start(quotas).await;
    let busy = |reply: Reply, begin: &str| {
        assert_eq!((reply.status, reply.text("code").as_str()), (429, "BUSY"));
        let said = reply.text("error");
        assert!(said.starts_with(begin), "{said}");
    };
    let watcher = Watcher::open(&server, "/api/v1/events").await;
    let more = server.send("GET /api/v1/stream", &[AUTH], "").await;
    busy(more, "user.a.streams_max (1) reached");
    drop(watcher);
    server
        .until(|daemon| daemon.quotas.of("a").now(Quota::Streams) == 0)
        .await;

    let opened = server.send("POST /v1/sessions", &[AUTH], "").await;
    let more = server.send("POST /v1/sessions", &[AUTH], "").await;
    busy(more, "user.a.sessions_max (1) reached");

    let session = format!("Rideau-Session: {}", opened.text("id"));
    let headers = [AUTH, session.as_str()];
    let lock = "POST /v1/lock/k";
    assert_eq!(server.send(lock, &headers, "").await.status, 200);
    let waits = server.send(lock, &headers, r#"{"wait_ms":20000}"#).await;
    busy(waits, "user.a.waiting_max (0) reached");
}

#[tokio::test]
async fn names_over_http_have_a_length_and_an_alphabet() {
    let server = Server::start(CONFIG).await;
    let session = server.session("").await;
    let long = "x".repeat(300);
    for bad in ["a\\nb", "\\u001b[2J", "\\u2028", &long] {
        let open = server
            .send("POST /v1/sessions", &[], &format!(r#"{{"name":"{bad}"}}"#))
            .await;
        assert_eq!(open.status, 400, "{open:?}");
        let note = format!(r#"{{"note":"{bad}"}}"#);
        let take = server.ask(&session, "/v1/take/pg", &note).await;
        assert_eq!(take.status, 400, "{take:?}");
    }
    let taken = server.ask(&session, "/v1/take/pg", "").await.text("ticket");
    let fail = format!("DELETE /v1/grants/{taken}?fail=a%0aINFO+forged");
    let refused = server.send(&fail, &[], "").await;
    assert_eq!(refused.status, 400, "{refused:?}");
    for bad in ["a%0ab", "%1b%5b2J", &long] {
        let lock = server.ask(&session, &format!("/v1/lock/{bad}"), "").await;
        assert_eq!(lock.status, 400, "{lock:?}");
    }
    let events = server.daemon.events.newest(1024);
    let is_forged = |text: &str| text.contains(['\n', '\u{1b}']);
    assert!(events.iter().all(|event| !is_forged(&event.text)));
}
