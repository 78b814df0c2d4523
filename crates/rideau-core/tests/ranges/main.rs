//! Values given out of ranges: by name, by cost, and against a plain model.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod calls;
mod check;
mod disk;
mod grants;
mod laws;
mod model;
mod steps;
mod world;
