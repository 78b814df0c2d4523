//! A request and its app.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::Method;
use rideau_config::{AppConfig, Network};
use rideau_core::apps::ProcessId;

use super::access_log::{LogEntry, LoggedRequest};
use super::certificates::ShownCertificate;
use super::client::{ClientCount, last_first, spoken_for};
use super::compress::CompressRules;
use super::conn::ClientConn;
use super::error_page::Reads;
use super::headers::{self, END, Toward};
use super::ids::Id;
use super::refusals::RequestRefusal;
use super::room_visit::RoomVisit;
use super::router::{Route, RouteTarget};
use super::rules::{FrontRules, RequestRules};
use super::static_files::FileRequest;
use super::upstream_conn::{Asked, Early};
use super::{Front, Table};
use crate::apps::App;
use crate::http1::date;
use crate::http1::fields::{Fields, is, put};
use crate::http1::head::is_host;
use crate::http1::thread_buffer;

const NO_PATH: RequestRefusal = RequestRefusal::Bad("its path is not valid");

/// A request as it was read.
pub(super) struct Heard<'a> {
    pub(super) method: &'a Method,
    pub(super) target: &'a [u8],
    /// Its version of HTTP, as it is written.
    pub(super) version: &'static str,
    pub(super) fields: Fields<'a>,
    /// The host it is for.
    pub(super) host: Option<&'a [u8]>,
    /// The `Accept` field.
    pub(super) accept: Option<&'a [u8]>,
    /// The connection names fields that are of it alone.
    pub(super) names_fields: bool,
    /// How long its body is, by its own words.
    pub(super) length: Option<u64>,
    /// It would go on with something else.
    pub(super) upgrades: bool,
    /// Other requests of its connection may be for other hosts.
    pub(super) is_shared: bool,
}

/// A request that was understood, or not.
pub(super) struct Begun {
    /// The id of the request.
    pub(super) id: Id,
    pub(super) proxy_request: Result<ProxyRequest, RequestRefusal>,
    /// What the client reads, if it was not understood.
    reads: Reads,
    /// The rules that hold for it, if they have pages for what it may be told.
    pub(super) rules: Option<Arc<RequestRules>>,
    /// Its line of the log of requests.
    pub(super) log: Option<Box<LogEntry>>,
    /// Its app, if a rule of the front refused it.
    pub(super) refused: Option<Box<RefusedRequest>>,
}

/// A request that a rule of the front refused.
pub(super) struct RefusedRequest {
    pub(super) app: Arc<App>,
    pub(super) method: Method,
    pub(super) path: Box<[u8]>,
}

/// A request whose app is known.
pub(super) struct ProxyRequest {
    pub(super) app: Arc<App>,
    pub(super) config: Arc<AppConfig>,
    /// When it came, by both clocks: the second counts from 1970.
    pub(super) came: (Instant, Duration),
    pub(super) method: Method,
    /// The head as a process gets it if no body follows; and after this many bytes
    /// its path as the client has it.
    written: Vec<u8>,
    head_len: usize,
    /// The protocol of an upgrade.
    pub(super) upgrade: Option<Vec<u8>>,
    /// The process it was with before.
    pub(super) sticky: Option<ProcessId>,
    pub(super) by_rules: ByRules,
}

/// What the rules of the front make of a request.
#[derive(Default)]
pub(super) struct ByRules {
    /// It counts among those of its client.
    pub(super) counted: Option<Box<ClientCount>>,
    /// The route that it came by, if that has something to say in its answer.
    pub(super) route: Option<Arc<Route>>,
    /// The file that it may be for.
    pub(super) file: Option<Arc<FileRequest>>,
    /// How its answer is compressed, if it is.
    pub(super) compress: Option<Arc<CompressRules>>,
    /// The waiting room that it may be told to wait in.
    pub(super) room: Option<Box<RoomVisit>>,
}

impl Front {
    /// Find out what a request wants, and from which app.
    pub(super) fn begin(&self, conn: &ClientConn, heard: &Heard<'_>) -> Begun {
        #[cfg(test)]
        assert!(heard.target != b"/test/panic", "planted");
        let id = headers::id_of(heard.fields, conn, || self.ids.next());
        let table = self.table.load();
        let mut place = None;
        let proxy_request = self.proxy_request(&table, conn, heard, &id, &mut place);
        let mut begun = Begun {
            reads: match proxy_request {
                Ok(_) => Reads::Text,
                Err(_) => Reads::of(heard.accept),
            },
            proxy_request,
            id,
            rules: None,
            log: None,
            refused: None,
        };
        if let Some(rules) = &table.rules {
            begun.follow(rules, &table, conn, heard, place);
        }
        begun
    }

