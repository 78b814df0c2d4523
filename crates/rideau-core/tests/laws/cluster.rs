//! What nodes decide alike: no value, name or partition belongs to two, and as little moves
//! as possible.

use std::collections::BTreeMap;

use proptest::prelude::*;
use rideau_core::cluster::{BadPartitions, Node, Partitions, SLOTS, shares, slot_of};

use crate::cases;

fn partitions() -> impl Strategy<Value = Partitions> {
    let of = |(bits, stripe): (u32, u32)| Partitions::new(1 << bits, stripe).unwrap();
    (0_u32..=10, 0..=Partitions::STRIPE_MAX).prop_map(of)
}

/// Values of every magnitude, and the ends.
fn value() -> impl Strategy<Value = u128> {
    prop_oneof![
        (any::<u128>(), 0_u32..128).prop_map(|(value, shift)| value >> shift),
        (0_u128..4_096).prop_map(|back| u128::MAX - back),
        0_u128..4_096,
    ]
}

proptest! {
    #![proptest_config(cases(2_000))]

    #[test]
    fn a_value_has_one_place_and_a_place_one_value(all in partitions(), value in value()) {
        let partition = all.of_value(value);
        prop_assert!(partition < all.count());
        prop_assert_eq!(all.value(partition, all.index(value)), value);
    }

    #[test]
    fn places_are_dense_and_in_the_order_of_the_values(
        all in partitions(),
        partition in any::<u32>(),
        index in any::<u128>(),
    ) {
        let partition = partition % all.count();
        // Places end where values do.
        let rows = 128 - all.count().trailing_zeros();
        let last = if rows == 128 { u128::MAX } else { (1 << rows) - 1 };
        let index = index & last;
        let value = all.value(partition, index);
        prop_assert_eq!(all.of_value(value), partition);
        prop_assert_eq!(all.index(value), index);
        if index < last {
            prop_assert!(all.value(partition, index + 1) > value);
        }
    }

    #[test]
    fn an_interval_is_one_interval_in_each_partition(
        bits in 0_u32..=4,
        stripe in 0_u32..=4,
        near_end in any::<bool>(),
        first in 0_u128..600,
        len in 0_u128..600,
    ) {
        let all = Partitions::new(1 << bits, stripe).unwrap();
        let first = if near_end { u128::MAX - 1_200 + first } else { first };
        let values = first..=first + len;
        for partition in 0..all.count() {
            let mut own = values.clone().filter(|value| all.of_value(*value) == partition);
            let lowest = own.next();
            let highest = own.next_back().or(lowest);
            let wanted = lowest.zip(highest);
            let wanted = wanted.map(|(lowest, highest)| all.index(lowest)..=all.index(highest));
            let found = all.indexes(partition, values.clone());
            prop_assert_eq!(found, wanted, "partition {}", partition);
        }
    }

    #[test]
    fn large_intervals_have_their_ends_in_each_partition(
        all in partitions(),
        one in value(),
        other in value(),
        partition in any::<u32>(),
    ) {
        let partition = partition % all.count();
        let (first, last) = (one.min(other), one.max(other));
        let Some(found) = all.indexes(partition, first..=last) else {
            // Wider than a row of stripes, and every partition has some of it.
            let row = 1_u128 << all.count().trailing_zeros() << Partitions::STRIPE_MAX;
            prop_assert!(last - first < row);
            return Ok(());
        };
        let [lowest, highest] = [found.start(), found.end()].map(|at| all.value(partition, *at));
        prop_assert!(first <= lowest && highest <= last);
        if let Some(before) = found.start().checked_sub(1) {
            prop_assert!(all.value(partition, before) < first);
        }
    }

    #[test]
    fn names_with_one_tag_have_one_slot(
        tag in "[a-z]{1,9}",
        one in "[a-z]{0,9}",
        other in "[a-z]{0,9}",
    ) {
        let slot = slot_of(tag.as_bytes());
        prop_assert!(slot < SLOTS);
        for name in [format!("{{{tag}}}{one}"), format!("{other}{{{tag}}}")] {
            prop_assert_eq!(slot_of(name.as_bytes()), slot);
        }
    }
}

#[test]
fn each_slot_belongs_to_the_partition_that_names_it() {
    for count in [1, 2, 16, 64, 1_024] {
        let all = Partitions::new(count, 0).unwrap();
        let mut next = 0;
        for partition in 0..count {
            let slots = all.slots(partition);
            assert_eq!(slots.start, next);
            next = slots.end;
            for slot in slots {
                let slot = u16::try_from(slot).unwrap();
                assert_eq!(all.of_slot(slot), partition);
            }
        }
        assert_eq!(next, u32::from(SLOTS));
    }
}

#[test]
fn what_cannot_be_is_refused_in_words() {
    for count in [0, 3, 63, 2_048] {
        assert_eq!(Partitions::new(count, 0), Err(BadPartitions::Count(count)));
    }
    let stripe = Partitions::new(64, 65).unwrap_err();
    assert_eq!(
        stripe.to_string(),
        "stripes of 2^65 values: the most is 2^64"
    );
}

/// Nodes by name, with a weight each.
fn nodes() -> impl Strategy<Value = BTreeMap<String, u32>> {
    prop::collection::btree_map("[a-z]{1,3}", 0_u32..5, 0..12)
}

