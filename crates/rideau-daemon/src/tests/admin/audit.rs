//! Every change over HTTP leaves an event that says who made it, and so does
//! every try of a user who may not.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use crate::tests::admin::web::{CONFIG, Server};

/// Actions that change nothing.
const READS: &[&str] = &[
    "/api/v1/config/check",
    "/api/v1/config/plan",
    "/api/v1/config/preview",
];

/// Every action of the document.
async fn actions(server: &Server) -> BTreeSet<String> {
    let document = server.get("/api/openapi.json").await.json();
    let paths = document["paths"].as_object().unwrap().iter();
    let actions = paths.filter(|(path, methods)| {
        path.starts_with("/api/") && methods.as_object().unwrap().keys().any(|key| key != "get")
    });
    actions.map(|(path, _)| path.clone()).collect()
}

/// Act at an address, whose parts in braces are called so, and see that it is told.
async fn is_told(server: &Server, kind: &str, path: &str, name: &str, body: &str) -> String {
    let newest = |server: &Server| {
        server
            .daemon
            .events
            .newest(1)
            .first()
            .map(|last| last.serial)
    };
    let before = newest(server);
    let (begin, rest) = path.split_once('{').unwrap_or((path, "}"));
    let end = rest.split_once('}').map_or("", |(_, end)| end);
    let address = match path.contains('{') {
        true => format!("{begin}{name}{end}"),
        false => path.into(),
    };
    let reply = server.act(&address, body).await;
    assert_eq!(reply.status, 200, "{address}: {reply:?}");
    let events = server.daemon.events.newest(20);
    let mut new = events.iter().filter(|event| Some(event.serial) > before);
    let is_it =
        |event: &rideau_apps::Event| event.kind == kind && event.by.as_deref() == Some("operator");
    assert!(new.any(|event| is_it(event)), "{address}: {events:?}");
    path.into()
}

/// The pid of the only process, once it is ready.
async fn process(server: &Server) -> String {
    loop {
        let shown = server.get("/api/v1/apps/shop").await.json();
        let all = shown["processes"].as_array().unwrap();
        let ready = all.iter().find(|process| process["state"] == "ready");
        if let Some(process) = ready {
            return process["pid"].to_string();
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

/// Have new code on trial. Says the pid of the old.
async fn on_trial(server: &Server) -> String {
    is_told(server, "app", "/api/v1/apps/{name}/spawn", "shop", "").await;
    let old = tokio::time::timeout(crate::tests::admin::web::LONG, process(server)).await;
    is_told(server, "app", "/api/v1/apps/{name}/restart", "shop", "{}").await;
    let is_on = async {
        while server.get("/api/v1/apps/shop").await.json()["state"] != "on_trial" {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    let waited = tokio::time::timeout(crate::tests::admin::web::LONG, is_on).await;
    waited.expect("it is on trial");
    old.expect("it starts")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_change_says_who_made_it() {
    let server = Server::start(CONFIG).await;
    let mut tried = BTreeSet::new();
    let old = on_trial(&server).await;
    let verdict = "{\"verdict\":\"reject\"}";
    tried.insert(is_told(&server, "app", "/api/v1/apps/{name}/trial", "shop", verdict).await);
    is_told(&server, "app", "/api/v1/processes/{pid}/kill", &old, "").await;
    // A process ends in one of two ways.
    for ways in [&["disable", "enable", "detach"][..], &["kill"]] {
        let spawn = "/api/v1/apps/{name}/spawn";
        tried.insert(is_told(&server, "app", spawn, "shop", "").await);
        let started = tokio::time::timeout(crate::tests::admin::web::LONG, process(&server)).await;
        let pid = started.expect("it starts");
        for way in ways {
            let path = format!("/api/v1/processes/{{pid}}/{way}");
            tried.insert(is_told(&server, "app", &path, &pid, "").await);
        }
    }
    let session = server.session("").await;
    let held = server.ask(&session, "/v1/lock/one", "{}").await.json();
    let ticket = held["ticket"].as_str().unwrap_or_else(|| panic!("{held}"));
    let _redis = server.redis().await;
    server.until(|daemon| !daemon.clients.is_empty()).await;
    let client = server.daemon.clients.all()[0].id.to_string();
    let more = format!("{CONFIG}[pool.more]\n");
    for (kind, path, name, body) in [
        ("app", "/api/v1/apps/{name}/restart", "shop", "{}"),
        ("pool", "/api/v1/pools/{name}/pause", "pg", ""),
        ("pool", "/api/v1/pools/{name}/resume", "pg", ""),
        ("pool", "/api/v1/pools/{name}/recycle", "pg", "{}"),
        (
            "config",
            "/api/v1/pools/{name}/resize",
            "pg",
            "{\"max\": 1}",
        ),
        ("config", "/api/v1/config/apply", "", more.as_str()),
        ("config", "/api/v1/config/set", "", "pool.pg.max = 1"),
        ("config", "/api/v1/config/rollback", "", "{}"),
        ("client", "/api/v1/grants/{ticket}/revoke", ticket, ""),
        ("client", "/api/v1/clients/{id}/kill", client.as_str(), ""),
    ] {
        tried.insert(is_told(&server, kind, path, name, body).await);
    }
    let untried: Vec<_> = actions(&server).await.into_iter().collect();
    let is_untried = |path: &&String| !READS.contains(&path.as_str()) && !tried.contains(*path);
    let untried: Vec<_> = untried.iter().filter(is_untried).collect();
    assert!(untried.is_empty(), "add a change with {untried:?}");
    server.daemon.apps.close_now().await;
}

#[tokio::test]
async fn every_denial_of_a_stranger_is_told() {
    let open = Server::start(CONFIG).await;
    for path in actions(&open).await {
        // Each right is told once in a while, so each has a server.
        let server = Server::start("").await;
        let head = format!("POST {}", path.replace(['{', '}'], ""));
        for _ in 0..2 {
            let headers = ["Authorization: none", "Rideau-Csrf: 1"];
            let reply = server.send(&head, &headers, "").await;
            assert_eq!(reply.status, 401, "{reply:?}");
        }
        let events = server.daemon.events.newest(10);
        let told: Vec<_> = events.iter().filter(|one| one.kind == "denied").collect();
        assert_eq!(told.len(), 1, "{head}: {told:?}");
        assert_eq!(told[0].name, "127.0.0.1");
    }
}

#[tokio::test]
async fn a_wrong_token_is_a_failed_login() {
    for (head, header) in [
        ("GET /api/v1/state", "Authorization: Bearer wrong"),
        ("POST /login", "Authorization: Bearer wrong"),
        // There are no users, so it can be nothing but a token.
        ("GET /api/v1/state", "Authorization: Basic YTpi"),
    ] {
        let server = Server::start("").await;
        let reply = server.send(head, &[header], "").await;
        let is_bearer = header.contains("Bearer");
        assert_eq!(reply.status, if is_bearer { 401 } else { 200 }, "{reply:?}");
        assert_eq!(server.daemon.counts.denied.load(Ordering::Relaxed), 1);
        let told = &server.daemon.events.newest(1)[0];
        assert_eq!(told.text, "1 failed login from 127.0.0.1", "{head}");
    }
}
