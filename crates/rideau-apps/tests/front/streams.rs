//! Answers that go on for as long as a client listens: they take no place from others.

use std::sync::Arc;
use std::time::Duration;

use rideau_config::{AppConfig, FrontConfig};
use rideau_core::Reason;
use rideau_core::apps::{AppStats, Restart};
use tokio::sync::Semaphore;

use super::stage::{Stage, app};
use super::wire::{Peer, Server, get, ok, within};

const EVENTS: &str = "HTTP/1.1 200 OK\r\nContent-Type: Text/Event-Stream; charset=utf-8\r\n\
                      Transfer-Encoding: chunked\r\n\r\n7\r\ndata:1\n\r\n";
const EVENT: &str = "7\r\ndata:1\n\r\n";

/// An app with events that go on for ever, and short answers.
async fn telling() -> Server {
    Server::start(|mut peer: Peer, _| async move {
        while let Some(request) = peer.request().await {
            if !request.first.contains("/events") {
                peer.send(ok("short")).await;
                continue;
            }
            peer.send(EVENTS).await;
            // The front closes when the client has left.
            let _ = peer.more().await;
            return;
        }
    })
    .await
}

/// An app with one process.
async fn staged(mut config: AppConfig, server: &Server) -> Stage {
    config.options.max = Some(1);
    Stage::of(config, server.address, FrontConfig::default()).await
}

async fn listening(stage: &Stage) -> Peer {
    let mut client = stage.client().await;
    client.send(get("/events")).await;
    assert_eq!(client.head().await.expect("events").status(), 200);
    let event = client.exactly(EVENT.len()).await.expect("an event");
    assert_eq!(event, EVENT.as_bytes());
    client
}

fn stats(stage: &Stage) -> AppStats {
    let shown = stage.apps.shown(&stage.app());
    shown.expect("the app is there").stats
}

async fn until(stage: &Stage, is: impl Fn(&AppStats) -> bool) {
    while !is(&stats(stage)) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn clients_that_listen_to_events_leave_the_places_to_others() {
    within(async {
        let server = telling().await;
        let stage = staged(app(), &server).await;
        let places = stats(&stage).concurrency;
        let mut listeners = Vec::new();
        for _ in 0..3 * places {
            listeners.push(listening(&stage).await);
        }
        let seen = stats(&stage);
        assert_eq!((seen.streams, seen.sessions), (3 * places, 3 * places));
        let mut client = stage.client().await;
        for _ in 0..100 {
            assert_eq!(client.ask(get("/")).await.text(), "short");
        }
        drop(listeners);
        until(&stage, |stats| stats.streams == 0).await;
        stage.end().await;
    })
    .await;
}

#[tokio::test]
async fn a_stream_takes_the_only_place_there_is() {
    within(async {
        let server = telling().await;
        let mut config = app();
        config.options.concurrency = Some(1);
        let stage = staged(config, &server).await;
        let listener = listening(&stage).await;
        let mut client = stage.client().await;
        client.send(get("/")).await;
        until(&stage, |stats| stats.waiting == 1).await;
        assert_eq!(stats(&stage).streams, 0);
        drop(listener);
        assert_eq!(client.answer().await.expect("an answer").text(), "short");
        stage.end().await;
    })
    .await;
}

#[tokio::test]
async fn an_answer_that_falls_silent_gives_its_place_to_others_and_arrives_whole() {
    within(async {
        let resumes = Arc::new(Semaphore::new(0));
        let resumed = Arc::clone(&resumes);
        let server = Server::start(move |mut peer: Peer, _| {
            let resumed = Arc::clone(&resumed);
            async move {
                while let Some(request) = peer.request().await {
                    if !request.first.contains("/silent") {
                        peer.send(ok("short")).await;
                        continue;
                    }
                    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
                    peer.send([head, "5\r\nfirst\r\n"].concat()).await;
                    let _ = resumed.acquire().await;
                    peer.send("4\r\nlast\r\n0\r\n\r\n").await;
                }
            }
        })
        .await;
        let mut config = app();
        config.options.concurrency = Some(2);
        let stage = staged(config, &server).await;
        let mut silent = Vec::new();
        for _ in 0..2 {
            let mut client = stage.client().await;
            client.send(get("/silent")).await;
            silent.push(client);
        }
        until(&stage, |stats| stats.sessions == 2).await;
        let mut client = stage.client().await;
        assert_eq!(client.ask(get("/")).await.text(), "short");
        assert!(stats(&stage).streams > 0, "one of them has gone aside");
        resumes.close();
        for client in &mut silent {
            let answer = client.answer().await.expect("a whole answer");
            assert_eq!(answer.text(), "firstlast");
        }
        stage.end().await;
    })
    .await;
}

#[tokio::test]
async fn a_stream_ends_when_its_process_has_to_go_or_nothing_comes() {
    within(async {
        for restarts in [true, false] {
            let server = telling().await;
            let mut config = app();
            config.http.stream_grace = Duration::from_millis(50);
            config.http.stream_idle = (!restarts).then_some(Duration::from_millis(50));
            let stage = staged(config, &server).await;
            let mut client = listening(&stage).await;
            if restarts {
                stage.apps.restart(&stage.app(), Restart::Rolling, "test");
            }
            assert!(client.rest().await.is_empty(), "it is not seen as whole");
            stage.quiet().await;
            let app = stage.app();
            assert!(app.counts.refusals().all(|(_, count)| count == 0));
            stage.end().await;
        }
    })
    .await;
}

#[tokio::test]
async fn no_connection_of_a_program_with_many_is_refused_for_want_of_room() {
    const CONNECTIONS: usize = 256;
    within(async {
        let server = telling().await;
        let stage = Arc::new(staged(app(), &server).await);
        let tasks = (0..CONNECTIONS).map(|_| {
            let stage = Arc::clone(&stage);
            tokio::spawn(async move {
                let mut client = stage.client().await;
                let mut served = 0;
                while served < 4 {
                    let answer = client.ask(get("/")).await;
                    served += u32::from(answer.status() == 200);
                    // On a busy machine the queue may tell some that they waited too long.
                    let error = answer.field("x-rideau-error");
                    assert!(matches!(error, "" | "queue_timeout"), "{error}");
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.expect("all are served");
        }
        let tally = stats(&stage).tally;
        assert_eq!(tally.served, 4 * CONNECTIONS as u64);
        assert_eq!(tally.shed_for(Reason::Full), 0);
        let stage = Arc::into_inner(stage).expect("all are done");
        stage.end().await;
    })
    .await;
}
