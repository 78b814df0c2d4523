//! A panic in the front costs one request.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::{Request, StatusCode};
use rideau_config::FrontConfig;
use rideau_core::apps::Limits;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::{Front, FrontListener};
use crate::apps::Apps;
use crate::run_dirs::RunDirs;

/// Nothing takes longer, unless it hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// A front without apps.
async fn serve() -> (Arc<Front>, SocketAddr, JoinHandle<()>) {
    let run_dirs = Arc::new(RunDirs::default());
    let apps = Apps::new(Limits::default(), run_dirs, Arc::default());
    let front = Front::new(apps, FrontConfig::default());
    let mut listener = FrontListener::default();
    let address = listener.listen(([127, 0, 0, 1], 0).into(), None).await;
    let address = address.expect("a port is free");
    let served = tokio::spawn(listener.serve(Arc::clone(&front)));
    (front, address, served)
}

/// No connection is left, or the front would not end.
async fn end(front: &Front, served: JoinHandle<()>) {
    front.finish();
    let ended = timeout(PATIENCE, served).await.expect("the front ends");
    ended.expect("it ends well");
}

/// The answer on a new connection, until its end.
async fn ask(address: SocketAddr, requests: &str) -> String {
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    let asked = stream.write_all(requests.as_bytes()).await;
    asked.expect("it reads");
    let mut said = String::new();
    let read = timeout(PATIENCE, stream.read_to_string(&mut said)).await;
    read.expect("it ends the connection").expect("it answers");
    said
}

/// It says that the server failed, and by which id the log has it.
#[track_caller]
fn is_told(page: &str) {
    assert!(page.contains("internal error "), "{page}");
    assert!(
        page.contains("the server's log has it by this id"),
        "{page}"
    );
}

#[tokio::test]
async fn a_panic_costs_one_request_of_http1() {
    let (front, address, served) = serve().await;
    let first = "GET /test/panic HTTP/1.1\r\nHost: a\r\n\r\n";
    // What is behind it may have been begun by it, so it is not served.
    let said = ask(address, &first.repeat(2)).await;
    assert!(said.starts_with("HTTP/1.1 500 "), "{said}");
    assert_eq!(said.matches("HTTP/1.1 ").count(), 1, "{said}");
    is_told(&said);
    let next = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let said = ask(address, next).await;
    assert!(said.starts_with("HTTP/1.1 404 "), "{said}");
    end(&front, served).await;
}

#[tokio::test]
async fn a_panic_costs_one_request_of_http2() {
    let (front, address, served) = serve().await;
    let stream = TcpStream::connect(address).await.expect("it listens");
    let shaken = h2::client::handshake(stream).await;
    let (mut client, connection) = shaken.expect("it speaks HTTP/2");
    let driven = tokio::spawn(connection);
    for (path, status) in [("/test/panic", 500), ("/", 404)] {
        poll_fn(|context| client.poll_ready(context))
            .await
            .expect("it goes on");
        let request = Request::get(format!("http://a{path}")).body(());
        let request = request.expect("a request");
        let (answer, _) = client.send_request(request, true).expect("it is sent");
        let answer = timeout(PATIENCE, answer).await.expect("it is answered");
        let answer = answer.expect("there is an answer");
        assert_eq!(answer.status(), StatusCode::from_u16(status).expect("one"));
        let mut body = answer.into_body();
        let mut page = Vec::new();
        while let Some(part) = body.data().await {
            page.extend_from_slice(&part.expect("it comes whole"));
        }
        if status == 500 {
            is_told(&String::from_utf8_lossy(&page));
        }
    }
    drop(client);
    let _ = timeout(PATIENCE, driven)
        .await
        .expect("the connection ends");
    end(&front, served).await;
}
