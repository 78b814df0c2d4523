//! Sockets with more to them than an address: TLS, and the control socket.

pub mod control;
pub(crate) mod tickets;
pub mod tls;
pub(crate) mod tls_files;
