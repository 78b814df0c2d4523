//! Clients that send slowly, or never all: what they take, and for how long they are borne.

use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

use h2::client::SendRequest;
use hyper::Request;
use hyper::body::Bytes;
use rideau_config::{AppConfig, FrontConfig, Network};
use rideau_core::queue::Shedding;
use rideau_testing::Scratch;
use tokio::net::{TcpSocket, TcpStream};

use super::stage::{Stage, app};
use super::wire::{Peer, Server, get, ok, within};

/// An app that says how long what it got is, and how it was told that.
async fn measuring() -> Server {
    Server::answering(|request| {
        let (told, how) = (
            request.field("content-length"),
            request.field("transfer-encoding"),
        );
        ok(&format!("{} {told} {how}", request.body.len()))
    })
    .await
}

/// With places for this many, in one process, and a queue that bears a busy machine.
pub(crate) fn narrow(concurrency: usize) -> AppConfig {
    let mut config = app();
    config.options.max = Some(1);
    config.options.concurrency = Some(concurrency);
    config.options.queue.shedding = Shedding::Never;
    config
}

fn places_taken(stage: &Stage) -> usize {
    let shown = stage.apps.shown(&stage.app()).expect("it is there");
    shown.stats.sessions
}

/// How long our open files are that are in this folder, or were.
pub(crate) fn open_files(folder: &Scratch) -> Vec<u64> {
    let files = fs::read_dir("/proc/self/fd").expect("it can be read");
    let files = files.filter_map(|file| {
        let path = file.ok()?.path();
        let is_there = fs::read_link(&path).ok()?.starts_with(folder.path());
        is_there.then(|| fs::metadata(path).ok().map(|file| file.len()))?
    });
    files.collect()
}

