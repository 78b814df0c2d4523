//! The parts of the `rideau` program, for its binary and its tests.

pub mod config;
pub mod resp;
