//! Browsers before a crowded application: which of them come in, and what the others are shown.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Instant;

use serde_json::Value;

use crate::harness::{Answer, Harness, LONG, ask_with, folder, until};

/// What a browser says of a page that it is to show.
const BROWSER: &str = "Accept: text/html,application/xhtml+xml,*/*;q=0.8\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64) Firefox/140.0\r\n\
    Sec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document\r\n";
/// Five places, and each is taken for a fifth of a second.
const APP: &str = "[app.shop]\nexec = APP\nmin = 1\nmax = 1\nconcurrency = 5\n\
    waiting_room = { after = \"100ms\", hold = \"2m\" }\n";

/// A browser, and the cookie that it was given.
#[derive(Clone, Default)]
struct Browser {
    host: String,
    cookie: Option<String>,
}

impl Browser {
    fn of(host: &str) -> Self {
        Self {
            host: host.into(),
            cookie: None,
        }
    }

    fn ask(&mut self, harness: &Harness, path: &str) -> Answer {
        let cookie = self.cookie.as_ref();
        let cookie = cookie.map_or_else(String::new, |cookie| format!("Cookie: a=b; {cookie}\r\n"));
        let fields = format!("Host: {}\r\n{BROWSER}{cookie}", self.host);
        let answer = ask_with(harness.front, "GET", path, &fields, b"").unwrap();
        if is_page(&answer) {
            let cookie = answer.field("set-cookie").unwrap();
            self.cookie = Some(cookie.split(';').next().unwrap().to_owned());
        }
        answer
    }

    /// Its place in the line, as its cookie says it.
    fn serial(&self) -> u64 {
        let cookie = self.cookie.as_ref().unwrap();
        let value = cookie.strip_prefix("rideau-wait=").unwrap();
        value.split('.').next().unwrap().parse().unwrap()
    }
}

fn is_page(answer: &Answer) -> bool {
    answer.field("x-rideau-error") == Some("waiting_room")
}

/// The numbers of the app.
fn numbers(harness: &Harness) -> Value {
    let said = harness.admin("GET", "/api/v1/apps/shop", "");
    serde_json::from_str(&said.body).unwrap()
}

/// Requests of programs that take every place and wait for more, until this is dropped.
struct Crowd(Vec<TcpStream>);

impl Crowd {
    /// Clients that ask this.
    fn of(harness: &Harness, asks: impl Iterator<Item = String>) -> Self {
        let clients = asks.map(|ask| {
            let mut client = TcpStream::connect(harness.front).unwrap();
            client.set_read_timeout(Some(LONG)).unwrap();
            client.write_all(ask.as_bytes()).unwrap();
            client
        });
        Self(clients.collect())
    }

    /// The first line that each is answered.
    fn answers(self) -> impl Iterator<Item = String> {
        self.0.into_iter().map(|client| {
            let mut line = String::new();
            BufReader::new(client).read_line(&mut line).unwrap();
            line
        })
    }

