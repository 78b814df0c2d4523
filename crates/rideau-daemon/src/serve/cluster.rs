//! This server as a node of a cluster: it joins, links to the other nodes, and leaves.

mod asks;
mod offline;
mod shared;
mod straight;
mod watching;

use std::io;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use std::{fs, future, str};

use rideau::store::etcd::{EtcdLogin, EtcdOptions, EtcdTls};
use rideau_cluster::{
    ClusterNode, LINK_VERSIONS, LinkEvent, LinkMessage, LinkOptions, LinkSecret, MoveKind,
    MovedPartitions, NameEvent, NodeAbout, NodeError, NodeEvents, NodeOptions, NodeTable,
    PeerLinks, PeerSender, PeerTls, ReportParts, ReportTooLong, STORED_FORMAT, ServeAsks,
    read_report,
};
use rideau_config::{ClusterConfig, Config, Listen};
use rideau_core::cluster::{Certainty, Digest, Incarnation, Partitions, PeerMessage, RowMessage};
use rideau_process::panics;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

pub use self::offline::{accept_restored, move_to_etcd};
pub(super) use self::shared::StartConfig;
pub(super) use self::straight::StraightListeners;
use super::unheard::unheard;
use crate::net::tls;
use crate::state::cluster::{Cluster, KnownConfig, read_left};
use crate::state::daemon::Daemon;
use crate::state::ticket;
use crate::state::values::{self, RangeNumbers};
use asks::AskServer;
use straight::announced;
use watching::tell_values;

/// How often other nodes are told what is free here, if that has changed.
const DIGEST: Duration = Duration::from_millis(50);

/// Reports of other nodes that are not all there have this many bytes together.
const REPORTS_MAX: usize = 256 << 20;

/// A node that was opened, and where other nodes will reach it.
pub(super) struct Joining {
    /// The cluster.
    pub(super) cluster: Arc<Cluster>,
    /// Where clients of Redis Cluster come, until it is served.
    pub(super) straight: StraightListeners,
    listener: TcpListener,
    secret: LinkSecret,
    tls: Option<PeerTls>,
}

impl Joining {
    /// Listen for other nodes, and read from etcd what the cluster was made with.
    ///
    /// # Errors
    ///
    /// If it cannot listen, a file cannot be read, or the node does not fit the cluster.
    pub(super) async fn open(
        config: &Config,
        cluster: &ClusterConfig,
        text: &str,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(cluster.listen)
            .map_err(|error| unheard(cluster.listen, "cluster.listen", &error))?;
        let secret = fs::read(&cluster.secret_file)
            .map_err(|error| unread("cluster.secret_file", &cluster.secret_file, &error))?;
        let secret = LinkSecret::new(&secret).map_err(|bad| {
            io::Error::other(format!(
                "cluster.secret_file {}: {bad}",
                cluster.secret_file.display()
            ))
        })?;
        let tls = peer_tls(cluster)?;
        let straight = StraightListeners::bind(cluster)?;
        let peer_port = listener.local_addr()?.port();
        let options = NodeOptions {
            config: shared::of_file(config, text)?,
            ..node_options(config, cluster, peer_port, &straight)?
        };
        tracing::info!(
            cluster = cluster.name,
            node = options.name,
            "waiting for etcd at {}",
            options.etcd.endpoints.join(", ")
        );
        let node = ClusterNode::open(options).await.map_err(io::Error::other)?;
        Ok(Self {
            cluster: Arc::new(Cluster::new(node)),
            straight,
            listener,
            secret,
            tls,
        })
    }

