//! Which requests the front lets in, how often, and when only within TLS.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};

use rideau_testing::certificates::{papers_for, signer};
use rideau_testing::command;

use crate::harness::{Answer, Harness, LONG, folder, until};

const APP: &str = "[app.shop]\nexec = APP\nmin = 1\n";

fn free_port() -> u16 {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    free.local_addr().unwrap().port()
}

/// The certificate of `shop.example`, in the folder; and the file of its signer.
fn certified(folder: &Path) -> (String, PathBuf) {
    let signer = signer("ours");
    let papers = papers_for("shop", &["shop.example"], &signer);
    fs::write(folder.join("shop.pem"), papers.certificate()).unwrap();
    fs::write(folder.join("shop.key"), papers.key()).unwrap();
    let ca = folder.join("ca.pem");
    fs::write(&ca, signer.pem()).unwrap();
    let config = "[certificate.shop]\ncert = \"FOLDER/shop.pem\"\nkey = \"FOLDER/shop.key\"\n";
    (config.into(), ca)
}

/// The head of the answer to curl.
fn curl(ca: &Path, port: u16, words: &[&str]) -> String {
    let done = command("curl")
        .args(["--silent", "--show-error", "--max-time", "20", "--include"])
        .args(["--resolve", &format!("shop.example:{port}:127.0.0.1")])
        .args(["--resolve", &format!("other.example:{port}:127.0.0.1")])
        .arg("--cacert")
        .arg(ca)
        .args(words)
        .output()
        .unwrap();
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(done.status.success(), "{words:?}: {}", said(&done.stderr));
    said(&done.stdout)
}

#[test]
fn a_host_with_a_certificate_is_served_within_tls_alone() {
    let folder = folder();
    let (certificate, ca) = certified(&folder);
    let port = free_port();
    let front = format!(
        "tls_listen = [\"127.0.0.1:{port}\"]\ntrust = [\"127.0.0.2\"]\n\
         hsts = {{ max_age = \"365d\", subdomains = true }}\n"
    );
    let harness = Harness::with_front(&folder, &front, &(certificate + APP));
    let plain = |host: &str, path: &str| harness.ask("GET", host, path, b"").unwrap();
    let moved = plain("shop.example:80", "/a%20b?c=d&e");
    assert_eq!(moved.status, 308);
    let there = format!("https://shop.example:{port}/a%20b?c=d&e");
    assert_eq!(moved.field("location"), Some(&*there));
    assert_eq!(moved.field("strict-transport-security"), None);
    assert_eq!(moved.field("x-rideau-error"), None);
    assert_eq!(plain("other.example", "/").status, 200, "it has none");
    let posted = harness.ask("POST", "shop.example", "/", b"body").unwrap();
    assert_eq!(posted.status, 308);
    for version in ["--http1.1", "--http2"] {
        let at = format!("https://shop.example:{port}/");
        let said = curl(&ca, port, &[version, &at]);
        let said = said.to_ascii_lowercase();
        assert!(said.contains(" 200"), "{said}");
        let hsts = "strict-transport-security: max-age=31536000; includesubdomains\r\n";
        assert_eq!(said.matches(hsts).count(), 1, "{said}");
    }
    // Its own answers have it as well.
    let at = format!("https://shop.example:{port}/");
    let said = curl(&ca, port, &["--http1.1", "--request", "TRACE", &at]);
    assert!(
        said.contains(" 405 ") && said.contains("max-age=31536000"),
        "{said}"
    );
    harness.end();
}

#[test]
fn a_redirect_can_be_turned_off_and_spares_a_front_that_had_tls() {
    let folder = folder();
    let (certificate, _) = certified(&folder);
    let port = free_port();
    let front = |redirect: &str, trust: &str| {
        format!(
            "tls_listen = [\"127.0.0.1:{port}\"]\nredirect_https = \"{redirect}\"\n\
             trust = [{trust}]\n"
        )
    };
    let apps = certificate + APP;
    let harness = Harness::with_front(&folder, &front("auto", "\"127.0.0.1\""), &apps);
    let get = |fields: &str| harness.ask_saying("/", &format!("Host: shop.example\r\n{fields}"));
    assert_eq!(get("").status, 308);
    assert_eq!(get("X-Forwarded-Proto: https\r\n").status, 200);
    assert_eq!(get("X-Forwarded-Proto: http\r\n").status, 308);
    Harness::write(&folder, &front("auto", ""), &apps);
    harness.cli(&["reload"]);
    assert_eq!(
        get("X-Forwarded-Proto: https\r\n").status,
        308,
        "not believed"
    );
    Harness::write(&folder, &front("none", ""), &apps);
    harness.cli(&["reload"]);
    assert_eq!(get("").status, 200);
    harness.end();
}

