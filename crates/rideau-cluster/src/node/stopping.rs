//! How far a node is with leaving.

use rideau_core::Instant;
use rideau_core::cluster::StoreRequest;
use tokio::sync::oneshot;

/// A node on its way out.
#[derive(Debug)]
pub(super) struct Stopping {
    /// Until then it gives away what it owns.
    pub(super) until: Instant,
    pub(super) phase: StopPhase,
    pub(super) done: Option<oneshot::Sender<()>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum StopPhase {
    /// It gives away what it owns, and what it appended is written.
    Draining,
    /// The machine was told to stop. It ends the lease, if there is one, by this request.
    Revoking(Option<u64>),
}

impl Stopping {
    /// When the driver has to look again.
    pub(super) fn deadline(&self) -> Option<Instant> {
        (self.phase == StopPhase::Draining).then_some(self.until)
    }

    /// A request was made.
    pub(super) fn asked(&mut self, id: u64, request: &StoreRequest) {
        if let StopPhase::Revoking(revoking) = &mut self.phase
            && matches!(request, StoreRequest::RevokeLease { .. })
        {
            *revoking = Some(id);
        }
    }

    /// A request has its outcome, whatever it is.
    pub(super) fn stored(&mut self, id: u64) {
        if self.phase == StopPhase::Revoking(Some(id)) {
            self.phase = StopPhase::Revoking(None);
        }
    }
}
