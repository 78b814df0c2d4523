//! Malformed requests, and the errors for them.
//!
//! After a fault it is not known where the next request would begin, so the
//! connection ends, as it does in Redis. The answers begin with Redis' words
//! where it has any.

use std::fmt;

use super::number::BadNumber;
use super::reply::{Protocol, Reply};

/// Why a connection cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A TLS handshake on a port without TLS.
    Tls,
    /// The first line of an HTTP request.
    Http,
    /// A line that browsers can be tricked into sending, with commands of another
    /// author behind it. It gets no answer, and deserves a warning in the log.
    Smuggled,
    /// A type of RESP that is no array stands where a request should.
    NotArray(u8),
    /// Something that is no bulk string stands in the array.
    NotBulk(u8),
    /// The length of the array is no number.
    Count(BadNumber),
    /// The length of a bulk string is no number.
    Length(BadNumber),
    /// These two bytes follow a bulk string, and not its line end.
    Ending([u8; 2]),
    /// A quote is not closed, or something follows it at once.
    Quotes,
    /// A line of words holds a zero byte.
    Nul,
    /// More words than [`arguments_max`](super::RequestLimits::arguments_max).
    Arguments {
        /// The limit.
        max: usize,
    },
    /// A word longer than [`bulk_max`](super::RequestLimits::bulk_max).
    Bulk {
        /// How many bytes were announced.
        len: u64,
        /// The limit.
        max: usize,
    },
    /// An array longer than [`frame_max`](super::RequestLimits::frame_max).
    Frame {
        /// The limit in bytes.
        max: usize,
    },
    /// A line longer than [`inline_max`](super::RequestLimits::inline_max).
    Inline {
        /// The limit in bytes.
        max: usize,
    },
    /// More bytes than a client may send that has yet to log in.
    BytesBeforeLogin {
        /// The limit.
        max: usize,
    },
    /// More words than such a client may send.
    WordsBeforeLogin {
        /// The limit.
        max: usize,
    },
}

impl Fault {
    /// The same fault of a client that has yet to log in, and may send more then.
    #[must_use]
    pub fn before_login(self) -> Self {
        match self {
            Self::Bulk { max, .. } | Self::Frame { max } | Self::Inline { max } => {
                Self::BytesBeforeLogin { max }
            }
            Self::Arguments { max } => Self::WordsBeforeLogin { max },
            other => other,
        }
    }

    /// Append what the client is told before the connection is closed.
    pub fn answer(self, out: &mut Vec<u8>) {
        match self {
            Self::Smuggled => (),
            // A client that speaks HTTP shows its user nothing but HTTP.
            Self::Http => {
                let text = format!("{self}\n");
                let head = format!(
                    "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\n\
                     Content-Length: {}\r\nConnection: close\r\n\r\n",
                    text.len()
                );
                out.extend_from_slice(head.as_bytes());
                out.extend_from_slice(text.as_bytes());
            }
            _ => {
                let text = format_args!("ERR Protocol error: {self}");
                Reply::new(out, Protocol::Resp2).error(text);
            }
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tls => f.write_str(
                "this port does not speak TLS; connect without it, or to the port that does",
            ),
            Self::Http => {
                f.write_str("this port speaks the Redis protocol; HTTP is spoken on the admin port")
            }
            Self::Smuggled => f.write_str(
                "a line of an HTTP request, perhaps with commands of another client behind it",
            ),
            Self::NotArray(kind) => write!(
                f,
                "expected '*', got '{}': a request is an array of bulk strings or a line of words",
                kind.escape_ascii()
            ),
            Self::NotBulk(kind) => write!(
                f,
                "expected '$', got '{}': the array of a request holds bulk strings only",
                kind.escape_ascii()
            ),
            Self::Count(bad) => write!(f, "invalid multibulk length: {bad}"),
            Self::Length(bad) => write!(f, "invalid bulk length: {bad}"),
            Self::Ending(bytes) => write!(
                f,
                "expected CR LF behind a bulk string, got '{}': is its length right?",
                bytes.escape_ascii()
            ),
            Self::Quotes => f.write_str(
                "unbalanced quotes in request: close each, with a space or the line's end behind",
            ),
            Self::Nul => f.write_str(
                "zero byte in a line of words: send binary words as an array of bulk strings",
            ),
            Self::Arguments { max } => {
                write!(
                    f,
                    "invalid multibulk length: a request has {max} words at most"
                )
            }
            Self::Bulk { len, max } => write!(
                f,
                "invalid bulk length: a word of {len} bytes, and {max} are allowed"
            ),
            Self::Frame { max } => write!(f, "too big request: {max} bytes are allowed"),
            Self::Inline { max } => write!(
                f,
                "too big inline request: a line of words has {max} bytes at most"
            ),
            Self::BytesBeforeLogin { max } => write!(
                f,
                "unauthenticated bulk length: before login a request has {max} bytes at most; \
                 log in with AUTH or HELLO first, then send it"
            ),
            Self::WordsBeforeLogin { max } => write!(
                f,
                "unauthenticated multibulk length: before login a request has {max} words at \
                 most; log in with AUTH or HELLO first, then send it"
            ),
        }
    }
}

impl std::error::Error for Fault {}
