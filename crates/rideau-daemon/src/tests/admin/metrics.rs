//! What Prometheus reads.

use std::io::Write;
use std::process::Stdio;

use crate::Daemon;
use rideau_testing::{Start, command};

use crate::tests::admin::exposition::Exposition;
use crate::tests::admin::web::{CONFIG, LONG, Server};

/// The value of a series, written as Prometheus writes it.
fn value(page: &str, series: &str) -> f64 {
    let line = page.lines().find_map(|line| line.strip_prefix(series));
    let line = line.unwrap_or_else(|| panic!("no {series} in {page}"));
    line.trim().parse().unwrap()
}

#[tokio::test]
async fn what_happened_is_counted() {
    let server = Server::start(CONFIG).await;
    let session = server.session("").await;
    let take = server.ask(&session, "/v1/take/pg", "").await;
    server.ask(&session, "/v1/take/pg", "").await;
    server
        .ask(&session, "/v1/take/pg", r#"{"wait_ms":1}"#)
        .await;
    server.ask(&session, "/v1/lock/tenant/42", "").await;
    server.ask(&session, "/v1/lock/tenant/42", "").await;
    server
        .ask(&session, "/v1/ask/work", r#"{"wait_ms":1}"#)
        .await;
    let reply = server.metrics().await;
    assert!(
        reply
            .header("content-type")
            .starts_with("application/openmetrics-text")
    );
    let page = &reply.body;
    for (series, expected) in [
        ("rideau_pool_members{pool=\"pg\",state=\"held\"}", 2.0),
        ("rideau_pool_members_limit{pool=\"pg\",bound=\"max\"}", 2.0),
        ("rideau_pool_takes_total{pool=\"pg\",outcome=\"go\"}", 2.0),
        (
            "rideau_pool_takes_total{pool=\"pg\",outcome=\"timeout\"}",
            1.0,
        ),
        ("rideau_pool_wait_seconds_count{pool=\"pg\"}", 2.0),
        (
            "rideau_pool_wait_seconds_bucket{le=\"+Inf\",pool=\"pg\"}",
            2.0,
        ),
        ("rideau_lock_requests_total{rule=\"*\",outcome=\"go\"}", 1.0),
        (
            "rideau_lock_requests_total{rule=\"*\",outcome=\"full\"}",
            1.0,
        ),
        ("rideau_lock_held{rule=\"*\"}", 1.0),
        (
            "rideau_broker_queue_length{broker=\"work\",side=\"ask\"}",
            0.0,
        ),
        (
            "rideau_regulator_limit{regulator=\"size\",bound=\"max\"}",
            4.0,
        ),
        ("rideau_sessions", 1.0),
        ("rideau_blocked_clients", 0.0),
        ("rideau_refusals_total", 3.0),
        ("rideau_reclaims_total{kind=\"lock\",cause=\"quit\"}", 0.0),
    ] {
        assert_eq!(value(page, series), expected, "{series}");
    }
    assert!(value(page, "process_resident_memory_bytes") > 1e6);
    assert!(page.contains("rideau_build_info{version=\""));

    server
        .send(&format!("DELETE /v1/sessions/{session}"), &[], "")
        .await;
    let page = server.get("/metrics").await.body;
    let quit = "rideau_reclaims_total{kind=\"pool\",cause=\"quit\"}";
    assert_eq!(value(&page, quit), 2.0);
    for secret in ["tenant", "42", &session, &take.text("ticket")] {
        let labels = page.lines().filter(|line| line.contains('{'));
        let mut leaks = labels.filter(|line| line.split('}').next().unwrap().contains(secret));
        assert_eq!(leaks.next(), None, "{secret} is no name of the config");
    }
}

/// Two of each, and a protector that has nothing to do.
const BUSY: &str = r#"
[pool."odd\\name"]
member = { list = ["one"] }
[broker.work]
[broker.crowded]
asks = { kind = "codel", target = "1ms", interval = "200ms" }
[broker.guarded]
asks = { kind = "never" }
protect = { ask = { target = "1ms", interval = "10ms" }, update = "10ms" }
[regulator.size]
valve = { kind = "open", max = 4 }
[lock."*"]
per = 1
"#;

#[tokio::test]
async fn the_page_is_well_formed() {
    let server = Server::start(BUSY).await;
    let session = server.session("").await;
    server.ask(&session, "/v1/take/odd%5Cname", "").await;
    let page = server.metrics().await.body;
    let read = Exposition::read(&page);
    let pool = ("pool", "odd\\name");
    assert_eq!(
        read.value("rideau_pool_members", &[pool, ("state", "held")]),
        1.0
    );
    let waits = &read.families["rideau_pool_wait_seconds"];
    let buckets = waits.samples.iter();
    let buckets = buckets.filter(|sample| sample.name.ends_with("_bucket"));
    assert_eq!(buckets.count(), 16);
}

#[tokio::test]
async fn what_was_taken_back_is_counted_by_kind_and_cause() {
    let server = Server::start(CONFIG).await;
    let mut redis = server.redis().await;
    for line in ["TAKE pg", "LOCK a", "LOCK b", "REG.ASK size"] {
        redis.say(line).await;
        let head = redis.hear().await.unwrap();
        let len: usize = head.strip_prefix('*').expect("a grant").parse().unwrap();
        for _ in 0..len {
            let line = redis.hear().await.unwrap();
            if line.starts_with('$') {
                redis.hear().await.unwrap();
            }
        }
    }
    drop(redis);
    server.until(|daemon| daemon.clients.is_empty()).await;
    let session = server.session("").await;
    server.ask(&session, "/v1/lock/c", "").await;
    server
        .send(&format!("DELETE /v1/sessions/{session}"), &[], "")
        .await;
    let read = Exposition::read(&server.metrics().await.body);
    let of = |kind, cause| {
        let labels = [("kind", kind), ("cause", cause)];
        read.value("rideau_reclaims_total", &labels)
    };
    assert_eq!(of("pool", "disconnect"), 1.0);
    assert_eq!(of("lock", "disconnect"), 2.0);
    assert_eq!(of("regulator", "disconnect"), 1.0);
    assert_eq!(of("lock", "quit"), 1.0);
    for kind in ["pool", "lock", "broker", "regulator"] {
        for cause in ["ttl", "revoke", "dead_peer"] {
            assert_eq!(of(kind, cause), 0.0, "{kind} {cause}");
        }
    }
}

#[tokio::test]
async fn a_connection_that_missed_its_heartbeat_is_a_dead_peer() {
    let server = Server::start(CONFIG).await;
    let mut redis = server.redis().await;
    redis.say("LOCK a").await;
    assert_eq!(redis.hear().await.unwrap(), "*5");
    redis.say("CLIENT HEARTBEAT 20").await;
    server.until(|daemon| daemon.clients.is_empty()).await;
    let read = Exposition::read(&server.metrics().await.body);
    let labels = [("kind", "lock"), ("cause", "dead_peer")];
    assert_eq!(read.value("rideau_reclaims_total", &labels), 1.0);
}

#[tokio::test]
async fn foreign_releases_are_counted_by_user_and_library() {
    let server = Server::start(CONFIG).await;
    let (mut one, mut other) = (server.redis().await, server.redis().await);
    for (key, library) in [
        ("a", "redis-py"),
        ("b", "redis-py(om_v1)"),
        ("c", "mine/{}\""),
    ] {
        one.say(&format!("LOCK {key}")).await;
        let mut ticket = String::new();
        for _ in 0..8 {
            let line = one.hear().await.unwrap();
            if line.starts_with("l-") {
                ticket = line;
            }
        }
        other.say("RESET").await;
        other.hear().await.unwrap();
        let set = format!("CLIENT SETINFO LIB-NAME {}", library.replace('"', ""));
        other.say(&set).await;
        assert_eq!(other.hear().await.unwrap(), "+OK", "{set}");
        other.say(&format!("RELEASE {ticket}")).await;
        assert_eq!(other.hear().await.unwrap(), "+OK");
    }
    let read = Exposition::read(&server.metrics().await.body);
    let of = |lib| {
        let labels = [("user", "default"), ("lib", lib)];
        read.value("rideau_foreign_releases_total", &labels)
    };
    assert_eq!((of("redis-py"), of("other")), (2.0, 1.0));
}

#[tokio::test]
async fn brokers_show_which_side_was_first_and_whether_they_refuse() {
    let server = Server::start(BUSY).await;
    let session = server.session("").await;
    let ask = server.ask(&session, "/v1/ask/work", r#"{"wait_ms":5000}"#);
    let offer = async {
        let is_there = |daemon: &Daemon| {
            let catalog = daemon.catalog.load();
            catalog.brokers["work"].broker.stats().asks_len == 1
        };
        server.until(is_there).await;
        server.ask(&session, "/v1/offer/work", "").await
    };
    let (ask, offer) = tokio::join!(ask, offer);
    assert_eq!((ask.status, offer.status), (200, 200), "{ask:?} {offer:?}");
    let read = Exposition::read(&server.metrics().await.body);
    let work = ("broker", "work");
    let up_to = |bound| {
        let labels = [work, ("le", bound)];
        read.value("rideau_broker_relative_seconds_bucket", &labels)
    };
    assert_eq!(
        (up_to("0.0"), up_to("+Inf")),
        (0.0, 1.0),
        "the ask was first"
    );
    let sums = &read.families["rideau_broker_sojourn_seconds"].samples;
    let sum = sums.iter().find(|sample| {
        let is_ask = sample.labels["side"] == "ask" && sample.labels["broker"] == "work";
        sample.name.ends_with("_sum") && is_ask
    });
    assert!(sum.unwrap().value > 0.0);
    for side in ["ask", "offer"] {
        let labels = [work, ("side", side)];
        assert_eq!(read.value("rideau_broker_congested", &labels), 0.0);
        assert_eq!(read.value("rideau_broker_drop_probability", &labels), 0.0);
    }
}

#[tokio::test]
async fn a_broker_that_refuses_on_purpose_says_so() {
    let server = Server::start(BUSY).await;
    let session = format!("Rideau-Session: {}", server.session("").await);
    let wait = r#"{"wait_ms":20000}"#;
    let mut crowd = Vec::new();
    for broker in ["crowded", "guarded"] {
        for _ in 0..30 {
            let ask = format!("POST /v1/ask/{broker}");
            crowd.push(server.open(&ask, &[&session], wait).await);
        }
    }
    let of = |read: &Exposition, name: &str, broker: &str| {
        let labels = [("broker", broker), ("side", "ask")];
        read.value(name, &labels)
    };
    let both = async {
        let (mut congested, mut chance) = (0.0, 0.0);
        while congested < 1.0 || chance == 0.0 {
            let read = Exposition::read(&server.metrics().await.body);
            congested = of(&read, "rideau_broker_congested", "crowded").max(congested);
            chance = of(&read, "rideau_broker_drop_probability", "guarded").max(chance);
            assert!(chance <= 1.0, "{chance}");
            // Meters look when an ask comes.
            let ask = "POST /v1/ask/guarded";
            server.send(ask, &[&session], r#"{"now":true}"#).await;
        }
    };
    let both = tokio::time::timeout(LONG, both).await;
    both.expect("both refuse before long");
    drop(crowd);
}

#[tokio::test]
async fn commands_are_counted_and_timed_by_name_and_outcome() {
    let server = Server::start(CONFIG).await;
    let mut redis = server.redis().await;
    // What comes at once and what waits is counted alike.
    redis.say("PING\r\nLOCK\r\nPING\r\nNONSENSE").await;
    for answer in ["+PONG", "-ERR", "+PONG", "-ERR"] {
        let line = redis.hear().await.unwrap();
        assert!(line.starts_with(answer), "{line}");
    }
    redis.say("ASK work WAIT 20").await;
    assert_eq!(redis.hear().await.unwrap(), "*6");
    let session = server.session("").await;
    server.ask(&session, "/v1/lock/a", "").await;

    let read = Exposition::read(&server.metrics().await.body);
    let count = |command, outcome| {
        let labels = [("command", command), ("outcome", outcome)];
        read.value("rideau_commands_total", &labels)
    };
    assert_eq!((count("PING", "ok"), count("PING", "error")), (2.0, 0.0));
    assert_eq!((count("LOCK", "ok"), count("LOCK", "error")), (1.0, 1.0));
    assert_eq!(count("unknown", "error"), 1.0);
    assert_eq!(count("ASK", "ok"), 1.0);
    let timed = |command| read.value("rideau_command_seconds_count", &[("command", command)]);
    assert_eq!((timed("PING"), timed("LOCK")), (2.0, 2.0));
    let waited = read.value("rideau_command_seconds_sum", &[("command", "ASK")]);
    // The clock of the wait began before that of the command: on a busy machine
    // much of the wait is over by then.
    assert!(waited > 0.0, "the wait is counted in");
}

/// `promtool` reads both forms: the classic one as it is, and the other as what was
/// measured in the past, which needs times.
#[tokio::test]
async fn both_forms_are_what_prometheus_reads() {
    let server = Server::start(CONFIG).await;
    let session = server.session("").await;
    server.ask(&session, "/v1/take/pg", "").await;
    server
        .ask(&session, "/v1/ask/work", r#"{"wait_ms":1}"#)
        .await;
    let classic = server.get("/metrics").await;
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    assert_eq!(classic.header("content-type"), kind);
    assert_eq!(classic.header("vary"), "Accept");
    assert!(!classic.body.contains("# EOF"));
    let mut tool = command("promtool");
    let mut tool = tool
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .start();
    let mut input = tool.stdin.take().unwrap();
    input.write_all(classic.body.as_bytes()).unwrap();
    drop(input);
    let checked = tool.wait_with_output().unwrap();
    assert!(checked.status.success(), "{checked:?}\n{}", classic.body);

    let open = server.metrics().await;
    let timed = |line: &str| match line.starts_with('#') {
        true => format!("{line}\n"),
        false => format!("{line} 1700000000\n"),
    };
    let page: String = open.body.lines().map(timed).collect();
    let folder = std::env::temp_dir().join(format!("rideau-metrics-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("page");
    std::fs::write(&file, &page).unwrap();
    let mut tool = command("promtool");
    let tool = tool.args(["tsdb", "create-blocks-from", "openmetrics"]);
    let read = tool.arg(&file).arg(folder.join("blocks")).output().unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(read.status.success(), "{read:?}\n{page}");
}

#[tokio::test]
async fn an_app_that_waits_for_room_says_for_how_long() {
    let folder = std::env::temp_dir().join(format!("rideau-starved-{}", std::process::id()));
    let other = CONFIG.split("[app.shop]").nth(1).unwrap();
    let front = "[front]\nmax = 1\nheadroom = 0";
    let server = format!("[server]\nrun_dir = {folder:?}\n{front}\n{CONFIG}[app.blog]{other}");
    let server = server + "hosts = [\"blog\"]\n";
    let server = Server::start(&server).await;
    let (own, wait) = (server.session("").await, r#"{"wait_ms":20000}"#);
    let place = server.ask(&own, "/v1/place/shop", wait).await;
    assert_eq!(place.status, 200, "{place:?}");
    let read = Exposition::read(&server.metrics().await.body);
    let waited = |read: &Exposition, app| {
        let labels = [("app", app)];
        read.value("rideau_app_room_wait_seconds", &labels)
    };
    assert_eq!((waited(&read, "shop"), waited(&read, "blog")), (0.0, 0.0));
    let session = format!("Rideau-Session: {own}");
    let waits = server.open("POST /v1/place/blog", &[&session], wait).await;
    let is_starved = |daemon: &Daemon| daemon.apps.stats().starved == 1;
    server.until(is_starved).await;
    let read = Exposition::read(&server.metrics().await.body);
    assert!(
        waited(&read, "blog") > 0.0,
        "it waits for the place of shop"
    );
    assert_eq!(waited(&read, "shop"), 0.0);
    let shown = server.get("/api/v1/apps/blog").await.json();
    assert!(shown["room_wait_us"].as_u64() > Some(0), "{shown}");
    drop(waits);
    server.daemon.apps.close_now().await;
    let _ = std::fs::remove_dir_all(folder);
}
