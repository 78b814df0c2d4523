//! The OpenAPI document says what the server does.

use std::collections::BTreeSet;

use crate::Daemon;
use rideau_core::apps::State;
use serde_json::Value;

use crate::tests::admin::web::{CONFIG, Reply, Server};

/// A call: the method and the path as documented, and as they are used.
struct Call {
    method: &'static str,
    path: &'static str,
    used: String,
    headers: Vec<String>,
    body: String,
    status: u16,
}

fn call(method: &'static str, path: &'static str, used: &str, body: &str, status: u16) -> Call {
    Call {
        method,
        path,
        used: used.into(),
        headers: vec!["Rideau-Csrf: 1".into()],
        body: body.into(),
        status,
    }
}

impl Call {
    fn within(mut self, session: &str) -> Self {
        self.headers.push(format!("Rideau-Session: {session}"));
        self
    }
}

#[tokio::test]
async fn every_route_answers_as_documented() {
    let name = format!("rideau-document-{}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    let server = Server::start(&format!("[server]\nrun_dir = {folder:?}\n{CONFIG}")).await;
    let document = server.get("/api/openapi.json").await.json();
    assert_eq!(document["openapi"], "3.1.0");
    let mut redis = server.redis().await;
    redis.say("LOCK held-by-redis").await;
    redis.hear().await.unwrap();
    let mut seen = BTreeSet::new();
    for call in calls(&server).await {
        let reply = if is_stream(&document, &call) {
            first_lines(&server, &call).await
        } else {
            let headers: Vec<_> = call.headers.iter().map(String::as_str).collect();
            let head = format!("{} {}", call.method, call.used);
            server.send(&head, &headers, &call.body).await
        };
        assert_eq!(reply.status, call.status, "{} {reply:?}", call.used);
        check(&document, &call, &reply);
        seen.insert(format!("{} {}", call.method, call.path));
    }
    let documented: BTreeSet<_> = documented(&document).collect();
    let missed: Vec<_> = documented.difference(&seen).collect();
    assert!(missed.is_empty(), "no test called {missed:?}");
    server.daemon.apps.close_now().await;
    let _ = std::fs::remove_dir_all(folder);
}

#[tokio::test]
async fn what_is_not_documented_is_not_there() {
    let server = Server::start(CONFIG).await;
    let document = server.get("/api/openapi.json").await.json();
    let known: BTreeSet<_> = documented(&document).collect();
    for path in document["paths"].as_object().unwrap().keys() {
        let used = path.replace(['{', '}'], "");
        for method in ["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"] {
            if !known.contains(&format!("{method} {path}")) {
                let reply = server.send(&format!("{method} {used}"), &[], "").await;
                assert_eq!(reply.status, 405, "{method} {used} {reply:?}");
            }
        }
    }
    for path in [
        "/api",
        "/api/v1",
        "/v1",
        "/api/v2/state",
        "/healthz/",
        "/admin",
    ] {
        assert_eq!(server.get(path).await.status, 404, "{path}");
    }
}

fn documented(document: &Value) -> impl Iterator<Item = String> + '_ {
    let paths = document["paths"].as_object().unwrap().iter();
    paths.flat_map(|(path, methods)| {
        let methods = methods.as_object().unwrap().keys();
        methods.map(move |method| format!("{} {path}", method.to_uppercase()))
    })
}

/// At least one call of each route, and of each kind of answer that can be had.
async fn calls(server: &Server) -> Vec<Call> {
    let mut all = looks();
    all.extend(actions(server).await);
    all.extend(changes(server));
    all.extend(asks(server).await);
    all.extend(leases(server).await);
    all.extend(values(server).await);
    all.extend(apps(server).await);
    all
}

