//! The cluster: its nodes, its partitions with their owners, and where commands went.

use std::collections::BTreeMap;

use super::blocks::ShownCell;
use super::blocks::{Blocks, Listing, PageRow, anywhere, heads, shown};
use crate::view::facts::{ClusterNow, Facts, NodeNow, PartitionNow, Value};

pub(super) fn show(blocks: &mut Blocks<'_>) {
    blocks.title("Cluster");
    let cluster = blocks.look.daemon.cluster.clone();
    let Some(cluster) = cluster else {
        blocks.text(
            "Cluster",
            "This server is alone: the config has no [cluster]. With one, several nodes share \
             locks, ranges and pools, and take over from each other.",
        );
        return;
    };
    let cluster = Some(&*cluster);
    for one in ClusterNow::all(cluster) {
        blocks.facts("This node and its cluster", &one);
    }
    table(blocks, "nodes", "Nodes", &NodeNow::all(cluster));
    let partitions = PartitionNow::all(cluster);
    let mut states: BTreeMap<String, u64> = BTreeMap::new();
    for one in &partitions {
        let state = PartitionNow::ALL
            .iter()
            .find(|fact| fact.about.name == "state");
        if let Some(Value::Text(state)) = state.map(|fact| (fact.value)(one)) {
            *states.entry(state.into_owned()).or_default() += 1;
        }
    }
    let states = states
        .into_iter()
        .map(|(state, count)| (state, count, None));
    blocks.bars("Partitions, by state", states.collect());
    table(blocks, "partitions", "Partitions", &partitions);
}

fn table<T: Facts>(blocks: &mut Blocks<'_>, id: &'static str, title: &str, all: &[T]) {
    let look = blocks.look;
    let columns = heads::<T>(anywhere);
    let is_whole = id == "partitions";
    let from = if is_whole { look.from } else { 0 };
    let rows = all.iter().skip(from).take(look.count).map(|one| {
        let cells = columns
            .iter()
            .map(|(_, fact)| ShownCell::Text(shown(fact, one)));
        PageRow {
            cells: cells.collect(),
            ..PageRow::default()
        }
    });
    let rows = rows.collect();
    blocks.table(Listing {
        id,
        title: title.into(),
        heads: columns.into_iter().map(|(head, _)| head).collect(),
        rows,
        total: all.len(),
        from,
        is_whole,
        none: "None is known yet.".into(),
        ..Listing::default()
    });
}
