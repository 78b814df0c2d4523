//! Where clients come in besides a port: sockets in the file system, and behind a peer that
//! says first for which client it speaks.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

use rideau_testing::command;

use crate::harness::{Answer, Harness, LONG, folder, processes_of, until};

const APP: &str = "[app.shop]\nexec = APP\nmin = 1\n";
const PORT: &str = "[front]\nlisten = [\"127.0.0.1:0\"";

/// A config whose front listens at this path as well.
fn write(folder: &Path, socket: &Path) {
    Harness::write(folder, "", APP);
    let file = folder.join("rideau.toml");
    let text = fs::read_to_string(&file).unwrap();
    let with_socket = format!("{PORT}, \"unix:{}\"", socket.display());
    fs::write(&file, text.replace(PORT, &with_socket)).unwrap();
}

/// What is answered to these bytes, until the end.
fn tell(mut stream: impl Read + Write, bytes: &[u8]) -> Answer {
    stream.write_all(bytes).unwrap();
    let mut said = Vec::new();
    // One that is refused may be told so before all was read.
    let _ = stream.read_to_end(&mut said);
    let said = String::from_utf8_lossy(&said).into_owned();
    let (head, body) = said.split_once("\r\n\r\n").unwrap_or((&said, ""));
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
    Answer {
        status: status.unwrap_or_default(),
        head: head.to_owned(),
        body: body.to_owned(),
    }
}

/// A request whose answer has the fields that the application was told.
fn request(fields: &str) -> String {
    format!("GET /head HTTP/1.1\r\nHost: test\r\nConnection: close\r\n{fields}\r\n")
}

fn told<'a>(answer: &'a Answer, name: &str) -> Option<&'a str> {
    assert_eq!(answer.status, 200, "{answer:?}");
    let mut told = answer.body.lines().filter_map(|line| line.split_once(": "));
    let found = told.find(|(key, _)| key.eq_ignore_ascii_case(name));
    found.map(|(_, value)| value)
}

