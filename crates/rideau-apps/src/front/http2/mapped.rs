//! A request of HTTP/2 in the words of HTTP/1, which is what apps speak.
//!
//! What would say there where the request ends, which host it is for or what becomes of
//! its connection is looked at here, so that no process reads another request in it.

use h2::ext::Protocol;
use hyper::http::request::Parts;
use hyper::{Method, header};

use crate::front::refusals::RequestRefusal;
use crate::front::request::Heard;
use crate::front::web_socket::WebSocketKey;
use crate::http1::fields::{Fields, Span};
use crate::http1::head::{is_host, is_text, is_token, length};

/// The head of a request.
pub(super) struct MappedHead<'a> {
    method: Method,
    target: &'a [u8],
    bytes: Vec<u8>,
    spans: Vec<Span>,
    /// It is for a WebSocket.
    pub(super) web_socket: Option<WebSocketKey>,
}

const NO_TARGET: RequestRefusal = RequestRefusal::Bad("its path is not valid");
const NO_HOST: RequestRefusal = RequestRefusal::Bad("its host is not valid");
const TWO_HOSTS: RequestRefusal = RequestRefusal::Bad("it is for two hosts");
const NO_FIELD: RequestRefusal = RequestRefusal::Bad("one of its fields is not valid");

/// Fields that are of one connection of HTTP/1.
const OF_HTTP1: [&str; 5] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "transfer-encoding",
    "upgrade",
];

impl<'a> MappedHead<'a> {
    /// The head of a request that has no more fields than this.
    ///
    /// # Errors
    ///
    /// If it makes no sense, or not to us.
    pub(super) fn new(parts: &'a Parts, fields_max: usize) -> Result<Self, RequestRefusal> {
        let web_socket = match parts.extensions.get::<Protocol>() {
            None => None,
            Some(protocol) if protocol.as_str() == "websocket" => Some(WebSocketKey::new()),
            Some(_) => return Err(RequestRefusal::UnknownProtocol),
        };
        let whole = parts.uri.path_and_query();
        let target = whole.map_or("/", |whole| whole.as_str()).as_bytes();
        if !is_target(target) {
            return Err(NO_TARGET);
        }
        let mut head = Self {
            // That is how HTTP/1 asks for one.
            method: match web_socket {
                Some(_) => Method::GET,
                None => parts.method.clone(),
            },
            target,
            bytes: Vec::new(),
            spans: Vec::new(),
            web_socket,
        };
        head.put("host", host(parts)?)?;
        head.put_fields(parts)?;
        match head.spans.len() > fields_max {
            true => Err(RequestRefusal::HeaderTooLarge),
            false => Ok(head),
        }
    }

    /// What the front hears of it.
    pub(super) fn heard(&self) -> Heard<'_> {
        let fields = Fields::new(&self.bytes, &self.spans);
        // What follows a request for a WebSocket is no body.
        let is_web_socket = self.web_socket.is_some();
        let len = fields.get("content-length").filter(|_| !is_web_socket);
        Heard {
            method: &self.method,
            target: self.target,
            version: "HTTP/2.0",
            fields,
            host: fields.get("host"),
            accept: fields.get("accept"),
            names_fields: false,
            length: len.and_then(length),
            upgrades: is_web_socket,
            is_shared: true,
        }
    }

    fn put_fields(&mut self, parts: &Parts) -> Result<(), RequestRefusal> {
        for (name, value) in &parts.headers {
            let is_said_here = match *name {
                header::HOST | header::COOKIE => true,
                header::TE if value != "trailers" => return Err(NO_FIELD),
                // The handshake with the app is ours.
                header::SEC_WEBSOCKET_KEY => self.web_socket.is_some(),
                _ => false,
            };
            if OF_HTTP1.contains(&name.as_str()) {
                return Err(NO_FIELD);
            }
            if !is_said_here {
                self.put(name.as_str(), value.as_bytes())?;
            }
        }
        // HTTP/2 may send them one by one. HTTP/1 has one field for all of them.
        let cookies = parts.headers.get_all(header::COOKIE).iter();
        let cookies: Vec<_> = cookies.map(|cookie| cookie.as_bytes()).collect();
        if !cookies.is_empty() {
            self.put("cookie", &cookies.join(&b"; "[..]))?;
        }
        if let Some(key) = &self.web_socket {
            let key = key.text().to_owned();
            self.put("upgrade", b"websocket")?;
            self.put("sec-websocket-key", key.as_bytes())?;
        }
        Ok(())
    }

    fn put(&mut self, name: &str, value: &[u8]) -> Result<(), RequestRefusal> {
        if !is_token(name.as_bytes()) || !is_text(value) {
            return Err(NO_FIELD);
        }
        let start = self.bytes.len();
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(b':');
        self.bytes.extend_from_slice(value);
        let span = Span::new(start, &self.bytes[start..], name.len());
        self.spans.push(span.ok_or(RequestRefusal::HeaderTooLarge)?);
        Ok(())
    }
}

/// Could it be a target, and one that names no host?
fn is_target(target: &[u8]) -> bool {
    let is_seen = |byte: &u8| *byte > b' ' && *byte != 0x7f;
    (target.starts_with(b"/") || target == b"*") && target.iter().all(is_seen)
}

/// The host that a request is for. Its fields may say it instead of the request itself, or
/// once more.
fn host(parts: &Parts) -> Result<&[u8], RequestRefusal> {
    let authority = parts.uri.authority().map(|host| host.as_str().as_bytes());
    let mut hosts = parts.headers.get_all(header::HOST).iter();
    let said = hosts.next().map(|host| host.as_bytes());
    let is_other = |said: &[u8]| authority.is_some_and(|host| !host.eq_ignore_ascii_case(said));
    if hosts.next().is_some() || said.is_some_and(is_other) {
        return Err(TWO_HOSTS);
    }
    let host = authority.or(said).filter(|host| is_host(host));
    host.ok_or(NO_HOST)
}
