//! Answers that the front compresses.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;

use crate::harness::{Harness, LONG, RawAnswer, VERSIONS, folder};

const APP: &str = "[app.shop]\nexec = APP\nmin = 1\ncompress = [\"zstd\", \"gzip\"]\n";

/// The text that the app makes.
fn text(len: usize) -> Vec<u8> {
    let lines = (0..).flat_map(|number| format!("line {number} of a text\n").into_bytes());
    lines.take(len).collect()
}

fn decoded(answer: &RawAnswer) -> Vec<u8> {
    match answer.field("content-encoding").as_deref() {
        None => answer.body.clone(),
        Some("zstd") => zstd::stream::decode_all(&*answer.body).unwrap(),
        Some("gzip") => {
            let mut text = Vec::new();
            let mut decoder = flate2::read::MultiGzDecoder::new(&*answer.body);
            decoder.read_to_end(&mut text).unwrap();
            text
        }
        Some(other) => panic!("{other}"),
    }
}

/// What curl gets in both versions of HTTP if it accepts these codings.
fn get(harness: &Harness, accepted: &str, path: &str, more: &[&str]) -> [RawAnswer; 2] {
    let accepted = format!("Accept-Encoding: {accepted}");
    VERSIONS.map(|version| {
        let words = [version, "-H", &accepted];
        let words: Vec<_> = words.into_iter().chain(more.iter().copied()).collect();
        harness.curl(&words, path)
    })
}

#[test]
fn a_client_gets_the_coding_that_it_prefers() {
    let folder = folder();
    let harness = Harness::new(&folder, APP);
    // One answer that is here at once, and one that is compressed while it is sent.
    for len in [5_000, 3_000_000] {
        let path =
            format!("/made/{len}?Content-Type=application/json&ETag=%22a%22&Accept-Ranges=bytes");
        for (accepted, coding) in [
            ("gzip;q=0, zstd", Some("zstd")),
            ("gzip, deflate, br, zstd", Some("zstd")),
            ("gzip;q=1.0, zstd;q=0.9", Some("gzip")),
            ("gzip", Some("gzip")),
            ("br", None),
            ("identity, gzip;q=0.5", None),
            ("", None),
        ] {
            for answer in get(&harness, accepted, &path, &[]) {
                assert_eq!(answer.status, 200);
                assert_eq!(
                    answer.field("content-encoding").as_deref(),
                    coding,
                    "{accepted}"
                );
                assert_eq!(answer.field("vary").unwrap(), "Accept-Encoding");
                assert!(decoded(&answer) == text(len), "{accepted}");
                let tag = answer.field("etag").unwrap();
                assert_eq!(tag, if coding.is_some() { "W/\"a\"" } else { "\"a\"" });
                assert_eq!(answer.field("accept-ranges").is_some(), coding.is_none());
                if coding.is_some() {
                    assert!(
                        answer.body.len() < len / 2,
                        "{} of {len}",
                        answer.body.len()
                    );
                }
                if let Some(said) = answer.field("content-length") {
                    assert_eq!(said, answer.body.len().to_string());
                }
            }
            for answer in get(&harness, accepted, &path, &["--head"]) {
                assert_eq!(answer.body.len(), 0);
                assert_eq!(answer.field("content-encoding").as_deref(), coding);
                assert_eq!(answer.field("vary").unwrap(), "Accept-Encoding");
                let said = answer.field("content-length");
                assert_eq!(said, coding.is_none().then(|| len.to_string()));
            }
        }
        let chunked = format!("{path}&Transfer-Encoding=chunked");
        for answer in get(&harness, "gzip", &chunked, &[]) {
            assert_eq!(answer.field("content-encoding").unwrap(), "gzip");
            assert!(decoded(&answer) == text(len));
        }
    }
    harness.end();
}

#[test]
fn what_must_not_or_need_not_be_compressed_is_left_alone() {
    let folder = folder();
    let harness = Harness::new(&folder, APP);
    for (len, fields) in [
        (500, "Content-Type=text/html"),
        (1023, "Content-Type=text/html"),
        (5000, "Content-Type=image/png"),
        (5000, "X-Type=none"),
        (5000, "Content-Type=text/html&Content-Encoding=br"),
        (
            5000,
            "Content-Type=text/html&Cache-Control=public,+no-transform",
        ),
        (5000, "Content-Type=text/html&Set-Cookie=a%3Db"),
        (5000, "Content-Type=text/html&Content-Digest=x"),
    ] {
        let path = format!("/made/{len}?{fields}&ETag=%22a%22");
        for answer in get(&harness, "zstd, gzip", &path, &[]) {
            assert!(answer.body == text(len), "{fields}");
            let expected = fields.contains("=br").then(|| "br".to_owned());
            assert_eq!(answer.field("content-encoding"), expected, "{fields}");
            assert_eq!(answer.field("vary"), None, "{fields}");
            assert_eq!(answer.field("etag").unwrap(), "\"a\"");
            assert_eq!(answer.field("content-length").unwrap(), len.to_string());
        }
    }
    let page = "/made/5000?Content-Type=text/html";
    for answer in get(&harness, "gzip", page, &["-r", "0-4999"]) {
        assert_eq!(answer.field("content-encoding"), None, "a part is wanted");
    }
    for answer in get(&harness, "gzip", "/made/1024?Content-Type=text/html", &[]) {
        assert_eq!(answer.field("content-encoding").unwrap(), "gzip");
    }
    // Without the key nothing is compressed.
    Harness::write(&folder, "", &APP.replace("compress =", "# compress ="));
    harness.cli(&["reload"]);
    for answer in get(&harness, "gzip", page, &[]) {
        assert_eq!(
            (answer.field("content-encoding"), answer.field("vary")),
            (None, None)
        );
    }
    harness.end();
}

