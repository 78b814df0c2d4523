//! Bad input and the answer to it, byte for byte.
//!
//! Each is sent whole, cut in two everywhere and byte by byte. Requests that
//! come before the fault are answered first, here with their words.

use rideau_resp::RequestLimits;

use super::peer::Server;
use super::pieces;

const LIMITS: RequestLimits = RequestLimits {
    frame_max: 100,
    arguments_max: 5,
    bulk_max: 50,
    inline_max: 60,
};

/// What is sent, what is answered before the fault, and the fault's words.
type Case = (&'static [u8], &'static str, &'static str);

const LENGTHS: &[Case] = &[
    (b"*\r\n", "", "invalid multibulk length: it has no digits"),
    (b"*-\r\n", "", "invalid multibulk length: it has no digits"),
    (
        b"*abc\r\n",
        "",
        "invalid multibulk length: 'a' is not a digit",
    ),
    (
        b"*1a\r\n",
        "",
        "invalid multibulk length: 'a' is not a digit",
    ),
    (
        b"*+1\r\n",
        "",
        "invalid multibulk length: '+' is not a digit",
    ),
    (
        b"* 1\r\n",
        "",
        "invalid multibulk length: ' ' is not a digit",
    ),
    (
        b"*1.0\r\n",
        "",
        "invalid multibulk length: '.' is not a digit",
    ),
    (
        b"*?\r\n",
        "",
        "invalid multibulk length: '?' is not a digit",
    ),
    (
        b"*\0\0",
        "",
        r"invalid multibulk length: '\x00' is not a digit",
    ),
    (
        b"*1\n$4\n",
        "",
        r"invalid multibulk length: '\n' is not a digit",
    ),
    (
        b"*1\rX",
        "",
        "invalid multibulk length: 'X' follows its CR instead of LF",
    ),
    (
        b"*01\r\n",
        "",
        "invalid multibulk length: it starts with a needless zero",
    ),
    (
        b"*-0\r\n",
        "",
        "invalid multibulk length: it starts with a needless zero",
    ),
    (
        b"*6\r\n",
        "",
        "invalid multibulk length: a request has 5 words at most",
    ),
    (
        b"*2147483648\r\n",
        "",
        "invalid multibulk length: a request has 5 words at most",
    ),
    (
        b"*9223372036854775807\r\n",
        "",
        "invalid multibulk length: a request has 5 words at most",
    ),
    (
        b"*9223372036854775808\r\n",
        "",
        "invalid multibulk length: it has too many digits",
    ),
    (
        b"*-99999999999999999999\r\n",
        "",
        "invalid multibulk length: it has too many digits",
    ),
    (b"*1\r\n$\r\n", "", "invalid bulk length: it has no digits"),
    (b"*1\r\n$-1\r\n", "", "invalid bulk length: it is negative"),
    (b"*1\r\n$-2\r\n", "", "invalid bulk length: it is negative"),
    (
        b"*1\r\n$x\r\n",
        "",
        "invalid bulk length: 'x' is not a digit",
    ),
    (
        b"*1\r\n$4xPING\r\n",
        "",
        "invalid bulk length: 'x' is not a digit",
    ),
    (
        b"*1\r\n$4\nPING\n",
        "",
        r"invalid bulk length: '\n' is not a digit",
    ),
    (
        b"*1\r\n$4\r\r\n",
        "",
        r"invalid bulk length: '\r' follows its CR instead of LF",
    ),
    (
        b"*1\r\n$04\r\n",
        "",
        "invalid bulk length: it starts with a needless zero",
    ),
    (
        b"*1\r\n$51\r\n",
        "",
        "invalid bulk length: a word of 51 bytes, and 50 are allowed",
    ),
    (
        b"*1\r\n$9223372036854775807\r\n",
        "",
        "invalid bulk length: a word of 9223372036854775807 bytes, and 50 are allowed",
    ),
    (
        b"*1\r\n$99999999999999999999\r\n",
        "",
        "invalid bulk length: it has too many digits",
    ),
];

const FRAMES: &[Case] = &[
    (
        b"*1\r\n*1\r\n$4\r\nPING\r\n",
        "",
        "expected '$', got '*': the array of a request holds bulk strings only",
    ),
    (
        b"*2\r\n$4\r\nECHO\r\n:1\r\n",
        "",
        "expected '$', got ':': the array of a request holds bulk strings only",
    ),
    (
        b"*1\r\n+PING\r\n",
        "",
        "expected '$', got '+': the array of a request holds bulk strings only",
    ),
    (
        b"*1\r\nPING\r\n",
        "",
        "expected '$', got 'P': the array of a request holds bulk strings only",
    ),
    (
        b"*1\r\n\r\n",
        "",
        r"expected '$', got '\r': the array of a request holds bulk strings only",
    ),
    (
        b"*1\r\n\xff",
        "",
        r"expected '$', got '\xff': the array of a request holds bulk strings only",
    ),
    (
        b"*2\r\n$4\r\nPING\r\n*1\r\n$4\r\nPING\r\n",
        "",
        "expected '$', got '*': the array of a request holds bulk strings only",
    ),
    (
        b"$4\r\nQUIT\r\n",
        "",
        "expected '*', got '$': a request is an array of bulk strings or a line of words",
    ),
    (
        b"+PING\r\n",
        "",
        "expected '*', got '+': a request is an array of bulk strings or a line of words",
    ),
    (
        b"%1\r\n+a\r\n+b\r\n",
        "",
        "expected '*', got '%': a request is an array of bulk strings or a line of words",
    ),
    (
        b"-ERR you are no server\r\n",
        "",
        "expected '*', got '-': a request is an array of bulk strings or a line of words",
    ),
    (
        b"*1\r\n$4\r\nPINGxxPING\r\n",
        "",
        "expected CR LF behind a bulk string, got 'xx': is its length right?",
    ),
    (
        b"*1\r\n$3\r\nPING\r\n",
        "",
        r"expected CR LF behind a bulk string, got 'G\r': is its length right?",
    ),
    (
        b"*1\r\n$5\r\nPING\r\n*1\r\n",
        "",
        r"expected CR LF behind a bulk string, got '\n*': is its length right?",
    ),
    (
        b"*1\r\n$4\r\nPINGx\n",
        "",
        r"expected CR LF behind a bulk string, got 'x\n': is its length right?",
    ),
    (
        b"*1\r\n$4\r\nPING\rx",
        "",
        r"expected CR LF behind a bulk string, got '\rx': is its length right?",
    ),
    (
        b"*1\r\n$0\r\n\n\r",
        "",
        r"expected CR LF behind a bulk string, got '\n\r': is its length right?",
    ),
    (
        b"*3\r\n$30\r\n123456789012345678901234567890\r\n$30\r\n\
          123456789012345678901234567890\r\n$19\r\n",
        "",
        "too big request: 100 bytes are allowed",
    ),
    (
        b"*1\r\n$4\r\nPING\r\nECHO a\r\n*1\r\n*",
        "PING\nECHO|a\n",
        "expected '$', got '*': the array of a request holds bulk strings only",
    ),
];

const LINES: &[Case] = &[
    (
        b"ECHO \"a\r\n",
        "",
        "unbalanced quotes in request: close each, with a space or the line's end behind",
    ),
    (
        b"ECHO 'a\r\nPING\r\n",
        "",
        "unbalanced quotes in request: close each, with a space or the line's end behind",
    ),
    (
        b"ECHO \"a\"b\n",
        "",
        "unbalanced quotes in request: close each, with a space or the line's end behind",
    ),
    (
        b"ECHO \"a\\\"\n",
        "",
        "unbalanced quotes in request: close each, with a space or the line's end behind",
    ),
    (
        b"PING\0\n",
        "",
        "zero byte in a line of words: send binary words as an array of bulk strings",
    ),
    (
        b"\0\0\0\x08\x04\xd2\x16\x2f\n",
        "",
        "zero byte in a line of words: send binary words as an array of bulk strings",
    ),
    (
        b"a b c d e f\n",
        "",
        "invalid multibulk length: a request has 5 words at most",
    ),
    (
        b"1234567890123456789012345678901234567890123456789012345678901",
        "",
        "too big inline request: a line of words has 60 bytes at most",
    ),
    (
        b"                                                             \r\n",
        "",
        "too big inline request: a line of words has 60 bytes at most",
    ),
    (
        b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03",
        "",
        "this port does not speak TLS; connect without it, or to the port that does",
    ),
    (
        b"\r\nPING\r\n\x16",
        "PING\n",
        "this port does not speak TLS; connect without it, or to the port that does",
    ),
];

/// What speaks HTTP gets HTTP.
const HTTP: &[&str] = &[
    "GET / HTTP/1.1\r\nHost: example\r\n\r\n",
    "get /metrics HTTP/1.0\n",
    "GET /?q=\"a HTTP/1.1\r\n",
    "PUT /v1/take/pg HTTP/1.1\r\n\r\nPING\r\n",
    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "CONNECT example:443 HTTP/1.1\r\n",
];

/// Closed without a word, and without the command behind it.
const SMUGGLED: &[&str] = &[
    "POST / HTTP/1.1\r\nContent-Length: 6\r\n\r\nPING\r\n",
    "post\r\nPING\r\n",
    "Host: localhost:7433\r\nPING\r\n",
    "hOsT:\r\nPING\r\n",
];

/// Nothing is wrong with them yet: they wait, and their reader has a clock.
const HALVES: &[&str] = &[
    "*",
    "*-",
    "*1",
    "*1\r",
    "*1\r\n",
    "*1\r\n$",
    "*1\r\n$4\r\nPIN",
    "*1\r\n$4\r\nPING",
    "*1\r\n$4\r\nPING\r",
    "*2\r\n$4\r\nECHO\r\n",
    "PING",
    "ECHO \"a",
    "GET / HTTP/1.1",
    "POST /",
    " ",
];

#[test]
fn every_bad_input_has_its_answer() {
    for (input, before, fault) in [LENGTHS, FRAMES, LINES].concat() {
        check(input, &format!("{before}-ERR Protocol error: {fault}\r\n"));
    }
}

#[test]
fn a_client_that_speaks_http_is_told_so_in_http() {
    let text = "this port speaks the Redis protocol; HTTP is spoken on the admin port\n";
    let answer = format!(
        "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{text}",
        text.len()
    );
    for input in HTTP {
        check(input.as_bytes(), &answer);
    }
}

#[test]
fn what_a_browser_may_smuggle_is_not_run() {
    for input in SMUGGLED {
        check(input.as_bytes(), "");
    }
}

#[test]
fn half_a_request_waits() {
    for input in HALVES {
        let server = Server::of([input.as_bytes()], &LIMITS);
        assert_eq!(server.fault, None, "{input:?}");
        assert_eq!(server.answers(), "", "{input:?}");
        assert_eq!(server.buffer, input.as_bytes(), "{input:?}");
    }
}

/// The answer is this one in whatever pieces the input comes, and the last.
fn check(input: &[u8], answer: &str) {
    let shown = input.escape_ascii();
    let ways = pieces::halves(input).map(|halves| Server::of(halves, &LIMITS));
    for server in ways.chain([Server::of(pieces::single(input), &LIMITS)]) {
        assert!(server.fault.is_some(), "{shown} is no fault");
        assert_eq!(server.answers(), answer, "{shown}");
    }
}