fn is_denied(answer: &Answer) -> bool {
    let is_denied = answer.status == 403;
    assert_eq!(
        answer.field("x-rideau-error"),
        is_denied.then_some("denied")
    );
    is_denied
}

/// A forged address is not believed, whichever way it is forged.
#[test]
fn a_client_is_let_in_by_its_address() {
    let folder = folder();
    let front = |keys: &str, app: &str| Harness::write(&folder, keys, &format!("{APP}{app}"));
    front("deny = [\"127.0.0.0/8\"]", "");
    let harness = Harness::start(&folder);
    let from = |client: &str| {
        let fields = format!("Host: test\r\nX-Forwarded-For: {client}\r\n");
        harness.ask_saying("/", &fields)
    };
    let apply = || harness.cli(&["reload"]);
    assert!(
        is_denied(&from("192.0.2.1")),
        "what it says is not believed"
    );
    front("trust = [\"127.0.0.1\"]\ndeny = [\"192.0.2.0/24\"]", "");
    apply();
    assert!(is_denied(&from("192.0.2.1")));
    assert!(
        is_denied(&from("198.51.100.1, 192.0.2.7")),
        "the last counts"
    );
    assert!(!is_denied(&from("192.0.2.1, 198.51.100.1")));
    front(
        "trust = [\"127.0.0.1\"]\nallow = [\"2001:db8::/32\"]\ndeny = [\"2001:db8:1::/48\"]",
        "deny = [\"2001:db8:2::/48\"]\n",
    );
    apply();
    assert!(!is_denied(&from("2001:db8:3::1")));
    assert!(is_denied(&from("2001:db8:1::1")), "denied by the front");
    assert!(is_denied(&from("2001:db8:2::1")), "denied by the app");
    assert!(is_denied(&from("192.0.2.1")), "not allowed");
    let page = harness.admin("GET", "/metrics", "").body;
    let counted = "rideau_app_errors_total{app=\"shop\",error=\"denied\"} 6";
    assert!(page.contains(counted), "{page}");
    harness.end();
}

#[test]
fn a_client_that_asks_too_often_is_told_when_to_ask_again() {
    let folder = folder();
    let harness = Harness::with_front(
        &folder,
        "trust = [\"127.0.0.1\"]\nrate_limit = { rate = \"6/h\", burst = 5 }\n",
        &format!("{APP}rate_limit = {{ rate = \"6/h\", burst = 3, by = \"header:X-Key\" }}\n"),
    );
    let from = |client: &str, key: &str| {
        let fields = format!("Host: test\r\nX-Forwarded-For: {client}\r\nX-Key: {key}\r\n");
        harness.ask_saying("/", &fields)
    };
    let passed = |client: &str, key: &str, asked: usize| {
        let answers: Vec<_> = (0..asked).map(|_| from(client, key)).collect();
        let refused = answers.iter().filter(|answer| answer.status == 429);
        for answer in refused {
            assert_eq!(answer.field("x-rideau-error"), Some("rate_limited"));
            let after: u64 = answer.field("retry-after").unwrap().parse().unwrap();
            assert!((1..=600).contains(&after), "{after}");
        }
        answers.iter().filter(|answer| answer.status == 200).count()
    };
    assert_eq!(
        passed("192.0.2.1", "anna", 4),
        3,
        "the app lets no more pass"
    );
    assert_eq!(passed("192.0.2.1", "bert", 4), 1, "nor does the front");
    assert_eq!(passed("192.0.2.2", "anna", 1), 0, "the key counts");
    assert_eq!(passed("2001:db8::1", "carl", 3), 3);
    assert_eq!(passed("2001:db8::2", "dora", 3), 2, "one /64 is one client");
    // A change of something else forgets nothing.
    harness.cli(&["set", "front.connections_max", "500"]);
    assert_eq!(passed("192.0.2.1", "emil", 1), 0);
    let page = harness.admin("GET", "/metrics", "").body;
    let counted = "rideau_app_errors_total{app=\"shop\",error=\"rate_limited\"} 7";
    assert!(page.contains(counted), "{page}");
    harness.end();
}

