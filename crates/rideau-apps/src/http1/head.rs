//! Says whether the head of a request is sound, and what follows it.
//!
//! It is stricter than the standard wants where two that read the same bytes
//! might disagree: about where lines end, how long a body is, or which host a
//! request is for.

use std::ops::Range;

use hyper::Method;
use memchr::memchr;

use super::fields::{self, Fields, Span, tokens};

/// Empty lines before a request.
const BLANKS_MAX: u8 = 4;

/// How large the head of a request may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeadLimits {
    /// Bytes.
    pub(crate) bytes_max: usize,
    /// Fields.
    pub(crate) fields_max: usize,
}

/// A fault of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Trouble {
    /// It makes no sense, for this reason.
    Bad(&'static str),
    /// Its head is too large.
    Large,
    /// Its head took too long.
    Slow,
}

/// The framing of the body after a head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Framing {
    /// The next request.
    Nothing,
    /// This many bytes.
    Length(u64),
    /// Chunks.
    Chunks,
}

/// A head as far as it was read. The bytes are with the caller that read them.
#[derive(Default)]
pub(crate) struct Head {
    /// Where the next line begins.
    next: usize,
    blanks: u8,
    version: Option<u8>,
    method: Option<Method>,
    target: Range<usize>,
    spans: Vec<Span>,
    /// Which of the fields say this.
    host: Option<usize>,
    accept: Option<usize>,
    length: Option<u64>,
    is_chunked: bool,
    /// The client closes the connection.
    closes: bool,
    keeps: bool,
    upgrades: bool,
    /// It names fields that are of it alone.
    names_fields: bool,
    /// It takes what follows a body in chunks.
    takes_trailers: bool,
    /// It waits to be told that it may send the body.
    expects: bool,
}

impl Default for HeadLimits {
    fn default() -> Self {
        Self {
            bytes_max: 64 << 10,
            fields_max: 100,
        }
    }
}

impl Head {
    /// Go over the bytes of a head, from its first; says how many it has if it is
    /// complete.
    pub(crate) fn pass(
        &mut self,
        bytes: &[u8],
        limits: &HeadLimits,
    ) -> Result<Option<usize>, Trouble> {
        while let Some(len) = memchr(b'\n', &bytes[self.next..]) {
            let end = self.next + len;
            if end > limits.bytes_max {
                return Err(Trouble::Large);
            }
            let start = self.next;
            let Some(line) = bytes[start..end].strip_suffix(b"\r") else {
                return Err(Trouble::Bad("a line ends without a carriage return"));
            };
            self.next = end + 1;
            if line.is_empty() && self.version.is_some() {
                self.finish()?;
                return Ok(Some(self.next));
            }
            self.line(start, line, limits)?;
        }
        if bytes.len() > limits.bytes_max {
            return Err(Trouble::Large);
        }
        Ok(None)
    }

    /// Begin with the next.
    pub(crate) fn reset(&mut self) {
        let mut spans = std::mem::take(&mut self.spans);
        spans.clear();
        *self = Self {
            spans,
            ..Self::default()
        };
    }

    pub(crate) fn framing(&self) -> Framing {
        match self.length {
            _ if self.is_chunked => Framing::Chunks,
            Some(len) if len > 0 => Framing::Length(len),
            _ => Framing::Nothing,
        }
    }

    /// How long the body is, by its own words.
    pub(crate) fn length(&self) -> Option<u64> {
        self.length
    }

    pub(crate) fn method(&self) -> &Method {
        self.method.as_ref().unwrap_or(&Method::GET)
    }

