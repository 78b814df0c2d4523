//! The numbers of applications, and the same over HTTP as by commands.

use serde_json::Value as Json;

use crate::harness::{Harness, folder, processes_of, until};

/// The value of a series of the page.
fn value(page: &str, series: &str) -> f64 {
    let found = page.lines().find_map(|line| line.strip_prefix(series));
    let found = found.unwrap_or_else(|| panic!("no {series} in {page}"));
    found.trim().parse().unwrap()
}

fn get(harness: &Harness, path: &str) -> Json {
    let answer = harness.admin("GET", path, "");
    assert_eq!(answer.status, 200, "{path}: {answer:?}");
    serde_json::from_str(&answer.body).unwrap()
}

fn act(harness: &Harness, path: &str, body: &str) {
    let answer = harness.admin("POST", path, body);
    assert_eq!(answer.status, 200, "{path}: {answer:?}");
}

#[test]
fn requests_processes_and_errors_are_counted() {
    let folder = folder();
    let harness = Harness::with_front(
        &folder,
        "max = 4\n",
        "[app.shop]\nexec = APP\nmax = 1\nbody_max = \"10B\"\nretry = false\n",
    );
    for _ in 0..3 {
        assert_eq!(harness.get("/").status, 200);
    }
    let long = harness.ask("POST", "test", "/echo", &[b'x'; 11]).unwrap();
    assert_eq!(long.status, 413, "{long:?}");
    let page = harness.admin("GET", "/metrics", "").body;
    for (series, expected) in [
        ("rideau_app_processes{app=\"shop\",state=\"ready\"}", 1.0),
        ("rideau_app_processes{app=\"shop\",state=\"starting\"}", 0.0),
        ("rideau_app_places{app=\"shop\"}", 16.0),
        ("rideau_app_queue_length{app=\"shop\"}", 0.0),
        ("rideau_app_requests_total{app=\"shop\",code=\"2xx\"}", 3.0),
        ("rideau_app_requests_total{app=\"shop\",code=\"5xx\"}", 0.0),
        (
            "rideau_app_errors_total{app=\"shop\",error=\"body_too_large\"}",
            1.0,
        ),
        (
            "rideau_app_request_seconds_count{app=\"shop\",code=\"2xx\"}",
            3.0,
        ),
        ("rideau_app_queue_seconds_count{app=\"shop\"}", 3.0),
        ("rideau_app_asks_total{app=\"shop\",outcome=\"go\"}", 3.0),
        ("rideau_app_spawn_seconds_count{app=\"shop\"}", 1.0),
        ("rideau_app_spawns_total{app=\"shop\",outcome=\"ok\"}", 1.0),
        ("rideau_app_cold_starts_total{app=\"shop\"}", 1.0),
        ("rideau_app_breaker_open{app=\"shop\"}", 0.0),
        ("rideau_app_deploy_failed{app=\"shop\"}", 0.0),
        ("rideau_app_processes_limit{bound=\"max\"}", 4.0),
        ("rideau_app_starved", 0.0),
    ] {
        assert_eq!(value(&page, series), expected, "{series}");
    }
    assert!(value(&page, "rideau_app_memory_bytes{app=\"shop\"}") > 1e6);
    assert!(value(&page, "rideau_app_cpu_seconds_total{app=\"shop\"}") > 0.0);
    assert!(value(&page, "rideau_app_spawn_seconds_sum{app=\"shop\"}") > 0.0);
    for policy in ["rates", "gaps", "recency", "hour"] {
        value(
            &page,
            &format!("rideau_app_eviction_loss{{policy=\"{policy}\"}}"),
        );
    }
    for max in [2, 4, 6, 8] {
        value(&page, &format!("rideau_app_what_if_loss{{max=\"{max}\"}}"));
    }

    let ended = harness.ask("POST", "test", "/exit/1", b"").unwrap();
    assert_eq!(ended.status, 502, "{ended:?}");
    let lost = "rideau_app_exits_total{app=\"shop\",cause=\"lost\"}";
    until("its end is counted", || {
        value(&harness.admin("GET", "/metrics", "").body, lost) == 1.0
    });
    let page = harness.admin("GET", "/metrics", "").body;
    let closed = "rideau_app_errors_total{app=\"shop\",error=\"app_closed\"}";
    assert_eq!(value(&page, closed), 1.0);
    harness.end();
}

