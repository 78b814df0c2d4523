//! Quotas of users.

use super::server::Limits;

/// HTTP connections at a time: people, scrapers and scripts, each with a few.
pub const HTTP_CONNECTIONS_MAX: usize = 256;
/// A user that says nothing has at least this many streams.
const STREAMS_MIN: usize = 16;

/// A quota of each user.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Quota {
    /// Connections of the Redis protocol.
    Connections,
    /// Connections of HTTP to the admin port.
    Http,
    /// Sessions.
    Sessions,
    /// Subscriptions, `MONITOR`, and streams over HTTP.
    Streams,
    /// Commands and requests that wait.
    Waiting,
}

impl Quota {
    /// All that is counted.
    pub const ALL: [Self; 5] = [
        Self::Connections,
        Self::Http,
        Self::Sessions,
        Self::Streams,
        Self::Waiting,
    ];

    /// Its key below `user.NAME`.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Connections => "connections_max",
            Self::Http => "http_connections_max",
            Self::Sessions => "sessions_max",
            Self::Streams => "streams_max",
            Self::Waiting => "waiting_max",
        }
    }

    /// As much a user has that says nothing: never all that there is, so that others
    /// can come in.
    pub(super) const fn default(self, limits: &Limits) -> usize {
        const fn most_of(max: usize) -> usize {
            max - max / 10
        }
        match self {
            Self::Connections => most_of(limits.connections_max),
            Self::Http => most_of(HTTP_CONNECTIONS_MAX),
            Self::Sessions => most_of(limits.sessions_max),
            Self::Waiting => most_of(limits.waiters_max),
            Self::Streams => match limits.connections_max / 10 {
                ..STREAMS_MIN => STREAMS_MIN,
                streams => streams,
            },
        }
    }

    /// What a user can do when the quota is reached.
    pub const fn advice(self) -> &'static str {
        match self {
            Self::Connections | Self::Http => "close some connections",
            Self::Sessions => "close some sessions",
            Self::Streams => "close some streams",
            Self::Waiting => "retry later",
        }
    }
}
