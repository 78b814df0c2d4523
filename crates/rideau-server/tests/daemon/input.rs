//! What clients send and do not finish: little before login, and one budget for
//! all after it. Memory comes back when they go.

use std::env;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process;

use crate::server::{PATIENCE, Server, run_with_all_files, until};
use crate::wire::{Wire, request};

const USERS: &str = r#"
[user.ops]
password_file = "{secret}"
allow = ["@all", "@admin"]

[pool.one]
member = { list = ["m1"] }
queue = { kind = "never" }
"#;

const SHARED: &str = "[limits]\ninput_max = \"4MiB\"\n";

/// What a command of a megabyte draws: as much as has come, doubled, but the base.
const DRAWN: i64 = (1 << 20) - (16 << 10);

const EARLY_BYTES: &str = "ERR Protocol error: unauthenticated bulk length: before login a request \
                           has 16384 bytes at most; log in with AUTH or HELLO first";
const EARLY_WORDS: &str = "ERR Protocol error: unauthenticated multibulk length: before login a \
                           request has 64 words at most; log in with AUTH or HELLO first";

fn login(server: &Server) -> Wire {
    let mut wire = server.connect();
    wire.write(&auth(b"open sesame"));
    assert_eq!(wire.read().text(), "OK");
    wire
}

fn auth(password: &[u8]) -> Vec<u8> {
    request(&[b"AUTH", b"ops", password])
}

/// A command that is too long for what it wants, and is told so in a few words.
fn long(len: usize) -> Vec<u8> {
    request(&[b"LOCK", &vec![b'x'; len]])
}

const TOO_LONG: &str = "ERR a key has 1 to 128 bytes";

fn echo(len: usize) -> Vec<u8> {
    request(&[b"ECHO", &vec![b'x'; len]])
}

/// All of a command but the last of its bytes and the line end.
fn half(len: usize) -> Vec<u8> {
    let mut bytes = long(len);
    bytes.truncate(bytes.len() - 3);
    bytes
}

/// How much of the budget is used, and how often it had no more.
fn used(ops: &mut Wire) -> (i64, i64) {
    let shown = ops.ask("SHOW LIMITS input_max");
    let row = shown.at(1);
    (row.at(2).int(), row.at(3).int())
}

fn until_used(ops: &mut Wire, bytes: i64) {
    until(&format!("{bytes} bytes are drawn"), || used(ops).0 == bytes);
}

/// Wait until no connection is left but the one that asks.
fn until_alone(ops: &mut Wire) {
    until("all others are gone", || {
        ops.ask("CLIENT LIST").text().lines().count() == 1
    });
}

#[track_caller]
fn is_refused(wire: &mut Wire, answer: &str) {
    wire.read().is_error(answer);
    assert!(wire.is_closed());
}

#[test]
fn a_command_before_login_is_refused_from_what_it_announces() {
    let server = Server::with(USERS);
    let many: Vec<&[u8]> = vec![&[b'x'; 300]; 60];
    let many = request(&many);
    // As long as may be, and the length of its last word has only begun.
    let mut begun = request(&[b"ECHO", &[b'x'; 16_358]]);
    begun[1] = b'3';
    begun.extend(b"$1");
    assert_eq!(begun.len(), 16_384);
    for (bytes, answer) in [
        (&b"*2\r\n$4\r\nECHO\r\n$16385\r\n"[..], EARLY_BYTES),
        (b"*2\r\n$4\r\nECHO\r\n$16361\r\n", EARLY_BYTES),
        (
            b"*3\r\n$4\r\nAUTH\r\n$3\r\nops\r\n$1000000\r\n",
            EARLY_BYTES,
        ),
        (&many[..], EARLY_BYTES),
        (&begun[..], EARLY_BYTES),
        (b"*65\r\n", EARLY_WORDS),
    ] {
        let mut wire = server.connect();
        wire.write(bytes);
        is_refused(&mut wire, answer);
    }
    let mut wire = server.connect();
    assert_eq!(echo(16_360).len(), 16_384);
    wire.write(&echo(16_360).repeat(3));
    for _ in 0..3 {
        assert_eq!(wire.read().text().len(), 16_360);
    }
    let mut wire = server.connect();
    let _ = wire.try_write(&[b'x'; 20_000]);
    wire.read()
        .is_error("ERR Protocol error: unauthenticated bulk length: before login");
    // One that goes on sending is told, too.
    until("the answer is read", || {
        let mut wire = server.connect();
        let _ = wire.try_write(&echo(1_000_000));
        wire.try_read().is_ok_and(|answer| {
            answer.is_error(EARLY_BYTES);
            true
        })
    });
    let mut ops = login(&server);
    assert!(ops.ask("SHOW LIMITS frame_max").at(1).at(3).int() >= 5);
    ops.write(&echo(100_000));
    assert_eq!(ops.read().text().len(), 100_000);
    // A connection that gives up its user gives up its room.
    assert_eq!(ops.ask("RESET").text(), "RESET");
    ops.write(b"*2\r\n$4\r\nECHO\r\n$16385\r\n");
    is_refused(&mut ops, EARLY_BYTES);
}