    /// Join the cluster, in the background. What ends the node is told.
    pub(super) fn begin(self, daemon: &Arc<Daemon>) -> watch::Receiver<Option<String>> {
        let Self {
            cluster,
            listener,
            secret,
            tls,
            straight: _,
        } = self;
        let (changed, table) = watch::channel(None);
        let (resigned, why) = watch::channel(None);
        let (certainties, certainty) = mpsc::unbounded_channel();
        tokio::spawn(tell_holders(Arc::clone(daemon), certainty));
        let events = Arc::new(ClusterEvents {
            daemon: Arc::clone(daemon),
            cluster: Arc::clone(&cluster),
            certainties,
            changed,
            resigned,
        });
        let host = daemon.values.host().expect("a node of a cluster has one");
        let peers = Arc::new(Peers(Arc::clone(&cluster)));
        cluster.node.start(host, events, peers);
        let links = LinkKeeper {
            daemon: Arc::clone(daemon),
            cluster: Arc::clone(&cluster),
            listener,
            secret,
            tls,
            me: None,
            told: None,
        };
        tokio::spawn(links.keep(table));
        let due = Arc::clone(&cluster);
        tokio::spawn(async move {
            panics::keep("leases that were taken back", || end_due(Arc::clone(&due))).await;
        });
        let reporting = Arc::clone(&cluster);
        tokio::spawn(async move {
            panics::keep("reports that owners have not heard", || {
                let cluster = Arc::clone(&reporting);
                async move { cluster.keep_reports().await }
            })
            .await;
        });
        shared::begin(Arc::clone(daemon), Arc::clone(&cluster));
        let (told_daemon, told_cluster) = (Arc::clone(daemon), Arc::clone(&cluster));
        tokio::spawn(async move {
            panics::keep("what happens to values of this node", || {
                tell_values(Arc::clone(&told_daemon), Arc::clone(&told_cluster))
            })
            .await;
        });
        let daemon = Arc::clone(daemon);
        tokio::spawn(async move {
            panics::keep("what is free on this node", || {
                tell_free(Arc::clone(&daemon), Arc::clone(&cluster))
            })
            .await;
        });
        why
    }
}

/// Wait until the node has to leave the cluster for good. Says why.
pub(super) async fn resigned(why: Option<watch::Receiver<Option<String>>>) -> String {
    if let Some(mut why) = why
        && let Ok(why) = why.wait_for(Option::is_some).await
    {
        return why.clone().unwrap_or_default();
    }
    future::pending().await
}

/// The TLS config between nodes, if they use TLS.
fn peer_tls(cluster: &ClusterConfig) -> io::Result<Option<PeerTls>> {
    let (Some(ca), Some(cert), Some(key)) = (&cluster.ca, &cluster.cert, &cluster.key) else {
        return Ok(None);
    };
    let bad = |key: &str, error: &dyn std::fmt::Display| {
        io::Error::other(format!("cluster.{key}: {error}"))
    };
    let authorities = tls::certificates(ca).map_err(|error| bad("ca", &error))?;
    let certificate = tls::certificates(cert).map_err(|error| bad("cert", &error))?;
    let private = tls::key(key).map_err(|error| bad("key", &error))?;
    let made = PeerTls::new(authorities, certificate, private);
    made.map(Some).map_err(|error| bad("cert", &error))
}

/// The options of the node.
fn node_options(
    config: &Config,
    cluster: &ClusterConfig,
    peer_port: u16,
    straight: &StraightListeners,
) -> io::Result<NodeOptions> {
    let name = match &cluster.node {
        Some(name) => name.clone(),
        None => host_name()?,
    };
    let folder = values::folder(config).join("cluster");
    let host = cluster.announce.as_deref();
    let at = |port| announced(host, cluster.listen.ip(), port);
    let [straight, straight_tls] = straight.announced(host)?;
    let tcp = config.server.listen.iter().find_map(|listen| match listen {
        Listen::Tcp(address) => Some(address.port()),
        Listen::Unix(_) => None,
    });
    let partitions = Partitions::new(cluster.partitions, 0).map_err(io::Error::other)?;
    let usual = NodeOptions::new(&cluster.name, &name, folder, etcd_options(cluster)?);
    Ok(NodeOptions {
        about: NodeAbout {
            peers: at(peer_port),
            clients: tcp.map(at).unwrap_or_default(),
            straight,
            straight_tls,
            zone: String::new(),
            release: env!("CARGO_PKG_VERSION").into(),
            versions: LINK_VERSIONS,
            tickets: ticket::this_start(),
            format: STORED_FORMAT,
        },
        weight: cluster.weight,
        partitions,
        lease: cluster.lease,
        patience: cluster.patience,
        rest: cluster.rest,
        room_quota: cluster.etcd_quota,
        ..usual
    })
}

