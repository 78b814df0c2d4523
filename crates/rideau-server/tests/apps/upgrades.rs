//! A newer program takes over from the running one while clients ask.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rideau_testing::{Signal, command, signal};

use crate::harness::{
    Harness, LONG, folder, is_soak, not_panicked, nothing_is_left, processes_of, until,
};

/// One that is always there.
pub(crate) const APPS: &str = "[app.shop]\nroot = \"FOLDER\"\nlisten = \"socket\"\nmin = 1\n\
     max = 2\nconcurrency = 64\nexec = APP\nstop_timeout = \"1s\"\n";
/// Ten values.
const RANGE: &str = "[range.all]\nvalues = [\"0-9\"]\nstart = \"free\"\n";
/// Clients of each version of HTTP.
const CLIENTS: usize = 32;

/// Clients that ask one request after the other, and what they were told.
pub(crate) struct Load {
    is_over: Arc<AtomicBool>,
    answers: Arc<AtomicU64>,
    threads: Vec<JoinHandle<Result<(), String>>>,
}

impl Load {
    /// This many for each version of HTTP.
    pub(crate) fn begin(front: SocketAddr, clients: usize) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let answers = Arc::new(AtomicU64::new(0));
        let mut threads = Vec::new();
        for _ in 0..clients {
            let (is_over, answers) = (Arc::clone(&is_over), Arc::clone(&answers));
            threads.push(thread::spawn(move || {
                http1(front, &is_over, &answers).map_err(|error| format!("HTTP/1.1: {error}"))
            }));
        }
        let (over, count) = (Arc::clone(&is_over), Arc::clone(&answers));
        threads.push(thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let all = (0..clients).map(|_| http2(front, &over, &count));
                let done = futures_util::future::join_all(all).await;
                let mut failed = done.into_iter().filter_map(Result::err);
                failed
                    .next()
                    .map_or(Ok(()), |error| Err(format!("HTTP/2: {error}")))
            })
        }));
        Self {
            is_over,
            answers,
            threads,
        }
    }

    fn answers(&self) -> u64 {
        self.answers.load(Ordering::Relaxed)
    }

    /// Wait until this many more were answered.
    pub(crate) fn go_on(&self, more: u64) {
        let from = self.answers();
        until("more answers", || {
            self.answers() >= from + more || self.threads.iter().any(JoinHandle::is_finished)
        });
    }

    /// No request was refused or lost.
    pub(crate) fn end(self) {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads {
            let done = thread.join().unwrap();
            assert_eq!(done, Ok(()));
        }
    }
}

/// Ask on connections that are kept until the server ends them with an answer.
fn http1(front: SocketAddr, is_over: &AtomicBool, answers: &AtomicU64) -> Result<(), String> {
    let mut kept: Option<TcpStream> = None;
    while !is_over.load(Ordering::Relaxed) {
        let stream = match &mut kept {
            Some(stream) => stream,
            None => {
                let stream = TcpStream::connect(front).map_err(|error| error.to_string())?;
                stream.set_read_timeout(Some(LONG)).unwrap();
                kept.insert(stream)
            }
        };
        let asked = stream.write_all(b"GET / HTTP/1.1\r\nHost: test\r\n\r\n");
        asked.map_err(|error| format!("asking: {error}"))?;
        let (head, _) = read_answer(stream)?;
        if !head.starts_with("HTTP/1.1 200 ") {
            return Err(head);
        }
        answers.fetch_add(1, Ordering::Relaxed);
        if head.to_ascii_lowercase().contains("connection: close") {
            kept = None;
        }
        thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

fn read_answer(stream: &mut TcpStream) -> Result<(String, Vec<u8>), String> {
    let mut said = Vec::new();
    let mut part = [0; 4096];
    loop {
        let end = said.windows(4).position(|end| end == b"\r\n\r\n");
        if let Some(end) = end {
            let head = String::from_utf8_lossy(&said[..end]).into_owned();
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case("content-length")
                    .then(|| value.trim().parse::<usize>().ok())?
            });
            let is_whole = match length {
                Some(length) => said.len() >= end + 4 + length,
                None if head
                    .to_ascii_lowercase()
                    .contains("\r\ntransfer-encoding: chunked") =>
                {
                    said.ends_with(b"\r\n0\r\n\r\n")
                }
                None => return Err(format!("no length: {head}")),
            };
            if is_whole {
                return Ok((head, said.split_off(end + 4)));
            }
        }
        match stream.read(&mut part) {
            Ok(0) => return Err(format!("closed after {said:?}")),
            Ok(len) => said.extend(&part[..len]),
            Err(error) => return Err(format!("reading: {error}")),
        }
    }
}

