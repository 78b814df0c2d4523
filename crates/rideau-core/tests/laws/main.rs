//! Laws that hold for every input, checked against slow and obvious models.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod meters;
mod protector;
