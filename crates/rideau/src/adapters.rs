//! Managers for members that many pools lend: connections to PostgreSQL
//! (feature `postgres`), to Redis (feature `redis`), and plain TCP streams
//! (feature `tcp`).
//!
//! Each is a thin [`Manager`](crate::Manager) around the driver that its users
//! know, and lends what that driver makes. None of them is built unless its
//! feature is asked for.

#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod task;
#[cfg(feature = "tcp")]
mod tcp;

#[cfg(feature = "postgres")]
pub use self::postgres::{Postgres, PostgresClient, Recycle};
#[cfg(feature = "redis")]
pub use self::redis::{Redis, RedisConnection};
#[cfg(feature = "tcp")]
pub use self::tcp::Tcp;
