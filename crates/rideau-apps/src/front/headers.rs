//! What requests and answers say besides what they are: fields on their way
//! through.

#[cfg(test)]
mod tests;

use std::time::Duration;

use rideau_core::apps::is_stream_type;

use super::conn::ClientConn;
use super::ids::Id;
use crate::http1::fields::{Fields, is, put, put_number, tokens};
use crate::http1::head::{is_text, is_token, length};

/// How a head ends.
pub(super) const END: &[u8] = b"\r\n";

pub(super) const REQUEST_ID: &str = "X-Request-Id";
pub(super) const COLD: &str = "X-Rideau-Cold";
pub(super) const ERROR: &str = "X-Rideau-Error";
pub(super) const SERVER_TIMING: &str = "Server-Timing";
pub(super) const HSTS: &str = "Strict-Transport-Security";
const CONTENT_LENGTH: &str = "Content-Length";

/// What to do with a field on its way to a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// It is handed on, if the connection does not name it.
    Plain,
    /// It is of one connection, or of us alone, or said anew.
    Dropped,
    Host,
    /// The client that the peer says it speaks for.
    ForwardedFor,
    /// What else it says of another client that it speaks for. A peer that only
    /// connects to us is not believed.
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

/// Field names that some apps read the same with `_` instead of `-`.
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
/// Bytes of an id that was made elsewhere.
const ID_MAX: usize = 200;

/// The fields that the front adds for a process.
pub(super) struct Toward<'a> {
    pub(super) conn: &'a ClientConn,
    pub(super) id: &'a Id,
    /// When the request came, since 1970.
    pub(super) came: Duration,
    /// The connection names fields that are of it alone.
    pub(super) names_fields: bool,
    /// The host, if it is said elsewhere than in the fields.
    pub(super) host: Option<&'a [u8]>,
    /// How the path began that the process does not see.
    pub(super) prefix: Option<&'a str>,
}

/// Write what a client said as a process gets it, but for how long the body is.
pub(super) fn to_process(out: &mut Vec<u8>, fields: Fields<'_>, toward: &Toward<'_>) {
    let conn = toward.conn;
    let named = match toward.names_fields {
        true => named(fields.all("connection")),
        false => Vec::new(),
    };
    let mut forwarded_for = Vec::new();
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
                if conn.is_trusted {
                    forwarded_for.extend_from_slice(value);
                    forwarded_for.extend_from_slice(b", ");
                }
                false
            }
            Kind::Claim(Claim::Prefix) => conn.is_trusted && toward.prefix.is_none(),
            Kind::Claim(claim) => {
                if let Some(claimed) = claimed.get_mut(claim as usize) {
                    *claimed = conn.is_trusted;
                }
                conn.is_trusted
            }
            Kind::Start => {
                has_start |= conn.is_trusted;
                conn.is_trusted
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
    put_forwarded(out, conn, forwarded_for, host, claimed);
    if let Some(prefix) = toward.prefix {
        put(out, "X-Forwarded-Prefix", prefix);
    }
    put(out, REQUEST_ID, toward.id);
    if !has_start {
        put_start(out, toward.came);
    }
}

/// Write which client the peer speaks for, by its own words if it is trusted: it has
/// said `forwarded_for` and claimed the others, or not.
fn put_forwarded(
    out: &mut Vec<u8>,
    conn: &ClientConn,
    mut forwarded_for: Vec<u8>,
    host: Option<&[u8]>,
    claimed: [bool; 3],
) {
    if conn.is_trusted {
        forwarded_for.extend_from_slice(conn.peer_text.as_bytes());
        put(out, "X-Forwarded-For", forwarded_for);
        let said = [
            ("X-Forwarded-Proto", conn.scheme().as_bytes()),
            ("X-Forwarded-Host", host.unwrap_or_default()),
            ("X-Forwarded-Port", conn.port.as_bytes()),
        ];
        for ((name, value), is_claimed) in said.into_iter().zip(claimed) {
            // What it says is about the client, and we only see it.
            if !is_claimed && !value.is_empty() {
                put(out, name, value);
            }
        }
    } else {
        out.extend_from_slice(&conn.told);
        if let Some(host) = host {
            put(out, "X-Forwarded-Host", host);
        }
    }
}

/// The facts in an answer's head that concern the front.
#[derive(Default, PartialEq, Eq, Debug)]
pub(super) struct Noted {
    pub(super) length: Option<u64>,
    pub(super) is_chunked: bool,
    /// It closes the connection.
    pub(super) closes: bool,
    pub(super) keeps: bool,
    pub(super) has_date: bool,
    /// It wants each part of its answer to be sent as it comes.
    pub(super) is_live: bool,
    /// By its type it is a stream, which has no end of its own.
    pub(super) is_stream: bool,
    /// The protocol that it goes on with.
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
                self.is_stream = is_stream_type(value);
                self.is_live |= self.is_stream;
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

/// Whether an app says by itself that clients should stay within TLS.
pub(super) fn has_hsts(written: &[u8]) -> bool {
    written.split(|byte| *byte == b'\n').any(|line| {
        let name = line.get(..HSTS.len()).unwrap_or_default();
        is(name, HSTS) && line.get(HSTS.len()) == Some(&b':')
    })
}

/// What follows an answer, as far as it makes sense there: what says which host a
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
pub(super) fn id_of(fields: Fields<'_>, conn: &ClientConn, make: impl FnOnce() -> Id) -> Id {
    if !conn.is_trusted {
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

/// Is it a call whose sides may speak at the same time?
pub(super) fn is_grpc(kind: &[u8]) -> bool {
    let grpc = "application/grpc";
    kind.get(..grpc.len()).is_some_and(|kind| is(kind, grpc))
}

/// The names in `Connection`: fields of this hop alone.
fn named<'a>(values: impl Iterator<Item = &'a [u8]>) -> Vec<&'a [u8]> {
    // Those that say which host a message is for, and where it ends, are not for
    // its sender to take out.
    let known = ["close", "keep-alive", "upgrade", "host", CONTENT_LENGTH];
    let is_own = |name: &&[u8]| !known.iter().any(|known| is(name, known));
    values.flat_map(tokens).filter(is_own).collect()
}

fn kind_of(name: &[u8]) -> Kind {
    if is(name, "host") {
        // Every request has it.
        return Kind::Host;
    }
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

/// When a request came, for apps that measure queues.
fn put_start(out: &mut Vec<u8>, came: Duration) {
    let micros = u64::try_from(came.as_micros()).unwrap_or(u64::MAX);
    out.extend_from_slice(b"X-Request-Start: t=");
    out.extend_from_slice(itoa::Buffer::new().format(micros).as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Write how long a body is.
pub(super) fn put_length(out: &mut Vec<u8>, len: u64) {
    put_number(out, CONTENT_LENGTH, len);
}

/// A head that more can be added to.
pub(super) fn open(head: &[u8]) -> &[u8] {
    head.strip_suffix(END).unwrap_or(head)
}
