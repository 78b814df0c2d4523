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
//!
//! # Parts and features
//!
//! Each part is a feature of the crate. All parts are on by default; with
//! `default-features = false` a program builds only those that it names.
//!
//! | feature | brings | what it is for |
//! |---|---|---|
//! | `pool` | [`Pool`], [`Registry`] | lends connections and other members |
//! | `group` | [`Group`] | takes a member from any of several pools |
//! | `keyed` | [`KeyedPool`] | a pool for each tenant or host, and one limit over all |
//! | `broker` | [`Broker`] | introduces clients to workers |
//! | `balancer` | [`Balancer`] | picks one of several brokers |
//! | `regulator` | [`Regulator`] | limits how many run, by rate, number or what it measures |
//! | `locks` | [`Locks`] | counting locks by key |
//! | `ranges` | [`Ranges`] | numbers and addresses that are leased for a time |
//! | `kit` | [`kit`] | checks for laws, valves and meters of your own |
//!
//! Not on by default, because each needs more crates:
//!
//! | feature | brings |
//! |---|---|
//! | `postgres`, `redis`, `tcp` | managers for connections, in `adapters` |
//! | `tower` | layers over a regulator, a pool and a broker, in `tower` |
//! | `axum` | extractors, and refusals as responses, in `axum` |
//! | `store` | ranges that outlive the process, in [`store`] |
//! | `etcd` | a client of etcd, in `store::etcd` |
// What parts share is whole in every build, also where only one of them is.
#![cfg_attr(not(feature = "default"), allow(dead_code, unused_imports))]
#![cfg_attr(all(doctest, feature = "default"), doc = include_str!("../../../README.md"))]
#![cfg_attr(all(doctest, feature = "default"), doc = include_str!("../../../docs/pool.md"))]
#![cfg_attr(
    all(doctest, feature = "default"),
    doc = include_str!("../../../docs/pools-together.md")
)]
#![cfg_attr(all(doctest, feature = "default"), doc = include_str!("../../../docs/locks.md"))]
#![cfg_attr(all(doctest, feature = "default"), doc = include_str!("../../../docs/queues.md"))]
#![cfg_attr(all(doctest, feature = "default"), doc = include_str!("../../../docs/broker.md"))]
#![cfg_attr(all(doctest, feature = "default"), doc = include_str!("../../../docs/regulator.md"))]

#[cfg(any(feature = "postgres", feature = "redis", feature = "tcp"))]
pub mod adapters;
#[cfg(feature = "regulator")]
mod admission;
mod after;
mod ask_options;
#[cfg(feature = "axum")]
pub mod axum;
#[cfg(feature = "balancer")]
mod balancer;
#[cfg(feature = "broker")]
mod broker;
mod clock;
#[cfg(feature = "regulator")]
mod coop;
#[doc(hidden)]
pub mod driver;
#[cfg(feature = "group")]
mod group;
#[cfg(any(feature = "locks", feature = "pool"))]
mod idle_cache;
#[cfg(any(feature = "keyed", feature = "locks"))]
mod key;
#[cfg(feature = "keyed")]
mod keyed;
#[cfg(feature = "locks")]
mod locks;
#[cfg(feature = "regulator")]
mod meter_outputs;
#[cfg(any(feature = "locks", feature = "regulator"))]
mod now;
#[cfg(feature = "broker")]
mod peer;
#[cfg(feature = "pool")]
mod pool;
#[cfg(feature = "ranges")]
mod ranges;
#[cfg(feature = "pool")]
mod registry;
#[cfg(feature = "regulator")]
mod regulator;
#[cfg(any(feature = "locks", feature = "regulator"))]
mod reply_slot;
mod seed;
mod short_sleep;
#[cfg(feature = "ranges")]
pub mod store;
mod sync;
mod thread;
mod timer;
#[cfg(feature = "tower")]
pub mod tower;

pub use ask_options::AskOptions;
/// The former name, until version 1.
#[doc(hidden)]
pub use ask_options::AskOptions as Terms;
#[cfg(feature = "balancer")]
pub use balancer::Balancer;
#[cfg(feature = "broker")]
pub use broker::{Asking, Broker, Offering, Refused};
pub use clock::Clock;
#[cfg(feature = "group")]
pub use group::Group;
#[cfg(any(feature = "keyed", feature = "locks"))]
pub use key::Key;
#[cfg(feature = "keyed")]
pub use keyed::{KeyedOptions, KeyedPool};
#[cfg(feature = "locks")]
pub use locks::{
    Acquiring, Denied, FullAt, KeyRule, Lock, LockHandle, Locks, LocksOptions, NotHeld, Owner,
};
#[cfg(feature = "regulator")]
pub use meter_outputs::Rank;
#[cfg(any(feature = "locks", feature = "regulator"))]
pub use now::Now;
#[cfg(feature = "broker")]
pub use peer::{Match, Peer};
#[cfg(feature = "pool")]
pub use pool::{
    About, Held, Holder, Manager, NotTaken, Pool, StartError, StartFault, Take, WhyNot,
};
#[cfg(feature = "ranges")]
pub use ranges::{
    Answer, Answering, Committed, Failed, KeyReport, Leased, ManualClocks, OpenError, Ranges,
    RangesHost, RangesOptions, Reached, Reserving, rest,
};
#[cfg(feature = "pool")]
pub use registry::{AddError, NoSuchPool, Registry};
#[cfg(feature = "regulator")]
pub use regulator::{Lease, Leasing, Regulator, Stopped};
#[cfg(any(feature = "locks", feature = "regulator"))]
pub use reply_slot::Ended;
#[cfg(feature = "balancer")]
pub use rideau_core::balancer::Method as BalancerMethod;
#[cfg(feature = "broker")]
pub use rideau_core::broker::{Options as BrokerOptions, Stats as BrokerStats, Tally};
#[cfg(feature = "group")]
pub use rideau_core::group::Method as GroupMethod;
#[cfg(feature = "kit")]
pub use rideau_core::kit;
#[cfg(feature = "locks")]
pub use rideau_core::locks::{Capacity, Full};
#[cfg(feature = "regulator")]
pub use rideau_core::meter;
#[cfg(feature = "pool")]
pub use rideau_core::pool::{
    Backoff, Circuit, Counts, Fate, MemberId, Options as PoolOptions, Retired, Reuse,
    Stats as PoolStats,
};
#[cfg(feature = "regulator")]
pub use rideau_core::regulator::{Leases, Options as RegulatorOptions, Stats as RegulatorStats};
#[cfg(any(feature = "pool", feature = "regulator"))]
pub use rideau_core::valve;
pub use rideau_core::{
    Custom, Flow, Histogram, Instant, Lead, OptionError, Priority, Reason, Refusal, Rule, Settings,
    Side, Tag, Ticket, queue,
};
#[cfg(feature = "ranges")]
pub use rideau_core::{allocator, cluster};
