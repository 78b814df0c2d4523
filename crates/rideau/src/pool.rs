//! Lends members, and starts and stops them as needed.

mod manager;

pub use manager::{About, Manager, MemberId, Retired};