fn etcd_options(cluster: &ClusterConfig) -> io::Result<EtcdOptions> {
    let urls = cluster.etcd.iter().map(|url| url.as_str());
    let mut options = EtcdOptions::plain(urls);
    let read = |key: &str, path: &Path| fs::read(path).map_err(|error| unread(key, path, &error));
    if let (Some(user), Some(file)) = (&cluster.etcd_user, &cluster.etcd_password_file) {
        let password = read("cluster.etcd_password_file", file)?;
        let password = String::from_utf8(password).map_err(io::Error::other)?;
        options.login = Some(EtcdLogin {
            user: user.clone(),
            password: password.trim_end().into(),
        });
    }
    if let Some(ca) = &cluster.etcd_ca {
        let identity = match (&cluster.etcd_cert, &cluster.etcd_key) {
            (Some(cert), Some(key)) => Some((
                read("cluster.etcd_cert", cert)?,
                read("cluster.etcd_key", key)?,
            )),
            _ => None,
        };
        options.tls = Some(EtcdTls {
            authority: read("cluster.etcd_ca", ca)?,
            identity,
            server_name: None,
        });
    }
    Ok(options)
}

fn host_name() -> io::Result<String> {
    let name = rustix::system::uname();
    let name = name.nodename().to_str().map_err(io::Error::other)?;
    Ok(name.to_owned())
}

fn unread(key: &str, path: &Path, error: &io::Error) -> io::Error {
    let text = format!("{key}: {} cannot be read: {error}", path.display());
    io::Error::new(error.kind(), text)
}

/// Carries messages of the node to other nodes.
struct Peers(Arc<Cluster>);

impl PeerSender for Peers {
    fn send(&self, to: &Incarnation, message: PeerMessage) {
        self.0.tell(to, message);
    }
}

/// Hears what the node says.
struct ClusterEvents {
    daemon: Arc<Daemon>,
    cluster: Arc<Cluster>,
    certainties: mpsc::UnboundedSender<(Certainty, u64)>,
    changed: watch::Sender<Option<Arc<NodeTable>>>,
    resigned: watch::Sender<Option<String>>,
}

impl NodeEvents for ClusterEvents {
    fn certainty_changed(&self, certainty: Certainty) {
        // A node that leaves ends its lease itself.
        if self.daemon.is_draining() {
            return;
        }
        let up_to = match certainty {
            Certainty::Lost => self.cluster.end_life(),
            Certainty::Sure | Certainty::Unsure => u64::MAX,
        };
        // Every lease is looked at, and this thread keeps that of the node.
        let _ = self.certainties.send((certainty, up_to));
        let text = match certainty {
            Certainty::Sure => "the node is part of the cluster",
            Certainty::Unsure => {
                "etcd has not answered for most of a lease: the node grants nothing until it does"
            }
            Certainty::Lost => "the node has lost its lease, and joins the cluster again",
        };
        match certainty {
            Certainty::Sure => tracing::info!("{text}"),
            Certainty::Unsure | Certainty::Lost => tracing::warn!("{text}"),
        }
        self.daemon.events.add("cluster", "node", text.into(), None);
    }

    fn names_changed(&self, event: NameEvent) {
        if let NameEvent::Gone(node) = &event {
            self.daemon.leave_all_far(node);
        }
        self.cluster.names_changed(event);
    }

    fn table_changed(&self, table: &Arc<NodeTable>) {
        self.changed.send_replace(Some(Arc::clone(table)));
    }

    fn partitions_moved(&self, moved: &MovedPartitions) {
        let text = moved_text(moved);
        self.daemon.events.add("cluster", "partitions", text, None);
    }

    fn resigned(&self, error: &NodeError) {
        self.resigned.send_replace(Some(error.to_string()));
    }
}

/// A sentence about moved partitions.
fn moved_text(moved: &MovedPartitions) -> String {
    let mut numbers = moved.partitions.clone();
    numbers.sort_unstable();
    let numbers: Vec<_> = numbers.iter().map(u32::to_string).collect();
    let (count, numbers) = (numbers.len(), numbers.join(" "));
    let what = match count {
        1 => format!("partition {numbers}"),
        _ => format!("{count} partitions ({numbers})"),
    };
    match (moved.how, moved.node.as_deref()) {
        (MoveKind::TakenOver, Some(node)) => {
            format!("the node takes over {what}, which {node} had")
        }
        (MoveKind::MovedIn, Some(node)) => format!("the node gets {what} from {node}"),
        (MoveKind::MovedOut, Some(node)) => format!("the node has given {what} to {node}"),
        (MoveKind::TakenOver | MoveKind::MovedIn, None) => {
            format!("the node takes {what}, which had no owner")
        }
        (MoveKind::MovedOut, None) => format!("the node no longer has {what}"),
    }
}

