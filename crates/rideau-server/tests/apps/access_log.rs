//! The log of requests: a line for each, whatever becomes of it.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

use rideau_testing::{Signal, command, signal};
use serde_json::Value as Json;

use crate::harness::{Harness, LONG, folder, until};

const APP: &str = "[app.shop]\nexec = APP\nmin = 1\n";
const JSON: &str = "access_log = \"FOLDER/access.log\"\naccess_format = \"json\"\n";

/// The lines of a log, when there are this many.
fn lines(path: &Path, count: usize) -> Vec<String> {
    let mut lines = Vec::new();
    until("the lines are written", || {
        let text = fs::read_to_string(path).unwrap_or_default();
        lines = text.lines().map(str::to_owned).collect();
        lines.len() >= count && text.ends_with('\n')
    });
    assert_eq!(lines.len(), count, "{lines:#?}");
    lines
}

fn entries(folder: &Path, count: usize) -> Vec<Json> {
    let lines = lines(&folder.join("access.log"), count);
    let parse = |line: &String| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
    lines.iter().map(parse).collect()
}

fn connect(harness: &Harness, text: &str) -> TcpStream {
    let mut stream = TcpStream::connect(harness.front).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream.write_all(text.as_bytes()).unwrap();
    stream
}

#[test]
fn each_request_has_a_line_with_what_became_of_it() {
    let folder = folder();
    let app = format!("{APP}body_max = \"10B\"\n");
    let harness = Harness::with_front(&folder, JSON, &app);
    let body = harness.get("/pid?a=b").body;
    let long = harness.get("/source/2").body.len();
    harness.ask("POST", "test", "/echo", &[b'x'; 11]).unwrap();
    let head = harness.ask("HEAD", "test", "/", b"").unwrap();
    assert_eq!((head.status, &*head.body), (200, ""));
    let all = entries(&folder, 4);
    let [short, source, refused, head] = &all[..] else {
        panic!("four");
    };
    assert_eq!(
        (&short["status"], &short["path"]),
        (&200.into(), &"/pid".into())
    );
    assert_eq!(
        (&short["query"], &short["method"]),
        (&"a=b".into(), &"GET".into())
    );
    assert_eq!(
        (&short["app"], &short["host"]),
        (&"shop".into(), &"test".into())
    );
    assert_eq!(
        (&short["client"], &short["protocol"]),
        (&"127.0.0.1".into(), &"HTTP/1.1".into())
    );
    assert_eq!(short["pid"].to_string(), body);
    assert_eq!(short["bytes"], body.len());
    assert_eq!(short["id"].as_str().unwrap().len(), 32);
    for number in ["took_us", "wait_us", "app_us", "process", "generation"] {
        assert!(short[number].is_u64(), "{number}: {short}");
    }
    assert!(
        short["took_us"].as_u64() >= short["app_us"].as_u64(),
        "{short}"
    );
    assert!(short["error"].is_null());
    assert_eq!(source["bytes"], long);
    assert_eq!(
        (&refused["status"], &refused["error"]),
        (&413.into(), &"body_too_large".into())
    );
    assert!(
        refused["process"].is_null() && refused["app"] == "shop",
        "{refused}"
    );
    assert_eq!((&head["status"], &head["bytes"]), (&200.into(), &0.into()));
    harness.end();
}

#[test]
fn what_is_refused_or_left_has_a_line_too() {
    let folder = folder();
    let front = format!("{JSON}deny = [\"127.0.0.9\"]\ntrust = [\"127.0.0.1\"]\n");
    let app = "[app.shop]\nexec = APP\nhosts = [\"test\"]\nmin = 1\n";
    let harness = Harness::with_front(&folder, &front, app);
    assert_eq!(harness.get("/").status, 200);
    assert_eq!(
        harness.ask("GET", "nowhere", "/x", b"").unwrap().status,
        404
    );
    let denied = harness.ask_saying("/", "Host: test\r\nX-Forwarded-For: 127.0.0.9\r\n");
    assert_eq!(denied.status, 403);
    let mut said = String::new();
    connect(&harness, "nonsense\r\n\r\n")
        .read_to_string(&mut said)
        .unwrap();
    assert!(said.starts_with("HTTP/1.1 400 "), "{said}");
    let all = entries(&folder, 4);
    let found: Vec<_> = all[1..]
        .iter()
        .map(|entry| (&entry["status"], &entry["error"]))
        .collect();
    let word = |word: &str| Json::from(word);
    assert_eq!(found[0], (&404.into(), &word("no_such_app")));
    assert_eq!(found[1], (&403.into(), &word("denied")));
    assert_eq!(found[2], (&400.into(), &word("bad_request")));
    assert!(all[1]["app"].is_null() && all[3]["method"].is_null());
    assert_eq!(
        (&all[2]["app"], &all[2]["client"]),
        (&word("shop"), &word("127.0.0.9"))
    );

    // A client that leaves before its answer, and one in the middle of it.
    drop(connect(
        &harness,
        "GET /sleep/2000 HTTP/1.1\r\nHost: test\r\n\r\n",
    ));
    let gone = &entries(&folder, 5)[4];
    assert_eq!(
        (&gone["status"], &gone["error"]),
        (&499.into(), &word("client_gone"))
    );
    let mut events = connect(
        &harness,
        "GET /events/1000/10 HTTP/1.1\r\nHost: test\r\n\r\n",
    );
    let mut part = [0; 4096];
    assert!(events.read(&mut part).unwrap() > 0);
    drop(events);
    let left = &entries(&folder, 6)[5];
    assert_eq!(
        (&left["status"], &left["error"]),
        (&200.into(), &word("client_gone"))
    );
    harness.end();
}

