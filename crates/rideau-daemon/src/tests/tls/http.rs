//! HTTP within TLS, as curl speaks it.

use std::net::SocketAddr;
use std::process::{Command, Output};
use std::sync::Arc;

use crate::admin::AdminListener;
use crate::net::tls_files::SharedAcceptor;
use crate::tls;
use rideau_config::Tls;
use rideau_testing::certificates::{papers, signer};
use rideau_testing::command;

use crate::tests::tls::harness::{Server, USERS};

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
    let acceptor = SharedAcceptor::new(acceptor.unwrap());
    let address = admin.listen(free, Some(acceptor)).await.unwrap();
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
    // A client that does not speak it is not answered; others still are.
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
    assert_ne!(code, Some(0), "without one no client gets in: {said}");
}