/// Keeps links to all nodes that live: those of this life of the node.
struct LinkKeeper {
    daemon: Arc<Daemon>,
    cluster: Arc<Cluster>,
    listener: TcpListener,
    secret: LinkSecret,
    tls: Option<PeerTls>,
    me: Option<Incarnation>,
    /// Carries what the links of this life tell to the node.
    told: Option<JoinHandle<()>>,
}

impl LinkKeeper {
    async fn keep(mut self, mut changed: watch::Receiver<Option<Arc<NodeTable>>>) {
        while changed.changed().await.is_ok() {
            let table = changed.borrow_and_update().clone();
            let Some(table) = table else {
                continue;
            };
            if self.me != table.me
                && let Err(error) = self.begin_life(table.me.clone())
            {
                tracing::error!("this node cannot be reached by others: {error}");
            }
            let nodes = table.owners.nodes().iter().map(|(name, known)| {
                let about = NodeAbout::parse(&known.record.about);
                (Incarnation::new(name, known.fence), about.peers)
            });
            if let Some(links) = &*self.cluster.links.read() {
                links.set_peers(table.owners.revision(), nodes.collect());
            }
        }
    }

    /// A new life of the node has links of its own.
    fn begin_life(&mut self, me: Option<Incarnation>) -> io::Result<()> {
        if let Some(told) = self.told.take() {
            told.abort();
        }
        *self.cluster.links.write() = None;
        *self.cluster.server.write() = None;
        self.cluster.unlinked_all();
        self.daemon.values.watchers.unlinked_all();
        self.me.clone_from(&me);
        let Some(me) = me else {
            return Ok(());
        };
        let made = self.cluster.node.made();
        let options = LinkOptions {
            tls: self.tls.clone(),
            is_private: self.is_plain(),
            ..LinkOptions::new(me, &made.id.to_string(), self.secret.clone())
        };
        let server = Arc::new(AskServer {
            daemon: Arc::clone(&self.daemon),
            cluster: Arc::clone(&self.cluster),
        });
        *self.cluster.server.write() = Some(Arc::clone(&server) as Arc<dyn ServeAsks>);
        let (links, told) = PeerLinks::start(options, self.listener.try_clone()?, server)?;
        *self.cluster.links.write() = Some(links);
        let told = tell_node(Arc::clone(&self.daemon), Arc::clone(&self.cluster), told);
        self.told = Some(tokio::spawn(told));
        Ok(())
    }

    fn is_plain(&self) -> bool {
        let config = self.daemon.config.load();
        config
            .cluster
            .as_ref()
            .is_some_and(|cluster| cluster.is_plain)
    }
}

/// Carry what links tell to the node.
async fn tell_node(
    daemon: Arc<Daemon>,
    cluster: Arc<Cluster>,
    mut told: mpsc::Receiver<LinkEvent>,
) {
    let mut reports = ReportParts::new(REPORTS_MAX);
    while let Some(event) = told.recv().await {
        match event {
            LinkEvent::Linked(node) => {
                daemon.values.watchers.linked(node.clone());
                cluster.linked(node);
            }
            LinkEvent::Unlinked(node) => {
                reports.forget(&node);
                daemon.values.watchers.unlinked(&node);
                cluster.unlinked(node);
            }
            LinkEvent::Message(node, LinkMessage::Row { message, told }) => {
                cluster.row_heard(&node, cluster.link(&node), message, &told);
            }
            LinkEvent::Message(
                node,
                LinkMessage::Report {
                    partition,
                    epoch,
                    chunk,
                    chunks,
                    bytes,
                },
            ) => {
                let place = (chunk, chunks);
                let whole = reports.add(&node, partition, epoch, place, &bytes);
                hear_report(&cluster, &node, (partition, epoch), whole);
            }
            LinkEvent::Message(node, LinkMessage::Peer(message)) => {
                cluster.node.heard(node, message);
            }
            LinkEvent::Message(node, LinkMessage::Ended { id, holder, .. }) => {
                if let Some((at, why)) = read_left(&holder) {
                    daemon.leave_far(&node, at, why);
                }
                if let Some(links) = &*cluster.links.read() {
                    links.heard(&node, id);
                }
            }
            LinkEvent::Message(node, LinkMessage::Config { version, note }) => {
                cluster.config_heard(&node, KnownConfig { version, note });
            }
            LinkEvent::Message(node, message) => hear(&daemon, &cluster, &node, &message),
        }
    }
}

