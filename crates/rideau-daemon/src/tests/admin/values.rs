//! Values of ranges with nothing but HTTP.

use serde_json::json;

use crate::tests::admin::web::{CONFIG, Server};

use rideau_config::password::Hash;
use rideau_testing::command;

#[tokio::test]
async fn a_value_is_had_without_a_session_and_given_back_by_its_ticket() {
    let server = Server::start(CONFIG).await;
    let body = r#"{"ttl_ms":60000,"keys":["mac:aa"],"data":{"host":"laptop"}}"#;
    let got = server.send("POST /v1/reserve/office", &[], body).await;
    assert_eq!(got.status, 200, "{got:?}");
    assert_eq!(got.text("value"), "10.20.0.0");
    let seen = server.get("/v1/keys/mac:aa").await.json();
    assert_eq!(seen["values"][0]["data"], json!({ "host": "laptop" }));
    assert_eq!(seen["values"][0]["keys"], json!(["mac:aa"]));
    let path = format!("POST /v1/values/{}/update", got.text("ticket"));
    let body = r#"{"data":{"host":null,"port":8}}"#;
    let changed = server.send(&path, &[], body).await;
    assert_eq!(changed.json()["old"], json!({ "host": "laptop" }));
    let seen = server.get("/v1/values/10.20.0.0").await.json();
    assert_eq!(seen["data"], json!({ "port": "8" }));
    let path = format!("DELETE /v1/grants/{}", got.text("ticket"));
    assert_eq!(server.send(&path, &[], "").await.status, 200);
    let seen = server.get("/v1/values/10.20.0.0").await;
    assert_eq!(seen.text("state"), "free");
}

#[tokio::test]
async fn a_value_that_goes_with_its_holder_needs_a_session() {
    let server = Server::start(CONFIG).await;
    let alone = server.send("POST /v1/reserve/held", &[], "").await;
    assert_eq!(alone.status, 400, "{alone:?}");
    assert!(
        alone.text("error").contains("has to be a session"),
        "{alone:?}"
    );
    assert_eq!(server.get("/v1/values/1").await.text("state"), "free");
    let session = server.session("").await;
    let got = server.ask(&session, "/v1/reserve/held", "").await;
    assert_eq!(got.text("value"), "1");
    assert_eq!(server.get("/v1/values/1").await.text("state"), "reserved");
    let path = format!("DELETE /v1/sessions/{session}");
    assert_eq!(server.send(&path, &[], "").await.json()["released"], 1);
    assert_eq!(server.get("/v1/values/1").await.text("state"), "free");
}

#[tokio::test]
async fn several_are_told_as_a_list_and_none_is_a_conflict() {
    let server = Server::start(CONFIG).await;
    let body = r#"{"count":3,"ttl_ms":60000}"#;
    let got = server
        .send("POST /v1/reserve/office", &[], body)
        .await
        .json();
    assert_eq!(got["values"].as_array().unwrap().len(), 3, "{got}");
    assert_eq!(got["values"][2]["value"], "10.20.0.2");
    let none = server.send("POST /v1/reserve/office", &[], body).await;
    assert_eq!(none.status, 409);
    let none = none.json();
    assert_eq!((&none["free"], &none["total"]), (&json!(1), &json!(4)));
    let body = r#"{"prefer":["held"]}"#;
    let session = server.session("").await;
    for value in ["10.20.0.3", "1"] {
        let got = server.ask(&session, "/v1/reserve/office", body).await;
        assert_eq!(got.text("value"), value);
    }
}

#[tokio::test]
async fn curl_is_enough() {
    let server = Server::start(CONFIG).await;
    let http = server.http;
    let run = move |words: Vec<String>| async move {
        let output = tokio::task::spawn_blocking(move || {
            command("curl")
                .args(["-sS", "-m", "20"])
                .args(words)
                .output()
        });
        String::from_utf8(output.await.unwrap().unwrap().stdout).unwrap()
    };
    let place = format!("http://{http}/v1/reserve/10.20.0.2-10.20.0.3");
    let got = run(vec!["-X".into(), "POST".into(), place]).await;
    let got: serde_json::Value = serde_json::from_str(&got).unwrap();
    assert_eq!(got["value"], "10.20.0.2");
    let fence = got["fence"].as_u64().unwrap();
    let place = format!("http://{http}/v1/values/10.20.0.2?fence={fence}");
    let said = run(vec!["-X".into(), "DELETE".into(), place]).await;
    assert_eq!(said, "{\"outcome\":\"ok\"}\n");
}

