//! Many nodes, of which each is the machine that ships and little else: the owners of
//! partitions, how soon a node that dies is stood in for, and how far asks go. Partitions are
//! empty, nothing is lost between nodes, and etcd answers within milliseconds.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use rideau_core::cluster::{
    AskRoute, Cluster, Effect, Incarnation, KeyChange, Options, OwnerRecord, PeerMessage,
    RowMessage, Segment, StoreOp, StoreOutcome, StoreRequest, StoreTxn,
};
use rideau_core::{Instant, Machine, Rng};
use rideau_testing::etcd_model::EtcdModel;

use crate::world::{MILLI, SECOND};

/// Something that happens to one life of a node.
enum Turn {
    Wake,
    Begin,
    AtEtcd(u64, StoreRequest),
    FromEtcd(u64, StoreOutcome),
    KeepAtEtcd(u64, u64),
    KeepFromEtcd(u64, Duration),
    Poll(u64),
    Seen(u64, Vec<(u64, Vec<KeyChange>)>),
    Loaded(u32, u64),
    Closed(u32, u64),
    Snapshotted(u32, u64),
    Heard(Incarnation, PeerMessage),
    Reported(Incarnation, RowMessage),
    AskedByPeer {
        ask: u64,
        partition: u32,
        epoch: u64,
    },
}

/// One machine with its process, if it runs.
pub(crate) struct Member {
    name: String,
    pub(crate) machine: Option<Cluster>,
    life: u64,
    watch: Option<(u64, u64)>,
    wake_at: Option<u64>,
}

/// How far an ask has got.
struct Going {
    partition: u32,
    hops: usize,
}

/// All nodes of a run.
pub(crate) struct Members {
    pub(crate) nodes: Vec<Member>,
    pub(crate) now: u64,
    partitions: u32,
    etcd: EtcdModel,
    rng: Rng,
    queue: BinaryHeap<Reverse<(u64, u64, usize, u64)>>,
    turns: BTreeMap<u64, Turn>,
    serial: u64,
    asks: BTreeMap<u64, Going>,
    /// How many asks took no hop, one, and more; those without an answer are apart.
    pub(crate) hops: [u64; 3],
    pub(crate) down: u64,
    /// The owner of each partition that began last, and how often one began.
    began: Vec<Option<usize>>,
    pub(crate) begun: u64,
}

impl Members {
    pub(crate) fn new(seed: u64, nodes: usize, partitions: u32) -> Self {
        let mut members = Self {
            nodes: Vec::new(),
            now: SECOND,
            partitions,
            etcd: EtcdModel::default(),
            rng: Rng::new(seed),
            queue: BinaryHeap::new(),
            turns: BTreeMap::new(),
            serial: 0,
            asks: BTreeMap::new(),
            hops: [0; 3],
            down: 0,
            began: vec![None; partitions as usize],
            begun: 0,
        };
        for _ in 0..nodes {
            members.join();
        }
        members
    }

    /// One more node. It begins at once.
    pub(crate) fn join(&mut self) -> usize {
        let node = self.nodes.len();
        self.nodes.push(Member {
            name: format!("n{node:04}"),
            machine: None,
            life: 1,
            watch: None,
            wake_at: None,
        });
        self.after(node, 0, Turn::Begin);
        node
    }

    /// The process of a node is gone.
    pub(crate) fn kill(&mut self, node: usize) {
        let member = &mut self.nodes[node];
        member.machine = None;
        member.life += 1;
    }

    /// A node gives away all that it owns, and leaves.
    pub(crate) fn drain(&mut self, node: usize) {
        self.step(node, |machine, now, effects| machine.drain(now, effects));
    }

    pub(crate) fn run_until(&mut self, until: u64) {
        while let Some(Reverse((at, serial, node, life))) = self.queue.peek().copied()
            && at <= until
        {
            self.queue.pop();
            self.now = at;
            self.etcd.expire(local(at));
            let turn = self.turns.remove(&serial).expect("it is queued");
            self.turn(node, life, turn);
        }
        self.now = until;
    }

    /// Let time pass until this is so. Returns how long that took, in microseconds.
    pub(crate) fn wait(&mut self, most: u64, is_so: impl Fn(&Self) -> bool) -> Option<u64> {
        let since = self.now;
        while self.now <= since + most {
            if is_so(self) {
                return Some(self.now - since);
            }
            self.run_until(self.now + 10 * MILLI);
        }
        None
    }

