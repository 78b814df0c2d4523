//! Servers, and clients that talk to them: what benchmarks over the wire share.

mod frames;
mod server;
mod traffic;

pub(crate) use self::frames::{bulk, frame, opening};
pub(crate) use self::server::{Server, program, want_redis};
pub(crate) use self::traffic::{Dialog, Step, talk};
