//! Facts of the nodes of a cluster and of its partitions.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rideau::Histogram;
use rideau_cluster::{NodeAbout, NodePulse, NodeTable, PeerLinks, PeerStats};
use rideau_core::cluster::{Certainty, Incarnation};

use super::facts;
use crate::state::cluster::{Cluster, KnownConfig};

/// The epoch in a fence has 21 bits.
const EPOCH_LAST: u64 = (1 << 21) - 1;

/// A node that lives, as this one knows it.
pub(crate) struct NodeNow {
    name: String,
    state: &'static str,
    about: NodeAbout,
    weight: u64,
    partitions: u64,
    life: u64,
    /// Of the links to it, if it is another node.
    peer: Option<PeerStats>,
    /// How long ago etcd answered its last keepalive, if it is this node.
    keepalive: Option<Duration>,
    /// The shared config that it follows.
    config: Option<KnownConfig>,
}

/// The cluster and this node's part in it.
pub(crate) struct ClusterNow {
    name: String,
    node: String,
    state: &'static str,
    pulse: NodePulse,
    nodes: u64,
    links: u64,
    partitions: u64,
    owned: u64,
    unowned: u64,
    epoch: u64,
    /// Nodes that live and that there is no link to.
    cut: u64,
    hops: HopsNow,
}

/// Where commands went.
struct HopsNow {
    here: u64,
    first: u64,
    sent: u64,
    served: u64,
    second: u64,
    down: u64,
    redirects: u64,
    took: Histogram,
}

/// A partition, as this node knows it.
pub(crate) struct PartitionNow {
    name: String,
    state: &'static str,
    owner: Option<String>,
    epoch: u64,
}

impl NodeNow {
    /// All nodes of the cluster, by name.
    pub(crate) fn all(cluster: Option<&Cluster>) -> Vec<Self> {
        let Some(cluster) = cluster else {
            return Vec::new();
        };
        let table = cluster.node.table();
        let pulse = cluster.node.pulse();
        let peers = cluster.links.read().as_ref().map(PeerLinks::peers);
        let peers = peers.unwrap_or_default();
        let nodes = table.owners.nodes().iter();
        let nodes = nodes.map(|(name, known)| {
            let node = Incarnation::new(name, known.fence);
            let is_me = table.me.as_ref() == Some(&node);
            Self {
                name: name.clone(),
                state: state(cluster, &table, &node),
                about: NodeAbout::parse(&known.record.about),
                weight: known.record.weight.into(),
                partitions: owned(&table, |owner| *owner == node),
                life: known.fence,
                peer: peers.iter().find(|peer| peer.node == node).cloned(),
                keepalive: pulse.keepalive_age.filter(|_| is_me),
                config: cluster.config_of(&node).filter(|known| known.version > 0),
            }
        });
        let lost = pulse.lost_nodes.iter().map(|name| Self {
            name: name.clone(),
            state: "lost",
            about: NodeAbout::default(),
            weight: 0,
            partitions: 0,
            life: 0,
            peer: None,
            keepalive: None,
            config: None,
        });
        let mut all: Vec<_> = nodes.chain(lost).collect();
        all.sort_by(|one, other| one.name.cmp(&other.name));
        all
    }
}

/// How many partitions have such an owner.
fn owned(table: &NodeTable, is_it: impl Fn(&Incarnation) -> bool) -> u64 {
    let partitions = table.owners.owners().map(|(partition, _)| partition);
    let owners = partitions.filter_map(|partition| table.owner(partition));
    owners.filter(|(owner, _)| is_it(owner)).count() as u64
}

/// How many other nodes live and have no link to this one.
fn cut(table: &NodeTable) -> u64 {
    let nodes = table.owners.nodes().iter();
    let nodes = nodes.map(|(name, known)| Incarnation::new(name, known.fence));
    let others = nodes.filter(|node| table.me.as_ref() != Some(node));
    others.filter(|node| !table.links.contains(node)).count() as u64
}

/// A part of all there is.
fn part(some: u64, all: u64) -> f64 {
    some as f64 / all.max(1) as f64
}

