//! The commands of operators, as a Redis client sends them to a real server on
//! a free port.

mod audit;
mod groups;
mod labels;
mod locks;
mod look;
mod lost;
mod manners;
mod many;
mod multi;
mod owners;
mod pages;
mod peer;
mod pools;
mod quotas;
mod ranges;
mod ranges_change;
mod ranges_kept;
mod ranges_wait;
mod refusals;
mod rights;
mod server;
mod settings;
mod streams;
mod tools;
mod users;
mod viewer;
mod views;
mod waits;
mod watch;