    /// Deal all partitions out, as if that had happened long ago.
    pub(crate) fn deal(&mut self) {
        let nodes: Vec<_> = self.live().filter_map(|(_, it)| it.incarnation()).collect();
        let nodes: Vec<Incarnation> = nodes.into_iter().cloned().collect();
        let keys = self.keys();
        let record = |partition: u32| {
            let owner = nodes[partition as usize % nodes.len()].clone();
            let segment = Segment {
                epoch: 1,
                log: owner.clone(),
                from: None,
                to: None,
            };
            let segments = vec![segment];
            let record = OwnerRecord {
                epoch: 1,
                owner,
                snapshot: None,
                segments,
            };
            StoreOp::Put {
                key: keys.owner(partition),
                value: record.to_string().into_bytes(),
                lease: None,
            }
        };
        let all: Vec<u32> = (0..self.partitions).collect();
        for some in all.chunks(128) {
            let then = some.iter().copied().map(record).collect();
            let txn = StoreTxn {
                then,
                ..StoreTxn::default()
            };
            let outcome = self.etcd.call(&StoreRequest::Txn(txn), local(self.now));
            assert!(matches!(outcome, StoreOutcome::Done(_)), "{outcome:?}");
        }
    }

    fn keys(&self) -> rideau_core::cluster::ClusterKeys {
        rideau_core::cluster::ClusterKeys::new("sim")
    }

    /// The machines that run.
    pub(crate) fn live(&self) -> impl Iterator<Item = (usize, &Cluster)> {
        let nodes = self.nodes.iter().enumerate();
        nodes.filter_map(|(at, member)| Some((at, member.machine.as_ref()?)))
    }

    /// Whether all of these nodes are part of the cluster.
    pub(crate) fn all_joined(&self) -> bool {
        let mut nodes = self.nodes.iter();
        nodes.all(|node| {
            let machine = node.machine.as_ref();
            node.life > 1 || machine.is_some_and(|it| it.incarnation().is_some())
        })
    }

    /// G1 and G10: each partition is served by one node, values and names.
    pub(crate) fn all_served(&self) -> bool {
        let now = local(self.now);
        (0..self.partitions).all(|partition| {
            self.began[partition as usize].is_some_and(|node| {
                let machine = self.nodes[node].machine.as_ref();
                machine.is_some_and(|it| it.serves_names(partition, now).is_some())
            })
        })
    }

    /// Moves end, nothing is parked, and all agree about the owners.
    pub(crate) fn is_quiet(&self) -> bool {
        let mut owners = self.live().map(|(_, machine)| {
            let owners: Vec<_> = (0..self.partitions).map(|at| machine.owner(at)).collect();
            (owners, machine.is_moving(), machine.parked())
        });
        let Some((first, ..)) = owners.next() else {
            return false;
        };
        let is_known = first.iter().all(Option::is_some);
        is_known && owners.all(|(all, moving, parked)| all == first && !moving && parked == 0)
    }

    /// How many partitions each node has that runs.
    pub(crate) fn shares(&self) -> Vec<usize> {
        let owners: Vec<usize> = self.began.iter().flatten().copied().collect();
        let nodes = self.live();
        let count = |node| owners.iter().filter(|owner| **owner == node).count();
        nodes.map(|(node, _)| count(node)).collect()
    }

    /// How many partitions a node has.
    pub(crate) fn share(&self, node: usize) -> usize {
        self.began.iter().filter(|it| **it == Some(node)).count()
    }

    /// Asks for partitions at nodes, each drawn.
    pub(crate) fn ask(&mut self, count: u64) {
        let live: Vec<usize> = self.live().map(|(node, _)| node).collect();
        for _ in 0..count {
            let node = live[self.rng.below(live.len() as u64) as usize];
            let partition = self.rng.below(u64::from(self.partitions)) as u32;
            self.serial += 1;
            let ask = self.serial;
            let hops = 0;
            self.asks.insert(ask, Going { partition, hops });
            self.step(node, |machine, now, effects| {
                machine.asked(ask, partition, None, now, effects);
            });
        }
    }

