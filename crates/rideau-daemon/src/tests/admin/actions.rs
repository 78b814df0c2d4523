//! What operators do, and what is left of it in the events.

use crate::tests::admin::web::{CONFIG, Server};

#[tokio::test]
async fn a_pool_is_paused_resumed_resized_and_renewed() {
    let server = Server::start(CONFIG).await;
    let pool = server.daemon.catalog.load().pools["pg"].clone();
    assert_eq!(server.act("/api/v1/pools/pg/pause", "").await.status, 200);
    assert!(pool.pool.stats().is_suspended);
    assert_eq!(server.act("/api/v1/pools/pg/resume", "").await.status, 200);
    assert!(!pool.pool.stats().is_suspended);

    let resized = server.act("/api/v1/pools/pg/resize", r#"{"max":1}"#).await;
    assert_eq!(resized.status, 200, "{resized:?}");
    assert_eq!(resized.json()["steps"][0]["new"], "1", "{resized:?}");
    assert_eq!(pool.pool.stats().max, 1);
    assert_eq!(server.daemon.config.load().pools[0].options.max, 1);
    let zero = server.act("/api/v1/pools/pg/resize", r#"{"max":0}"#).await;
    assert_eq!(zero.status, 422, "{zero:?}");
    assert_eq!(pool.pool.stats().max, 1, "nothing has changed");
    let nothing = server.act("/api/v1/pools/pg/resize", "").await;
    assert_eq!(nothing.status, 400);

    let before = pool.pool.stats().generation;
    assert_eq!(server.act("/api/v1/pools/pg/recycle", "").await.status, 200);
    assert_eq!(pool.pool.stats().generation, before + 1);

    let texts: Vec<_> = server.daemon.events.newest(9).into_iter().rev().collect();
    let texts: Vec<_> = texts.iter().map(|event| event.text.as_str()).collect();
    assert_eq!(texts[..2], ["pg was paused", "pg was resumed"]);
    assert_eq!(texts[2], "set: pool.pg.max 2 -> 1");
    assert_eq!(server.act("/api/v1/pools/no/pause", "").await.status, 404);
}

#[tokio::test]
async fn a_connection_is_killed_and_gives_back_what_it_held() {
    let server = Server::start(CONFIG).await;
    let mut redis = server.redis().await;
    redis.say("LOCK k").await;
    redis.hear().await.unwrap();
    assert_eq!(server.daemon.locks.held(b"k".as_slice()), 1);
    let clients = server.get("/api/v1/clients").await.json();
    let id = clients["clients"][0]["id"].as_u64().unwrap();
    assert_eq!(clients["clients"][0]["held"], 1);
    let kill = format!("/api/v1/clients/{id}/kill");
    assert_eq!(server.act(&kill, "").await.status, 200);
    while redis.hear().await.is_some() {}
    server
        .until(|daemon| daemon.locks.held(b"k".as_slice()) == 0)
        .await;
    assert_eq!(server.act(&kill, "").await.status, 404);
    assert_eq!(server.act("/api/v1/clients/x/kill", "").await.status, 404);
}

#[tokio::test]
async fn a_lease_is_revoked_and_its_holder_told() {
    let server = Server::start(CONFIG).await;
    let mut redis = server.redis().await;
    redis.say("HELLO 3").await;
    redis.say("LOCK k").await;
    server
        .until(|daemon| daemon.locks.held(b"k".as_slice()) == 1)
        .await;
    let holders = server.get("/api/v1/holders?of=lock:k").await.json();
    assert_eq!(holders["total"], 1, "{holders}");
    let ticket = holders["holders"][0]["ticket"].as_str().unwrap().to_owned();
    let why = server.get(&format!("/api/v1/explain/{ticket}")).await;
    assert!(why.text("text").contains("lock k"), "{why:?}");

    let revoke = format!("/api/v1/grants/{ticket}/revoke");
    let revoked = server.act(&revoke, "").await;
    assert_eq!(revoked.text("name"), "k");
    assert_eq!(server.daemon.locks.held(b"k".as_slice()), 0);
    loop {
        let line = redis.hear().await.unwrap();
        if line == "rideau:revoked" {
            break;
        }
    }
    let late = server.act(&revoke, "").await;
    assert_eq!(late.status, 410);
    assert!(late.text("error").contains("revoked by an operator"));
    let event = &server.daemon.events.newest(1)[0];
    assert!(
        event.text.starts_with("lock k was revoked from"),
        "{event:?}"
    );
    assert_eq!(event.by.as_deref(), Some("operator"));
}

#[tokio::test]
async fn a_config_is_checked_planned_and_applied() {
    let server = Server::start(CONFIG).await;
    let broken = server
        .act("/api/v1/config/check", "[pool.pg]\nmaxx = 3\n")
        .await;
    assert_eq!(broken.status, 422, "{broken:?}");
    assert_eq!(broken.json()["faults"][0]["line"], 2);
    let good = CONFIG.replace("max = 2", "max = 1");
    let checked = server.act("/api/v1/config/check", &good).await;
    assert_eq!(checked.status, 200, "{checked:?}");

    let plan = server.act("/api/v1/config/plan", &good).await.json();
    assert_eq!(plan["steps"][0]["path"], "pool.pg.max", "{plan}");
    assert_eq!(plan["steps"][0]["new"], "1");
    let pool = server.daemon.catalog.load().pools["pg"].clone();
    assert_eq!(pool.pool.stats().max, 2, "a plan changes nothing");
    assert_eq!(server.act("/api/v1/config/apply", "x").await.status, 422);
    let applied = server.act("/api/v1/config/apply", &good).await;
    assert_eq!(applied.status, 200, "{applied:?}");
    assert_eq!(pool.pool.stats().max, 1);
    let none = server.act("/api/v1/config/plan", &good).await.json();
    assert_eq!(none["steps"], serde_json::json!([]));
    let back = server.act("/api/v1/config/rollback", "").await;
    assert_eq!(back.status, 200, "{back:?}");
    assert_eq!(pool.pool.stats().max, 2);
    let history = server.get("/api/v1/config/history").await.json();
    assert_eq!(history["versions"].as_array().unwrap().len(), 3);
    let body = r#"{"version":2}"#;
    let forth = server.act("/api/v1/config/rollback", body).await;
    assert_eq!(forth.status, 200, "{forth:?}");
    let shown = server.get("/api/v1/config").await.json();
    let rows = shown["rows"].as_array().unwrap();
    let row = rows.iter().find(|row| row["key"] == "pool.pg.max");
    assert_eq!(row.unwrap()["value"], "1");
}
