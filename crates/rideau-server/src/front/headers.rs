//! What requests and answers say besides what they are: headers on their way
//! through.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hyper::body::Bytes;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};

use super::seat::Seat;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
pub(super) const FORWARDED_PREFIX: HeaderName = HeaderName::from_static("x-forwarded-prefix");
const FORWARDED_PORT: HeaderName = HeaderName::from_static("x-forwarded-port");
pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const REQUEST_START: HeaderName = HeaderName::from_static("x-request-start");
pub(super) const COLD: HeaderName = HeaderName::from_static("x-rideau-cold");
pub(super) const ERROR: HeaderName = HeaderName::from_static("x-rideau-error");
pub(super) const REFUSED: HeaderName = HeaderName::from_static("x-rideau-refused");
const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");
pub(super) const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// Of one connection only.
fn is_of_one_hop(name: &str) -> bool {
    matches!(
        name,
        "connection"
            | "keep-alive"
            | "proxy-connection"
            | "proxy-authorization"
            | "te"
            | "transfer-encoding"
            | "upgrade"
    )
}

/// Who only connects to us is not believed about these.
fn is_claim(name: &str) -> bool {
    matches!(name, "forwarded" | "x-real-ip") || name.starts_with("x-forwarded-")
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
/// Bytes of an id that somebody else made.
const ID_MAX: usize = 200;

/// What a client said, on its way to a process.
pub(super) fn to_process(headers: &mut HeaderMap, seat: &Seat, id: &HeaderValue) {
    let is_claim = |name: &str| !seat.is_trusted && is_claim(name);
    // Hyper told the client to go on, and the process need not. What is called
    // a proxy is taken for one by some.
    let is_done = |name: &str| matches!(name, "expect" | "proxy");
    strip(headers, |name| {
        is_done(name) || is_claim(name) || is_disguised(name)
    });
    forwarded(headers, seat);
    headers.insert(REQUEST_ID, id.clone());
    if !(seat.is_trusted && headers.contains_key(REQUEST_START)) {
        headers.insert(REQUEST_START, start_now());
    }
}

/// What a process said, on its way to a client.
pub(super) fn to_client(headers: &mut HeaderMap) {
    // Chunks count, and we count them anew.
    let is_chunked = headers.contains_key(header::TRANSFER_ENCODING);
    strip(headers, |name| is_chunked && name == "content-length");
}

/// The process wants each part of its answer to be sent as it comes.
pub(super) fn is_live(headers: &HeaderMap) -> bool {
    let is_events = headers.get(header::CONTENT_TYPE).is_some_and(|kind| {
        let kind = kind.as_bytes();
        kind.len() >= EVENTS.len() && kind[..EVENTS.len()].eq_ignore_ascii_case(EVENTS)
    });
    let says_no = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"no");
    is_events || headers.get(ACCEL_BUFFERING).is_some_and(says_no)
}

const EVENTS: &[u8] = b"text/event-stream";

/// How long it waited for its place, and for its answer.
pub(super) fn timing(waited: Duration, took: Duration) -> HeaderValue {
    let millis = |span: Duration| span.as_secs_f64() * 1000.0;
    let text = format!(
        "queue;dur={:.1}, app;dur={:.1}",
        millis(waited),
        millis(took)
    );
    HeaderValue::try_from(text).expect("digits are plain text")
}

/// The id of a request: what a trusted client says, or a new one.
pub(super) fn id_of(
    headers: &HeaderMap,
    seat: &Seat,
    make: impl FnOnce() -> HeaderValue,
) -> HeaderValue {
    let said = headers.get(REQUEST_ID).filter(|id| {
        let is_good = |byte: &u8| byte.is_ascii_graphic();
        seat.is_trusted && (1..=ID_MAX).contains(&id.len()) && id.as_bytes().iter().all(is_good)
    });
    said.cloned().unwrap_or_else(make)
}

/// The protocols that a client wants to go on with.
pub(super) fn upgrade_of(headers: &HeaderMap) -> Option<HeaderValue> {
    let wanted = headers.get(header::UPGRADE)?;
    let mut names = headers.get_all(header::CONNECTION).iter();
    let is_meant =
        names.any(|names| tokens(names).any(|name| name.eq_ignore_ascii_case(b"upgrade")));
    // That one is for us to take, and we speak it only where it was agreed on.
    let is_http = wanted.as_bytes().eq_ignore_ascii_case(b"h2c");
    (is_meant && !is_http).then(|| wanted.clone())
}

/// Take out what is of one connection only, and what else is unwanted. The names
/// are gone over once, and most have nothing to take out.
fn strip(headers: &mut HeaderMap, is_unwanted: impl Fn(&str) -> bool) {
    let is_out = |name: &str| is_of_one_hop(name) || is_unwanted(name);
    let names = headers.keys().filter(|name| is_out(name.as_str()));
    let mut out: Vec<HeaderName> = names.cloned().collect();
    if out.contains(&header::CONNECTION) {
        let named = headers.get_all(header::CONNECTION).iter().flat_map(tokens);
        let named = named.filter_map(|name| HeaderName::from_bytes(name).ok());
        // Those that say whom a message is for, and where it ends, are not for
        // one who sends it to take out.
        let is_kept = |name: &HeaderName| *name == header::HOST || *name == header::CONTENT_LENGTH;
        out.extend(named.filter(|name| !is_kept(name)));
    }
    for name in &out {
        headers.remove(name);
    }
}