    fn turn(&mut self, node: usize, life: u64, turn: Turn) {
        match turn {
            // What is on its way arrives, whatever becomes of the sender.
            Turn::AtEtcd(id, request) => {
                let outcome = self.etcd.call(&request, local(self.now));
                let turn = Turn::FromEtcd(id, outcome);
                return self.at(node, life, 5 * MILLI, turn);
            }
            Turn::KeepAtEtcd(stream, lease) => {
                let ttl = self.etcd.keep_alive(lease, local(self.now));
                let turn = Turn::KeepFromEtcd(stream, ttl);
                return self.at(node, life, MILLI, turn);
            }
            _ => (),
        }
        if self.nodes[node].life != life {
            return;
        }
        match turn {
            Turn::Begin => self.begin(node),
            Turn::Wake => {
                self.nodes[node].wake_at = None;
                self.step(node, Machine::advance);
            }
            Turn::FromEtcd(id, outcome) => self.step(node, |machine, now, effects| {
                machine.stored(id, outcome, now, effects);
            }),
            Turn::KeepFromEtcd(stream, ttl) => self.step(node, |machine, now, effects| {
                machine.kept(stream, ttl, now, effects);
            }),
            Turn::Poll(watch) => self.poll(node, watch),
            Turn::Seen(watch, seen) => {
                for (revision, changes) in seen {
                    self.step(node, |machine, now, effects| {
                        machine.seen(watch, revision, &changes, now, effects);
                    });
                }
            }
            Turn::Loaded(partition, epoch) => self.step(node, |machine, now, effects| {
                machine.loaded(partition, epoch, now, effects);
            }),
            Turn::Closed(partition, epoch) => self.step(node, |machine, now, effects| {
                machine.closed(partition, epoch, now, effects);
            }),
            Turn::Snapshotted(partition, epoch) => self.step(node, |machine, now, effects| {
                machine.snapshot_begun(partition, epoch, now, effects);
                machine.snapshotted(partition, epoch, vec![b"all".to_vec()], now, effects);
            }),
            Turn::Heard(from, message) => self.step(node, |machine, now, effects| {
                machine.heard(&from, &message, now, effects);
            }),
            Turn::Reported(from, message) => self.step(node, |machine, now, effects| {
                machine.row_heard(&from, LINK, message, now, effects);
            }),
            Turn::AskedByPeer {
                ask,
                partition,
                epoch,
            } => self.step(node, |machine, now, effects| {
                machine.asked_by_peer(ask, partition, epoch, now, effects);
            }),
            Turn::AtEtcd(..) | Turn::KeepAtEtcd(..) => (),
        }
    }

    fn begin(&mut self, node: usize) {
        let mut options = Options::new("sim", &self.nodes[node].name);
        options.partitions = self.partitions;
        let seed = self.rng.draw();
        self.nodes[node].machine = Some(Cluster::new(options, seed));
        self.step(node, |machine, now, effects| {
            machine.began(Vec::new(), 0, now, effects);
        });
    }

    /// Give a machine an input, and carry out what it wants.
    fn step(&mut self, node: usize, input: impl FnOnce(&mut Cluster, Instant, &mut Vec<Effect>)) {
        let now = local(self.now);
        let Some(machine) = &mut self.nodes[node].machine else {
            return;
        };
        let mut effects = Vec::new();
        input(machine, now, &mut effects);
        for effect in effects {
            self.perform(node, effect);
        }
        let member = &mut self.nodes[node];
        let deadline = member.machine.as_ref().and_then(Machine::deadline);
        if let Some(deadline) = deadline {
            let at = deadline.as_nanos().div_ceil(1_000).max(self.now + 1);
            if member.wake_at.is_none_or(|wake_at| at < wake_at) {
                member.wake_at = Some(at);
                self.after(node, at - self.now, Turn::Wake);
            }
        }
    }

    fn perform(&mut self, node: usize, effect: Effect) {
        match effect {
            Effect::Store { id, request } => {
                self.after(node, 5 * MILLI, Turn::AtEtcd(id, request));
            }
            Effect::KeepAlive { stream, lease } => {
                self.after(node, MILLI, Turn::KeepAtEtcd(stream, lease));
            }
            Effect::Watch { watch, from } => {
                self.nodes[node].watch = Some((watch, from));
                self.after(node, 0, Turn::Poll(watch));
            }
            Effect::Joined { node: me } => self.link(node, &me),
            Effect::Load {
                partition, epoch, ..
            } => self.after(node, 20 * MILLI, Turn::Loaded(partition, epoch)),
            Effect::Close { partition, epoch } => {
                self.after(node, MILLI, Turn::Closed(partition, epoch));
            }
            Effect::Snapshot { partition, epoch } => {
                self.after(node, MILLI, Turn::Snapshotted(partition, epoch));
            }
            Effect::Begin { partition, .. } => self.serves(node, partition),
            Effect::Send { to, message } => {
                if let Some(from) = self.incarnation(node)
                    && let Some(to) = self.node(&to)
                {
                    self.after(to, MILLI, Turn::Heard(from, message));
                }
            }
            Effect::Report {
                partition,
                epoch,
                owner,
            } => {
                let message = RowMessage::Report {
                    partition,
                    epoch,
                    rows: Vec::new(),
                };
                if let Some(from) = self.incarnation(node)
                    && let Some(to) = self.node(&owner)
                {
                    self.after(to, 2 * MILLI, Turn::Reported(from, message));
                }
            }
            Effect::Route { ask, to } => self.routed(node, ask, to),
            Effect::Drained => {
                self.step(node, |machine, now, effects| machine.stop(now, effects));
                self.kill(node);
            }
            Effect::Resign(why) => panic!("n{node} resigns: {why:?}"),
            _ => (),
        }
    }