#[test]
fn long_passwords_and_what_follows_a_login_have_room() {
    let secret = env::temp_dir().join(format!("rideau-input-{}", process::id()));
    let long = "s".repeat(16_000);
    fs::write(&secret, &long).unwrap();
    let users = format!("{USERS}[user.long]\npassword_file = {secret:?}\nallow = [\"@all\"]\n");
    let server = Server::with(&users);
    let long = long.as_bytes();
    for words in [
        &[b"AUTH", b"long", long][..],
        &[b"HELLO", b"3", b"AUTH", b"long", long],
    ] {
        let mut wire = server.connect();
        wire.write(&request(words));
        let answer = wire.read();
        assert!(!answer.text().starts_with("ERR"), "{answer}");
        assert_eq!(wire.ask("PING").text(), "PONG");
        let mut wire = server.connect();
        let wrong = [&long[1..], b"?"].concat();
        let mut words = words.to_vec();
        *words.last_mut().unwrap() = &wrong;
        wire.ask_words(&words).is_error("WRONGPASS");
    }
    fs::remove_file(&secret).unwrap();
    for first in [
        auth(b"open sesame"),
        request(&[b"HELLO", b"3", b"AUTH", b"ops", b"open sesame"]),
    ] {
        for len in [10, 16_300, 40_000, 200_000, 1_000_000] {
            let mut wire = server.connect();
            wire.write(&[&first[..], &echo(len), &request(&[b"PING"])].concat());
            let answer = wire.read();
            assert_ne!(answer.word(), "ERR", "{answer}");
            assert_eq!(wire.read().text().len(), len);
            assert_eq!(wire.read().text(), "PONG");
        }
    }
    // One that is not let in has no more room than before.
    let mut wire = server.connect();
    let _ = wire.try_write(&[auth(b"wrong"), echo(1_000_000)].concat());
    wire.read().is_error("WRONGPASS");
    is_refused(&mut wire, EARLY_BYTES);
}

const AGAIN: &str = "RIDEAU_INPUT";
const CROWD: usize = 1_000;
const CROWD_BYTES_MAX: u64 = 32_000_000;
/// What the allocator may keep of it.
const LEFT_BYTES_MAX: u64 = 8_000_000;

#[test]
fn a_thousand_half_commands_before_login_cost_little() {
    if env::var_os(AGAIN).is_some() {
        return crowd();
    }
    let name = "input::a_thousand_half_commands_before_login_cost_little";
    run_with_all_files(name, AGAIN);
}

