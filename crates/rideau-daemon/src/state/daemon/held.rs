//! Leases: counting them, ending them with their holder, releasing them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rideau::Locks;
use rideau_config::Buckets;
use rideau_core::cluster::{Certainty, Incarnation, SlotTag};
use rideau_process::panics;
use tokio::sync::broadcast::error::RecvError;

use super::{Daemon, end};
use crate::state::catalog::RulePlace;
use crate::state::end::{EndReason, NotHeld};
use crate::state::grant::Grant;
use crate::state::holder::HolderId;
use crate::state::lease_table::Ending;
use crate::state::push::Push;
use crate::state::ticket::Ticket;
use crate::state::values::Happened;

/// How many keys and units of a rule are held.
#[derive(Clone, Copy, Default)]
pub(crate) struct LockCount {
    pub(crate) keys: usize,
    pub(crate) held: u64,
    pub(crate) waiting: usize,
    /// Keys of which no unit is left, as far as the rule alone says that.
    pub(crate) full: usize,
}

impl Daemon {
    /// A holder ended: give back all that it held. Says how much that was.
    pub fn end_holder(&self, holder: HolderId, why: EndReason) -> usize {
        let ending = self.lease_table.close(holder);
        let mut count = 0;
        while let Some(some) = ending
            .as_ref()
            .and_then(|ending| self.end_some(ending, why))
        {
            count += some;
        }
        self.left(holder);
        count
    }

    /// A holder is gone with all that it held.
    fn left(&self, holder: HolderId) {
        if let Some(cluster) = &self.cluster {
            cluster.left(holder);
        }
    }

    /// The same in slices, between which other tasks of the thread have their turn.
    pub async fn end_holder_in_slices(&self, holder: HolderId, why: EndReason) -> usize {
        let ending = self.lease_table.close(holder);
        let mut count = 0;
        while let Some(some) = ending
            .as_ref()
            .and_then(|ending| self.end_some(ending, why))
        {
            count += some;
            tokio::task::yield_now().await;
        }
        self.left(holder);
        count
    }

    /// Give back one slice of what an ending holder held. None if that was all.
    fn end_some(&self, ending: &Ending, why: EndReason) -> Option<usize> {
        let held = self.lease_table.end_some(ending, why);
        let count = held.len();
        for (ticket, thing) in held {
            self.counts.reclaims.add(ticket.kind, why);
            // None may stay held for another's fault.
            let _ = panics::contain(|| end(thing, why));
        }
        (count > 0).then_some(count)
    }

    /// The tag of the ticket of a grant.
    pub(crate) fn tag_of(&self, grant: &Grant) -> SlotTag {
        match (&self.cluster, grant) {
            (None, _) => SlotTag::NONE,
            // The key need not be text.
            (Some(cluster), Grant::Name(lease)) => cluster.tags.of(lease.partition()),
            (Some(cluster), grant) => cluster.tags.of_name(grant.name().as_bytes()),
        }
    }

    /// The tag of tickets of something with this name.
    pub(crate) fn tag_of_name(&self, name: &[u8]) -> SlotTag {
        let cluster = self.cluster.as_ref();
        cluster.map_or(SlotTag::NONE, |cluster| cluster.tags.of_name(name))
    }

    /// A value goes with the holder of this ticket. The holder that had it before has
    /// lost it.
    pub fn hold_value(&self, value: u128, ticket: Ticket) {
        if let Some(before) = self.values.hold(value, ticket) {
            let _ = self.lease_table.take_from(before, EndReason::Lapsed);
        }
    }

    /// A connection of another node has left its session in this manner.
    pub(crate) fn leave_far(&self, node: &Incarnation, id: u64, why: EndReason) {
        let cluster = self.cluster.as_ref();
        if let Some(session) = cluster.and_then(|cluster| cluster.detached(node, id)) {
            self.sessions.detach(session, why);
        }
    }

    /// A life of a node is over, and all of its connections.
    pub(crate) fn leave_all_far(&self, node: &Incarnation) {
        if let Some(cluster) = &self.cluster {
            for session in cluster.detached_all(node) {
                self.sessions.detach(session, EndReason::Lost);
            }
        }
    }

    /// How many units of a key are held, and how many asks wait, as far as this server
    /// decides.
    pub(crate) fn lock_count(&self, key: &[u8]) -> (u64, usize) {
        match &self.cluster {
            None => (self.locks.held(key), self.locks.waiting(key)),
            Some(cluster) => {
                let partition = cluster.partition_of_name(key);
                cluster.names.count(partition, key).unwrap_or_default()
            }
        }
    }

    /// Whether this server knows what is held of a key.
    pub(crate) fn knows_lock(&self, key: &[u8]) -> bool {
        self.cluster.as_ref().is_none_or(|cluster| {
            let partition = cluster.partition_of_name(key);
            cluster.node.serves_names(partition).is_some()
        })
    }

    /// Every key of which units are held, and how many, as far as this server decides.
    pub(crate) fn all_locks_held(&self) -> Vec<(Vec<u8>, u64)> {
        let mut all = self.locks.all_held();
        self.each_shared(|locks| all.extend(locks.all_held()));
        all
    }

