//! Which clients are let in.

use std::fmt::Write;

use rideau_config::password::Hash;

use crate::tests::admin::web::{CONFIG, Server};

/// `ops` may do anything, `eyes` only look, `shop` only use pool `pg`.
fn with_users() -> String {
    let mut config = CONFIG.to_owned();
    let users = [
        ("ops", r#"["@admin"]"#, r#"["*"]"#),
        ("eyes", r#"["@read"]"#, r#"["*"]"#),
        (
            "shop",
            r#"["@pool", "session", "pool"]"#,
            r#"["pool:nothing"]"#,
        ),
    ];
    for (name, allow, on) in users {
        let hash = Hash::of(format!("{name}:secret").as_bytes()).unwrap();
        let hash = hash.as_str();
        write!(
            config,
            "[user.{name}]\npassword = \"{hash}\"\nallow = {allow}\non = {on}\n"
        )
        .unwrap();
    }
    config
}

// user:user:secret
const OPS: &str = "Authorization: Basic b3BzOm9wczpzZWNyZXQ=";
const EYES: &str = "Authorization: Basic ZXllczpleWVzOnNlY3JldA==";
const SHOP: &str = "Authorization: Basic c2hvcDpzaG9wOnNlY3JldA==";
const CSRF: &str = "Rideau-Csrf: 1";

#[tokio::test]
async fn users_have_the_same_rights_as_over_the_redis_protocol() {
    let server = Server::start(&with_users()).await;
    let pause = "POST /api/v1/pools/pg/pause";
    let cases: &[(&str, &[&str], u16)] = &[
        ("GET /healthz", &[], 200),
        ("GET /readyz", &[], 200),
        ("GET /api/v1/state", &[], 401),
        ("GET /metrics", &[], 401),
        ("GET /", &[], 200),
        ("GET /api/v1/page/overview", &[], 401),
        (
            "GET /api/v1/state",
            &["Authorization: Basic b3BzOndyb25n"],
            401,
        ),
        ("GET /api/v1/state", &["Authorization: Bearer x"], 401),
        ("GET /api/v1/state", &[EYES], 200),
        ("GET /metrics", &[EYES], 200),
        ("GET /api/v1/config", &[EYES], 403),
        (pause, &[EYES, CSRF], 403),
        ("GET /api/v1/state", &[SHOP], 403),
        (pause, &[SHOP, CSRF], 403),
        (pause, &[OPS], 403),
        (pause, &[OPS, CSRF], 200),
        ("GET /api/v1/config", &[OPS], 200),
    ];
    for (head, headers, status) in cases {
        let reply = server.send(head, headers, "").await;
        assert_eq!(reply.status, *status, "{head} {headers:?} {reply:?}");
        if reply.status > 400 {
            assert!(reply.text("error").ends_with('.'), "{reply:?}");
        }
        let challenge = reply.header("www-authenticate");
        assert_eq!(challenge.starts_with("Basic"), *status == 401, "{reply:?}");
    }
    let paused = &server.daemon.events.newest(1)[0];
    assert_eq!(paused.by.as_deref(), Some("ops"));
    assert!(!server.get("/api/v1/config").await.body.contains("argon2"));
}

#[tokio::test]
async fn a_user_finds_only_its_own_sessions_and_tickets() {
    let server = Server::start(&with_users()).await;
    let opened = server.send("POST /v1/sessions", &[OPS], "").await;
    let session = format!("Rideau-Session: {}", opened.text("id"));
    let lock = server.send("POST /v1/lock/k", &[OPS, &session], "").await;
    assert_eq!(lock.status, 200, "{lock:?}");
    let foreign = server.send("POST /v1/take/pg", &[SHOP, &session], "").await;
    assert_eq!(foreign.status, 404, "{foreign:?}");
    let path = format!("DELETE /v1/grants/{}", lock.text("ticket"));
    assert_eq!(server.send(&path, &[SHOP], "").await.status, 403);
    assert_eq!(server.send(&path, &[EYES], "").await.status, 403);

    let own = server.send("POST /v1/sessions", &[SHOP], "").await;
    let own = format!("Rideau-Session: {}", own.text("id"));
    let scope = server.send("POST /v1/take/pg", &[SHOP, &own], "").await;
    assert_eq!((scope.status, scope.text("code").as_str()), (403, "NOPERM"));

    let seen = server.send("GET /api/v1/holders", &[EYES], "").await;
    assert!(!seen.body.contains(&lock.text("ticket")), "{seen:?}");
    let seen = server.send("GET /api/v1/holders", &[OPS], "").await;
    assert!(seen.body.contains(&lock.text("ticket")), "{seen:?}");
    assert_eq!(server.send(&path, &[OPS], "").await.status, 200);
}

#[tokio::test]
async fn a_user_that_is_gone_is_unknown_at_once() {
    let server = Server::start(&with_users()).await;
    assert_eq!(
        server.send("GET /api/v1/state", &[OPS], "").await.status,
        200
    );
    let changed = with_users().replace("[user.ops]", "[user.chief]");
    server.daemon.apply(&changed, "test").unwrap();
    assert_eq!(
        server.send("GET /api/v1/state", &[OPS], "").await.status,
        401
    );
}

#[tokio::test]
async fn pages_of_other_sites_get_nothing() {
    let server = Server::start(CONFIG).await;
    let cases: &[(&str, &[&str], u16)] = &[
        ("GET /api/v1/state", &["Host: evil.example:7434"], 421),
        ("GET /api/v1/state", &["Host: localhost:7434"], 200),
        ("GET /api/v1/state", &["Host: [::1]:7434"], 200),
        ("POST /v1/sessions", &["Origin: http://evil.example"], 403),
        ("POST /v1/sessions", &["Origin: null"], 403),
        ("POST /v1/sessions", &["Sec-Fetch-Site: cross-site"], 403),
        ("POST /api/v1/pools/pg/pause", &[], 403),
        (
            "POST /api/v1/pools/pg/pause",
            &[CSRF, "Origin: http://a"],
            403,
        ),
        ("POST /api/v1/pools/pg/pause", &[CSRF], 200),
    ];
    for (head, headers, status) in cases {
        let reply = server.send(head, headers, "").await;
        assert_eq!(reply.status, *status, "{head} {headers:?} {reply:?}");
    }
}

#[tokio::test]
async fn every_answer_tells_browsers_to_be_careful() {
    let server = Server::start(CONFIG).await;
    for path in ["/", "/healthz", "/metrics", "/api/v1/state", "/nowhere"] {
        let reply = server.get(path).await;
        let policy = reply.header("content-security-policy");
        assert!(policy.starts_with("default-src 'self'"), "{path} {reply:?}");
        assert!(
            policy.contains("frame-ancestors 'none'"),
            "{path} {reply:?}"
        );
        assert_eq!(reply.header("x-content-type-options"), "nosniff");
        assert_eq!(reply.header("access-control-allow-origin"), "");
    }
    let nowhere = server.get("/nowhere").await;
    assert_eq!(nowhere.status, 404);
    assert!(nowhere.text("error").contains("openapi"), "{nowhere:?}");
    let method = server.send("PUT /healthz", &[], "").await;
    assert_eq!(method.status, 405);
    assert!(method.text("error").contains("PUT"), "{method:?}");
}

#[tokio::test]
async fn no_user_sees_names_that_it_may_not_use() {
    let users = with_users().replace("[\"pool:nothing\"]", "[\"pool:nothing\", \"lock:mine/*\"]");
    let config = users.replace(
        "\"@pool\", \"session\"",
        "\"@pool\", \"@read\", \"subscribe\"",
    );
    let server = Server::start(&config).await;
    for path in [
        "/api/v1/page/overview",
        "/api/v1/page/pools",
        "/api/v1/page/brokers",
        "/api/v1/page/locks",
        "/api/v1/page/holders",
        "/api/v1/page/events",
        "/api/v1/page/refusals",
        "/api/v1/state",
        "/api/v1/pools",
        "/api/v1/brokers",
        "/api/v1/regulators",
        "/api/v1/locks",
        "/api/v1/holders",
        "/api/v1/drops",
        "/api/v1/history",
    ] {
        let mut redis = server.redis().await;
        redis.say("AUTH ops ops:secret").await;
        redis.say("LOCK hidden/key").await;
        redis.hear().await.unwrap();
        redis.hear().await.unwrap();
        let seen = server.send(&format!("GET {path}"), &[SHOP], "").await;
        assert_eq!(seen.status, 200, "{path} {seen:?}");
        for name in ["pg", "@db", "work", "size", "hidden/key"] {
            let shown = seen
                .body
                .split(['"', '>', '<', '.'])
                .any(|word| word == name);
            assert!(!shown, "{name} at {path}: {}", seen.body);
        }
    }
    for path in [
        "/api/v1/page/pools/pg",
        "/api/v1/page/brokers/work",
        "/api/v1/page/explain/pg",
        "/api/v1/pools/pg",
        "/api/v1/brokers/work",
        "/api/v1/explain/pg",
    ] {
        let no = server.send(&format!("GET {path}"), &[SHOP], "").await;
        assert_eq!(no.status, 404, "{path}");
        let yes = server.send(&format!("GET {path}"), &[EYES], "").await;
        assert_eq!(yes.status, 200, "{path}");
    }
}

#[tokio::test]
async fn a_browser_needs_its_cookie_and_the_key_of_its_page() {
    let config = with_users();
    let server = Server::start(&config).await;
    let login = server.send("POST /login", &[OPS], "").await;
    assert_eq!(login.status, 200, "{login:?}");
    let cookie = login.header("set-cookie").to_owned();
    for part in ["HttpOnly", "SameSite=Strict", "Path=/"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    let cookie = format!("Cookie: other=1; {}", cookie.split(';').next().unwrap());
    let key = format!("Rideau-Csrf: {}", login.text("key"));
    let pause = "POST /api/v1/pools/pg/pause";
    let cases: &[(&str, &[&str], u16)] = &[
        ("GET /api/v1/config", &[&cookie, &key], 200),
        (pause, &[&cookie, &key], 200),
        // A browser sends the cookie by itself, and to every port of the host.
        ("GET /api/v1/config", &[&cookie], 401),
        (pause, &[&cookie, CSRF], 401),
        ("GET /api/v1/config", &[&key], 401),
        (pause, &[&cookie, &key, "Origin: http://evil.example"], 403),
        // A password that is sent counts, and not the cookie.
        ("GET /api/v1/config", &[&cookie, &key, EYES], 403),
    ];
    for (head, headers, status) in cases {
        let reply = server.send(head, headers, "").await;
        assert_eq!(reply.status, *status, "{head} {headers:?} {reply:?}");
    }
    let paused = &server.daemon.events.newest(9);
    let paused = paused.iter().find(|event| event.text == "pg was paused");
    assert_eq!(paused.unwrap().by.as_deref(), Some("ops"));
    let by_script = [&*cookie, "Sec-Fetch-Dest: empty"];
    let reply = server.send("GET /api/v1/config", &by_script, "").await;
    assert_eq!(reply.header("www-authenticate"), "", "the page asks itself");

    let changed = config.replace("[user.ops]", "[user.chief]");
    server.daemon.apply(&changed, "test").unwrap();
    let gone = server
        .send("GET /api/v1/config", &[&cookie, &key], "")
        .await;
    assert_eq!(gone.status, 401, "the user is gone");
    // The same password has another hash, so it counts as another.
    server.daemon.apply(&with_users(), "test").unwrap();
    let other = server
        .send("GET /api/v1/config", &[&cookie, &key], "")
        .await;
    assert_eq!(other.status, 401, "its password was changed");
    server.daemon.apply(&config, "test").unwrap();
    let out = server.send("POST /logout", &[&cookie, &key], "").await;
    assert_eq!(out.status, 200);
    assert!(out.header("set-cookie").contains("Max-Age=0"), "{out:?}");
    let after = server
        .send("GET /api/v1/config", &[&cookie, &key], "")
        .await;
    assert_eq!(after.status, 401, "it has logged out");
}

#[tokio::test]
async fn files_of_the_page_are_compressed_and_kept() {
    let server = Server::start(CONFIG).await;
    for path in ["/", "/assets/app.js", "/assets/uplot/LICENSE"] {
        let plain = server.get(path).await;
        assert_eq!(plain.status, 200, "{path}");
        assert_eq!(plain.header("cache-control"), "no-cache");
        let tag = format!("If-None-Match: {}", plain.header("etag"));
        let known = server.send(&format!("GET {path}"), &[&tag], "").await;
        assert_eq!((known.status, known.body.as_str()), (304, ""), "{path}");
    }
    let none = server.get("/assets/../Cargo.toml").await;
    assert_eq!(none.status, 404);
}