fn looks() -> Vec<Call> {
    let get = |path, used: &str, status| call("GET", path, used, "", status);
    let plain = [
        "/",
        "/healthz",
        "/readyz",
        "/metrics",
        "/api/openapi.json",
        "/api/v1/state",
        "/api/v1/pools",
        "/api/v1/brokers",
        "/api/v1/regulators",
        "/api/v1/locks",
        "/api/v1/ranges",
        "/api/v1/views",
        "/api/v1/apps",
        "/api/v1/clients",
        "/api/v1/sessions",
        "/api/v1/holders",
        "/api/v1/drops",
        "/api/v1/limits",
        "/api/v1/config",
        "/api/v1/config/history",
        "/api/v1/stream",
        "/api/v1/events",
        "/api/v1/history",
    ];
    let mut all: Vec<_> = plain.map(|path| get(path, path, 200)).into();
    let pool = "/api/v1/pools/{name}";
    let broker = "/api/v1/brokers/{name}";
    let explain = "/api/v1/explain/{id}";
    let (file, page) = ("/assets/{file}", "/api/v1/page/{page}");
    all.extend([
        get(file, "/assets/page.css", 200),
        get(file, "/assets/app.js", 200),
        get(file, "/assets/nothing.js", 404),
        get(page, "/api/v1/page/overview", 200),
        get(page, "/api/v1/page/pools/pg", 200),
        get(page, "/api/v1/page/pools/no", 404),
        get(page, "/api/v1/page/pools?count=0", 400),
        get("/api/v1/watch/{page}", "/api/v1/watch/overview", 200),
        get(pool, "/api/v1/pools/pg", 200),
        get(pool, "/api/v1/pools/no", 404),
        get(broker, "/api/v1/brokers/work", 200),
        get(broker, "/api/v1/brokers/no", 404),
        get("/api/v1/ranges/{name}", "/api/v1/ranges/office", 200),
        get("/api/v1/ranges/{name}", "/api/v1/ranges/no", 404),
        get(explain, "/api/v1/explain/10.20.0.1", 200),
        get(explain, "/api/v1/explain/pg", 200),
        get(explain, "/api/v1/explain/1", 200),
        get(explain, "/api/v1/explain/d-ffff", 404),
        get("/api/v1/locks", "/api/v1/locks?prefix=held&count=1", 200),
        get("/api/v1/locks", "/api/v1/locks?count=0", 400),
        get("/api/v1/locks", "/api/v1/locks?colour=red", 400),
        get("/api/v1/history", "/api/v1/history?series=no", 404),
    ]);
    all
}

async fn actions(server: &Server) -> Vec<Call> {
    let session = server.session("").await;
    let lock = server.ask(&session, "/v1/lock/to-revoke", "").await;
    let ticket = lock.text("ticket");
    let revoke = format!("/api/v1/grants/{ticket}/revoke");
    let post = |path, used: &str, body: &str, status| call("POST", path, used, body, status);
    let pool = |word: &str| format!("/api/v1/pools/pg/{word}");
    let mut all = vec![
        post(
            "/api/v1/pools/{name}/resize",
            &pool("resize"),
            "{\"max\":2}",
            200,
        ),
        post("/api/v1/pools/{name}/resize", &pool("resize"), "{}", 400),
        post("/api/v1/pools/{name}/pause", &pool("pause"), "", 200),
        post("/api/v1/pools/{name}/resume", &pool("resume"), "", 200),
        post("/api/v1/pools/{name}/recycle", &pool("recycle"), "", 200),
        post(
            "/api/v1/pools/{name}/pause",
            "/api/v1/pools/no/pause",
            "",
            404,
        ),
        post("/api/v1/grants/{ticket}/revoke", &revoke, "", 200),
        post("/api/v1/grants/{ticket}/revoke", &revoke, "", 410),
        post(
            "/api/v1/grants/{ticket}/revoke",
            "/api/v1/grants/x/revoke",
            "",
            404,
        ),
        post(
            "/api/v1/clients/{id}/kill",
            "/api/v1/clients/999/kill",
            "",
            404,
        ),
        post(
            "/api/v1/clients/{id}/kill",
            "/api/v1/clients/1/kill",
            "",
            200,
        ),
        post(
            "/api/v1/config/rollback",
            "/api/v1/config/rollback",
            "",
            422,
        ),
    ];
    all.push(Call {
        headers: Vec::new(),
        ..post("/api/v1/pools/{name}/pause", &pool("pause"), "", 403)
    });
    all
}

/// Changes of the config, and logins of browsers.
fn changes(server: &Server) -> Vec<Call> {
    let post = |path, used: &str, body: &str, status| call("POST", path, used, body, status);
    let mut all = Vec::new();
    let config = [
        ("/api/v1/config/check", CONFIG, 200),
        ("/api/v1/config/check", "x", 422),
        ("/api/v1/config/plan", CONFIG, 200),
        ("/api/v1/config/plan", "x", 422),
        ("/api/v1/config/apply", CONFIG, 200),
        ("/api/v1/config/apply", "x", 422),
        ("/api/v1/config/preview", "pool.pg.max = 2", 200),
        ("/api/v1/config/preview", "pool.pg.max = \"x\"", 422),
        ("/api/v1/config/preview", "pool.pg.max", 400),
        ("/api/v1/config/set", "pool.pg.max = 2", 200),
        ("/api/v1/config/set", "pool.nothing.max = 2", 422),
    ];
    all.extend(config.map(|(path, body, status)| post(path, path, body, status)));
    let token = server.daemon.operator.token().unwrap();
    all.push(Call {
        headers: vec![format!("Authorization: Bearer {token}")],
        ..post("/login", "/login", "", 200)
    });
    all.push(post("/login", "/login", "", 401));
    all.push(post("/logout", "/logout", "", 200));
    all
}