    /// The target of the request, in these bytes.
    pub(crate) fn target<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[self.target.clone()]
    }

    pub(crate) fn fields<'a>(&'a self, bytes: &'a [u8]) -> Fields<'a> {
        Fields::new(bytes, &self.spans)
    }

    /// The host it is for.
    pub(crate) fn host<'a>(&'a self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        self.host.map(|at| self.fields(bytes).at(at).1)
    }

    /// The `Accept` field.
    pub(crate) fn accept<'a>(&'a self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        self.accept.map(|at| self.fields(bytes).at(at).1)
    }

    /// The connection names fields that are of it alone.
    pub(crate) fn names_fields(&self) -> bool {
        self.names_fields
    }

    /// The client would send more requests.
    pub(crate) fn keeps_alive(&self) -> bool {
        match self.version {
            Some(1) => !self.closes,
            _ => self.keeps && !self.closes,
        }
    }

    /// It speaks a version that knows chunks.
    pub(crate) fn is_recent(&self) -> bool {
        self.version == Some(1)
    }

    /// It takes what follows a body in chunks.
    pub(crate) fn takes_trailers(&self) -> bool {
        self.takes_trailers
    }

    /// It waits to be told that it may send the body.
    pub(crate) fn expects(&self) -> bool {
        self.expects && self.is_recent()
    }

    /// It would go on with something else.
    pub(crate) fn upgrades(&self) -> bool {
        self.upgrades && self.is_recent() && self.framing() == Framing::Nothing
    }

    fn line(&mut self, start: usize, line: &[u8], limits: &HeadLimits) -> Result<(), Trouble> {
        if self.version.is_some() {
            if self.spans.len() >= limits.fields_max {
                return Err(Trouble::Large);
            }
            return self.field(start, line);
        }
        if line.is_empty() {
            self.blanks += 1;
            if self.blanks > BLANKS_MAX {
                return Err(Trouble::Bad("there are only empty lines"));
            }
            return Ok(());
        }
        self.request_line(start, line)
    }

    /// Check the first line.
    fn request_line(&mut self, start: usize, line: &[u8]) -> Result<(), Trouble> {
        let bad = Trouble::Bad("it does not begin as a request does");
        let is_space = |byte: &u8| *byte == b' ';
        let method = line.iter().position(is_space).ok_or(bad)?;
        let version = line.iter().rposition(is_space).ok_or(bad)?;
        let target = line.get(method + 1..version).ok_or(bad)?;
        // There is no other space, for that cannot be seen.
        let is_visible = target
            .iter()
            .fold(true, |all, byte| all & (*byte > b' ') & (*byte != 0x7f));
        if !is_visible || target.is_empty() || !is_token(&line[..method]) {
            return Err(bad);
        }
        self.target = start + method + 1..start + version;
        self.method = Some(Method::from_bytes(&line[..method]).map_err(|_| bad)?);
        self.version = match &line[version + 1..] {
            b"HTTP/1.1" => Some(1),
            b"HTTP/1.0" => Some(0),
            _ => return Err(Trouble::Bad("its version of HTTP is not spoken here")),
        };
        Ok(())
    }

    fn field(&mut self, start: usize, line: &[u8]) -> Result<(), Trouble> {
        let bad = |why| Err(Trouble::Bad(why));
        let Some(colon) = memchr(b':', line) else {
            return bad("a field has no colon");
        };
        let (name, value) = (&line[..colon], &line[colon + 1..]);
        if !is_token(name) {
            return bad("the name of a field is not valid");
        }
        if !is_text(value) {
            return bad("the value of a field has control characters");
        }
        let span = Span::new(start, line, colon).ok_or(Trouble::Large)?;
        self.spans.push(span);
        let is = |known: &str| fields::is(name, known);
        match name.len() {
            2 if is("te") => {
                let mut words = tokens(value);
                self.takes_trailers |= words.any(|word| word.eq_ignore_ascii_case(b"trailers"));
            }
            4 if is("host") => {
                if self.host.is_some() {
                    return bad("it names its host twice");
                }
                self.host = Some(self.spans.len() - 1);
                if !is_host(value.trim_ascii()) {
                    return bad("its host is not valid");
                }
            }
            6 if is("accept") => self.accept = self.accept.or(Some(self.spans.len() - 1)),
            6 if is("expect") => {
                self.expects = value.trim_ascii().eq_ignore_ascii_case(b"100-continue");
            }
            10 if is("connection") => {
                for word in tokens(value) {
                    let noted = match word.len() {
                        5 if word.eq_ignore_ascii_case(b"close") => &mut self.closes,
                        10 if word.eq_ignore_ascii_case(b"keep-alive") => &mut self.keeps,
                        7 if word.eq_ignore_ascii_case(b"upgrade") => &mut self.upgrades,
                        _ => &mut self.names_fields,
                    };
                    *noted = true;
                }
            }
            14 if is("content-length") => {
                if self.length.is_some() || self.is_chunked {
                    return bad("it gives its length twice");
                }
                self.length = Some(length(value).ok_or(Trouble::Bad(
                    "its length is not a \
                    number",
                ))?);
            }
            17 if is("transfer-encoding") => {
                if self.length.is_some() || self.is_chunked {
                    return bad("it gives its length twice");
                }
                if !value.trim_ascii().eq_ignore_ascii_case(b"chunked") {
                    return bad("its encoding is not understood");
                }
                self.is_chunked = true;
            }
            _ => (),
        }
        Ok(())
    }

    fn finish(&self) -> Result<(), Trouble> {
        match self.version {
            Some(1) if self.host.is_none() => Err(Trouble::Bad("it does not name its host")),
            Some(0) if self.is_chunked => Err(Trouble::Bad("HTTP/1.0 has no chunks")),
            _ => Ok(()),
        }
    }
}

