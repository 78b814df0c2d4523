//! Looking for free values on all nodes.

use std::time::Duration;

use rideau::allocator::Vouched;
use rideau_cluster::{LinkError, PeerAsk};
use rideau_core::cluster::{Digest, Incarnation, Search, SearchStep, SearchView};
use rideau_resp::Value;
use tokio::task::JoinSet;

use super::{AskVerdict, Obtained, ValueAsks, wishes, words_of};
use crate::redis::commands::down_text;
use crate::state::cluster::{NoRoute, verbs};

impl ValueAsks {
    /// Have the node execute a command that has what it wants, and is best for it.
    pub(super) async fn obtain(
        &self,
        ask: &PeerAsk,
        command: &[u8],
        vouched: Option<Vouched>,
    ) -> Obtained {
        let wishes = wishes(command);
        let mut search = Search::new(wishes.tiers(&self.daemon), wishes.whole_count());
        if search.ranges().next().is_none() {
            // There is no such range, and the client is told so.
            return Obtained::Answer(self.run_vouched(ask, command, vouched).await);
        }
        loop {
            let node = match self.next_step(&search) {
                SearchStep::Here => None,
                SearchStep::Ask(node) => Some(node),
                SearchStep::Count(nodes) => {
                    self.count(&mut search, nodes).await;
                    continue;
                }
                SearchStep::Split => return self.split(ask, command, vouched).await,
                SearchStep::Nothing => return Obtained::Nothing,
                SearchStep::Silent(node) => {
                    return Obtained::Down(format!(
                        "CLUSTERDOWN this node does not know what node {} has free, and the \
                         others have no free value; nothing is held. Ask again.",
                        node.name
                    ));
                }
                SearchStep::Unserved(missing) => {
                    let all = self.cluster.partitions.count();
                    return Obtained::Down(format!(
                        "CLUSTERDOWN no node serves {missing} of {all} partitions just now, and \
                         the others have no free value; nothing is held. Ask again."
                    ));
                }
            };
            let replied = self.run_on(node.as_ref(), ask, command, vouched).await;
            match (replied, node) {
                (Ok(reply), node) => match (AskVerdict::of(&reply), node) {
                    (AskVerdict::Done | AskVerdict::Refused, _) => return Obtained::Answer(reply),
                    (AskVerdict::Nothing | AskVerdict::NotMine, None) => search.none_here(),
                    (AskVerdict::Nothing, Some(node)) => {
                        search.had_none(&node, &mut self.cluster.digests.write());
                    }
                    // It may have some, and cannot give it just now.
                    (AskVerdict::NotMine, Some(node)) => {
                        search.had_none(&node, &mut self.cluster.digests.write());
                        search.counted(&node, false);
                    }
                },
                (Err(why @ (LinkError::Broken | LinkError::TimedOut)), Some(node)) => {
                    let why = NoRoute::Link(node, why);
                    return Obtained::Unknown(down_text(&self.cluster, &why, true));
                }
                // Nothing was sent.
                (Err(_), Some(node)) => {
                    search.had_none(&node, &mut self.cluster.digests.write());
                    search.counted(&node, false);
                }
                (Err(_), None) => search.none_here(),
            }
        }
    }

    /// Where an ask goes next.
    pub(super) fn next_step(&self, search: &Search) -> SearchStep {
        let others = self.cluster.others();
        let unserved = self.cluster.unserved();
        search.next(SearchView {
            digests: &self.cluster.digests.read(),
            here: &|range| self.free_here(range),
            others: &others,
            unserved,
        })
    }

    /// Ask nodes how much they have free, all at once.
    async fn count(&self, search: &mut Search, nodes: Vec<Incarnation>) {
        let ranges: Vec<String> = search.ranges().map(str::to_owned).collect();
        let mut asks = JoinSet::new();
        for node in nodes {
            let (asks_of, command) = (self.clone(), verbs::write(verbs::FREE, &ranges));
            asks.spawn(async move {
                let counts = asks_of.query(&node, command).await;
                (node, counts)
            });
        }
        while let Some(asked) = asks.join_next().await {
            let Ok((node, counts)) = asked else { continue };
            search.counted(&node, counts.is_some());
            let counts = Value::Array(counts.unwrap_or_default());
            let mut digests = self.cluster.digests.write();
            for (range, free) in ranges.iter().zip(words_of(&counts)) {
                let free = super::number(free);
                let known = digests.of(&node, range).cloned().unwrap_or_default();
                digests.set(range, &node, Digest { free, ..known });
            }
        }
    }

    /// Is a value known to be free, here or elsewhere?
    pub(super) fn is_any_known(&self, command: &[u8]) -> bool {
        let wishes = wishes(command);
        let search = Search::new(wishes.tiers(&self.daemon), wishes.whole_count());
        let step = self.next_step(&search);
        matches!(step, SearchStep::Here | SearchStep::Ask(_))
    }
}

/// Parts of a whole are held for so long until all are there.
pub(super) const PART_TTL: Duration = Duration::from_secs(5);
