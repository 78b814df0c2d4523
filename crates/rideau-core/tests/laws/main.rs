//! What every queue must obey, whatever its options: written once, tried on
//! random histories.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod codel;
mod fair;
mod hall;
mod overload;
mod plain;
mod queues;
