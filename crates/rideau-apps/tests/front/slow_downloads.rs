//! Clients that take answers slowly, or not at all: what is kept for them, and for how long.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hyper::Request;
use hyper::body::Bytes;
use rideau_config::{AppConfig, FrontConfig};
use rideau_testing::Scratch;
use tokio::sync::Semaphore;

use super::slow_uploads::{count, keeping, narrow, open_files, speaking, until};
use super::stage::Stage;
use super::wire::{Peer, Server, get, ok, within};

const MIB: usize = 1 << 20;

fn pattern(len: usize) -> Vec<u8> {
    (0..len as u32).map(|n| (n % 251) as u8).collect()
}

/// An app that answers `/long` with this many bytes, each part of 64 KiB as soon as the one
/// before was taken; and how many it got rid of.
async fn giving(head: &'static str, len: usize) -> (Server, Arc<AtomicUsize>) {
    let given = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&given);
    let bytes = Arc::new(pattern(len));
    let server = Server::start(move |mut peer: Peer, _| {
        let (bytes, count) = (Arc::clone(&bytes), Arc::clone(&count));
        async move {
            while let Some(request) = peer.request().await {
                if !request.first.contains("/long") {
                    peer.send(ok("short")).await;
                    continue;
                }
                let len = bytes.len();
                let head = format!("HTTP/1.1 200 OK\r\n{head}Content-Length: {len}\r\n\r\n");
                peer.send(head).await;
                for part in bytes.chunks(64 << 10) {
                    peer.send(part).await;
                    count.fetch_add(part.len(), Ordering::SeqCst);
                }
            }
        }
    })
    .await;
    (server, given)
}

async fn staged(config: AppConfig, server: &Server, front: FrontConfig) -> Stage {
    Stage::of(config, server.address, front).await
}

#[tokio::test]
async fn answers_that_are_not_taken_hold_no_place() {
    within(async {
        const CLIENTS: usize = 16;
        let (server, given) = giving("", 10 * MIB).await;
        let folder = Scratch::new();
        let front = keeping(&folder, 64 << 20, 4 << 30);
        let stage = staged(narrow(1), &server, front).await;
        let mut slow = Vec::new();
        for _ in 0..CLIENTS {
            let mut client = stage.client().await;
            client.send(get("/long")).await;
            slow.push(client);
        }
        let mut quick = stage.client().await;
        for _ in 0..50 {
            assert_eq!(quick.ask(get("/")).await.text(), "short");
        }
        until(|| given.load(Ordering::SeqCst) == CLIENTS * 10 * MIB).await;
        stage.quiet().await;
        assert_eq!(open_files(&folder).len(), CLIENTS);
        let all = pattern(10 * MIB);
        // One of them leaves.
        drop(slow.pop());
        for mut client in slow {
            let answer = client.answer().await.expect("an answer");
            assert!(answer.body == all);
        }
        until(|| open_files(&folder).is_empty()).await;
        stage.end().await;
    })
    .await;
}

#[tokio::test]
async fn answers_over_http2_that_are_not_taken_hold_no_place() {
    within(async {
        const STREAMS: usize = 16;
        let (server, given) = giving("", 3 * MIB).await;
        let folder = Scratch::new();
        let front = keeping(&folder, 64 << 20, 4 << 30);
        let stage = staged(narrow(1), &server, front).await;
        let mut sender = speaking(&stage).await;
        let mut answers = Vec::new();
        for _ in 0..STREAMS {
            sender = sender.ready().await.expect("it goes on");
            let request = Request::get("http://app.example/long").body(());
            let request = request.expect("a request");
            let (answer, _) = sender.send_request(request, true).expect("it is sent");
            answers.push(answer.await.expect("an answer"));
        }
        until(|| given.load(Ordering::SeqCst) == STREAMS * 3 * MIB).await;
        stage.quiet().await;
        let mut quick = stage.client().await;
        assert_eq!(quick.ask(get("/")).await.text(), "short");
        let all = pattern(3 * MIB);
        // They share the room of their connection.
        let taken = answers.into_iter().map(|answer| async {
            let mut body = answer.into_body();
            let mut taken = Vec::new();
            while let Some(part) = body.data().await {
                let part = part.expect("all of it");
                let _ = body.flow_control().release_capacity(part.len());
                taken.extend_from_slice(&part);
            }
            taken
        });
        for taken in futures_util::future::join_all(taken).await {
            assert!(taken == all);
        }
        until(|| open_files(&folder).is_empty()).await;
        stage.end().await;
    })
    .await;
}