fn crowd() {
    // All come from one address, and take their time.
    let limits = "[limits]\nbefore_login_max = 10_000\nlogin_within = \"10m\"\n";
    let server = Server::with(&format!("{limits}{USERS}"));
    let mut ops = login(&server);
    // What the server needs once and for all it has after these.
    drop((0..20).map(|_| login(&server)).collect::<Vec<_>>());
    until_alone(&mut ops);
    let before = server.memory();
    let grown = || server.memory().saturating_sub(before);
    let mut wires: Vec<Wire> = Vec::new();
    let mut most = 0;
    for _ in 0..CROWD {
        let mut wire = server.connect();
        wire.write(&half(16_300));
        wires.push(wire);
        most = most.max(grown());
    }
    until("all of it is read", || unread(&server) == 0);
    most = most.max(grown());
    for _ in 0..CROWD {
        let mut wire = server.connect();
        let _ = wire.try_write(&half(1_000_000)[..100_000]);
        most = most.max(grown());
        // The answer may be lost: what was sent and not read resets the connection.
        if let Ok(answer) = wire.try_read() {
            answer.is_error(EARLY_BYTES);
        }
    }
    most = most.max(grown());
    assert_eq!(used(&mut ops), (0, 0), "none of it is from the budget");
    assert_eq!(server.connect().ask("PING").text(), "PONG");
    drop(wires);
    until_alone(&mut ops);
    println!("{most} bytes at most, {} at the end", grown());
    assert!(most <= CROWD_BYTES_MAX, "{most} bytes");
    until("the memory is back", || grown() <= LEFT_BYTES_MAX);
}

/// Bytes that were sent to the server and are still with the system.
fn unread(server: &Server) -> u64 {
    let port = format!(":{:04X}", server.address().port());
    let sockets = fs::read_to_string("/proc/net/tcp").unwrap();
    let queues = sockets.lines().filter_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let (here, queues) = (words.next()?, words.nth(2)?);
        let (_, received) = queues.split_once(':')?;
        here.ends_with(&port)
            .then(|| u64::from_str_radix(received, 16).unwrap())
    });
    queues.sum()
}

#[test]
fn half_commands_after_login_share_one_budget() {
    let server = Server::with(&format!("{SHARED}{USERS}"));
    let mut ops = login(&server);
    // All log in first, since to check passwords takes memory, too.
    let mut halves: Vec<Wire> = (0..4).map(|_| login(&server)).collect();
    let (mut more, mut small) = (login(&server), login(&server));
    let before = server.memory();
    for (wire, count) in halves.iter_mut().zip(1..) {
        wire.write(&half(1_000_000));
        until_used(&mut ops, count * DRAWN);
    }
    let _ = more.try_write(&half(1_000_000));
    let busy = "BUSY limits.input_max (4194304 bytes) reached";
    is_refused(&mut more, busy);
    until_used(&mut ops, 4 * DRAWN);
    assert_eq!(used(&mut ops).1, 1);
    // All others have the room that each has.
    assert_eq!(server.connect().ask("PING").text(), "PONG");
    small.write(&long(16_000).repeat(20));
    for _ in 0..20 {
        small.read().is_error(TOO_LONG);
    }
    // One that is done gives back what it drew.
    halves[0].write(b"x\r\n");
    halves[0].read().is_error(TOO_LONG);
    until_used(&mut ops, 3 * DRAWN);
    small.write(&long(1_000_000));
    small.read().is_error(TOO_LONG);
    until_used(&mut ops, 3 * DRAWN);
    drop((more, small, halves));
    until_used(&mut ops, 0);
    until_alone(&mut ops);
    until("the memory is back", || {
        server.memory() <= before + 1_000_000
    });
}

#[test]
fn a_change_of_the_budget_counts_at_once_and_takes_nothing_away() {
    let server = Server::with(SHARED);
    let (mut ops, mut half_sent) = (server.operator(), server.connect());
    half_sent.write(&half(1_000_000));
    until_used(&mut ops, DRAWN);
    // What is read after the change is measured by the new limit.
    until("the server has read it", || half_sent.is_read());
    let set = "CONFIG SET limits.frame_max 512KiB limits.input_max 512KiB";
    assert_eq!(ops.ask(set).text(), "OK");
    assert_eq!(used(&mut ops), (DRAWN, 0));
    let mut more = server.connect();
    let _ = more.try_write(&half(100_000));
    is_refused(&mut more, "BUSY limits.input_max (524288 bytes) reached");
    half_sent.write(b"x\r\n");
    half_sent.read().is_error(TOO_LONG);
    until_used(&mut ops, 0);
    let mut more = server.connect();
    more.write(&long(100_000));
    more.read().is_error(TOO_LONG);
    ops.ask("CONFIG SET limits.input_max 1KiB")
        .is_error("CONFIG limits: `input_max` is under `frame_max`");
}