    /// The same, one after the other, for a caller that keeps few of many.
    pub(crate) fn each_lock_held(&self, mut look: impl FnMut(&[u8], u64)) {
        self.locks.each_held(|key, held| look(key, held));
        self.each_shared(|locks| locks.each_held(|key, held| look(key, held)));
    }

    /// How many keys are known.
    pub(crate) fn lock_keys(&self) -> usize {
        let mut count = self.locks.len();
        self.each_shared(|locks| count += locks.len());
        count
    }

    /// How many keys of a rule are known.
    pub(crate) fn lock_keys_of(&self, rule: usize) -> usize {
        let mut count = self.locks.keys_of(rule);
        self.each_shared(|locks| count += locks.keys_of(rule));
        count
    }

    fn each_shared(&self, look: impl FnMut(&Locks<Vec<u8>>)) {
        if let Some(cluster) = &self.cluster {
            cluster.names.each_locks(look);
        }
    }

    /// Tell the holders of what several nodes share how sure this node is of it. If it has
    /// lost its place in the cluster, they have lost all of that, and their connections end.
    /// Only leases up to this ticket of a row are meant: those of the life that it was.
    pub(crate) fn tell_certainty(&self, certainty: Certainty, up_to: u64) {
        let is_shared = |grant: &Grant, _| match grant {
            Grant::Name(lease) => lease.ticket() <= up_to,
            _ => false,
        };
        let mut told = BTreeMap::new();
        for row in self.lease_table.late(is_shared) {
            let push = match certainty {
                Certainty::Sure => Push::Certainty("sure"),
                Certainty::Unsure => Push::Certainty("unsure"),
                Certainty::Lost => Push::Lost(row.ticket),
            };
            let is_lost = certainty == Certainty::Lost;
            let taken = is_lost.then(|| self.lease_table.take_from(row.ticket, EndReason::Lapsed));
            if let Some(Ok(taken)) = taken {
                self.counts.reclaims.add(row.ticket.kind, EndReason::Lapsed);
                end(taken.thing, EndReason::Lapsed);
            }
            for client in self.clients_of(&row.card) {
                if told.insert(client.id, Arc::clone(&client)).is_none() || is_lost {
                    client.outbox.push(push.clone());
                }
            }
        }
        if certainty == Certainty::Lost {
            told.values().for_each(|client| client.outbox.kill());
        }
    }

    /// The keys of each rule, counted, and perhaps the asks that wait for them.
    pub(crate) fn lock_counts(
        &self,
        rules: &[Arc<RulePlace>],
        looks_at_queues: bool,
    ) -> Vec<LockCount> {
        let mut counts = vec![LockCount::default(); rules.len()];
        let mut count = |key: &[u8], held: u64, waiting: usize| {
            let Some(at) = rules.iter().position(|place| place.rule.fits(key)) else {
                return;
            };
            let (rule, count) = (&rules[at].rule, &mut counts[at]);
            count.keys += 1;
            count.held += held;
            count.waiting += waiting;
            if let Buckets::Fixed(buckets) = rule.buckets {
                count.full += usize::from(held >= rule.per.saturating_mul(buckets));
            }
        };
        if looks_at_queues {
            for (key, held) in self.all_locks_held() {
                count(&key, held, self.lock_count(&key).1);
            }
        } else {
            self.each_lock_held(|key, held| count(key, held, 0));
        }
        counts
    }

    /// Log everything that happens to values for so long. What was begun before
    /// ends.
    pub fn debug_values(self: &Arc<Self>, within: Duration) {
        let daemon = Arc::clone(self);
        let mut events = self.values.ranges.watch();
        let deadline = tokio::time::Instant::now() + within;
        let task = tokio::spawn(async move {
            while let Ok(event) = tokio::time::timeout_at(deadline, events.recv()).await {
                match event {
                    Ok(event) => {
                        let seen = Happened::of(&daemon.catalog.load().ranges, &event);
                        let (what, value, range) = (seen.what, seen.value, seen.range);
                        tracing::info!(what, value, %range, fence = seen.fence, "value");
                    }
                    Err(RecvError::Lagged(count)) => {
                        tracing::info!(count, "values changed too fast to be logged");
                    }
                    Err(RecvError::Closed) => return,
                }
            }
        });
        let before = self.values.debug.lock().replace(task.abort_handle());
        if let Some(before) = before {
            before.abort();
        }
    }

    /// End one thing by its ticket. Says which holder held it.
    ///
    /// # Errors
    ///
    /// If there is nothing under the ticket, or it is not this user's.
    pub fn release(
        &self,
        ticket: Ticket,
        user: Option<&str>,
        why: EndReason,
    ) -> Result<HolderId, NotHeld> {
        self.release_at(ticket, user, why, self.lease_table.now())
    }

    /// The same, for a caller that has just looked at the clock.
    ///
    /// # Errors
    ///
    /// If there is nothing under the ticket, or it is not this user's.
    pub fn release_at(
        &self,
        ticket: Ticket,
        user: Option<&str>,
        why: EndReason,
        now: u64,
    ) -> Result<HolderId, NotHeld> {
        let taken = self.lease_table.take_at(ticket, user, why, now)?;
        end(taken.thing, why);
        Ok(taken.holder)
    }
}
