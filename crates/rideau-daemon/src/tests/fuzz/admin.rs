//! Requests to every address of the admin side, with names, queries, headers and
//! bodies that any of them may stumble over.
//!
//! An input is the bytes of a request; `@session@` in it stands for a session.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use rideau_core::Rng;
use serde_json::Value;

use super::server::{PATIENCE, Server, alone, is_sound};
use rideau_testing::fuzz::{self, below, is_once_in, one};

const USUAL: u64 = 500;
/// This many requests have the same server.
const REQUESTS: u32 = 200;
/// A request that is not answered by then has to be ended.
const SOON: Duration = Duration::from_millis(30);

/// Parts of paths and queries.
const NAMES: &[&str] = &[
    "pg",
    "brought",
    "@db",
    "work",
    "few",
    "office",
    "number",
    "both",
    "key",
    "a/b",
    "new",
    "",
    "%",
    "%2",
    "%zz",
    "%00",
    "%C3%A9",
    "%ff",
    "%F0%9F%98%80",
    "é",
    "..",
    ".",
    "//",
    "*",
    "a%2Fb",
    "1",
    "0",
    "-1",
    "18446744073709551616",
    "99999999999999999999999999",
    "10.20.0.1",
    "5",
    "10.20.0.0%2F29",
    "10.20.0.1-10.20.0.3",
    "2001:db8::1",
    "d-1",
    "s-1",
    "pool:pg",
    "conn:0",
    "l-00000000000000000000000000000000",
    "@session@",
    "pool.pg.held,pool.pg.idle",
    "1h",
    "0s",
    "999999999h",
    "1m@",
    "?",
    "&",
    "=",
    "a=b&a=b",
    "+",
    "%20",
    "office,number",
];

/// Values of JSON.
const VALUES: &[&str] = &[
    "null",
    "true",
    "false",
    "0",
    "1",
    "-1",
    "5",
    "1e3",
    "1.5",
    "1e400",
    "18446744073709551615",
    "18446744073709551616",
    "-9223372036854775809",
    "\"\"",
    "\"é\"",
    "\"\\u0000\"",
    "\"\\ud800\"",
    "\"pg\"",
    "\"a\"",
    "\"1ms\"",
    "\"999999999h\"",
    "[]",
    "[1]",
    "[\"a\", \"a\"]",
    "{}",
    "{\"a\": 1}",
    "{\"a\": \"b\", \"é\": \"\"}",
    "[[[[[[]]]]]]",
    "\"rolling\"",
    "\"10.20.0.1\"",
];

/// Whole bodies.
const BODIES: &[&str] = &[
    "",
    "{}",
    "{",
    "[]",
    "null",
    "\"\"",
    "0",
    "{\"a\":1,\"a\":2}",
    "\u{feff}{}",
    "{}x",
    "{} ",
    "max = 3",
    "[pool.pg]\nmax = 0\n",
    "[pool.pg]\nmember = { list = [\"a\"] }\n",
    "[",
    "é = 1",
    "[server]\nwait_max = \"5ms\"\nwait_default = \"1ms\"\n[lock.\"*\"]\n",
    "a=b&c=d",
];

const HEADERS: &[&str] = &[
    "Rideau-Csrf: 1",
    "Rideau-Session: @session@",
    "Rideau-Session: s-0",
    "Rideau-Session: ",
    "Rideau-Session: é",
    "Authorization: Basic",
    "Authorization: Basic é",
    "Authorization: Basi é",
    "Authorization: Basic Og==",
    "Authorization: Basic YTpi",
    "Authorization: Basic !!!!",
    "Authorization: Bearer x",
    "Origin: http://localhost",
    "Origin: null",
    "Origin: é",
    "Content-Type: application/json",
    "Content-Type: text/plain",
    "Content-Type: é",
    "Accept: text/html",
    "Accept-Encoding: gzip",
    "Last-Event-ID: 1",
    "Last-Event-ID: -1",
    "Cookie: a=b; c",
    "If-None-Match: *",
    "Range: bytes=0-1",
    "Expect: 100-continue",
    "Upgrade: websocket",
    "Transfer-Encoding: chunked",
    "Host: evil",
    "X: y",
    "Sec-Fetch-Site: none",
];

