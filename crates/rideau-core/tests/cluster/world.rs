//! All nodes, etcd, links and clients, in one thread and by virtual time. Everything
//! follows from a seed.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::time::Duration;

use rideau_core::cluster::{
    Cluster, ClusterKeys, Incarnation, KeyChange, Options, StoreOutcome, StoreRequest,
};
use rideau_core::{Instant, Rng};
use rideau_testing::etcd_model::EtcdModel;

use crate::bugs::Bug;
use crate::clients::Client;
use crate::faults::Faults;
use crate::hello::VERSIONS;
use crate::holders::{HolderNews, LockClient, Release};
use crate::host::{Ask, Host, Reply};
use crate::leases::LeaseOracle;
use crate::network::{Carried, PeerPair};
use crate::oracle::Oracle;
use crate::unique::KeyMessage;

pub(crate) const MILLI: u64 = 1_000;
pub(crate) const SECOND: u64 = 1_000_000;
pub(crate) const LEASE: Duration = Duration::from_secs(2);
/// A request to etcd has no outcome after this long.
pub(crate) const STORE_WAIT: u64 = 400 * MILLI;
/// An ask that was passed on has no outcome after this long.
pub(crate) const FORWARD_WAIT: u64 = 2 * SECOND;

/// Something that happens to a process, or to the world.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    Wake,
    AtEtcd {
        id: u64,
        request: StoreRequest,
    },
    FromEtcd {
        id: u64,
        outcome: StoreOutcome,
    },
    TimeOut {
        id: u64,
    },
    KeepAtEtcd {
        stream: u64,
        lease: u64,
    },
    KeepFromEtcd {
        stream: u64,
        ttl: Duration,
    },
    Poll {
        watch: u64,
    },
    Seen {
        watch: u64,
        seen: Vec<(u64, Vec<KeyChange>)>,
    },
    Compacted {
        watch: u64,
    },
    Linked {
        with: usize,
        me: Incarnation,
        node: Incarnation,
        link: u64,
    },
    Unlinked {
        with: usize,
        link: u64,
    },
    Heard {
        from: Incarnation,
        link: u64,
        message: Carried,
    },
    LockAsk {
        conn: u64,
        ticket: u64,
        partition: u32,
        what: Vec<u8>,
    },
    LockRelease {
        conn: u64,
        ticket: u64,
    },
    LockSure {
        conn: u64,
        sent: u64,
    },
    LockClose {
        conn: u64,
    },
    /// Rows of holders that the node has ended are due.
    RowsDue,
    ReleaseHere {
        release: Release,
    },
    ReleaseForwarded {
        by: Incarnation,
        release: Release,
        epoch: u64,
    },
    AskHere {
        ask: Ask,
    },
    AskForwarded {
        ask: Ask,
        epoch: u64,
    },
    ForwardTimeOut {
        ask: Ask,
    },
    /// An ask for a key, or what it needs to know, has taken too long.
    KeyTimeOut {
        id: u64,
    },
    /// An ask for a key goes to the owner of a value; this node, if it is to no other.
    KeySend {
        to: Option<Incarnation>,
        message: KeyMessage,
    },
    /// The process looks at the text that all nodes share.
    ConfigLook,
    /// What was decided reaches the machine.
    Commit,
    /// One piece of a snapshot is made.
    SnapshotPiece {
        partition: u32,
        epoch: u64,
        piece: u64,
    },
    WriteReply {
        reply: Reply,
    },
    ReplyForwarded {
        reply: Reply,
    },
}

/// What happens next: to one process of a host, or to none.
#[derive(Clone, Debug)]
pub(crate) enum Happening {
    Process {
        host: usize,
        life: u64,
        event: Event,
    },
    Client {
        client: usize,
    },
    Told {
        reply: Reply,
    },
    Holder {
        client: usize,
        turn: u64,
    },
    HolderTold {
        client: usize,
        conn: u64,
        news: HolderNews,
    },
    ReleasedElsewhere {
        release: Release,
    },
    EtcdTick,
    Links,
    Fault,
    Start {
        host: usize,
    },
    /// A machine whose clock stood still wakes up.
    Waken {
        host: usize,
    },
    /// The operator starts a process anew, as it should be.
    Mend {
        host: usize,
    },
    EtcdResumed,
    EtcdElected,
}

struct Queued {
    at: u64,
    serial: u64,
    what: Box<Happening>,
}

