//! Members of every kind, lent by a real server to real connections.

mod harness;
mod peer;

mod changes;
mod failures;
mod lists;
mod offers;
mod processes;
