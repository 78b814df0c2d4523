//! Values given out of ranges: by name, by cost, and against a plain model.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod bad;
mod bench;
mod calls;
mod check;
mod cost;
mod defects;
mod disk;
mod grants;
mod hosted;
mod laws;
mod model;
mod owners;
mod split;
mod start;
mod steps;
mod waiting;
mod world;
