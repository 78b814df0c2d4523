//! How a node becomes part of the cluster, and how one life of it ends.

use crate::time::{Instant, nanos};

use super::effect::{Certainty, Effect, ResignReason};
use super::lease::NodeLease;
use super::log::BatchLog;
use super::member::{Cluster, Draining, Stage};
use super::planted::planted;
use super::purpose::Purpose;
use super::records::{Incarnation, NodeRecord};
use super::store::{
    Compare, Holds, KeyRange, KeyValue, StoreOp, StoreOutcome, StoreRefusal, StoreReply,
    StoreRequest, StoreTxn, TxnReply,
};
use super::table::OwnerTable;

/// How many earlier lives a node remembers.
const FORMERS_MAX: usize = 16;

impl Cluster {
    /// Begin to join as a new life.
    pub(super) fn begin_life(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        self.stage = Stage::Looking;
        self.since = now;
        self.id = self.rng.draw();
        effects.push(Effect::Remember { id: self.id });
        self.issue(Purpose::Look, now, effects);
    }

    /// This life is over: etcd has deleted the node's key, or will.
    pub(super) fn end_life(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        self.drop_all(effects);
        self.formers.push(self.id);
        if self.formers.len() > FORMERS_MAX {
            self.formers.remove(0);
        }
        if self.draining != Draining::No {
            self.draining = Draining::Asked;
        }
        self.begin_life(now, effects);
    }

    /// Let go of everything that belongs to this life.
    pub(super) fn drop_all(&mut self, effects: &mut Vec<Effect>) {
        for partition in std::mem::take(&mut self.parts).into_keys() {
            effects.push(Effect::End { partition });
        }
        if self.told != Certainty::Lost {
            self.told = Certainty::Lost;
            effects.push(Effect::Tell(Certainty::Lost));
        }
        self.drop_parked(effects);
        self.forget_requests();
        self.lease = None;
        self.stream += 1;
        self.watch.number += 1;
        self.watch.reading = false;
        self.watch.stuck = None;
        self.log = BatchLog::default();
        self.orphans.clear();
        self.moving = None;
        self.links.clear();
        self.members.clear();
        self.early.clear();
        self.resting.clear();
        self.reported.fill(0);
        self.me.fence = 0;
        self.table = OwnerTable::new(self.options.partitions);
    }

    pub(super) fn join_request(&self, purpose: Purpose) -> Option<StoreRequest> {
        let key = self.keys.node(&self.options.name);
        let lease = self.lease.as_ref().map(|lease| lease.id);
        let read = StoreOp::Read(KeyRange::one(&key));
        let txn = match purpose {
            Purpose::Look => StoreTxn::reading(vec![KeyRange::one(&key)]),
            Purpose::RemoveFormer(fence) => StoreTxn {
                compares: vec![Compare::created_at(key.clone(), fence)],
                then: vec![StoreOp::Delete(KeyRange::one(&key))],
                otherwise: Vec::new(),
            },
            Purpose::Create => StoreTxn {
                compares: vec![Compare {
                    key: key.clone(),
                    holds: Holds::Version(0),
                }],
                then: vec![StoreOp::Put {
                    key,
                    value: self.record().to_string().into_bytes(),
                    lease: Some(lease?),
                }],
                otherwise: vec![read],
            },
            Purpose::Drain => StoreTxn {
                compares: vec![Compare::created_at(key, self.me.fence)],
                then: vec![StoreOp::Put {
                    key: self.keys.drain(&self.options.name),
                    value: Vec::new(),
                    lease: Some(lease?),
                }],
                otherwise: Vec::new(),
            },
            Purpose::ReadAll => StoreTxn::reading(vec![self.keys.watched()]),
            _ => {
                let ttl = self.options.lease;
                return Some(StoreRequest::GrantLease { ttl });
            }
        };
        Some(StoreRequest::Txn(txn))
    }

