//! What this node keeps of a partition that it owns.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use rideau::{Lead, Lock, Locks};
use rideau_core::cluster::Incarnation;
use tokio::task::AbortHandle;

use super::place_claim::{PlaceClaim, PlaceEnd, PlaceGrant, PlaceHeld, PlaceOutcome};
use crate::state::matches::Mailbox;

/// A row of a node.
pub(crate) type RowKey = (Incarnation, u64);

/// The names of a partition in one ownership.
pub(super) struct OwnedNames {
    pub(super) epoch: u64,
    pub(super) locks: Locks<Vec<u8>>,
    pub(super) rows: HashMap<RowKey, OwnedRow>,
    pub(super) places: PlacesPhase,
    /// The last fence of a place.
    pub(super) fence: u64,
    /// Takes over places, unless the partition goes first.
    pub(super) adopting: Option<AbortHandle>,
}

impl OwnedNames {
    /// The fence of the next lease of a place.
    pub(super) const fn next_fence(&mut self) -> u64 {
        self.fence += 1;
        self.fence
    }
}

impl Drop for OwnedNames {
    fn drop(&mut self) {
        if let Some(adopting) = &self.adopting {
            adopting.abort();
        }
    }
}

/// A lease or an ask of some node. Dropping it gives the units back, or the place in the
/// queue.
pub(super) enum OwnedRow {
    Held(#[expect(dead_code, reason = "it is kept to be dropped")] Lock<'static, Vec<u8>>),
    Waits(#[expect(dead_code, reason = "it is kept to be dropped")] WaitTask),
    Place(Box<dyn HeldPlace>),
    /// It is taken over just now, and has perhaps ended meanwhile.
    Coming(Option<PlaceEnd>),
}

/// The task of an ask that waits. It ends with the ask.
pub(super) struct WaitTask(AbortHandle);

impl WaitTask {
    pub(super) const fn new(task: AbortHandle) -> Self {
        Self(task)
    }
}

impl Drop for WaitTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// An ask or a lease of a node, and the ownership it is of.
#[derive(Clone, Debug)]
pub(super) struct RowOf {
    pub(super) partition: u32,
    pub(super) epoch: u64,
    pub(super) key: RowKey,
}

/// How far the places of a partition are from being asked.
pub(super) enum PlacesPhase {
    /// A task takes over. These asks wait for that.
    Opening(Vec<EarlyAsk>),
    Open,
}

/// An ask that came too early.
pub(super) struct EarlyAsk {
    pub(super) of: RowOf,
    pub(super) claim: PlaceClaim,
    pub(super) age: Duration,
}

/// Has the pools, brokers and regulators that nodes share.
pub(crate) trait HostPlaces: Send + Sync {
    /// Begin an ask that has waited so long before. It takes its place in the queue when it
    /// is polled first.
    fn begin(&self, claim: &PlaceClaim, age: Duration, row: &RowKey) -> Placing;

    /// Make all places of a partition anew, and take over what is held.
    fn adopt(
        self: Arc<Self>,
        partition: u32,
        held: Vec<(RowKey, PlaceHeld)>,
        asks: HashMap<RowKey, PlaceClaim>,
    ) -> Pin<Box<dyn Future<Output = Vec<AdoptedLease>> + Send>>;

    /// This node decides about the places of a partition, or does not any more.
    fn set_here(&self, partition: u32, is_here: bool);
}

/// Something that a client of some node holds of a place. It is given back when this is
/// dropped.
pub(crate) trait HeldPlace: Send {
    /// Give it back.
    fn end(self: Box<Self>, end: PlaceEnd);

    /// Let it go on: it, for how long the valve has been open for that, and how long the
    /// answer took.
    ///
    /// # Errors
    ///
    /// It, if it is no lease of a regulator; or how long the answer took, if it is over.
    fn renew(self: Box<Self>) -> Result<(Box<dyn HeldPlace>, Lead, Duration), NotRenewed>;
}

/// Why a lease does not go on.
pub(crate) enum NotRenewed {
    /// Nothing of its kind does.
    Other(Box<dyn HeldPlace>),
    /// The regulator says so. How long the answer took.
    Stopped(Duration),
}

/// What an ask came to. A party of a match is told there of the other's end.
pub(crate) type Placed =
    Result<(Box<dyn HeldPlace>, PlaceGrant, Option<Arc<Mailbox>>), PlaceOutcome>;
pub(crate) type Placing = Pin<Box<dyn Future<Output = Placed> + Send>>;

/// A lease that was taken over.
pub(crate) struct AdoptedLease {
    pub(crate) key: RowKey,
    pub(crate) lease: Box<dyn HeldPlace>,
    /// Where a party of a match is told of the other's end.
    pub(crate) mail: Option<Arc<Mailbox>>,
    /// The answer to its ask, which the owner before could not tell any more.
    pub(crate) answer: Option<PlaceGrant>,
}

impl AdoptedLease {
    /// A lease with nothing more to tell.
    pub(crate) fn new(key: RowKey, lease: Box<dyn HeldPlace>) -> Self {
        Self {
            key,
            lease,
            mail: None,
            answer: None,
        }
    }
}
