//! Certificates that the front orders, from Pebble.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use rcgen::{CertificateParams, KeyPair};
use rideau_testing::certificates::{Signer, signer};
use rideau_testing::command;

use crate::authority::{Authority, free_port};
use crate::harness::{Answer, Harness, ask, folder, until};

const HOST: &str = "shop.example";
const APP: &str = r#"[app.shop]
exec = APP
min = 1
hosts = ["shop.example", "*.shop.example"]
trial = "none"
"#;
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Write the config of a server whose certificates are from the authority.
fn write(folder: &Path, authority: &Authority, more: &str) {
    let (http, tls) = authority.looks_at;
    let front = format!(
        "listen = [\"127.0.0.1:{http}\"]\ntls_listen = [\"127.0.0.1:{tls}\"]\n{}",
        authority.keys(more)
    );
    Harness::write(folder, "", &format!("{APP}\n"));
    let file = folder.join("rideau.toml");
    let text = fs::read_to_string(&file).unwrap();
    let front = front.replace("FOLDER", &folder.display().to_string());
    let usual = "[front]\nlisten = [\"127.0.0.1:0\"]\n";
    assert!(text.contains(usual));
    fs::write(file, text.replace(usual, &format!("[front]\n{front}"))).unwrap();
}

/// A client that believes these: the certificate's issuer and the status that it got.
fn get(authority: &Authority, roots: &Path, words: &[&str], host: &str) -> Result<String, String> {
    let at = format!("{host}:{}", authority.looks_at.1);
    let done = command("curl")
        .args(["--silent", "--show-error", "--max-time", "20"])
        .args(["--resolve", &format!("{at}:127.0.0.1"), "--cacert"])
        .arg(roots)
        .args([
            "--write-out",
            "%{http_version} %{http_code}",
            "--output",
            "/dev/null",
        ])
        .args(words)
        .arg(format!("https://{at}/"))
        .output()
        .unwrap();
    match done.status.success() {
        true => Ok(String::from_utf8(done.stdout).unwrap()),
        false => Err(String::from_utf8_lossy(&done.stderr).into_owned()),
    }
}

fn roots(folder: &Path, all: &[String]) -> PathBuf {
    let path = folder.join("roots.pem");
    fs::write(&path, all.concat()).unwrap();
    path
}

/// Keep a certificate for the server that has so long to go.
fn keep(folder: &Path, signer: &Signer, left: Duration) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec![HOST.to_owned()]).unwrap();
    let now = SystemTime::now();
    params.not_before = (now - 90 * DAY).into();
    params.not_after = (now + left).into();
    let certificate = params.signed_by(&key, signer).unwrap();
    fs::create_dir_all(folder).unwrap();
    fs::write(folder.join("cert.pem"), certificate.pem()).unwrap();
    fs::write(folder.join("key.pem"), key.serialize_pem()).unwrap();
}

fn shown(harness: &Harness) -> serde_json::Value {
    let said = harness.cli(&["--json", "status", "certificates"]);
    serde_json::from_str(&said).unwrap()
}

#[test]
fn each_challenge_brings_a_certificate_and_a_restart_needs_none() {
    let folder = folder();
    let authority = Authority::start(&folder);
    let root = roots(&folder, &[authority.root()]);
    let dns = authority.dns_command();
    for (at, challenge) in ["http-01", "tls-alpn-01", "dns-01"].into_iter().enumerate() {
        let _ = fs::remove_dir_all(folder.join("acme"));
        let more = match challenge {
            "dns-01" => format!("hosts = [\"*.shop.example\"]\ndns_command = [{dns:?}]\n"),
            _ => format!("challenges = [\"{challenge}\"]\ncontact = \"ops@shop.example\"\n"),
        };
        let host = if challenge == "dns-01" {
            "eu.shop.example"
        } else {
            HOST
        };
        write(&folder, &authority, &more);
        let mut harness = Harness::start(&folder);
        let get = |words: &[&str]| get(&authority, &root, words, host);
        until("there is a certificate", || get(&[]).is_ok());
        assert_eq!(get(&["--http1.1"]).as_deref(), Ok("1.1 200"));
        assert_eq!(get(&["--http2"]).as_deref(), Ok("2 200"));
        assert_eq!(authority.orders(), at + 1, "{}", authority.log());
        let row = &shown(&harness)[0];
        assert_eq!(row["state"], "good", "{row}");
        assert_eq!(row["source"], "acme");
        let named = format!(
            "rideau_certificate_expires_seconds{{name={}}} ",
            row["name"]
        );
        let metrics = harness.admin("GET", "/metrics", "").body;
        let mut lines = metrics.lines();
        let seconds = lines.find_map(|line| line.strip_prefix(&named)).unwrap();
        assert!(seconds.parse::<f64>().unwrap() > 3600.0, "{seconds}");
        if challenge == "http-01" {
            only_we_may_read(&authority.store());
            assert!(harness.stop().success());
            harness = Harness::start(&folder);
            assert_eq!(get(&[]).as_deref(), Ok("2 200"), "at once");
            until("it is looked at", || shown(&harness)[0]["state"] == "good");
            assert_eq!((authority.orders(), authority.accounts()), (1, 1));
        }
        harness.stop();
    }
    let records = fs::read_to_string(folder.join("dns.log")).unwrap();
    let record = "_acme-challenge.shop.example";
    assert_eq!(records, format!("set {record}\nclear {record}\n"));
}

