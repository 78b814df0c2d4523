//! Every decision Rideau takes, as pure state machines.
//!
//! A machine gets `now` with every input, draws from a seed, and pushes what
//! it decided into an out-parameter. It has no clock, no lock, no thread and no
//! log, so that tests and simulations run the very code that ships.

pub mod acme;
pub mod allocator;
pub mod apps;
pub mod balancer;
pub mod broker;
mod buffers;
pub mod cluster;
mod custom;
pub mod eviction_score;
mod expiry;
pub mod group;
mod histogram;
mod ids;
pub mod keyed;
pub mod kit;
mod ledger;
pub mod locks;
mod machine;
pub mod meter;
mod min_rate;
pub mod pool;
pub mod protector;
pub mod queue;
mod rate_limit;
mod refusal;
pub mod regulator;
mod rng;
mod settings;
mod time;
pub mod valve;
mod waiting;
mod waiting_room;

pub use buffers::{BufferLimits, BufferPlace, Buffers, DiskSpace};
pub use custom::Custom;
pub use histogram::Histogram;
pub use ids::{Flow, Side, Tag, Ticket};
pub use ledger::{Ledger, Reply};
pub use machine::Machine;
pub use min_rate::{MinRate, MinRateOptions, TooSlow};
pub use rate_limit::{RateLimitOptions, RateLimits};
pub use refusal::{Reason, Refusal};
pub use rng::Rng;
pub use settings::{OptionError, Rule, Settings};
pub use time::{Brief, Instant, Lead};
pub use waiting_room::{
    RoomEntry, RoomLoad, RoomPlace, WaitingRoom, WaitingRoomOptions, WaitingRoomStats,
};
