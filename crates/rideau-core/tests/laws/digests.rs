//! An ask finds a value wherever one is, of the best tier that is known, and is told that
//! there is none only when all nodes were asked.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use rideau_core::cluster::{Digest, Digests, Incarnation, Search, SearchStep, SearchView};

use crate::cases;

/// What a node really has of two ranges, and what it has said; nothing if it is silent.
#[derive(Clone, Debug)]
struct Truth {
    has: [u64; 2],
    said: Option<[u64; 2]>,
    answers: bool,
}

const RANGES: [&str; 2] = ["a", "b"];

fn truth() -> impl Strategy<Value = Truth> {
    let few = || prop_oneof![Just(0_u64), 0_u64..4];
    let said = prop::option::weighted(0.8, [few(), few()]);
    ([few(), few()], said, prop::bool::weighted(0.9)).prop_map(|(has, said, answers)| Truth {
        has,
        said,
        answers,
    })
}

/// Values can be taken from here: enough, all of one node.
fn takes(has: &mut [u64; 2], count: u64) -> Option<usize> {
    if has.iter().sum::<u64>() < count {
        return None;
    }
    let tier = if has[0] > 0 { 0 } else { 1 };
    let mut left = count;
    for free in has {
        let taken = left.min(*free);
        (*free, left) = (*free - taken, left - taken);
    }
    Some(tier)
}

proptest! {
    #![proptest_config(cases(3_000))]

    #[test]
    fn a_value_is_found_wherever_it_is(
        mut here in [0_u64..3, 0_u64..3],
        nodes in prop::collection::vec(truth(), 0..5),
        count in prop_oneof![4 => Just(1_u64), 1 => 2_u64..5],
        unserved in prop_oneof![4 => Just(0_usize), 1 => 1_usize..4],
    ) {
        let mut digests = Digests::default();
        let mut all = BTreeMap::new();
        for (at, truth) in nodes.into_iter().enumerate() {
            let node = Incarnation::new(&format!("n{at}"), at as u64 + 1);
            if let Some(said) = truth.said {
                for (range, free) in RANGES.iter().zip(said) {
                    digests.set(range, &node, Digest { free, ..Digest::default() });
                }
            }
            all.insert(node, truth);
        }
        let others: BTreeSet<Incarnation> = all.keys().cloned().collect();
        let tiers = RANGES.iter().map(|range| vec![Box::from(*range)]);
        let mut search = Search::new(tiers.collect(), count);
        let (mut counted, mut asked) = (BTreeSet::new(), BTreeSet::new());
        for turn in 0.. {
            prop_assert!(turn < 20, "it ends");
            let has = here;
            let free = |range: &str| has[usize::from(range == "b")];
            let view = SearchView { digests: &digests, here: &free, others: &others, unserved };
            let is_first_free = here[0] > 0;
            match search.next(view) {
                SearchStep::Here => {
                    prop_assert!(takes(&mut here, count).is_some());
                    break;
                }
                SearchStep::Ask(node) => {
                    prop_assert!(asked.insert(node.clone()), "asked once");
                    prop_assert!(count > 1 || !is_first_free, "this node has the best");
                    let truth = all.get_mut(&node).unwrap();
                    if takes(&mut truth.has, count).is_some() {
                        break;
                    }
                    search.had_none(&node, &mut digests);
                }
                SearchStep::Count(nodes) => {
                    prop_assert!(!nodes.is_empty());
                    for node in nodes {
                        prop_assert!(counted.insert(node.clone()), "counted once");
                        let truth = &all[&node];
                        search.counted(&node, truth.answers);
                        for (range, free) in RANGES.iter().zip(truth.has) {
                            if truth.answers {
                                digests.set(range, &node, Digest { free, ..Digest::default() });
                            }
                        }
                    }
                }
                SearchStep::Split => {
                    prop_assert!(count > 1);
                    prop_assert!(here.iter().sum::<u64>() < count);
                    break;
                }
                SearchStep::Nothing => {
                    prop_assert_eq!(unserved, 0);
                    prop_assert!(here.iter().sum::<u64>() < count);
                    for (node, truth) in &all {
                        prop_assert!(truth.has.iter().sum::<u64>() < count, "{} has some", node);
                        let is_asked = asked.contains(node) || counted.contains(node);
                        prop_assert!(is_asked, "{} was not asked", node);
                    }
                    break;
                }
                SearchStep::Silent(node) => {
                    prop_assert!(!all[&node].answers);
                    break;
                }
                SearchStep::Unserved(of) => {
                    prop_assert_eq!(of, unserved);
                    break;
                }
            }
        }
    }
}

#[test]
fn a_wait_on_any_node_is_known_until_that_node_is_forgotten() {
    let mut digests = Digests::default();
    let (one, two) = (Incarnation::new("n1", 1), Incarnation::new("n2", 2));
    let digest = |is_waited| Digest {
        is_waited,
        ..Digest::default()
    };
    digests.set("a", &one, digest(false));
    assert!(!digests.is_waited("a"));
    digests.set("a", &two, digest(true));
    assert!(digests.is_waited("a") && !digests.is_waited("b"));
    digests.forget(&two);
    assert!(!digests.is_waited("a"));
}