#[test]
fn a_socket_in_the_file_system_serves_and_its_peers_are_believed() {
    let folder = folder();
    let socket = folder.join("web.sock");
    write(&folder, &socket);
    let mut harness = Harness::start(&folder);
    let mode = fs::metadata(&socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o660);
    let ask = |fields: &str| {
        let stream = UnixStream::connect(&socket).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        tell(stream, request(fields).as_bytes())
    };
    let alone = ask("");
    assert_eq!(told(&alone, "x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(told(&alone, "x-forwarded-proto"), Some("http"));
    let for_client = ask("X-Forwarded-For: 192.0.2.9\r\nX-Forwarded-Proto: https\r\n");
    let list = told(&for_client, "x-forwarded-for").unwrap();
    assert!(list.starts_with("192.0.2.9"), "{list}");
    assert_eq!(told(&for_client, "x-forwarded-proto"), Some("https"));
    // The same by curl, and in HTTP/2.
    for version in ["--http1.1", "--http2-prior-knowledge"] {
        let done = command("curl")
            .args(["--silent", "--show-error", "--max-time", "50", version])
            .arg("--unix-socket")
            .arg(&socket)
            .args(["--write-out", "%{http_code}", "http://test/pid"])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&done.stdout);
        assert!(said.ends_with("200"), "{version}: {done:?}");
    }
    // What a killed server left is taken over.
    harness.kill();
    assert!(socket.exists());
    until("its processes end", || processes_of(&folder).is_empty());
    let harness = Harness::start(&folder);
    assert_eq!(told(&ask(""), "x-forwarded-for"), Some("127.0.0.1"));
    harness.end();
}

#[test]
fn a_file_that_is_no_socket_is_left_alone() {
    let folder = folder();
    let file = folder.join("notes.txt");
    fs::write(&file, "keep me").unwrap();
    write(&folder, &file);
    let done = command(env!("CARGO_BIN_EXE_rideau"))
        .args(["serve", "-c"])
        .arg(folder.join("rideau.toml"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(!done.status.success(), "{said}");
    assert!(said.contains("cannot listen at unix:"), "{said}");
    assert!(said.contains("front.listen"), "{said}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "keep me");
    let _ = fs::remove_dir_all(folder);
}

/// A header of version 2: 192.0.2.77, port 4711, went to 198.51.100.7, port 8443.
fn version_2() -> Vec<u8> {
    let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x0c".to_vec();
    header.extend([192, 0, 2, 77, 198, 51, 100, 7, 0x12, 0x67, 0x20, 0xfb]);
    header
}

const VERSION_1: &[u8] = b"PROXY TCP4 192.0.2.77 198.51.100.7 4711 8443\r\n";

#[test]
fn a_trusted_peer_says_first_for_which_client_it_speaks() {
    let folder = folder();
    let front = "trust = [\"127.0.0.1\"]\nproxy_protocol = true\nclient_connections_max = 1\n";
    let harness = Harness::with_front(&folder, front, APP);
    let connect = || {
        let stream = TcpStream::connect(harness.front).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream
    };
    for header in [VERSION_1.to_vec(), version_2()] {
        let forged = request("X-Forwarded-For: 10.0.0.1\r\nX-Forwarded-Port: 1\r\n");
        let answer = tell(connect(), &[&header[..], forged.as_bytes()].concat());
        assert_eq!(told(&answer, "x-forwarded-for"), Some("192.0.2.77"));
        assert_eq!(told(&answer, "x-forwarded-port"), Some("8443"));
        // It may come in parts.
        let mut slow = connect();
        let (first, rest) = header.split_at(20);
        slow.write_all(first).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(50));
        let answer = tell(slow, &[rest, request("").as_bytes()].concat());
        assert_eq!(told(&answer, "x-forwarded-for"), Some("192.0.2.77"));
    }
    // The peer speaks for itself, for instance when it looks whether the server is well.
    for header in [&b"PROXY UNKNOWN\r\n"[..], b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0"] {
        let answer = tell(connect(), &[header, request("").as_bytes()].concat());
        assert_eq!(told(&answer, "x-forwarded-for"), Some("127.0.0.1"));
    }
    // Without a header, and with one that cannot be read.
    let mangled = [&b"PROXY TCP4 me you 1 2\r\n"[..], request("").as_bytes()].concat();
    for bytes in [request("").into_bytes(), mangled] {
        let answer = tell(connect(), &bytes);
        assert_eq!(answer.status, 400, "{answer:?}");
        assert_eq!(answer.field("x-rideau-error"), Some("proxy_protocol"));
    }
    // Each client has its own limit of connections.
    let mut first = connect();
    let asked = "GET /pid HTTP/1.1\r\nHost: test\r\n\r\n";
    let bytes = [VERSION_1, asked.as_bytes()].concat();
    first.write_all(&bytes).unwrap();
    let mut begin = [0; 12];
    first.read_exact(&mut begin).unwrap();
    assert_eq!(&begin, b"HTTP/1.1 200");
    let second = tell(connect(), &bytes);
    assert_eq!(second.status, 429, "{second:?}");
    let other = b"PROXY TCP4 192.0.2.78 198.51.100.7 4711 8443\r\n";
    let answer = tell(connect(), &[&other[..], request("").as_bytes()].concat());
    assert_eq!(told(&answer, "x-forwarded-for"), Some("192.0.2.78"));
    drop(first);
    harness.end();
}

#[test]
fn an_untrusted_peer_speaks_for_no_other_client() {
    let folder = folder();
    for front in ["proxy_protocol = true\n", "trust = [\"127.0.0.1\"]\n"] {
        let harness = Harness::with_front(&folder, front, APP);
        for header in [VERSION_1.to_vec(), version_2()] {
            let stream = TcpStream::connect(harness.front).unwrap();
            stream.set_read_timeout(Some(LONG)).unwrap();
            let closing = stream.try_clone().unwrap();
            let answer = tell(stream, &[&header[..], request("").as_bytes()].concat());
            assert_eq!(answer.status, 400, "{answer:?}");
            let _ = closing.shutdown(Shutdown::Both);
        }
        // Its own requests are served as ever.
        assert_eq!(harness.get("/pid").status, 200);
        harness.end();
        fs::create_dir_all(folder.join("tmp")).unwrap();
    }
    let _ = fs::remove_dir_all(folder);
}