#[tokio::test]
async fn metrics_tell_how_full_ranges_are() {
    let server = Server::start(CONFIG).await;
    server.send("POST /v1/reserve/office", &[], "").await;
    for _ in 0..2 {
        let body = r#"{"count":4}"#;
        server.send("POST /v1/reserve/office", &[], body).await;
    }
    let page = server.get("/metrics").await.body;
    for line in [
        r#"rideau_range_values{range="office",state="free"} 3"#,
        r#"rideau_range_values{range="office",state="reserved"} 1"#,
        r#"rideau_range_reserves_total{range="office",tier="0",outcome="go"} 1"#,
        r#"rideau_range_reserves_total{range="office",tier="0",outcome="none"} 2"#,
        r#"rideau_range_reserve_seconds_count{range="office"} 1"#,
        "rideau_range_store_failed 0",
    ] {
        assert!(page.contains(line), "no {line} in {page}");
    }
}

#[tokio::test]
async fn what_views_count_is_listed_and_measured() {
    let server = Server::start(CONFIG).await;
    let body = r#"{"count":3,"ttl_ms":60000}"#;
    server.send("POST /v1/reserve/office", &[], body).await;
    let wanted = json!({ "views": [{
        "name": "both",
        "values": "10.20.0.2-10.20.0.9 1",
        "size": 3,
        "free": 2,
        "quarantined": 0,
        "held": 1,
        "used": "33 %",
    }] });
    assert_eq!(server.get("/api/v1/views").await.json(), wanted);
    let page = server.get("/metrics").await.body;
    for line in [
        r#"rideau_view_values{view="both",state="free"} 2"#,
        r#"rideau_view_values{view="both",state="quarantined"} 0"#,
        r#"rideau_view_values{view="both",state="held"} 1"#,
    ] {
        assert!(page.contains(line), "no {line} in {page}");
    }
}

#[tokio::test]
async fn a_value_belongs_to_the_user_who_reserved_it() {
    let hash = Hash::of(b"secret").unwrap();
    let mut config = CONFIG.to_owned();
    for (name, allow) in [
        ("anna", r#"["@range"]"#),
        ("bert", r#"["@range"]"#),
        ("ops", r#"["@range", "range"]"#),
    ] {
        let hash = hash.as_str();
        config += &format!("[user.{name}]\npassword = \"{hash}\"\nallow = {allow}\n");
    }
    let server = Server::start(&config).await;
    // name:secret
    const ANNA: &str = "Authorization: Basic YW5uYTpzZWNyZXQ=";
    const BERT: &str = "Authorization: Basic YmVydDpzZWNyZXQ=";
    const OPS: &str = "Authorization: Basic b3BzOnNlY3JldA==";
    let body = r#"{"ttl_ms":60000,"keys":["k"]}"#;
    let got = server.send("POST /v1/reserve/office", &[ANNA], body).await;
    let fence = got.json()["fence"].clone();
    assert!(fence.is_u64(), "{got:?}");
    for (user, wanted) in [(ANNA, &fence), (OPS, &fence), (BERT, &json!(null))] {
        let seen = server.send("GET /v1/values/10.20.0.0", &[user], "").await;
        assert_eq!(seen.json()["fence"], *wanted, "{seen:?}");
        let seen = server.send("GET /v1/keys/k", &[user], "").await;
        assert_eq!(seen.json()["values"][0]["fence"], *wanted, "{seen:?}");
    }
    let said = format!(r#"{{"fence":{fence},"data":{{"host":"mine"}}}}"#);
    let only = format!(r#"{{"fence":{fence}}}"#);
    let wrong = r#"{"fence":7}"#;
    let release = format!("DELETE /v1/values/10.20.0.0?fence={fence}");
    for (head, body) in [
        ("POST /v1/values/10.20.0.0/update", said.as_str()),
        ("POST /v1/values/10.20.0.0/write", &said),
        ("POST /v1/values/10.20.0.0/refresh", &only),
        ("POST /v1/values/10.20.0.0/refresh", wrong),
        ("POST /v1/values/10.20.0.0/cancel", &only),
        (&release, ""),
    ] {
        let no = server.send(head, &[BERT], body).await;
        assert_eq!(
            (no.status, no.text("code")),
            (410, "STALE".into()),
            "{head}"
        );
        assert!(!no.body.contains(&fence.to_string()), "{head} {no:?}");
    }
    assert_eq!(server.send(&release, &[ANNA], "").await.status, 200);
    let free = server.send(&release, &[ANNA], "").await;
    assert_eq!((free.status, free.text("code")), (409, "NOTHELD".into()));
}
