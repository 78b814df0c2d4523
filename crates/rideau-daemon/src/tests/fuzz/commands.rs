//! Commands of every name, with words that any of them may stumble over.
//!
//! An input is text: a line for each command, words between spaces, bytes as
//! `\x0a`, an empty word as `\e`, and some words that stand for others.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::redis::commands::{self, About};
use rideau_core::Rng;

use super::server::{PATIENCE, Server, alone, is_sound};
use rideau_testing::fuzz::{self, Tried, below, is_once_in, one};

const USUAL: u64 = 400;
/// This many sessions have the same server.
const SESSIONS: u32 = 100;

/// What is not answered by then may wait for something.
const SOON: Duration = Duration::from_millis(100);

/// Words that are no names.
const WORDS: &[&str] = &[
    "",
    "é",
    "ÿ",
    "\u{130}",
    "\u{10ffff}",
    " ",
    "\t",
    "\r\n",
    "*",
    "?",
    "[",
    "{",
    "\\",
    "\"",
    "$1",
    "@",
    "@db",
    ":",
    "::",
    "/",
    "-",
    ".",
    ",",
    "|",
    "=",
    "#",
    "a=b",
    "a,b",
    "a:b",
    "a..b",
    "a/b",
    "0x10",
    "1e9",
    "NaN",
    "inf",
    "none",
    "null",
    "true",
    "OK",
    "FAIL",
    "NOW",
    "all",
    "x",
];

/// Numbers at the borders of what they can be.
const NUMBERS: &[&str] = &[
    "0",
    "1",
    "2",
    "3",
    "5",
    "-1",
    "-0",
    "+1",
    "00",
    "1_0",
    "10",
    "99",
    "255",
    "256",
    "1000",
    "32767",
    "65535",
    "65536",
    "2147483647",
    "2147483648",
    "-2147483648",
    "4294967295",
    "4294967296",
    "9007199254740993",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "340282366920938463463374607431768211455",
    "340282366920938463463374607431768211456",
    "99999999999999999999999999999999999999999",
    "1.5",
    "-1.5",
    "1ms",
    "5s",
    "1h",
    "0s",
];

/// Names of what there is, or may be.
const NAMES: &[&str] = &[
    "pg",
    "brought",
    "@db",
    "work",
    "few",
    "office",
    "number",
    "both",
    "key",
    "tenant/1",
    "new",
    "pool:pg",
    "broker:work",
    "lock:key",
    "conn:1",
    "user:default",
    "conn-1",
    "anna",
    "10.20.0.1",
    "10.20.0.0/29",
    "10.20.0.1-10.20.0.3",
    "10.20.0.9",
    "0.0.0.0/0",
    "10.20.0.0/33",
    "2001:db8::1",
    "2001:db8::/126",
    "::/0",
    "::ffff:10.20.0.1",
    "255.255.255.255",
    "1-9",
    "9-1",
    "5",
    "office,number",
    "office,",
    "rideau:events",
    "rideau:events:pool:pg",
    "rideau:ranges",
    "rideau:ranges:office",
    "rideau:*",
    "default",
    "server",
    "stats",
    "pool.pg.max",
    "limits.held_max",
    "server.name",
    "lock.*.per",
    "pool..max",
    "range.office.values",
    "SETNAME",
    "LIB-NAME",
    "l-00000000000000000000000000000000",
    "d-1",
    "d-ffffffffffffffff",
    "v-1-1-00000000000000000000000000000000",
    "s-0",
    "v-",
    "l-",
    "t-",
];

/// What a config may say.
const TOMLS: &[&str] = &[
    "",
    "max = 3",
    "member = { list = [\"a\", \"a\"] }",
    "member = { list = [] }",
    "member = \"offered\"",
    "values = [\"1-99\"]",
    "values = [\"10.20.0.0/8\"]",
    "values = []",
    "values = [\"0-340282366920938463463374607431768211455\"]",
    "values = [\"::/0\"]",
    "per = 1\nqueue = { kind = \"never\" }",
    "é = 1",
    "[",
    "a.b.c = 1",
    "like = \"pg\"",
    "[server]\nwait_max = \"5ms\"\nwait_default = \"2ms\"\n[pool.pg]\nmax = 1\n[lock.\"*\"]\n",
    "[server]\nwait_max = \"5ms\"\nwait_default = \"1ms\"\n[range.office]\nvalues = [\"7\"]\n",
    "queue = { kind = \"codel\" }",
    "\"lifo\"",
    "[\"1-9\", \"20\"]",
    "valve = { kind = \"open\" }",
];

