//! Sockets with more to them than an address: TLS, and the control socket.

pub(crate) mod acme;
mod acme_store;
pub(crate) mod alarm_posts;
pub mod control;
mod der;
pub(crate) mod tickets;
pub mod tls;
pub(crate) mod tls_files;
