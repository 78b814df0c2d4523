//! This node as the owner of partitions: the pools of lists, brokers and regulators in them
//! that nodes share.
//!
//! When a partition comes, they are made anew, and take over what all nodes have reported.
//! Asks that come meanwhile wait for that.

use std::collections::HashMap;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rideau::Lead;
use rideau_core::cluster::{Incarnation, RowAnswer};
use tokio::task::AbortHandle;

use super::owned::{
    AdoptedLease, EarlyAsk, NotRenewed, OwnedNames, OwnedRow, Placed, PlacesPhase, RowKey, RowOf,
    WaitTask,
};
use super::place_claim::{PlaceClaim, PlaceEnd, PlaceHeld, PlaceOutcome, write_end};
use super::{Cluster, LOOK};
use crate::state::end::EndReason;
use crate::state::matches::{End, Mailbox};

impl Cluster {
    /// Grant an ask, refuse it, or let it wait. The lock of its partition is held.
    pub(super) fn take_place_ask(
        self: &Arc<Self>,
        known: &mut OwnedNames,
        of: RowOf,
        claim: PlaceClaim,
        age: Duration,
    ) {
        let key = of.key.clone();
        let row = match &mut known.places {
            PlacesPhase::Opening(early) => {
                early.push(EarlyAsk { of, claim, age });
                OwnedRow::Coming(None)
            }
            PlacesPhase::Open => OwnedRow::Waits(self.begin_place(of, &claim, age)),
        };
        known.rows.insert(key, row);
    }

    /// Have an ask take its place in the queue now. Its answer comes by a task.
    fn begin_place(self: &Arc<Self>, of: RowOf, claim: &PlaceClaim, age: Duration) -> WaitTask {
        let mut placing = self.names.places().begin(claim, age, &of.key);
        let mut context = Context::from_waker(Waker::noop());
        let first = match placing.as_mut().poll(&mut context) {
            Poll::Ready(placed) => Some(placed),
            Poll::Pending => None,
        };
        let cluster = Arc::clone(self);
        let task = self.names.runtime.spawn(async move {
            let mut placed = match first {
                Some(placed) => placed,
                None => placing.await,
            };
            match &mut placed {
                Ok((_, grant, _)) => grant.waited += age,
                Err(PlaceOutcome::Refused(refusal, _)) => refusal.waited += age,
                Err(_) => (),
            }
            while cluster.node.serves_names(of.partition) != Some(of.epoch) {
                tokio::time::sleep(LOOK).await;
            }
            cluster.placed(&of, placed);
        });
        WaitTask::new(task.abort_handle())
    }

    /// An ask has come to something.
    fn placed(self: &Arc<Self>, of: &RowOf, placed: Placed) {
        let mut owned = self.names.owned[of.partition as usize].lock();
        let known = owned.as_mut().filter(|owned| owned.epoch == of.epoch);
        let Some(known) = known.filter(|known| known.rows.contains_key(&of.key)) else {
            drop(owned);
            // It was cancelled just now, or is another's.
            if let Ok((lease, ..)) = placed {
                lease.end(PlaceEnd::new(EndReason::Cancelled));
            }
            return;
        };
        match placed {
            Ok((lease, grant, mail)) => {
                let before = known.rows.insert(of.key.clone(), OwnedRow::Place(lease));
                let fence = known.next_fence();
                drop(owned);
                drop(before);
                self.spend(of, fence);
                let told = PlaceOutcome::Granted(grant).write();
                self.answer(of, RowAnswer::Granted { fence }, told);
                if let Some(mail) = mail {
                    self.watch_party(of.clone(), mail);
                }
            }
            Err(no) => {
                let row = known.rows.remove(&of.key);
                drop(owned);
                drop(row);
                self.answer(of, RowAnswer::Refused, no.write());
            }
        }
    }

    /// Have a party of a match told when the other has ended it.
    fn watch_party(self: &Arc<Self>, of: RowOf, mail: Arc<Mailbox>) {
        let cluster = Arc::clone(self);
        self.names.runtime.spawn(async move {
            let end = mail.ended().await;
            cluster.drop_party(&of, &end);
        });
    }

    fn drop_party(self: &Arc<Self>, of: &RowOf, end: &End) {
        let mut owned = self.names.owned[of.partition as usize].lock();
        let known = owned.as_mut().filter(|owned| owned.epoch == of.epoch);
        let row = known.and_then(|known| known.rows.remove(&of.key));
        drop(owned);
        // It may have ended it itself.
        if row.is_some() {
            let mut effects = Vec::new();
            let (node, ticket) = &of.key;
            let at = (of.partition, of.epoch);
            let mut drops = self.names.drops.lock();
            drops.end(node, *ticket, at, write_end(end), &mut effects);
            drop(drops);
            let _ = self.carry(effects, &[]);
        }
    }