/// How a node is, in a word.
fn state(cluster: &Cluster, table: &NodeTable, node: &Incarnation) -> &'static str {
    if table.owners.is_draining(&node.name) {
        return "draining";
    }
    match table.me.as_ref() == Some(node) {
        true if cluster.node.valid_for().is_zero() => "unsure",
        false if !table.links.contains(node) => "cut",
        _ => "live",
    }
}

impl PartitionNow {
    /// All partitions.
    pub(crate) fn all(cluster: Option<&Cluster>) -> Vec<Self> {
        let Some(cluster) = cluster else {
            return Vec::new();
        };
        let table = cluster.node.table();
        let all = table.owners.owners().map(|(partition, row)| {
            let owner = table.owner(partition).map(|(owner, _)| owner);
            let state = match owner {
                None => "none",
                Some(_) if cluster.node.serves(partition).is_some() => "serving",
                Some(owner) if table.me.as_ref() == Some(owner) => "loading",
                Some(_) => "elsewhere",
            };
            Self {
                name: partition.to_string(),
                state,
                owner: owner.map(|owner| owner.name.clone()),
                epoch: row.record.as_ref().map_or(0, |record| record.epoch),
            }
        });
        all.collect()
    }
}

impl ClusterNow {
    /// The cluster, if there is one.
    pub(crate) fn all(cluster: Option<&Cluster>) -> Vec<Self> {
        let Some(cluster) = cluster else {
            return Vec::new();
        };
        let table = cluster.node.table();
        let options = cluster.node.options();
        let pulse = cluster.node.pulse();
        let partitions = u64::from(cluster.partitions.count());
        let records = table
            .owners
            .owners()
            .filter_map(|(_, row)| row.record.as_ref());
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counts = &cluster.counts;
        vec![Self {
            name: options.cluster.clone(),
            node: options.name.clone(),
            state: match pulse.certainty {
                Certainty::Sure => "sure",
                Certainty::Unsure => "unsure",
                Certainty::Lost => "joining",
            },
            nodes: table.owners.nodes().len() as u64,
            links: table.links.len() as u64,
            cut: cut(&table),
            partitions,
            owned: owned(&table, |owner| table.me.as_ref() == Some(owner)),
            unowned: partitions - owned(&table, |_| true),
            epoch: records.map(|record| record.epoch).max().unwrap_or(0),
            hops: HopsNow {
                here: read(&counts.here),
                first: read(&counts.first),
                sent: read(&counts.hops_out),
                served: read(&counts.hops_in),
                second: read(&counts.second),
                down: read(&counts.down),
                redirects: read(&counts.redirects),
                took: counts.took.lock().clone(),
            },
            pulse,
        }]
    }
}

/// The version of the shared config, and what is wrong with it.
fn config_text(known: &KnownConfig) -> String {
    let KnownConfig { version, note } = known;
    match note.is_empty() {
        true => version.to_string(),
        false => format!("{version}, {note}"),
    }
}

/// A quantile, if anything was measured.
fn quantile(spans: &Histogram, part: f64) -> Option<Duration> {
    (!spans.is_empty()).then(|| spans.quantile(part))
}

