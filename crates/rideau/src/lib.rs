//! Hands out scarce things fairly and fast, and takes them back when the
//! holder dies.
#![cfg_attr(doctest, doc = include_str!("../../../README.md"))]

mod after;
mod bell;
mod broker;
mod cell;
mod clock;
mod door;
mod driver;
mod peer;
mod signals;
mod sync;
mod terms;
mod thread;

pub use broker::{Asking, Broker, Now, Offering, Refused};
pub use cell::Ended;
pub use peer::{Match, Peer};
pub use rideau_core::broker::{Options as BrokerOptions, Stats as BrokerStats, Tally};
pub use rideau_core::{
    Flow, Histogram, Instant, Lead, OptionError, Reason, Refusal, Rule, Settings, Side, Tag,
    Ticket, meter, queue,
};
pub use signals::Rank;
pub use terms::Terms;
