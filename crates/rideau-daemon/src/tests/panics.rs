//! What a panic costs: one command, and no holder.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rideau_apps::IoThreads;
use rideau_config::{Config, Listen};
use rideau_process::panics;
use rideau_testing::PanicLog;

use crate::serve::{self, Listener};
use crate::state::daemon::Daemon;

/// Nothing takes longer, unless it hangs.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) struct Wire(BufReader<TcpStream>);

impl Wire {
    pub(super) fn send(&mut self, line: &str) {
        write!(self.0.get_mut(), "{line}\r\n").expect("the server reads");
    }

    /// The first line of an answer.
    pub(super) fn ask(&mut self, line: &str) -> String {
        self.send(line);
        self.line()
    }

    /// The elements of an answer.
    pub(super) fn array(&mut self, line: &str) -> Vec<String> {
        let head = self.ask(line);
        let len: usize = head[1..].parse().expect("an array");
        let mut element = || {
            let line = self.line();
            match line.strip_prefix('$') {
                Some("-1") => "nil".into(),
                Some(_) => self.line(),
                None => line,
            }
        };
        (0..len).map(|_| element()).collect()
    }

    pub(super) fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("the server answers");
        line.trim_end().to_owned()
    }
}

/// A server of its own, and what connects to it.
pub(super) struct Place {
    pub(super) daemon: Arc<Daemon>,
    io_threads: Arc<IoThreads>,
    port: u16,
}

impl Place {
    pub(super) async fn new(more: &str) -> Self {
        let text = format!("{more}\n[lock.\"*\"]\nqueue = {{ kind = \"never\" }}\n");
        let config = Config::parse(&text, "test.toml", &|_| None);
        let daemon = Daemon::new(
            config.expect("it is a config"),
            crate::redis::commands::NAMES,
        )
        .expect("it is sound");
        let listen = Listen::Tcp(([127, 0, 0, 1], 0).into());
        let listener = Listener::bind(&listen, 0).await.expect("a port is free");
        let port = listener.port().expect("it is TCP");
        let io_threads = Arc::new(IoThreads::start(Some(1)).expect("there are threads"));
        tokio::spawn(listener.serve(Arc::clone(&daemon), Arc::clone(&io_threads)));
        Self {
            daemon,
            io_threads,
            port,
        }
    }

    pub(super) fn connect(&self) -> Wire {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).expect("it listens");
        let limited = stream.set_read_timeout(Some(PATIENCE));
        limited.expect("it is a socket");
        Wire(BufReader::new(stream))
    }

    /// Wait until no connection is remembered.
    async fn forgets_all(&self) {
        until("connections are never forgotten", || {
            self.daemon.clients.is_empty()
        })
        .await;
    }
}

