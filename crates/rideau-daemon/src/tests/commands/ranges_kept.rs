//! What is kept when the server ends, and where.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rideau_resp::Value;

use crate::tests::commands::owners::{login, users};
use crate::tests::commands::peer::{Peer, text};
use crate::tests::commands::server::Server;

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let name = format!("rideau-kept-{}-{serial}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn store(&self) -> PathBuf {
        self.0.join("store")
    }

    fn config(&self, rest: &str) -> String {
        format!("[store]\npath = \"{}\"\n\n{rest}", self.store().display())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const OFFICE: &str = "[range.office]\nvalues = [\"10.20.0.0/24\"]\n";
const MEMORY: &str = "[range.quick]\nvalues = [\"1-9\"]\nclass = \"memory\"\nstart = \"free\"\n";

fn reserve(peer: &mut Peer, words: &[&str]) -> Vec<String> {
    let Value::Array(parts) = peer.ask(words) else {
        panic!("no value");
    };
    let parts: Vec<_> = parts.iter().map(text).collect();
    assert_eq!(parts[0], "go");
    parts
}

/// End a server in order.
fn stop(mut server: Server) {
    let runtime = server.runtime.take().unwrap();
    let daemon = std::sync::Arc::clone(&server.daemon);
    runtime.block_on(async move { crate::serve::drain(&daemon).await });
    runtime.shutdown_timeout(std::time::Duration::from_secs(20));
}

#[test]
fn a_start_restores_what_was_acknowledged_and_tickets_count_on() {
    let folder = Folder::new();
    let config = folder.config(&format!("{OFFICE}{MEMORY}"));
    let server = Server::start(&config);
    let mut peer = server.connect();
    let words = [
        "RESERVE", "office", "TTL", "3600000", "KEY", "mac", "DATA", "x",
    ];
    let kept = reserve(&mut peer, &words);
    let gone = reserve(&mut peer, &["RESERVE", "office", "TTL", "3600000"]);
    assert_eq!(peer.say(&format!("RELEASE {}", gone[2])), "+OK");
    let quick = reserve(&mut peer, &["RESERVE", "quick"]);
    drop(peer);
    stop(server);

    let server = Server::start(&config);
    let mut peer = server.connect();
    let seen = peer.say("LOOKUP KEY mac");
    let wanted = "[[10.20.0.0, [mac], [data, x], ";
    assert!(seen.starts_with(wanted), "{seen}");
    assert!(
        seen.contains(&format!(", reserved, rideau, {}, office, ", kept[6])),
        "{seen}"
    );
    assert!(peer.say("LOOKUP 10.20.0.1").contains(", free, "));
    assert!(
        peer.say("LOOKUP 1").contains(", free, "),
        "nothing of {quick:?} is known"
    );
    let next = reserve(&mut peer, &["RESERVE", "office"]);
    assert_eq!(next[1], "10.20.0.1");
    let fence = |parts: &[String]| parts[6].parse::<u64>().unwrap();
    assert!(fence(&next) > fence(&gone), "fences grow on");
    assert_eq!(peer.say(&format!("RELEASE {}", kept[2])), "+OK");
}

#[test]
fn whose_a_value_is_counts_after_a_start() {
    let folder = Folder::new();
    let users = users(&[
        ("anna", "\"@range\"", "\"*\""),
        ("bert", "\"@range\"", "\"*\""),
    ]);
    let config = folder.config(&format!("{users}{OFFICE}"));
    let server = Server::start(&config);
    let mut anna = login(&server, "anna");
    let kept = reserve(&mut anna, &["RESERVE", "office", "TTL", "3600000"]);
    let other = reserve(&mut anna, &["RESERVE", "office", "TTL", "3600000"]);
    let written = format!("WRITE {} FENCE {} DATA x", other[1], other[6]);
    assert!(anna.say(&written).starts_with("[ok, "));
    drop(anna);
    stop(server);

    let server = Server::start(&config);
    let (mut anna, mut bert) = (login(&server, "anna"), login(&server, "bert"));
    for held in [kept, other] {
        let release = format!("RELEASE {} FENCE {}", held[1], held[6]);
        let said = bert.say(&release);
        assert!(said.starts_with("-STALE "), "{said}");
        assert!(!bert.say(&format!("LOOKUP {}", held[1])).contains(&held[6]));
        assert!(anna.say(&format!("LOOKUP {}", held[1])).contains(&held[6]));
        assert_eq!(anna.say(&release), "+OK");
    }
}

#[test]
fn no_folder_is_made_before_something_is_kept() {
    let folder = Folder::new();
    let server = Server::start(&folder.config(MEMORY));
    let mut peer = server.connect();
    let quick = reserve(&mut peer, &["RESERVE", "quick", "TTL", "60000"]);
    assert!(!folder.store().exists());
    let keys = "values = [\"10.20.0.0/24\"]";
    assert_eq!(text(&peer.ask(&["RANGE.ADD", "office", keys])), "+OK");
    assert!(folder.store().join("tickets.key").exists());
    let kept = reserve(&mut peer, &["RESERVE", "office", "TTL", "60000"]);
    assert!(peer.say("INFO ranges").contains("range_store:/"));
    assert_eq!(peer.say(&format!("RELEASE {}", quick[2])), "+OK");
    drop(peer);
    stop(server);
    let server = Server::start(&folder.config(&format!("{MEMORY}{OFFICE}")));
    let mut peer = server.connect();
    assert_eq!(peer.say(&format!("RELEASE {}", kept[2])), "+OK");
}

#[test]
fn a_folder_that_was_not_read_is_not_written_to() {
    let folder = Folder::new();
    let server = Server::start(&folder.config(OFFICE));
    reserve(
        &mut server.connect(),
        &["RESERVE", "office", "TTL", "60000"],
    );
    stop(server);
    let server = Server::start(&folder.config(MEMORY));
    let mut peer = server.connect();
    let keys = "values = [\"10.20.0.0/24\"]";
    let said = text(&peer.ask(&["RANGE.ADD", "office", keys]));
    assert!(
        said.contains("start the server again with this config"),
        "{said}"
    );
    assert!(peer.say("RESERVE office").starts_with("-NOSUCH range"));
}

#[test]
fn two_servers_do_not_share_a_folder() {
    let folder = Folder::new();
    let config = folder.config(OFFICE);
    let _server = Server::start(&config);
    let other = rideau_config::Config::parse(&config, "test", &|_| None).unwrap();
    let Err(why) = crate::Daemon::new(other, crate::COMMAND_NAMES) else {
        panic!("both write");
    };
    assert!(why.to_string().contains("is open already"), "{why}");
    assert!(is_private(&folder.store().join("tickets.key")));
}

fn is_private(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(file).unwrap().permissions().mode() & 0o077 == 0
}
