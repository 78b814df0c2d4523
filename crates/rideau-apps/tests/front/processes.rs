//! Apps that are real processes, started and ended by requests.

use std::collections::HashSet;
use std::time::Duration;

use rideau_config::{AppConfig, AppListen, FrontConfig};
use rideau_testing::{Signal, signal};

use super::program;
use super::stage::Stage;
use super::wire::{Peer, get, within};

fn app() -> AppConfig {
    let mut config = AppConfig::new("app", program::command());
    config.run.env = vec![(program::MARK.into(), "1".into())];
    config.options.uptime_min = Duration::ZERO;
    config.run.stop_timeout = Duration::from_secs(2);
    config.restart_dir = None;
    config
}

async fn staged(config: AppConfig) -> Stage {
    Stage::with(vec![config], FrontConfig::default(), None).await
}

fn kill(pid: &str) {
    signal(pid.parse::<i32>().expect("a process id"), Signal::KILL);
}

fn runs(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").map_or("Z", |(_, rest)| rest);
    !state.starts_with(['Z', 'X'])
}

#[tokio::test]
async fn the_first_request_starts_a_process_and_says_so() {
    within(async {
        for listen in [AppListen::Port, AppListen::Socket] {
            let mut config = app();
            config.run.listen = listen;
            config.http.tells_timing = true;
            let stage = staged(config).await;
            let mut client = stage.client().await;
            let first = client.ask(get("/pid")).await;
            assert_eq!((first.status(), first.field("x-rideau-cold")), (200, "1"));
            assert!(first.field("server-timing").starts_with("queue;dur="));
            let next = client.ask(get("/pid")).await;
            assert_eq!(next.text(), first.text());
            assert_eq!(next.field("x-rideau-cold"), "");
            stage.end().await;
        }
    })
    .await;
}

#[tokio::test]
async fn killing_a_process_under_reads_fails_none_of_them() {
    within(async {
        let stage = staged(app()).await;
        let mut first = stage.client().await;
        first.ask(get("/pid")).await;
        let address = stage.address;
        let readers: Vec<_> = (0..8)
            .map(|_| {
                tokio::spawn(async move {
                    let mut client = Peer::connect(address).await;
                    let mut pids = HashSet::new();
                    for _ in 0..100 {
                        let answer = client.ask(get("/slow")).await;
                        assert_eq!(answer.status(), 200, "{answer:?}");
                        pids.insert(answer.text());
                    }
                    pids
                })
            })
            .collect();
        for _ in 0..3 {
            // Requests that met one end have an answer before they meet the next.
            let pid = first.ask(get("/pid")).await.text();
            tokio::time::sleep(Duration::from_millis(300)).await;
            kill(&pid);
        }
        let mut pids = HashSet::new();
        for reader in readers {
            pids.extend(reader.await.expect("no request fails"));
        }
        assert!(pids.len() > 1, "no client saw another process");
        drop(first);
        stage.end().await;
    })
    .await;
}

#[tokio::test]
async fn a_read_passes_over_all_processes_that_have_died_at_once() {
    within(async {
        let mut config = app();
        config.options.min = 2;
        let stage = staged(config).await;
        for _ in 0..5 {
            while stage.apps.stats().used - stage.apps.stats().starting < 2 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            let mut clients = Vec::new();
            let mut pids = HashSet::new();
            // At the same time, so that both have connections that are idle after it.
            for _ in 0..8 {
                let mut client = stage.client().await;
                client.send(get("/slow")).await;
                clients.push(client);
            }
            for client in &mut clients {
                pids.insert(client.answer().await.expect("an answer").text());
            }
            let all: Vec<&str> = pids.iter().map(String::as_str).collect();
            all.iter().for_each(|pid| kill(pid));
            // A process that still takes a connection while it dies is a try.
            while all.iter().any(|pid| runs(pid)) {
                tokio::task::yield_now().await;
            }
            for client in &mut clients {
                client.send(get("/pid")).await;
            }
            for client in &mut clients {
                let answer = client.answer().await.expect("an answer");
                assert_eq!(answer.status(), 200, "{answer:?}");
                assert!(!pids.contains(&answer.text()), "{pids:?}");
            }
        }
        stage.end().await;
    })
    .await;
}

#[tokio::test]
async fn a_write_that_a_process_died_of_is_not_sent_again() {
    within(async {
        let mut config = app();
        config.http.buffers_requests = false;
        let stage = staged(config).await;
        let mut client = stage.client().await;
        let pid = client.ask(get("/pid")).await.text();
        client
            .send("POST /hang HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nabc")
            .await;
        while client_requests(&stage) == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        kill(&pid);
        let answer = client.answer().await.expect("an answer");
        assert_eq!(answer.status(), 502);
        assert_eq!(answer.field("x-rideau-error"), "app_closed");
        drop(client);
        stage.end().await;
    })
    .await;
}

fn client_requests(stage: &Stage) -> usize {
    let shown = stage.apps.shown(&stage.app()).expect("it is there");
    shown.stats.sessions
}

#[tokio::test]
async fn a_cookie_leads_back_to_its_process_and_a_forged_one_nowhere() {
    within(async {
        let mut config = app();
        config.options.min = 2;
        config.options.concurrency = Some(1);
        config.http.sticky = Some("seat".into());
        let stage = staged(config).await;
        while stage.apps.stats().used - stage.apps.stats().starting < 2 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let mut client = stage.client().await;
        let first = client.ask(get("/pid")).await;
        let cookie = first
            .field("set-cookie")
            .split(';')
            .next()
            .expect("a cookie");
        let mut busy = stage.client().await;
        let with =
            |cookie: &str| format!("GET /slow HTTP/1.1\r\nHost: a\r\nCookie: {cookie}\r\n\r\n");
        for _ in 0..5 {
            // Another request meanwhile is led elsewhere, or waits.
            busy.send(get("/slow")).await;
            let again = client.ask(with(cookie)).await;
            assert_eq!(again.text(), first.text());
            assert_eq!(again.field("set-cookie"), "");
            busy.answer().await.expect("an answer");
        }
        let forged = client.ask(with(&cookie.replace('.', ".1"))).await;
        assert_eq!(forged.status(), 200);
        assert!(forged.field("set-cookie").starts_with("seat="));
        kill(&first.text());
        let after = client.ask(with(cookie)).await;
        assert_eq!(after.status(), 200);
        assert!(after.text() != first.text());
        assert!(after.field("set-cookie").starts_with("seat="));
        drop((client, busy));
        stage.end().await;
    })
    .await;
}

#[tokio::test]
async fn idle_clients_are_no_burden() {
    within(async {
        let front = FrontConfig {
            client_connections_max: None,
            ..FrontConfig::default()
        };
        let stage = Stage::with(vec![app()], front, None).await;
        let mut idle = Vec::new();
        for _ in 0..300 {
            let mut client = stage.client().await;
            assert_eq!(client.ask(get("/pid")).await.status(), 200);
            idle.push(client);
        }
        let mut active = stage.client().await;
        for _ in 0..100 {
            assert_eq!(active.ask(get("/pid")).await.status(), 200);
        }
        assert_eq!(idle[0].ask(get("/pid")).await.status(), 200);
        drop((idle, active));
        stage.end().await;
    })
    .await;
}