    /// Puts the place of the app, if there is one.
    fn proxy_request(
        &self,
        table: &Table,
        conn: &ClientConn,
        heard: &Heard<'_>,
        id: &Id,
        place: &mut Option<usize>,
    ) -> Result<ProxyRequest, RequestRefusal> {
        let text = self
            .acme_answers
            .text(heard.method, heard.host, heard.target);
        if let Some(text) = text {
            return Err(RequestRefusal::AcmeText(text));
        }
        let rules = table.rules.as_deref();
        if let Some(rules) = rules {
            rules.admit(conn, heard.fields)?;
        }
        heard.check()?;
        let (authority, whole) = parted(heard.target)?;
        let host = authority.or(heard.host).unwrap_or_default();
        if let Some(rules) = rules {
            rules.check_tls(conn, heard.fields, host, whole)?;
        }
        let is_shown = |shown: &ShownCertificate| shown.is_for(host, heard.is_shared);
        if !conn.shown.as_ref().is_none_or(is_shown) {
            return Err(RequestRefusal::Misdirected);
        }
        let query = memchr::memchr(b'?', whole);
        let path = &whole[..query.unwrap_or(whole.len())];
        let (route, at) = table.lead(host, whole, path)?;
        *place = Some(at);
        let app = table.apps.get(at).ok_or(RequestRefusal::UnknownApp)?;
        let upgrade = heard.upgrades.then(|| headers::upgrade_of(heard.fields));
        let upgrade = upgrade.flatten();
        let mut by_rules = ByRules {
            route: (!route.fields.is_empty()).then(|| Arc::clone(route)),
            ..ByRules::default()
        };
        if let Some(rules) = rules {
            let own = rules.of(Some(at));
            by_rules.counted = own.admit(conn, heard.fields)?;
            by_rules.compress = own.compress.clone();
            if upgrade.is_none() {
                by_rules.file = own.file(heard.method, whole, path.len())?;
                let room = own.room.as_ref();
                by_rules.room = room.and_then(|room| {
                    RoomVisit::new(room, conn, (heard.method, heard.fields, heard.accept))
                });
            }
        }
        let config = app.config.load_full();
        let cookie = config.http.sticky.as_deref();
        let sticky = cookie.and_then(|cookie| self.sticky.find(&app.name, cookie, heard.fields));
        let came = (Instant::now(), date::now());
        let toward = Toward {
            conn,
            id,
            came: came.1,
            names_fields: heard.names_fields,
            host: authority,
            prefix: route.strips().then_some(&route.prefix),
        };
        let mut written = thread_buffer::take_small();
        put_head(&mut written, heard, route.seen(whole), &toward);
        let head_len = written.len();
        written.extend_from_slice(path);
        Ok(ProxyRequest {
            app: Arc::clone(app),
            config,
            came,
            method: heard.method.clone(),
            written,
            head_len,
            upgrade,
            sticky,
            by_rules,
        })
    }
}

impl Table {
    /// The route of a request, and the place of its app.
    fn lead(
        &self,
        host: &[u8],
        whole: &[u8],
        path: &[u8],
    ) -> Result<(&Arc<Route>, usize), RequestRefusal> {
        let route = self
            .router
            .find(host, path)
            .ok_or(RequestRefusal::UnknownApp)?;
        let len = route.prefix.len();
        if len > 0 && climbs_out(path.get(len..).unwrap_or_default()) {
            return Err(RequestRefusal::Bad("its path leads out of the app"));
        }
        match &route.target {
            RouteTarget::App(at) => Ok((route, *at)),
            RouteTarget::Elsewhere(redirect) => Err(RequestRefusal::Elsewhere {
                location: redirect.location(host, whole, whole.get(len..).unwrap_or_default()),
                route: Arc::clone(route),
            }),
        }
    }
}

impl<'a> Heard<'a> {
    /// Whether it may be forwarded at all.
    fn check(&self) -> Result<(), RequestRefusal> {
        if matches!(*self.method, Method::CONNECT | Method::TRACE) {
            return Err(RequestRefusal::Method);
        }
        let target = self.target;
        if !target.is_ascii() && str::from_utf8(target).is_err() {
            return Err(NO_PATH);
        }
        if target == b"*" && *self.method != Method::OPTIONS {
            return Err(NO_PATH);
        }
        Ok(())
    }

