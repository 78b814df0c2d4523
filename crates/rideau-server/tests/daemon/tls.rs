//! The command line within TLS.

use std::fs;
use std::path::Path;
use std::process::Command;

use rideau_testing::certificates::{Identity, Signer, papers, signer};
use rideau_testing::{Scratch, command};

use crate::server::{Server, free_port, program};

/// A server within TLS, and the files of its certificates.
struct Secured {
    server: Server,
    port: u16,
    files: Scratch,
}

const LOCKS: &str = "[lock.\"*\"]\n";
/// The words that hold a lock for a moment.
const LOCK: [&str; 5] = ["lock", "key", "--", "echo", "held"];

impl Secured {
    /// One that wants certificates from clients if there is an authority of theirs.
    fn start(config: &str, clients: Option<&Signer>) -> Self {
        let files = Scratch::new();
        let signer = signer("servers");
        let [cert, key] = write(&files, "server", &papers("the server", &signer));
        fs::write(files.join("ca.pem"), signer.pem()).unwrap();
        let mut tls = format!("[tls]\ncert = {cert:?}\nkey = {key:?}\n");
        if let Some(clients) = clients {
            fs::write(files.join("clients.pem"), clients.pem()).unwrap();
            tls += &format!("client_ca = {:?}\n", files.join("clients.pem"));
        }
        let port = free_port();
        let listen = format!("tls_listen = [\"127.0.0.1:{port}\"]\n");
        Self {
            server: Server::with(&(listen + &tls + config)),
            port,
            files,
        }
    }

    fn file(&self, name: &str) -> String {
        self.files.join(name).display().to_string()
    }

    /// Run the program to its end, with these words.
    fn rideau(&self, words: &[&str]) -> (Option<i32>, String) {
        let place = format!("localhost:{}", self.port);
        let mut command = bare();
        command.args(["--server", &place]).args(words);
        said(command)
    }
}

/// The files of a certificate: itself and its key.
fn write(files: &Scratch, name: &str, papers: &Identity) -> [String; 2] {
    let files = [
        (files.join(&format!("{name}.pem")), papers.certificate()),
        (files.join(&format!("{name}.key")), papers.key()),
    ];
    files.map(|(path, text)| {
        fs::write(&path, text).unwrap();
        Path::display(&path).to_string()
    })
}

/// The program, that knows of no server.
fn bare() -> Command {
    let mut command = command(program());
    for name in ["RIDEAU_SERVER", "RIDEAU_PASSWORD", "SSL_CERT_FILE"] {
        command.env_remove(name);
    }
    command
}

fn said(mut command: Command) -> (Option<i32>, String) {
    let output = command.output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    (output.status.code(), said)
}

#[test]
fn the_command_line_speaks_tls_when_told_to() {
    let server = Secured::start(LOCKS, None);
    let held = (Some(0), "held\n".to_owned());
    let ca = server.file("ca.pem");
    let words = [&["--tls", "--cacert", &ca][..], &LOCK].concat();
    assert_eq!(server.rideau(&words), held);
    // A file of authorities says enough.
    let words = [&["--cacert", &ca][..], &LOCK].concat();
    assert_eq!(server.rideau(&words), held);
    // So does the address, where the system trusts the authority.
    let mut by_address = bare();
    let place = format!("rediss://localhost:{}", server.port);
    by_address.env("RIDEAU_SERVER", place);
    by_address.env("SSL_CERT_FILE", &ca).args(LOCK);
    assert_eq!(said(by_address), held);
    server.server.stop();
}

#[test]
fn the_command_line_does_not_trust_every_authority() {
    let server = Secured::start(LOCKS, None);
    fs::write(server.files.join("other.pem"), signer("others").pem()).unwrap();
    let other = server.file("other.pem");
    let (code, said_of) = server.rideau(&["--cacert", &other, "status"]);
    assert_eq!(code, Some(1), "{said_of}");
    assert!(
        said_of.contains("there is no TLS with localhost:"),
        "{said_of}"
    );
    assert!(said_of.contains("--cacert"), "{said_of}");
    for (words, code, part) in [
        (&["--cert", &other, "status"][..], 2, "go together"),
        (&["--cacert", "/nonexistent", "status"], 1, "/nonexistent"),
    ] {
        let (ended, said_of) = server.rideau(words);
        assert_eq!(
            (ended, said_of.contains(part)),
            (Some(code), true),
            "{said_of}"
        );
    }
    let mut unix = bare();
    unix.args(["--server", "unix:/tmp/none", "--tls", "status"]);
    let (code, said_of) = said(unix);
    let part = "there is no TLS at";
    assert_eq!((code, said_of.contains(part)), (Some(2), true), "{said_of}");
}

#[test]
fn the_command_line_shows_its_own_certificate() {
    let clients = signer("clients");
    let users = "[user.orders]\npassword_file = \"{secret}\"\nallow = [\"@all\"]\n";
    let server = Secured::start(&(users.to_owned() + LOCKS), Some(&clients));
    let [cert, key] = write(&server.files, "orders", &papers("orders", &clients));
    let ca = server.file("ca.pem");
    let own = ["--cacert", &ca, "--cert", &cert, "--key", &key];
    let words = [&own[..], &LOCK].concat();
    assert_eq!(server.rideau(&words), (Some(0), "held\n".into()));
    let (code, said_of) = server.rideau(&[&own[..2], &LOCK].concat());
    assert_eq!(code, Some(1), "without one it is not let in: {said_of}");
}