facts! { ClusterNow: "cluster" by "cluster", joined {
        "partitions": "Partitions: those of this node, those of others, and those without owner.",
        "hops": "Commands about what nodes share, by the number of nodes that they were sent to.",
        "moves": "Partitions that changed their owner: taken over, moved in, moved out."
    };
    name: Text, [SHOW], |it| &*it.name, "The name of the cluster.";
    node: Text, [SHOW], |it| &*it.node, "The name of this node.";
    certainty: Text, [SHOW], |it| it.state,
        "Whether the node may rely on its lease: `sure`, `unsure`, or `joining`.";
    valid_for_ms: Span, [SHOW, GAUGE], |it| it.pulse.valid_for,
        "For how long the node may rely on its lease.";
    keepalive_age_ms: Span | null, [SHOW, GAUGE], |it| it.pulse.keepalive_age,
        "How long ago etcd answered the last keepalive.";
    known_nodes: Count, [SHOW, GAUGE], |it| it.nodes, "Nodes that live, with this one.";
    links: Count, [SHOW, GAUGE], |it| it.links, "Nodes that there is a link to.";
    lost_nodes: Names, [SHOW], |it| it.pulse.lost_nodes.clone(),
        "Nodes that lived in the last 24 hours, or owned something last, and do not live.";
    lost: Count, [GAUGE.named("lost_nodes")], |it| it.pulse.lost_nodes.len(),
        "Nodes that lived in the last 24 hours, or owned something last, and do not live.";
    partitions: Count, [SHOW], |it| it.partitions, "Partitions of the cluster.";
    partitions_owned: Count, [SHOW, GAUGE.named("partitions").with(&[("owner", "this")])],
        |it| it.owned, "Partitions that this node owns.";
    partitions_elsewhere: Count, [GAUGE.named("partitions").with(&[("owner", "other")])],
        |it| it.partitions - it.owned - it.unowned, "Partitions that other nodes own.";
    partitions_unowned: Count, [SHOW, GAUGE.named("partitions").with(&[("owner", "none")])],
        |it| it.unowned, "Partitions that no living node owns.";
    epoch_max: Count, [SHOW, GAUGE], |it| it.epoch,
        "The highest epoch of a partition; 2,097,151 is the last.";
    hops_0: Count, [SHOW, COUNTER.named("hops").with(&[("hops", "0")])], |it| it.hops.here,
        "Commands about what nodes share that this node answered by itself.";
    hops_1: Count, [SHOW, COUNTER.named("hops").with(&[("hops", "1")])], |it| it.hops.first,
        "Commands of this node's clients that were sent to another node.";
    hops_2: Count, [SHOW, COUNTER.named("hops").with(&[("hops", "2")])], |it| it.hops.second,
        "Commands that this node answered and that came over a second node, as by a key whose \
            value is elsewhere.";
    hops_out: Count, [SHOW, COUNTER], |it| it.hops.sent,
        "Commands that were sent to another node, also for clients of a third one.";
    hops_in: Count, [SHOW, COUNTER], |it| it.hops.served,
        "Commands of other nodes that were executed here.";
    hop_p50_us: Span | null, [SHOW], |it| quantile(&it.hops.took, 0.5),
        "Half of the commands that another node answered took this long or less.";
    hop_p99_us: Span | null, [SHOW], |it| quantile(&it.hops.took, 0.99),
        "99 of 100 commands that another node answered took this long or less.";
    hop: Spans, [HISTOGRAM], |it| &it.hops.took,
        "How long commands took that another node answered.";
    down: Count, [SHOW, COUNTER], |it| it.hops.down, "Commands that no node could answer.";
    parked: Count, [SHOW, GAUGE], |it| it.pulse.parked, "Commands that wait for an owner.";
    lives: Count, [SHOW, COUNTER], |it| it.pulse.counters.lives,
        "How often the node joined the cluster.";
    takeovers: Count, [SHOW, COUNTER.named("moves").with(&[("how", "takeover")])],
        |it| it.pulse.counters.takeovers, "Partitions that the node took over, as no living node \
            owned them.";
    moves_in: Count, [SHOW, COUNTER.named("moves").with(&[("how", "in")])],
        |it| it.pulse.counters.moves_in, "Partitions that another node gave.";
    moves_out: Count, [SHOW, COUNTER.named("moves").with(&[("how", "out")])],
        |it| it.pulse.counters.moves_out, "Partitions that were given to another node.";
    load_p99_us: Span | null, [SHOW], |it| quantile(&it.pulse.counters.loads, 0.99),
        "99 of 100 partitions were loaded within this time.";
    load: Spans, [HISTOGRAM], |it| &it.pulse.counters.loads,
        "How long it took to load a partition.";
    loads_failed: Count, [SHOW, COUNTER], |it| it.pulse.counters.loads_failed,
        "Partitions that could not be loaded; the node tries again.";
    snapshots: Count, [SHOW, COUNTER], |it| it.pulse.counters.snapshots,
        "Snapshots of partitions that were begun.";
    append_p50_us: Span | null, [SHOW], |it| quantile(&it.pulse.counters.appends, 0.5),
        "Half of the decisions were safe in etcd within this time.";
    append_p99_us: Span | null, [SHOW], |it| quantile(&it.pulse.counters.appends, 0.99),
        "99 of 100 decisions were safe in etcd within this time.";
    append: Spans, [HISTOGRAM], |it| &it.pulse.counters.appends,
        "How long it took until a decision was safe in etcd.";
    appended: Bytes, [SHOW, COUNTER], |it| it.pulse.counters.append_bytes,
        "Bytes of decisions that were written to etcd.";
    etcd_p50_us: Span | null, [SHOW], |it| quantile(&it.pulse.counters.etcd, 0.5),
        "Half of the requests to etcd were answered within this time.";
    etcd_p99_us: Span | null, [SHOW], |it| quantile(&it.pulse.counters.etcd, 0.99),
        "99 of 100 requests to etcd were answered within this time.";
    etcd: Spans, [HISTOGRAM], |it| &it.pulse.counters.etcd, "How long requests to etcd took.";
    etcd_unanswered: Count, [SHOW, COUNTER], |it| it.pulse.counters.etcd_unknown,
        "Requests to etcd that had no answer in time.";
    etcd_used: Bytes, [SHOW, GAUGE], |it| it.pulse.room.used, "Bytes that are used in etcd.";
    etcd_file: Bytes, [SHOW, GAUGE], |it| it.pulse.room.file, "Bytes of etcd's file.";
    etcd_quota: Bytes, [SHOW, GAUGE], |it| it.pulse.room.quota, "Bytes that etcd may use.";
    unsure: Count, [ALARM], |it| u64::from(it.pulse.certainty != Certainty::Sure),
        "1 if the node may not rely on its lease, and 0 if it may.";
    cut: Count, [ALARM], |it| it.cut, "Nodes that live and that there is no link to.";
    etcd_part: Ratio, [ALARM], |it| part(it.pulse.room.used, it.pulse.room.quota),
        "How much of what etcd may use is used.";
    epochs_part: Ratio, [ALARM], |it| part(it.epoch, EPOCH_LAST),
        "The highest epoch of a partition, as a part of the last that there can be.";
    redirects: Count, [SHOW, COUNTER], |it| it.hops.redirects,
        "Commands of clients of Redis Cluster that were answered with the address of another node.";
}

