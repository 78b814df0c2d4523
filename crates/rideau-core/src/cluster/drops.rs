//! Leases that end elsewhere than at the node that their holder is connected to: they are
//! given back at another one, or the other party of a match has ended it.
//!
//! The owner has the row dropped at its entry node first, and then answers. Else it could
//! say that the lease is over, die, and the next owner would learn from the row that it is
//! not.

use std::collections::BTreeMap;

use super::messages::RowMessage;
use super::records::Incarnation;
use super::rows::RowEffect;

/// The rows that an owner has asked other nodes to drop.
#[derive(Clone, Debug, Default)]
pub struct RowDrops {
    drops: BTreeMap<(Incarnation, u64), RowDrop>,
}

#[derive(Clone, Debug)]
struct RowDrop {
    partition: u32,
    epoch: u64,
    /// How the lease ended.
    how: Vec<u8>,
    /// The asks that gave it back.
    asks: Vec<u64>,
}

impl RowDrops {
    /// An ask gives back the lease with this ticket of another node. The shell answers it
    /// when the row is [dropped](Self::dropped), or the [node](Self::gone) or the
    /// [ownership](Self::ended) is gone.
    pub fn release(
        &mut self,
        node: &Incarnation,
        ticket: u64,
        (partition, epoch): (u32, u64),
        ask: u64,
        effects: &mut Vec<RowEffect>,
    ) {
        let key = (node.clone(), ticket);
        let drop = self.drops.entry(key).or_insert(RowDrop {
            partition,
            epoch,
            how: Vec::new(),
            asks: Vec::new(),
        });
        drop.asks.push(ask);
        effects.push(drop.send(node, ticket));
    }

    /// The lease with this ticket of another node is over, and nothing waits until its row
    /// is dropped.
    pub fn end(
        &mut self,
        node: &Incarnation,
        ticket: u64,
        (partition, epoch): (u32, u64),
        how: Vec<u8>,
        effects: &mut Vec<RowEffect>,
    ) {
        let key = (node.clone(), ticket);
        let drop = self.drops.entry(key).or_insert(RowDrop {
            partition,
            epoch,
            how,
            asks: Vec::new(),
        });
        effects.push(drop.send(node, ticket));
    }

    /// There is a new link to a node: what it has not acknowledged is sent again.
    pub fn linked(&self, node: &Incarnation, effects: &mut Vec<RowEffect>) {
        let of = |((of, _), _): &(&(Incarnation, u64), &RowDrop)| of == node;
        let drops = self.drops.iter().filter(of);
        effects.extend(drops.map(|((_, ticket), drop)| drop.send(node, *ticket)));
    }

    /// A node has dropped a row. Returns the asks that are answered now.
    pub fn dropped(&mut self, node: &Incarnation, ticket: u64, epoch: u64) -> Vec<u64> {
        let key = (node.clone(), ticket);
        if self.drops.get(&key).is_some_and(|drop| drop.epoch == epoch) {
            let drop = self.drops.remove(&key);
            return drop.map_or_else(Vec::new, |drop| drop.asks);
        }
        Vec::new()
    }

    /// A life of a node is over, and its rows with it. Returns the asks that are answered
    /// now.
    pub fn gone(&mut self, node: &Incarnation) -> Vec<u64> {
        self.taken(|(of, _), _| of == node)
    }

    /// This node does not own a partition any more. Returns the asks whose outcome it will
    /// not know.
    pub fn ended(&mut self, partition: u32) -> Vec<u64> {
        self.taken(|_, drop| drop.partition == partition)
    }

    /// How many rows have to be dropped.
    pub fn len(&self) -> usize {
        self.drops.len()
    }

    /// Whether no row has to be dropped.
    pub fn is_empty(&self) -> bool {
        self.drops.is_empty()
    }

    fn taken(&mut self, is_taken: impl Fn(&(Incarnation, u64), &RowDrop) -> bool) -> Vec<u64> {
        let mut asks = Vec::new();
        self.drops.retain(|key, drop| {
            let is_taken = is_taken(key, drop);
            if is_taken {
                asks.append(&mut drop.asks);
            }
            !is_taken
        });
        asks
    }
}

impl RowDrop {
    fn send(&self, to: &Incarnation, ticket: u64) -> RowEffect {
        RowEffect::Send {
            to: to.clone(),
            message: RowMessage::DropRow {
                partition: self.partition,
                epoch: self.epoch,
                ticket,
                how: self.how.clone(),
            },
        }
    }
}