#[test]
fn no_command_panics_hangs_or_keeps_what_it_held() {
    let _alone = alone();
    let mut server = Server::start();
    let mut sessions = 0;
    fuzz::run("commands", USUAL, session, |input| {
        sessions += 1;
        if sessions > SESSIONS || !server.is_unchanged() {
            sessions = 0;
            server = Server::start();
        }
        let tried = Session::begin(&server).and_then(|session| session.run(input));
        tried.and_then(|()| server.is_left_alone()).and(is_sound())
    });
}

/// Some commands, one after the other.
fn session(rng: &mut Rng) -> Vec<u8> {
    let mut text = Vec::new();
    let all: Vec<_> = commands::planted::all_but_planted().collect();
    for _ in 0..1 + below(rng, 12) {
        let about = all[below(rng, all.len())];
        let name = match is_once_in(rng, 8) {
            true => about.name.to_lowercase(),
            false => about.name.to_owned(),
        };
        put(&mut text, name.as_bytes());
        for word in arguments(rng, about) {
            text.push(b' ');
            put(&mut text, &word);
        }
        text.push(b'\n');
    }
    text
}

/// As its usage says, more or less.
fn arguments(rng: &mut Rng, about: &About) -> Vec<Vec<u8>> {
    let is_between = |c: char| c.is_whitespace() || "[]|".contains(c);
    let usage: Vec<_> = about.usage.split(is_between).collect();
    let usage: Vec<_> = usage.into_iter().filter(|word| !word.is_empty()).collect();
    if usage.is_empty() || is_once_in(rng, 5) {
        return (0..below(rng, 6)).map(|_| any(rng)).collect();
    }
    let from = match below(rng, 3) {
        0 => below(rng, usage.len()),
        _ => 0,
    };
    let len = 1 + below(rng, usage.len().min(10));
    let mut words = Vec::new();
    for part in usage[from..].iter().take(len) {
        match below(rng, 12) {
            0 => continue,
            1 => words.push(any(rng)),
            2 => {
                words.push(meant(rng, part));
                words.push(any(rng));
            }
            _ => words.push(meant(rng, part)),
        }
    }
    words
}

/// What stands in a usage, or what it stands for.
fn meant(rng: &mut Rng, part: &str) -> Vec<u8> {
    let part = part.trim_end_matches("...");
    let word = match part {
        "n" | "m" | "u" | "c" | "ms" | "microseconds" | "seconds" | "pid" | "0" | "2" => {
            one(rng, NUMBERS)
        }
        "ticket" | "ref" | "id" | "d-id" => match is_once_in(rng, 4) {
            true => one(rng, NAMES),
            false => one(rng, &["@ticket", "@ticket", "@earlier"]),
        },
        "toml" => one(rng, TOMLS),
        "text" | "message" | "payload" | "d" | "v" | "nonce" | "password" | "content" => {
            return any(rng);
        }
        _ if part.chars().any(char::is_lowercase) => match below(rng, 4) {
            0 => one(rng, WORDS),
            1 => one(rng, NUMBERS),
            _ => one(rng, NAMES),
        },
        keyword => keyword,
    };
    word.as_bytes().to_vec()
}

fn any(rng: &mut Rng) -> Vec<u8> {
    let word = match below(rng, 12) {
        0..=2 => one(rng, WORDS),
        3..=5 => one(rng, NUMBERS),
        6..=8 => one(rng, NAMES),
        9 => one(rng, &["@ticket", "@earlier", "@long", "@longer"]),
        10 => one(rng, TOMLS),
        _ => return (0..below(rng, 12)).map(|_| rng.draw() as u8).collect(),
    };
    word.as_bytes().to_vec()
}

/// Write a word so that it can be read back, and by people too.
fn put(text: &mut Vec<u8>, word: &[u8]) {
    if word.is_empty() {
        text.extend_from_slice(b"\\e");
    }
    for &byte in word {
        match byte {
            b'\\' | 0..=b' ' | 0x7f.. => {
                text.extend_from_slice(format!("\\x{byte:02x}").as_bytes());
            }
            _ => text.push(byte),
        }
    }
}

/// The bytes of a word. What is no good escape stands for itself.
fn read(word: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = word;
    while let Some((first, behind)) = rest.split_first() {
        let code = behind.strip_prefix(b"x").and_then(|behind| behind.get(..2));
        let code = code.and_then(|code| str::from_utf8(code).ok());
        let code = code.and_then(|code| u8::from_str_radix(code, 16).ok());
        (bytes, rest) = match (first, code) {
            (b'\\', Some(byte)) => ([bytes, vec![byte]].concat(), &behind[3..]),
            (b'\\', None) if behind.starts_with(b"e") => (bytes, &behind[1..]),
            _ => ([bytes, vec![*first]].concat(), behind),
        };
    }
    bytes
}

