//! Asks with nothing but HTTP.

use std::sync::atomic::Ordering;

use rideau::Side;
use rideau_testing::command;
use tokio::io::AsyncReadExt;

use crate::tests::admin::web::{CONFIG, Server};

#[tokio::test]
async fn a_member_is_taken_given_back_and_taken_again() {
    let server = Server::start(CONFIG).await;
    let session = server.session(r#"{"name":"shop"}"#).await;
    let first = server.ask(&session, "/v1/take/pg", "").await;
    assert_eq!(first.status, 200, "{first:?}");
    assert_eq!(first.text("outcome"), "go");
    let other = server.ask(&session, "/v1/take/@db", "{}").await;
    assert_ne!(first.text("member"), other.text("member"));

    let late = server
        .ask(&session, "/v1/take/pg", r#"{"wait_ms":5}"#)
        .await;
    assert_eq!(late.status, 408, "{late:?}");
    assert_eq!(late.text("outcome"), "timeout");

    let path = format!("DELETE /v1/grants/{}", first.text("ticket"));
    assert_eq!(server.send(&path, &[], "").await.status, 200);
    let again = server.send(&path, &[], "").await;
    assert_eq!((again.status, again.text("code").as_str()), (410, "STALE"));
    let third = server.ask(&session, "/v1/take/pg", "").await;
    assert_eq!(third.text("member"), first.text("member"));
}

#[tokio::test]
async fn a_key_may_have_slashes_and_a_no_is_a_conflict() {
    let server = Server::start(CONFIG).await;
    let session = server.session("").await;
    for key in ["tenant/42/mail", "/absolute", "a%2Fb%20c", "pg"] {
        let path = format!("/v1/lock/{key}");
        let yes = server.ask(&session, &path, "").await;
        assert_eq!(yes.status, 200, "{yes:?}");
        let no = server.ask(&session, &path, "").await;
        assert_eq!(no.status, 409, "{no:?}");
        assert_eq!(no.text("outcome"), "full");
        assert_eq!(
            (&no.json()["held"], &no.json()["capacity"]),
            (&1.into(), &1.into())
        );
        assert_eq!(no.text("why"), "1 of 1 unit is held; WAIT waits for one");
        assert_eq!(no.text("reason"), "busy");
        assert_eq!(no.text("id"), no.header("rideau-id"));
        let more = server.ask(&session, &path, r#"{"per":2}"#).await;
        assert_eq!(more.json()["ordinal"], 2, "{more:?}");
    }
    assert_eq!(server.daemon.locks.held(b"tenant/42/mail".as_slice()), 2);
    assert_eq!(server.daemon.locks.held(b"/absolute".as_slice()), 2);
    assert_eq!(server.daemon.locks.held(b"a/b c".as_slice()), 2);
}

#[tokio::test]
async fn two_sessions_that_meet_say_goodbye() {
    let server = Server::start(CONFIG).await;
    let (asker, worker) = (server.session("").await, server.session("").await);
    let (ask, offer) = tokio::join!(
        server.ask(
            &asker,
            "/v1/ask/work",
            r#"{"value":"order 7","wait_ms":10000}"#
        ),
        server.ask(
            &worker,
            "/v1/offer/work",
            r#"{"value":"w1","wait_ms":10000}"#
        ),
    );
    assert_eq!((ask.status, offer.status), (200, 200), "{ask:?} {offer:?}");
    assert_eq!(
        (ask.text("value"), offer.text("value")),
        ("w1".into(), "order 7".into())
    );

    let done = format!("POST /v1/grants/{}/done", offer.text("ticket"));
    let done = server.send(&done, &[], r#"{"payload":"42"}"#).await;
    assert_eq!(done.status, 200, "{done:?}");
    let path = format!("/v1/grants/{}/end", ask.text("ticket"));
    let ended = server.ask(&asker, &path, "").await;
    assert_eq!(ended.text("outcome"), "done");
    assert_eq!(ended.text("payload"), "42");
}

#[tokio::test]
async fn a_client_that_hangs_up_while_it_waits_gives_its_place_up() {
    let server = Server::start(CONFIG).await;
    let session = server.session("").await;
    let header = format!("Rideau-Session: {session}");
    let body = r#"{"wait_ms":30000}"#;
    let waiting = server.open("POST /v1/ask/work", &[&header], body).await;
    let broker = server.daemon.catalog.load().brokers["work"].clone();
    server.until(|_| broker.broker.len(Side::Ask) == 1).await;
    assert_eq!(server.daemon.counts.waiting.load(Ordering::Relaxed), 1);
    drop(waiting);
    server.until(|_| broker.broker.len(Side::Ask) == 0).await;
    server
        .until(|daemon| daemon.counts.waiting.load(Ordering::Relaxed) == 0)
        .await;
}

#[tokio::test]
async fn the_end_of_a_session_gives_everything_back() {
    let server = Server::start(CONFIG).await;
    let session = server.session("").await;
    server.ask(&session, "/v1/lock/a", "").await;
    server.ask(&session, "/v1/lock/b", "").await;
    let path = format!("DELETE /v1/sessions/{session}");
    let closed = server.send(&path, &[], "").await;
    assert_eq!(closed.json()["released"], 2);
    let late = server.ask(&session, "/v1/lock/c", "").await;
    assert_eq!((late.status, late.text("code").as_str()), (404, "NOSUCH"));

    let short = server.session(r#"{"ttl_ms":30}"#).await;
    let lock = server.ask(&short, "/v1/lock/d", "").await;
    assert_eq!(lock.status, 200, "{lock:?}");
    server
        .until(|daemon| daemon.locks.held(b"d".as_slice()) == 0)
        .await;
    let renew = format!("POST /v1/sessions/{short}/renew");
    assert_eq!(server.send(&renew, &[], "").await.status, 404);
}

#[tokio::test]
async fn a_session_outlives_a_wait_that_is_longer_than_its_time() {
    let server = Server::start(CONFIG).await;
    let (short, other) = (
        server.session(r#"{"ttl_ms":300}"#).await,
        server.session("").await,
    );
    let first = server.ask(&other, "/v1/lock/a", "").await;
    let release = async {
        tokio::time::sleep(std::time::Duration::from_millis(700)).await;
        let path = format!("DELETE /v1/grants/{}", first.text("ticket"));
        server.send(&path, &[], "").await
    };
    let wait = server.ask(&short, "/v1/lock/a", r#"{"wait_ms":20000}"#);
    let (second, released) = tokio::join!(wait, release);
    assert_eq!((second.status, released.status), (200, 200), "{second:?}");
    assert!(second.json()["waited_us"].as_u64().unwrap() > 0);
}

#[tokio::test]
async fn a_client_that_did_not_hear_the_answer_asks_again_with_the_same_id() {
    let server = Server::start(CONFIG).await;
    let session = server.session("").await;
    let body = r#"{"id":"order-7"}"#;
    let first = server.ask(&session, "/v1/take/pg", body).await;
    let again = server.ask(&session, "/v1/take/pg", body).await;
    assert_eq!(first.text("ticket"), again.text("ticket"));
    let lock = server
        .ask(&session, "/v1/lock/k", r#"{"id":"lock-7"}"#)
        .await;
    let again = server
        .ask(&session, "/v1/lock/k", r#"{"id":"lock-7"}"#)
        .await;
    assert_eq!(again.json(), lock.json());
}

#[tokio::test]
async fn mistakes_are_told_in_sentences() {
    let server = Server::start(CONFIG).await;
    let session = server.session("").await;
    let none = server.send("POST /v1/take/pg", &[], "").await;
    assert_eq!(none.status, 400);
    assert!(none.text("error").contains("Rideau-Session"), "{none:?}");
    for (path, body, status) in [
        ("/v1/take/nowhere", "", 404),
        ("/v1/take/pg", "{", 400),
        ("/v1/take/pg", r#"{"wait":5}"#, 400),
        ("/v1/take/pg", r#"{"wait_ms":999999999}"#, 400),
        ("/v1/take/pg", r#"{"wait_ms":-1}"#, 400),
        ("/v1/ask/nobody", "", 404),
        ("/v1/grants/g-1/done", "", 404),
    ] {
        let reply = server.ask(&session, path, body).await;
        assert_eq!(reply.status, status, "{path} {body} {reply:?}");
        let error = reply.text("error");
        assert!(error.ends_with('.'), "{error}");
    }
    let lock = server.ask(&session, "/v1/lock/k", "").await;
    let path = format!("POST /v1/grants/{}/done", lock.text("ticket"));
    assert_eq!(server.send(&path, &[], "").await.status, 409);
}

#[tokio::test]
async fn no_new_ask_is_served_while_the_server_stops() {
    let server = Server::start(CONFIG).await;
    let session = server.session("").await;
    let lock = server.ask(&session, "/v1/lock/k", "").await;
    server.daemon.draining.store(true, Ordering::Release);
    let ready = server.get("/readyz").await;
    assert_eq!((ready.status, ready.body.as_str()), (503, "draining\n"));
    assert_eq!(server.get("/healthz").await.status, 200);
    let no = server.ask(&session, "/v1/take/pg", "").await;
    assert_eq!((no.status, no.header("retry-after")), (503, "1"));
    assert_eq!(server.send("POST /v1/sessions", &[], "").await.status, 503);
    let path = format!("DELETE /v1/grants/{}", lock.text("ticket"));
    assert_eq!(
        server.send(&path, &[], "").await.status,
        200,
        "holders finish"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn curl_is_all_that_one_needs() {
    let server = Server::start(CONFIG).await;
    let url = format!("http://localhost:{}", server.http.port());
    let curl = |arguments: &[&str]| {
        let mut command = command("curl");
        command.args(["-sS", "--max-time", "20"]).args(arguments);
        let out = tokio::task::block_in_place(|| command.output()).unwrap();
        assert!(out.status.success(), "{out:?}");
        serde_json::from_slice::<serde_json::Value>(&out.stdout).unwrap()
    };
    let opened = curl(&["-d", r#"{"ttl_ms":5000}"#, &format!("{url}/v1/sessions")]);
    let header = format!("Rideau-Session: {}", opened["id"].as_str().unwrap());
    let taken = curl(&["-X", "POST", "-H", &header, &format!("{url}/v1/take/pg")]);
    assert_eq!(taken["outcome"], "go");
    let grant = format!("{url}/v1/grants/{}", taken["ticket"].as_str().unwrap());
    let failed = curl(&["-X", "DELETE", &format!("{grant}?fail=broken+pipe")]);
    assert_eq!(failed["outcome"], "ok");
}

#[tokio::test]
async fn one_connection_carries_many_requests() {
    use tokio::io::AsyncWriteExt;
    let server = Server::start(CONFIG).await;
    let mut stream = tokio::net::TcpStream::connect(server.http).await.unwrap();
    let request = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let last = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let all = request.repeat(9) + last;
    stream.write_all(all.as_bytes()).await.unwrap();
    let mut answers = String::new();
    stream.read_to_string(&mut answers).await.unwrap();
    assert_eq!(answers.matches("HTTP/1.1 200 OK").count(), 10);
}

#[tokio::test]
async fn one_is_told_when_to_come_back() {
    let config = "[lock.\"*\"]\nqueue = { kind = \"timeout\", timeout = \"5s\", max = 1 }\n";
    let server = Server::start(config).await;
    let session = server.session("").await;
    server.ask(&session, "/v1/lock/a", "").await;
    let wait = r#"{"wait_ms":8000}"#;
    let head = format!("Rideau-Session: {session}");
    let waiting = server.open("POST /v1/lock/a", &[&head], wait).await;
    server
        .until(|daemon| daemon.locks.waiting(b"a".as_slice()) == 1)
        .await;
    let full = server.ask(&session, "/v1/lock/a", wait).await;
    assert_eq!(
        (full.status, full.header("retry-after")),
        (409, "5"),
        "{full:?}"
    );
    assert_eq!(full.json()["retry_after_us"], 5_000_000);
    drop(waiting);
}

#[tokio::test]
async fn an_ask_waits_in_the_background_and_its_answer_is_told_again() {
    let server = Server::start(CONFIG).await;
    let (holder, asker) = (server.session("").await, server.session("").await);
    let held = server.ask(&holder, "/v1/lock/k", "").await;
    let body = r#"{"wait_ms":20000,"async":true}"#;
    let begun = server.ask(&asker, "/v1/lock/k", body).await;
    assert_eq!(
        (begun.status, begun.text("outcome").as_str()),
        (202, "await")
    );
    let ticket = begun.text("ticket");
    let wait = format!("/v1/grants/{ticket}/await");
    let waits = server.ask(&asker, &wait, r#"{"wait_ms":1}"#).await;
    assert_eq!(
        (waits.status, waits.text("reason").as_str()),
        (408, "waits")
    );
    let release = format!("DELETE /v1/grants/{}", held.text("ticket"));
    assert_eq!(server.send(&release, &[], "").await.status, 200);
    for _ in 0..2 {
        let told = server.ask(&asker, &wait, r#"{"wait_ms":20000}"#).await;
        assert_eq!((told.status, told.text("outcome").as_str()), (200, "go"));
        assert_eq!(
            (told.text("ticket"), told.json()["capacity"].as_u64()),
            (ticket.clone(), Some(1))
        );
    }
    let release = format!("DELETE /v1/grants/{ticket}");
    assert_eq!(server.send(&release, &[], "").await.status, 200);
    assert_eq!(server.ask(&asker, &wait, "").await.status, 410);
    assert_eq!(server.daemon.locks.held(b"k".as_slice()), 0);
}

#[tokio::test]
async fn an_ask_in_the_background_can_be_given_up() {
    let server = Server::start(CONFIG).await;
    let session = server.session("").await;
    for path in ["/v1/ask/work", "/v1/offer/work", "/v1/reserve/held"] {
        if path == "/v1/reserve/held" {
            let body = r#"{"async":true,"wait_ms":20000}"#;
            let alone = server.send(&format!("POST {path}"), &[], body).await;
            assert_eq!(alone.status, 400, "{alone:?}");
            // There are two.
            server.ask(&session, path, r#"{"count":2}"#).await;
        }
        let begun = server
            .ask(&session, path, r#"{"wait_ms":20000,"async":true}"#)
            .await;
        assert_eq!(begun.status, 202, "{path}: {begun:?}");
        let ticket = begun.text("ticket");
        let cancel = format!("/v1/grants/{ticket}/cancel");
        for is_cancelled in [true, false] {
            let told = server.ask(&session, &cancel, "").await;
            assert_eq!(told.status, 200, "{path}: {told:?}");
            assert_eq!(told.json()["is_cancelled"], is_cancelled, "{path}");
        }
        let end = server
            .ask(&session, &format!("/v1/grants/{ticket}/await"), "")
            .await;
        assert_eq!(end.status, 410, "{path}: {end:?}");
    }
    // What waits ends with its session.
    let begun = server
        .ask(
            &session,
            "/v1/ask/work",
            r#"{"wait_ms":20000,"async":true}"#,
        )
        .await;
    assert_eq!(begun.status, 202);
    let close = format!("DELETE /v1/sessions/{session}");
    assert_eq!(server.send(&close, &[], "").await.status, 200);
    server
        .until(|daemon| daemon.counts.waiting.load(Ordering::Relaxed) == 0)
        .await;
}

#[tokio::test]
async fn a_value_comes_later() {
    let server = Server::start(CONFIG).await;
    let session = server.session("").await;
    let first = server.ask(&session, "/v1/reserve/held", "").await;
    server.ask(&session, "/v1/reserve/held", "").await;
    let body = r#"{"wait_ms":20000,"async":true}"#;
    let begun = server.ask(&session, "/v1/reserve/held", body).await;
    let release = format!("DELETE /v1/grants/{}", first.text("ticket"));
    assert_eq!(server.send(&release, &[], "").await.status, 200);
    let wait = format!("/v1/grants/{}/await", begun.text("ticket"));
    let told = server.ask(&session, &wait, r#"{"wait_ms":20000}"#).await;
    assert_eq!(
        (told.status, told.text("value").as_str()),
        (200, "1"),
        "{told:?}"
    );
    let release = format!("DELETE /v1/grants/{}", told.text("value_ticket"));
    assert_eq!(server.send(&release, &[], "").await.status, 200, "{told:?}");
    assert_eq!(server.get("/v1/values/1").await.text("state"), "free");
}