fn listed(nodes: &BTreeMap<String, u32>) -> Vec<Node<'_>> {
    let pairs = nodes.iter();
    let nodes = pairs.map(|(name, &weight)| Node { name, weight });
    nodes.collect()
}

/// How many partitions each node has.
fn counts(targets: &[Option<usize>], nodes: usize) -> Vec<usize> {
    let mut counts = vec![0; nodes];
    for node in targets.iter().flatten() {
        counts[*node] += 1;
    }
    counts
}

fn moves(before: &[Option<usize>], after: &[Option<usize>]) -> usize {
    let both = before.iter().zip(after);
    both.filter(|(before, after)| before.is_some() && before != after)
        .count()
}

proptest! {
    #![proptest_config(cases(1_000))]

    #[test]
    fn all_is_dealt_out_by_weight_and_stays_where_it_is(
        nodes in nodes(),
        bits in 0_u32..=8,
        seed in any::<u64>(),
    ) {
        let nodes = listed(&nodes);
        let all = 1_usize << bits;
        let mut rng = rideau_core::Rng::new(seed);
        let owner = |rng: &mut rideau_core::Rng| {
            let one = rng.below(nodes.len() as u64 + 1) as usize;
            (one < nodes.len()).then_some(one)
        };
        let owners: Vec<_> = (0..all).map(|_| owner(&mut rng)).collect();
        let targets = shares(&owners, &nodes);
        let sum: usize = nodes.iter().map(|node| node.weight as usize).sum();
        prop_assert!(targets.iter().all(|target| target.is_some() == (sum > 0)));
        if sum == 0 {
            return Ok(());
        }
        // Each has its part, rounded down or up.
        let (had, has) = (counts(&owners, nodes.len()), counts(&targets, nodes.len()));
        for (node, count) in nodes.iter().zip(&has) {
            let exact = all * node.weight as usize;
            prop_assert!(exact / sum <= *count && *count <= exact.div_ceil(sum));
        }
        // A node gives away no more than what is over its part.
        let over: usize = had.iter().zip(&has).map(|(had, has)| had.saturating_sub(*has)).sum();
        prop_assert_eq!(moves(&owners, &targets), over);
        // Nothing moves once all is where it should be.
        prop_assert_eq!(shares(&targets, &nodes), targets);
    }

    #[test]
    fn the_order_of_the_nodes_makes_no_difference(nodes in nodes(), seed in any::<u64>()) {
        let nodes = listed(&nodes);
        let turned: Vec<_> = nodes.iter().rev().copied().collect();
        let mut rng = rideau_core::Rng::new(seed);
        let owners: Vec<_> = (0..64)
            .map(|_| {
                let one = rng.below(nodes.len() as u64 + 1) as usize;
                (one < nodes.len()).then_some(one)
            })
            .collect();
        let other = |node: usize| nodes.len() - 1 - node;
        let turned_owners: Vec<_> = owners.iter().map(|owner| owner.map(other)).collect();
        let targets = shares(&turned_owners, &turned);
        let targets: Vec<_> = targets.into_iter().map(|target| target.map(other)).collect();
        prop_assert_eq!(shares(&owners, &nodes), targets);
    }
}

/// Nodes of weight one, called n0, n1 and so on.
fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("n{number}")).collect()
}

fn alike(names: &[String]) -> Vec<Node<'_>> {
    names.iter().map(|name| Node { name, weight: 1 }).collect()
}

#[test]
fn a_join_and_a_loss_move_as_little_as_possible() {
    for (all, count, most, least, join, loss) in [
        (64, 3, 22, 21, 16, 22),
        (64, 32, 2, 2, 1, 2),
        (1_024, 100, 11, 10, 10, 11),
    ] {
        let names = names(count + 1);
        let (few, many) = (alike(&names[..count]), alike(&names));
        let before = shares(&vec![None; all], &few);
        let had = counts(&before, count);
        assert_eq!(
            (had.iter().max(), had.iter().min()),
            (Some(&most), Some(&least))
        );
        let joined = shares(&before, &many);
        assert_eq!(moves(&before, &joined), join, "{count} nodes and one more");
        // The one that had most is gone: what it had is all that gets another owner.
        let gone = had.iter().position(|had| *had == most).unwrap();
        let left: Vec<_> = (0..count).filter(|node| *node != gone).collect();
        let place = |node: usize| left.iter().position(|other| *other == node);
        let orphaned: Vec<_> = before.iter().map(|owner| owner.and_then(place)).collect();
        let rest: Vec<_> = left.iter().map(|node| few[*node]).collect();
        let after = shares(&orphaned, &rest);
        assert_eq!(moves(&orphaned, &after), 0);
        let orphans = orphaned.iter().filter(|owner| owner.is_none()).count();
        assert_eq!(orphans, loss, "{count} nodes and one less");
    }
}

/// Nodes of different versions have to agree, so what they decide is fixed.
#[test]
fn the_share_of_each_node_is_fixed() {
    let names = names(3);
    let targets = shares(&[None; 16], &alike(&names));
    let text: String = targets
        .iter()
        .map(|target| target.unwrap().to_string())
        .collect();
    assert_eq!(text, "1201110120002022");
}