pub(super) async fn until(or: &str, is_so: impl Fn() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < until, "{or}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_costs_one_command_and_no_holder() {
    let place = Place::new("").await;
    for when in ["NOW", "LATER", "AFTER"] {
        let (mut holder, mut other) = (place.connect(), place.connect());
        assert_eq!(holder.array(&format!("LOCK {when}"))[0], "go");
        let answer = holder.ask(&format!("TEST.PANIC {when}"));
        assert!(
            answer.starts_with("-ERR internal error "),
            "{when}: {answer}"
        );
        assert_eq!(holder.ask("PING"), "+PONG", "{when}");
        // It still holds what it held, and no longer than it is there.
        assert_eq!(other.array(&format!("LOCK {when}"))[0], "full");
        drop(holder);
        assert_eq!(other.array(&format!("LOCK {when} WAIT 30000"))[0], "go");
        drop(other);
    }
    place.forgets_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_behind_multi_is_one_answer_of_all() {
    let place = Place::new("").await;
    let mut wire = place.connect();
    assert_eq!(wire.ask("MULTI"), "+OK");
    for line in [
        "TEST.PANIC NOW",
        "TEST.PANIC LATER",
        "TEST.PANIC AFTER",
        "PING",
    ] {
        assert_eq!(wire.ask(line), "+QUEUED");
    }
    assert_eq!(wire.ask("EXEC"), "*4");
    for _ in 0..3 {
        let answer = wire.line();
        assert!(answer.starts_with("-ERR internal error "), "{answer}");
    }
    assert_eq!(wire.line(), "+PONG");
    assert_eq!(wire.ask("PING"), "+PONG");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_wants_no_answer_is_told_of_no_panic() {
    let place = Place::new("").await;
    let mut wire = place.connect();
    for when in ["NOW", "LATER", "AFTER"] {
        wire.send("CLIENT REPLY SKIP");
        wire.send(&format!("TEST.PANIC {when}"));
        assert_eq!(wire.ask("ECHO skipped"), "$7", "{when}");
        assert_eq!(wire.line(), "skipped");
        wire.send("CLIENT REPLY OFF");
        wire.send(&format!("TEST.PANIC {when}"));
        assert_eq!(wire.ask("CLIENT REPLY ON"), "+OK", "{when}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_was_to_come_later_says_that_the_server_failed() {
    let place = Place::new("").await;
    let mut wire = place.connect();
    let begun = wire.array("TEST.PANIC ASYNC");
    assert_eq!(begun[0], "await");
    let answer = wire.array(&format!("AWAIT {} 30000", begun[1]));
    assert_eq!(answer[0], "cancelled");
    assert!(answer[2].starts_with("internal error "), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_in_a_manager_leaves_no_member_behind() {
    let pool = |name: &str| {
        format!(
            "[pool.{name}]\nmember = {{ list = [\"a\", \"b\"] }}\nmax = 1\n\
             on_error = \"replace\"\nbackoff_first = \"1ms\"\n"
        )
    };
    let names = ["start", "lost", "is_broken", "stop"].map(|name| format!("panics-in-{name}"));
    let place = Place::new(&names.each_ref().map(|name| pool(name)).concat()).await;
    let mut wire = place.connect();
    let members = |name: &str| {
        let catalog = place.daemon.catalog.load();
        let stats = catalog.pools[name].pool.stats();
        (stats.members, stats.starts_failed)
    };
    for name in &names[..3] {
        let answer = wire.array(&format!("TAKE {name} WAIT 50"));
        assert_ne!(answer[0], "go", "{name}: {answer:?}");
        until("it starts for ever", || members(name).0.starting == 0).await;
        assert_eq!(members(name).0.held, 0, "{name}");
    }
    for name in &names[..2] {
        assert!(members(name).1 > 0, "{name}: it is no failed start");
    }
    // A stop that panics leaves room for the next.
    let first = wire.array("TAKE panics-in-stop");
    assert_eq!((first[0].as_str(), first[2].as_str()), ("go", "a"));
    assert_eq!(wire.ask(&format!("RELEASE {} FAIL", first[1])), "+OK");
    let next = wire.array("TAKE panics-in-stop WAIT 30000");
    assert_eq!((next[0].as_str(), next[2].as_str()), ("go", "b"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_ends_after_a_panic() {
    let place = Place::new("[server]\ndrain = \"1ms\"\n").await;
    let mut wires = ["NOW", "LATER", "AFTER"].map(|when| (when, place.connect()));
    for (when, wire) in &mut wires {
        assert_eq!(wire.array(&format!("LOCK {when}"))[0], "go");
        let answer = wire.ask(&format!("TEST.PANIC {when}"));
        assert!(answer.starts_with("-ERR internal error "), "{answer}");
    }
    let drained = tokio::time::timeout(PATIENCE, serve::drain(&place.daemon)).await;
    assert!(drained.is_ok(), "it never ends");
    place.forgets_all().await;
    assert!(
        place.daemon.lease_table.all().is_empty(),
        "something is held"
    );
}

/// As when the system has no more files.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_comes_to_no_lane_is_forgotten() {
    let place = Place::new("").await;
    place.io_threads.finish().await;
    let _wire = place.connect();
    let count = || place.daemon.counts.connections.load(Ordering::Relaxed);
    until("no connection is let in", || count() == 1).await;
    place.forgets_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_in_a_check_says_nothing_about_the_password() {
    let log = PanicLog::begin(panics::log_panic);
    let hash = rideau_config::password::Hash::of(b"secret").expect("it is made");
    let user = format!(
        "[user.anna]\npassword = '{}'\nallow = [\"@all\"]\n",
        hash.as_str()
    );
    let place = Place::new(&user).await;
    let mut wire = place.connect();
    let said = wire.ask("AUTH anna TEST.PANIC");
    assert!(said.starts_with("-ERR internal error "), "{said}");
    assert!(log.has_id_of(panics::TOLD, &said), "{said}");
    let denied = &place.daemon.counts.denied;
    assert_eq!(denied.load(Ordering::Relaxed), 0, "it is no failed login");
    assert_eq!(wire.ask("AUTH anna secret"), "+OK");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_that_panics_when_it_is_closed_takes_its_members_back() {
    let pool = "[pool.panics-in-close]\nmember = { list = [\"a\"] }\n";
    let place = Place::new(pool).await;
    let mut wire = place.connect();
    assert_eq!(wire.array("TAKE panics-in-close")[0], "go");
    let now = Some(Duration::ZERO);
    let removed = place.daemon.remove_pool("panics-in-close", now, "a test");
    assert!(removed.is_ok(), "{removed:?}");
    until("its member is held for ever", || {
        place.daemon.lease_table.all().is_empty()
    })
    .await;
}
