//! What clients get wrong, by mistake or on purpose: each is told so, and no
//! other client notices.

use crate::server::{Server, until};
use crate::wire::{Value, Wire, request};

/// Limits that a test can reach.
const SMALL: &str = r#"
[limits]
frame_max = "16KiB"
pipeline_max = "4KiB"
output_max = "64KiB"
held_max = 3
waiters_max = 2
name_len_max = 16

[pool.one]
member = { list = ["m1"] }
queue = { kind = "never" }

[broker.desk]
asks = { kind = "never" }

[regulator.few]
valve = { kind = "open", max = 1 }

[lock."*"]
queue = { kind = "never" }
"#;

/// Send bytes that are no request; the answer begins so, and then the
/// connection ends.
#[track_caller]
fn fails(server: &Server, bytes: &[u8], answer: &str) {
    let mut wire = server.connect();
    let _ = wire.try_write(bytes);
    wire.read()
        .is_error(&format!("ERR Protocol error: {answer}"));
    assert!(wire.is_closed());
    assert_eq!(server.connect().ask("PING").text(), "PONG");
}

#[test]
fn frames_that_are_too_big_are_refused_before_they_are_read() {
    let server = Server::with(SMALL);
    fails(
        &server,
        b"*2\r\n$4\r\nECHO\r\n$17000\r\n",
        "invalid bulk length: a word of 17000 bytes, and 16384 are allowed",
    );
    fails(
        &server,
        b"*2\r\n$4\r\nECHO\r\n$99999999999999999999\r\n",
        "invalid bulk length: ",
    );
    fails(
        &server,
        b"*1025\r\n",
        "invalid multibulk length: a request has 1024 words at most",
    );
    fails(
        &server,
        b"*99999999999999999999\r\n",
        "invalid multibulk length: ",
    );
    let words = [[b'a'; 1000].as_slice(); 100];
    fails(
        &server,
        &request(&words),
        "too big request: 16384 bytes are allowed",
    );
    fails(&server, &[b'a'; 70_000], "too big inline request: ");
}

#[test]
fn frames_that_are_none_are_refused() {
    let server = Server::with(SMALL);
    fails(
        &server,
        b"*1\r\n*1\r\n$4\r\nPING\r\n",
        "expected '$', got '*'",
    );
    fails(&server, b"*1\r\n:1\r\n", "expected '$', got ':'");
    fails(&server, b"*1\r\n$-1\r\n", "invalid bulk length: ");
    fails(&server, b"*x\r\n", "invalid multibulk length: ");
    fails(
        &server,
        b"*1\r\n$4\r\nPINGPONG\r\n",
        "expected CR LF behind a bulk string",
    );
    fails(&server, b"%1\r\n+a\r\n+b\r\n", "expected '*', got '%'");
    fails(
        &server,
        b"PING \"never closed\r\n",
        "unbalanced quotes in request",
    );
    fails(&server, b"PING \0\r\n", "zero byte in a line of words");
    let hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03";
    fails(&server, hello, "this port does not speak TLS");
}

/// Texts that are empty, or whose first letter is more than one byte.
#[test]
fn words_that_cannot_be_cut_anywhere_are_answered() {
    let server = Server::with(SMALL);
    let mut wire = server.connect();
    assert_eq!(wire.ask("LOCK kept").parts()[0].text(), "go");
    for word in ["", "é", "éé", "\u{10ffff}", " ", "*"] {
        for name in ["INFO", "info"] {
            let answer = wire.ask_words(&[name.as_bytes(), word.as_bytes()]);
            answer.is_error("ERR INFO has no section ");
        }
    }
    assert_eq!(wire.ask("PING").text(), "PONG");
    drop(wire);
    let mut other = server.connect();
    until("nothing is held", || {
        other.ask("LOCK.STAT kept").field("held").int() == 0
    });
}