    pub(super) fn join_answered(
        &mut self,
        purpose: Purpose,
        at: Instant,
        outcome: StoreOutcome,
        now: Instant,
        effects: &mut Vec<Effect>,
    ) {
        match (purpose, outcome) {
            (Purpose::Look, StoreOutcome::Done(StoreReply::Txn(reply))) => {
                self.looked(
                    reply.reads.first().and_then(|read| read.first()),
                    now,
                    effects,
                );
            }
            (Purpose::RemoveFormer(_), StoreOutcome::Done(_)) => {
                self.issue(Purpose::Look, now, effects);
            }
            (Purpose::RemoveFormer(_), _) => self.issue_later(Purpose::Look, now),
            (Purpose::Grant, StoreOutcome::Done(StoreReply::Granted { lease, .. })) => {
                let stream = self.stream + 1;
                self.lease = Some(NodeLease::new(lease, stream, at, &self.options));
                self.stage = Stage::Creating;
                self.issue(Purpose::Create, now, effects);
            }
            (Purpose::Create, StoreOutcome::Done(StoreReply::Txn(reply))) => {
                self.created(&reply, now, effects);
            }
            (Purpose::Create, StoreOutcome::Refused(StoreRefusal::NoLease)) => {
                self.end_life(now, effects);
            }
            (Purpose::ReadAll, StoreOutcome::Done(StoreReply::Txn(reply))) => {
                self.read(&reply, now, effects);
            }
            (Purpose::Drain, StoreOutcome::Done(StoreReply::Txn(_))) => {
                self.draining = Draining::Told;
            }
            (_, _) => self.issue_later(purpose, now),
        }
    }

    /// Whether the name is free. The key of an earlier life of this node is removed, but
    /// not before the holders of that life have stopped to rely on it.
    fn looked(&mut self, found: Option<&KeyValue>, now: Instant, effects: &mut Vec<Effect>) {
        let Some(found) = found else {
            self.stage = Stage::Granting;
            self.issue(Purpose::Grant, now, effects);
            return;
        };
        let record = str::from_utf8(&found.value).unwrap_or_default();
        let record: Option<NodeRecord> = record.parse().ok();
        let is_former = record.is_some_and(|record| self.formers.contains(&record.id));
        let lease = nanos(self.options.lease);
        if is_former && self.since.after(lease / 100 * 62) <= now {
            self.issue(Purpose::RemoveFormer(found.created), now, effects);
        } else if !is_former && self.since.after(lease + 1_000_000_000) <= now {
            self.stage = Stage::Out;
            effects.push(Effect::Resign(ResignReason::NameTaken));
        } else {
            self.issue_later(Purpose::Look, now);
        }
    }

    /// The key is there: created just now, or by an earlier copy of the request.
    fn created(&mut self, reply: &TxnReply, now: Instant, effects: &mut Vec<Effect>) {
        let found = reply.reads.first().and_then(|read| read.first());
        let is_mine = |found: &&KeyValue| found.value == self.record().to_string().as_bytes();
        let fence = if reply.held {
            Some(reply.revision)
        } else {
            found.filter(is_mine).map(|found| found.created)
        };
        if let Some(fence) = fence {
            self.me = Incarnation::new(&self.options.name, fence);
            self.stage = Stage::Reading;
            self.issue(Purpose::ReadAll, now, effects);
        } else {
            self.end_life(now, effects);
        }
    }

    /// Everything was read at one revision. The watch goes on from there.
    fn read(&mut self, reply: &TxnReply, now: Instant, effects: &mut Vec<Effect>) {
        if reply.revision < self.table.revision() {
            self.issue_later(Purpose::ReadAll, now);
            return;
        }
        let is_joining = self.stage == Stage::Reading;
        let all = reply.reads.concat();
        let changed = self.table.reset(reply.revision, &all, &self.keys, now);
        self.watch.number += 1;
        self.watch.reading = false;
        self.watch.stuck = None;
        effects.push(Effect::Watch {
            watch: self.watch.number,
            from: reply.revision,
        });
        if is_joining {
            self.stage = Stage::Live { joined: now };
            let node = self.me.clone();
            effects.push(Effect::Joined { node });
            if self.draining == Draining::Asked {
                self.issue(Purpose::Drain, now, effects);
            }
            if planted!(self.options, JoinedSilently) {
                for (partition, row) in self.table.owners() {
                    let epoch = row.record.as_ref().map_or(0, |record| record.epoch);
                    self.reported[partition as usize] = epoch;
                }
            }
        }
        self.table_changed(&changed, now, effects);
    }

    fn record(&self) -> NodeRecord {
        NodeRecord {
            id: self.id,
            weight: self.options.weight,
            about: self.options.about.clone(),
        }
    }
}
