//! Which requests are those of browsers that can be told to come again.

use std::sync::Arc;

use hyper::Method;
use parking_lot::Mutex;

use super::conn::ClientConn;
use super::error_page::Reads;
use crate::apps::{AppRoom, RoomTurn};
use crate::http1::fields::{Fields, is};

/// The cookie by which a browser keeps its place, within TLS and without.
const SECURE_COOKIE: &str = "__Host-rideau-wait";
const PLAIN_COOKIE: &str = "rideau-wait";

/// A request that may be told to wait outside.
pub(super) struct RoomVisit {
    pub(super) room: Arc<AppRoom>,
    pub(super) cookie: Option<Box<[u8]>>,
    /// The client came within TLS, to us or to a peer that is believed.
    pub(super) is_secure: bool,
    /// Its turn, until it has its place.
    pub(super) turn: Mutex<Option<RoomTurn>>,
}

impl RoomVisit {
    /// For a request that a browser made to show a page; none for others.
    pub(super) fn new(
        room: &Arc<AppRoom>,
        conn: &ClientConn,
        (method, fields, accept): (&Method, Fields<'_>, Option<&[u8]>),
    ) -> Option<Box<Self>> {
        if *method != Method::GET || !is_navigation(fields, accept) {
            return None;
        }
        let proto = fields.get("x-forwarded-proto");
        let is_secure = conn.is_tls || conn.is_trusted && proto.is_some_and(|it| is(it, "https"));
        Some(Box::new(Self {
            room: Arc::clone(room),
            cookie: cookie(fields, cookie_name(is_secure)).map(Into::into),
            is_secure,
            turn: Mutex::new(None),
        }))
    }

    /// It has its place inside.
    pub(super) fn enter(&self) {
        if let Some(turn) = self.turn.lock().take() {
            turn.enter();
        }
    }
}

pub(super) const fn cookie_name(is_secure: bool) -> &'static str {
    match is_secure {
        true => SECURE_COOKIE,
        false => PLAIN_COOKIE,
    }
}

/// A browser shows what it gets as a page of its own. Those that do not say so are known by
/// what they prefer to read, and bots by their names.
fn is_navigation(fields: Fields<'_>, accept: Option<&[u8]>) -> bool {
    let says = |name: &str, wanted: &str| fields.get(name).is_none_or(|it| is(it, wanted));
    let is_bot = |agent: &[u8]| {
        let agent = agent.to_ascii_lowercase();
        let names: [&[u8]; 4] = [b"bot", b"crawl", b"spider", b"slurp"];
        names
            .iter()
            .any(|name| memchr::memmem::find(&agent, name).is_some())
    };
    says("sec-fetch-mode", "navigate")
        && says("sec-fetch-dest", "document")
        && Reads::of(accept) == Reads::Html
        && !fields.get("user-agent").is_some_and(is_bot)
        && fields.get("x-requested-with").is_none()
}

/// The value of a cookie.
fn cookie<'a>(fields: Fields<'a>, name: &str) -> Option<&'a [u8]> {
    let pairs = fields
        .all("cookie")
        .flat_map(|line| line.split(|byte| *byte == b';'));
    let mut values = pairs.filter_map(|pair| {
        let (found, value) = pair.trim_ascii().split_at_checked(name.len())?;
        (found == name.as_bytes()).then(|| value.strip_prefix(b"="))?
    });
    values.next()
}