facts! { NodeNow: "node" by "node", joined {};
    name: Text, [NARROW], |it| &*it.name, "Its name.";
    state: Text, [NARROW], |it| it.state,
        "`live`, `unsure` (it has not heard etcd for most of a lease), `draining`, `cut` (there \
         is no link to it), or `lost` (it lived in the last 24 hours, or owned something last).";
    address: Text, [NARROW], |it| &*it.about.clients, "Where any client reaches it.";
    peers: Text, [SHOW], |it| &*it.about.peers, "Where other nodes reach it.";
    release: Text, [SHOW], |it| &*it.about.release, "The release that it runs.";
    weight: Count, [SHOW], |it| it.weight, "Its weight: how large its share of the partitions is.";
    partitions: Count, [NARROW, GAUGE], |it| it.partitions, "Partitions that it owns.";
    life: Count, [SHOW], |it| it.life, "The revision of etcd at which it joined.";
    hops_out: Count | null, [BRIEF, COUNTER], |it| it.peer.as_ref().map(|peer| peer.asks_out),
        "Commands that this node sent to it.";
    hops_in: Count | null, [BRIEF, COUNTER], |it| it.peer.as_ref().map(|peer| peer.asks_in),
        "Commands that it sent to this node.";
    rtt_us: Span | null, [BRIEF, GAUGE], |it| it.peer.as_ref().and_then(|peer| peer.rtt),
        "How long the last ping to it took.";
    keepalive_ms: Span | null, [SHOW], |it| it.keepalive,
        "How long ago etcd answered the last keepalive of this node.";
    config: Text | null, [BRIEF], |it| it.config.as_ref().map(config_text),
        "The version of the shared config that it follows, and whether its file says something \
            else.";
}

facts! { PartitionNow: "partition" by "partition", joined {};
    name: Text, [SHOW], |it| &*it.name, "Its number.";
    state: Text, [SHOW], |it| it.state,
        "`serving` and `loading` on this node, `elsewhere`, or `none` if it has no owner.";
    owner: Text | null, [SHOW], |it| it.owner.as_deref(), "The node that owns it.";
    epoch: Count, [SHOW], |it| it.epoch, "Its epoch: one more with each owner.";
}