/// Ask on a connection until it is said that it ends, and then on another.
async fn http2(front: SocketAddr, is_over: &AtomicBool, answers: &AtomicU64) -> Result<(), String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    while !is_over.load(Ordering::Relaxed) {
        let stream = tokio::net::TcpStream::connect(front).await;
        let stream = stream.map_err(|error| text(&error))?;
        let (mut client, connection) = h2::client::handshake(stream)
            .await
            .map_err(|error| text(&error))?;
        let driving = tokio::spawn(connection);
        loop {
            // One that was told GOAWAY is not ready any more.
            let Ok(mut ready) = client.clone().ready().await else {
                break;
            };
            let request = hyper::Request::get("http://test/").body(()).unwrap();
            let Ok((answer, _)) = ready.send_request(request, true) else {
                break;
            };
            let answer = match answer.await {
                Ok(answer) => answer,
                // It came after the last that is answered: it was not looked at.
                Err(error) if error.is_go_away() && error.is_remote() => break,
                Err(error) => return Err(format!("asking: {error}")),
            };
            if answer.status() != 200 {
                return Err(format!("{}", answer.status()));
            }
            let mut body = answer.into_body();
            while let Some(part) = body.data().await {
                part.map_err(|error| format!("reading: {error}"))?;
            }
            answers.fetch_add(1, Ordering::Relaxed);
            if is_over.load(Ordering::Relaxed) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
            client = ready;
        }
        driving.abort();
    }
    Ok(())
}

/// What the operator is answered by the server that serves now, which may take its time.
pub(crate) fn say(harness: &Harness, line: &str) -> String {
    let mut said = String::new();
    until(line, || {
        said = try_say(harness, line).unwrap_or_default();
        !said.is_empty()
    });
    said
}

fn try_say(harness: &Harness, line: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(&harness.control)?;
    stream.set_read_timeout(Some(LONG))?;
    let text = format!("AUTH {}\r\n{line}\r\nQUIT\r\n", harness.token());
    stream.write_all(text.as_bytes())?;
    let mut said = String::new();
    stream.read_to_string(&mut said)?;
    // A server that ends answers nothing more.
    let rest = said.strip_prefix("+OK\r\n");
    let rest = rest.and_then(|rest| rest.strip_suffix("+OK\r\n"));
    Ok(rest.unwrap_or_default().to_owned())
}

/// The process that serves now.
pub(crate) fn serving_pid(harness: &Harness) -> i32 {
    let said = say(harness, "INFO server");
    let mut lines = said.lines();
    let found = lines.find_map(|line| line.trim().strip_prefix("process_id:"));
    let found = found.unwrap_or_else(|| panic!("{said}"));
    found.trim().parse().unwrap()
}

