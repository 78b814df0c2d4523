//! The front within TLS: certificates by name, renewed while the server runs.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};

use rideau_testing::certificates::{Identity, papers, papers_for, signer};
use rideau_testing::command;

use crate::harness::{Harness, folder, until};

const APP: &str = "[app.shop]\nexec = APP\nmin = 1\n";

/// A client with these certificates: what it got, or why not.
struct Curl<'a> {
    port: u16,
    words: &'a [&'a str],
    ca: &'a Path,
}

impl Curl<'_> {
    fn get(&self, host: &str) -> Result<String, String> {
        let at = format!("{host}:{}", self.port);
        let done = command("curl")
            .args(["--silent", "--show-error", "--max-time", "20"])
            .args(["--resolve", &format!("{at}:127.0.0.1")])
            .args(["--write-out", "%{http_code}", "--output", "/dev/null"])
            .arg("--cacert")
            .arg(self.ca)
            .args(self.words)
            .arg(format!("https://{at}/"))
            .output()
            .unwrap();
        let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match done.status.success() {
            true => Ok(said(&done.stdout)),
            false => Err(said(&done.stderr)),
        }
    }
}

fn free_port() -> u16 {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    free.local_addr().unwrap().port()
}

/// Write a certificate and its key, each as a whole.
fn write(folder: &Path, name: &str, papers: &Identity) {
    for (kind, text) in [("key", papers.key()), ("pem", papers.certificate())] {
        let path = folder.join(format!("{name}.{kind}"));
        let new = path.with_extension("new");
        fs::write(&new, text).unwrap();
        fs::rename(new, path).unwrap();
    }
}

fn ca(folder: &Path, name: &str, pem: &str) -> PathBuf {
    let path = folder.join(format!("{name}-ca.pem"));
    fs::write(&path, pem).unwrap();
    path
}

fn certificate(name: &str, more: &str) -> String {
    format!(
        "[certificate.{name}]\ncert = \"FOLDER/{name}.pem\"\nkey = \"FOLDER/{name}.key\"\n{more}\n"
    )
}

#[test]
fn a_client_is_shown_the_certificate_of_the_name_it_asks_for() {
    let folder = folder();
    let (one, two) = (signer("one"), signer("two"));
    write(&folder, "exact", &papers_for("exact", &["a.example"], &one));
    write(
        &folder,
        "wild",
        &papers_for("wild", &["*.shops.example"], &two),
    );
    let port = free_port();
    let apps = certificate("exact", "") + &certificate("wild", "") + APP;
    let front = format!("tls_listen = [\"127.0.0.1:{port}\"]\n");
    let harness = Harness::with_front(&folder, &front, &apps);
    let [one, two] = [("one", one), ("two", two)].map(|(name, it)| ca(&folder, name, &it.pem()));
    let get = |ca: &Path, host: &str| {
        let words = &[];
        Curl { port, words, ca }.get(host)
    };
    assert_eq!(get(&one, "a.example").as_deref(), Ok("200"));
    assert_eq!(get(&two, "b.shops.example").as_deref(), Ok("200"));
    assert!(get(&two, "a.example").is_err(), "it has its own");
    let unknown = get(&two, "c.b.shops.example").unwrap_err();
    assert!(unknown.contains("unrecognized name"), "{unknown}");
    let nameless = get(&two, "127.0.0.1").unwrap_err();
    assert!(nameless.contains("unrecognized name"), "{nameless}");
    harness.end();
}

#[test]
fn a_renewed_certificate_counts_and_a_bad_one_does_not() {
    let folder = folder();
    let (old, new) = (signer("old"), signer("new"));
    write(&folder, "shop", &papers("shop", &old));
    let port = free_port();
    let front = format!("tls_listen = [\"127.0.0.1:{port}\"]\n");
    let harness = Harness::with_front(&folder, &front, &(certificate("shop", "") + APP));
    let [old, new_ca] =
        [("old", &old), ("new", &new)].map(|(name, it)| ca(&folder, name, &it.pem()));
    let get = |ca: &Path| {
        let words = &[];
        Curl { port, words, ca }.get("localhost")
    };
    assert_eq!(get(&old).as_deref(), Ok("200"));
    let renewed = papers("shop", &new);
    write(&folder, "shop", &renewed);
    until("the new one is shown", || get(&new_ca).is_ok());
    // A key that does not belong to it.
    fs::write(folder.join("shop.key"), papers("shop", &new).key()).unwrap();
    until("it is said", || harness.log().contains("cannot be used"));
    assert_eq!(get(&new_ca).as_deref(), Ok("200"), "the old pair goes on");
    fs::write(folder.join("shop.pem"), "-----BEGIN CERT").unwrap();
    write(&folder, "shop", &renewed);
    until("they are good again", || {
        harness.log().matches("were read again").count() >= 2
    });
    assert_eq!(get(&new_ca).as_deref(), Ok("200"));
    harness.end();
}

#[test]
fn clients_need_a_certificate_only_where_theirs_is_asked_for() {
    let folder = folder();
    let (ours, customers, operators) = (signer("ours"), signer("customers"), signer("operators"));
    write(
        &folder,
        "open",
        &papers_for("open", &["open.example"], &ours),
    );
    write(
        &folder,
        "closed",
        &papers_for("closed", &["closed.example"], &ours),
    );
    write(&folder, "server", &papers("server", &ours));
    write(&folder, "anna", &papers("anna", &customers));
    ca(&folder, "customers", &customers.pem());
    ca(&folder, "operators", &operators.pem());
    let port = free_port();
    let front = format!("tls_listen = [\"127.0.0.1:{port}\"]\n");
    // Those of the Redis protocol are not those of the front.
    let tls = "[tls]\ncert = \"FOLDER/server.pem\"\nkey = \"FOLDER/server.key\"\n\
               client_ca = \"FOLDER/operators-ca.pem\"\n";
    let asks = "client_ca = \"FOLDER/customers-ca.pem\"";
    let apps = [
        tls,
        &certificate("open", ""),
        &certificate("closed", asks),
        APP,
    ]
    .concat();
    let harness = Harness::with_front(&folder, &front, &apps);
    let ca = ca(&folder, "ours", &ours.pem());
    let get = |words: &[&str], host: &str| {
        let ca = &ca;
        Curl { port, words, ca }.get(host)
    };
    let of = |kind: &str| folder.join(format!("anna.{kind}")).display().to_string();
    let (cert, key) = (of("pem"), of("key"));
    let anna = ["--cert", &cert, "--key", &key];
    assert_eq!(get(&[], "open.example").as_deref(), Ok("200"));
    assert!(get(&[], "closed.example").is_err());
    assert_eq!(get(&anna, "closed.example").as_deref(), Ok("200"));
    // Not by way of another name, over either HTTP.
    for version in ["--http1.1", "--http2"] {
        let around = [version, "--header", "Host: closed.example"];
        assert_eq!(
            get(&around, "open.example").as_deref(),
            Ok("421"),
            "{version}"
        );
    }
    harness.end();
}
