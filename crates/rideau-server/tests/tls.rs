//! TLS as clients meet it: the server's certificate, theirs, and what is cut.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "tls/harness.rs"]
mod harness;

#[path = "tls/handshakes.rs"]
mod handshakes;
#[path = "tls/names.rs"]
mod names;
#[path = "tls/programs.rs"]
mod programs;
#[path = "tls/sockets.rs"]
mod sockets;