struct Session<'a> {
    server: &'a Server,
    stream: TcpStream,
    /// What was answered since the last look.
    said: Vec<u8>,
    tickets: Vec<Vec<u8>>,
    syncs: u32,
    is_closed: bool,
    /// It may wait for as long as it likes.
    is_patient: bool,
}

impl<'a> Session<'a> {
    fn begin(server: &'a Server) -> Result<Self, String> {
        let begin = || {
            let stream = TcpStream::connect(server.redis)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(SOON))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            io::Result::Ok(stream)
        };
        let stream = begin().map_err(|error| format!("cannot connect: {error}"))?;
        Ok(Self {
            server,
            stream,
            said: Vec::new(),
            tickets: Vec::new(),
            syncs: 0,
            is_closed: false,
            is_patient: false,
        })
    }

    fn run(mut self, input: &[u8]) -> Tried {
        for line in input.split(|byte| *byte == b'\n') {
            let words: Vec<_> = line.split(|byte| *byte == b' ').collect();
            if line.is_empty() || self.is_closed {
                continue;
            }
            if words.iter().any(|word| *word == b"@ticket") {
                self.sync()?;
            }
            // An end that never comes may be awaited, and waits may be made longer.
            self.is_patient |= words[0].to_ascii_uppercase().starts_with(b"AWAIT");
            self.is_patient |= words[0].eq_ignore_ascii_case(b"CONFIG");
            let words: Vec<_> = words.into_iter().map(|word| self.stand_in(word)).collect();
            self.write(&request(&words))?;
        }
        self.sync()?;
        let _ = self.stream.shutdown(Shutdown::Both);
        Ok(())
    }

    /// What a word stands for.
    fn stand_in(&self, word: &[u8]) -> Vec<u8> {
        let none = || b"l-00000000000000000000000000000001".to_vec();
        match word {
            b"@ticket" => self.tickets.last().cloned().unwrap_or_else(none),
            b"@earlier" => self.tickets.first().cloned().unwrap_or_else(none),
            b"@long" => vec![b'x'; 3000],
            b"@longer" => "é".repeat(30_000).into_bytes(),
            _ => read(word),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> Tried {
        match self.stream.write_all(bytes) {
            Ok(()) => Ok(()),
            Err(error) if is_end(&error) => {
                self.is_closed = true;
                Ok(())
            }
            Err(error) => Err(format!("it does not read: {error}")),
        }
    }

    fn is_waiting(&self) -> bool {
        let clients = self.server.daemon.clients.all();
        clients
            .iter()
            .any(|card| card.is_waiting.load(Ordering::Relaxed))
    }

    /// Wait until all that was sent is answered, or the connection is closed.
    fn sync(&mut self) -> Tried {
        self.syncs += 1;
        let word = format!("synced-{}", self.syncs);
        // Some have begun to queue what they say, and some want no answers.
        self.write(&request(&["DISCARD"]))?;
        self.write(&request(&["CLIENT", "REPLY", "ON"]))?;
        self.write(&request(&["PING", &word]))?;
        let mut part = [0; 4096];
        let until = Instant::now() + PATIENCE;
        while !self.is_closed && !has(&self.said, word.as_bytes()) {
            match self.stream.read(&mut part) {
                Ok(0) => self.is_closed = true,
                Ok(len) => self.said.extend_from_slice(&part[..len]),
                Err(error) if is_end(&error) => self.is_closed = true,
                // Then it is left alone while it waits.
                Err(_) if self.is_patient && self.is_waiting() => self.is_closed = true,
                Err(_) if Instant::now() < until => (),
                Err(error) => {
                    let said = self.said.escape_ascii();
                    return Err(format!("it does not answer: {error}; it said {said}"));
                }
            }
        }
        if has(&self.said, b"internal error ") {
            return Err(format!("it failed: {}", self.said.escape_ascii()));
        }
        let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'-';
        let words = self.said.split(|byte| !is_part(byte));
        let tickets = words.filter(|word| word.len() > 30 && word[1] == b'-');
        self.tickets.extend(tickets.map(<[u8]>::to_vec));
        self.said.clear();
        Ok(())
    }
}

fn is_end(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset};
    matches!(
        error.kind(),
        BrokenPipe | ConnectionAborted | ConnectionReset
    )
}

fn has(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

fn request(words: &[impl AsRef<[u8]>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        let word = word.as_ref();
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

#[test]
fn words_are_read_as_they_were_written() {
    for word in [
        &b""[..],
        b"a b",
        b"\\x41",
        b"\\",
        b"\\e",
        &[0, 10, 255, b'\\', b'x'],
    ] {
        let mut text = Vec::new();
        put(&mut text, word);
        assert!(!text.contains(&b' ') && !text.contains(&b'\n'));
        assert_eq!(read(&text), word, "{}", text.escape_ascii());
    }
}