pub(crate) struct World {
    pub(crate) rng: Rng,
    pub(crate) now: u64,
    pub(crate) etcd: EtcdModel,
    pub(crate) etcd_rate: u64,
    pub(crate) etcd_paused: u64,
    pub(crate) etcd_down: u64,
    pub(crate) hosts: Vec<Host>,
    pub(crate) clients: Vec<Client>,
    pub(crate) oracle: Oracle,
    /// Clients that hold locks.
    pub(crate) holders: Vec<LockClient>,
    pub(crate) leases: LeaseOracle,
    /// When the last message of a connection arrives.
    pub(crate) sent: BTreeMap<u64, u64>,
    pub(crate) pairs: BTreeMap<(usize, usize), PeerPair>,
    pub(crate) faults: Faults,
    pub(crate) bug: Option<Bug>,
    /// Clocks run so differently that what rests on them may break: only what is written
    /// is checked.
    pub(crate) wild: bool,
    /// Between these two hosts nothing comes through until then, in this direction.
    pub(crate) cuts: BTreeMap<(usize, usize), u64>,
    pub(crate) next_ask: u64,
    pub(crate) served: u64,
    pub(crate) steps: u64,
    trace: Option<VecDeque<String>>,
    trace_max: usize,
    queue: BinaryHeap<Reverse<Queued>>,
    serial: u64,
}

impl World {
    pub(crate) fn new(seed: u64, bug: Option<Bug>, traced: bool) -> Self {
        let mut rng = Rng::new(seed);
        let faults = Faults::new(&mut rng);
        let steps = std::env::var("RIDEAU_STEPS");
        let mut world = Self {
            now: SECOND,
            etcd: EtcdModel::default(),
            etcd_rate: 900 + rng.below(201),
            etcd_paused: 0,
            etcd_down: 0,
            hosts: Vec::new(),
            clients: Vec::new(),
            oracle: Oracle::new(ClusterKeys::new("sim"), PARTITIONS),
            holders: Vec::new(),
            leases: LeaseOracle::default(),
            sent: BTreeMap::new(),
            pairs: BTreeMap::new(),
            faults,
            bug,
            wild: false,
            cuts: BTreeMap::new(),
            next_ask: 1,
            served: 0,
            steps: 0,
            trace: traced.then(VecDeque::new),
            trace_max: steps.ok().map_or(400, |steps| steps.parse().unwrap()),
            queue: BinaryHeap::new(),
            serial: 0,
            rng,
        };
        for _ in 0..3 + world.rng.below(3) {
            world.add_host();
        }
        for client in 0..4 {
            world.clients.push(Client::default());
            world.after(SECOND, Happening::Client { client });
        }
        for client in 0..HOLDERS {
            let rate = 900 + world.rng.below(201);
            world.holders.push(LockClient::new(rate));
            world.next_turn(client, SECOND);
        }
        world.after(0, Happening::EtcdTick);
        world.after(0, Happening::Links);
        world.after(2 * SECOND, Happening::Fault);
        world
    }

    /// A machine that starts its process soon.
    pub(crate) fn add_host(&mut self) {
        let host = self.hosts.len();
        let wall = 1_790_000_000 * SECOND + self.rng.below(120 * SECOND);
        self.hosts.push(Host {
            name: format!("n{host}"),
            rate: 900 + self.rng.below(201),
            lag: 0,
            frozen: None,
            wall,
            life: 0,
            process: None,
            paused_until: 0,
            formers: Vec::new(),
            cut_to_etcd: 0,
            cut_from_etcd: 0,
            stalled: 0,
            drains: false,
            has_wrong_secret: false,
            versions: VERSIONS,
            stopped: false,
        });
        let delay = self.rng.below(SECOND);
        self.after(delay, Happening::Start { host });
    }

    pub(crate) fn options(&self, host: usize) -> Options {
        let mut options = Options::new("sim", &self.hosts[host].name);
        options.partitions = PARTITIONS;
        options.lease = LEASE;
        options.settle = Duration::from_millis(600);
        options.rank_wait = Duration::from_millis(800);
        options.move_wait = Duration::from_secs(4);
        options.segments_max = 2;
        options.snapshot_after = 16;
        options.log_max = 4_000;
        options.planted = self.bug.and_then(Bug::planted);
        options
    }

    /// Let time pass up to a moment.
    pub(crate) fn run_until(&mut self, until: u64) -> Result<(), String> {
        while self
            .queue
            .peek()
            .is_some_and(|Reverse(next)| next.at <= until)
        {
            let Reverse(next) = self.queue.pop().expect("it was seen");
            self.now = self.now.max(next.at);
            self.steps += 1;
            self.happen(*next.what)?;
        }
        self.now = until;
        Ok(())
    }

