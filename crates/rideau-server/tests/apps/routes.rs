//! Routes: clients that are sent elsewhere, and apps that have more hosts and paths than
//! their own.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use rideau_testing::command;

use crate::harness::{Answer, Harness, LONG, folder};

const APPS: &str = "[app.shop]\nexec = APP\nmin = 1\nhosts = [\"shop.example\"]\n\
                    [route.www]\nhosts = [\"www.shop.example\"]\n\
                    redirect = \"https://shop.example{path}\"\nstatus = 301\n\
                    headers = { Cache-Control = \"max-age=60\" }\n\
                    [route.old]\nhosts = [\"shop.example\"]\npaths = [\"/old\"]\n\
                    redirect = \"/new{rest}\"\n\
                    [route.rest]\nhosts = [\"shop.example\"]\npaths = [\"/away\"]\n\
                    redirect = \"{rest}\"\n\
                    [route.api]\npaths = [\"/pid\"]\nto = \"shop\"\n\
                    headers = { X-Api = \"1\", Content-Type = \"text/x-pid\", Server = \"\" }\n";

/// The status and where it leads.
fn led(answer: &Answer) -> (u16, &str) {
    (answer.status, answer.field("location").unwrap_or_default())
}

#[test]
fn a_route_sends_clients_elsewhere() {
    let folder = folder();
    let harness = Harness::with_front(&folder, "", APPS);
    let ask = |host: &str, path: &str| harness.ask("GET", host, path, b"").unwrap();
    let moved = ask("www.shop.example:80", "/a%20b?c=d&e");
    assert_eq!(led(&moved), (301, "https://shop.example/a%20b?c=d&e"));
    assert_eq!(moved.field("cache-control"), Some("max-age=60"));
    assert_eq!(moved.field("x-rideau-error"), None);
    // Nothing that is in a path can become a field, or another host.
    let odd = ask("www.shop.example", "/%0d%0aSet-Cookie:%20a=b");
    let there = "https://shop.example/%0d%0aSet-Cookie:%20a=b";
    assert_eq!(led(&odd), (301, there));
    assert_eq!(odd.field("set-cookie"), None);
    let beyond = ask("shop.example", "/away//evil.example/a");
    assert_eq!(led(&beyond), (308, "/evil.example/a"));
    assert_eq!(
        led(&ask("shop.example", "/old/a?b")),
        (308, "/new/a?b"),
        "what follows the path of the route"
    );
    assert_eq!(led(&ask("shop.example", "/old")), (308, "/new"));
    // What only begins alike goes to the app.
    assert_eq!(led(&ask("shop.example", "/older")).0, 200);
    let posted = harness.ask("POST", "shop.example", "/old", b"body");
    assert_eq!(led(&posted.unwrap()), (308, "/new"));
    harness.end();
}

#[test]
fn a_redirected_upload_is_not_taken_for_the_next_request() {
    let folder = folder();
    let harness = Harness::with_front(&folder, "", APPS);
    let mut stream = TcpStream::connect(harness.front).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    let within = "GET /pid HTTP/1.1\r\nHost: else.example\r\n\r\n";
    let asked = format!(
        "POST /old HTTP/1.1\r\nHost: shop.example\r\nContent-Length: {}\r\n\r\n{within}",
        within.len()
    );
    stream.write_all(asked.as_bytes()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut said = String::new();
    let _ = stream.read_to_string(&mut said);
    assert_eq!(said.matches("HTTP/1.1 ").count(), 1, "{said}");
    assert!(said.contains(" 308 "), "{said}");
    harness.end();
}

#[test]
fn a_route_leads_to_an_app_and_gives_its_answers_fields() {
    let folder = folder();
    let harness = Harness::with_front(&folder, "", APPS);
    let own = harness.ask("GET", "shop.example", "/pid", b"").unwrap();
    assert_eq!((own.status, own.field("x-api")), (200, None));
    let by_route = harness.ask("GET", "else.example", "/pid", b"").unwrap();
    assert_eq!(by_route.status, 200);
    assert_eq!(by_route.field("x-api"), Some("1"));
    assert_eq!(by_route.field("content-type"), Some("text/x-pid"));
    assert_eq!(by_route.field("server"), None);
    assert_eq!(by_route.body, own.body, "the same process");
    let none = harness.ask("GET", "else.example", "/", b"").unwrap();
    assert_eq!(none.status, 404);
    harness.end();
}

#[test]
fn routes_count_from_the_next_request_on() {
    let folder = folder();
    let harness = Harness::with_front(&folder, "", APPS);
    let ask = || harness.ask("GET", "www.shop.example", "/a", b"").unwrap();
    assert_eq!(led(&ask()).0, 301);
    let to = APPS.replace("https://shop.example{path}", "http://other.example/");
    Harness::write(&folder, "", &to);
    harness.cli(&["reload"]);
    assert_eq!(led(&ask()), (301, "http://other.example/"));
    harness.end();
}

/// HTTP/2 as well.
#[test]
fn clients_of_http2_are_sent_elsewhere_too() {
    let folder = folder();
    let harness = Harness::with_front(&folder, "", APPS);
    let done = command("curl")
        .args(["--silent", "--show-error", "--max-time", "20", "--include"])
        .args([
            "--http2-prior-knowledge",
            "--header",
            "Host: www.shop.example",
        ])
        .arg(format!("http://{}/a?b", harness.front))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stdout).to_ascii_lowercase();
    assert!(said.starts_with("http/2 301"), "{said}");
    assert!(
        said.contains("location: https://shop.example/a?b\r\n"),
        "{said}"
    );
    harness.end();
}