#[test]
fn memory_of_half_commands_comes_back_when_they_are_closed() {
    let server = Server::with("");
    let mut ops = server.connect();
    let before = server.memory();
    let mut halves: Vec<Wire> = Vec::new();
    for _ in 0..100 {
        let mut wire = server.connect();
        wire.write(&half(1_000_000));
        halves.push(wire);
    }
    until_used(&mut ops, 100 * DRAWN);
    assert!(server.memory() >= before + 95_000_000);
    drop(halves);
    until_used(&mut ops, 0);
    until("the memory is back", || {
        server.memory() <= before + 8_000_000
    });
}

#[test]
fn what_comes_behind_a_command_that_waits_is_of_the_same_budget() {
    let server = Server::with(&format!("[limits]\ninput_max = \"1MiB\"\n{USERS}"));
    let mut ops = login(&server);
    ops.ask("TAKE one").ticket();
    let mut half_sent = login(&server);
    half_sent.write(&half(1_000_000));
    until_used(&mut ops, DRAWN);
    let mut wire = login(&server);
    wire.send("TAKE one WAIT 30000");
    wire.write(&request(&[b"PING", &[b'x'; 30_000]]));
    until_used(&mut ops, DRAWN + (16 << 10));
    assert!(wire.is_silent());
    wire.write(&request(&[b"PING", &[b'x'; 3_000]]));
    is_refused(&mut wire, "BUSY limits.input_max (1048576 bytes) reached");
    until_used(&mut ops, DRAWN);
}

/// The status of the answer to a request, and all of the answer.
fn http(server: &Server, head: &str, body: &[u8]) -> (String, String) {
    let address = server.url().replace("http://", "");
    let mut stream = TcpStream::connect(&address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let head = format!("{head} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n");
    let csrf = "Rideau-Csrf: 1\r\nAuthorization: Basic b3BzOm9wZW4gc2VzYW1l\r\n";
    let len = body.len();
    let head = format!("{head}{csrf}Content-Length: {len}\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let _ = stream.write_all(body);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let status = answer.split(' ').nth(1).unwrap_or_default().to_owned();
    (status, answer)
}

#[test]
fn bodies_over_http_are_of_the_same_budget() {
    let config = format!("[limits]\ninput_max = \"1MiB\"\n{USERS}");
    let server = Server::with_http(&config);
    let mut ops = login(&server);
    let check = "POST /api/v1/config/check";
    let text = "# nothing\n".repeat(10_000);
    let (status, answer) = http(&server, check, text.as_bytes());
    assert_eq!(status, "200", "{answer}");
    until_used(&mut ops, 0);
    // A page that needs no login takes no more than a command before it.
    let (status, answer) = http(&server, "GET /healthz", &[b'x'; 16_384]);
    assert_eq!(status, "200", "{answer}");
    let (status, answer) = http(&server, "GET /healthz", &[b'x'; 16_385]);
    assert_eq!(status, "413", "{answer}");
    assert!(
        answer.contains("A body has 16384 bytes at most (before login)."),
        "{answer}"
    );
    let mut half_sent = login(&server);
    half_sent.write(&half(1_000_000));
    until_used(&mut ops, DRAWN);
    let (status, answer) = http(&server, check, text.as_bytes());
    assert_eq!(status, "429", "{answer}");
    assert!(answer.contains("limits.input_max"), "{answer}");
    let (status, answer) = http(&server, check, &text.as_bytes()[..10_000]);
    assert_eq!(status, "200", "{answer}");
    assert_eq!(used(&mut ops), (DRAWN, 1));
}
