//! Every decision Rideau takes, as pure state machines.
//!
//! A machine gets `now` with every input, draws from a seed, and pushes what
//! it decided into an out-parameter. It has no clock, no lock, no thread and no
//! log, so that tests and simulations run the very code that ships.
//!
//! Each machine has a feature of its own, and all of them are on by default.
// What machines share is whole in every build, also where only one of them is.
#![cfg_attr(not(feature = "default"), allow(dead_code, unused_imports))]

#[cfg(feature = "apps")]
pub mod acme;
#[cfg(feature = "alarm")]
pub mod alarm;
#[cfg(feature = "allocator")]
pub mod allocator;
#[cfg(feature = "apps")]
pub mod apps;
#[cfg(feature = "balancer")]
pub mod balancer;
#[cfg(feature = "broker")]
pub mod broker;
#[cfg(feature = "apps")]
mod buffers;
#[cfg(feature = "cluster")]
pub mod cluster;
mod custom;
#[cfg(feature = "apps")]
pub mod eviction_score;
mod expiry;
#[cfg(feature = "group")]
pub mod group;
mod histogram;
mod ids;
#[cfg(feature = "pool")]
pub mod keyed;
#[cfg(feature = "kit")]
pub mod kit;
mod ledger;
#[cfg(feature = "locks")]
pub mod locks;
mod machine;
#[cfg(any(feature = "broker", feature = "regulator"))]
pub mod meter;
#[cfg(feature = "apps")]
mod min_rate;
#[cfg(feature = "pool")]
pub mod pool;
#[cfg(any(feature = "broker", feature = "regulator"))]
pub mod protector;
pub mod queue;
#[cfg(feature = "apps")]
mod rate_limit;
mod refusal;
#[cfg(feature = "regulator")]
pub mod regulator;
mod rng;
mod settings;
mod time;
#[cfg(feature = "apps")]
pub mod upgrade;
#[cfg(any(feature = "pool", feature = "regulator"))]
pub mod valve;
mod waiting;
#[cfg(feature = "apps")]
mod waiting_room;

#[cfg(feature = "apps")]
pub use buffers::{BufferLimits, BufferPlace, Buffers, DiskSpace};
pub use custom::Custom;
pub use histogram::Histogram;
pub use ids::{Flow, Priority, Side, Tag, Ticket};
pub use ledger::{Ledger, Reply};
pub use machine::Machine;
#[cfg(feature = "apps")]
pub use min_rate::{MinRate, MinRateOptions, TooSlow};
#[cfg(feature = "apps")]
pub use rate_limit::{RateLimitOptions, RateLimits};
pub use refusal::{Reason, Refusal};
pub use rng::Rng;
pub use settings::{OptionError, Rule, Settings};
pub use time::{Brief, Instant, Lead};
#[cfg(feature = "apps")]
pub use waiting_room::{
    RoomEntry, RoomLoad, RoomPlace, WaitingRoom, WaitingRoomOptions, WaitingRoomStats,
};