#[test]
fn browsers_are_sent_away() {
    let server = Server::with(SMALL);
    let mut wire = server.connect();
    wire.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let answer = wire.try_read().unwrap_err().to_string();
    assert!(answer.contains("HTTP/1.1 400 Bad Request"), "{answer}");
    // What a page can make a browser send must not be executed.
    let mut wire = server.connect();
    wire.write(b"Host: localhost\r\nLOCK key\r\n");
    assert!(wire.is_closed());
    assert_eq!(server.connect().ask("LOCK.STAT key").field("held").int(), 0);
}

#[test]
fn garbage_does_no_harm() {
    let server = Server::with(SMALL);
    // SplitMix64, so that a failure comes again.
    let mut state: u64 = 7;
    let mut draw = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb)
    };
    for _ in 0..300 {
        let mut wire = server.connect();
        let len = draw() % 2_000;
        let mut bytes: Vec<u8> = (0..len).map(|_| (draw() >> 56) as u8).collect();
        if draw() % 2 == 0 {
            bytes.splice(0..0, *b"*3\r\n$4\r\nLOCK\r\n$2\r\n");
        }
        let _ = wire.try_write(&bytes);
        wire.reset();
    }
    server.until_alone();
    assert_eq!(server.connect().ask("LOCK.LS").parts().len(), 0);
}

#[test]
fn half_a_frame_keeps_no_other_client_waiting() {
    let server = Server::with(SMALL);
    let mut half = server.connect();
    half.write(b"*2\r\n$4\r\nECHO\r\n$5\r\nhe");
    let mut other = server.connect();
    for _ in 0..100 {
        assert_eq!(other.ask("PING").text(), "PONG");
    }
    assert!(half.is_silent());
    half.write(b"llo\r\n");
    assert_eq!(half.read().text(), "hello");
    let mut half = server.connect();
    half.write(b"*2\r\n$4\r\nLOCK\r\n$3\r\nke");
    half.finish();
    assert!(half.is_closed(), "half a command is none");
    assert_eq!(other.ask("LOCK.STAT key").field("held").int(), 0);
}

#[test]
fn a_command_may_come_byte_by_byte() {
    let server = Server::with(SMALL);
    let mut wire = server.connect();
    for byte in request(&[b"LOCK", b"key", b"PER", b"3"]) {
        wire.write(&[byte]);
    }
    assert_eq!(wire.read().word(), "go");
    for byte in *b"LOCK key PER 3\r\n" {
        wire.write(&[byte]);
    }
    assert_eq!(wire.read().word(), "go");
}

#[test]
fn a_pipeline_behind_a_wait_has_a_limit() {
    let server = Server::with(SMALL);
    let mut holder = server.connect();
    holder.ask("TAKE one").ticket();
    let mut wire = server.connect();
    wire.send("TAKE one WAIT 20000");
    server.until_waiting(1);
    for _ in 0..2_000 {
        if wire.try_write(&request(&[b"PING", b"behind"])).is_err() {
            break;
        }
    }
    let said = wire.try_read();
    // The answer may be lost: what was sent and not read resets the connection.
    if let Ok(answer) = said {
        answer.is_error("ERR pipeline too long: limits.pipeline_max (4096 bytes) reached");
    }
    until("it is cut and out of the line", || {
        holder.ask("POOL.STAT one").field("waiting").int() == 0
    });
}

#[test]
fn a_client_that_never_reads_is_not_read_from() {
    let server = Server::with(SMALL);
    let before = server.memory();
    let mut deaf = server.connect();
    deaf.set_write_timeout(200);
    let echo = request(&[b"ECHO", &[b'a'; 15_000]]);
    let mut sent = 0_u64;
    while deaf.try_write(&echo).is_ok() {
        sent += echo.len() as u64;
        assert!(sent < 1 << 30, "it is read from for ever");
    }
    assert_eq!(server.connect().ask("PING").text(), "PONG");
    let grown = server.memory().saturating_sub(before);
    assert!(grown < 4 << 20, "{grown} bytes for {sent}");
    deaf.reset();
    server.until_alone();
}

