//! What requests and answers say besides what they are: fields on their way
//! through.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::fields::{Fields, is, put, put_number, tokens};
use super::http1::{is_text, is_token, length};
use super::ids::Id;
use super::seat::Seat;

pub(super) const REQUEST_ID: &str = "X-Request-Id";
pub(super) const COLD: &str = "X-Rideau-Cold";
pub(super) const ERROR: &str = "X-Rideau-Error";
pub(super) const SERVER_TIMING: &str = "Server-Timing";
const CONTENT_LENGTH: &str = "Content-Length";

/// What becomes of a field on its way to a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// It is handed on, if the connection does not name it.
    Plain,
    /// It is of one connection, or of us alone, or said anew.
    Dropped,
    Host,
    /// For whom the client says it speaks.
    ForwardedFor,
    /// What else it says of another whom it speaks for. Who only connects to us
    /// is not believed.
    Claim(Claim),
    /// When the request came.
    Start,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Claim {
    Proto,
    Host,
    Port,
    Prefix,
    Other,
}

/// What some apps take for the same with lines instead of dashes.
const UNDERLINED: [&str; 8] = [
    "x-rideau-",
    "x-forwarded-",
    "x-request-",
    "x-real-ip",
    "forwarded",
    "content-length",
    "transfer-encoding",
    "host",
];
/// Ours alone.
const OURS: &str = "x-rideau-";
/// As much of a name is looked at.
const NAME_MAX: usize = 32;
/// Bytes of an id that somebody else made.
const ID_MAX: usize = 200;

/// What a process is told besides what the client said.
pub(super) struct Toward<'a> {
    pub(super) seat: &'a Seat,
    pub(super) id: &'a Id,
    /// When the request came.
    pub(super) came: SystemTime,
    /// The connection names fields that are of it alone.
    pub(super) names_fields: bool,
    /// The host, if it is said elsewhere than in the fields.
    pub(super) host: Option<&'a [u8]>,
    /// How the path began that the process does not see.
    pub(super) prefix: Option<&'a str>,
}

/// Write what a client said as a process gets it, but for how long the body is.
pub(super) fn to_process(out: &mut Vec<u8>, fields: Fields<'_>, toward: &Toward<'_>) {
    let seat = toward.seat;
    let named = match toward.names_fields {
        true => named(fields.all("connection")),
        false => Vec::new(),
    };
    let mut whom = Vec::new();
    let mut host = toward.host;
    let mut claimed = [false; 3];
    let mut has_start = false;
    for (name, value) in fields.iter() {
        let is_passed = match kind_of(name) {
            Kind::Dropped => false,
            Kind::Plain => !named.iter().any(|named| named.eq_ignore_ascii_case(name)),
            Kind::Host => {
                let is_said_here = toward.host.is_none();
                host = host.or(Some(value));
                is_said_here
            }
            Kind::ForwardedFor => {
                if seat.is_trusted {
                    whom.extend_from_slice(value);
                    whom.extend_from_slice(b", ");
                }
                false
            }
            Kind::Claim(Claim::Prefix) => seat.is_trusted && toward.prefix.is_none(),
            Kind::Claim(claim) => {
                if let Some(claimed) = claimed.get_mut(claim as usize) {
                    *claimed = seat.is_trusted;
                }
                seat.is_trusted
            }
            Kind::Start => {
                has_start |= seat.is_trusted;
                seat.is_trusted
            }
        };
        if is_passed {
            out.extend_from_slice(name);
            out.extend_from_slice(b": ");
            out.extend_from_slice(value);
            out.extend_from_slice(b"\r\n");
        }
    }
    if let Some(host) = toward.host {
        put(out, "Host", host);
    } else if host.is_none() {
        // Old clients do not say, and processes want to know.
        put(out, "Host", "localhost");
    }
    put_forwarded(out, seat, whom, host, claimed);
    if let Some(prefix) = toward.prefix {
        put(out, "X-Forwarded-Prefix", prefix);
    }
    put(out, REQUEST_ID, toward.id);
    if !has_start {
        put_start(out, toward.came);
    }
}

