//! A holder: a connection or a session.

use std::sync::Arc;

use parking_lot::Mutex;

/// A connection or a session, as others see it.
#[derive(Debug)]
pub struct Holder {
    /// How it calls itself, or how we call it.
    pub name: Mutex<String>,
    /// The user that it belongs to.
    pub user: Arc<str>,
    /// The session, if it is one; else it is a connection.
    pub session: Option<String>,
    /// The number of the connection, if it is one.
    pub connection: Option<u64>,
}

/// One holder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HolderId {
    pub(crate) shard: u32,
    pub(crate) at: u32,
    pub(crate) turn: u32,
}
