//! Which clients get in, and which do not.

use std::sync::Arc;
use std::time::Duration;

use crate::serve::Listener;
use rideau_apps::IoThreads;
use rideau_testing::certificates::{Signer, papers, signer};
use rideau_testing::{command, skipped};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use crate::tests::tls::harness::{LONG, Server, USERS, ask, connect};

#[tokio::test]
async fn a_client_that_trusts_the_server_is_served_within_tls() {
    let server = Server::start("", None).await;
    let mut client = server.client(&server.signer, None).await.unwrap();
    assert_eq!(ask(&mut client, "PING").await, "+PONG");
    // A request and an answer of many records.
    let long = "x".repeat(40_000);
    client.get_mut().0.set_nodelay(true).unwrap();
    assert_eq!(ask(&mut client, &format!("PING {long}")).await, "$40000");
}

#[tokio::test]
async fn a_client_that_does_not_trust_the_server_goes_away_and_others_come() {
    let server = Server::start("", None).await;
    let error = server.client(&signer("others"), None).await.unwrap_err();
    assert!(error.to_string().contains("certificate"), "{error}");
    let mut client = server.client(&server.signer, None).await.unwrap();
    assert_eq!(ask(&mut client, "PING").await, "+PONG");
}

#[tokio::test]
async fn the_name_in_a_certificate_is_the_user() {
    let clients = signer("the issuer is nobody");
    let server = Server::start(USERS, Some(&clients)).await;
    let orders = papers("orders", &clients);
    let mut client = server.client(&server.signer, Some(&orders)).await.unwrap();
    assert_eq!(ask(&mut client, "PING").await, "+PONG");
    let all = server.daemon.clients.all();
    assert_eq!(&*all[0].card.lock().user, "orders");
}

#[tokio::test]
async fn a_certificate_of_an_unknown_user_is_not_enough() {
    let clients = signer("orders");
    let server = Server::start(USERS, Some(&clients)).await;
    let nobody = papers("nobody", &clients);
    let mut client = server.client(&server.signer, Some(&nobody)).await.unwrap();
    let no = ask(&mut client, "LOCK a").await;
    assert!(no.starts_with("-NOAUTH"), "{no}");
}

#[tokio::test]
async fn without_a_certificate_of_the_right_signer_no_client_gets_in() {
    let clients = signer("clients");
    let server = Server::start(USERS, Some(&clients)).await;
    // The same names, and another key.
    let forger = signer("clients");
    let forged = papers("orders", &forger);
    for shown in [None, Some(&forged)] {
        // In the newest version the server's no comes after the client's last word.
        let answer = match server.client(&server.signer, shown).await {
            Ok(mut client) => ask(&mut client, "PING").await,
            Err(_) => String::new(),
        };
        assert_eq!(answer, "");
    }
    assert!(server.daemon.clients.is_empty());
}

#[tokio::test]
async fn plain_text_where_tls_is_spoken_is_cut() {
    let server = Server::start("", None).await;
    let mut plain = server.plain().await;
    let answer = ask(&mut plain, "PING").await;
    assert!(!answer.contains("PONG"), "{answer}");
    let mut rest = Vec::new();
    let end = tokio::time::timeout(LONG, plain.read_to_end(&mut rest)).await;
    let _ = end.unwrap();
    assert!(server.daemon.clients.is_empty());
}

#[tokio::test]
async fn tls_where_plain_text_is_spoken_is_cut() {
    let server = Server::start("", None).await;
    let listen = rideau_config::Listen::Tcp("127.0.0.1:0".parse().unwrap());
    let listener = Listener::bind(&listen, 0).await.unwrap();
    let address = listener.address();
    let io_threads = Arc::new(IoThreads::start(Some(1)).unwrap());
    tokio::spawn(listener.serve(Arc::clone(&server.daemon), io_threads));
    let stream = TcpStream::connect(&address).await.unwrap();
    assert!(connect(stream, &server.signer, None).await.is_err());
    let mut plain = TcpStream::connect(&address).await.unwrap();
    assert_eq!(ask(&mut plain, "PING").await, "+PONG");
}

