//! Every decision Rideau takes, as pure state machines.
//!
//! A machine gets `now` with every input, draws from a seed, and pushes what
//! it decided into an out-parameter. It has no clock, no lock, no thread and no
//! log, so that tests and simulations run the very code that ships.

mod ids;
mod rng;
mod settings;
mod time;
pub mod valve;

pub use ids::{Flow, Tag, Ticket};
pub use rng::Rng;
pub use settings::{OptionError, Rule, Settings};
pub use time::{Instant, Lead};
