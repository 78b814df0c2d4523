//! Counts a command that waits, for as long as it does.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::client::Client;
use crate::clients::ClientCard;
use crate::daemon::Daemon;

/// One command waits.
pub(super) struct Waits(Arc<Daemon>, Arc<ClientCard>);

impl Waits {
    pub(super) fn begin(client: &Client) -> Self {
        client.daemon.counts.waiting.fetch_add(1, Ordering::Relaxed);
        client.card.is_waiting.store(true, Ordering::Relaxed);
        Self(Arc::clone(&client.daemon), Arc::clone(&client.card))
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.counts.waiting.fetch_sub(1, Ordering::Relaxed);
        self.1.is_waiting.store(false, Ordering::Relaxed);
    }
}
