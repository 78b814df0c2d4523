//! How many files the process may have open, and what of them connections may use.
//!
//! A connection is a file. Some are kept for everything else: the store, the log, members,
//! operators and health checks.

use std::sync::atomic::{AtomicUsize, Ordering};

use rideau_config::HTTP_CONNECTIONS_MAX;
use rideau_config::{Config, Member, PoolConfig};

/// Kept for listeners, the store, the log, threads, and clients that are turned away.
const OWN: u64 = 128;
/// Kept for operators and for health checks, of HTTP and of the Redis protocol.
const ADMIN: u64 = HTTP_CONNECTIONS_MAX as u64 + 32;
/// Files per process of ours: its output, its socket, its pid.
const PROCESS: u64 = 4;

/// How many files there may be, and how many connections that leaves.
#[derive(Debug)]
pub struct Files {
    /// Files in all.
    max: u64,
    /// Connections of the Redis protocol.
    connections: AtomicUsize,
}

/// How many connections there may be, by what a config says and files allow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share {
    /// Of the Redis protocol.
    pub connections: usize,
    /// To applications.
    pub front: usize,
}

impl Files {
    /// This many, for what a config says.
    pub fn new(max: u64, config: &Config) -> Self {
        let connections = share(max, config).connections;
        Self {
            max,
            connections: AtomicUsize::new(connections),
        }
    }

    /// A config has changed.
    pub(crate) fn follow(&self, config: &Config) {
        let connections = self.share(config).connections;
        self.connections.store(connections, Ordering::Relaxed);
    }

    /// This many connections of the Redis protocol may be there.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// How many connections a config gets.
    pub fn share(&self, config: &Config) -> Share {
        share(self.max, config)
    }

    /// The part of a config that needs more open files than there are, if any.
    pub(crate) fn shortage(&self, config: &Config) -> Option<String> {
        shortage(self.max, config)
    }

    /// Why no more connections come in.
    #[cold]
    pub(crate) fn full(&self, config: &Config) -> String {
        let most = self.connections();
        if most < config.limits.connections_max {
            let max = self.max;
            return format!(
                "there is room for {most} connections, because the system lets this server open \
                 {max} files: come back later or raise LimitNOFILE"
            );
        }
        format!("limits.connections_max ({most}) reached: come back later or raise it")
    }
}

/// The part of a config that needs more open files than the system allows, if any.
pub fn shortage(max: u64, config: &Config) -> Option<String> {
    let (share, limits) = (share(max, config), &config.limits);
    let is_short = |wanted: usize, had: usize| had < wanted;
    let mut less = Vec::new();
    if has_redis(config) && is_short(limits.connections_max, share.connections) {
        less.push(format!(
            "{} of the {} connections that limits.connections_max allows",
            share.connections, limits.connections_max
        ));
    }
    if has_front(config) && is_short(config.front.connections_max, share.front) {
        less.push(format!(
            "{} of the {} that front.connections_max allows",
            share.front, config.front.connections_max
        ));
    }
    if less.is_empty() {
        return None;
    }
    let wanted = spare(config) + wanted(config);
    Some(format!(
        "The system lets the server open {max} files, which is room for {}; others are refused. \
         Raise the hard limit to {wanted} (LimitNOFILE= of systemd, ulimit -Hn), or lower these \
         keys.",
        less.join(" and ")
    ))
}

fn share(max: u64, config: &Config) -> Share {
    let (connections, front) = (config.limits.connections_max, config.front.connections_max);
    // Where there are few, connections have half of them.
    let spare = spare(config).min(max / 2);
    let (room, wanted) = (max - spare, wanted(config));
    let part = |of: usize| match room < wanted {
        // Each gets the same part of what it wants, and one at least.
        true => (of as u128 * u128::from(room) / u128::from(wanted)).max(1) as usize,
        false => of,
    };
    Share {
        connections: part(connections),
        front: part(front),
    }
}

/// Files for all connections that a config allows.
fn wanted(config: &Config) -> u64 {
    let of = |is_there: bool, most: usize| if is_there { most as u64 } else { 0 };
    let connections = of(has_redis(config), config.limits.connections_max);
    connections + of(has_front(config), config.front.connections_max)
}

fn has_redis(config: &Config) -> bool {
    !config.server.listen.is_empty() || !config.server.tls_listen.is_empty()
}

/// Files that connections may not use.
fn spare(config: &Config) -> u64 {
    let of_pool = |pool: &PoolConfig| match pool.member {
        Member::Exec(_) => pool.options.max as u64,
        Member::List(_) | Member::Offered => 0,
    };
    let mut processes: u64 = config.pools.iter().map(of_pool).sum();
    if !config.apps.is_empty() {
        processes += (config.front.limits.max + config.front.limits.headroom) as u64;
    }
    OWN + ADMIN + processes * PROCESS
}

fn has_front(config: &Config) -> bool {
    !config.front.listen.is_empty() || !config.front.tls_listen.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Config {
        Config::parse(text, "test.toml", &|_| None).unwrap()
    }

    #[test]
    fn connections_leave_files_for_everything_else() {
        let config = config("[limits]\nconnections_max = 1000\n");
        assert_eq!(share(1_000_000, &config).connections, 1000);
        assert_eq!(shortage(1_416, &config), None);
        assert_eq!(share(1_415, &config).connections, 999);
        assert_eq!(share(916, &config).connections, 500);
        assert_eq!(share(100, &config).connections, 50);
        let text = shortage(916, &config).unwrap();
        assert!(text.contains("500 of the 1000 connections"), "{text}");
        assert!(text.contains("hard limit to 1416"), "{text}");
        // However few there are, a client can be told so.
        assert_eq!(share(0, &config).connections, 1);
    }

    #[test]
    fn connections_to_applications_count_too() {
        let text = "[limits]\nconnections_max = 1000\n[front]\nlisten = [\"127.0.0.1:0\"]\n\
                    connections_max = 500\n";
        let config = config(text);
        assert_eq!(shortage(1_916, &config), None);
        let share = share(1_166, &config);
        assert_eq!((share.connections, share.front), (500, 250));
        let text = shortage(1_166, &config).unwrap();
        assert!(text.contains("250 of the 500 that front"), "{text}");
    }
}