    /// The host that it is for, and the path without the query.
    fn leads_to(&self) -> (&'a [u8], &'a [u8]) {
        let (authority, whole) = parted(self.target).unwrap_or((None, self.target));
        let host = authority.or(self.host).unwrap_or_default();
        let end = memchr::memchr(b'?', whole).unwrap_or(whole.len());
        (host, &whole[..end])
    }
}

impl Begun {
    /// Let the rules hold for it, and begin its line of the log. It is for the app at this
    /// place, if it came so far.
    #[inline(never)]
    fn follow(
        &mut self,
        rules: &FrontRules,
        table: &Table,
        conn: &ClientConn,
        heard: &Heard<'_>,
        mut place: Option<usize>,
    ) {
        if let Err(no) = &self.proxy_request
            && no.is_by_rule()
        {
            let (host, path) = heard.leads_to();
            place = place.or_else(|| table.router.find(host, path)?.app());
            let app = place.and_then(|place| table.apps.get(place));
            self.refused = app.map(|app| {
                Box::new(RefusedRequest {
                    app: Arc::clone(app),
                    method: heard.method.clone(),
                    path: path.into(),
                })
            });
        }
        let own = rules.of(place);
        if let Some(log) = &own.log {
            let field = |name| heard.fields.get(name).unwrap_or_default();
            let app = place.and_then(|place| table.apps.get(place));
            let request = LoggedRequest {
                client: rules.client(conn, heard.fields),
                id: self.id.as_ref(),
                method: heard.method.as_str(),
                target: heard.target,
                version: heard.version,
                host: heard.leads_to().0,
                referer: field("referer"),
                agent: field("user-agent"),
                app: app.map(|app| &*app.name),
            };
            let since = match &self.proxy_request {
                Ok(proxy_request) => proxy_request.came.0,
                Err(_) => Instant::now(),
            };
            self.log = Some(log.begin(&request, since));
        }
        if !own.pages.is_empty() {
            self.rules = Some(Arc::clone(own));
        }
    }

    /// What its client reads.
    pub(super) fn reads(&self) -> Reads {
        match &self.proxy_request {
            Ok(proxy_request) => Reads::of(proxy_request.field("accept")),
            Err(_) => self.reads,
        }
    }
}

/// The host of a target that has one, and its path.
fn parted(target: &[u8]) -> Result<(Option<&[u8]>, &[u8]), RequestRefusal> {
    if target.starts_with(b"/") || target == b"*" {
        return Ok((None, target));
    }
    let colon = memchr::memmem::find(target, b"://").ok_or(NO_PATH)?;
    let (scheme, rest) = (&target[..colon], &target[colon + 3..]);
    let end = memchr::memchr2(b'/', b'?', rest).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let is_http = is(scheme, "http") || is(scheme, "https");
    if !is_http || !is_host(authority) {
        return Err(RequestRefusal::Bad("its host is not valid"));
    }
    Ok((Some(authority), path))
}

/// Whether a path goes above where it begins, by `..` in whatever spelling. Behind a prefix
/// that would be another app's, and an app may look at it in its own way.
fn climbs_out(path: &[u8]) -> bool {
    let mut depth = 0_usize;
    let mut rest = path;
    while let Some((segment, behind)) = next_segment(rest) {
        rest = behind;
        depth = match dots(segment) {
            Some(2) if depth == 0 => return true,
            Some(2) => depth - 1,
            Some(_) => depth,
            None if segment.is_empty() => depth,
            None => depth + 1,
        };
    }
    false
}

/// What stands before the next slash, and what behind it. Some take `\`, and some `%2f`, for
/// a slash too.
fn next_segment(path: &[u8]) -> Option<(&[u8], &[u8])> {
    if path.is_empty() {
        return None;
    }
    for (at, byte) in path.iter().enumerate() {
        let len = match byte {
            b'/' | b'\\' => 1,
            b'%' if is_escape(&path[at..], b"2f") || is_escape(&path[at..], b"5c") => 3,
            _ => continue,
        };
        return Some((&path[..at], &path[at + len..]));
    }
    Some((path, &[]))
}

/// How many dots a segment is, if it is nothing else.
fn dots(mut segment: &[u8]) -> Option<usize> {
    let mut count = 0;
    while !segment.is_empty() {
        let len = match segment[0] {
            b'.' => 1,
            _ if is_escape(segment, b"2e") => 3,
            // What follows is a parameter of the segment.
            b';' if count > 0 => break,
            _ => return None,
        };
        segment = &segment[len..];
        count += 1;
    }
    (1..=2).contains(&count).then_some(count)
}

fn is_escape(bytes: &[u8], digits: &[u8; 2]) -> bool {
    let is_these = |rest: &[u8]| rest.len() >= 2 && rest[..2].eq_ignore_ascii_case(digits);
    bytes.strip_prefix(b"%").is_some_and(is_these)
}