/// Write for whom a client speaks, by its own words if it is trusted: it has said
/// `whom` and claimed the others, or not.
fn put_forwarded(
    out: &mut Vec<u8>,
    seat: &Seat,
    mut whom: Vec<u8>,
    host: Option<&[u8]>,
    claimed: [bool; 3],
) {
    if seat.is_trusted {
        whom.extend_from_slice(seat.peer_text.as_bytes());
        put(out, "X-Forwarded-For", whom);
        let said = [
            ("X-Forwarded-Proto", seat.scheme().as_bytes()),
            ("X-Forwarded-Host", host.unwrap_or_default()),
            ("X-Forwarded-Port", seat.port.as_bytes()),
        ];
        for ((name, value), is_claimed) in said.into_iter().zip(claimed) {
            // What it says is about the client, and we only see it.
            if !is_claimed && !value.is_empty() {
                put(out, name, value);
            }
        }
    } else {
        out.extend_from_slice(&seat.told);
        if let Some(host) = host {
            put(out, "X-Forwarded-Host", host);
        }
    }
}

/// What a process says of its answer, besides what is handed on.
#[derive(Default, PartialEq, Eq, Debug)]
pub(super) struct Noted {
    pub(super) length: Option<u64>,
    pub(super) is_chunked: bool,
    /// What it says of the connection.
    pub(super) closes: bool,
    pub(super) keeps: bool,
    pub(super) has_date: bool,
    /// It wants each part of its answer to be sent as it comes.
    pub(super) is_live: bool,
    /// What it goes on with.
    pub(super) upgrade: Option<Vec<u8>>,
}

/// Write what a process said as a client gets it, but for how long the body is.
/// None if that makes no sense.
pub(super) fn to_client(out: &mut Vec<u8>, fields: &[httparse::Header<'_>]) -> Option<Noted> {
    let mut noted = Noted::default();
    let connection = fields.iter().filter(|field| is_connection(field));
    let named = named(connection.map(|field| field.value));
    for field in fields {
        let (name, value) = (field.name, field.value.trim_ascii());
        if !noted.note(name.as_bytes(), value)? {
            continue;
        }
        if named.iter().any(|named| is(named, name)) {
            continue;
        }
        put(out, name, value);
    }
    if noted.is_chunked {
        // Chunks count.
        noted.length = None;
    }
    Some(noted)
}

fn is_connection(field: &httparse::Header<'_>) -> bool {
    field.name.eq_ignore_ascii_case("connection")
}

impl Noted {
    /// Note a field; says whether it is handed on, and none if it makes no sense.
    fn note(&mut self, name: &[u8], value: &[u8]) -> Option<bool> {
        match name.len() {
            2 if is(name, "te") => return Some(false),
            4 if is(name, "date") => self.has_date = true,
            7 if is(name, "upgrade") => {
                self.upgrade = Some(value.to_vec());
                return Some(false);
            }
            10 if is(name, "connection") => {
                for word in tokens(value) {
                    self.closes |= is(word, "close");
                    self.keeps |= is(word, "keep-alive");
                }
                return Some(false);
            }
            10 if is(name, "keep-alive") => return Some(false),
            12 if is(name, REQUEST_ID) => return Some(false),
            12 if is(name, "content-type") => {
                let start = value.get(..EVENTS.len());
                self.is_live |= start.is_some_and(|kind| is(kind, EVENTS));
            }
            14 if is(name, CONTENT_LENGTH) => {
                let len = length(value)?;
                if self.length.is_some_and(|known| known != len) {
                    return None;
                }
                self.length = Some(len);
                return Some(false);
            }
            16 if is(name, "proxy-connection") => return Some(false),
            17 if is(name, "x-accel-buffering") => self.is_live |= is(value, "no"),
            17 if is(name, "transfer-encoding") => {
                if !is(value, "chunked") || self.is_chunked {
                    return None;
                }
                self.is_chunked = true;
                return Some(false);
            }
            19 if is(name, "proxy-authorization") => return Some(false),
            _ => (),
        }
        Some(true)
    }
}

const EVENTS: &str = "text/event-stream";

/// What follows an answer, as far as it makes sense there: what says whom a
/// message is for, or where it ends, does not.
pub(super) fn trailers(written: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for line in written.split(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let Some(colon) = memchr::memchr(b':', line) else {
            continue;
        };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        let is_sound = is_token(name) && is_text(value);
        if is_sound && kind_of(name) == Kind::Plain && !is(name, "trailer") {
            out.extend_from_slice(name);
            out.extend_from_slice(b": ");
            out.extend_from_slice(value);
            out.extend_from_slice(b"\r\n");
        }
    }
    out
}

/// How long it waited for its place, and for its answer.
pub(super) fn timing(waited: Duration, took: Duration) -> String {
    let millis = |span: Duration| span.as_secs_f64() * 1000.0;
    format!(
        "queue;dur={:.1}, app;dur={:.1}",
        millis(waited),
        millis(took)
    )
}

/// The id of a request: what a trusted client says, or a new one.
pub(super) fn id_of(fields: Fields<'_>, seat: &Seat, make: impl FnOnce() -> Id) -> Id {
    if !seat.is_trusted {
        return make();
    }
    let is_good =
        |id: &&[u8]| (1..=ID_MAX).contains(&id.len()) && id.iter().all(u8::is_ascii_graphic);
    let said = fields.get(REQUEST_ID).filter(is_good);
    said.map_or_else(make, |id| Id::Theirs(id.into()))
}

/// The protocols that a client wants to go on with.
pub(super) fn upgrade_of(fields: Fields<'_>) -> Option<Vec<u8>> {
    let wanted = fields.get("upgrade")?;
    // That one is for us to take, and we speak it only where it was agreed on.
    (!is(wanted, "h2c")).then(|| wanted.to_vec())
}

/// Does it read HTML?
pub(super) fn reads_html(kinds: &[u8]) -> bool {
    memchr::memmem::find(kinds, b"text/html").is_some()
}

/// What a connection says is of it alone, besides what always is.
fn named<'a>(values: impl Iterator<Item = &'a [u8]>) -> Vec<&'a [u8]> {
    // Those that say whom a message is for, and where it ends, are not for one
    // who sends it to take out.
    let known = ["close", "keep-alive", "upgrade", "host", CONTENT_LENGTH];
    let is_own = |name: &&[u8]| !known.iter().any(|known| is(name, known));
    values.flat_map(tokens).filter(is_own).collect()
}

