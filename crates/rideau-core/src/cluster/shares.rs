//! Which node should own which partition.
//!
//! A node keeps what it has up to its quota. What no node has, or a node has beyond its
//! quota, goes to a node with room. So as few partitions move as possible, and nodes that
//! know the same owners and the same live nodes come to the same result without a
//! coordinator.

use std::cmp::Reverse;

/// A node that lives and may own partitions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Node<'a> {
    /// Its name, which no other has.
    pub name: &'a str,
    /// How much it should own beside the others; nothing if this is 0.
    pub weight: u32,
}

/// Which of the nodes each partition should belong to, as a place in `nodes`; none if no
/// node may own anything.
///
/// `owners` has the present owner of each partition: a place in `nodes`, or none if it has
/// no owner or one that lives no more or drains. The order of the nodes makes no difference.
pub fn shares(owners: &[Option<usize>], nodes: &[Node<'_>]) -> Vec<Option<usize>> {
    let mut room = quotas(owners, nodes);
    let mut targets = kept(owners, nodes, &mut room);
    for (partition, target) in targets.iter_mut().enumerate() {
        if target.is_none() {
            *target = best(partition, nodes, &room);
            if let Some(node) = *target {
                room[node] -= 1;
            }
        }
    }
    targets
}

/// How many partitions each node should have: by weight, rounded so that all are dealt out
/// and nodes that have more keep more.
fn quotas(owners: &[Option<usize>], nodes: &[Node<'_>]) -> Vec<u64> {
    let all = owners.len() as u64;
    let sum: u64 = nodes.iter().map(|node| u64::from(node.weight)).sum();
    if sum == 0 {
        return vec![0; nodes.len()];
    }
    let exact = |node: &Node<'_>| all * u64::from(node.weight);
    let mut quotas: Vec<u64> = nodes.iter().map(|node| exact(node) / sum).collect();
    let mut had = vec![0_u64; nodes.len()];
    for owner in owners.iter().flatten() {
        had[*owner] += 1;
    }
    // Of those that get less than their part by rounding down, some get one more: first
    // those that have one more already, so that nothing moves for the sake of rounding.
    let part = |at: usize| exact(&nodes[at]) % sum;
    let mut rounded: Vec<usize> = (0..nodes.len()).filter(|at| part(*at) != 0).collect();
    rounded.sort_by_key(|&at| {
        let has_less = had[at] <= quotas[at];
        (has_less, Reverse(part(at)), nodes[at].name)
    });
    let left = all - quotas.iter().sum::<u64>();
    for at in rounded.into_iter().take(left as usize) {
        quotas[at] += 1;
    }
    quotas
}

/// The partitions that each node keeps. Its room is the rest of its quota.
fn kept(owners: &[Option<usize>], nodes: &[Node<'_>], room: &mut [u64]) -> Vec<Option<usize>> {
    let mut targets = vec![None; owners.len()];
    for (node, room) in room.iter_mut().enumerate() {
        let has = |partition: &usize| owners[*partition] == Some(node);
        let mut own: Vec<usize> = (0..owners.len()).filter(has).collect();
        own.sort_by_key(|partition| Reverse(rank(*partition, nodes[node].name)));
        for partition in own.into_iter().take(*room as usize) {
            targets[partition] = Some(node);
            *room -= 1;
        }
    }
    targets
}

/// The node with room that a partition without owner goes to.
fn best(partition: usize, nodes: &[Node<'_>], room: &[u64]) -> Option<usize> {
    let with_room = (0..nodes.len()).filter(|node| room[*node] > 0);
    with_room.max_by_key(|node| (rank(partition, nodes[*node].name), nodes[*node].name))
}

/// How much a partition belongs to a node: the same number on every node, in every version.
pub(super) fn rank(partition: usize, name: &str) -> u64 {
    // FNV-1a over the name and the number, and then the end of SplitMix64: names that differ
    // in one letter would otherwise differ in few bits.
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let number = (partition as u64).to_be_bytes();
    for byte in name.bytes().chain([0]).chain(number) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}
