//! Links between nodes in one process, over loopback, with what can go wrong between
//! them.

mod breaks;
mod handshake;
mod harness;
mod limits;
mod pairs;
mod proxy;
mod tls;