fn kind_of(name: &[u8]) -> Kind {
    // Most begin with another letter, and have no line in them.
    let first = name.first().map_or(0, u8::to_ascii_lowercase);
    let may_be_known = matches!(
        first,
        b'h' | b'c' | b'k' | b'p' | b't' | b'u' | b'x' | b'e' | b'f'
    );
    if !may_be_known && !name.contains(&b'_') {
        return Kind::Plain;
    }
    let mut room = [0; NAME_MAX];
    let len = name.len().min(NAME_MAX);
    let lower = &mut room[..len];
    lower.copy_from_slice(&name[..len]);
    lower.make_ascii_lowercase();
    match &*lower {
        b"host" => return Kind::Host,
        b"connection" | b"keep-alive" | b"proxy-connection" | b"proxy-authorization" | b"te"
        | b"transfer-encoding" | b"content-length" | b"upgrade" | b"x-request-id"
        // The client was told to go on, and the process need not. What is called
        // a proxy is taken for one by some.
        | b"expect" | b"proxy" => return Kind::Dropped,
        b"x-forwarded-for" => return Kind::ForwardedFor,
        b"x-forwarded-proto" => return Kind::Claim(Claim::Proto),
        b"x-forwarded-host" => return Kind::Claim(Claim::Host),
        b"x-forwarded-port" => return Kind::Claim(Claim::Port),
        b"x-forwarded-prefix" => return Kind::Claim(Claim::Prefix),
        b"forwarded" | b"x-real-ip" => return Kind::Claim(Claim::Other),
        b"x-request-start" => return Kind::Start,
        _ => (),
    }
    if lower.starts_with(OURS.as_bytes()) {
        return Kind::Dropped;
    }
    if lower.starts_with(b"x-forwarded-") {
        return Kind::Claim(Claim::Other);
    }
    if memchr::memchr(b'_', lower).is_none() {
        return Kind::Plain;
    }
    // An app may take it for another.
    for byte in lower.iter_mut().filter(|byte| **byte == b'_') {
        *byte = b'-';
    }
    let is_disguised = UNDERLINED
        .iter()
        .any(|known| lower.starts_with(known.as_bytes()));
    match is_disguised {
        true => Kind::Dropped,
        false => Kind::Plain,
    }
}

