//! What may happen to an application.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use rideau_testing::{Signal, command, signal};

use super::frameworks::Code;
use super::load::{Sets, Wrk, asked};
use super::stage::Stage;
use super::talk::{Events, WebSocket, connect};
use crate::harness::{is_soak, processes_of, until};
use crate::upgrades::{Load, is_alive, serving_pid};

/// Something that may happen.
#[derive(Clone, Copy)]
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) run: fn(&Stage<'_>),
}

const fn row(name: &'static str, run: fn(&Stage<'_>)) -> Row {
    Row { name, run }
}

/// What is tried always.
pub(super) const CHEAP: &[Row] = &[
    row("killed and restarted under load", killed_and_restarted),
    row("code that does not parse", does_not_parse),
    row("code that raises as it is loaded", raises),
    row("code that fails every request", fails),
    row("code that fails half of them", fails_half),
    row("long bodies", bodies),
    row("slow clients", slow_clients),
    row("streams while good code is deployed", streams),
];

/// What is tried in a soak besides.
pub(super) const SOAK: &[Row] = &[row("code that is much slower", slow)];

/// What is tried always, and last: the server is another process then.
pub(super) const LAST: Row = row("a newer server takes over under load", upgraded);

/// Seconds that `wrk` asks.
const ASKS_FOR: u64 = 6;
/// Answers that a killed process may have begun.
const CUTS_MAX: u32 = 2;
/// Clients see at most this many failures of new code, before it is rejected. The old code has
/// no free place for some of what the new one failed.
const SHOWN_MAX: usize = 3;
/// Clients that are slow, of each kind.
const SLOW: usize = 16;
/// Mebibytes that the server may grow by, however long bodies are.
const GROWN_MAX: u64 = 32;

/// An application is asked all the time, gets a second process, one of them is killed and then
/// a worker of one, all are replaced, and no request fails.
fn killed_and_restarted(stage: &Stage<'_>) {
    let harness = &stage.harness;
    let old = processes_of(&stage.folder);
    let asking = Wrk::start(harness, ASKS_FOR);
    thread::sleep(Duration::from_millis(500));
    // No, if it has grown by itself, as it does where starts are slow.
    harness.peer().say("APP.SPAWN shop");
    until("a second process is ready", || harness.ready().len() == 2);
    let killed = harness.ready()[0];
    signal(killed, Signal::KILL);
    until("another one serves in its stead", || {
        let ready = harness.ready();
        !ready.is_empty() && !ready.contains(&killed)
    });
    let ready: BTreeSet<_> = harness.ready().into_iter().collect();
    let all = processes_of(&stage.folder);
    if let Some(worker) = all.iter().find(|pid| !ready.contains(pid)) {
        let _ = rideau_testing::try_signal(*worker, Signal::KILL);
    }
    harness.cli(&["restart", "shop"]);
    until("all are new", || {
        let now = processes_of(&stage.folder);
        !harness.ready().is_empty() && old.iter().all(|pid| !now.contains(pid))
    });
    let asked = asking.asked(CUTS_MAX);
    assert!(asked.failed.is_empty(), "{asked:?}");
    assert!(asked.requests > 100, "{asked:?}");
    stage.serves();
}

/// Why code was not taken.
const NOT_USED: &str = "is not used";
const FAILS: &str = "fails more often than the old one";

fn does_not_parse(stage: &Stage<'_>) {
    let why = if stage.framework.loads_late {
        FAILS
    } else {
        NOT_USED
    };
    rejected(stage, ")(", "good", why, "/");
}

fn raises(stage: &Stage<'_>) {
    let why = if stage.framework.loads_late {
        FAILS
    } else {
        NOT_USED
    };
    rejected(stage, stage.framework.raise, "raises", why, "/");
}

fn fails(stage: &Stage<'_>) {
    rejected(stage, "", "fails", FAILS, "/");
}

fn fails_half(stage: &Stage<'_>) {
    rejected(stage, "", "half", FAILS, "/");
}

fn slow(stage: &Stage<'_>) {
    // There is a past that it is compared with.
    let asked = asked(&stage.harness, "/work", || {
        thread::sleep(Duration::from_secs(20))
    });
    assert!(asked.failed.is_empty(), "{asked:?}");
    rejected(
        stage,
        "",
        "slow",
        "is much slower than the old one",
        "/work",
    );
}

/// Code is deployed that is broken: it is not taken, and clients see nothing of it.
fn rejected(stage: &Stage<'_>, head: &str, mode: &str, why: &str, path: &str) {
    stage.release(Code {
        version: "broken",
        head,
        mode,
    });
    let harness = &stage.harness;
    let asked = asked(harness, path, || {
        let (code, said) = harness.try_cli(&["restart", "shop", "--wait"]).unwrap_err();
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains(why), "{said}");
    });
    let most = if why == FAILS { SHOWN_MAX } else { 0 };
    assert!(asked.failed.len() <= most, "{asked:?}");
    stage.serves();
}

/// Code is deployed that is good, and all clients are answered.
fn good(stage: &Stage<'_>) {
    let asked = asked(&stage.harness, "/", || stage.deploy());
    assert!(asked.failed.is_empty(), "{asked:?}");
    stage.serves();
}

/// Mebibytes that are sent, up and down.
fn lengths() -> (u64, u64) {
    if is_soak() { (200, 500) } else { (20, 50) }
}

