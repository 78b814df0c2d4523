//! HTTP/1 as bytes, of clients and of applications alike: heads, fields, bodies in chunks.

pub(crate) mod chunks;
pub(crate) mod date;
pub(crate) mod fields;
pub(crate) mod head;
pub(crate) mod message_io;
pub(crate) mod stream;
pub(crate) mod thread_buffer;