/// A node has reported what is behind it, as far as that has come.
fn hear_report(
    cluster: &Arc<Cluster>,
    node: &Incarnation,
    (partition, epoch): (u32, u64),
    whole: Result<Option<Vec<u8>>, ReportTooLong>,
) {
    let bytes = match whole {
        Ok(Some(bytes)) => bytes,
        Ok(None) => return,
        Err(error) => {
            tracing::error!(%node, partition, %error, "the locks of the partition are not served");
            return;
        }
    };
    let Some(rows) = read_report(&bytes) else {
        tracing::error!(%node, partition, "a report of another node cannot be read");
        return;
    };
    let message = RowMessage::Report {
        partition,
        epoch,
        rows,
    };
    cluster.row_heard(node, cluster.link(node), message, &[]);
}

fn hear(daemon: &Daemon, cluster: &Cluster, node: &Incarnation, message: &LinkMessage) {
    let watchers = &daemon.values.watchers;
    let (range, bytes) = match message {
        LinkMessage::Digest { range, bytes, .. } => (range, bytes),
        LinkMessage::Watches(wants) => return watchers.asked(node.clone(), *wants),
        LinkMessage::Watched { is_first } => return watchers.begun(node, *is_first),
        LinkMessage::Happened(bytes) => return watchers.happened(node, bytes),
        _ => return,
    };
    if let (Ok(range), Some((free, [is_waited, numbers @ ..]))) =
        (str::from_utf8(range), bytes.split_first_chunk())
    {
        let digest = Digest {
            free: u64::from_be_bytes(*free),
            is_waited: *is_waited != 0,
            numbers: numbers.to_vec(),
        };
        cluster.digests.write().set(range, node, digest);
    }
}

/// Tell other nodes what is free here, whenever that has changed, for ever.
async fn tell_free(daemon: Arc<Daemon>, cluster: Arc<Cluster>) {
    let mut ticks = tokio::time::interval(DIGEST);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut last = None;
    loop {
        ticks.tick().await;
        let links = cluster.links.read().clone();
        let linked = cluster.node.table().links.clone();
        let (Some(links), false) = (links, linked.is_empty()) else {
            last = None;
            continue;
        };
        let stats = daemon.values.ranges.all_stats().into_iter();
        let all: Vec<_> = stats
            .map(|stats| {
                let mut bytes = stats.free.to_u64_saturating().to_be_bytes().to_vec();
                bytes.push(cluster.lines.is_waited(&stats.name).into());
                bytes.extend(RangeNumbers::of(&stats).write());
                (stats.name, bytes)
            })
            .collect();
        let now = Some((all, linked));
        if last == now {
            continue;
        }
        last = now;
        let Some((all, linked)) = &last else {
            continue;
        };
        for (range, bytes) in all {
            for node in linked {
                let message = LinkMessage::Digest {
                    partition: 0,
                    range: range.clone().into_bytes(),
                    bytes: bytes.clone(),
                };
                // The next one says the same.
                let _ = links.send(node, message);
            }
        }
    }
}

/// Tell holders how sure this node is of what they have, one word after the other.
async fn tell_holders(
    daemon: Arc<Daemon>,
    mut certainty: mpsc::UnboundedReceiver<(Certainty, u64)>,
) {
    while let Some((certainty, up_to)) = certainty.recv().await {
        let told = Arc::clone(&daemon);
        let _ = tokio::task::spawn_blocking(move || told.tell_certainty(certainty, up_to)).await;
    }
}

/// End leases that this node has taken back, when it does not vouch for them any more.
async fn end_due(cluster: Arc<Cluster>) {
    loop {
        cluster.wait_for_due().await;
        cluster.advance_rows();
    }
}