fn only_we_may_read(store: &Path) {
    let mut folders = vec![store.to_owned()];
    while let Some(folder) = folders.pop() {
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&folder), 0o700, "{folder:?}");
        for entry in fs::read_dir(&folder).unwrap().flatten() {
            match entry.file_type().unwrap().is_dir() {
                true => folders.push(entry.path()),
                false => assert_eq!(mode(&entry.path()), 0o600, "{entry:?}"),
            }
        }
    }
}

#[test]
fn a_token_of_others_is_the_apps_and_a_host_with_a_certificate_is_led_to_it() {
    let folder = folder();
    let authority = Authority::start(&folder);
    // Clients of no network may come, but the authority may.
    write(&folder, &authority, "");
    let file = folder.join("rideau.toml");
    let text = fs::read_to_string(&file).unwrap();
    let denied = text.replace("[front]\n", "[front]\ndeny = [\"0.0.0.0/0\"]\n");
    fs::write(&file, denied).unwrap();
    let harness = Harness::start(&folder);
    until("there is a certificate", || {
        shown(&harness)[0]["state"] == "good"
    });
    assert_eq!(harness.ask("GET", HOST, "/", b"").unwrap().status, 403);
    fs::write(&file, text).unwrap();
    harness.cli(&["reload"]);
    let foreign = "/.well-known/acme-challenge/foreign";
    let path = "/a/b?c=d";
    let led = |path: &str| {
        let answer = harness.ask("GET", HOST, path, b"").unwrap();
        let location = answer.field("location").map(str::to_owned);
        (answer.status, location)
    };
    let port = authority.looks_at.1;
    let there = |path: &str| Some(format!("https://{HOST}:{port}{path}"));
    assert_eq!(led(path), (308, there(path)));
    assert_eq!(led(foreign), (308, there(foreign)));
    // A host without a certificate is served where it is.
    let text = fs::read_to_string(&file).unwrap();
    let other = text.replace(
        "hosts = [\"shop.example\", \"*.shop.example\"]",
        "hosts = [\"other.localhost\"]",
    );
    fs::write(&file, other).unwrap();
    harness.cli(&["reload"]);
    let at = harness.front;
    let answer: Answer = ask(at, "GET", "other.localhost", foreign, b"").unwrap();
    assert_eq!(answer.status, 200, "{}", answer.head);
    assert!(answer.body.contains(foreign), "{}", answer.body);
    harness.end();
}

#[test]
fn an_authority_that_refuses_is_asked_three_times_in_an_hour_and_the_old_certificate_stays() {
    let folder = folder();
    let mut authority = Authority::start(&folder);
    // It looks where nothing is.
    authority.restart((free_port(), free_port()));
    let signer = signer("the one before");
    let root = roots(&folder, &[signer.pem()]);
    keep(&authority.store().join(HOST), &signer, 2 * DAY);
    write(&folder, &authority, "");
    let harness = Harness::start(&folder);
    assert_eq!(get(&authority, &root, &[], HOST).as_deref(), Ok("2 200"));
    let explained = || harness.cli(&["explain", &format!("certificate:{HOST}")]);
    until("both challenges failed", || {
        shown(&harness)[0]["failures"] == 2
    });
    let text = explained();
    assert!(text.contains("The next order is made in"), "{text}");
    assert!(text.contains("The authority looked by"), "{text}");
    assert_eq!(authority.orders(), 2, "{}", authority.log());
    for _ in 0..10 {
        harness.cli(&["reload"]);
        until("it is known", || {
            let state = shown(&harness)[0]["state"].clone();
            state == "failing"
        });
    }
    until("three is the most", || {
        explained().contains("Three orders have failed within an hour")
    });
    assert_eq!(authority.orders(), 3, "{}", authority.log());
    assert_eq!(get(&authority, &root, &[], HOST).as_deref(), Ok("2 200"));
    assert!(harness.log().contains("no certificate for shop.example"));
    harness.end();
}

