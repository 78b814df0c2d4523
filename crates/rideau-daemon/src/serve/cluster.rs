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
    ClusterNode, LINK_VERSIONS, LinkEvent, LinkMessage, LinkOptions, LinkSecret, NodeAbout,
    NodeError, NodeEvents, NodeOptions, NodeTable, PeerAnswer, PeerAsk, PeerLinks, PeerSender,
    ServeAsks, ServedAnswer,
};
use rideau_config::{ClusterConfig, Config, Listen};
use rideau_core::cluster::{AskRoute, Certainty, Digest, Incarnation, Partitions, PeerMessage};
use rideau_process::panics;
use rideau_resp::{RequestLimits, RequestParser};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::values::{ValueAsks, tickets};
use crate::redis::client::SentCommand;
use crate::redis::commands::NOT_MINE;
use crate::redis::remote::{self, RemoteCommand};
use crate::state::cluster::{Cluster, verbs};
use crate::state::daemon::Daemon;
use crate::state::values::{self, RangeNumbers};

/// How often other nodes are told what is free here, if that has changed.
const DIGEST: Duration = Duration::from_millis(50);

/// A node that was opened, and where other nodes will reach it.
pub(super) struct Joining {
    /// The cluster.
    pub(super) cluster: Arc<Cluster>,
    listener: TcpListener,
    secret: LinkSecret,
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
        })
    }

    /// Join the cluster, in the background. What ends the node is told.
    pub(super) fn begin(self, daemon: &Arc<Daemon>) -> watch::Receiver<Option<String>> {
        let Self {
            cluster,
            listener,
            secret,
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

    fn resigned(&self, error: &NodeError) {
        self.resigned.send_replace(Some(error.to_string()));
    }
}

/// Keeps links to all nodes that live: those of this life of the node.
struct LinkKeeper {
    daemon: Arc<Daemon>,
    cluster: Arc<Cluster>,
    listener: TcpListener,
    secret: LinkSecret,
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
        for node in &self.cluster.node.table().links {
            self.cluster.node.unlinked(node.clone());
        }
        self.me.clone_from(&me);
        let Some(me) = me else {
            return Ok(());
        };
        let made = self.cluster.node.made();
        let options = LinkOptions {
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
                cluster.digests.write().forget(&node);
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
    let LinkMessage::Digest { range, bytes, .. } = message else {
        return;
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

/// Executes commands of other nodes.
struct AskServer {
    daemon: Arc<Daemon>,
    cluster: Arc<Cluster>,
}

impl ServeAsks for AskServer {
    fn serve(&self, from: &Incarnation, _id: u64, ask: PeerAsk) -> ServedAnswer {
        let (daemon, cluster) = (Arc::clone(&self.daemon), Arc::clone(&self.cluster));
        let from = from.clone();
        let asks = ValueAsks {
            daemon: Arc::clone(&daemon),
            cluster: Arc::clone(&cluster),
        };
        Box::pin(async move {
            // Whether it is the owner that matters the node itself decides for these.
            let is_verb = verbs::is_verb(&ask.command);
            let is_hop = u64::from(ask.hop > 0);
            if is_verb && !is_about_owner(&ask.command) {
                cluster.counts.hops_in.fetch_add(is_hop, Ordering::Relaxed);
                return asks.answer(ask).await;
            }
            let route = cluster.node.route_for_peer(ask.partition, ask.epoch).await;
            if !matches!(route, AskRoute::Here { .. }) {
                let reply = [NOT_MINE, b" the partition has another owner.\r\n"].concat();
                return PeerAnswer { row: None, reply };
            }
            cluster.counts.hops_in.fetch_add(is_hop, Ordering::Relaxed);
            if is_verb {
                return asks.answer(ask).await;
            }
            // A node that looks for a value asks the next one if this has none.
            let is_reserve = is_reserve(&ask.command);
            let command = RemoteCommand {
                user: Some(ask.user.into_boxed_str()).filter(|user| !user.is_empty()),
                protocol: ask.protocol,
                bytes: ask.command,
                sent: SentCommand {
                    hops: ask.hop,
                    ..SentCommand::default()
                },
                may_wait: !is_reserve || ask.wait.is_none_or(|wait| !wait.is_zero()),
            };
            let reply = remote::execute(&daemon, &from, command).await;
            let row = is_reserve.then(|| tickets(&reply)).flatten();
            PeerAnswer { row, reply }
        })
    }

    fn undo(&self, _from: &Incarnation, row: Vec<u8>) {
        for ticket in row.split(|byte| *byte == b' ') {
            if let Some((value, fence)) = self.daemon.values.read_ticket(ticket) {
                // It may be given back already.
                let released = self.daemon.values.ranges.release(value, Some(fence));
                if released.into_parts().0.is_err() {
                    let asks = ValueAsks {
                        daemon: Arc::clone(&self.daemon),
                        cluster: Arc::clone(&self.cluster),
                    };
                    tokio::spawn(asks.give_back_elsewhere(value, ticket.to_vec()));
                }
            }
        }
    }

    fn unclaimed(&self, _from: &Incarnation, _answer: PeerAnswer) {
        // As where an answer is lost on its way to the client: what it took is held until
        // its time is up.
    }
}

/// Is it for the owner of a partition, and for no other node?
fn is_about_owner(command: &[u8]) -> bool {
    let words = verbs::read(command).unwrap_or_default();
    let owners = [verbs::KEYED, verbs::BY, verbs::LINE];
    let name = words.first().map_or(&b""[..], Vec::as_slice);
    owners.iter().any(|verb| verb.as_bytes() == name)
}

fn is_reserve(command: &[u8]) -> bool {
    let mut parser = RequestParser::default();
    let read = parser.next(command, &mut 0, &RequestLimits::default());
    let request = read.ok().flatten();
    request.is_some_and(|request| request.name().eq_ignore_ascii_case(b"RESERVE"))
}