/// What bytes are made worse with.
const PARTS: &[&[u8]] = &[
    b"\r\n",
    b"\r",
    b"\n",
    b" ",
    b"\0",
    b"\xff",
    b"%",
    b"?",
    b"&",
    b"=",
    b"/",
    b"{",
    b"}",
    b"\"",
    b"HTTP/1.0",
    b"Content-Length: 5\r\n",
    b":",
    b"\xc3",
    "é".as_bytes(),
    b"0",
    b"99999999999",
];

/// One address, and what it takes.
struct Route {
    method: String,
    path: String,
    queries: Vec<String>,
    /// The keys of its body.
    keys: Vec<String>,
}

#[test]
fn no_request_panics_or_hangs() {
    let _alone = alone();
    let mut server = Server::start();
    let routes = routes(&server);
    assert!(routes.len() > 50, "there are {}", routes.len());
    let mut session = open(&server);
    let mut requests = 0;
    fuzz::run(
        "admin",
        USUAL,
        |rng| request(rng, &routes),
        |input| {
            requests += 1;
            if requests > REQUESTS || !server.is_unchanged() || server.daemon.sessions.is_empty() {
                requests = 0;
                server = Server::start();
                session = open(&server);
            }
            let input = stand_in(input, &session);
            let said = send(&server, &input).map_err(|error| format!("it hangs: {error}"))?;
            let is_answer = said.is_empty() || said.starts_with(b"HTTP/1.");
            if !is_answer || said.starts_with(b"HTTP/1.1 500") {
                return Err(format!("it answers {}", said.escape_ascii()));
            }
            is_sound()
        },
    );
}

/// Every address, from the document that has them all.
fn routes(server: &Server) -> Vec<Route> {
    let asked = b"GET /api/openapi.json HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let said = String::from_utf8(send(server, asked).unwrap()).unwrap();
    let (_, body) = said.split_once("\r\n\r\n").unwrap();
    let document: Value = serde_json::from_str(body).unwrap();
    let mut all = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, about) in methods.as_object().unwrap() {
            let parameters = about["parameters"].as_array().unwrap().iter();
            let queries = parameters.filter(|about| about["in"] == "query");
            let content = about["requestBody"]["content"].as_object();
            let schema = content.and_then(|content| content.values().next());
            let schema = schema.and_then(|schema| schema["schema"]["$ref"].as_str());
            let shape = schema.and_then(|schema| schema.strip_prefix('#'));
            let shape = shape.and_then(|shape| document.pointer(shape));
            let keys = shape.and_then(|shape| shape["properties"].as_object());
            all.push(Route {
                method: method.to_uppercase(),
                path: path.clone(),
                queries: queries
                    .map(|about| about["name"].as_str().unwrap().to_owned())
                    .collect(),
                keys: keys.map_or_else(Vec::new, |keys| keys.keys().cloned().collect()),
            });
        }
    }
    all
}

fn request(rng: &mut Rng, routes: &[Route]) -> Vec<u8> {
    let route = &routes[below(rng, routes.len())];
    let method = match is_once_in(rng, 20) {
        true => one(
            rng,
            &["GET", "HEAD", "PUT", "POST", "DELETE", "OPTIONS", "é"],
        ),
        false => &route.method,
    };
    let mut text = format!("{method} {} HTTP/1.1\r\n", target(rng, route));
    if !is_once_in(rng, 20) {
        text += "Host: localhost\r\n";
    }
    text += "Connection: close\r\n";
    // Most are let in, so that there is something to try.
    if !is_once_in(rng, 8) {
        text += "Rideau-Csrf: 1\r\nRideau-Session: @session@\r\n";
    }
    for _ in 0..below(rng, 3) {
        text += one(rng, HEADERS);
        text += "\r\n";
    }
    let body = body(rng, route);
    if !body.is_empty() || route.method != "GET" {
        text += &format!("Content-Length: {}\r\n", body.len());
    }
    let mut bytes = format!("{text}\r\n{body}").into_bytes();
    if is_once_in(rng, 6) {
        fuzz::damage(&mut bytes, rng, PARTS);
    }
    bytes
}