#[test]
fn applications_are_shown_and_steered_over_http() {
    let folder = folder();
    let harness = Harness::new(
        &folder,
        "[app.shop]\nexec = APP\nmax = 2\nidle_after = \"1h\"\n\
         env = { SAY = \"hello from shop\" }\n",
    );
    let pid = harness.get("/pid").body;
    let all = get(&harness, "/api/v1/apps");
    assert_eq!(all["apps"][0]["name"], "shop", "{all}");
    assert_eq!(all["apps"][0]["answered"]["2xx"], 1, "{all}");
    assert_eq!(all["processes"], 1);
    assert_eq!(get(&harness, "/api/v1/state")["apps"][0]["state"], "ready");
    let one = get(&harness, "/api/v1/apps/shop");
    assert_eq!(one["processes"][0]["pid"].to_string(), pid, "{one}");
    assert!(
        one["processes"][0]["memory"].as_u64() > Some(1 << 20),
        "{one}"
    );
    assert!(one["processes"][0]["cpu_us"].as_u64() > Some(0), "{one}");
    until("it is in the history", || {
        let names = get(&harness, "/api/v1/history");
        let names = names["names"].as_array().unwrap().clone();
        names.contains(&"app.shop.ready".into())
    });
    until("the history has its process", || {
        let series = get(&harness, "/api/v1/history?series=app.shop.ready");
        let values = series["series"]["app.shop.ready"].as_array().unwrap();
        values.last().unwrap()[1] == 1.0
    });
    let log = get(&harness, "/api/v1/apps/shop/logs?lines=1");
    assert_eq!(log["lines"][0]["text"], "hello from shop", "{log}");
    let page = get(&harness, "/api/v1/page/overview").to_string();
    assert!(page.contains("\"shop\""), "{page}");

    let state = || get(&harness, "/api/v1/apps/shop")["processes"][0]["state"].clone();
    act(&harness, &format!("/api/v1/processes/{pid}/disable"), "");
    assert_eq!(state(), "disabled");
    let again = harness.admin("POST", &format!("/api/v1/processes/{pid}/disable"), "");
    assert_eq!(again.status, 409, "{again:?}");
    act(&harness, &format!("/api/v1/processes/{pid}/enable"), "");
    assert_eq!(state(), "ready");
    act(&harness, "/api/v1/apps/shop/spawn", "");
    until("both are ready", || {
        get(&harness, "/api/v1/apps/shop")["ready"] == 2
    });
    let full = harness.admin("POST", "/api/v1/apps/shop/spawn", "");
    assert_eq!(full.status, 409, "{full:?}");
    act(&harness, &format!("/api/v1/processes/{pid}/detach"), "");
    until("it is gone", || {
        !processes_of(&folder).contains(&pid.parse().unwrap())
    });
    let before = get(&harness, "/api/v1/apps/shop")["generation"].as_u64();
    act(
        &harness,
        "/api/v1/apps/shop/restart",
        "{\"how\":\"blocking\"}",
    );
    let after = get(&harness, "/api/v1/apps/shop")["generation"].as_u64();
    assert!(after > before, "{before:?} {after:?}");
    for (path, status) in [
        ("/api/v1/apps/blog/restart", 404),
        ("/api/v1/apps/blog/logs", 405),
        ("/api/v1/processes/999999999/kill", 404),
        ("/api/v1/processes/x/kill", 404),
    ] {
        assert_eq!(harness.admin("POST", path, "").status, status, "{path}");
    }
    let wrong = harness.admin("POST", "/api/v1/apps/shop/restart", "{\"how\":\"soon\"}");
    assert_eq!(wrong.status, 400, "{wrong:?}");
    harness.end();
}