pub(crate) async fn until(is_so: impl Fn() -> bool) {
    while !is_so() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn uploads_that_trickle_hold_no_place() {
    within(async {
        let server = measuring().await;
        let config = narrow(1);
        let stage = Stage::of(config, server.address, FrontConfig::default()).await;
        let mut slow = Vec::new();
        let head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n";
        for _ in 0..120 {
            let mut client = stage.client().await;
            client.send(format!("{head}a")).await;
            slow.push(client);
        }
        let mut quick = stage.client().await;
        for _ in 0..50 {
            assert_eq!(quick.ask(get("/")).await.status(), 200);
        }
        assert_eq!((server.connections(), places_taken(&stage)), (1, 0));
        for client in &mut slow {
            assert_eq!(client.ask("bc").await.text(), "3 3 ");
        }
        stage.end().await;
    })
    .await;
}

/// A client that speaks HTTP/2.
pub(crate) async fn speaking(stage: &Stage) -> SendRequest<Bytes> {
    let stream = TcpStream::connect(stage.address).await.expect("a front");
    let shaken = h2::client::handshake(stream).await;
    let (sender, connection) = shaken.expect("HTTP/2 is spoken");
    tokio::spawn(connection);
    sender
}

fn request(method: &str) -> Request<()> {
    let request = Request::builder().method(method).uri("http://app.example/");
    request.body(()).expect("a request")
}

#[tokio::test]
async fn uploads_over_http2_that_trickle_hold_no_place() {
    within(async {
        let server = measuring().await;
        let config = narrow(1);
        let stage = Stage::of(config, server.address, FrontConfig::default()).await;
        let mut sender = speaking(&stage).await;
        let mut slow = Vec::new();
        for _ in 0..100 {
            sender = sender.ready().await.expect("it goes on");
            let (answer, mut upload) = sender.send_request(request("POST"), false).expect("sent");
            upload.send_data("a".into(), false).expect("sent");
            slow.push((answer, upload));
        }
        for _ in 0..20 {
            sender = sender.ready().await.expect("it goes on");
            let (answer, _) = sender.send_request(request("GET"), true).expect("sent");
            assert_eq!(answer.await.expect("an answer").status(), 200);
        }
        assert_eq!((server.connections(), places_taken(&stage)), (1, 0));
        for (answer, mut upload) in slow {
            upload.send_data("bc".into(), true).expect("sent");
            let answer = answer.await.expect("an answer");
            assert_eq!(answer.status(), 200);
            let said = answer.into_body().data().await.expect("a body");
            assert_eq!(said.expect("all of it"), "3 3 ");
        }
        stage.end().await;
    })
    .await;
}

#[tokio::test]
async fn a_body_in_chunks_has_a_length_when_it_was_read_before() {
    within(async {
        let server = measuring().await;
        let stage = Stage::new(server.address).await;
        let mut client = stage.client().await;
        let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        for (parts, len) in [(0, 0), (1, 1000), (300, 300_000)] {
            client.send(head).await;
            for _ in 0..parts {
                client
                    .send(format!("3e8\r\n{}\r\n", "x".repeat(1000)))
                    .await;
            }
            let answer = client.ask("0\r\n\r\n").await;
            assert_eq!(answer.text(), format!("{len} {len} "));
        }
        stage.end().await;
    })
    .await;
}

#[tokio::test]
async fn a_call_that_speaks_both_ways_is_passed_on_as_it_comes() {
    within(async {
        let server = Server::start(|mut peer: Peer, _| async move {
            let _ = peer.head().await;
            let first = peer.chunk().await.expect("a part");
            peer.send(ok(&String::from_utf8_lossy(&first))).await;
            let _ = peer.more().await;
        })
        .await;
        let stage = Stage::new(server.address).await;
        let mut client = stage.client().await;
        let head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/grpc+proto\r\n\
                    Transfer-Encoding: chunked\r\n\r\n";
        let answer = client.ask(format!("{head}3\r\nabc\r\n")).await;
        assert_eq!(answer.text(), "abc");
        drop(client);
        stage.end().await;
    })
    .await;
}

/// A front that keeps bodies in this folder.
pub(crate) fn keeping(folder: &Scratch, memory: u64, disk: u64) -> FrontConfig {
    FrontConfig {
        buffer_dir: Some(folder.path().into()),
        buffer_memory: memory,
        buffer_disk: disk,
        ..FrontConfig::default()
    }
}

/// A request that has this many bytes, and this many of them.
fn part_of(len: usize, sent: usize) -> String {
    let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {len}\r\n\r\n");
    head + &"x".repeat(sent)
}

#[tokio::test]
async fn a_client_that_leaves_in_the_middle_leaves_no_file_and_no_place() {
    within(async {
        let server = measuring().await;
        let folder = Scratch::new();
        let front = keeping(&folder, 1 << 20, 1 << 30);
        let stage = Stage::of(narrow(1), server.address, front).await;
        let mut client = stage.client().await;
        client.send(part_of(1 << 20, 300_000)).await;
        until(|| !open_files(&folder).is_empty()).await;
        drop(client);
        until(|| open_files(&folder).is_empty()).await;
        assert_eq!((server.connections(), places_taken(&stage)), (0, 0));
        let named = fs::read_dir(folder.path()).expect("it is there").count();
        assert_eq!(named, 0);
        stage.end().await;
    })
    .await;
}

/// A client at another address of the loopback.
async fn from(address: [u8; 4], stage: &Stage) -> Peer {
    let socket = TcpSocket::new_v4().expect("a socket");
    let bound = socket.bind(SocketAddr::from((address, 0)));
    bound.expect("all of these are ours");
    Peer::new(socket.connect(stage.address).await.expect("a front"))
}

#[tokio::test]
async fn a_client_address_has_a_quarter_of_what_there_is_and_others_have_theirs() {
    within(async {
        let server = measuring().await;
        let folder = Scratch::new();
        let front = keeping(&folder, 0, 4 * 300_000);
        let stage = Stage::of(narrow(4), server.address, front).await;
        let mut first = stage.client().await;
        first.send(part_of(250_000, 240_000)).await;
        until(|| open_files(&folder) == [240_000]).await;
        let refused = stage.client().await.ask(part_of(100_000, 100_000)).await;
        assert_eq!(refused.status(), 503);
        assert_eq!(refused.field("x-rideau-error"), "buffers_full");
        assert_eq!(refused.field("retry-after"), "5");
        let mut other = from([127, 0, 0, 9], &stage).await;
        let answer = other.ask(part_of(100_000, 100_000)).await;
        assert_eq!(answer.text(), "100000 100000 ");
        let answer = first.ask("x".repeat(10_000)).await;
        assert_eq!(answer.text(), "250000 250000 ");
        until(|| open_files(&folder).is_empty()).await;
        let answer = stage.client().await.ask(part_of(100_000, 100_000)).await;
        assert_eq!(answer.text(), "100000 100000 ");
        stage.end().await;
    })
    .await;
}

#[tokio::test]
async fn a_client_that_a_trusted_peer_speaks_for_has_a_share_of_its_own() {
    within(async {
        let server = measuring().await;
        let folder = Scratch::new();
        let front = FrontConfig {
            trust: vec![Network {
                address: [127, 0, 0, 0].into(),
                bits: 8,
            }],
            ..keeping(&folder, 0, 4 * 300_000)
        };
        let stage = Stage::of(narrow(4), server.address, front).await;
        let ask = |whom: &str| {
            let whole = part_of(200_000, 200_000);
            let fields = format!("HTTP/1.1\r\nX-Forwarded-For: 1.2.3.4, {whom}, 127.0.0.3\r\n");
            whole.replacen("HTTP/1.1\r\n", &fields, 1)
        };
        let mut first = stage.client().await;
        let (begun, rest) = (ask("10.0.0.1"), 1000);
        first.send(&begun[..begun.len() - rest]).await;
        until(|| open_files(&folder) == [200_000 - rest as u64]).await;
        let answer = stage.client().await.ask(ask("10.0.0.1")).await;
        assert_eq!(answer.status(), 503);
        let answer = stage.client().await.ask(ask("10.0.0.2")).await;
        assert_eq!(answer.status(), 200);
        assert_eq!(first.ask("x".repeat(rest)).await.status(), 200);
        stage.end().await;
    })
    .await;
}

#[tokio::test]
async fn a_body_that_no_file_takes_is_refused() {
    within(async {
        let server = measuring().await;
        let front = FrontConfig {
            buffer_dir: Some("/nowhere/at/all".into()),
            ..FrontConfig::default()
        };
        let stage = Stage::of(narrow(1), server.address, front).await;
        let answer = stage.client().await.ask(part_of(200_000, 200_000)).await;
        assert_eq!(answer.status(), 503);
        let answer = stage.client().await.ask(part_of(60_000, 60_000)).await;
        assert_eq!(answer.text(), "60000 60000 ");
        stage.end().await;
    })
    .await;
}

#[tokio::test]
async fn a_client_that_asks_first_is_refused_before_it_sends() {
    within(async {
        let server = Server::start(|mut peer: Peer, _| async move {
            let _ = peer.request().await;
            let _ = peer.more().await;
        })
        .await;
        let mut config = narrow(1);
        config.http.body_max = 1000;
        config.options.queue.max = Some(1);
        let stage = Stage::of(config, server.address, FrontConfig::default()).await;
        let asks = |len: usize| {
            let fields = "HTTP/1.1\r\nExpect: 100-continue\r\n";
            part_of(len, 0).replacen("HTTP/1.1\r\n", fields, 1)
        };
        let mut client = stage.client().await;
        let answer = client.ask(asks(1001)).await;
        assert_eq!(answer.status(), 413);
        assert!(client.rest().await.is_empty(), "it ends");
        let mut holds = stage.client().await;
        holds.send(get("/")).await;
        until(|| server.connections() == 1).await;
        let mut waits = stage.client().await;
        waits.send(get("/")).await;
        let waiting = || {
            let shown = stage.apps.shown(&stage.app()).expect("it is there");
            shown.stats.waiting
        };
        until(|| waiting() == 1).await;
        let mut client = stage.client().await;
        let answer = client.ask(asks(1000)).await;
        assert_eq!(answer.status(), 503);
        assert_eq!(answer.field("x-rideau-error"), "queue_full");
        assert_eq!(answer.field("connection"), "close");
        assert!(client.rest().await.is_empty(), "it ends");
        drop(waits);
        until(|| waiting() == 0).await;
        let mut client = stage.client().await;
        client.send(asks(1000)).await;
        assert_eq!(client.head().await.expect("a word").status(), 100);
        drop((client, holds));
        stage.end().await;
    })
    .await;
}

#[tokio::test]
async fn a_client_that_asks_first_over_http2_is_refused_before_it_sends() {
    within(async {
        let server = measuring().await;
        let mut config = narrow(1);
        config.http.body_max = 1000;
        let stage = Stage::of(config, server.address, FrontConfig::default()).await;
        let mut sender = speaking(&stage).await;
        for (len, expected) in [(1001, 413), (1000, 100)] {
            sender = sender.ready().await.expect("it goes on");
            let mut request = request("POST");
            let fields = request.headers_mut();
            fields.insert("expect", "100-continue".parse().expect("a value"));
            fields.insert("content-length", len.into());
            let (mut answer, _upload) = sender.send_request(request, false).expect("sent");
            let early = std::future::poll_fn(|context| answer.poll_informational(context)).await;
            let status = match early {
                Some(early) => early.expect("it is there").status(),
                None => answer.await.expect("an answer").status(),
            };
            assert_eq!(status, expected);
        }
        drop(sender);
        stage.end().await;
    })
    .await;
}

/// An app that answers before it has read a body.
async fn hasty() -> (Server, AppConfig) {
    let server = Server::start(|mut peer: Peer, _| async move {
        while peer.head().await.is_some() {
            peer.send("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno")
                .await;
        }
    })
    .await;
    let mut config = narrow(16);
    config.http.buffers_requests = false;
    (server, config)
}

#[tokio::test]
async fn the_rest_of_a_body_that_was_not_wanted_is_dropped_if_it_is_short() {
    within(async {
        let (server, config) = hasty().await;
        let stage = Stage::of(config, server.address, FrontConfig::default()).await;
        let mut client = stage.client().await;
        let answer = client.ask(part_of(900_000, 100)).await;
        assert_eq!(answer.status(), 403);
        client.send("x".repeat(900_000 - 100)).await;
        assert_eq!(client.ask(get("/")).await.status(), 403);
        let answer = client.ask(part_of(3_000_000, 100)).await;
        assert_eq!(answer.status(), 403);
        client.send("x".repeat(3_000_000 - 100)).await;
        client.send(get("/")).await;
        assert!(client.answer().await.is_none(), "the connection ends");
        stage.end().await;
    })
    .await;
}

#[tokio::test]
async fn the_rest_of_a_body_that_was_not_wanted_is_not_waited_for_long() {
    within(async {
        let (server, config) = hasty().await;
        let stage = Stage::of(config, server.address, FrontConfig::default()).await;
        let mut client = stage.client().await;
        let answer = client.ask(part_of(1000, 100)).await;
        assert_eq!(answer.status(), 403);
        tokio::time::pause();
        assert!(client.rest().await.is_empty(), "it ends");
        stage.end().await;
    })
    .await;
}

/// How often the front answered so.
pub(crate) fn count(stage: &Stage, word: &str) -> u64 {
    let app = stage.app();
    let mut counts = app.counts.refusals();
    let found = counts.find(|(known, _)| *known == word);
    found.expect("a word that is counted").1
}

#[tokio::test]
async fn a_body_that_comes_too_slowly_is_refused() {
    for buffers in [true, false] {
        let server = measuring().await;
        let mut config = narrow(1);
        config.http.buffers_requests = buffers;
        let stage = Stage::of(config, server.address, FrontConfig::default()).await;
        let mut client = stage.client().await;
        client.send(part_of(1000, 10)).await;
        if !buffers {
            until(|| places_taken(&stage) == 1).await;
        }
        tokio::time::pause();
        let began = tokio::time::Instant::now();
        let (mut read, mut write) = client.stream.into_split();
        let trickled = tokio::spawn(async move {
            use tokio::io::AsyncWriteExt;
            while write.write_all(b"x").await.is_ok() {
                tokio::time::sleep(Duration::from_secs(5)).await;
            }
        });
        let mut said = vec![0; 4096];
        let len = tokio::io::AsyncReadExt::read(&mut read, &mut said).await;
        let said = String::from_utf8_lossy(&said[..len.expect("an answer")]).into_owned();
        assert!(said.starts_with("HTTP/1.1 408 "), "{said}");
        assert!(said.contains("X-Rideau-Error: body_timeout\r\n"), "{said}");
        // It is the clock of the test, which no busy machine moves.
        assert!(began.elapsed() <= Duration::from_secs(41));
        tokio::time::resume();
        assert_eq!(
            (count(&stage, "body_timeout"), places_taken(&stage)),
            (1, 0)
        );
        trickled.abort();
        drop(read);
        stage.end().await;
    }
}

#[tokio::test]
async fn a_body_that_comes_fast_enough_may_take_as_long_as_it_likes() {
    let server = measuring().await;
    let stage = Stage::of(narrow(1), server.address, FrontConfig::default()).await;
    let mut client = stage.client().await;
    // The process starts by the clock of the system.
    assert_eq!(client.ask(get("/")).await.status(), 200);
    client.send(part_of(100_000, 0)).await;
    tokio::time::pause();
    for _ in 0..25 {
        tokio::time::sleep(Duration::from_secs(5)).await;
        client.send("x".repeat(4000)).await;
    }
    let answer = client.answer().await.expect("an answer");
    assert_eq!(answer.text(), "100000 100000 ");
    tokio::time::resume();
    stage.end().await;
}

#[tokio::test]
async fn a_body_over_http2_that_comes_too_slowly_is_refused_and_others_go_on() {
    let server = measuring().await;
    let stage = Stage::of(narrow(1), server.address, FrontConfig::default()).await;
    let sender = speaking(&stage).await;
    let mut sender = sender.ready().await.expect("it goes on");
    let (slow, mut upload) = sender.send_request(request("POST"), false).expect("sent");
    upload.send_data("a".into(), false).expect("sent");
    tokio::time::pause();
    let refused = slow.await.expect("an answer");
    assert_eq!(refused.status(), 408);
    tokio::time::resume();
    let mut sender = sender.ready().await.expect("it goes on");
    let (answer, _) = sender.send_request(request("GET"), true).expect("sent");
    assert_eq!(answer.await.expect("an answer").status(), 200);
    drop(sender);
    stage.end().await;
}