    /// A client wants to keep a lease of a regulator. Says for how long the valve has been
    /// open for that and how long the answer took, or how long that took if it is over. None
    /// if there is no such lease.
    pub(crate) fn renew_here(
        &self,
        partition: u32,
        key: &(Incarnation, u64),
    ) -> Option<Result<(Lead, Duration), Duration>> {
        let mut owned = self.names.owned.get(partition as usize)?.lock();
        let rows = &mut owned.as_mut()?.rows;
        let lease = match rows.remove(key)? {
            OwnedRow::Place(lease) => lease,
            other => {
                rows.insert(key.clone(), other);
                return None;
            }
        };
        match lease.renew() {
            Ok((lease, lead, waited)) => {
                rows.insert(key.clone(), OwnedRow::Place(lease));
                Some(Ok((lead, waited)))
            }
            Err(NotRenewed::Stopped(waited)) => Some(Err(waited)),
            Err(NotRenewed::Other(lease)) => {
                rows.insert(key.clone(), OwnedRow::Place(lease));
                None
            }
        }
    }

    /// Take over what all nodes hold of places, in the background.
    pub(super) fn adopt_places(
        self: &Arc<Self>,
        partition: u32,
        epoch: u64,
        held: Vec<(RowKey, PlaceHeld)>,
        asks: HashMap<RowKey, PlaceClaim>,
    ) -> AbortHandle {
        let cluster = Arc::clone(self);
        let task = self.names.runtime.spawn(async move {
            let places = Arc::clone(cluster.names.places());
            let leases = places.adopt(partition, held, asks).await;
            cluster.open_places(partition, epoch, leases);
        });
        task.abort_handle()
    }

    fn open_places(self: &Arc<Self>, partition: u32, epoch: u64, leases: Vec<AdoptedLease>) {
        let mut ended = Vec::new();
        let mut parties = Vec::new();
        let mut answers = Vec::new();
        let mut owned = self.names.owned[partition as usize].lock();
        let Some(known) = owned.as_mut().filter(|owned| owned.epoch == epoch) else {
            // It has gone again: the next owner knows of all this by itself.
            return;
        };
        for adopted in leases {
            let AdoptedLease { key, lease, .. } = adopted;
            match known.rows.remove(&key) {
                Some(OwnedRow::Coming(None)) => {
                    known.rows.insert(key.clone(), OwnedRow::Place(lease));
                    let of = RowOf {
                        partition,
                        epoch,
                        key,
                    };
                    if let Some(grant) = adopted.answer {
                        answers.push((of.clone(), known.next_fence(), grant));
                    }
                    parties.extend(adopted.mail.map(|mail| (of, mail)));
                }
                Some(OwnedRow::Coming(Some(end))) => ended.push((lease, end)),
                // Its node is gone.
                _ => ended.push((lease, PlaceEnd::new(EndReason::Lost))),
            }
        }
        self.names.places().set_here(partition, true);
        if let PlacesPhase::Opening(early) = mem::replace(&mut known.places, PlacesPhase::Open) {
            for EarlyAsk { of, claim, age } in early {
                // Others were cancelled meanwhile.
                if let Some(OwnedRow::Coming(None)) = known.rows.get(&of.key) {
                    self.take_place_ask(known, of, claim, age);
                }
            }
        }
        known
            .rows
            .retain(|_, row| !matches!(row, OwnedRow::Coming(_)));
        drop(owned);
        for (lease, end) in ended {
            lease.end(end);
        }
        for (of, fence, grant) in answers {
            let told = PlaceOutcome::Granted(grant).write();
            self.answer(&of, RowAnswer::Granted { fence }, told);
        }
        for (of, mail) in parties {
            self.watch_party(of, mail);
        }
    }

    /// The config has changed: what is new in a partition of this node is here at once.
    pub(crate) fn follow_places(&self) {
        for partition in 0..self.partitions.count() {
            let owned = self.names.owned[partition as usize].lock();
            let is_open = |known: &OwnedNames| matches!(known.places, PlacesPhase::Open);
            if owned.as_ref().is_some_and(is_open) {
                self.names.places().set_here(partition, true);
            }
        }
    }
}