/// A number that is nothing but one.
pub(crate) fn length(value: &[u8]) -> Option<u64> {
    let digits = value.trim_ascii();
    let is_number = (1..=18).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit);
    let add = |sum: u64, digit: &u8| sum * 10 + u64::from(digit - b'0');
    is_number.then(|| digits.iter().fold(0, add))
}

/// Could it be the name of a field?
pub(crate) fn is_token(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|byte| is_of_token(*byte))
}

/// Could it be a byte of such a name?
pub(super) const fn is_of_token(byte: u8) -> bool {
    TOKEN[byte as usize]
}

/// Could it be the value of a field? Without a way out in the middle, this is
/// many bytes at a time.
pub(crate) fn is_text(value: &[u8]) -> bool {
    value.iter().fold(true, |all, byte| {
        all & ((*byte >= b' ') | (*byte == b'\t')) & (*byte != 0x7f)
    })
}

const TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let mut at = 0;
    while at < 256 {
        let byte = at as u8;
        table[at] = byte.is_ascii_alphanumeric()
            || matches!(
                byte,
                b'!' | b'#'
                    | b'$'
                    | b'%'
                    | b'&'
                    | b'\''
                    | b'*'
                    | b'+'
                    | b'-'
                    | b'.'
                    | b'^'
                    | b'_'
                    | b'`'
                    | b'|'
                    | b'~'
            );
        at += 1;
    }
    table
};