#[test]
fn a_client_that_never_reads_is_cut_in_the_end() {
    // It takes the half minute that a slow client is given.
    let server = Server::with(SMALL);
    let mut deaf = server.connect();
    deaf.ask("LOCK key").ticket();
    deaf.set_write_timeout(200);
    let echo = request(&[b"ECHO", &[b'a'; 15_000]]);
    while deaf.try_write(&echo).is_ok() {}
    let mut next = server.connect();
    until("its lock is free", || next.ask("LOCK key").word() == "go");
}

#[test]
fn there_are_as_many_connections_as_the_config_allows() {
    let server = Server::with("[limits]\nconnections_max = 5\n");
    server.until_alone();
    let mut wires: Vec<Wire> = Vec::new();
    until("five are there", || {
        let mut wire = server.connect();
        // One that only pings would be answered.
        wire.send("CLIENT ID");
        let answer = wire.try_read().ok();
        let is_refused = matches!(&answer, Some(Value::Error(text)) if text.starts_with(
            "BUSY limits.connections_max (5) reached"
        ));
        if is_refused {
            assert!(wire.is_closed());
        } else {
            wires.push(wire);
        }
        is_refused
    });
    // The one that was counted by `until_alone` may just have gone.
    assert!((4..=5).contains(&wires.len()), "{}", wires.len());
    for wire in &mut wires {
        assert_eq!(wire.ask("PING").text(), "PONG");
    }
    drop(wires);
    until("there is room again", || {
        let mut wire = server.connect();
        wire.try_write(&request(&[b"PING"])).is_ok()
            && wire.try_read().is_ok_and(|pong| pong.text() == "PONG")
    });
}

#[test]
fn no_client_holds_or_waits_for_more_than_the_config_allows() {
    let server = Server::with(SMALL);
    let mut wire = server.connect();
    for number in 0..3 {
        wire.ask(&format!("LOCK key-{number}")).ticket();
    }
    for more in [
        "LOCK key-3",
        "TAKE one",
        "REG.ASK few",
        "ASK desk ASYNC",
        "POOL.OFFER one x",
    ] {
        let held = "BUSY limits.held_max (3) reached";
        wire.ask(more).is_error(held);
    }
    let mut other = server.connect();
    assert_eq!(other.ask("LOCK key-3").word(), "go", "nothing is lost");
    assert_eq!(other.ask("TAKE one").word(), "go");
    assert_eq!(other.ask("LEN desk").to_string(), "[0 0]");
    let mut third = server.connect();
    third.ask("ASK desk ASYNC").ticket();
    third.ask("ASK desk ASYNC").ticket();
    for more in [
        "ASK desk",
        "TAKE one WAIT 10",
        "LOCK key-3 WAIT 10",
        "REG.ASK few",
    ] {
        let waits = "BUSY limits.waiters_max (2) reached";
        third.ask(more).is_error(waits);
    }
}