/// Write the head of a request as a process gets it if no body follows.
pub(super) fn put_head(out: &mut Vec<u8>, heard: &Heard<'_>, path: &[u8], toward: &Toward<'_>) {
    out.extend_from_slice(heard.method.as_str().as_bytes());
    out.push(b' ');
    if !path.starts_with(b"/") && path != b"*" {
        out.push(b'/');
    }
    out.extend_from_slice(path);
    out.extend_from_slice(b" HTTP/1.1\r\n");
    headers::to_process(out, heard.fields, toward);
    if heard.length == Some(0) {
        headers::put_length(out, 0);
    }
    out.extend_from_slice(END);
}

impl Drop for ProxyRequest {
    fn drop(&mut self) {
        thread_buffer::give(std::mem::take(&mut self.written));
    }
}

impl Route {
    /// The place of the app that it leads to.
    fn app(&self) -> Option<usize> {
        match self.target {
            RouteTarget::App(place) => Some(place),
            RouteTarget::Elsewhere(_) => None,
        }
    }

    /// The app does not see how its paths begin.
    fn strips(&self) -> bool {
        self.strips && !self.prefix.is_empty()
    }

    /// The part of the path that the app sees.
    fn seen<'a>(&self, path: &'a [u8]) -> &'a [u8] {
        if !self.strips() {
            return path;
        }
        path.strip_prefix(self.prefix.as_bytes()).unwrap_or(path)
    }
}

impl ProxyRequest {
    /// The head that a process gets.
    pub(super) fn asked<'a>(&'a self, early: Option<&'a Early<'a>>) -> Asked<'a> {
        Asked {
            head: self.head(),
            wants_head: self.method == Method::HEAD,
            wants_upgrade: false,
            early,
        }
    }

    /// Its head, if no body follows.
    fn head(&self) -> &[u8] {
        &self.written[..self.head_len]
    }

    /// What a field of it says, as a process is told it.
    pub(super) fn field(&self, name: &str) -> Option<&[u8]> {
        self.fields(name).next()
    }

    /// What all fields of that name say.
    pub(super) fn fields(&self, name: &str) -> impl Iterator<Item = &[u8]> {
        let lines = self.head().split(|byte| *byte == b'\n');
        lines.filter_map(move |line| {
            let colon = memchr::memchr(b':', line)?;
            is(&line[..colon], name).then(|| line[colon + 1..].trim_ascii())
        })
    }

    /// It is a call whose sides may speak at the same time.
    pub(super) fn is_grpc(&self) -> bool {
        let kind = self.field("content-type");
        kind.is_some_and(headers::is_grpc)
    }

    /// The address whose share of what all clients have it takes: that of the peer, or the
    /// last one that a peer speaks for which is believed.
    pub(super) fn client(&self, trust: &[Network], conn: &ClientConn) -> IpAddr {
        let peer = conn.peer.ip();
        if !conn.is_trusted {
            return peer;
        }
        let whom = self.field("x-forwarded-for").unwrap_or_default();
        spoken_for(last_first(whom), trust).unwrap_or(peer)
    }

    /// The path, without the query.
    pub(super) fn path(&self) -> &[u8] {
        &self.written[self.head_len..]
    }

    /// The head with the wish for something else.
    pub(super) fn head_for(&self, upgrade: &[u8]) -> Vec<u8> {
        let mut head = headers::open(self.head()).to_vec();
        put(&mut head, "Connection", "upgrade");
        put(&mut head, "Upgrade", upgrade);
        head.extend_from_slice(END);
        head
    }
}

#[cfg(test)]
mod tests {
    use super::climbs_out;

    #[test]
    fn a_path_that_goes_above_its_beginning_is_found_in_every_spelling() {
        let out = [
            "/..",
            "/../x",
            "/./../x",
            "/a/../../x",
            "/%2e%2E/x",
            "/.%2e/x",
            "/..%2fx",
            "/..%5Cx",
            "/..\\x",
            "//../x",
            "/..;a=b/x",
        ];
        for path in out {
            assert!(climbs_out(path.as_bytes()), "{path}");
        }
        let within = [
            "",
            "/",
            "/a/..",
            "/a/../b",
            "/...",
            "/..a",
            "/a..",
            "/.well-known/x",
            "/a;..",
            "/%2",
            "/a/b/../../c",
            "/%2e",
            "/x%2fy/../z",
        ];
        for path in within {
            assert!(!climbs_out(path.as_bytes()), "{path}");
        }
    }
}