    fn happen(&mut self, what: Happening) -> Result<(), String> {
        match what {
            Happening::Process { host, life, event } => {
                let it = &self.hosts[host];
                if is_at_etcd(&event) {
                    // What is on its way arrives, whatever becomes of the sender.
                    return self.at_etcd(host, life, event);
                }
                if it.life != life || it.process.is_none() {
                    return Ok(());
                }
                if it.paused_until > self.now {
                    let at = it.paused_until;
                    self.at(at, Happening::Process { host, life, event });
                } else {
                    self.trace(|| format!("n{host} {event:?}"));
                    self.process(host, event)?;
                    self.check_served(host)?;
                }
                Ok(())
            }
            Happening::Client { client } => self.client_turn(client),
            Happening::Told { reply } => self.client_told(&reply),
            Happening::Holder { client, turn } => self.holder_turn(client, turn),
            Happening::HolderTold { client, conn, news } => self.holder_told(client, conn, news),
            Happening::ReleasedElsewhere { release } => {
                self.released_elsewhere(&release);
                Ok(())
            }
            Happening::EtcdTick => {
                if self.etcd_is_up() {
                    let local = self.etcd_local();
                    self.etcd.expire(local);
                }
                let delay = 50 * MILLI + self.rng.below(300 * MILLI);
                self.after(delay, Happening::EtcdTick);
                Ok(())
            }
            Happening::Links => self.check_links(),
            Happening::Fault => self.fault(),
            Happening::Start { host } => self.start(host),
            Happening::Mend { host } => {
                self.mend(host);
                Ok(())
            }
            Happening::Waken { host } => {
                let it = &mut self.hosts[host];
                if let Some(frozen) = it.frozen.take() {
                    it.lag += (self.now - frozen) * it.rate;
                }
                Ok(())
            }
            Happening::EtcdResumed => {
                // Leases ran on, and those that are over go first.
                let local = self.etcd_local();
                self.etcd.expire(local);
                Ok(())
            }
            Happening::EtcdElected => {
                let local = self.etcd_local();
                self.etcd.elect(local);
                Ok(())
            }
        }
    }

    /// G1: at no instant do two nodes serve a partition.
    fn check_served(&self, host: usize) -> Result<(), String> {
        if self.wild {
            return Ok(());
        }
        for partition in 0..PARTITIONS {
            if let Some(epoch) = self.serves(host, partition)
                && let Some((other, theirs)) = self.other_server(host, partition)
            {
                return Err(format!(
                    "G1: n{host} serves {partition} in epoch {epoch}, and n{other} in {theirs}"
                ));
            }
        }
        Ok(())
    }

    /// Another node that serves a partition now.
    pub(crate) fn other_server(&self, host: usize, partition: u32) -> Option<(usize, u64)> {
        let others = (0..self.hosts.len()).filter(|other| *other != host);
        others
            .filter_map(|other| Some((other, self.serves(other, partition)?)))
            .next()
    }

    /// The epoch in which a host serves a partition by its own clock.
    pub(crate) fn serves(&self, host: usize, partition: u32) -> Option<u64> {
        let host = &self.hosts[host];
        let process = host.process.as_ref()?;
        process.machine.serves(partition, host.local(self.now))
    }

    /// Whether a host serves the names of a partition by its own clock.
    pub(crate) fn serves_names(&self, host: usize, partition: u32) -> bool {
        let host = &self.hosts[host];
        let process = host.process.as_ref();
        process.is_some_and(|process| {
            let now = host.local(self.now);
            process.machine.serves_names(partition, now).is_some()
        })
    }

    pub(crate) fn machine(&self, host: usize) -> Option<&Cluster> {
        self.hosts[host].process.as_ref().map(|it| &it.machine)
    }

    pub(crate) fn etcd_is_up(&self) -> bool {
        self.etcd_paused <= self.now && self.etcd_down <= self.now
    }

    pub(crate) fn etcd_local(&self) -> Instant {
        Instant::from_nanos(self.now * self.etcd_rate)
    }

    pub(crate) fn is_cut(&self, from: usize, to: usize) -> bool {
        self.cuts
            .get(&(from, to))
            .is_some_and(|until| *until > self.now)
    }

    pub(crate) fn chance(&mut self, per_mille: u64) -> bool {
        self.rng.below(1_000) < per_mille
    }

    pub(crate) fn after(&mut self, delay: u64, what: Happening) {
        self.at(self.now + delay, what);
    }

    pub(crate) fn at(&mut self, at: u64, what: Happening) {
        self.serial += 1;
        let serial = self.serial;
        let what = Box::new(what);
        self.queue.push(Reverse(Queued { at, serial, what }));
    }

    /// Something for the process that a host has now.
    pub(crate) fn for_process(&mut self, host: usize, delay: u64, event: Event) {
        let life = self.hosts[host].life;
        self.after(delay, Happening::Process { host, life, event });
    }

    pub(crate) fn trace(&mut self, line: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            if trace.len() == self.trace_max {
                trace.pop_front();
            }
            trace.push_back(format!("{:>10} {}", self.now, line()));
        }
    }

    pub(crate) fn traced(&self) -> impl Iterator<Item = &String> {
        self.trace.iter().flatten()
    }
}

/// How many clients hold locks.
const HOLDERS: usize = 8;
/// How many partitions there are.
pub(crate) const PARTITIONS: u32 = 4;

const fn is_at_etcd(event: &Event) -> bool {
    matches!(
        event,
        Event::AtEtcd { .. } | Event::KeepAtEtcd { .. } | Event::Poll { .. }
    )
}

impl PartialEq for Queued {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.serial) == (other.at, other.serial)
    }
}

impl Eq for Queued {}

impl PartialOrd for Queued {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Queued {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.serial).cmp(&(other.at, other.serial))
    }
}
