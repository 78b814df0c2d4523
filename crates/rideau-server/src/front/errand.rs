//! What a request wants, and from whom.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use hyper::Method;
use rideau_core::apps::ProcessId;

use super::Front;
use super::connections::Asked;
use super::fields::{Fields, put};
use super::headers::{self, Toward};
use super::ids::Id;
use super::refusals::No;
use super::router::{Route, is_host};
use super::seat::Seat;
use crate::apps::App;
use crate::config::AppConfig;

/// Bytes that most requests are written in, and as many as a client's connection
/// keeps room for.
const HEAD_ROOM: usize = 512;
const ROOM_MAX: usize = 4 * 1024;

/// A request as it was read.
pub(super) struct Heard<'a> {
    pub(super) method: &'a Method,
    pub(super) target: &'a [u8],
    pub(super) fields: Fields<'a>,
    /// Whom it is for.
    pub(super) host: Option<&'a [u8]>,
    /// What the client reads.
    pub(super) accept: Option<&'a [u8]>,
    /// The connection names fields that are of it alone.
    pub(super) names_fields: bool,
    /// How long its body is, by its own words.
    pub(super) length: Option<u64>,
    /// It would go on with something else.
    pub(super) upgrades: bool,
}

/// A request that was understood, or not.
pub(super) struct Begun {
    /// What it is called.
    pub(super) id: Id,
    pub(super) reads_html: bool,
    pub(super) errand: Result<Errand, No>,
}

/// A request whose app is known.
pub(super) struct Errand {
    pub(super) app: Arc<App>,
    pub(super) config: Arc<AppConfig>,
    /// When it came, by both clocks.
    pub(super) came: (Instant, SystemTime),
    pub(super) method: Method,
    /// The request as a process gets it, but for how long it is; and after so many
    /// bytes its path as the client has it.
    written: Vec<u8>,
    head_len: usize,
    /// What it would go on with.
    pub(super) upgrade: Option<Vec<u8>>,
    /// The process it was with before.
    pub(super) sticky: Option<ProcessId>,
}

impl Front {
    /// Find out what a request wants, and from whom. What is written is written to
    /// this room.
    pub(super) fn begin(&self, seat: &Seat, heard: &Heard<'_>, room: Vec<u8>) -> Begun {
        let id = headers::id_of(heard.fields, seat, || self.ids.next());
        Begun {
            reads_html: heard.accept.is_some_and(headers::reads_html),
            errand: self.errand(seat, heard, &id, room),
            id,
        }
    }

    fn errand(
        &self,
        seat: &Seat,
        heard: &Heard<'_>,
        id: &Id,
        mut room: Vec<u8>,
    ) -> Result<Errand, No> {
        if *heard.method == Method::CONNECT {
            return Err(No::Method);
        }
        let target = str::from_utf8(heard.target).map_err(|_| No::Bad("its path is no path"))?;
        let (authority, whole) = parted(target)?;
        let host = match authority {
            Some(authority) => authority,
            None => {
                let said = heard.host.unwrap_or_default();
                str::from_utf8(said).unwrap_or_default()
            }
        };
        let path = whole.split_once('?').map_or(whole, |(path, _)| path);
        let table = self.table.load();
        let route = table.router.find(host, path).ok_or(No::UnknownApp)?;
        let app = table.apps.get(route.place).ok_or(No::UnknownApp)?;
        let config = app.config.load_full();
        let cookie = config.http.sticky.as_deref();
        let sticky = cookie.and_then(|cookie| self.sticky.find(&app.name, cookie, heard.fields));
        let came = (Instant::now(), SystemTime::now());
        let toward = Toward {
            seat,
            id,
            came: came.1,
            names_fields: heard.names_fields,
            host: authority.map(str::as_bytes),
            prefix: route.strips().then_some(&route.prefix),
        };
        put_head(&mut room, heard, route.seen(whole), &toward);
        let head_len = room.len();
        room.extend_from_slice(path.as_bytes());
        Ok(Errand {
            app: Arc::clone(app),
            config,
            came,
            method: heard.method.clone(),
            written: room,
            head_len,
            upgrade: heard
                .upgrades
                .then(|| headers::upgrade_of(heard.fields))
                .flatten(),
            sticky,
        })
    }
}

/// The host of a target that has one, and its path.
fn parted(target: &str) -> Result<(Option<&str>, &str), No> {
    if target.starts_with('/') || target == "*" {
        return Ok((None, target));
    }
    let (scheme, rest) = target
        .split_once("://")
        .ok_or(No::Bad("its path is no path"))?;
    let is_http = ["http", "https"].map(|known| scheme.eq_ignore_ascii_case(known));
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    if !is_http.contains(&true) || !is_host(authority.as_bytes()) {
        return Err(No::Bad("whom it is for is no host"));
    }
    Ok((Some(authority), path))
}

/// Write a request as a process gets it, but for how long it is.
fn put_head(out: &mut Vec<u8>, heard: &Heard<'_>, path: &str, toward: &Toward<'_>) {
    out.reserve(HEAD_ROOM);
    out.extend_from_slice(heard.method.as_str().as_bytes());
    out.push(b' ');
    if !path.starts_with('/') && path != "*" {
        out.push(b'/');
    }
    out.extend_from_slice(path.as_bytes());
    out.extend_from_slice(b" HTTP/1.1\r\n");
    headers::to_process(out, heard.fields, toward);
    if heard.length == Some(0) {
        headers::put_length(out, 0);
    }
}

impl Begun {
    /// The room that it was written to, for the next.
    pub(super) fn into_room(self) -> Vec<u8> {
        let mut room = self
            .errand
            .map_or_else(|_| Vec::new(), |errand| errand.written);
        if room.capacity() > ROOM_MAX {
            return Vec::new();
        }
        room.clear();
        room
    }
}

impl Route {
    /// The app does not see how its paths begin.
    fn strips(&self) -> bool {
        self.strips && !self.prefix.is_empty()
    }

    /// What of a path the app sees.
    fn seen<'a>(&self, path: &'a str) -> &'a str {
        if !self.strips() {
            return path;
        }
        path.strip_prefix(self.prefix.as_str()).unwrap_or(path)
    }
}

impl Errand {
    /// What a process is sent.
    pub(super) fn asked<'a>(&self, head: &'a [u8]) -> Asked<'a> {
        Asked {
            head,
            wants_head: self.method == Method::HEAD,
            wants_upgrade: false,
            early: None,
        }
    }

    pub(super) fn head(&self) -> &[u8] {
        &self.written[..self.head_len]
    }

    /// What for, without its query.
    pub(super) fn path(&self) -> &[u8] {
        &self.written[self.head_len..]
    }

    /// The head with the wish for something else.
    pub(super) fn head_for(&self, upgrade: &[u8]) -> Vec<u8> {
        let mut head = self.head().to_vec();
        put(&mut head, "Connection", "upgrade");
        put(&mut head, "Upgrade", upgrade);
        head
    }
}