/// Could this be a host, with a port or not?
pub(crate) fn is_host(host: &[u8]) -> bool {
    let (name, port) = match host {
        [b'[', rest @ ..] => {
            let Some(end) = rest.iter().position(|byte| *byte == b']') else {
                return false;
            };
            let is_address = rest[..end]
                .iter()
                .all(|byte| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.'));
            if end == 0 || !is_address {
                return false;
            }
            (&b"ipv6"[..], &rest[end + 1..])
        }
        _ => {
            // A port is short.
            let colon = host.iter().rposition(|byte| *byte == b':');
            host.split_at(colon.unwrap_or(host.len()))
        }
    };
    let is_name = name
        .iter()
        .fold(true, |all, byte| all & NAME[usize::from(*byte)]);
    let is_port = match port {
        [] => true,
        [b':', digits @ ..] => digits.len() <= 5 && digits.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    is_name && is_port && !name.is_empty()
}

/// The bytes of host names.
const NAME: [bool; 256] = {
    let mut table = [false; 256];
    let mut at = 0;
    while at < 256 {
        let byte = at as u8;
        table[at] = byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b'~');
        at += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::{Framing, Head, HeadLimits, Trouble, is_host};

    fn pass(text: &str) -> Result<Option<usize>, Trouble> {
        Head::default().pass(text.as_bytes(), &HeadLimits::default())
    }

    #[test]
    fn a_sound_head_passes_however_it_comes() {
        let text = "\r\nPOST /a?b=c HTTP/1.1\r\nHost: a.example:80\r\nContent-Length: 12\r\n\r\n";
        assert_eq!(pass(text), Ok(Some(text.len())));
        let mut head = Head::default();
        for len in 0..text.len() {
            let passed = head.pass(&text.as_bytes()[..len], &HeadLimits::default());
            assert_eq!(passed, Ok(None));
        }
        let passed = head.pass(text.as_bytes(), &HeadLimits::default());
        assert_eq!(passed, Ok(Some(text.len())));
        assert_eq!(head.framing(), Framing::Length(12));
    }

    #[test]
    fn what_could_be_read_in_two_ways_does_not_pass() {
        let host = "Host: a\r\n";
        let fields = [
            "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n",
            "Content-Length: 1\r\nContent-Length: 1\r\n",
            "Content-Length: 1\r\nContent-Length: 2\r\n",
            "Content-Length: 1, 1\r\n",
            "Content-Length: +1\r\n",
            "Content-Length: -1\r\n",
            "Content-Length: 0x1\r\n",
            "Content-Length: \r\n",
            "Content-Length: 99999999999999999999\r\n",
            "Content-Length : 1\r\n",
            "Transfer-Encoding : chunked\r\n",
            "Transfer-Encoding: gzip, chunked\r\n",
            "Transfer-Encoding: chunked, identity\r\n",
            "Transfer-Encoding: xchunked\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding:\u{b}chunked\r\n",
            "X: a\r\n b\r\n",
            " X: a\r\n",
            "X: a\r\n\tb\r\n",
            "X\r\n",
            ": a\r\n",
            "X: a\n",
            "X: a\rb\r\n",
            "X: a\0b\r\n",
            "X y: a\r\n",
            "Host: b\r\n",
        ];
        for fields in fields {
            let text = format!("POST / HTTP/1.1\r\n{host}{fields}\r\n");
            assert!(pass(&text).is_err(), "{text:?} passed");
        }
        let texts = [
            "GET / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: u@a\r\n\r\n",
            "GET / HTTP/1.1\nHost: a\n\n",
            "GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET / HTTP/1.1 \r\nHost: a\r\n\r\n",
            "GET /\r\n\r\n",
            "GET / HTTP/0.9\r\n\r\n",
            "GET / HTTP/1.2\r\nHost: a\r\n\r\n",
            "GET /a\tb HTTP/1.1\r\nHost: a\r\n\r\n",
            "G(T / HTTP/1.1\r\nHost: a\r\n\r\n",
            "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
            "\r\n\r\n\r\n\r\n\r\n\r\n",
        ];
        for text in texts {
            assert!(pass(text).is_err(), "{text:?} passed");
        }
    }

    #[test]
    fn an_upgrade_is_meant_if_the_connection_says_so() {
        let upgrades = |version: &str, fields: &str| {
            let text = format!("GET / HTTP/{version}\r\nHost: a\r\n{fields}\r\n");
            let mut head = Head::default();
            let passed = head.pass(text.as_bytes(), &HeadLimits::default());
            assert_eq!(passed, Ok(Some(text.len())));
            head.upgrades()
        };
        let asks = "Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n";
        assert!(upgrades("1.1", asks));
        assert!(!upgrades("1.0", asks));
        assert!(!upgrades("1.1", "Upgrade: websocket\r\n"));
        assert!(!upgrades("1.1", &format!("{asks}Content-Length: 1\r\n")));
    }

    #[test]
    fn a_head_says_what_becomes_of_the_connection() {
        let keeps = |version: &str, fields: &str| {
            let text = format!("GET / HTTP/{version}\r\nHost: a\r\n{fields}\r\n");
            let mut head = Head::default();
            let passed = head.pass(text.as_bytes(), &HeadLimits::default());
            assert_eq!(passed, Ok(Some(text.len())));
            head.keeps_alive()
        };
        assert!(keeps("1.1", ""));
        assert!(!keeps("1.1", "Connection: x, Close\r\n"));
        assert!(!keeps("1.0", ""));
        assert!(keeps("1.0", "Connection: Keep-Alive\r\n"));
    }

    #[test]
    fn a_head_has_an_end() {
        let long = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}", "x".repeat(64 << 10));
        assert_eq!(pass(&long), Err(Trouble::Large));
        let many = format!(
            "GET / HTTP/1.1\r\nHost: a\r\n{}\r\n",
            "X: y\r\n".repeat(100)
        );
        assert_eq!(pass(&many), Err(Trouble::Large));
    }

    #[test]
    fn a_host_is_a_name_or_an_address_with_a_port_or_not() {
        for host in [
            "a",
            "a.b:80",
            "127.0.0.1:1",
            "[::1]",
            "[::1]:65535",
            "a_b",
            "a:",
        ] {
            assert!(is_host(host.as_bytes()), "{host}");
        }
        for host in [
            "", ":80", "a b", "a/b", "u@a", "a:b", "[::1", "[]", "[::1]x", "a:123456",
        ] {
            assert!(!is_host(host.as_bytes()), "{host}");
        }
    }
}