#[tokio::test]
async fn a_handshake_that_never_comes_is_cut() {
    let server = Server::start_within("", None, Duration::from_millis(20)).await;
    let mut silent = server.plain().await;
    let mut bytes = Vec::new();
    let end = tokio::time::timeout(LONG, silent.read_to_end(&mut bytes));
    let _ = end.await.expect("the server hangs up");
    assert!(bytes.is_empty());
    assert!(server.daemon.clients.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_command_line_client_of_redis_gets_in() {
    let help = command("redis-cli").arg("--help").output();
    let help = help.unwrap();
    assert_ne!(help.status.code(), Some(127), "redis-cli is missing");
    let said = [help.stdout, help.stderr].concat();
    if !String::from_utf8_lossy(&said).contains("--tls ") {
        return skipped("this redis-cli has no TLS");
    }
    let clients = signer("clients");
    let server = Server::start(USERS, Some(&clients)).await;
    let [cert, key] = server.folder.papers("client", &papers("orders", &clients));
    let mut command = command("redis-cli");
    command
        .args(["-h", "localhost", "-p", &server.port.to_string(), "--tls"])
        .arg("--cacert")
        .arg(server.folder.0.join("ca.pem"))
        .arg("--cert")
        .arg(cert)
        .arg("--key")
        .arg(key)
        .args(["LOCK", "a"]);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap());
    let output = tokio::time::timeout(LONG, output).await.unwrap().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.starts_with("go\n"), "{said} {:?}", output.stderr);
}

/// A server with one place for connections that have not logged in, and the silent
/// connection that has it.
async fn crowded(clients: Option<&Signer>) -> (Server, TcpStream) {
    let limits = "[limits]\nbefore_login_max = 1\nlogin_within = \"10m\"\n";
    let server = Server::start(&format!("{limits}{USERS}"), clients).await;
    let first = server.plain().await;
    let until = tokio::time::Instant::now() + LONG;
    while server.daemon.logins.most_before_login() == 0 {
        assert!(tokio::time::Instant::now() < until, "it never comes");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    (server, first)
}

#[tokio::test]
async fn a_health_check_is_answered_where_its_address_has_too_many() {
    let (server, _first) = crowded(None).await;
    let mut check = server.client(&server.signer, None).await.unwrap();
    assert_eq!(ask(&mut check, "PING").await, "+PONG");
    // Whatever else it wants, it is told why it cannot have it.
    let told = ask(&mut check, "LOCK a").await;
    let why = "-BUSY limits.before_login_max (1) reached by connections from 127.0.0.1 that have \
        not logged in";
    assert!(told.starts_with(why), "{told}");
    assert!(server.daemon.clients.is_empty());
}

#[tokio::test]
async fn a_certificate_gets_in_where_its_address_has_too_many() {
    let clients = signer("clients");
    let (server, _first) = crowded(Some(&clients)).await;
    let orders = papers("orders", &clients);
    let mut client = server.client(&server.signer, Some(&orders)).await.unwrap();
    let granted = ask(&mut client, "LOCK a").await;
    assert!(!granted.starts_with('-'), "{granted}");
}

#[tokio::test]
async fn an_address_that_is_turned_away_before_its_handshake_is_told_of_once() {
    let (server, _first) = crowded(None).await;
    // These do not shake hands either, and the reserve does not wait for long.
    for _ in 0..2 {
        let mut more = server.plain().await;
        let mut rest = Vec::new();
        let end = tokio::time::timeout(LONG, more.read_to_end(&mut rest)).await;
        end.unwrap().unwrap();
        assert_eq!(rest, b"");
    }
    // They are counted when they are closed, and perhaps a moment later.
    let count = &server.daemon.counts.logins_crowded;
    let until = tokio::time::Instant::now() + LONG;
    while count.load(std::sync::atomic::Ordering::Relaxed) < 2 {
        assert!(tokio::time::Instant::now() < until, "they are not counted");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let events = server.daemon.events.newest(10);
    let told = events.iter().filter(|event| event.kind == "login");
    let told: Vec<_> = told.map(|event| &*event.text).collect();
    assert_eq!(
        told,
        ["connections from 127.0.0.1 are refused: too many of them have not logged in"]
    );
}