/// When a request came, for those who measure queues.
fn put_start(out: &mut Vec<u8>, came: SystemTime) {
    let since = came.duration_since(UNIX_EPOCH);
    let micros = since.map_or(0, |since| {
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    });
    out.extend_from_slice(b"X-Request-Start: t=");
    out.extend_from_slice(itoa::Buffer::new().format(micros).as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Write how long a body is.
pub(super) fn put_length(out: &mut Vec<u8>, len: u64) {
    put_number(out, CONTENT_LENGTH, len);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::front::fields::Span;

    fn seat(is_trusted: bool) -> Seat {
        let peer = "10.0.0.9:5000".parse().expect("an address");
        Seat::new(peer, 3000, true, is_trusted)
    }

    /// Fields as a client sends them, and where they are.
    fn written(fields: &[(&str, &str)]) -> (Vec<u8>, Vec<Span>) {
        let (mut bytes, mut spans) = (Vec::new(), Vec::new());
        let at = |bytes: &Vec<u8>| u32::try_from(bytes.len()).expect("it is short");
        for (name, value) in fields {
            let start = at(&bytes);
            bytes.extend_from_slice(name.as_bytes());
            let colon = at(&bytes);
            bytes.extend_from_slice(format!(": {value}").as_bytes());
            let end = at(&bytes);
            spans.push(Span { start, colon, end });
        }
        (bytes, spans)
    }

    fn with<T>(fields: &[(&str, &str)], look: impl FnOnce(Fields<'_>) -> T) -> T {
        let (bytes, spans) = written(fields);
        look(Fields::new(&bytes, &spans))
    }

    /// What is written as fields, by names in small letters.
    fn read(written: &[u8]) -> Vec<(String, String)> {
        let text = str::from_utf8(written).expect("text");
        let pairs = text.lines().filter_map(|line| line.split_once(": "));
        pairs
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect()
    }

    fn said<'a>(fields: &'a [(String, String)], name: &str) -> Option<&'a str> {
        let named = fields.iter().find(|(known, _)| known == name);
        named.map(|(_, value)| value.as_str())
    }

    fn passed(fields: &[(&str, &str)], is_trusted: bool) -> Vec<(String, String)> {
        let mut out = Vec::new();
        let toward = Toward {
            seat: &seat(is_trusted),
            id: &Id::Theirs(b"id-1".as_slice().into()),
            came: SystemTime::now(),
            names_fields: true,
            host: None,
            prefix: None,
        };
        with(fields, |fields| to_process(&mut out, fields, &toward));
        read(&out)
    }

    const CLAIMED: [(&str, &str); 7] = [
        ("Host", "a.example"),
        ("X-Forwarded-For", "1.1.1.1"),
        ("X-Forwarded-Proto", "ftp"),
        ("X-Forwarded-Host", "evil"),
        ("X-Forwarded-Port", "1"),
        ("Forwarded", "for=1.1.1.1"),
        ("X-Real-IP", "1.1.1.1"),
    ];

    #[test]
    fn a_stranger_is_not_believed_about_whom_it_asks_for() {
        let headers = passed(&CLAIMED, false);
        assert_eq!(said(&headers, "x-forwarded-for"), Some("10.0.0.9"));
        assert_eq!(said(&headers, "x-forwarded-proto"), Some("https"));
        assert_eq!(said(&headers, "x-forwarded-host"), Some("a.example"));
        assert_eq!(said(&headers, "x-forwarded-port"), Some("3000"));
        assert_eq!(said(&headers, "forwarded"), None);
        assert_eq!(said(&headers, "x-real-ip"), None);
        assert_eq!(said(&headers, "host"), Some("a.example"));
    }

    #[test]
    fn one_who_is_trusted_is_added_to() {
        let headers = passed(&CLAIMED, true);
        assert_eq!(said(&headers, "x-forwarded-for"), Some("1.1.1.1, 10.0.0.9"));
        assert_eq!(said(&headers, "x-forwarded-proto"), Some("ftp"));
        assert_eq!(said(&headers, "x-forwarded-host"), Some("evil"));
        assert_eq!(said(&headers, "x-forwarded-port"), Some("1"));
    }

    #[test]
    fn what_is_of_one_connection_only_goes_no_further() {
        let fields = [
            ("Connection", "close, X-Secret"),
            ("Connection", "keep-alive, host, content-length"),
            ("X-Secret", "1"),
            ("Keep-Alive", "timeout=5"),
            ("TE", "trailers"),
            ("Upgrade", "h2c"),
            ("Proxy-Connection", "close"),
            ("Proxy", "evil"),
            ("Host", "a.example"),
            ("Content-Length", "3"),
            ("Expect", "100-continue"),
        ];
        let headers = passed(&fields, false);
        let mut names: Vec<&str> = headers.iter().map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        // How long it is is said anew.
        let expected = [
            "host",
            "x-forwarded-for",
            "x-forwarded-host",
            "x-forwarded-port",
            "x-forwarded-proto",
            "x-request-id",
            "x-request-start",
        ];
        assert_eq!(names, expected);
        let start = said(&headers, "x-request-start").expect("it is there");
        let micros: u64 = start
            .strip_prefix("t=")
            .expect("a mark")
            .parse()
            .expect("a number");
        assert!(micros > 1_600_000_000_000_000);
    }

    #[test]
    fn our_own_names_and_their_disguises_are_dropped() {
        let fields = [
            ("X-Rideau-Cold", "1"),
            ("X_Rideau_Cold", "1"),
            ("x-rideau_error", "1"),
            ("X_Forwarded_For", "1.1.1.1"),
            ("Content_Length", "9"),
            ("my_own", "kept"),
        ];
        let headers = passed(&fields, true);
        assert_eq!(said(&headers, "my_own"), Some("kept"));
        assert!(!headers.iter().any(|(name, _)| name.contains("rideau")));
        assert_eq!(said(&headers, "x_forwarded_for"), None);
        assert_eq!(said(&headers, "content_length"), None);
    }

    #[test]
    fn who_does_not_say_whom_it_asks_for_is_helped() {
        assert_eq!(said(&passed(&[], false), "host"), Some("localhost"));
    }

    #[test]
    fn only_a_trusted_id_is_kept() {
        let id = |fields: &[(&str, &str)], is_trusted| {
            with(fields, |fields| {
                let made = || Id::Theirs(b"made".as_slice().into());
                id_of(fields, &seat(is_trusted), made).to_string()
            })
        };
        assert_eq!(id(&[("X-Request-Id", "theirs")], true), "theirs");
        assert_eq!(id(&[("X-Request-Id", "theirs")], false), "made");
        assert_eq!(id(&[("X-Request-Id", "a b")], true), "made");
        assert_eq!(id(&[], true), "made");
    }

    fn answered(fields: &[(&'static str, &'static str)]) -> Option<(Vec<u8>, Noted)> {
        let field = |&(name, value): &(&'static str, &'static str)| httparse::Header {
            name,
            value: value.as_bytes(),
        };
        let fields: Vec<_> = fields.iter().map(field).collect();
        let mut out = Vec::new();
        let noted = to_client(&mut out, &fields)?;
        Some((out, noted))
    }

    #[test]
    fn an_answer_loses_what_was_for_us() {
        let fields = [
            ("Connection", "close, x-internal"),
            ("X-Internal", "1"),
            ("Transfer-Encoding", "chunked"),
            ("Content-Length", "7"),
            ("Content-Type", "text/plain"),
            ("X-Request-Id", "theirs"),
        ];
        let (out, noted) = answered(&fields).expect("it makes sense");
        assert_eq!(out, b"Content-Type: text/plain\r\n");
        let expected = Noted {
            is_chunked: true,
            closes: true,
            ..Noted::default()
        };
        assert_eq!(noted, expected, "chunks count");
        let is_live = |name, value| answered(&[(name, value)]).is_some_and(|(_, it)| it.is_live);
        assert!(is_live("content-type", "Text/Event-Stream; charset=utf-8"));
        assert!(is_live("x-accel-buffering", "NO"));
        assert!(!is_live("content-type", "text/plain"));
    }

    #[test]
    fn what_follows_an_answer_is_cleaned() {
        let said = b"Digest: abc\r\nContent-Length: 3\r\nno field\r\nb\x01: 1\r\nX-Rideau-A: 1\r\n\
            x:2\r\nTransfer-Encoding: chunked\r\n";
        assert_eq!(trailers(said), b"Digest: abc\r\nx: 2\r\n");
        assert!(trailers(b"").is_empty());
    }

    #[test]
    fn an_answer_that_could_end_in_two_places_makes_no_sense() {
        let length = ("Content-Length", "7");
        assert!(answered(&[length, length]).is_some());
        assert!(answered(&[length, ("content-length", "8")]).is_none());
        assert!(answered(&[("Content-Length", "7x")]).is_none());
        assert!(answered(&[("Transfer-Encoding", "gzip, chunked")]).is_none());
        let chunked = ("Transfer-Encoding", "chunked");
        assert!(answered(&[chunked, chunked]).is_none());
    }

    #[test]
    fn what_we_speak_ourselves_is_no_upgrade() {
        let wanted = |value| with(&[("Upgrade", value)], |fields| upgrade_of(fields).is_some());
        assert!(wanted("websocket"));
        assert!(!wanted("h2c"));
        assert!(with(&[], |fields| upgrade_of(fields).is_none()));
    }
}
