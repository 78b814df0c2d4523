//! What Prometheus reads.

use std::collections::HashSet;

use crate::web::{CONFIG, Server};

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
    let reply = server.get("/metrics").await;
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
        ("rideau_refusals_total", 2.0),
        ("rideau_reclaims_total{cause=\"quit\"}", 0.0),
    ] {
        assert_eq!(value(page, series), expected, "{series}");
    }
    assert!(value(page, "process_resident_memory_bytes") > 1e6);
    assert!(page.contains("rideau_build_info{version=\""));

    server
        .send(&format!("DELETE /v1/sessions/{session}"), &[], "")
        .await;
    let page = server.get("/metrics").await.body;
    assert_eq!(value(&page, "rideau_reclaims_total{cause=\"quit\"}"), 3.0);
    for secret in ["tenant", "42", &session, &take.text("ticket")] {
        let labels = page.lines().filter(|line| line.contains('{'));
        let mut leaks = labels.filter(|line| line.split('}').next().unwrap().contains(secret));
        assert_eq!(leaks.next(), None, "{secret} is no name of the config");
    }
}

#[tokio::test]
async fn the_page_is_well_formed() {
    let server = Server::start(CONFIG).await;
    let page = server.get("/metrics").await.body;
    assert!(page.ends_with("# EOF\n"));
    let mut families = HashSet::new();
    let mut series = HashSet::new();
    let mut last = String::new();
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, _) = rest.split_once(' ').unwrap();
            assert!(families.insert(name.to_owned()), "{name} comes twice");
            last = name.into();
        } else if !line.starts_with('#') {
            let (name, number) = line.rsplit_once(' ').unwrap();
            assert!(number.parse::<f64>().unwrap().is_finite(), "{line}");
            assert!(name.starts_with(&last), "{line} is none of {last}");
            assert!(series.insert(name.to_owned()), "{name} comes twice");
        }
    }
    let buckets: Vec<_> = series
        .iter()
        .filter(|name| name.starts_with("rideau_pool_wait_seconds_bucket"))
        .collect();
    assert_eq!(buckets.len(), 16, "{buckets:?}");
}