async fn asks(server: &Server) -> Vec<Call> {
    let session = server.session("").await;
    let (own, other) = (server.session("").await, server.session("").await);
    let post = |path, used: &str, body: &str, status| call("POST", path, used, body, status);
    let delete = |path, used: &str, status| call("DELETE", path, used, "", status);
    let (ask, offer) = tokio::join!(
        server.ask(&own, "/v1/ask/work", "{\"wait_ms\":9000}"),
        server.ask(&other, "/v1/offer/work", "{\"wait_ms\":9000}"),
    );
    let lock = server.ask(&own, "/v1/lock/to-release", "").await;
    let release = format!("/v1/grants/{}", lock.text("ticket"));
    let done = format!("/v1/grants/{}/done", ask.text("ticket"));
    let wait = format!("/v1/grants/{}/await", offer.text("ticket"));
    let end = format!("/v1/grants/{}/end", offer.text("ticket"));
    let cancel = format!("/v1/grants/{}/cancel", offer.text("ticket"));
    let lock_done = format!("{release}/done");
    let renew = format!("/v1/sessions/{other}/renew");
    let close = format!("/v1/sessions/{other}");
    let soon = "{\"wait_ms\":1}";
    let within = |call: Call| call.within(&session);
    let mut all = vec![
        post("/v1/sessions", "/v1/sessions", "{\"ttl_ms\":1000}", 200),
        post("/v1/sessions", "/v1/sessions", "{\"ttl\":1000}", 400),
        post("/v1/grants/{ticket}/done", &lock_done, "", 409),
        delete("/v1/grants/{ticket}", &release, 200),
        delete("/v1/grants/{ticket}", &release, 410),
        delete("/v1/grants/{ticket}", "/v1/grants/x", 404),
        post("/v1/grants/{ticket}/await", &wait, soon, 408).within(&other),
        post("/v1/grants/{ticket}/cancel", &cancel, "", 200).within(&other),
        post("/v1/grants/{ticket}/end", &end, soon, 408).within(&other),
        post(
            "/v1/grants/{ticket}/done",
            &done,
            "{\"payload\":\"x\"}",
            200,
        ),
        post("/v1/grants/{ticket}/await", &wait, "", 200).within(&other),
        post("/v1/grants/{ticket}/end", &end, "", 410).within(&other),
        post("/v1/sessions/{id}/renew", &renew, "", 200),
        delete("/v1/sessions/{id}", &close, 200),
        delete("/v1/sessions/{id}", &close, 404),
        post("/v1/take/{pool}", "/v1/take/pg", "", 400),
    ];
    // Meetings need two, so here no peer comes; one more that meets is above.
    let met = [("/v1/ask/{broker}", &ask), ("/v1/offer/{broker}", &offer)];
    for (_, reply) in met {
        assert_eq!(reply.status, 200, "{reply:?}");
    }
    all.extend(
        [
            post("/v1/take/{pool}", "/v1/take/pg", "", 200),
            post("/v1/take/{pool}", "/v1/take/@db", "", 200),
            post("/v1/take/{pool}", "/v1/take/pg", soon, 408),
            post("/v1/take/{pool}", "/v1/take/no", "", 404),
            post("/v1/lock/{key}", "/v1/lock/a/b", "", 200),
            post("/v1/lock/{key}", "/v1/lock/a/b", "", 409),
            post("/v1/lock/{key}", "/v1/lock/a/b", soon, 408),
            post("/v1/ask/{broker}", "/v1/ask/work", soon, 408),
            post("/v1/ask/{broker}", "/v1/ask/work", "{\"now\":true}", 409),
            post("/v1/offer/{broker}", "/v1/offer/work", soon, 408),
        ]
        .map(within),
    );
    all
}