/// Bodies that no memory should hold as a whole: both arrive, and the server does not grow.
fn bodies(stage: &Stage<'_>) {
    let (up, down) = lengths();
    let harness = &stage.harness;
    let sent = stage.folder.join("sent");
    fs::File::create(&sent).unwrap().set_len(up << 20).unwrap();
    let curl = |words: &[&str], path: &str| {
        let mut curl = command("curl");
        curl.args(["--silent", "--show-error", "--max-time", "300"]);
        curl.args(["--write-out", " %{http_code} %{size_download}"]);
        let done = curl
            .args(words)
            .arg(format!("http://{}{path}", harness.front));
        let done = done.output().unwrap();
        assert!(done.status.success(), "{done:?}");
        String::from_utf8(done.stdout).unwrap()
    };
    let before = harness.memory();
    harness.forget_peak();
    let sent = sent.display().to_string();
    let kind = "Content-Type: application/octet-stream";
    let said = curl(
        &[
            "--request",
            "POST",
            "--header",
            kind,
            "--upload-file",
            &sent,
        ],
        "/up",
    );
    let length = (up << 20).to_string();
    assert_eq!(said, format!("{length} 200 {}", length.len()));
    let said = curl(&["--output", "/dev/null"], &format!("/down/{down}"));
    assert_eq!(said, format!(" 200 {}", down << 20));
    let grown = harness.peak_memory().saturating_sub(before) / 1024;
    assert!(grown <= GROWN_MAX, "the server grew by {grown} MiB");
}

/// Clients that stop in the middle of a body, and others in the middle of an answer, keep
/// nothing from those that do not; and when they go on, they get all of it.
fn slow_clients(stage: &Stage<'_>) {
    const HALF: usize = 1000;
    const MEBIBYTES: usize = 4;
    let harness = &stage.harness;
    let (are_there, go_on) = (AtomicUsize::new(0), AtomicBool::new(false));
    let wait = || {
        are_there.fetch_add(1, Ordering::Relaxed);
        while !go_on.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(5));
        }
    };
    let sends = || {
        let mut stream = connect(harness);
        let head = "POST /up HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\
                    Content-Type: application/octet-stream\r\n";
        write!(stream, "{head}Content-Length: {}\r\n\r\n", 2 * HALF).unwrap();
        stream.write_all(&[b'x'; HALF]).unwrap();
        wait();
        stream.write_all(&[b'x'; HALF]).unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).unwrap();
        assert!(said.contains(&(2 * HALF).to_string()), "{said}");
    };
    let takes = || {
        let mut stream = connect(harness);
        write!(
            stream,
            "GET /down/{MEBIBYTES} HTTP/1.0\r\nHost: test\r\n\r\n"
        )
        .unwrap();
        let mut first = [0; 4096];
        stream.read_exact(&mut first).unwrap();
        assert!(first.starts_with(b"HTTP/1.0 200 "));
        wait();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();
        let body = first.iter().chain(&rest).filter(|byte| **byte == b'x');
        let length = body.count();
        assert!(
            (MEBIBYTES << 20..(MEBIBYTES << 20) + 100).contains(&length),
            "{length}"
        );
    };
    thread::scope(|scope| {
        let _go_on = Sets(&go_on);
        for _ in 0..SLOW {
            scope.spawn(sends);
            scope.spawn(takes);
        }
        until("all have begun", || {
            are_there.load(Ordering::Relaxed) == 2 * SLOW
        });
        (0..50).for_each(|_| stage.serves());
    });
}

/// What goes on for as long as its client likes is whole up to its end, which comes soon after
/// code is deployed. Others see nothing of that.
fn streams(stage: &Stage<'_>) {
    let (harness, old) = (&stage.harness, stage.version());
    let mut events = Events::open(harness);
    (0..3).for_each(|_| assert_eq!(events.next().as_ref(), Some(&old)));
    let mut goes_on = talk(stage, "one");
    good(stage);
    assert!(events.all(|version| version == old));
    until("the socket is closed", || !goes_on());
    assert_eq!(Events::open(harness).next(), Some(stage.version()));
    let _new = talk(stage, "two");
}

/// A newer server takes over from the running one, and another one from that, with processes of
/// their own. All clients are answered.
fn upgraded(stage: &Stage<'_>) {
    const REQUESTS: u64 = 100;
    let harness = &stage.harness;
    let old = processes_of(&stage.folder);
    let load = Load::begin(harness.front, 4);
    load.go_on(REQUESTS);
    let rounds = if is_soak() { 4 } else { 1 };
    for _ in 0..rounds {
        let before = serving_pid(harness);
        harness.cli(&["upgrade"]);
        assert_ne!(serving_pid(harness), before);
        load.go_on(REQUESTS);
        until("the end of the older one", || !is_alive(before));
    }
    load.go_on(REQUESTS);
    load.end();
    let now = processes_of(&stage.folder);
    assert!(old.iter().all(|pid| !now.contains(pid)), "{old:?} {now:?}");
    stage.serves();
}

/// Talk on a WebSocket, if the framework has them, and then again as often as this is called.
/// Says whether there was an answer.
fn talk(stage: &Stage<'_>, text: &'static str) -> impl FnMut() -> bool {
    let has_websocket = stage.framework.has_websocket;
    let mut socket = has_websocket.then(|| WebSocket::open(&stage.harness));
    let wanted = format!("{} {text}", stage.version());
    let mut goes_on = move || {
        let said = socket.as_mut().and_then(|socket| socket.ask(text));
        said.map(|said| assert_eq!(said, wanted)).is_some()
    };
    assert_eq!(goes_on(), has_websocket);
    goes_on
}
