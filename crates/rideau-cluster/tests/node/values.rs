//! Reservations of values on nodes: they outlive moves, deaths and restarts of all nodes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rideau::allocator::{Ask, Place, Prefer, RangeOptions, Reservation, Span, Which};
use rideau::{Answer, Failed, Ranges, RangesOptions};
use rideau_cluster::ClusterNode;
use rideau_core::cluster::Partitions;
use tokio::time::sleep;

use crate::rig::{PARTITIONS, Rig};
use crate::server::{PATIENCE, Server, until};

/// A node with ranges.
struct ValueNode {
    // Dropped first: it makes the writer of the ranges return.
    node: Arc<ClusterNode>,
    ranges: Ranges,
}

/// All nodes by name, and what is reserved.
struct ValueNodes {
    rig: Rig,
    nodes: BTreeMap<&'static str, ValueNode>,
    held: BTreeMap<u128, u64>,
}

fn partitions() -> Partitions {
    Partitions::new(PARTITIONS, 0).unwrap()
}

impl ValueNodes {
    async fn start(&mut self, name: &'static str) {
        let node = ClusterNode::open(self.rig.options(name)).await.unwrap();
        let node = Arc::new(node);
        let hour = Duration::from_secs(3_600);
        let range = RangeOptions {
            ttl: hour,
            offer_ttl: hour,
            ..RangeOptions::new(vec![Span::parse("0-999").unwrap()])
        };
        let options = RangesOptions {
            ranges: vec![("sync".to_owned(), range)],
            partitions: partitions(),
            ..RangesOptions::default()
        };
        let (ranges, host) = Ranges::in_cluster(options, node.log()).unwrap();
        self.rig.link(&node, Arc::new(host));
        self.nodes.insert(name, ValueNode { node, ranges });
    }

    async fn kill(&mut self, name: &str) {
        let ValueNode { node, ranges } = self.nodes.remove(name).unwrap();
        let ended = node.ended();
        drop(node);
        ended.await;
        drop(ranges);
    }

    /// Wait until all partitions are served, this many by each node at least.
    async fn until_all_serve(&self, least: usize) {
        until("all partitions are served", async || {
            let served = |it: &ValueNode| {
                let all = 0..PARTITIONS;
                all.filter(|at| it.node.serves(*at).is_some()).count()
            };
            let counts: Vec<_> = self.nodes.values().map(served).collect();
            counts.iter().sum::<usize>() == PARTITIONS as usize
                && counts.iter().all(|count| *count >= least)
        })
        .await;
    }

    /// Reserve values at each node. None of them is reserved already.
    async fn reserve(&mut self, count: usize) {
        for it in self.nodes.values() {
            let id = it.ranges.range("sync").unwrap();
            let prefer = [Prefer {
                tier: 0,
                place: Place::Range(id),
            }];
            let mut reserved = 0;
            while reserved < count {
                let answer = it.ranges.reserve(&Ask::new(&prefer));
                let Ok(found) = outcome(answer).await else {
                    // The partition was about to move.
                    sleep(Duration::from_millis(10)).await;
                    continue;
                };
                for Reservation { value, fence, .. } in found {
                    let before = self.held.insert(value, fence);
                    assert_eq!(before, None, "{value} is reserved twice");
                }
                reserved += 1;
            }
        }
    }

    /// Everything that was reserved is held by the owner of its partition.
    async fn check(&self) {
        assert!(!self.held.is_empty());
        for (value, fence) in &self.held {
            let partition = partitions().of_value(*value);
            let mut found = None;
            until("the value is looked up", async || {
                for it in self.nodes.values() {
                    if it.node.serves(partition).is_none() {
                        continue;
                    }
                    let seen = outcome(it.ranges.lookup(Which::Value(*value))).await;
                    if let Ok(seen) = seen {
                        found = Some(seen.first().map(|seen| seen.fence));
                        return true;
                    }
                }
                false
            })
            .await;
            assert_eq!(found, Some(Some(*fence)), "{value} is lost");
        }
    }
}

/// Wait until an answer may be told, or has failed.
async fn outcome<T>(answer: Answer<T>) -> Result<T, Failed> {
    let (decision, safe) = answer.into_parts();
    let end = tokio::time::Instant::now() + PATIENCE;
    while !safe.is_reached()? {
        assert!(tokio::time::Instant::now() < end, "no answer comes");
        sleep(Duration::from_millis(1)).await;
    }
    decision
}

#[tokio::test]
async fn reservations_outlive_moves_deaths_and_restarts() {
    let server = Server::start().await;
    let mut all = ValueNodes {
        rig: Rig::new(vec![server.address()]),
        nodes: BTreeMap::new(),
        held: BTreeMap::new(),
    };
    all.start("n1").await;
    all.until_all_serve(8).await;
    all.reserve(40).await;
    all.check().await;

    all.start("n2").await;
    all.until_all_serve(4).await;
    all.reserve(20).await;
    all.check().await;

    all.kill("n1").await;
    all.until_all_serve(8).await;
    all.reserve(20).await;
    all.check().await;

    all.start("n3").await;
    all.until_all_serve(4).await;
    all.nodes["n2"].node.stop(PATIENCE).await;
    all.nodes.remove("n2");
    all.until_all_serve(8).await;
    all.reserve(20).await;
    all.kill("n3").await;

    all.start("n1").await;
    all.until_all_serve(8).await;
    all.reserve(20).await;
    all.check().await;
}
