//! What all of a kind must obey, written once and tried at random.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod valves;
