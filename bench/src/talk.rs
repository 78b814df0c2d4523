//! Servers, and clients that talk to them: what benchmarks over the wire share.

mod folder;
mod frames;
mod goal;
mod postgres;
mod roof;
mod server;
mod traffic;

pub(crate) use self::folder::{Disk, Folder};
pub(crate) use self::frames::{Form, bulk, frame, opening};
pub(crate) use self::goal::Goal;
pub(crate) use self::postgres::{argument, greeting, statement, statement_around};
pub(crate) use self::roof::{WORD as ROOF, serve as serve_roof};
pub(crate) use self::server::{Server, fail, free_address, program, want_redis};
pub(crate) use self::traffic::{Dialog, Step, cpu_of, talk, talk_to};