/// Leases of regulators, and places in applications.
async fn leases(server: &Server) -> Vec<Call> {
    let own = server.session("").await;
    let lease = server.ask(&own, "/v1/lease/size", "").await;
    let lease = format!("/v1/grants/{}", lease.text("ticket"));
    let keep = format!("{lease}/continue");
    let post = |path, used: &str, body: &str, status| {
        let call = call("POST", path, used, body, status);
        call.within(&own)
    };
    let patient = "{\"wait_ms\":20000}";
    vec![
        post("/v1/lease/{regulator}", "/v1/lease/size", "", 200),
        post("/v1/lease/{regulator}", "/v1/lease/no", "", 404),
        post("/v1/grants/{ticket}/continue", &keep, "", 200),
        call("DELETE", "/v1/grants/{ticket}", &lease, "", 200),
        post("/v1/grants/{ticket}/continue", &keep, "", 410),
        post("/v1/place/{app}", "/v1/place/shop", patient, 200),
        post("/v1/place/{app}", "/v1/place/no", "", 404),
    ]
}

async fn values(server: &Server) -> Vec<Call> {
    let own = server.send("POST /v1/reserve/office", &[], "").await;
    let (value, ticket) = (own.text("value"), own.text("ticket"));
    let of = |what: &str| format!("/v1/values/{ticket}{what}");
    let post = |path, used: &str, body: &str, status| call("POST", path, used, body, status);
    let get = |path, used: &str, status| call("GET", path, used, "", status);
    let delete = |path, used: &str, status| call("DELETE", path, used, "", status);
    let old = format!("/v1/values/{value}?fence=1");
    let wrong = "{\"ttl_ms\":0}";
    let key = "{\"keys\":[\"mac/1\"],\"data\":{\"port\":7,\"switch\":\"a\"}}";
    let session = server.session("").await;
    vec![
        post("/v1/reserve/{place}", "/v1/reserve/10.20.0.0/31", key, 200),
        post(
            "/v1/reserve/{place}",
            "/v1/reserve/office",
            "{\"count\":1}",
            200,
        ),
        post("/v1/reserve/{place}", "/v1/reserve/10.20.0.0/32", "", 409),
        post("/v1/reserve/{place}", "/v1/reserve/office", wrong, 400),
        post("/v1/reserve/{place}", "/v1/reserve/nowhere", "", 404),
        post("/v1/reserve/{place}", "/v1/reserve/held", "", 400),
        post("/v1/reserve/{place}", "/v1/reserve/held", "", 200).within(&session),
        post("/v1/claim/{value}", "/v1/claim/10.20.0.3", "", 200),
        post("/v1/claim/{value}", "/v1/claim/10.20.0.3", "", 409),
        post("/v1/claim/{value}", "/v1/claim/77", "", 404),
        get("/v1/values/{value}", "/v1/values/10.20.0.1", 200),
        get("/v1/values/{value}", &of(""), 200),
        get("/v1/values/{value}", "/v1/values/77", 404),
        get("/v1/keys/{key}", "/v1/keys/mac/1", 200),
        get("/v1/keys/{key}", "/v1/keys/none", 200),
        post(
            "/v1/values/{value}/update",
            &of("/update"),
            "{\"data\":{\"a\":null}}",
            200,
        ),
        post(
            "/v1/values/{value}/write",
            &of("/write"),
            "{\"data\":{\"a\":\"b\"}}",
            200,
        ),
        post(
            "/v1/values/{value}/refresh",
            &of("/refresh"),
            "{\"ttl_ms\":60000}",
            200,
        ),
        post(
            "/v1/values/{value}/refresh",
            "/v1/values/2/refresh",
            "",
            409,
        ),
        delete("/v1/values/{value}", &old, 410),
        delete("/v1/values/{value}", &of(""), 200),
        delete("/v1/values/{value}", "/v1/values/77", 404),
        post("/v1/values/{value}/cancel", "/v1/values/2/cancel", "", 409),
        delete("/v1/grants/{ticket}", &format!("/v1/grants/{ticket}"), 409),
    ]
}

