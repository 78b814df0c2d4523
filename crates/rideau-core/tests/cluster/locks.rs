//! What is kept in memory here: two locks for each partition, with waiters in line by age.

use rideau_core::Instant;
use rideau_core::cluster::{Incarnation, ReportedRow, RowAnswer};

/// How many holders each lock of a partition has at most.
pub(crate) const LIMITS: [usize; 2] = [1, 2];

/// The locks of one partition, in one ownership.
pub(crate) struct LockPart {
    pub(crate) epoch: u64,
    counter: u64,
    keys: [LockKey; 2],
}

#[derive(Default)]
struct LockKey {
    held: Vec<LockLease>,
    /// The oldest first.
    line: Vec<LockWait>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LockLease {
    pub(crate) node: Incarnation,
    pub(crate) ticket: u64,
    pub(crate) fence: u64,
}

struct LockWait {
    node: Incarnation,
    ticket: u64,
    /// By this node's clock; it may be before the clock's beginning.
    since: i128,
    waits: bool,
}

/// An answer for an entry node.
pub(crate) struct LockAnswer {
    pub(crate) node: Incarnation,
    pub(crate) ticket: u64,
    pub(crate) key: u8,
    pub(crate) answer: RowAnswer,
}

/// What an ask wants, as a row has it.
pub(crate) fn what(key: u8, waits: bool) -> Vec<u8> {
    vec![key, u8::from(waits)]
}

impl LockPart {
    pub(crate) fn new(epoch: u64) -> Self {
        Self {
            epoch,
            counter: 0,
            keys: Default::default(),
        }
    }

    /// Take in a lease or an ask. A second copy of an ask is the same ask.
    pub(crate) fn add(&mut self, node: &Incarnation, row: &ReportedRow, now: Instant) {
        let key = &mut self.keys[row.what[0] as usize];
        let (node, ticket) = (node.clone(), row.ticket);
        if let Some(fence) = row.fence {
            key.held.push(LockLease {
                node,
                ticket,
                fence,
            });
            return;
        }
        let is_held = key
            .held
            .iter()
            .any(|it| (&it.node, it.ticket) == (&node, ticket));
        let is_waiting = key
            .line
            .iter()
            .any(|it| (&it.node, it.ticket) == (&node, ticket));
        if is_held || is_waiting {
            return;
        }
        let since = i128::from(now.as_nanos()) - row.age.as_nanos() as i128;
        key.line.push(LockWait {
            node,
            ticket,
            since,
            waits: row.what[1] == 1,
        });
        key.line.sort_by_key(|wait| wait.since);
    }

    /// Grant what can be granted, and refuse what does not wait.
    pub(crate) fn pump(&mut self) -> Vec<LockAnswer> {
        let mut answers = Vec::new();
        for (at, key) in self.keys.iter_mut().enumerate() {
            let mut at_all = |wait: LockWait, answer| {
                answers.push(LockAnswer {
                    node: wait.node,
                    ticket: wait.ticket,
                    key: at as u8,
                    answer,
                });
            };
            while !key.line.is_empty() && key.held.len() < LIMITS[at] {
                let wait = key.line.remove(0);
                self.counter += 1;
                let fence = self.epoch << 32 | self.counter;
                key.held.push(LockLease {
                    node: wait.node.clone(),
                    ticket: wait.ticket,
                    fence,
                });
                at_all(wait, RowAnswer::Granted { fence });
            }
            let (waits, others) = key.line.drain(..).partition(|wait| wait.waits);
            key.line = waits;
            others
                .into_iter()
                .for_each(|wait| at_all(wait, RowAnswer::Refused));
        }
        answers
    }

    /// An ask or a lease is over.
    pub(crate) fn end(&mut self, node: &Incarnation, ticket: u64) {
        for key in &mut self.keys {
            let held = |it: &LockLease| (&it.node, it.ticket) == (node, ticket);
            if let Some(at) = key.held.iter().position(held) {
                key.held.remove(at);
                return;
            }
            key.line
                .retain(|it| (&it.node, it.ticket) != (node, ticket));
        }
    }

    /// All asks and leases of an entry node are over.
    pub(crate) fn gone(&mut self, node: &Incarnation) {
        for key in &mut self.keys {
            key.held.retain(|lease| lease.node != *node);
            key.line.retain(|wait| wait.node != *node);
        }
    }

    pub(crate) fn leases(&self) -> impl Iterator<Item = &LockLease> {
        self.keys.iter().flat_map(|key| &key.held)
    }

    pub(crate) fn holds(&self, node: &Incarnation, ticket: u64) -> bool {
        self.leases()
            .any(|lease| (&lease.node, lease.ticket) == (node, ticket))
    }

    pub(crate) fn waiting(&self) -> usize {
        self.keys.iter().map(|key| key.line.len()).sum()
    }
}
