//! A connection that has not logged in: it has so long to do so, and no longer.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite};

use super::{Connection, Heard, Over};
use crate::redis::client::Client;

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Connection<S> {
    /// Its time to log in begins, unless it has begun.
    pub(super) fn await_login(&mut self, within: Duration) {
        if self.login_by.is_none() {
            self.login_by = Some(Instant::now() + within);
        }
    }

    /// It has logged in, or need not.
    pub(super) fn end_login(&mut self) {
        self.login_by = None;
        self.client.place = None;
    }

    /// Its time to log in is over.
    #[cold]
    pub(super) fn is_late(by: Instant) -> bool {
        by <= Instant::now()
    }

    /// It has not logged in by then.
    #[cold]
    pub(super) async fn refuse_late(&mut self) -> Over {
        let daemon = &self.client.daemon;
        daemon.counts.logins_late.fetch_add(1, Ordering::Relaxed);
        let within = daemon.config.load().limits.login_within;
        self.client.reply().error(format_args!(
            "NOAUTH limits.login_within ({within:?}) passed without a login: connect again, and \
             send AUTH user password first."
        ));
        self.refuse().await
    }
}

/// Wait until a connection has been silent for longer than it promised, or has not
/// logged in in time.
pub(super) async fn quiet(
    client: &Client,
    heartbeat: Option<Duration>,
    login_by: Option<Instant>,
) -> Heard {
    let login = login_by.map(|by| (by.saturating_duration_since(Instant::now()), Heard::Late));
    let beat = heartbeat.map(|beat| beat.saturating_sub(client.card.silent()));
    let beat = beat.map(|left| (left, Heard::Nothing));
    let all = beat.into_iter().chain(login);
    match all.min_by_key(|(left, _)| *left) {
        Some((left, heard)) => {
            tokio::time::sleep(left).await;
            heard
        }
        None => std::future::pending().await,
    }
}
