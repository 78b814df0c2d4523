//! The other party of a match.

use std::fmt;
use std::future;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use rideau_core::{Lead, Ticket};

use crate::reply_slot::{Bond, Ended, MatchSide};

/// Two parties that met: what the other brought, and how long it took.
#[derive(Debug)]
#[must_use = "dropping a match tells the other party that this one went away"]
pub struct Match<V> {
    /// The value that the other party brought.
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
pub struct Peer(Tie);

/// The connection between the two parties.
enum Tie {
    Bound(Arc<dyn Bond>, MatchSide),
    /// The other has ended the match and let go of the bond.
    Ended(Ended),
    /// This party has ended the match.
    Cut,
}

impl Peer {
    pub(crate) fn new(bond: Arc<dyn Bond>, side: MatchSide) -> Self {
        Self(Tie::Bound(bond, side))
    }

    /// A party that has ended the match already.
    pub(crate) fn that_ended(how: Ended) -> Self {
        Self(Tie::Ended(how))
    }

    /// Tell the other party that this one is done.
    #[inline]
    pub fn done(mut self) {
        self.end(Ended::Done);
    }

    /// How the other party ended the match, if it did.
    pub fn has_ended(&self) -> Option<Ended> {
        match &self.0 {
            Tie::Bound(bond, side) => bond.ended(*side),
            Tie::Ended(how) => Some(*how),
            Tie::Cut => None,
        }
    }

    /// Wait until the other party ends the match.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing; ask again.
    pub async fn ended(&mut self) -> Ended {
        match &self.0 {
            Tie::Bound(bond, side) => {
                future::poll_fn(|context| bond.poll_ended(*side, context)).await
            }
            Tie::Ended(how) => *how,
            Tie::Cut => unreachable!("only `done` cuts the tie, and takes the peer with it"),
        }
    }
}

impl Peer {
    #[inline]
    fn end(&mut self, how: Ended) {
        // A party that is the last to hold the bond has no other to tell.
        if let Tie::Bound(bond, side) = mem::replace(&mut self.0, Tie::Cut)
            && Arc::strong_count(&bond) > 1
        {
            bond.end(side, how);
        }
    }
}

impl Drop for Peer {
    #[inline]
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
