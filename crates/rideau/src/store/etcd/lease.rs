//! Leases: keys that go together when no keepalive comes in time.

use std::time::Duration;

use super::client::{CallStream, EtcdClient};
use super::error::{EtcdDoubt, EtcdError};
use super::messages::{EtcdCall, LeaseGrantRequest, LeaseKeepAliveRequest, LeaseRevokeRequest};

/// The number of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LeaseId(i64);

/// A lease as etcd granted it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EtcdLease {
    /// Its number.
    pub id: LeaseId,
    /// How long it lasts without a keepalive. etcd may give more than was asked.
    pub ttl: Duration,
}

/// What a keepalive was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptAlive {
    /// The lease lasts for this long, counted from before the call.
    Kept(Duration),
    /// The lease has ended, and its keys with it. That is final.
    Lost,
}

/// Sends the keepalives of one lease.
///
/// Replies carry nothing that tells which request they belong to. So one request is
/// outstanding at most, and a stream on which a reply did not come is never read again.
#[derive(Debug)]
pub struct LeaseKeeper {
    client: EtcdClient,
    id: LeaseId,
    timeout: Duration,
    /// One on which every request was answered.
    stream: Option<CallStream<LeaseKeepAliveRequest>>,
}

impl LeaseId {
    pub(super) const fn of(number: i64) -> Option<Self> {
        match number {
            0 => None,
            number => Some(Self(number)),
        }
    }

    /// As etcd writes it.
    pub const fn number(self) -> i64 {
        self.0
    }

    /// The lease with this number, of which the core knows no sign. No lease has 0.
    pub const fn from_core(number: u64) -> Option<Self> {
        Self::of(number.cast_signed())
    }

    /// Its number for the core.
    pub const fn to_core(self) -> u64 {
        self.0.cast_unsigned()
    }
}

impl EtcdClient {
    /// Asks for a lease of at least this long. etcd counts whole seconds, and gives no
    /// less than its elections take.
    ///
    /// # Errors
    ///
    /// If the outcome is unknown, there may be a lease that no client keeps. It expires.
    pub async fn grant_lease(&self, ttl: Duration) -> Result<EtcdLease, EtcdError> {
        let seconds = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
        let request = LeaseGrantRequest {
            ttl: i64::try_from(seconds).unwrap_or(i64::MAX),
        };
        let reply = self.call(request).await?;
        match (LeaseId::of(reply.id), u64::try_from(reply.ttl)) {
            (Some(id), Ok(ttl @ 1..)) if reply.error.is_empty() => Ok(EtcdLease {
                id,
                ttl: Duration::from_secs(ttl),
            }),
            _ => {
                let said = format!("no lease in the reply: {:?}", reply.error);
                Err(self.unknown(EtcdDoubt::Unclear, LeaseGrantRequest::name(), said))
            }
        }
    }

    /// Ends a lease, and its keys with it.
    ///
    /// # Errors
    ///
    /// [`LeaseNotFound`](super::EtcdRefusal::LeaseNotFound) if it has ended already.
    pub async fn revoke_lease(&self, id: LeaseId) -> Result<(), EtcdError> {
        self.call(LeaseRevokeRequest { id: id.number() }).await?;
        Ok(())
    }

    /// Sends the keepalives of a lease. Each may take `timeout`.
    pub fn keep_lease(&self, id: LeaseId, timeout: Duration) -> LeaseKeeper {
        LeaseKeeper {
            client: self.clone(),
            id,
            timeout,
            stream: None,
        }
    }
}

impl KeptAlive {
    /// How long the lease lasts; nothing if it has ended.
    pub const fn ttl(self) -> Duration {
        match self {
            Self::Kept(ttl) => ttl,
            Self::Lost => Duration::ZERO,
        }
    }
}

impl LeaseKeeper {
    /// Sends one keepalive and waits for its own reply.
    ///
    /// **The time counts from before the call**: read the clock, then call. etcd counts
    /// from when the request arrives, which is later.
    ///
    /// # Errors
    ///
    /// If no reply came. The lease may have been kept or not, so what the last reply said
    /// is all that is known. The next call goes to the next endpoint.
    pub async fn keep_alive(&mut self) -> Result<KeptAlive, EtcdError> {
        let deadline = tokio::time::Instant::now() + self.timeout;
        let request = LeaseKeepAliveRequest {
            id: self.id.number(),
        };
        let mut tries = self.client.endpoints();
        loop {
            // Taken out: a call that fails or is dropped leaves no reply to be read later.
            let mut stream = match self.stream.take() {
                Some(stream) if stream.send(request.clone()) => stream,
                _ => self.client.open(request.clone(), deadline).await?,
            };
            let error = match stream.next_until(deadline).await {
                Ok(reply) if reply.id != self.id.number() => {
                    stream.unknown(EtcdDoubt::Unclear, "the reply is about another lease")
                }
                Ok(reply) => {
                    self.stream = Some(stream);
                    return Ok(match u64::try_from(reply.ttl) {
                        Ok(ttl @ 1..) => KeptAlive::Kept(Duration::from_secs(ttl)),
                        _ => KeptAlive::Lost,
                    });
                }
                Err(error) => error,
            };
            self.client.leave(&stream, &error);
            // A stream that broke was that of an endpoint that has gone meanwhile.
            if tries == 0 || error.doubt() != Some(EtcdDoubt::Broken) {
                return Err(error);
            }
            tries -= 1;
        }
    }
}
