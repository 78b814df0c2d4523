//! This server as a node of a cluster: it joins, links to the other nodes, and leaves.

use std::io;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::{fs, future, str};

use rideau::store::etcd::{EtcdLogin, EtcdOptions, EtcdTls};
use rideau_cluster::{
    ClusterNode, LINK_VERSIONS, LinkEvent, LinkMessage, LinkOptions, LinkSecret, MoveKind,
    MovedPartitions, NodeAbout, NodeError, NodeEvents, NodeOptions, NodeTable, PeerAnswer, PeerAsk,
    PeerLinks, PeerSender, PeerTls, ServeAsks, ServedAnswer,
};
use rideau_config::{ClusterConfig, Config, Listen};
use rideau_core::cluster::{AskRoute, Certainty, Incarnation, Partitions, PeerMessage};
use rideau_process::panics;
use rideau_resp::{ReplyLimits, ReplyParser, RequestLimits, RequestParser, Value};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::net::tls;
use crate::redis::commands::NOT_MINE;
use crate::redis::remote::{self, RemoteCommand};
use crate::state::cluster::{Cluster, FreeValues};
use crate::state::daemon::Daemon;
use crate::state::values;

/// How often other nodes are told what is free here, if that has changed.
const DIGEST: Duration = Duration::from_millis(100);

