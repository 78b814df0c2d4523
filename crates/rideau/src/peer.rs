//! The other party of a match.

use std::fmt;
use std::future;
use std::sync::Arc;
use std::time::Duration;

use rideau_core::{Lead, Ticket};

use crate::cell::{Bond, Ended, Seat};

/// Two who met: what the other brought, and how long it took.
#[derive(Debug)]
#[must_use = "dropping a match tells the other party that this one went away"]
pub struct Match<V> {
    /// What the other party brought.
    pub value: V,
    /// How much earlier this party came: positive if it waited for the other.
    pub lead: Lead,
    /// How long this party waited in all.
    pub waited: Duration,
    /// The name of the match: the same for both parties.
    pub ticket: Ticket,
    /// The other party.
    pub peer: Peer,
}

/// The other party of a match, as long as this one keeps it.
///
/// Dropping it without a word tells the other that this party went away.
#[must_use = "dropping a peer tells it that this party went away"]
pub struct Peer {
    /// None once this party has said that it is done.
    bond: Option<Arc<dyn Bond>>,
    seat: Seat,
}

impl Peer {
    pub(crate) fn new(bond: Arc<dyn Bond>, seat: Seat) -> Self {
        let bond = Some(bond);
        Self { bond, seat }
    }

    /// Tell the other party that this one is done.
    pub fn done(mut self) {
        self.end(Ended::Done);
    }

    /// How the other party ended the match, if it did.
    pub fn has_ended(&self) -> Option<Ended> {
        self.bond.as_ref()?.ended(self.seat)
    }

    /// Wait until the other party ends the match.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing; ask again.
    pub async fn ended(&mut self) -> Ended {
        let bond = self
            .bond
            .as_ref()
            .expect("only `done` takes the bond, and itself with it");
        future::poll_fn(|context| bond.poll_ended(self.seat, context)).await
    }
}

impl Peer {
    fn end(&mut self, how: Ended) {
        let Some(bond) = self.bond.take() else {
            return;
        };
        // Who is the last to hold the bond has nobody to tell.
        if Arc::strong_count(&bond) > 1 {
            bond.end(self.seat, how);
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.end(Ended::Down);
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut peer = f.debug_struct("Peer");
        peer.field("ended", &self.has_ended())
            .finish_non_exhaustive()
    }
}
