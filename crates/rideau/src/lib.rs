//! Hands out scarce things fairly and fast, and takes them back when the
//! holder dies.
//!
//! A [`Pool`] lends members to one holder at a time, and says why when there is
//! none:
//!
//! ```
//! use rideau::{Held, Manager, Pool, PoolOptions, Reason};
//!
//! /// Lends buffers.
//! struct Buffers;
//!
//! impl Manager for Buffers {
//!     type Member = Vec<u8>;
//!     type Error = std::io::Error;
//!
//!     async fn start(&self) -> std::io::Result<Vec<u8>> {
//!         Ok(Vec::with_capacity(4096))
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let pool = Pool::new(Buffers, PoolOptions { max: 1, ..PoolOptions::default() })?;
//! let mut buffer = pool.take().await?;
//! Held::note(&buffer, "the first reader");
//! buffer.push(7);
//!
//! let no = pool.try_take().unwrap_err();
//! assert_eq!(no.refusal.reason, Reason::Busy);
//! assert!(no.to_string().contains("the first reader has held member 1"));
//! # Ok(())
//! # }
//! ```
//!
//! A [`Broker`] introduces asks to offers; its queues keep waits short and say no
//! early, with a reason:
//!
//! ```
//! use rideau::{Broker, BrokerOptions, AskOptions};
//!
//! let broker: Broker<&str, u32> = Broker::new(BrokerOptions::default())?;
//! let worker = broker.begin_offer(7, AskOptions::default());
//! let met = broker.try_ask("anna")?;
//! assert_eq!(met.value, 7);
//! assert_eq!(worker.wait()?.value, "anna");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # A pool that sizes itself
//!
//! A [`Broker`] introduces clients to workers, and a [`Regulator`] says how many
//! workers there may be. The broker tells the regulator how long its workers
//! wait for clients: when that is too short, one more worker is let in.
//!
//! ```
//! use rideau::{Broker, BrokerOptions, Refusal, Regulator, RegulatorOptions, Side};
//! use rideau::{meter, queue, valve};
//! use std::time::Duration;
//!
//! struct Connection;
//!
//! async fn work(size: Regulator, broker: Broker<u32, u32>) -> Result<(), Refusal> {
//!     loop {
//!         // Sleeps until one more worker is wanted.
//!         let mut lease = size.ask().await?;
//!         let _connection = Connection;
//!         loop {
//!             match broker.offer(7).await {
//!                 Ok(client) => client.peer.done(),
//!                 // No client for a while: is this worker still wanted?
//!                 Err(_) => match lease.renew() {
//!                     Ok(kept) => lease = kept,
//!                     Err(_) => break,
//!                 },
//!             }
//!         }
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let update = meter::Update {
//!     entries: vec![meter::Entry {
//!         regulator: "size".into(),
//!         side: Side::Offer,
//!         update: meter::Entry::UPDATE,
//!     }],
//!     seed: 1,
//! };
//! let broker = Broker::new(BrokerOptions {
//!     offers: queue::Options::timeout(Duration::from_secs(5)),
//!     meters: vec![meter::Options::Update(update)],
//!     ..BrokerOptions::default()
//! })?;
//! let size = Regulator::new(RegulatorOptions::new(valve::Options::Relative(
//!     valve::Relative { min: 1, max: 8, ..valve::Relative::default() },
//! )))?;
//! broker.feed("size", &size);
//!
//! for _ in 0..8 {
//!     tokio::spawn(work(size.clone(), broker.clone()));
//! }
//! let worker = broker.ask(1).await?;
//! assert_eq!(worker.value, 7);
//! # Ok(())
//! # }
//! ```
#![cfg_attr(doctest, doc = include_str!("../../../README.md"))]
#![cfg_attr(doctest, doc = include_str!("../../../docs/pool.md"))]
#![cfg_attr(doctest, doc = include_str!("../../../docs/pools-together.md"))]
#![cfg_attr(doctest, doc = include_str!("../../../docs/locks.md"))]
#![cfg_attr(doctest, doc = include_str!("../../../docs/queues.md"))]
#![cfg_attr(doctest, doc = include_str!("../../../docs/broker.md"))]
#![cfg_attr(doctest, doc = include_str!("../../../docs/regulator.md"))]

#[cfg(any(feature = "postgres", feature = "redis", feature = "tcp"))]
pub mod adapters;
mod admission;
mod after;
mod ask_options;
mod balancer;
mod broker;
mod clock;
mod coop;
#[doc(hidden)]
pub mod driver;
mod group;
mod idle_cache;
mod keyed;
mod locks;
mod meter_outputs;
mod now;
mod peer;
mod pool;
mod ranges;
mod registry;
mod regulator;
mod reply_slot;
mod short_sleep;
pub mod store;
mod sync;
mod thread;
mod timer;

pub use ask_options::AskOptions;
/// The former name, until version 1.
#[doc(hidden)]
pub use ask_options::AskOptions as Terms;
pub use balancer::Balancer;
pub use broker::{Asking, Broker, Offering, Refused};
pub use clock::Clock;
pub use group::Group;
pub use keyed::{Key, KeyedOptions, KeyedPool};
pub use locks::{
    Acquiring, Denied, FullAt, KeyRule, Lock, LockHandle, Locks, LocksOptions, NotHeld, Owner,
};
pub use meter_outputs::Rank;
pub use now::Now;
pub use peer::{Match, Peer};
pub use pool::{About, Held, Holder, Manager, NotTaken, Pool, StartError, Take, WhyNot};
pub use ranges::{
    Answer, Answering, Committed, Failed, KeyReport, Leased, ManualClocks, OpenError, Ranges,
    RangesHost, RangesOptions, Reached, Reserving, rest,
};
pub use registry::{AddError, NoSuchPool, Registry};
pub use regulator::{Lease, Leasing, Regulator, Stopped};
pub use reply_slot::Ended;
pub use rideau_core::balancer::Method as BalancerMethod;
pub use rideau_core::broker::{Options as BrokerOptions, Stats as BrokerStats, Tally};
pub use rideau_core::group::Method as GroupMethod;
pub use rideau_core::locks::{Capacity, Full};
pub use rideau_core::pool::{
    Backoff, Circuit, Counts, Fate, MemberId, Options as PoolOptions, Priority, Retired, Reuse,
    Stats as PoolStats,
};
pub use rideau_core::regulator::{Leases, Options as RegulatorOptions, Stats as RegulatorStats};
pub use rideau_core::{
    Custom, Flow, Histogram, Instant, Lead, OptionError, Reason, Refusal, Rule, Settings, Side,
    Tag, Ticket, allocator, cluster, kit, meter, queue, valve,
};