/// A node that was opened, and where other nodes will reach it.
pub(super) struct Joining {
    /// The cluster.
    pub(super) cluster: Arc<Cluster>,
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
    pub(super) async fn open(config: &Config, cluster: &ClusterConfig) -> io::Result<Self> {
        let listener = TcpListener::bind(cluster.listen)
            .map_err(|error| super::unheard(cluster.listen, "cluster.listen", &error))?;
        let secret = fs::read(&cluster.secret_file)
            .map_err(|error| unread("cluster.secret_file", &cluster.secret_file, &error))?;
        let secret = LinkSecret::new(&secret).map_err(|bad| {
            io::Error::other(format!(
                "cluster.secret_file {}: {bad}",
                cluster.secret_file.display()
            ))
        })?;
        let tls = peer_tls(cluster)?;
        let options = node_options(config, cluster, listener.local_addr()?.port())?;
        tracing::info!(
            cluster = cluster.name,
            node = options.name,
            "waiting for etcd at {}",
            options.etcd.endpoints.join(", ")
        );
        let node = ClusterNode::open(options).await.map_err(io::Error::other)?;
        Ok(Self {
            cluster: Arc::new(Cluster::new(node)),
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
        } = self;
        let (changed, table) = watch::channel(None);
        let (resigned, why) = watch::channel(None);
        let events = Arc::new(ClusterEvents {
            daemon: Arc::clone(daemon),
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

/// What the node brings to TLS with other nodes, if it speaks it.
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

/// What the node is told of itself.
fn node_options(config: &Config, cluster: &ClusterConfig, port: u16) -> io::Result<NodeOptions> {
    let name = match &cluster.node {
        Some(name) => name.clone(),
        None => host_name()?,
    };
    let folder = values::folder(config).join("cluster");
    let ip = cluster.listen.ip();
    let announced = cluster.announce.clone().unwrap_or_else(|| ip.to_string());
    let at = |port: u16| match announced.contains(':') {
        true => format!("[{announced}]:{port}"),
        false => format!("{announced}:{port}"),
    };
    let tcp = config.server.listen.iter().find_map(|listen| match listen {
        Listen::Tcp(address) => Some(address.port()),
        Listen::Unix(_) => None,
    });
    let partitions = Partitions::new(cluster.partitions, 0).map_err(io::Error::other)?;
    let usual = NodeOptions::new(&cluster.name, &name, folder, etcd_options(cluster)?);
    Ok(NodeOptions {
        about: NodeAbout {
            peers: at(port),
            clients: tcp.map(at).unwrap_or_default(),
            straight: String::new(),
            zone: String::new(),
            release: env!("CARGO_PKG_VERSION").into(),
            versions: LINK_VERSIONS,
        },
        weight: cluster.weight,
        partitions,
        lease: cluster.lease,
        patience: cluster.patience,
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
    changed: watch::Sender<Option<Arc<NodeTable>>>,
    resigned: watch::Sender<Option<String>>,
}

impl NodeEvents for ClusterEvents {
    fn certainty_changed(&self, certainty: Certainty) {
        // A node that leaves ends its lease itself.
        if self.daemon.is_draining() {
            return;
        }
        let text = match certainty {
            Certainty::Sure => "the node is part of the cluster",
            Certainty::Unsure => {
                "etcd has not answered for most of a lease: the node grants nothing until it does"
            }
            Certainty::Lost => "the node has lost its lease, and joins the cluster anew",
        };
        match certainty {
            Certainty::Sure => tracing::info!("{text}"),
            Certainty::Unsure | Certainty::Lost => tracing::warn!("{text}"),
        }
        self.daemon.events.add("cluster", "node", text.into(), None);
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

/// What happened to partitions, for people.
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
        (MoveKind::MovedOut, None) => format!("the node has {what} no more"),
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
        for node in &self.cluster.node.table().links {
            self.cluster.node.unlinked(node.clone());
        }
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
        let (links, told) = PeerLinks::start(options, self.listener.try_clone()?, server)?;
        *self.cluster.links.write() = Some(links);
        let told = tell_node(Arc::clone(&self.cluster), told);
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
async fn tell_node(cluster: Arc<Cluster>, mut told: mpsc::Receiver<LinkEvent>) {
    while let Some(event) = told.recv().await {
        match event {
            LinkEvent::Linked(node) => cluster.node.linked(node),
            LinkEvent::Unlinked(node) => {
                cluster.forget_free(&node);
                cluster.node.unlinked(node);
            }
            LinkEvent::Message(node, LinkMessage::Peer(message)) => {
                cluster.node.heard(node, message);
            }
            LinkEvent::Message(node, message) => hear(&cluster, &node, &message),
        }
    }
}

fn hear(cluster: &Cluster, node: &Incarnation, message: &LinkMessage) {
    let LinkMessage::Digest {
        partition,
        range,
        bytes,
    } = message
    else {
        return;
    };
    let count = bytes.as_slice().try_into().map(u64::from_be_bytes);
    if let (Ok(range), Ok(count)) = (str::from_utf8(range), count) {
        let free = FreeValues {
            partition: *partition,
            count,
        };
        cluster.set_free(range, node, free);
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
        let partition = cluster.first_served();
        let stats = daemon.values.ranges.all_stats().into_iter();
        let free: Vec<_> = stats
            .map(|stats| (stats.name, stats.free.to_u64_saturating()))
            .collect();
        let now = Some((partition, free, linked));
        if last == now {
            continue;
        }
        last = now;
        let Some((Some(partition), free, linked)) = &last else {
            continue;
        };
        for (range, free) in free {
            for node in linked {
                let message = LinkMessage::Digest {
                    partition: *partition,
                    range: range.clone().into_bytes(),
                    bytes: free.to_be_bytes().into(),
                };
                // The next one says the same.
                let _ = links.send(node, message);
            }
        }
    }
}

/// Executes commands of other nodes.
struct AskServer {
    daemon: Arc<Daemon>,
    cluster: Arc<Cluster>,
}

impl ServeAsks for AskServer {
    fn serve(&self, from: &Incarnation, _id: u64, ask: PeerAsk) -> ServedAnswer {
        let (daemon, cluster) = (Arc::clone(&self.daemon), Arc::clone(&self.cluster));
        let from = from.clone();
        Box::pin(async move {
            let route = cluster.node.route_for_peer(ask.partition, ask.epoch).await;
            if !matches!(route, AskRoute::Here { .. }) {
                let reply = [NOT_MINE, b" the partition has another owner.\r\n"].concat();
                return PeerAnswer { row: None, reply };
            }
            cluster.counts.hops_in.fetch_add(1, Ordering::Relaxed);
            let command = RemoteCommand {
                user: Some(ask.user.into_boxed_str()).filter(|user| !user.is_empty()),
                protocol: ask.protocol,
                bytes: ask.command,
            };
            let is_reserve = is_reserve(&command.bytes);
            let reply = remote::execute(&daemon, &from, command).await;
            let row = is_reserve.then(|| tickets(&reply)).flatten();
            PeerAnswer { row, reply }
        })
    }

    fn undo(&self, _from: &Incarnation, row: Vec<u8>) {
        for ticket in row.split(|byte| *byte == b' ') {
            if let Some((value, fence)) = self.daemon.values.read_ticket(ticket) {
                // It may be given back already.
                let _ = self.daemon.values.ranges.release(value, Some(fence));
            }
        }
    }

    fn unclaimed(&self, _from: &Incarnation, _answer: PeerAnswer) {
        // As where an answer is lost on its way to the client: what it took is held until
        // its time is up.
    }
}

fn is_reserve(command: &[u8]) -> bool {
    let mut parser = RequestParser::default();
    let read = parser.next(command, &mut 0, &RequestLimits::default());
    let request = read.ok().flatten();
    request.is_some_and(|request| request.name().eq_ignore_ascii_case(b"RESERVE"))
}

/// The tickets of values that an answer to RESERVE gives. They are given back if it gets
/// lost.
fn tickets(reply: &[u8]) -> Option<Vec<u8>> {
    let parsed = ReplyParser::default().next(reply, &mut 0, &ReplyLimits::default());
    let mut found = Vec::new();
    let parsed = parsed.ok().flatten()?;
    collect_tickets(&parsed, &mut found);
    let tickets = found.join(&b' ');
    (!tickets.is_empty()).then_some(tickets)
}

fn collect_tickets<'a>(value: &'a Value, found: &mut Vec<&'a [u8]>) {
    match value {
        Value::Bulk(word) if word.starts_with(b"v-") => found.push(word),
        Value::Array(parts) => parts.iter().for_each(|part| collect_tickets(part, found)),
        _ => (),
    }
}
