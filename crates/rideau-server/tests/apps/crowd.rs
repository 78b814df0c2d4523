//! Many clients, and connections that end while they are not read.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use rideau_core::Rng;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::harness::{Harness, LONG, folder};

/// Scenario 34.
#[test]
fn an_application_that_closes_idle_connections_fails_no_request() {
    const CLIENTS: u64 = 16;
    const REQUESTS: u64 = 2000;
    let folder = folder();
    let harness = Harness::new(
        &folder,
        "[app.shop]\nexec = APP\nmax = 1\nqueue = \"never\"\nenv = { IDLE_CLOSE = \"50\" }\n",
    );
    assert_eq!(harness.get("/").status, 200);
    let failed = Mutex::new(Vec::new());
    let ask = |seed: u64| {
        let mut rng = Rng::new(seed);
        for _ in 0..REQUESTS / CLIENTS {
            thread::sleep(Duration::from_millis(rng.below(100)));
            match harness.ask("GET", "test", "/", b"") {
                Ok(answer) if answer.status == 200 => (),
                other => failed.lock().unwrap().push(format!("{other:?}")),
            }
        }
    };
    thread::scope(|scope| {
        let ask = &ask;
        for seed in 0..CLIENTS {
            scope.spawn(move || ask(seed));
        }
    });
    let failed = failed.into_inner().unwrap();
    let first = failed.first();
    assert!(failed.is_empty(), "{} failed: {first:?}", failed.len());
    harness.end();
}

/// A connection that was used and is kept.
fn idle(harness: &Harness) -> TcpStream {
    let mut stream = TcpStream::connect(harness.front).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream
        .write_all(b"GET /pid HTTP/1.1\r\nHost: test\r\n\r\n")
        .unwrap();
    let mut said = [0; 1024];
    let len = stream.read(&mut said).unwrap();
    assert!(said[..len].starts_with(b"HTTP/1.1 200"));
    stream
}

/// What most of fifty busy clients wait for an answer at most.
fn busy(harness: &Harness) -> Duration {
    let took = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..50 {
            scope.spawn(|| {
                for _ in 0..10 {
                    let since = Instant::now();
                    assert_eq!(harness.get("/").status, 200);
                    took.lock().unwrap().push(since.elapsed());
                }
            });
        }
    });
    let mut took = took.into_inner().unwrap();
    took.sort_unstable();
    took[took.len() / 2]
}

/// Scenario 44.
#[test]
fn two_thousand_idle_connections_disturb_no_other() {
    const IDLE: usize = 2000;
    // Each of them is a file here and one in the server, which has our limit.
    let limit = getrlimit(Resource::Nofile);
    let files = limit.maximum.map_or(8192, |most| most.min(8192));
    if files < 2 * IDLE as u64 {
        eprintln!("{files} files are too few for this");
        return;
    }
    let limit = Rlimit {
        current: limit.current.map(|now| now.max(files)),
        ..limit
    };
    setrlimit(Resource::Nofile, limit).unwrap();
    let folder = folder();
    let harness = Harness::with_front(
        &folder,
        "client_connections_max = \"none\"\n",
        "[app.shop]\nexec = APP\nmax = 1\nqueue = { timeout = \"30s\", max = 500 }\n",
    );
    busy(&harness);
    let (alone, before) = (busy(&harness), harness.memory());
    let crowd: Vec<_> = (0..IDLE).map(|_| idle(&harness)).collect();
    let each = (harness.memory().saturating_sub(before) << 10) / IDLE as u64;
    let among = busy(&harness);
    eprintln!("{each} bytes for each idle connection; {alone:?} alone, {among:?} among them");
    // Generous: others want the processor, too.
    assert!(
        among < alone * 3 + Duration::from_millis(50),
        "{alone:?} became {among:?}"
    );
    assert!(each < 64 << 10, "{each} bytes for each idle connection");
    drop(crowd);
    harness.end();
}