fn tokens(value: &HeaderValue) -> impl Iterator<Item = &[u8]> {
    let words = value.as_bytes().split(|byte| *byte == b',');
    words
        .map(<[u8]>::trim_ascii)
        .filter(|word| !word.is_empty())
}

/// Whether a name is one that only we use, or that an app may take for another.
fn is_disguised(name: &str) -> bool {
    if name.starts_with(OURS) {
        return true;
    }
    if memchr::memchr(b'_', name.as_bytes()).is_none() {
        return false;
    }
    let name = name.replace('_', "-");
    UNDERLINED.iter().any(|known| name.starts_with(known))
}

fn forwarded(headers: &mut HeaderMap, seat: &Seat) {
    let before: Vec<&[u8]> = if seat.is_trusted {
        headers
            .get_all(FORWARDED_FOR)
            .iter()
            .map(HeaderValue::as_bytes)
            .collect()
    } else {
        Vec::new()
    };
    let whom = if before.is_empty() {
        seat.peer_text.clone()
    } else {
        let mut all = before.join(&b", "[..]);
        all.extend_from_slice(b", ");
        all.extend_from_slice(seat.peer_text.as_bytes());
        HeaderValue::from_maybe_shared(Bytes::from(all)).unwrap_or_else(|_| seat.peer_text.clone())
    };
    headers.insert(FORWARDED_FOR, whom);
    let protocol = HeaderValue::from_static(if seat.is_tls { "https" } else { "http" });
    let asked = headers.get(header::HOST).cloned();
    let claims = [
        (FORWARDED_PROTO, Some(protocol)),
        (FORWARDED_HOST, asked),
        (FORWARDED_PORT, Some(seat.port.clone())),
    ];
    for (name, value) in claims {
        // What a trusted one says is about the client, and we only see it.
        if let Some(value) = value
            && !(seat.is_trusted && headers.contains_key(&name))
        {
            headers.insert(name, value);
        }
    }
}

/// When a request came, for those who measure queues.
fn start_now() -> HeaderValue {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let micros = since.map_or(0, |since| {
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    });
    let mut digits = itoa::Buffer::new();
    let digits = digits.format(micros);
    let mut text = Vec::with_capacity(2 + digits.len());
    text.extend_from_slice(b"t=");
    text.extend_from_slice(digits.as_bytes());
    HeaderValue::from_maybe_shared(Bytes::from(text)).expect("digits are plain text")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seat(is_trusted: bool) -> Seat {
        let peer = "10.0.0.9:5000".parse().expect("an address");
        Seat::new(peer, 3000, true, is_trusted)
    }

    fn of(fields: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            let name = HeaderName::from_bytes(name.as_bytes()).expect("a name");
            headers.append(name, HeaderValue::from_str(value).expect("a value"));
        }
        headers
    }

    fn said<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
        headers.get(name).map(|value| value.to_str().expect("text"))
    }

    fn passed(fields: &[(&str, &str)], is_trusted: bool) -> HeaderMap {
        let mut headers = of(fields);
        let id = HeaderValue::from_static("id-1");
        to_process(&mut headers, &seat(is_trusted), &id);
        headers
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
        let mut names: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        let expected = [
            "content-length",
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
        assert!(!headers.keys().any(|name| name.as_str().contains("rideau")));
        assert!(!headers.contains_key("x_forwarded_for"));
        assert!(!headers.contains_key("content_length"));
    }

    #[test]
    fn only_a_trusted_id_is_kept() {
        let made = || HeaderValue::from_static("made");
        let headers = of(&[("X-Request-Id", "theirs")]);
        assert_eq!(id_of(&headers, &seat(true), made), "theirs");
        assert_eq!(id_of(&headers, &seat(false), made), "made");
        assert_eq!(
            id_of(&of(&[("X-Request-Id", "a b")]), &seat(true), made),
            "made"
        );
        assert_eq!(id_of(&HeaderMap::new(), &seat(true), made), "made");
    }

    #[test]
    fn an_answer_loses_what_was_for_us() {
        let mut headers = of(&[
            ("Connection", "close, x-internal"),
            ("X-Internal", "1"),
            ("Transfer-Encoding", "chunked"),
            ("Content-Length", "7"),
            ("Content-Type", "text/plain"),
        ]);
        to_client(&mut headers);
        assert_eq!(headers.len(), 1);
        assert!(is_live(&of(&[(
            "content-type",
            "Text/Event-Stream; charset=utf-8"
        )])));
        assert!(is_live(&of(&[("x-accel-buffering", "NO")])));
        assert!(!is_live(&of(&[("content-type", "text/plain")])));
    }

    #[test]
    fn an_upgrade_is_wanted_only_if_both_fields_say_so() {
        let wanted = |fields: &[(&str, &str)]| upgrade_of(&of(fields)).is_some();
        assert!(wanted(&[
            ("Connection", "keep-alive, Upgrade"),
            ("Upgrade", "websocket")
        ]));
        assert!(!wanted(&[("Upgrade", "websocket")]));
        assert!(!wanted(&[("Connection", "Upgrade")]));
        assert!(!wanted(&[
            ("Connection", "Upgrade, HTTP2-Settings"),
            ("Upgrade", "h2c")
        ]));
    }
}