#[test]
fn one_address_has_only_so_much_of_the_connections() {
    let folder = folder();
    let harness = Harness::with_front(&folder, "", &format!("{APP}queue = \"never\"\n"));
    let kept: Vec<_> = (0..300)
        .map(|_| {
            let mut stream = TcpStream::connect(harness.front).unwrap();
            stream.set_read_timeout(Some(LONG)).unwrap();
            // One that was turned away may be gone by then.
            let _ = stream.write_all(b"GET /pid HTTP/1.1\r\nHost: test\r\n\r\n");
            stream
        })
        .collect();
    let statuses = kept.iter().map(|mut stream| {
        let mut said = [0; 2048];
        let len = stream.read(&mut said).unwrap_or(0);
        String::from_utf8_lossy(&said[..len]).into_owned()
    });
    let statuses: Vec<_> = statuses.collect();
    let served = statuses.iter().filter(|said| said.contains(" 200 OK"));
    assert_eq!(served.count(), 256);
    let told = statuses.iter().find(|said| said.contains(" 429 "));
    let told = told.expect("one was told");
    assert!(
        told.contains("X-Rideau-Error: client_connections_max"),
        "{told}"
    );
    let limits = harness.admin("GET", "/metrics", "").body;
    let counted = "rideau_limits_refused_total{limit=\"front.client_connections_max\"} 44";
    assert!(limits.contains(counted), "{limits}");
    drop(kept);
    until("there is room again", || {
        harness
            .ask("GET", "test", "/", b"")
            .is_ok_and(|answer| answer.status == 200)
    });
    harness.end();
}

#[test]
fn one_address_has_only_so_many_requests_of_an_app_at_a_time() {
    let folder = folder();
    let harness = Harness::with_front(
        &folder,
        "trust = [\"127.0.0.1\"]\n",
        &format!("{APP}client_connections_max = 2\n"),
    );
    let from = |client: &str, path: &str| {
        let fields = format!("Host: test\r\nX-Forwarded-For: {client}\r\n");
        harness.ask_saying(path, &fields)
    };
    assert_eq!(from("192.0.2.1", "/").status, 200);
    // One request that is served, and one connection that became something else.
    let talk = talk(&harness, "192.0.2.1");
    let mut events = TcpStream::connect(harness.front).unwrap();
    events.set_read_timeout(Some(LONG)).unwrap();
    let asked =
        "GET /events/1000/1000 HTTP/1.1\r\nHost: test\r\nX-Forwarded-For: 192.0.2.1\r\n\r\n";
    events.write_all(asked.as_bytes()).unwrap();
    let mut first = [0; 4096];
    assert!(events.read(&mut first).unwrap() > 0);
    let refused = from("192.0.2.1", "/");
    assert_eq!(refused.status, 429, "{refused:?}");
    assert_eq!(
        refused.field("x-rideau-error"),
        Some("client_connections_max")
    );
    assert_eq!(refused.field("retry-after"), Some("1"));
    assert_eq!(from("192.0.2.2", "/").status, 200, "others have their own");
    drop(talk);
    until("the end of one is seen", || {
        from("192.0.2.1", "/").status == 200
    });
    drop(events);
    harness.end();
}

/// A connection that became something else.
fn talk(harness: &Harness, client: &str) -> TcpStream {
    let mut stream = TcpStream::connect(harness.front).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    let head = format!(
        "GET /talk HTTP/1.1\r\nHost: test\r\nX-Forwarded-For: {client}\r\n\
         Connection: Upgrade\r\nUpgrade: talk\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut said = [0; 4096];
    let len = stream.read(&mut said).unwrap();
    assert!(said[..len].starts_with(b"HTTP/1.1 101 "));
    stream
}