/// With one process that is there, and none of the others.
async fn apps(server: &Server) -> Vec<Call> {
    let app = server.daemon.apps.find("shop").unwrap();
    assert!(server.daemon.apps.start_one(&app));
    let pid = |daemon: &Daemon| {
        let shown = daemon.apps.shown(&app)?;
        let process = shown.processes.first()?;
        process.pid.filter(|_| process.stats.state == State::Ready)
    };
    server.until(|daemon| pid(daemon).is_some()).await;
    let pid = pid(&server.daemon).unwrap();
    let mut all = vec![
        call("GET", "/api/v1/apps/{name}", "/api/v1/apps/shop", "", 200),
        call("GET", "/api/v1/apps/{name}", "/api/v1/apps/no", "", 404),
    ];
    let logs = "/api/v1/apps/{name}/logs";
    for (used, status) in [
        ("shop/logs?lines=1", 200),
        ("shop/logs?lines=0", 400),
        ("no/logs", 404),
    ] {
        let used = format!("/api/v1/apps/{used}");
        all.push(call("GET", logs, &used, "", status));
    }
    let post = |path, used: &str, status| call("POST", path, used, "", status);
    for (path, used, status) in [
        ("/api/v1/processes/{pid}/disable", "PID/disable", 200),
        ("/api/v1/processes/{pid}/disable", "PID/disable", 409),
        ("/api/v1/processes/{pid}/enable", "PID/enable", 200),
        ("/api/v1/processes/{pid}/enable", "PID/enable", 409),
        ("/api/v1/processes/{pid}/detach", "PID/detach", 200),
        ("/api/v1/processes/{pid}/detach", "0/detach", 404),
        ("/api/v1/processes/{pid}/kill", "0/kill", 404),
    ] {
        let used = used.replace("PID", &pid.to_string());
        all.push(post(path, &format!("/api/v1/processes/{used}"), status));
    }
    for (path, word) in [
        ("/api/v1/apps/{name}/restart", "restart"),
        ("/api/v1/apps/{name}/spawn", "spawn"),
    ] {
        all.push(post(path, &format!("/api/v1/apps/shop/{word}"), 200));
        all.push(post(path, &format!("/api/v1/apps/no/{word}"), 404));
    }
    for (name, status) in [("shop", 409), ("no", 404)] {
        let used = format!("/api/v1/apps/{name}/trial");
        let body = "{\"verdict\":\"accept\"}";
        all.push(call(
            "POST",
            "/api/v1/apps/{name}/trial",
            &used,
            body,
            status,
        ));
    }
    all
}

fn is_stream(document: &Value, call: &Call) -> bool {
    let method = call.method.to_lowercase();
    let content = &document["paths"][call.path][&method]["responses"]["200"]["content"];
    content.get("text/event-stream").is_some()
}

/// A stream never ends: its head is enough.
async fn first_lines(server: &Server, call: &Call) -> Reply {
    use tokio::io::AsyncReadExt;
    let head = format!("{} {}", call.method, call.used);
    let mut stream = server.open(&head, &[], "").await;
    let mut text = Vec::new();
    while !text.ends_with(b"\r\n\r\n") {
        text.push(stream.read_u8().await.unwrap());
    }
    Reply::parse(&String::from_utf8(text).unwrap())
}

/// The answer is one of those that the document knows.
fn check(document: &Value, call: &Call, reply: &Reply) {
    let operation = &document["paths"][call.path][call.method.to_lowercase()];
    let response = &operation["responses"][reply.status.to_string()];
    let said = format!("{} {} {}", call.method, call.used, reply.status);
    let content = response["content"].as_object();
    let content = content.unwrap_or_else(|| panic!("{said} is not documented"));
    let sent = reply.header("content-type");
    let found = content.iter().find(|(kind, _)| sent.starts_with(*kind));
    let (kind, media) = found.unwrap_or_else(|| panic!("{said}: {sent} is none of {content:?}"));
    if kind == "application/json" {
        fits(document, &media["schema"], &reply.json(), &said);
    }
}

/// As much of JSON schema as the document uses.
fn fits(document: &Value, schema: &Value, value: &Value, at: &str) {
    if let Some(reference) = schema["$ref"].as_str() {
        let found = document.pointer(reference.trim_start_matches('#'));
        let found = found.unwrap_or_else(|| panic!("{at}: no {reference}"));
        return fits(document, found, value, at);
    }
    if let Some(some) = schema["anyOf"].as_array() {
        if value.is_null() && some.iter().any(|schema| schema["type"] == "null") {
            return;
        }
        return fits(document, &some[0], value, at);
    }
    let is_right = match schema["type"].as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        Some("boolean") => value.is_boolean(),
        _ => true,
    };
    assert!(is_right, "{at}: {value} is no {}", schema["type"]);
    for name in schema["required"].as_array().into_iter().flatten() {
        let name = name.as_str().unwrap();
        assert!(value.get(name).is_some(), "{at}: no {name} in {value}");
    }
    for (name, part) in value.as_object().into_iter().flatten() {
        let below = format!("{at} {name}");
        if let Some(schema) = schema["properties"].get(name) {
            fits(document, schema, part, &below);
        } else if let Some(schema) = schema.get("additionalProperties") {
            fits(document, schema, part, &below);
        }
    }
    for part in value.as_array().into_iter().flatten() {
        fits(document, &schema["items"], part, at);
    }
}