/// Whether a process is there, and has not ended.
pub(crate) fn is_alive(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ")
        .is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

/// End the server that has taken over; nothing is left of either. The older one is still
/// ending its processes, perhaps, and must not be killed before it has.
pub(crate) fn end(harness: Harness) {
    let older = harness.pid() as i32;
    let pid = serving_pid(&harness);
    if older != pid {
        until("the end of the older one", || !is_alive(older));
    }
    signal(pid as u32, Signal::TERM);
    until("its end", || !is_alive(pid));
    not_panicked(&harness.log());
    let folder = harness.folder.clone();
    until("the end of its processes", || {
        processes_of(&folder).is_empty()
    });
    drop(harness);
    nothing_is_left(&folder);
}

#[test]
fn upgrades_lose_and_refuse_no_request() {
    let folder = folder();
    let harness = Harness::new(&folder, APPS);
    harness.get("/");
    let load = Load::begin(harness.front, CLIENTS);
    load.go_on(200);
    let mut pid = serving_pid(&harness);
    let rounds = if is_soak() { 10 } else { 3 };
    for round in 0..rounds {
        let said = harness.cli(&["upgrade"]);
        assert!(said.contains("has taken over"), "{said}");
        let next = serving_pid(&harness);
        assert_ne!(pid, next, "round {round}");
        load.go_on(200);
        let before = pid;
        // It was started by the test, which does not look at its end before its own.
        until("the end of the older one", || !is_alive(before));
        pid = next;
    }
    load.end();
    end(harness);
}

/// A program in the place of Rideau's that checks well, and then does this.
pub(crate) fn fake(folder: &Path, name: &str, check: &str, then: &str) -> String {
    let path = folder.join(name);
    let text = format!("#!/bin/sh\nif [ \"$1\" = check ]; then {check}; fi\n{then}\n");
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

#[test]
fn a_program_that_is_no_good_changes_nothing() {
    let folder = folder();
    let harness = Harness::new(&folder, APPS);
    harness.get("/");
    let load = Load::begin(harness.front, 4);
    load.go_on(20);
    let pid = serving_pid(&harness);
    let cases = [
        (
            fake(&folder, "faulty", "echo no such key; exit 1", "exit 9"),
            "the check by the newer program failed: exit status: 1; it wrote last: no \
             such key",
        ),
        (
            fake(&folder, "ends", "exit 0", "echo out of luck >&2; exit 1"),
            "the newer server ended before it served: exit status: 1; it wrote last: out of luck",
        ),
        (folder.join("missing").display().to_string(), "No such file"),
    ];
    for (program, why) in &cases {
        let (code, said) = harness
            .try_cli(&["upgrade", "--program", program])
            .unwrap_err();
        assert_eq!(code, Some(1));
        assert!(
            said.contains("upgrade_failed") && said.contains(why),
            "{said}"
        );
    }
    let events = say(&harness, "SHOW EVENTS COUNT 50");
    let begun = format!("an upgrade to {} begins", cases[0].0);
    assert!(events.contains(&begun), "{events}");
    assert!(events.contains("upgrade_failed"), "{events}");
    // There is one upgrade at a time.
    let hangs = fake(&folder, "hangs", "exit 0", "exec sleep 1000");
    let mut operator = harness.operator();
    let status = operator.say("UPGRADE");
    assert!(
        status.starts_with(':') || status.parse::<u64>().is_ok(),
        "{status}"
    );
    let second = harness.try_cli(&["upgrade"]).unwrap_err().1;
    assert!(second.contains("upgrade_running"), "{second}");
    until("the end of the first", || serving_pid(&harness) != pid);
    let elsewhere = say(&harness, &format!("UPGRADE PROGRAM {hangs}"));
    assert!(elsewhere.contains("control socket"), "{elsewhere}");
    load.go_on(50);
    load.end();
    end(harness);
}

/// Says what a newer server says until it may serve, and then is killed.
const KILLED: &str = "#!/usr/bin/env python3
import json, os, socket, struct, sys
if sys.argv[1] == 'check':
    sys.exit(0)
older = socket.socket(fileno=os.dup(0))
def say(word):
    text = json.dumps(word).encode()
    older.sendall(struct.pack('>I', len(text)) + text)
def exactly(count):
    text = b''
    while len(text) < count:
        text += older.recv(count - len(text)) or sys.exit('the older server is gone')
    return text
def wait_for(word):
    while json.loads(exactly(*struct.unpack('>I', exactly(4))))['say'] != word:
        pass
say({'say': 'hello', 'version': 'test', 'protocol': 1})
wait_for('offer')
say({'say': 'ready'})
wait_for('yours')
os.kill(os.getpid(), 9)
";

#[test]
fn whichever_server_is_killed_the_other_one_goes_on() {
    let folder = folder();
    let apps = format!("{APPS}[store]\npath = \"FOLDER/store\"\n{RANGE}");
    let harness = Harness::new(&folder, &apps);
    harness.get("/");
    let killed = folder.join("killed");
    fs::write(&killed, KILLED).unwrap();
    fs::set_permissions(&killed, fs::Permissions::from_mode(0o755)).unwrap();
    let killed = killed.display().to_string();
    say(&harness, "RESERVE all TTL 100000 KEY mine");
    let load = Load::begin(harness.front, 4);
    load.go_on(20);
    let (_, said) = harness
        .try_cli(&["upgrade", "--program", &killed])
        .unwrap_err();
    assert!(said.contains("ended before it served: signal: 9"), "{said}");
    load.go_on(50);
    load.end();
    let kept = say(&harness, "LOOKUP KEY mine");
    assert!(kept.contains("mine"), "{kept}");
    // The older one is killed while the newer one waits for its app.
    let config = fs::read_to_string(folder.join("rideau.toml")).unwrap();
    let slow = config.replace(
        "stop_timeout",
        "env = { START_DELAY = \"2\" }\nstop_timeout",
    );
    fs::write(folder.join("rideau.toml"), slow).unwrap();
    let older = serving_pid(&harness);
    say(&harness, "UPGRADE");
    until("the newer one's start", || {
        say(&harness, "INFO server").contains("upgrade:warming")
    });
    signal(older as u32, Signal::KILL);
    let answer = harness.get("/");
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_ne!(serving_pid(&harness), older);
    let kept = say(&harness, "LOOKUP KEY mine");
    assert!(kept.contains("mine"), "{kept}");
    end(harness);
}

#[test]
fn redis_clients_see_a_restart() {
    let folder = folder();
    let apps = format!(
        "{APPS}[lock.\"*\"]\nper = 1\nbuckets = 1\n[store]\npath = \"FOLDER/store\"\n\
         {RANGE}"
    );
    let harness = Harness::new(&folder, &apps);
    let mut holder = harness.operator();
    assert!(holder.say("LOCK job").contains("l-"));
    let reserved = holder.say("RESERVE all TTL 100000 KEY mine");
    let mut waiting = harness.operator();
    let waits = thread::spawn(move || waiting.say("LOCK job WAIT 30000"));
    until("the ask waits", || {
        say(&harness, "INFO clients").contains("blocked_clients:1")
    });
    harness.cli(&["upgrade"]);
    let told = waits.join().unwrap();
    assert!(
        told.contains("shutting_down") || told.contains("closed"),
        "{told}"
    );
    let mut next = harness.operator();
    assert!(next.say("LOCK job").contains("l-"), "the lease has ended");
    let kept = next.say("LOOKUP KEY mine");
    assert!(
        kept.contains("mine") || kept.contains("v-"),
        "{kept} {reserved}"
    );
    end(harness);
}

#[test]
fn streams_live_for_their_grace() {
    let folder = folder();
    let grace = "streams = { grace = \"1s\" }\nstop_timeout";
    let harness = Harness::new(&folder, &APPS.replace("stop_timeout", grace));
    let begin = |path: &str, fields: &str| {
        let mut stream = TcpStream::connect(harness.front).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        let asked = format!("GET {path} HTTP/1.1\r\nHost: test\r\n{fields}\r\n");
        stream.write_all(asked.as_bytes()).unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        (stream, String::from_utf8(head).unwrap())
    };
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\n";
    let (mut web_socket, head) = begin("/talk", upgrade);
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    let frame = *b"\x81\x02hi";
    web_socket.write_all(&frame).unwrap();
    let mut echo = [0; 4];
    web_socket.read_exact(&mut echo).unwrap();
    assert_eq!(echo, frame);
    let (mut events, head) = begin("/events/1000000/10", "");
    assert!(head.contains("text/event-stream"), "{head}");
    harness.cli(&["upgrade"]);
    let mut rest = Vec::new();
    web_socket.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, [0x88, 2, 3, 0xe9], "the server goes away");
    // It ends in the middle, as the application has not ended it.
    let mut rest = Vec::new();
    events.read_to_end(&mut rest).unwrap();
    assert!(rest.windows(6).any(|part| part == b"data: "));
    end(harness);
}

#[test]
fn an_app_at_an_address_of_its_own_waits_for_it() {
    let folder = folder();
    let port = {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        free.local_addr().unwrap().port()
    };
    let harness = Harness::new(
        &folder,
        &format!(
            "[app.shop]\nroot = \"FOLDER\"\nlisten = \"127.0.0.1:{port}\"\nmin = 1\nmax = 1\n\
             env = {{ PORT = \"{port}\" }}\nexec = APP\nstop_timeout = \"1s\"\n"
        ),
    );
    assert_eq!(harness.get("/").status, 200);
    harness.cli(&["upgrade"]);
    // It waits until the older one's process is gone.
    assert_eq!(harness.get("/").status, 200);
    end(harness);
}

#[test]
fn one_application_without_a_config_is_upgraded_as_well() {
    let folder = folder();
    let app = crate::harness::app_words();
    let words: Vec<String> = serde_json::from_str(&app).unwrap();
    let port = {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        free.local_addr().unwrap().port()
    };
    let mut server = command(env!("CARGO_BIN_EXE_rideau"));
    server.args(["run", "--listen", &format!("127.0.0.1:{port}"), "--"]);
    server.args(&words).current_dir(&folder);
    let log = fs::File::create(folder.join("log")).unwrap();
    let server = rideau_testing::Start::start(server.stderr(log.try_clone().unwrap()).stdout(log));
    let front: SocketAddr = ([127, 0, 0, 1], port).into();
    until("it serves", || {
        crate::harness::ask(front, "GET", "test", "/", b"").is_ok_and(|answer| answer.status == 200)
    });
    let socket = rideau_daemon::control::find(port).unwrap();
    let place = format!("unix:{}", socket.display());
    let upgraded = command(env!("CARGO_BIN_EXE_rideau"))
        .args(["--server", &place, "upgrade"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&upgraded.stdout);
    assert!(upgraded.status.success(), "{upgraded:?}");
    let pid: u32 = said.split_whitespace().nth(1).unwrap().parse().unwrap();
    let answer = crate::harness::ask(front, "GET", "test", "/", b"").unwrap();
    assert_eq!(answer.status, 200);
    signal(pid, Signal::TERM);
    until("its end", || !is_alive(pid as i32));
    drop(server);
    let _ = fs::remove_dir_all(folder);
}