#[test]
#[allow(clippy::too_many_lines, reason = "one table of mistakes")]
fn mistakes_are_told_in_words_that_help() {
    let server = Server::with(SMALL);
    let mut wire = server.connect();
    let ticket = wire.ask("LOCK held").ticket();
    for (line, answer) in [
        ("LOK key", "ERR unknown command \"LOK\": did you mean LOCK?"),
        (
            "FLUSHALL",
            "ERR unknown command \"FLUSHALL\": no values are stored here",
        ),
        (
            "NONSENSE",
            "ERR unknown command \"NONSENSE\": COMMAND LIST shows all commands.",
        ),
        (
            "LOCK",
            "ERR wrong number of arguments for 'LOCK': write LOCK key [PER n]",
        ),
        (
            "TAKE",
            "ERR wrong number of arguments for 'TAKE': write TAKE pool|@group",
        ),
        ("LOCK key FOR ever", "ERR LOCK does not know \"FOR\"."),
        (
            "TAKE one FOO",
            "ERR TAKE does not know \"FOO\". It takes pool|@group [WAIT ms]",
        ),
        (
            "TAKE one WAIT",
            "ERR WAIT needs milliseconds, and nothing follows.",
        ),
        (
            "TAKE one WAIT -1",
            "ERR WAIT takes milliseconds, not \"-1\".",
        ),
        (
            "TAKE one WAIT 1.5",
            "ERR WAIT takes milliseconds, not \"1.5\".",
        ),
        (
            "TAKE one WAIT 18446744073709551616",
            "ERR WAIT takes milliseconds from 0 to 30000, not \"18446744073709551616\".",
        ),
        (
            "LOCK key PER 99999999999999",
            "ERR PER takes units from 0 to 1099511627776, not",
        ),
        (
            "LOCK key UNITS 0",
            "ERR UNITS takes units from 1 to 4294967295, not \"0\".",
        ),
        (
            "AWAIT x",
            "NOSUCH ticket \"x\": a ticket is what a grant answered with",
        ),
        ("TAKE none", "NOSUCH pool \"none\": "),
        ("TAKE @none", "NOSUCH pool \"@none\": "),
        ("ASK none", "NOSUCH broker \"none\": "),
        ("REG.ASK none", "NOSUCH regulator \"none\": "),
        (
            "REG.UPDATE few soon",
            "ERR REG.UPDATE takes microseconds, not \"soon\".",
        ),
        ("SELECT 1", "ERR there is one database: SELECT 0."),
        ("HELLO 4", "NOPROTO this server speaks versions 2 and 3"),
        (
            "CLIENT KILL me",
            "NOAUTH this is not open to all: use the command line of Rideau on the server's",
        ),
        ("SESSION", "ERR wrong number of arguments for 'SESSION'"),
        ("SESSION DANCE", "ERR SESSION does not know \"DANCE\"."),
        ("SESSION ATTACH s-1", "NOSUCH session \"s-1\": "),
        ("SESSION CLOSE", "ERR this connection is in no session"),
        (
            "SESSION OPEN TTL 0",
            "ERR TTL takes milliseconds from 1 to 604800000, not \"0\".",
        ),
        (
            "AUTH secret",
            "ERR there is no password here: the config has no users",
        ),
        ("AUTH anna secret", "WRONGPASS there is no such user."),
        ("HELLO 3 AUTH default x", "ERR there is no password here"),
        ("RELEASE l-1 MAYBE", "NOSUCH ticket"),
    ] {
        wire.ask(line).is_error(answer);
    }
    wire.ask(&format!("RELEASE {ticket} MAYBE"))
        .is_error("ERR RELEASE takes OK or FAIL");
    wire.ask(&format!("DONE {ticket}")).is_error("WRONGTYPE");
    wire.ask(&format!("REG.DONE {ticket}"))
        .is_error("WRONGTYPE");
    wire.ask(&format!("AWAIT {ticket}")).is_error("ERR \"");
    wire.ask(&format!("AWAIT.END {ticket}"))
        .is_error("WRONGTYPE");
    assert_eq!(wire.ask("HELD").parts().len(), 1);
}

