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

/// The blocks of a page of one type.
fn blocks<'a>(page: &'a Value, kind: &str) -> Vec<&'a Value> {
    let all = page["blocks"].as_array().unwrap().iter();
    all.filter(|block| block["type"] == kind).collect()
}

/// A page, once a sample has been ranked that has this text.
async fn page_with(server: &Server, path: &str, text: &str) -> Value {
    let looked = async {
        loop {
            let page = server.get(path).await;
            assert_eq!(page.status, 200, "{page:?}");
            if page.body.contains(text) {
                return page.json();
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LONG, looked).await.unwrap()
}

#[tokio::test]
async fn the_overview_says_what_needs_a_look_and_where_it_is() {
    let server = Server::start(&format!("{QUICK}{CONFIG}")).await;
    let mut redis = server.redis().await;
    redis.say("CLIENT SETNAME <b>bold</b>").await;
    redis.hear().await.unwrap();
    let page = page_with(&server, "/api/v1/page/overview", "\"text\":\"pg\"").await;
    let titles: Vec<_> = blocks(&page, "table")
        .iter()
        .map(|table| table["title"].clone())
        .collect();
    for wanted in [
        "Pools",
        "Brokers",
        "Regulators",
        "Apps",
        "Ranges",
        "Rules for locks",
    ] {
        assert!(titles.contains(&wanted.into()), "{wanted} of {titles:?}");
    }
    assert_eq!(blocks(&page, "alerts")[0]["rows"], serde_json::json!([]));
    server.act("/api/v1/pools/pg/pause", "").await;
    let page = page_with(&server, "/api/v1/page/overview", "it is paused").await;
    let alert = &blocks(&page, "alerts")[0]["rows"][0];
    assert_eq!(
        (&alert["level"], &alert["link"]),
        (&"warn".into(), &"pools/pg".into())
    );
    assert_eq!(page["frame"]["level"], "warn");
    server.act("/api/v1/pools/pg/resume", "").await;
    redis.say("TAKE pg NOTE nightly").await;
    redis.hear().await.unwrap();
    let page = page_with(&server, "/api/v1/page/holders", "nightly").await;
    let table = blocks(&page, "table")[0];
    assert_eq!(table["total"], 1);
    assert!(
        table["rows"][0].to_string().contains("<b>bold</b>"),
        "text is no code: {table}"
    );
    let one = server.get("/api/v1/page/pools/pg").await.json();
    let chart = blocks(&one, "chart")[0];
    assert!(
        !chart["past"]["at_ms"].as_array().unwrap().is_empty(),
        "{chart}"
    );
    assert_eq!(blocks(&one, "heat").len(), 1);
    assert!(
        blocks(&one, "actions").is_empty(),
        "the operator has not logged in"
    );
}

#[tokio::test]
async fn a_page_is_told_again_with_each_sample() {
    let server = Server::start(&format!("{QUICK}{CONFIG}")).await;
    let mut watcher = Watcher::open(&server, "/api/v1/watch/pools/pg").await;
    let (kind, first) = watcher.next().await;
    assert_eq!(
        (kind.as_str(), &first["path"]),
        ("page", &"pools/pg".into())
    );
    assert!(
        blocks(&first, "chart")[0]["past"].is_null(),
        "it has them already"
    );
    server.act("/api/v1/pools/pg/pause", "").await;
    loop {
        let (_, page) = watcher.next().await;
        if page.to_string().contains("paused") {
            break;
        }
    }
    let mut gone = Watcher::open(&server, "/api/v1/watch/pools/nothing").await;
    assert_eq!(gone.next().await.0, "gone");
}

#[tokio::test]
async fn a_list_of_many_is_cut_counted_and_sorted() {
    let mut config = QUICK.to_owned();
    for pool in 0..120 {
        let members: Vec<_> = (0..=pool % 7)
            .map(|member| format!("\"{member}\""))
            .collect();
        config += &format!(
            "[pool.p{pool:03}]\nmember = {{ list = [{}] }}\n",
            members.join(",")
        );
    }
    let server = Server::start(&config).await;
    page_with(&server, "/api/v1/page/pools", "\"p000\"").await;
    let rows = async |query: &str| {
        let page = server
            .get(&format!("/api/v1/page/pools?{query}"))
            .await
            .json();
        let table = blocks(&page, "table")[0].clone();
        let names = table["rows"].as_array().unwrap().iter();
        let names: Vec<_> = names
            .map(|row| row["cells"][0]["text"].as_str().unwrap().to_owned())
            .collect();
        (names, table["total"].clone())
    };
    let (names, total) = rows("count=3&from=2").await;
    assert_eq!(
        (names.join(" ").as_str(), &total),
        ("p002 p003 p004", &120.into())
    );
    let (names, _) = rows("count=2&sort=-name").await;
    assert_eq!(names, ["p119", "p118"]);
    let (names, _) = rows("count=1&sort=-max").await;
    assert_eq!(names, ["p006"]);
    let (names, total) = rows("find=p01&count=2").await;
    assert_eq!(
        (names.join(" ").as_str(), &total),
        ("p010 p011", &10.into())
    );
}