#[test]
fn a_connection_that_became_something_else_has_a_line_at_its_end() {
    let folder = folder();
    let harness = Harness::with_front(&folder, JSON, APP);
    let asked = "GET /talk HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\nUpgrade: talk\r\n\r\n";
    let mut talk = connect(&harness, asked);
    let mut said = [0; 4096];
    assert!(talk.read(&mut said).unwrap() > 0);
    assert_eq!(harness.get("/").status, 200);
    assert_eq!(entries(&folder, 1)[0]["path"], "/", "the other goes on");
    talk.write_all(&[b'x'; 1000]).unwrap();
    talk.read_exact(&mut said[..1000]).unwrap();
    drop(talk);
    let entry = &entries(&folder, 2)[1];
    assert_eq!(
        (&entry["status"], &entry["path"]),
        (&101.into(), &"/talk".into())
    );
    assert_eq!(entry["bytes"], 1000);
    assert!(entry["pid"].is_u64(), "{entry}");
    harness.end();
}

#[test]
fn requests_of_http2_have_lines_too() {
    let folder = folder();
    let harness = Harness::with_front(&folder, JSON, APP);
    let done = command("curl")
        .args(["--silent", "--max-time", "20", "--http2-prior-knowledge"])
        .args(["--user-agent", "two", "--referer", "https://x/"])
        .arg(format!("http://{}/source/1", harness.front))
        .output()
        .unwrap();
    assert_eq!(done.stdout.len(), 1 << 20);
    let entry = &entries(&folder, 1)[0];
    assert_eq!(
        (&entry["protocol"], &entry["bytes"]),
        (&"HTTP/2.0".into(), &(1 << 20).into())
    );
    assert_eq!(
        (&entry["agent"], &entry["referer"]),
        (&"two".into(), &"https://x/".into())
    );
    assert_eq!(entry["status"], 200);
    harness.end();
}

#[test]
fn no_client_can_write_into_the_log() {
    let folder = folder();
    let front = "access_log = \"FOLDER/access.log\"\naccess_hide = [\"client\", \"query:token\"]\n";
    let harness = Harness::with_front(&folder, front, APP);
    let fields = "Host: test\r\nUser-Agent: a\"b\\c\u{e9}\t\r\nReferer: /x?token=secret\r\n";
    assert_eq!(
        harness.ask_saying("/a\"b?token=secret&c=d", fields).status,
        200
    );
    let line = lines(&folder.join("access.log"), 1).remove(0);
    let (client, rest) = line.split_once(" - - [").unwrap();
    assert_eq!(client, "127.0.0.0");
    let (_, rest) = rest.split_once("] ").unwrap();
    let (request, rest) = rest.split_once(" 200 ").unwrap();
    assert_eq!(request, r#""GET /a\"b?token=-&c=d HTTP/1.1""#);
    let (_, fields) = rest.split_once(' ').unwrap();
    assert_eq!(fields, r#""/x?token=-" "a\"b\\c\xC3\xA9""#);
    harness.end();
}

#[test]
fn a_log_that_was_moved_away_is_opened_anew() {
    let folder = folder();
    let front = "access_log = \"FOLDER/access.log\"\n";
    let app = format!("{APP}access_log = \"FOLDER/shop.log\"\n");
    let harness = Harness::with_front(&folder, front, &app);
    let path = folder.join("shop.log");
    assert_eq!(harness.get("/1").status, 200);
    lines(&path, 1);
    fs::rename(&path, folder.join("shop.log.1")).unwrap();
    assert_eq!(harness.get("/2").status, 200);
    lines(&folder.join("shop.log.1"), 2);
    signal(harness.pid(), Signal::USR1);
    until("it is there again", || path.exists());
    assert_eq!(harness.get("/3").status, 200);
    let line = lines(&path, 1).remove(0);
    assert!(line.contains("GET /3 "), "{line}");
    assert!(
        !folder.join("access.log").exists(),
        "its own is instead of that"
    );
    harness.end();
}

#[test]
fn a_log_that_cannot_be_written_harms_no_request_and_is_counted() {
    let folder = folder();
    let harness = Harness::with_front(&folder, "access_log = \"/dev/full\"\n", APP);
    for _ in 0..20 {
        assert_eq!(harness.get("/").status, 200);
    }
    until("the lines are counted", || {
        let page = harness.admin("GET", "/metrics", "").body;
        page.contains("rideau_limits_refused_total{limit=\"front.access_log\"} 20\n")
    });
    let log = harness.log();
    assert!(
        log.contains("the log of requests at /dev/full cannot be written"),
        "{log}"
    );
    let shown = harness.cli(&["status", "limits"]);
    assert!(shown.contains("front.access_log"), "{shown}");
    harness.end();
}

#[test]
fn the_last_lines_are_written_before_the_server_ends() {
    let folder = folder();
    let kept = folder.with_extension("log");
    let front = format!("access_log = \"{}\"\n", kept.display());
    let harness = Harness::with_front(&folder, &front, APP);
    for _ in 0..10 {
        assert_eq!(harness.get("/").status, 200);
    }
    harness.end();
    assert_eq!(fs::read_to_string(&kept).unwrap().lines().count(), 10);
    fs::remove_file(kept).unwrap();
}