#[test]
fn names_are_short_and_text() {
    let server = Server::with(SMALL);
    let mut wire = server.connect();
    let (bad, long): (&[u8], &[u8]) = (b"\xff\xfe", &[b'k'; 17]);
    wire.ask_words(&[b"LOCK", bad])
        .is_error("ERR a key has 1 to 16 bytes (limits.name_len_max) of UTF-8");
    wire.ask_words(&[b"LOCK", long])
        .is_error("ERR a key has 1 to 16 bytes");
    wire.ask_words(&[b"LOCK", b""])
        .is_error("ERR a key has 1 to 16 bytes");
    wire.ask_words(&[b"TAKE", bad])
        .is_error("ERR TAKE takes a pool, or @group in UTF-8");
    wire.ask_words(&[b"ASK", bad])
        .is_error("ERR ASK takes a broker in UTF-8");
    wire.ask_words(&[b"TAKE", b"one", b"NOTE", bad])
        .is_error("ERR NOTE takes a short text");
    let note = [b'n'; 65];
    wire.ask_words(&[b"TAKE", b"one", b"NOTE", &note])
        .is_error("ERR NOTE has 0 to 64 bytes");
    let nonce = [b'n'; 129];
    wire.ask_words(&[b"TAKE", b"one", b"ID", &nonce])
        .is_error("ERR ID has 1 to 128 bytes");
    wire.ask_words(&[b"CLIENT", b"SETNAME", b"a b"])
        .is_error("ERR the name of a connection has 0 to 16 bytes");
    wire.ask_words(&[b"CLIENT", b"SETINFO", b"LIB-NAME", b"a b"])
        .is_error("ERR CLIENT SETINFO");
    wire.ask_words(&[bad])
        .is_error("ERR unknown command \"\\xff\\xfe\"");
    assert_eq!(wire.ask("HELD").parts().len(), 0);
}

const USERS: &str = r#"
[user.anna]
password_file = "{secret}"
allow = ["lock", "unlock", "session", "held"]
on = ["lock:anna/*"]

[user.bert]
password_file = "{secret}"
allow = ["@all", "@admin"]

[pool.one]
member = { list = ["m1"] }

[lock."*"]
"#;

fn login(server: &Server, user: &str) -> Wire {
    let mut wire = server.connect();
    let words: [&[u8]; 3] = [b"AUTH", user.as_bytes(), b"open sesame"];
    assert_eq!(wire.ask_words(&words).text(), "OK");
    wire
}

#[test]
fn a_client_that_has_not_logged_in_may_do_nothing() {
    let server = Server::with(USERS);
    let mut wire = server.connect();
    for line in ["LOCK anna/1", "TAKE one", "HELD", "SESSION OPEN", "LOCK.LS"] {
        wire.ask(line).is_error("NOAUTH");
    }
    wire.ask("HELLO 3").is_error("NOAUTH");
    wire.ask("AUTH anna wrong")
        .is_error("WRONGPASS the user or the password is wrong.");
    wire.ask("AUTH nobody wrong")
        .is_error("WRONGPASS the user or the password is wrong.");
    wire.ask("HELLO 3 AUTH anna wrong").is_error("WRONGPASS");
    wire.ask("CLIENT LIST").is_error("NOAUTH");
    wire.ask("CLIENT KILL 1").is_error("NOAUTH");
    wire.ask("LOCK anna/1").is_error("NOAUTH");
}

#[test]
fn users_have_only_their_rights_and_their_tickets() {
    let server = Server::with(USERS);
    let (mut anna, mut bert) = (login(&server, "anna"), login(&server, "bert"));
    let ticket = anna.ask("LOCK anna/1").ticket();
    anna.ask("LOCK bert/1")
        .is_error("NOPERM user anna may not use lock bert/1");
    anna.ask("TAKE one")
        .is_error("NOPERM user anna may not use TAKE: add \"take\"");
    anna.ask("CLIENT LIST").is_error("NOPERM");
    bert.ask(&format!("RELEASE {ticket}"))
        .is_error("NOPERM ticket");
    let session = anna.ask("SESSION OPEN").at(0).text();
    bert.ask(&format!("SESSION ATTACH {session}"))
        .is_error("NOSUCH session");
    assert_eq!(bert.ask("SESSION LS").parts().len(), 0);
    anna.ask_words(&[b"AUTH", b"bert", b"open sesame"]);
    assert_eq!(
        bert.ask("LOCK.STAT anna/1").field("held").int(),
        0,
        "anna is gone"
    );
    anna.ask("TAKE one").ticket();
    assert_eq!(
        anna.ask("SESSION LS").parts().len(),
        0,
        "not on anna's account"
    );
    assert_eq!(anna.ask("HELD").parts().len(), 1);
}