/// How much an app got rid of when it cannot get rid of more.
async fn settled(given: &AtomicUsize) -> usize {
    let mut before = usize::MAX;
    loop {
        let now = given.load(Ordering::SeqCst);
        if now == before && now > 0 {
            return now;
        }
        before = now;
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

#[tokio::test]
async fn an_app_waits_for_a_client_only_when_no_more_is_kept() {
    within(async {
        const ALL: usize = 40 * MIB;
        // What the system holds is not ours.
        const SYSTEM: usize = 24 * MIB;
        let live = "X-Accel-Buffering: no\r\n";
        let plenty = (64 << 20, 4 << 30);
        let cases = [
            // As the app says, as the config says, and as the budget says.
            ("", true, 8 * MIB, plenty, 8 * MIB),
            (live, true, 128 * MIB, plenty, 0),
            ("", false, 128 * MIB, plenty, 0),
            ("", true, 128 * MIB, (0, 0), 0),
        ];
        for (head, buffers, most, (memory, disk), kept) in cases {
            let (server, given) = giving(head, ALL).await;
            let folder = Scratch::new();
            let mut config = narrow(1);
            config.http.buffers_responses = buffers;
            config.http.buffer_response_max = most as u64;
            let stage = staged(config, &server, keeping(&folder, memory, disk)).await;
            let mut slow = stage.client().await;
            slow.send(get("/long")).await;
            let before = settled(&given).await;
            assert!(before >= kept, "{before} bytes were taken");
            assert!(before < kept + SYSTEM, "{before} bytes were taken");
            let files: u64 = open_files(&folder).iter().sum();
            assert!(files <= kept as u64, "{files} bytes are in files");
            let answer = slow.answer().await.expect("an answer");
            assert!(answer.body == pattern(ALL));
            stage.end().await;
        }
    })
    .await;
}

#[tokio::test]
async fn what_is_kept_for_slow_clients_delays_nothing() {
    within(async {
        let said = Arc::new(Semaphore::new(0));
        let may_say = Arc::clone(&said);
        let server = Server::start(move |mut peer: Peer, _| {
            let said = Arc::clone(&may_say);
            async move {
                while peer.request().await.is_some() {
                    peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                        .await;
                    for _ in 0..20 {
                        said.acquire().await.expect("it is open").forget();
                        peer.send("5\r\nhello\r\n").await;
                    }
                    peer.send("0\r\n\r\n").await;
                }
            }
        })
        .await;
        let stage = staged(narrow(1), &server, FrontConfig::default()).await;
        let mut client = stage.client().await;
        client.send(get("/")).await;
        assert_eq!(client.head().await.expect("an answer").status(), 200);
        for _ in 0..20 {
            said.add_permits(1);
            assert_eq!(client.chunk().await.expect("a part"), b"hello");
        }
        assert_eq!(client.chunk().await.expect("an end"), b"");
        let mut sender = speaking(&stage).await.ready().await.expect("it goes on");
        let request = Request::get("http://app.example/").body(());
        let (answer, _) = sender
            .send_request(request.expect("a request"), true)
            .expect("it is sent");
        let mut body = answer.await.expect("an answer").into_body();
        for _ in 0..20 {
            said.add_permits(1);
            let part = poll_fn(|context| body.poll_data(context)).await;
            assert_eq!(part.expect("a part").expect("one"), Bytes::from("hello"));
        }
        while let Some(end) = body.data().await {
            assert_eq!(end.expect("an end"), Bytes::new());
        }
        stage.end().await;
    })
    .await;
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_not_whole_for_a_slow_client() {
    within(async {
        let server = Server::start(|mut peer: Peer, _| async move {
            let _ = peer.request().await;
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", 40 * MIB);
            peer.send(head).await;
            peer.send(pattern(30 * MIB)).await;
        })
        .await;
        let stage = staged(narrow(1), &server, FrontConfig::default()).await;
        let mut slow = stage.client().await;
        slow.send(get("/")).await;
        assert_eq!(slow.head().await.expect("an answer").status(), 200);
        stage.quiet().await;
        let came = slow.rest().await;
        assert!(came == pattern(30 * MIB), "{} bytes came", came.len());
        stage.end().await;
    })
    .await;
}

/// How often the front cut a client off for this.
fn cut_off(stage: &Stage) -> u64 {
    count(stage, "client_slow")
}

#[tokio::test]
async fn a_client_that_takes_nothing_is_cut_off_in_the_end() {
    const CLIENTS: usize = 4;
    let (server, given) = giving("", 12 * MIB).await;
    for buffers in [true, false] {
        let mut config = narrow(CLIENTS);
        config.http.buffers_responses = buffers;
        let stage = staged(config, &server, FrontConfig::default()).await;
        given.store(0, Ordering::SeqCst);
        let mut slow = Vec::new();
        for _ in 0..CLIENTS {
            let mut client = stage.client().await;
            client.send(get("/long")).await;
            slow.push(client);
        }
        if buffers {
            until(|| given.load(Ordering::SeqCst) == CLIENTS * 12 * MIB).await;
        }
        settled(&given).await;
        assert_eq!(cut_off(&stage), 0);
        // From here on the clock of the test counts.
        tokio::time::pause();
        tokio::time::sleep(Duration::from_secs(61)).await;
        tokio::time::resume();
        until(|| cut_off(&stage) == CLIENTS as u64).await;
        stage.quiet().await;
        for mut client in slow {
            let came = client.rest().await;
            assert!(came.len() < 12 * MIB, "{} bytes came", came.len());
        }
        stage.end().await;
    }
}

#[tokio::test]
async fn a_client_that_takes_a_little_now_and_then_is_borne() {
    let (server, _) = giving("", 12 * MIB).await;
    let stage = staged(narrow(1), &server, FrontConfig::default()).await;
    let mut slow = stage.client().await;
    slow.send(get("/long")).await;
    assert_eq!(slow.head().await.expect("an answer").status(), 200);
    stage.quiet().await;
    tokio::time::pause();
    let mut taken = Vec::new();
    for _ in 0..12 {
        tokio::time::sleep(Duration::from_secs(50)).await;
        taken.extend(slow.exactly(MIB).await.expect("it goes on"));
    }
    tokio::time::resume();
    assert!(taken == pattern(12 * MIB));
    assert_eq!(cut_off(&stage), 0);
    stage.end().await;
}

#[tokio::test]
async fn a_stream_of_http2_that_is_not_taken_is_cut_off_and_others_go_on() {
    let (server, given) = giving("", MIB).await;
    let stage = staged(narrow(4), &server, FrontConfig::default()).await;
    let sender = speaking(&stage).await;
    let ask = |path: &str| {
        let request = Request::get(format!("http://app.example{path}")).body(());
        request.expect("a request")
    };
    let mut sender = sender.ready().await.expect("it goes on");
    let (slow, _) = sender.send_request(ask("/long"), true).expect("it is sent");
    let mut body = slow.await.expect("an answer").into_body();
    until(|| given.load(Ordering::SeqCst) == MIB).await;
    stage.quiet().await;
    tokio::time::pause();
    tokio::time::sleep(Duration::from_secs(61)).await;
    tokio::time::resume();
    until(|| cut_off(&stage) == 1).await;
    let reset = loop {
        match body.data().await.expect("no end as if it were all") {
            Ok(_) => (),
            Err(reset) => break reset,
        }
    };
    assert_eq!(reset.reason(), Some(h2::Reason::CANCEL));
    let mut sender = sender.ready().await.expect("it goes on");
    let (answer, _) = sender.send_request(ask("/"), true).expect("it is sent");
    assert_eq!(answer.await.expect("an answer").status(), 200);
    drop(sender);
    stage.end().await;
}