#[test]
fn each_event_of_a_stream_reaches_its_client_at_once() {
    let folder = folder();
    let harness = Harness::new(&folder, APP);
    for coding in ["zstd", "gzip"] {
        let mut client = TcpStream::connect(harness.front).unwrap();
        client.set_read_timeout(Some(LONG)).unwrap();
        // The next event comes only long after the first was seen.
        let head = format!(
            "GET /events/2/600000 HTTP/1.1\r\nHost: test\r\nAccept-Encoding: {coding}\r\n\r\n"
        );
        client.write_all(head.as_bytes()).unwrap();
        let mut said = Vec::new();
        while !so_far(&said, coding).ends_with("\n\n") {
            let mut part = [0; 4096];
            let len = client.read(&mut part).unwrap();
            assert!(len > 0, "{}", String::from_utf8_lossy(&said));
            said.extend_from_slice(&part[..len]);
        }
        let event = so_far(&said, coding);
        assert!(event.starts_with("data: "), "{event}");
    }
    harness.end();
}

/// What is known of the body of an answer in chunks that has come so far.
fn so_far(said: &[u8], coding: &str) -> String {
    let Some(end) = said.windows(4).position(|end| end == b"\r\n\r\n") else {
        return String::new();
    };
    let head = String::from_utf8_lossy(&said[..end]).to_ascii_lowercase();
    assert!(
        head.contains(&format!("content-encoding: {coding}")),
        "{head}"
    );
    let (mut rest, mut body) = (&said[end + 4..], Vec::new());
    while let Some(line) = rest.windows(2).position(|end| end == b"\r\n") {
        let len = str::from_utf8(&rest[..line]).unwrap();
        let len = usize::from_str_radix(len, 16).unwrap();
        let Some(chunk) = rest.get(line + 2..line + 2 + len) else {
            break;
        };
        body.extend_from_slice(chunk);
        rest = rest.get(line + 4 + len..).unwrap_or_default();
    }
    let mut decoder: Box<dyn Read> = match coding {
        "zstd" => Box::new(zstd::stream::read::Decoder::new(&*body).unwrap()),
        _ => Box::new(flate2::read::GzDecoder::new(&*body)),
    };
    let (mut text, mut part) = (Vec::new(), [0; 4096]);
    while let Ok(len @ 1..) = decoder.read(&mut part) {
        text.extend_from_slice(&part[..len]);
    }
    String::from_utf8(text).unwrap()
}

#[test]
fn files_are_compressed_too_unless_that_was_done_before() {
    let folder = folder();
    fs::create_dir_all(folder.join("public")).unwrap();
    let write =
        |name: &str, bytes: &[u8]| fs::write(folder.join("public").join(name), bytes).unwrap();
    write("short.css", &text(2_000));
    write("long.css", &text(1_000_000));
    write("tiny.css", &text(100));
    write("done.css", &text(2_000));
    write("done.css.gz", b"compressed before");
    let apps = format!("{APP}static = {{ path = \"/\", root = \"FOLDER/public\" }}\n");
    let harness = Harness::new(&folder, &apps);
    for (path, len) in [("/short.css", 2_000), ("/long.css", 1_000_000)] {
        for answer in get(&harness, "gzip", path, &[]) {
            assert_eq!(answer.field("content-encoding").unwrap(), "gzip");
            assert_eq!(answer.field("vary").unwrap(), "Accept-Encoding");
            assert!(decoded(&answer) == text(len));
            let tag = answer.field("etag").unwrap();
            assert!(tag.starts_with("W/"), "{tag}");
            let known = format!("If-None-Match: {tag}");
            for answer in get(&harness, "gzip", path, &["-H", &known]) {
                assert_eq!(answer.status, 304);
                assert_eq!(answer.field("vary").unwrap(), "Accept-Encoding");
            }
        }
        for answer in get(&harness, "gzip", path, &["-r", "0-9"]) {
            assert_eq!((answer.status, &*answer.body), (206, &text(10)[..]));
            assert_eq!(answer.field("content-encoding"), None);
        }
    }
    for answer in get(&harness, "gzip", "/tiny.css", &[]) {
        assert_eq!(
            (answer.field("content-encoding"), answer.body),
            (None, text(100))
        );
    }
    for answer in get(&harness, "gzip", "/done.css", &[]) {
        assert_eq!(answer.body, b"compressed before");
        assert_eq!(answer.field("vary").unwrap(), "Accept-Encoding");
    }
    harness.end();
}
