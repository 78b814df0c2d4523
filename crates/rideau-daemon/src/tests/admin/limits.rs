//! What outsiders can fill, and what they are told when it is full.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::tests::admin::web::{CONFIG, LONG, Server};

#[tokio::test]
async fn a_body_that_is_too_long_is_refused() {
    let config = format!("{CONFIG}[limits]\nframe_max = \"2KiB\"\n");
    let server = Server::start(&config).await;
    let long = "#".repeat(4096);
    let reply = server.act("/api/v1/config/check", &long).await;
    assert_eq!(reply.status, 413, "{reply:?}");
    assert!(reply.text("error").contains("limits.frame_max"));

    // One that does not say how long it will be.
    let mut stream = TcpStream::connect(server.http).await.unwrap();
    let token = server.daemon.operator.token().unwrap();
    let head = format!(
        "POST /api/v1/config/check HTTP/1.1\r\nHost: localhost\r\nRideau-Csrf: 1\r\n\
         Authorization: Bearer {token}\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    );
    let text = format!("{head}1000\r\n{long}\r\n0\r\n\r\n");
    stream.write_all(text.as_bytes()).await.unwrap();
    assert_eq!(status(&mut stream).await, "413");
    let metrics = server.get("/metrics").await.body;
    assert!(metrics.contains("rideau_limits_refused_total{limit=\"http_body\"} 2"));
}

#[tokio::test]
async fn a_head_that_is_too_long_is_refused() {
    let server = Server::start(CONFIG).await;
    let long = format!("X-Long: {}", "x".repeat(64 * 1024));
    let mut stream = server.open("GET /healthz", &[&long], "").await;
    assert_eq!(status(&mut stream).await, "431");
    let many: Vec<_> = (0..200).map(|at| format!("X-{at}: 1")).collect();
    let many: Vec<_> = many.iter().map(String::as_str).collect();
    let mut stream = server.open("GET /healthz", &many, "").await;
    assert_eq!(status(&mut stream).await, "431");
    assert_eq!(server.get("/healthz").await.status, 200);
}

#[tokio::test]
async fn one_connection_too_many_is_told_so() {
    let server = Server::start(CONFIG).await;
    let mut all = Vec::new();
    let refused = loop {
        let mut stream = TcpStream::connect(server.http).await.unwrap();
        let head = b"GET /api/v1/state HTTP/1.1\r\nHost: localhost\r\n\r\n";
        stream.write_all(head).await.unwrap();
        let mut start = [0; 12];
        let read = tokio::time::timeout(LONG, stream.read_exact(&mut start)).await;
        read.unwrap().unwrap();
        if start.ends_with(b"503") {
            break stream;
        }
        assert!(start.ends_with(b"200"));
        all.push(stream);
    };
    assert_eq!(all.len(), 256);
    drop(refused);
    // Health checks have room of their own.
    for _ in 0..50 {
        assert_eq!(server.get("/healthz").await.status, 200);
        assert_eq!(server.get("/readyz").await.body, "ready\n");
        let busy = server.get("/api/v1/state").await;
        assert_eq!((busy.status, &*busy.text("code")), (503, "BUSY"));
    }
    all.truncate(128);
    while server.get("/healthz").await.status != 200 {}
}

#[tokio::test]
async fn one_watcher_too_many_is_told_so() {
    let server = Server::start(CONFIG).await;
    let mut all = Vec::new();
    for _ in 0..64 {
        let mut stream = server.open("GET /api/v1/events", &[], "").await;
        assert_eq!(status(&mut stream).await, "200");
        all.push(stream);
    }
    let refused = server.get("/api/v1/stream").await;
    assert_eq!(refused.status, 503, "{refused:?}");
    assert!(
        refused.text("error").contains("64 streams are open"),
        "{refused:?}"
    );
    let limits = server.get("/api/v1/limits").await.json();
    let rows = limits["limits"].as_array().unwrap();
    let row = rows.iter().find(|row| row["name"] == "http_watchers");
    assert_eq!(row.unwrap()["now"], 64);
    all.clear();
    loop {
        let mut stream = server.open("GET /api/v1/events", &[], "").await;
        if status(&mut stream).await == "200" {
            break;
        }
    }
}

#[tokio::test]
async fn what_is_no_http_gets_an_error_and_the_server_lives() {
    let server = Server::start(CONFIG).await;
    for rubbish in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..],
        b"*1\r\n$4\r\nPING\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"\0\0\0\0\r\n\r\n",
    ] {
        let mut stream = TcpStream::connect(server.http).await.unwrap();
        stream.write_all(rubbish).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut out = Vec::new();
        let read = tokio::time::timeout(LONG, stream.read_to_end(&mut out)).await;
        let _ = read.unwrap();
        assert!(!out.starts_with(b"HTTP/1.1 200"), "{rubbish:?}");
    }
    for path in [
        "/api/v1/pools/%ff",
        "/%00",
        "/v1/lock/%",
        "/api/v1/locks?count=x",
    ] {
        let reply = server.get(path).await;
        assert!((400..500).contains(&reply.status), "{path} {reply:?}");
        assert!(reply.text("error").ends_with('.'), "{path} {reply:?}");
    }
    assert_eq!(server.get("/healthz").await.status, 200);
}

async fn status(stream: &mut TcpStream) -> String {
    let mut start = [0; 12];
    let read = tokio::time::timeout(LONG, stream.read_exact(&mut start)).await;
    read.unwrap().unwrap();
    String::from_utf8_lossy(&start[9..]).into_owned()
}