    /// G1: no two nodes serve a partition.
    fn serves(&mut self, node: usize, partition: u32) {
        let now = local(self.now);
        if let Some(other) = self.began[partition as usize].filter(|other| *other != node) {
            let machine = self.nodes[other].machine.as_ref();
            let served = machine.and_then(|it| it.serves(partition, now));
            assert_eq!(served, None, "G1: n{node} and n{other} serve {partition}");
        }
        self.began[partition as usize] = Some(node);
        self.begun += 1;
    }

    /// A node that joined has a link to each other.
    fn link(&mut self, node: usize, me: &Incarnation) {
        let others: Vec<_> = self
            .live()
            .filter(|(other, _)| *other != node)
            .filter_map(|(other, it)| Some((other, it.incarnation()?.clone())))
            .collect();
        for (other, theirs) in others {
            self.step(node, |machine, now, effects| {
                machine.linked(theirs, LINK, now, effects);
            });
            let me = me.clone();
            self.step(other, |machine, now, effects| {
                machine.linked(me, LINK, now, effects);
            });
        }
    }

    /// The watch shows a node what it has not shown yet.
    fn poll(&mut self, node: usize, watch: u64) {
        let member = &self.nodes[node];
        let Some((_, from)) = member.watch.filter(|it| it.0 == watch) else {
            return;
        };
        let revision = self.etcd.revision();
        let mut seen = Vec::new();
        if revision > from {
            let range = self.keys().watched();
            let changes = self.etcd.changes(from + 1, &[range]);
            seen = changes.expect("nothing is compacted");
        }
        if seen.last().is_none_or(|(last, _)| *last < revision) {
            seen.push((revision, Vec::new()));
        }
        self.nodes[node].watch = Some((watch, revision));
        self.after(node, 2 * MILLI, Turn::Seen(watch, seen));
        let again = 20 * MILLI + self.rng.below(60 * MILLI);
        self.after(node, again, Turn::Poll(watch));
    }

    fn routed(&mut self, node: usize, ask: u64, to: AskRoute) {
        let Some(mut going) = self.asks.remove(&ask) else {
            return;
        };
        match to {
            AskRoute::Here { .. } => self.hops[going.hops.min(2)] += 1,
            AskRoute::Hop { to, epoch } => {
                let partition = going.partition;
                going.hops += 1;
                self.asks.insert(ask, going);
                let turn = Turn::AskedByPeer {
                    ask,
                    partition,
                    epoch,
                };
                match self.node(&to) {
                    Some(to) => self.after(to, MILLI, turn),
                    None => self.down += 1,
                }
            }
            AskRoute::NotMine { .. } if going.hops < 2 => {
                let partition = going.partition;
                self.asks.insert(ask, going);
                self.step(node, |machine, now, effects| {
                    machine.asked(ask, partition, None, now, effects);
                });
            }
            AskRoute::NotMine { .. } | AskRoute::Down(_) => self.down += 1,
        }
    }

    fn incarnation(&self, node: usize) -> Option<Incarnation> {
        self.nodes[node].machine.as_ref()?.incarnation().cloned()
    }

    /// The place of a node that runs. Names have their number.
    fn node(&self, of: &Incarnation) -> Option<usize> {
        let node = of.name[1..].parse().expect("a name has a number");
        (self.incarnation(node)? == *of).then_some(node)
    }

    fn after(&mut self, node: usize, delay: u64, turn: Turn) {
        let life = self.nodes[node].life;
        self.at(node, life, delay, turn);
    }

    fn at(&mut self, node: usize, life: u64, delay: u64, turn: Turn) {
        self.serial += 1;
        self.turns.insert(self.serial, turn);
        let at = self.now + delay;
        self.queue.push(Reverse((at, self.serial, node, life)));
    }
}

/// All pairs have one link.
const LINK: u64 = 1;

const fn local(now: u64) -> Instant {
    Instant::from_nanos(now * 1_000)
}
