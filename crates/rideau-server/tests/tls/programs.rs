//! Programs within TLS: our own, and curl where HTTP is spoken.

use std::net::SocketAddr;
use std::process::{Command, Output};
use std::sync::Arc;

use rideau_config::Tls;
use rideau_daemon::testing::AdminListener;
use rideau_daemon::tls;
use rideau_testing::command;

use crate::harness::{Server, USERS, papers, signer};

/// Run something to its end while the server serves.
async fn run(mut command: Command) -> (Option<i32>, String) {
    let output = tokio::task::spawn_blocking(move || command.output().unwrap());
    let Output {
        status,
        stdout,
        stderr,
    } = output.await.unwrap();
    let said = [stdout, stderr].concat();
    (status.code(), String::from_utf8_lossy(&said).into_owned())
}

/// Our own program, that knows where the server is.
fn rideau(server: &Server, words: &[&str]) -> Command {
    let mut command = command(env!("CARGO_BIN_EXE_rideau"));
    for name in ["RIDEAU_SERVER", "RIDEAU_PASSWORD", "SSL_CERT_FILE"] {
        command.env_remove(name);
    }
    let place = format!("localhost:{}", server.port);
    command.args(["--server", &place]).args(words);
    command
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_command_line_speaks_tls_when_told_to() {
    let server = Server::start("[lock.\"*\"]", None).await;
    let ca = server.folder.0.join("ca.pem").display().to_string();
    let lock = ["lock", "key", "--", "echo", "held"];
    let words = [&["--tls", "--cacert", &ca][..], &lock].concat();
    assert_eq!(
        run(rideau(&server, &words)).await,
        (Some(0), "held\n".into())
    );
    // A file of signers says enough.
    let words = [&["--cacert", &ca][..], &lock].concat();
    assert_eq!(
        run(rideau(&server, &words)).await,
        (Some(0), "held\n".into())
    );
    // So does the address, where the system trusts the signer.
    let place = format!("rediss://localhost:{}", server.port);
    let mut by_address = command(env!("CARGO_BIN_EXE_rideau"));
    by_address
        .env("RIDEAU_SERVER", &place)
        .env("SSL_CERT_FILE", &ca);
    by_address.args(lock);
    assert_eq!(run(by_address).await, (Some(0), "held\n".into()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_command_line_does_not_trust_every_signer() {
    let server = Server::start("[lock.\"*\"]", None).await;
    let other = server.folder.write("other.pem", &signer("others").pem());
    let other = other.display().to_string();
    let (code, said) = run(rideau(&server, &["--cacert", &other, "status"])).await;
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("there is no TLS with localhost:"), "{said}");
    assert!(said.contains("--cacert"), "{said}");
    let (code, said) = run(rideau(&server, &["--cert", &other, "status"])).await;
    assert_eq!(
        (code, said.contains("go together")),
        (Some(2), true),
        "{said}"
    );
    let unix = ["--server", "unix:/tmp/none", "--tls", "status"];
    let mut command = command(env!("CARGO_BIN_EXE_rideau"));
    command.args(unix);
    let (code, said) = run(command).await;
    assert_eq!(
        (code, said.contains("there is no TLS at")),
        (Some(2), true),
        "{said}"
    );
    let (code, said) = run(rideau(&server, &["--cacert", "/nonexistent", "status"])).await;
    assert_eq!(
        (code, said.contains("/nonexistent")),
        (Some(1), true),
        "{said}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_command_line_shows_its_own_certificate() {
    let clients = signer("clients");
    let server = Server::start(USERS, Some(&clients)).await;
    let [cert, key] = server.folder.papers("orders", &papers("orders", &clients));
    let [cert, key] = [cert, key].map(|path| path.display().to_string());
    let ca = server.folder.0.join("ca.pem").display().to_string();
    let lock = ["lock", "key", "--", "echo", "held"];
    let own = ["--cacert", &ca, "--cert", &cert, "--key", &key];
    let words = [&own[..], &lock].concat();
    assert_eq!(
        run(rideau(&server, &words)).await,
        (Some(0), "held\n".into())
    );
    let words = [&own[..2], &lock].concat();
    let (code, said) = run(rideau(&server, &words)).await;
    assert_eq!(code, Some(1), "without one it is not let in: {said}");
}

/// The same server with HTTP within TLS. Says where.
async fn http(server: &Server, client_ca: bool) -> SocketAddr {
    let folder = &server.folder.0;
    let acceptor = tls::acceptor(&Tls {
        cert: folder.join("server.pem"),
        key: folder.join("server.key"),
        client_ca: client_ca.then(|| folder.join("clients.pem")),
    });
    let mut admin = AdminListener::default();
    let free = "127.0.0.1:0".parse().unwrap();
    let address = admin.listen(free, Some(acceptor.unwrap())).await.unwrap();
    tokio::spawn(admin.serve(Arc::clone(&server.daemon)));
    address
}

fn curl(server: &Server, address: SocketAddr, words: &[&str], path: &str) -> Command {
    let mut command = command("curl");
    command.args([
        "-sS",
        "--max-time",
        "60",
        "-o",
        "/dev/null",
        "-w",
        "%{http_code}",
    ]);
    command.arg("--cacert").arg(server.folder.0.join("ca.pem"));
    command.args(words);
    command.arg(format!("https://localhost:{}{path}", address.port()));
    command
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_is_spoken_within_tls() {
    let server = Server::start("[lock.\"*\"]", None).await;
    let address = http(&server, false).await;
    let got = run(curl(&server, address, &[], "/api/v1/state")).await;
    assert_eq!(got, (Some(0), "200".into()));
    // A client that does not speak it is not answered, and others still are.
    let mut plain = command("curl");
    plain.args(["-sS", "--max-time", "60"]);
    plain.arg(format!("http://{address}/healthz"));
    let (code, said) = run(plain).await;
    assert_ne!(code, Some(0), "{said}");
    let got = run(curl(&server, address, &[], "/healthz")).await;
    assert_eq!(got, (Some(0), "200".into()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_says_who_asks_over_http() {
    let clients = signer("clients");
    let server = Server::start(USERS, Some(&clients)).await;
    let address = http(&server, true).await;
    for (name, status) in [("orders", "200"), ("nobody", "401")] {
        let [cert, key] = server.folder.papers(name, &papers(name, &clients));
        let [cert, key] = [cert, key].map(|path| path.display().to_string());
        let own = ["--cert", &cert, "--key", &key];
        let got = run(curl(&server, address, &own, "/api/v1/state")).await;
        assert_eq!(got, (Some(0), status.into()), "{name}");
    }
    let (code, said) = run(curl(&server, address, &[], "/healthz")).await;
    assert_ne!(code, Some(0), "without one nobody gets in: {said}");
}
