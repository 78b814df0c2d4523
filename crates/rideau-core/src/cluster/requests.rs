//! The requests that a node has on their way to etcd, each with what it is for.
//!
//! For one purpose there is one request at a time. One of unknown outcome is made anew
//! after a while, from what the node knows then.

use crate::time::Instant;

use super::effect::Effect;
use super::member::Cluster;
use super::records::SnapshotId;
use super::snapshots::is_held;
use super::store::{StoreOutcome, StoreRequest};

/// The purpose of a request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Purpose {
    Look,
    RemoveFormer(u64),
    Grant,
    Create,
    ReadAll,
    Append(u64),
    Takeover(u32),
    HandOver(u32),
    /// One piece of one snapshot: the answer for another must not count.
    Chunk(u32, SnapshotId, u32),
    NameSnapshot(u32),
    RemoveSnapshot(u32, SnapshotId),
    Trim,
    Drain,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct PendingRequest {
    pub(super) purpose: Purpose,
    pub(super) at: Instant,
}

impl Cluster {
    /// Make a request now, unless one for the same purpose is on its way.
    pub(super) fn issue(&mut self, purpose: Purpose, now: Instant, effects: &mut Vec<Effect>) {
        self.retries.remove(&purpose);
        if self.is_asked(purpose) {
            return;
        }
        if let Some(request) = self.request(purpose, now) {
            self.next_request += 1;
            let id = self.next_request;
            self.asked.insert(id, PendingRequest { purpose, at: now });
            effects.push(Effect::Store { id, request });
        }
    }

    /// Make a request after a while.
    pub(super) fn issue_later(&mut self, purpose: Purpose, now: Instant) {
        let at = now + self.options.retry;
        self.retries.insert(purpose, at);
    }

    /// Whether a request for this is on its way or waits to be repeated.
    pub(super) fn is_busy(&self, purpose: Purpose) -> bool {
        self.is_asked(purpose) || self.retries.contains_key(&purpose)
    }

    fn is_asked(&self, purpose: Purpose) -> bool {
        self.asked.values().any(|asked| asked.purpose == purpose)
    }

    /// How many batches are on their way, as requests.
    pub(super) fn appends(&self) -> usize {
        let asked = self.asked.values();
        asked
            .filter(|asked| matches!(asked.purpose, Purpose::Append(_)))
            .count()
    }

    fn request(&mut self, purpose: Purpose, now: Instant) -> Option<StoreRequest> {
        match purpose {
            Purpose::Look
            | Purpose::RemoveFormer(_)
            | Purpose::Grant
            | Purpose::Create
            | Purpose::ReadAll
            | Purpose::Drain => self.join_request(purpose),
            Purpose::Append(seq) => self.append_request(seq, now),
            Purpose::Takeover(partition) => self.takeover_request(partition, now),
            Purpose::HandOver(partition) => self.hand_over_request(partition, now),
            Purpose::Chunk(partition, id, chunk) => self.chunk_request(partition, id, chunk),
            Purpose::NameSnapshot(partition) => self.name_request(partition),
            Purpose::RemoveSnapshot(partition, former) => self.remove_request(partition, former),
            Purpose::Trim => self.trim_request(),
        }
    }

    pub(super) fn answered(
        &mut self,
        purpose: Purpose,
        at: Instant,
        outcome: StoreOutcome,
        now: Instant,
        effects: &mut Vec<Effect>,
    ) {
        let is_write = matches!(purpose, Purpose::Chunk(..) | Purpose::RemoveSnapshot(..));
        if is_write && !is_held(&outcome) {
            self.issue_later(purpose, now);
        }
        match purpose {
            Purpose::Look
            | Purpose::RemoveFormer(_)
            | Purpose::Grant
            | Purpose::Create
            | Purpose::ReadAll
            | Purpose::Drain => self.join_answered(purpose, at, outcome, now, effects),
            Purpose::Append(seq) => self.append_answered(seq, &outcome, now, effects),
            Purpose::Takeover(_) => self.issue_later(purpose, now),
            Purpose::HandOver(partition) => {
                self.hand_over_answered(partition, &outcome, now, effects);
            }
            Purpose::Chunk(partition, id, chunk) => {
                self.chunk_answered(partition, id, chunk, &outcome);
            }
            // The watch shows it, if it was done.
            Purpose::NameSnapshot(_) => self.issue_later(purpose, now),
            Purpose::RemoveSnapshot(partition, former) => {
                self.removed(partition, former, &outcome);
            }
            Purpose::Trim => self.trimmed(&outcome),
        }
    }

    /// Forget all requests: a new life has its own.
    pub(super) fn forget_requests(&mut self) {
        self.asked.clear();
        self.retries.clear();
    }
}
