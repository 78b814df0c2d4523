//! What a cluster of 3 to 100 nodes does: shares, moves, takeovers and hops by the machines of
//! all nodes. And of up to 1,000 nodes: how far asks for values go, and what nodes tell each
//! other.
//!
//! `RIDEAU_SOAK=1 cargo test -p rideau-core --profile sim --features planted --test cluster \
//! figures -- --nocapture` prints them.

use std::collections::BTreeSet;
use std::env;

use rideau_core::Rng;
use rideau_core::cluster::{
    Digest, Digests, Incarnation, Node, Partitions, Search, SearchStep, SearchView, shares,
};

use crate::members::Members;
use crate::world::{MILLI, SECOND};

/// The lease of the nodes, and what else a takeover may take.
const TAKEOVER_MAX: u64 = 7 * SECOND;
/// How long moves may take.
const SETTLE_MAX: u64 = 120 * SECOND;
/// How many values there are.
const VALUES: u64 = 65_536;

#[test]
fn nodes_share_move_and_take_over_in_clusters_of_3_to_32() {
    for (nodes, partitions) in [(3, 16), (10, 64), (32, 64)] {
        println!("{:?}", grown(nodes, partitions));
    }
}

#[test]
fn nodes_share_move_and_take_over_in_a_cluster_of_100() {
    println!("{:?}", dealt(100, 128));
}

#[test]
fn figures_of_10_100_and_1000_nodes() {
    let is_soak = env::var_os("RIDEAU_SOAK").is_some();
    let sizes: &[(usize, u32)] = match is_soak {
        true => &[(10, 64), (100, 1_024), (1_000, 1_024)],
        false => &[(10, 64), (100, 1_024)],
    };
    println!("nodes  without key: hops 0, 1, more    with one key: hops 0, 1, 2, more");
    for (nodes, partitions) in sizes {
        let plain = hops(*nodes, *partitions, false);
        let keyed = hops(*nodes, *partitions, true);
        println!("{nodes:>5}  {plain:?}  {keyed:?}");
        let asks: u64 = plain.iter().sum();
        assert_eq!(plain[0] + plain[1], asks, "without a key one hop is enough");
        let asks: u64 = keyed.iter().sum();
        assert!((keyed[0] + keyed[1]) * 100 >= asks * 99, "{keyed:?}");
    }
    println!("nodes  asks/s of a node  digests sent by a node in a second");
    for (nodes, _) in sizes {
        for rate in [1, 10, 1_000] {
            let told = told(*nodes, rate);
            println!("{nodes:>5}  {rate:>16}  {told:>10}");
            assert!(told <= 20 * (*nodes as u64 - 1), "each 50 ms at most");
        }
    }
    if is_soak {
        println!("nodes  takeover, join, drain");
        // The machines of 1,000 nodes take too long to run for what they would show.
        for (nodes, partitions) in sizes.iter().filter(|(nodes, _)| *nodes <= 100) {
            println!("{nodes:>5}  {:?}", dealt(*nodes, *partitions));
        }
    }
}

/// How long changes took, in milliseconds, and how many partitions they moved.
#[derive(Debug)]
#[allow(dead_code, reason = "they are printed")]
struct Changes {
    takeover_ms: u64,
    join_ms: u64,
    joined: usize,
    drain_ms: u64,
    drained: usize,
}

/// Nodes begin without any owner, one after the other.
fn grown(nodes: usize, partitions: u32) -> Changes {
    let mut members = Members::new(nodes as u64, 0, partitions);
    for _ in 0..nodes {
        members.join();
        let next = members.now + 40 * MILLI;
        members.run_until(next);
    }
    let served = members.wait(TAKEOVER_MAX, Members::all_served);
    assert!(served.is_some(), "G10: all partitions have an owner");
    changed(members)
}

/// Nodes have had their shares for long.
fn dealt(nodes: usize, partitions: u32) -> Changes {
    let mut members = Members::new(nodes as u64, nodes, partitions);
    let joined = members.wait(2 * SECOND, Members::all_joined);
    assert!(joined.is_some(), "all nodes join");
    members.deal();
    let served = members.wait(5 * SECOND, Members::all_served);
    assert!(served.is_some(), "G10: all partitions are served");
    changed(members)
}

/// A node dies, one joins, one leaves: partitions have one owner each, as few move as
/// possible, and asks take one hop.
fn changed(mut members: Members) -> Changes {
    assert_settled(&mut members);
    let dead = 1;
    let had = members.share(dead);
    members.kill(dead);
    let takeover = members.wait(TAKEOVER_MAX, Members::all_served);
    let takeover = takeover.expect("G10: all partitions serve within the lease and 2 s");
    let begun = members.begun;
    assert_settled(&mut members);
    assert!(had > 0 && members.share(dead) == 0);
    assert_eq!(members.begun, begun, "nothing moves beside the orphans");

    let since = members.now;
    let new = members.join();
    assert_settled(&mut members);
    let join = members.now - since;
    let joined = members.share(new);
    assert_eq!(
        (members.begun - begun) as usize,
        joined,
        "only to the new node"
    );

    let (begun, since) = (members.begun, members.now);
    let leaving = 2;
    let drained = members.share(leaving);
    members.drain(leaving);
    let is_gone = |it: &Members| it.nodes[leaving].machine.is_none();
    let drain = members.wait(SETTLE_MAX, is_gone).expect("it drains");
    assert!(since + drain <= members.now);
    assert_settled(&mut members);
    assert_eq!(
        (members.begun - begun) as usize,
        drained,
        "only from that node"
    );
    Changes {
        takeover_ms: takeover / 1_000,
        join_ms: join / 1_000,
        joined,
        drain_ms: drain / 1_000,
        drained,
    }
}

