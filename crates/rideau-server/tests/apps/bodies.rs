//! Long bodies and slow people: what they cost the server, and what they cost the
//! others.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::harness::{Harness, LONG, folder, is_soak};

const MIB: usize = 1 << 20;
/// A slow client sends or takes a piece, and then rests: about 10 MB in a second.
const PIECE: usize = MIB;
const REST: Duration = Duration::from_millis(100);
/// The server may grow by this much, in KiB.
const GROWTH_MAX: u64 = 16 << 10;

/// How many MiB are sent or taken.
fn mebibytes() -> usize {
    if is_soak() { 1024 } else { 64 }
}

/// One request at a time in a process. An answer that is longer than what is kept
/// of it for a slow client takes its process for as long.
fn narrow() -> String {
    let max = if is_soak() { 2 } else { 1 };
    format!("[app.shop]\nexec = APP\nconcurrency = 1\nmax = {max}\n")
}

fn connect(harness: &Harness, head: &str) -> TcpStream {
    let mut stream = TcpStream::connect(harness.front).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    let head = format!("{head}Host: test\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    stream
}

/// Ask all the time while something slow happens: every request is served, and
/// the server does not grow.
fn beside(harness: &Harness, happens: impl FnOnce()) {
    for path in ["/source/1", "/"] {
        assert_eq!(harness.get(path).status, 200);
    }
    let sent = harness
        .ask("POST", "test", "/sink", &vec![b'x'; MIB])
        .unwrap();
    assert_eq!(sent.body, MIB.to_string());
    let before = harness.memory();
    harness.forget_peak();
    let is_over = AtomicBool::new(false);
    let served = thread::scope(|scope| {
        let asked = scope.spawn(|| {
            let mut served = 0;
            while !is_over.load(Ordering::Relaxed) {
                assert_eq!(harness.get("/").status, 200);
                served += 1;
                thread::sleep(REST);
            }
            served
        });
        happens();
        is_over.store(true, Ordering::Relaxed);
        asked.join().unwrap()
    });
    assert!(served > 10, "only {served} others were served");
    let peak = harness.peak_memory();
    assert!(peak < before + GROWTH_MAX, "{before} KiB became {peak} KiB");
}

/// Scenario 32, upwards.
#[test]
fn an_upload_in_a_crawl_takes_no_process_and_no_memory() {
    let folder = folder();
    let harness = Harness::new(&folder, &narrow());
    let count = mebibytes();
    beside(&harness, || {
        let length = count * MIB;
        let head = format!("POST /sink HTTP/1.1\r\nContent-Length: {length}\r\n");
        let mut stream = connect(&harness, &head);
        let piece = vec![b'x'; PIECE];
        // What comes fast from the beginning would be passed on.
        for part in piece.chunks(PIECE / 16) {
            stream.write_all(part).unwrap();
            thread::sleep(REST);
        }
        for _ in 1..length / PIECE {
            stream.write_all(&piece).unwrap();
            thread::sleep(REST);
        }
        let mut said = String::new();
        stream.read_to_string(&mut said).unwrap();
        assert!(said.starts_with("HTTP/1.1 200"), "{said}");
        assert!(said.ends_with(&format!("\r\n\r\n{length}")), "{said}");
    });
    harness.end();
}

#[test]
fn a_long_upload_that_comes_fast_arrives_whole() {
    let folder = folder();
    let house = Harness::new(&folder, &narrow());
    let count = mebibytes();
    let before = house.memory();
    house.forget_peak();
    let length = count * MIB;
    let head = format!("POST /sink HTTP/1.1\r\nContent-Length: {length}\r\n");
    let mut stream = connect(&house, &head);
    let piece = vec![b'x'; PIECE];
    for _ in 0..count {
        stream.write_all(&piece).unwrap();
    }
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    assert!(said.ends_with(&format!("\r\n\r\n{length}")), "{said}");
    let peak = house.peak_memory();
    assert!(peak < before + GROWTH_MAX, "{before} KiB became {peak} KiB");
    house.end();
}

#[test]
fn a_crowd_that_sends_a_byte_now_and_then_disturbs_no_other() {
    let folder = folder();
    let house = Harness::new(
        &folder,
        "[app.shop]\nexec = APP\nconcurrency = 2\nmax = 1\n",
    );
    assert_eq!(house.get("/").status, 200);
    let head = "POST /sink HTTP/1.1\r\nContent-Length: 1000\r\n";
    let mut crowd: Vec<_> = (0..120).map(|_| connect(&house, head)).collect();
    for _ in 0..20 {
        crowd
            .iter_mut()
            .for_each(|client| client.write_all(b"x").unwrap());
        assert_eq!(house.get("/").status, 200);
    }
    let requests = house.cli(&["--json", "status", "requests"]);
    let requests: serde_json::Value = serde_json::from_str(&requests).unwrap();
    assert_eq!(requests.as_array().map(Vec::len), Some(0), "{requests}");
    for client in &mut crowd {
        client.write_all(&[b'x'; 980]).unwrap();
        let mut said = String::new();
        client.read_to_string(&mut said).unwrap();
        assert!(said.ends_with("\r\n\r\n1000"), "{said}");
    }
    house.end();
}

/// Scenario 32, downwards.
#[test]
fn a_download_in_a_crawl_takes_no_process_and_no_memory() {
    let folder = folder();
    let harness = Harness::new(&folder, &narrow());
    let count = mebibytes();
    beside(&harness, || {
        let mut stream = connect(&harness, &format!("GET /source/{count} HTTP/1.1\r\n"));
        let mut piece = vec![0; PIECE];
        let (mut taken, mut since) = (0, Instant::now());
        loop {
            let len = stream.read(&mut piece).unwrap();
            if len == 0 {
                break;
            }
            taken += len;
            if taken % PIECE < len {
                thread::sleep(REST.saturating_sub(since.elapsed()));
                since = Instant::now();
            }
        }
        assert!(taken > count * MIB, "only {taken} bytes");
        assert!(taken < count * MIB + 4096, "{taken} bytes");
    });
    harness.end();
}

/// Scenario 33. Each event is there before the next is sent, and no delay is in all
/// of them: a machine that is busy delays some.
#[test]
fn events_of_a_stream_arrive_as_they_are_sent() {
    let folder = folder();
    let harness = Harness::new(&folder, "[app.shop]\nexec = APP\nconcurrency = 1\n");
    assert_eq!(harness.get("/").status, 200);
    let stream = connect(&harness, "GET /events/10/1000 HTTP/1.1\r\n");
    let mut late = Vec::new();
    for line in BufReader::new(stream).lines() {
        let line = line.unwrap();
        if let Some(sent) = line.strip_prefix("data: ") {
            let sent = Duration::from_secs_f64(sent.parse().unwrap());
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            late.push(now.saturating_sub(sent));
        }
    }
    assert_eq!(late.len(), 10);
    assert!(
        late.iter().all(|late| *late < Duration::from_secs(1)),
        "{late:?}"
    );
    late.sort_unstable();
    assert!(late[2] < Duration::from_millis(50), "{late:?}");
    harness.end();
}
