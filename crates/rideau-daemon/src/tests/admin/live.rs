//! What watchers are told.

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::net::TcpStream;

use crate::tests::admin::web::{CONFIG, LONG, Server};

/// Samples every few milliseconds, so that no test has to wait.
const QUICK: &str = "[server]\nhistory = { fine = \"10s@10ms\" }\n";

struct Watcher(Lines<BufReader<TcpStream>>);

impl Watcher {
    async fn open(server: &Server, path: &str) -> Self {
        let stream = server.open(&format!("GET {path}"), &[], "").await;
        Self(BufReader::new(stream).lines())
    }

    /// The next event: its kind and what it says.
    async fn next(&mut self) -> (String, Value) {
        let mut kind = String::new();
        loop {
            let line = tokio::time::timeout(LONG, self.0.next_line()).await;
            let line = line.unwrap().unwrap().unwrap();
            if let Some(word) = line.strip_prefix("event: ") {
                kind = word.into();
            }
            if let Some(json) = line.strip_prefix("data: ") {
                return (kind, serde_json::from_str(json).unwrap());
            }
        }
    }
}

#[tokio::test]
async fn a_dashboard_sees_the_numbers_change() {
    let server = Server::start(&format!("{QUICK}{CONFIG}")).await;
    let mut watcher = Watcher::open(&server, "/api/v1/stream").await;
    let (kind, sample) = watcher.next().await;
    assert_eq!(kind, "sample");
    assert_eq!(sample["pool"]["pg"]["held"], 0.0, "{sample}");
    assert_eq!(sample["broker"]["work"]["asks"], 0.0);
    assert_eq!(sample["regulator"]["size"]["held"], 0.0);
    assert_eq!(sample["lock"]["*"]["grants_per_s"], 0.0);
    let session = server.session("").await;
    server.ask(&session, "/v1/take/pg", "").await;
    let mut grants = 0.0;
    loop {
        let (_, sample) = watcher.next().await;
        grants += sample["pool"]["pg"]["grants_per_s"].as_f64().unwrap();
        if sample["pool"]["pg"]["held"] == 1.0 && grants > 0.0 {
            assert_eq!(sample["server"]["sessions"], 1.0);
            break;
        }
    }
}

#[tokio::test]
async fn what_happened_before_comes_first() {
    let server = Server::start(CONFIG).await;
    server.act("/api/v1/pools/pg/pause", "").await;
    server.act("/api/v1/pools/pg/resume", "").await;
    let mut watcher = Watcher::open(&server, "/api/v1/events?last=10").await;
    assert_eq!(watcher.next().await.1["text"], "pg was paused");
    assert_eq!(watcher.next().await.1["text"], "pg was resumed");
    server.act("/api/v1/pools/pg/recycle", "").await;
    let (kind, event) = watcher.next().await;
    assert_eq!((kind.as_str(), &event["id"]), ("event", &3.into()));
}

#[tokio::test]
async fn a_series_can_be_read_later() {
    let server = Server::start(&format!("{QUICK}{CONFIG}")).await;
    let mut watcher = Watcher::open(&server, "/api/v1/stream").await;
    for _ in 0..4 {
        watcher.next().await;
    }
    let names = server.get("/api/v1/history").await.json();
    let names = names["names"].as_array().unwrap();
    assert!(names.contains(&"pool.pg.held".into()), "{names:?}");
    let path = "/api/v1/history?series=pool.pg.max,server.clients&span=1m";
    let history = server.get(path).await.json();
    let values = history["series"]["pool.pg.max"].as_array().unwrap();
    assert!(values.len() >= 3, "{history}");
    assert_eq!(values[0][1], 2.0);
    let ats = values.iter().map(|pair| pair[0].as_u64().unwrap());
    assert!(ats.is_sorted());
    let none = server.get("/api/v1/history?series=pool.no.max").await;
    assert_eq!(none.status, 404);
    let odd = server.get("/api/v1/history?series=a&span=ten").await;
    assert_eq!(odd.status, 400);
}

#[tokio::test]
async fn the_page_shows_what_there_is_and_runs_nothing() {
    let server = Server::start(CONFIG).await;
    let mut redis = server.redis().await;
    redis.say("CLIENT SETNAME <b>bold</b>").await;
    redis.hear().await.unwrap();
    let page = server.get("/").await;
    assert!(page.header("content-type").starts_with("text/html"));
    for shown in ["<td>pg</td>", "<td>work</td>", "<td>size</td>", "TAKE pg"] {
        assert!(page.body.contains(shown), "{shown} {}", page.body);
    }
    assert!(page.body.contains("&lt;b&gt;bold"), "{}", page.body);
    redis.say("TAKE pg NOTE nightly").await;
    redis.hear().await.unwrap();
    let page = server.get("/").await;
    for shown in ["<h2>Holders</h2>", "<td>nightly</td>", "<td>running</td>"] {
        assert!(page.body.contains(shown), "{shown} {}", page.body);
    }
    let place = |title: &str| page.body.find(&format!("<h2>{title}</h2>"));
    assert!(place("Events") <= place("Clients"), "{}", page.body);
    for unwanted in ["<b>", "<script", "style=", "<style"] {
        assert!(!page.body.contains(unwanted), "{unwanted}");
    }
    let style = server.get("/assets/status.css").await;
    assert!(style.header("content-type").starts_with("text/css"));
}