    fn new(harness: &Harness, host: &str, count: usize, millis: u64) -> Self {
        let ask = format!("GET /sleep/{millis} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let crowd = Self::of(harness, std::iter::repeat_n(ask, count));
        until("they have places or wait", || {
            let seen = numbers(harness);
            let count_of = |name: &str| seen[name].as_u64().unwrap();
            count_of("sessions") + count_of("waiting") >= count as u64
        });
        crowd
    }
}

#[test]
fn fifty_browsers_come_in_in_the_order_of_their_serials_and_none_twice() {
    let folder = folder();
    let harness = Harness::new(&folder, APP);
    assert_eq!(harness.get("/sleep/200").status, 200);
    let crowd = Crowd::new(&harness, "test", 200, 20_000);
    let mut browsers = vec![Browser::of("test"); 50];
    for browser in &mut browsers {
        let answer = browser.ask(&harness, "/sleep/50");
        assert!(is_page(&answer), "{answer:?}");
    }
    let serials: Vec<_> = browsers.iter().map(Browser::serial).collect();
    assert!(serials.is_sorted() && serials.windows(2).all(|two| two[0] < two[1]));
    let seen = numbers(&harness);
    assert_eq!(
        seen["room_len"].as_u64().unwrap() + seen["room_turns"].as_u64().unwrap(),
        50
    );
    assert_eq!(seen["errors"]["waiting_room"], 50);
    drop(crowd);
    // They come again and again in a bad order: those that came last first.
    let mut outside: Vec<usize> = (0..50).rev().collect();
    let mut inside = BTreeSet::new();
    let begun = Instant::now();
    while !outside.is_empty() {
        assert!(
            begun.elapsed() < LONG,
            "{} are still outside",
            outside.len()
        );
        let mut round = outside.clone();
        let mut last_in = None;
        // Of those that come later in a round, one that was overtaken has its turn as well.
        round.retain(|at| {
            let serial = serials[*at];
            let answer = browsers[*at].ask(&harness, "/sleep/50");
            if is_page(&answer) {
                assert!(
                    last_in.is_none_or(|last| serial > last),
                    "{serial} was overtaken"
                );
                assert_eq!(browsers[*at].serial(), serial, "it keeps its place");
                return true;
            }
            assert_eq!(answer.status, 200);
            assert!(inside.insert(serial), "{serial} is in twice");
            last_in = Some(last_in.map_or(serial, |last: u64| last.max(serial)));
            false
        });
        outside = round;
    }
    let seen = numbers(&harness);
    assert_eq!(
        (&seen["room_len"], &seen["room_lost"]),
        (&0.into(), &0.into())
    );
    assert!(seen["room_entered"].as_u64().unwrap() >= 50);
    // A serial that was used is of no use any more.
    let crowd = Crowd::new(&harness, "test", 200, 20_000);
    let again = browsers[0].ask(&harness, "/");
    assert!(
        is_page(&again) && browsers[0].serial() > serials[49],
        "{again:?}"
    );
    drop(crowd);
    harness.end();
}

#[test]
fn programs_and_what_belongs_to_a_page_never_see_the_page() {
    let folder = folder();
    let harness = Harness::new(&folder, APP);
    assert_eq!(harness.get("/sleep/200").status, 200);
    let crowd = Crowd::new(&harness, "test", 200, 20_000);
    let mut browser = Browser::of("test");
    let page = browser.ask(&harness, "/");
    assert!(is_page(&page) && page.status == 503, "{page:?}");
    for (name, value) in [
        ("cache-control", "no-store"),
        ("content-type", "text/html; charset=utf-8"),
    ] {
        assert_eq!(page.field(name), Some(value), "{name}");
    }
    let retry_after: u64 = page.field("retry-after").unwrap().parse().unwrap();
    assert!((2..=20).contains(&retry_after), "{retry_after}");
    let cookie = page.field("set-cookie").unwrap();
    assert!(cookie.starts_with("rideau-wait="), "{cookie}");
    assert!(
        cookie.ends_with("; Path=/; Max-Age=600; HttpOnly; SameSite=Lax"),
        "{cookie}"
    );
    assert!(page.body.contains("role=\"status\""), "{}", page.body);
    // None of these is a browser that shows a page: they wait with all others.
    let html = "GET / HTTP/1.1\r\nHost: test\r\nAccept: text/html\r\n";
    let programs = [
        "GET / HTTP/1.1\r\nHost: test\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: test\r\nAccept: */*\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: test\r\nAccept: application/json, text/html;q=0.5\r\n\r\n",
        &format!("{html}Sec-Fetch-Mode: no-cors\r\nSec-Fetch-Dest: style\r\n\r\n"),
        &format!("{html}Sec-Fetch-Mode: cors\r\n\r\n"),
        &format!("{html}X-Requested-With: XMLHttpRequest\r\n\r\n"),
        &format!("{html}User-Agent: Mozilla/5.0 (compatible; Googlebot/2.1)\r\n\r\n"),
        &format!("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 0\r\n{BROWSER}\r\n"),
    ];
    let waiting = |harness: &Harness| numbers(harness)["waiting"].as_u64().unwrap();
    let programs = Crowd::of(&harness, programs.iter().map(|it| (*it).to_owned()));
    until("they wait", || waiting(&harness) > 8);
    assert_eq!(numbers(&harness)["errors"]["waiting_room"], 1);
    drop(crowd);
    for answer in programs.answers() {
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
    assert_eq!(numbers(&harness)["errors"]["waiting_room"], 1);
    harness.end();
}

#[test]
fn a_cookie_that_was_forged_or_is_anothers_leads_to_the_end_of_the_line() {
    let folder = folder();
    let two = format!(
        "{}hosts = [\"test\"]\n{}hosts = [\"other\"]\n",
        APP,
        APP.replace("app.shop", "app.other")
    );
    let harness = Harness::new(&folder, &two);
    for host in ["test", "other"] {
        let answer = harness.ask("GET", host, "/sleep/200", b"").unwrap();
        assert_eq!(answer.status, 200);
    }
    let _crowd = Crowd::new(&harness, "test", 200, 20_000);
    let mut others = Vec::new();
    for _ in 0..8 {
        let mut browser = Browser::of("test");
        assert!(is_page(&browser.ask(&harness, "/")));
        others.push(browser);
    }
    let last = others.last().unwrap().serial();
    let good = others[0].cookie.clone().unwrap();
    let forged = good.replacen("rideau-wait=", "rideau-wait=1", 1);
    let broken = format!("{good}0");
    let mut ends = Vec::new();
    for cookie in [
        forged,
        broken,
        "rideau-wait=1.2.3".into(),
        "rideau-wait=".into(),
    ] {
        let mut browser = Browser::of("test");
        browser.cookie = Some(cookie.clone());
        assert!(is_page(&browser.ask(&harness, "/")), "{cookie}");
        assert!(browser.serial() > last, "{cookie}");
        ends.push(browser.serial());
    }
    assert!(ends.is_sorted());
    // A name that begins alike is another cookie, and our own is found behind it.
    let mut browser = Browser::of("test");
    browser.cookie = Some(format!("rideau-waiting=1; {good}"));
    let answer = browser.ask(&harness, "/");
    assert!(
        !is_page(&answer) || browser.serial() == others[0].serial(),
        "{answer:?}"
    );
    // One of another app is worth nothing here.
    let said = harness.admin("GET", "/api/v1/apps/other", "");
    assert!(said.body.contains("\"room_len\":0"), "{}", said.body);
    let stranger = others[7].cookie.clone();
    let mut browser = Browser::of("other");
    browser.cookie = stranger;
    assert_eq!(browser.ask(&harness, "/").status, 200, "there is no line");
    harness.end();
}

#[test]
fn an_operators_page_is_filled_in_and_read_again() {
    let folder = folder();
    let page = folder.join("wait.html");
    fs::write(&page, "<p>You are number {place}, {wait}. {refresh} {id}").unwrap();
    let app = APP.replace("\"100ms\"", "\"100ms\", page = \"FOLDER/wait.html\"");
    let front = "waiting_room = { after = \"100ms\" }\n";
    let harness = Harness::with_front(&folder, front, &app);
    assert_eq!(harness.get("/sleep/200").status, 200);
    let crowd = Crowd::new(&harness, "test", 200, 20_000);
    let answer = Browser::of("test").ask(&harness, "/");
    assert!(
        answer.body.starts_with("<p>You are number 1, "),
        "{answer:?}"
    );
    assert_eq!(answer.field("refresh"), None, "it is in the page");
    fs::write(&page, "<p>Number {place}").unwrap();
    harness.cli(&["reload"]);
    let answer = Browser::of("test").ask(&harness, "/");
    assert!(answer.body.starts_with("<p>Number "), "{answer:?}");
    assert_eq!(answer.field("refresh"), answer.field("retry-after"));
    // Without a page of its own it is that of the front, and without a room they all wait.
    Harness::write(
        &folder,
        front,
        &APP.replace("waiting_room = { after = \"100ms\", hold = \"2m\" }\n", ""),
    );
    harness.cli(&["reload"]);
    let answer = Browser::of("test").ask(&harness, "/");
    assert!(answer.body.contains("You are in line"), "{answer:?}");
    let explained = harness.cli(&["explain", "shop"]);
    assert!(explained.contains("Its waiting room has "), "{explained}");
    let none = APP.replace("{ after = \"100ms\", hold = \"2m\" }", "\"none\"");
    Harness::write(&folder, front, &none);
    harness.cli(&["reload"]);
    drop(crowd);
    assert_eq!(Browser::of("test").ask(&harness, "/").status, 200);
    harness.end();
}