#[test]
fn a_renewal_costs_no_request_and_an_authority_that_forgot_us_gets_a_new_account() {
    let folder = folder();
    let mut authority = Authority::start(&folder);
    write(&folder, &authority, "");
    let mut harness = Harness::start(&folder);
    let root = roots(&folder, &[authority.root()]);
    until("there is a certificate", || {
        get(&authority, &root, &[], HOST).is_ok()
    });
    harness.stop();
    authority.restart(authority.looks_at);
    let signer = signer("the one before");
    let both = roots(&folder, &[authority.root(), signer.pem()]);
    keep(&authority.store().join(HOST), &signer, 20 * DAY);
    let new = folder.join("new.pem");
    fs::write(&new, authority.root()).unwrap();
    let harness = Harness::start(&folder);
    let is_over = AtomicBool::new(false);
    let asked = AtomicUsize::new(0);
    thread::scope(|scope| {
        let clients = [0, 1].map(|_| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let got = get(&authority, &both, &[], HOST);
                    assert_eq!(got.as_deref(), Ok("2 200"));
                    asked.fetch_add(1, Ordering::Relaxed);
                }
            })
        });
        until("it is renewed", || {
            clients.iter().any(|client| client.is_finished())
                || get(&authority, &new, &[], HOST).is_ok()
        });
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(asked.into_inner() > 0);
    assert_eq!((authority.orders(), authority.accounts()), (1, 1));
    harness.end();
}

#[test]
fn a_killed_server_has_one_whole_pair() {
    let folder = folder();
    let authority = Authority::start(&folder);
    let (old, new) = (signer("the one before"), signer("the one after"));
    let store = authority.store().join(HOST);
    keep(&store, &old, 80 * DAY);
    // Killed after the key was written,
    keep(&folder.join("next"), &new, 80 * DAY);
    let next = |name: &str| folder.join("next").join(name);
    fs::copy(next("key.pem"), store.join("key.new.pem")).unwrap();
    write(&folder, &authority, "");
    let mut harness = Harness::start(&folder);
    let [old, new] = [("old", old), ("new", new)].map(|(name, signer)| {
        let path = folder.join(name);
        fs::write(&path, signer.pem()).unwrap();
        path
    });
    assert_eq!(get(&authority, &old, &[], HOST).as_deref(), Ok("2 200"));
    until("what is left is gone", || {
        !store.join("key.new.pem").exists()
    });
    harness.kill();
    // and after the certificate was, and the key was put in its place.
    fs::copy(next("key.pem"), store.join("key.pem")).unwrap();
    fs::copy(next("cert.pem"), store.join("cert.new.pem")).unwrap();
    let mut harness = Harness::start(&folder);
    assert_eq!(get(&authority, &new, &[], HOST).as_deref(), Ok("2 200"));
    until("it is in its place", || {
        !store.join("cert.new.pem").exists()
    });
    assert_eq!(authority.orders(), 0);
    // Killed while it orders.
    harness.kill();
    fs::remove_dir_all(&store).unwrap();
    let mut harness = Harness::start(&folder);
    until("it orders", || authority.orders() == 1);
    harness.kill();
    let harness = Harness::start(&folder);
    let root = roots(&folder, &[authority.root()]);
    until("there is a certificate", || {
        get(&authority, &root, &[], HOST).is_ok()
    });
    harness.end();
}

#[test]
fn a_host_that_leads_elsewhere_is_not_ordered_for() {
    let folder = folder();
    let authority = Authority::start(&folder);
    write(&folder, &authority, "hosts = [\"localhost\"]\n");
    let file = folder.join("rideau.toml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("self_check = false\n", "")).unwrap();
    let harness = Harness::start(&folder);
    let explained = || harness.cli(&["explain", "certificate:localhost"]);
    // Before the first look nothing is known of it.
    let says = |harness: &Harness, what: &str| {
        let said = harness.try_cli(&["explain", "certificate:localhost"]);
        said.is_ok_and(|said| said.contains(what))
    };
    until("it is said", || {
        says(&harness, "Nothing is ordered until it finds itself")
    });
    let text = explained();
    assert!(
        text.contains("does not find itself at localhost, port "),
        "{text}"
    );
    assert_eq!(shown(&harness)[0]["state"], "missing");
    // A second server leaves the folder alone.
    let second = folder.join("second");
    fs::create_dir_all(second.join("tmp")).unwrap();
    let text = fs::read_to_string(&file).unwrap();
    let (http, tls) = authority.looks_at;
    let text = text
        .replace(&format!("127.0.0.1:{http}"), "127.0.0.1:0")
        .replace(&format!("127.0.0.1:{tls}"), "127.0.0.1:0")
        .replace(
            &format!("{}/run", folder.display()),
            &format!("{}/run", second.display()),
        );
    fs::write(second.join("rideau.toml"), text).unwrap();
    let other = Harness::start(&second);
    until("the second one says why", || {
        says(&other, "another server has it")
    });
    other.end();
    assert_eq!(authority.orders(), 0);
    harness.end();
}
