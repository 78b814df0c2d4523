//! The Redis protocol, versions 2 and 3, as bytes: what clients send becomes
//! words, and answers become bytes again.
//!
//! Nothing here reads a socket or knows a command. A connection reads what
//! there is, takes out one request after the other, and writes all answers at
//! once:
//!
//! ```
//! use rideau_resp::{RequestLimits, Protocol, Reply, RequestParser, Upper};
//!
//! let mut buffer = b"*1\r\n$4\r\nPING\r\necho 'two words'\r\n*2\r\n$4\r\nEC".to_vec();
//! let (mut parser, limits) = (RequestParser::default(), RequestLimits::default());
//!
//! let (mut at, mut out) = (0, Vec::new());
//! let fault = loop {
//!     match parser.next(&buffer, &mut at, &limits) {
//!         Ok(Some(request)) => {
//!             let mut reply = Reply::new(&mut out, Protocol::Resp2);
//!             match Upper::of(request.name()).as_bytes() {
//!                 b"PING" => reply.simple("PONG"),
//!                 b"ECHO" => reply.bulk(request.word(1).unwrap_or_default()),
//!                 _ => reply.error("ERR unknown command"),
//!             };
//!         }
//!         Ok(None) => break None,
//!         Err(fault) => break Some(fault),
//!     }
//! };
//! // After a fault the connection writes what is in `out` and closes.
//! if let Some(fault) = fault {
//!     fault.answer(&mut out);
//! }
//! assert_eq!(out, b"+PONG\r\n$9\r\ntwo words\r\n");
//! buffer.drain(..at);
//! assert_eq!(buffer, b"*2\r\n$4\r\nEC");
//! ```

mod arguments;
mod fault;
mod limits;
mod line;
mod number;
mod reply;
mod request;
mod value;
mod words;

pub use arguments::{Arguments, Mistake};
pub use fault::Fault;
pub use limits::{BEFORE_LOGIN_MAX, ReplyLimits, RequestLimits};
pub use number::BadNumber;
pub use reply::{Protocol, Reply};
pub use request::{Request, RequestParser};
pub use value::{BadReply, ReplyParser, Value};
pub use words::{Quoted, Upper};
