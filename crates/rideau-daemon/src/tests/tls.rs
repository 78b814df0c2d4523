//! TLS as clients meet it: which names both sides have, and what is cut.

mod harness;

mod handshakes;
mod http;
mod names;
mod sockets;