fn target(rng: &mut Rng, route: &Route) -> String {
    let mut path = String::new();
    for (at, part) in route.path.split(['{', '}']).enumerate() {
        path += if at % 2 == 0 { part } else { one(rng, NAMES) };
    }
    let mut mark = '?';
    for query in &route.queries {
        if is_once_in(rng, 3) {
            continue;
        }
        path += &format!("{mark}{query}={}", one(rng, NAMES));
        mark = '&';
    }
    if is_once_in(rng, 10) {
        path += &format!("{mark}{}={}", one(rng, NAMES), one(rng, NAMES));
    }
    // A space would end it.
    path.replace(' ', "+")
}

fn body(rng: &mut Rng, route: &Route) -> String {
    if route.method == "GET" || is_once_in(rng, 4) {
        return match is_once_in(rng, 2) {
            true => one(rng, BODIES).to_owned(),
            false => String::new(),
        };
    }
    if route.keys.is_empty() {
        return one(rng, BODIES).to_owned();
    }
    let mut pairs = Vec::new();
    for key in &route.keys {
        if !is_once_in(rng, 3) {
            pairs.push(format!("\"{key}\": {}", one(rng, VALUES)));
        }
    }
    if is_once_in(rng, 10) {
        pairs.push(format!("\"é\": {}", one(rng, VALUES)));
    }
    format!("{{{}}}", pairs.join(", "))
}

/// The bytes with a session that is there.
fn stand_in(input: &[u8], session: &str) -> Vec<u8> {
    const WORD: &[u8] = b"@session@";
    let mut bytes = Vec::new();
    let mut rest = input;
    while let Some(at) = rest.windows(WORD.len()).position(|window| window == WORD) {
        bytes.extend_from_slice(&rest[..at]);
        bytes.extend_from_slice(session.as_bytes());
        rest = &rest[at + WORD.len()..];
    }
    bytes.extend_from_slice(rest);
    bytes
}

/// Open a session; says its id.
fn open(server: &Server) -> String {
    let asked = b"POST /v1/sessions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
        Content-Length: 2\r\n\r\n{}";
    let said = String::from_utf8(send(server, asked).unwrap()).unwrap();
    let (_, body) = said.split_once("\r\n\r\n").unwrap();
    let session: Value = serde_json::from_str(body).unwrap();
    session["id"].as_str().unwrap().to_owned()
}

/// What is answered, but for streams, which have no end.
fn send(server: &Server, bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(server.http)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(SOON))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut said = Vec::new();
    // It may have been refused before all was sent.
    let _ = stream.write_all(bytes);
    let mut part = [0; 4096];
    let mut is_ended = false;
    loop {
        match stream.read(&mut part) {
            Ok(0) => return Ok(said),
            Ok(len) => said.extend_from_slice(&part[..len]),
            Err(error) if is_late(&error) && !is_ended => {
                is_ended = true;
                let _ = stream.shutdown(Shutdown::Write);
                stream.set_read_timeout(Some(PATIENCE))?;
            }
            Err(error) if is_late(&error) => return Err(error),
            Err(_) => return Ok(said),
        }
        let text = String::from_utf8_lossy(&said).to_lowercase();
        if text.contains("\r\ncontent-type: text/event-stream") {
            return Ok(said);
        }
    }
}

fn is_late(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}
