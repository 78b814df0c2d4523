//! Long lists over HTTP stay within `limits.output_max`, and come page by page.

use crate::tests::admin::web::{CONFIG, Server};

const OUTPUT_MAX: usize = 8 * 1024;

#[tokio::test]
async fn lists_come_page_by_page() {
    let server = Server::start(&format!("[limits]\noutput_max = \"8KiB\"\n{CONFIG}")).await;
    let mut redis = Vec::new();
    for _ in 0..60 {
        redis.push(server.redis().await);
    }
    server.until(|daemon| daemon.clients.len() == 60).await;
    let session = server.session(r#"{"ttl_ms":600000}"#).await;
    for n in 0..99 {
        let body = format!(r#"{{"name":"job {n}","ttl_ms":600000}}"#);
        server.session(&body).await;
        let lock = format!("/v1/lock/key-{n:02}");
        assert_eq!(server.ask(&session, &lock, "").await.status, 200);
    }
    for (what, key, count) in [
        ("clients", "id", 60),
        ("sessions", "name", 100),
        ("holders", "name", 99),
        ("locks", "key", 99),
    ] {
        let rows = if what == "locks" { "keys" } else { what };
        let (mut seen, mut pages) = (Vec::new(), 0);
        let mut path = format!("/api/v1/{what}?count=1000");
        loop {
            let reply = server.get(&path).await;
            assert_eq!(reply.status, 200, "{reply:?}");
            assert!(
                reply.body.len() <= OUTPUT_MAX,
                "{path}: {}",
                reply.body.len()
            );
            let page = reply.json();
            for row in page[rows].as_array().unwrap() {
                seen.push(row[key].to_string());
            }
            if what != "locks" {
                assert_eq!(page["total"], count, "{what}");
            }
            pages += 1;
            match page["cursor"].as_str() {
                Some(cursor) => path = format!("/api/v1/{what}?count=1000&cursor={cursor}"),
                None => break,
            }
        }
        assert!(pages > 1, "{what}");
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), count, "{what}");
    }
    let odd = server.get("/api/v1/sessions?cursor=x").await;
    assert_eq!(odd.status, 400);
}
