//! Alarms from the number to the message: what is shown of them, to which users, and what is sent.

use std::sync::Arc;

use rideau_config::Config;
use rideau_config::password::Hash;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::net::alarm_posts;
use crate::state::viewer::Viewer;
use crate::tests::admin::web::{CONFIG, LONG, Server};
use crate::view::alarms;
use crate::view::tables::{self, Cell, TableKind, TableQuery};

/// The next request to a listener, which is answered with this.
async fn posted(listener: &TcpListener, answer: &str) -> (String, Value) {
    let heard = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut text = Vec::new();
        loop {
            let mut part = [0; 4096];
            let len = stream.read(&mut part).await.unwrap();
            text.extend_from_slice(&part[..len]);
            let said = String::from_utf8_lossy(&text).into_owned();
            let Some((head, body)) = said.split_once("\r\n\r\n") else {
                continue;
            };
            if let Ok(json) = serde_json::from_str(body) {
                stream.write_all(answer.as_bytes()).await.unwrap();
                return (head.to_owned(), json);
            }
        }
    };
    tokio::time::timeout(LONG, heard).await.unwrap()
}

const TAKEN: &str = "HTTP/1.1 204 No Content\r\n\r\n";

fn is_on(daemon: &crate::Daemon) -> bool {
    daemon.alarms.all().iter().any(|alarm| alarm.is_on())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_alarm_is_shown_everywhere_and_sent() {
    let hook = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = hook.local_addr().unwrap().port();
    let server = Server::start(&format!(
        "{CONFIG}\n[[alarm]]\nname = \"pg is empty\"\nwhen = \"pool.pg.free < 1\"\n\
         post = \"http://127.0.0.1:{port}/hook?a=b\"\n"
    ))
    .await;
    let daemon = &server.daemon;
    let tasks = [
        tokio::spawn(alarms::keep(Arc::clone(daemon))),
        tokio::spawn(alarm_posts::keep(Arc::clone(daemon))),
    ];
    let gauge = "rideau_alarm{alarm=\"pg is empty\"} ";
    let metrics = server.metrics().await.body;
    assert!(metrics.contains(&format!("{gauge}0")), "{metrics}");
    let pool = daemon.catalog.load().pools["pg"].pool.clone();
    let held = [pool.take().await.unwrap(), pool.take().await.unwrap()];
    let (head, message) = posted(&hook, TAKEN).await;
    assert!(head.starts_with("POST /hook?a=b HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("content-type: application/json"), "{head}");
    assert_eq!(message["alarm"], "pg is empty");
    assert_eq!(
        (&message["state"], &message["value"]),
        (&"on".into(), &0.0.into())
    );
    assert_eq!(message["when"], "pool.pg.free < 1");
    assert_eq!(
        message["text"],
        "alarm pg is empty is on: pool pg: free is 0 (< 1)"
    );
    let metrics = server.metrics().await.body;
    assert!(metrics.contains(&format!("{gauge}1")), "{metrics}");
    let overview = server.get("/api/v1/page/overview").await.body;
    assert!(
        overview.contains("alarm “pg is empty”: free is 0 (< 1)"),
        "{overview}"
    );
    assert!(overview.contains("\"link\":\"pools/pg\""), "{overview}");
    drop(held);
    server.until(|daemon| !is_on(daemon)).await;
    let events = daemon.events.newest(10);
    let said: Vec<_> = events
        .iter()
        .filter(|event| event.kind == "alarm")
        .collect();
    assert_eq!(
        said[0].text,
        "alarm pg is empty is off: pool pg: free is 2 (< 1)"
    );
    // The limit is changed while the server runs.
    let path = "alarm.\"pg is empty\".when".to_owned();
    let changed = daemon.set(&[(path, "pool.pg.free < 9".into())], "ops");
    assert_eq!(changed.unwrap().steps.len(), 1);
    server.until(is_on).await;
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn a_message_that_is_not_taken_is_an_event_without_its_secret() {
    let hook = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = hook.local_addr().unwrap().port();
    let server = Server::start(&format!(
        "[[alarm]]\nname = \"any\"\nwhen = \"server.clients >= 0\"\n\
         post = \"http://127.0.0.1:{port}/secret\"\n"
    ))
    .await;
    let daemon = &server.daemon;
    let posts = tokio::spawn(alarm_posts::keep(Arc::clone(daemon)));
    daemon
        .alarms
        .step(&[(daemon.alarms.rules().remove(0), Some(0.0))]);
    let moved = format!(
        "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:{port}/other\r\n\
         Content-Length: 0\r\n\r\n"
    );
    for _ in 0..3 {
        let (head, _) = posted(&hook, &moved).await;
        assert!(
            head.starts_with("POST /secret "),
            "no redirect is followed: {head}"
        );
    }
    let is_said = |daemon: &crate::Daemon| {
        let events = daemon.events.newest(10);
        events
            .iter()
            .any(|event| event.text.contains("was not sent"))
    };
    server.until(is_said).await;
    let text = daemon.events.newest(1)[0].text.clone();
    assert_eq!(
        text,
        format!(
            "alarm any: the message to 127.0.0.1:{port} was not sent: the answer is 302 Found, \
             and redirects are not followed"
        )
    );
    posts.abort();
}

#[tokio::test]
async fn a_message_is_tried_again() {
    let hook = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = hook.local_addr().unwrap().port();
    let server = Server::start(&format!(
        "[[alarm]]\nname = \"any\"\nwhen = \"server.clients >= 0\"\n\
         post = \"http://127.0.0.1:{port}\"\n"
    ))
    .await;
    let daemon = &server.daemon;
    let posts = tokio::spawn(alarm_posts::keep(Arc::clone(daemon)));
    daemon
        .alarms
        .step(&[(daemon.alarms.rules().remove(0), Some(0.0))]);
    let broken = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n";
    let (_, first) = posted(&hook, broken).await;
    let (_, second) = posted(&hook, TAKEN).await;
    assert_eq!(first, second);
    posts.abort();
}

#[tokio::test]
async fn users_see_the_alarms_of_what_they_may_use() {
    let hash = Hash::of(b"secret").unwrap();
    let hash = hash.as_str();
    let text = format!(
        "{CONFIG}\n[user.anna]\npassword = '{hash}'\nallow = [\"@read\"]\non = [\"pool:pg\"]\n\
         [[alarm]]\nname = \"one\"\nwhen = \"pool.pg.free < 1\"\n\
         [[alarm]]\nname = \"two\"\nwhen = \"broker.work.asks > 1\"\n"
    );
    let server = Server::start(&text).await;
    let config: Arc<Config> = server.daemon.config.load_full();
    let names = |viewer| {
        let wanted = TableQuery {
            viewer,
            ..TableQuery::default()
        };
        let table = tables::table(&server.daemon, TableKind::Alarms, &wanted);
        assert_eq!(
            table.columns,
            ["name", "state", "since_ms", "value", "when"]
        );
        let name = |row: &Vec<Cell>| row[0].to_string();
        table.rows.iter().map(name).collect::<Vec<_>>()
    };
    assert_eq!(names(Viewer::ALL), ["one", "two"]);
    assert_eq!(names(Viewer::of(config.users.first())), ["one"]);
    assert!(!Viewer::of(config.users.first()).sees_event("alarm", "two"));
}