/// In the end shares are even, moves have ended, and an ask takes one hop at most.
fn assert_settled(members: &mut Members) {
    let is_even = |it: &Members| {
        let shares = it.shares();
        let (least, most) = (shares.iter().min(), shares.iter().max());
        least
            .zip(most)
            .is_some_and(|(least, most)| most - least <= 1)
    };
    let is_settled = |it: &Members| it.all_joined() && is_even(it) && it.all_served();
    let settled = members.wait(SETTLE_MAX, is_settled);
    assert!(settled.is_some(), "G10: shares {:?}", members.shares());
    let quiet = members.wait(SETTLE_MAX, Members::is_quiet);
    assert!(quiet.is_some(), "G10: moves end, and all agree");
    members.hops = [0; 3];
    members.down = 0;
    members.ask(1_000);
    let next = members.now + SECOND;
    members.run_until(next);
    let [none, one, more] = members.hops;
    let asks = (none + one, more, members.down);
    assert_eq!(asks, (1_000, 0, 0), "an ask takes one hop at most");
}

/// How many of 20,000 asks for a value take 0, 1, 2 and more hops, while four in five values
/// are reserved. Digests are up to 50 ms old, and a thousand asks come in that time.
fn hops(nodes: usize, partitions: u32, is_keyed: bool) -> [u64; 4] {
    let mut rng = Rng::new(nodes as u64);
    let names: Vec<_> = (0..nodes)
        .map(|node| Incarnation::new(&format!("n{node}"), 1))
        .collect();
    let all: BTreeSet<Incarnation> = names.iter().cloned().collect();
    let of_names = names.iter().map(|node| Node {
        name: &node.name,
        weight: 1,
    });
    let of_names: Vec<_> = of_names.collect();
    let owners = shares(&vec![None; partitions as usize], &of_names);
    let owners: Vec<usize> = owners.into_iter().map(|owner| owner.unwrap()).collect();
    let of = Partitions::new(partitions, 0).unwrap();
    let owner_of = |value: u64| owners[of.of_value(value.into()) as usize];
    let mut free = vec![Vec::new(); nodes];
    let mut held = Vec::new();
    for value in 0..VALUES {
        match rng.below(5) {
            0 => free[owner_of(value)].push(value),
            _ => held.push(value),
        }
    }
    let (mut digests, mut counts) = (Digests::default(), [0; 4]);
    for ask in 0..20_000 {
        if ask % 1_000 == 0 {
            for (node, free) in names.iter().zip(&free) {
                let digest = Digest {
                    free: free.len() as u64,
                    ..Digest::default()
                };
                digests.set("r", node, digest);
            }
        }
        let gone = held.swap_remove(rng.below(held.len() as u64) as usize);
        free[owner_of(gone)].push(gone);
        let entry = rng.below(nodes as u64) as usize;
        let key = format!("key-{ask}");
        let first = match is_keyed {
            true => owners[of.of_name(key.as_bytes()) as usize],
            false => entry,
        };
        let mut hops = usize::from(first != entry);
        let mut others = all.clone();
        others.remove(&names[first]);
        let mut search = Search::new(vec![vec!["r".into()]], 1);
        let value = loop {
            let here = |_: &str| free[first].len() as u64;
            let step = search.next(SearchView {
                digests: &digests,
                here: &here,
                others: &others,
                unserved: 0,
            });
            match step {
                SearchStep::Here => break free[first].pop().unwrap(),
                SearchStep::Ask(node) => {
                    hops += 1;
                    let at: usize = node.name[1..].parse().unwrap();
                    match free[at].pop() {
                        Some(value) => break value,
                        None => search.had_none(&node, &mut digests),
                    }
                }
                step => panic!("four in five values are free: {step:?}"),
            }
        };
        held.push(value);
        counts[hops.min(3)] += 1;
    }
    counts
}

/// How many digests a node sends in a second, if it decides so often and has one range: to
/// each other node, each 50 ms, if anything has changed.
fn told(nodes: usize, asks_per_second: u64) -> u64 {
    const SECONDS: u64 = 200;
    let mut rng = Rng::new(asks_per_second);
    let mut ticks = 0;
    for _ in 0..SECONDS * 20 {
        let mut asks = (0..asks_per_second).map(|_| rng.below(20));
        ticks += u64::from(asks.any(|tick| tick == 0));
    }
    ticks * (nodes as u64 - 1) / SECONDS
}
