//! The matrix of rights over HTTP: every route of the document, and what alone
//! opens it. What is expected stands in `rights.txt`.

use std::collections::BTreeMap;

use crate::tests::admin::web::{LONG, Server};
use rideau_config::ALLOWED;
use rideau_config::password::Hash;
use tokio::io::AsyncReadExt;

const EXPECTED: &str = include_str!("rights.txt");

/// `user:secret` as the header wants it.
fn basic(user: &str) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in format!("{user}:secret").as_bytes().chunks(3) {
        let mut bits = 0;
        for at in 0..3 {
            bits = bits << 8 | u32::from(*three.get(at).unwrap_or(&0));
        }
        for at in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * at) & 63) as usize];
            text.push(if at <= three.len() { digit.into() } else { '=' });
        }
    }
    format!("Authorization: Basic {text}")
}

/// The users who may, in few words.
fn said(who: &[&str]) -> String {
    let is_every = ALLOWED.iter().all(|word| who.contains(word));
    let strangers = who.iter().filter(|who| !ALLOWED.contains(who)).copied();
    match is_every {
        true => strangers
            .chain(["every user"])
            .collect::<Vec<_>>()
            .join(" "),
        false => who.join(" "),
    }
}

/// A session of the user who logs in so; none if it may have none.
async fn session(server: &Server, login: &str) -> Option<String> {
    let body = "{\"ttl_ms\": 3600000}";
    let reply = server.send("POST /v1/sessions", &[login], body).await;
    (reply.status == 200).then(|| reply.text("id"))
}

/// The status of an answer, whose body may go on for ever.
async fn status(server: &Server, head: &str, headers: &[&str]) -> u16 {
    // Nothing is changed by this: a config is none, and asks name what is nowhere.
    let body = if head.contains("/config/") { "x" } else { "{}" };
    let mut stream = server.open(head, headers, body).await;
    let mut start = [0; 64];
    let read = stream.read_exact(&mut start);
    tokio::time::timeout(LONG, read).await.unwrap().unwrap();
    let start = String::from_utf8_lossy(&start);
    let status = start.split(' ').nth(1).unwrap();
    status.parse().unwrap()
}

/// One user for each right, which has nothing else but what all have.
fn users(hash: &Hash, all: &str) -> String {
    let mut users = String::new();
    for (at, word) in ALLOWED.iter().enumerate() {
        let hash = hash.as_str();
        let allow = format!("[\"{word}\"{all}]");
        users += &format!("[user.u{at}]\npassword = '{hash}'\nallow = {allow}\n\n");
    }
    users
}

/// Every route of the document.
async fn routes(server: &Server) -> Vec<String> {
    let document = server.get("/api/openapi.json").await.json();
    let mut routes = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            routes.push(format!("{} {path}", method.to_uppercase()));
        }
    }
    routes
}

#[tokio::test]
async fn each_right_opens_the_routes_that_it_should() {
    let hash = Hash::of(b"secret").unwrap();
    let server = Server::start(&users(&hash, ", \"session\"")).await;
    let open = Server::start("").await;
    let routes = routes(&open).await;
    let mut opened: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let none = || "Authorization: none".to_owned();
    // The last has no login, not even an empty one.
    let mut who: Vec<(&str, &Server, String)> = vec![
        ("open", &open, none()),
        ("nobody", &server, none()),
        ("nobody", &server, "X-Nothing: none".into()),
    ];
    for (at, word) in ALLOWED.iter().enumerate() {
        who.push((word, &server, basic(&format!("u{at}"))));
    }
    // Asks belong to sessions, so every user has one; then each right is tried
    // alone.
    let mut sessions = Vec::new();
    for (_, server, login) in &who {
        sessions.push(session(server, login).await.unwrap_or_default());
    }
    let narrowed = server.daemon.apply(&users(&hash, ""), "a test");
    assert!(narrowed.is_ok(), "{narrowed:?}");
    for ((word, server, login), session) in who.iter().zip(&sessions) {
        let session = format!("Rideau-Session: {session}");
        for route in &routes {
            // What is named is nowhere.
            let head = route.replace(['{', '}', '*'], "");
            let headers = ["Rideau-Csrf: 1", login.as_str(), session.as_str()];
            let status = status(server, &head, &headers).await;
            let names = opened.entry(route).or_default();
            if ![401, 403].contains(&status) {
                names.push(word);
            }
        }
    }
    let found: String = opened
        .iter_mut()
        .map(|(route, who)| {
            let nobody = who.iter().filter(|who| **who == "nobody").count();
            assert!(nobody != 1, "{route} depends on a header that says nothing");
            who.dedup();
            format!("{route}: {}\n", said(who))
        })
        .collect();
    assert!(found == EXPECTED, "the rights are now\n{found}");
}
