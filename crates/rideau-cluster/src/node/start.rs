//! How a node comes to run: its folder, etcd, what the cluster was made with, its threads.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use rideau::store::PartitionHost;
use rideau::store::etcd::{EtcdClient, EtcdError, EtcdRefusal};
use rideau_core::cluster::{Cluster, OwnerTable};
use tokio::runtime;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep};

use super::config::{ConfigError, StoredConfig};
use super::config_key::{ConfigKey, is_shared};
use super::driver::Driver;
use super::error::NodeError;
use super::events::{NodeEvents, PeerSender};
use super::folder::{EtcdSeen, NodeFolder};
use super::health::{EtcdHealth, check_seen};
use super::host_thread;
use super::housekeeping::Housekeeping;
use super::input::Input;
use super::meta::{ClusterMeta, MetaError, random};
use super::offline::accepted;
use super::options::NodeOptions;
use super::parts::HeldParts;
use super::room::Room;
use super::serving::ServingTable;
use super::shared::NodeShared;
use super::view::NodeTable;

/// An etcd that does not answer is asked again after this long.
const RETRY: Duration = Duration::from_millis(200);
/// How often a node looks for reports in etcd that it misses.
const REPORTS: Duration = Duration::from_secs(1);
/// And the log says so this often.
const SAID_EACH: Duration = Duration::from_secs(5);

/// The parts of a running node.
pub(super) struct NodeParts {
    pub(super) host: Arc<dyn PartitionHost>,
    pub(super) events: Arc<dyn NodeEvents>,
    pub(super) peers: Arc<dyn PeerSender>,
}

/// A node that is ready to be started.
pub(super) struct Opened {
    pub(super) inbox: mpsc::UnboundedSender<Input>,
    pub(super) shared: Arc<NodeShared>,
    pub(super) meta: ClusterMeta,
    pub(super) start: oneshot::Sender<NodeParts>,
    pub(super) ended: watch::Receiver<()>,
}

/// The parts that the thread has before it starts.
struct Prepared {
    client: EtcdClient,
    folder: NodeFolder,
    meta: ClusterMeta,
    config: Option<Arc<StoredConfig>>,
}

/// Start the thread of a node, and wait until it knows its cluster.
pub(super) async fn open(options: NodeOptions) -> Result<Opened, NodeError> {
    let (reply, prepared) = oneshot::channel();
    let (start, started) = oneshot::channel();
    let (inbox, receiver) = mpsc::unbounded_channel();
    let (end, ended) = watch::channel(());
    let shared = Arc::new(NodeShared::new(&options));
    let node = NodeThread {
        options,
        shared: Arc::clone(&shared),
        sender: inbox.clone(),
        receiver,
    };
    let spawned = thread::Builder::new()
        .name("rideau-node".to_owned())
        .spawn(move || {
            let runtime = runtime::Builder::new_current_thread().enable_all().build();
            match runtime {
                Ok(runtime) => runtime.block_on(node.run(reply, started)),
                Err(error) => tracing::error!(%error, "the node has no runtime"),
            }
            drop(end);
        });
    if let Err(error) = spawned {
        let said = format!("no thread for the node: {error}");
        return Err(NodeError::Options(said));
    }
    let meta = prepared.await.unwrap_or(Err(NodeError::Ended))?;
    Ok(Opened {
        inbox,
        shared,
        meta,
        start,
        ended,
    })
}

struct NodeThread {
    options: NodeOptions,
    shared: Arc<NodeShared>,
    sender: mpsc::UnboundedSender<Input>,
    receiver: mpsc::UnboundedReceiver<Input>,
}

impl NodeThread {
    async fn run(
        self,
        mut reply: oneshot::Sender<Result<ClusterMeta, NodeError>>,
        started: oneshot::Receiver<NodeParts>,
    ) {
        let prepared = tokio::select! {
            prepared = prepare(&self.options) => prepared,
            () = reply.closed() => return,
        };
        let prepared = match prepared {
            Ok(prepared) => prepared,
            Err(error) => {
                let _ = reply.send(Err(error));
                return;
            }
        };
        self.shared.config.send_replace(prepared.config.clone());
        if reply.send(Ok(prepared.meta.clone())).is_err() {
            return;
        }
        if let Ok(parts) = started.await {
            self.drive(prepared, parts).await;
        }
    }

    async fn drive(self, prepared: Prepared, parts: NodeParts) {
        let Prepared {
            client,
            folder,
            meta,
            config: _,
        } = prepared;
        let options = &self.options;
        let serving = Arc::clone(&self.shared.serving);
        let host = host_thread::start(parts.host, serving, self.sender.clone());
        let host = match host {
            Ok(host) => host,
            Err(error) => {
                tracing::error!(%error, "no thread for the partitions of the node");
                return;
            }
        };
        let folder = Arc::new(Mutex::new(folder));
        let hasty = client.with_timeout(options.call_timeout());
        let machine = Cluster::new(options.core(), u64::from_be_bytes(random()));
        let health = EtcdHealth {
            client: hasty.clone(),
            cluster: options.cluster.clone(),
            made: meta.made,
            shared: Arc::clone(&self.shared),
            folder: Arc::clone(&folder),
            endpoints: options.etcd.endpoints.len(),
        };
        let housekeeping = Housekeeping {
            client: client.clone(),
            cluster: options.cluster.clone(),
            keys: machine.keys().clone(),
            shared: Arc::clone(&self.shared),
            interval: options.housekeeping,
        };
        tokio::spawn(health.run(self.sender.clone()));
        tokio::spawn(look_for_reports(self.sender.clone()));
        tokio::spawn(housekeeping.run());
        let config = ConfigKey::of(options, &client);
        tokio::spawn(config.follow(self.shared.config.clone()));
        let driver = Driver {
            machine,
            shared: self.shared,
            client: hasty,
            reader: client,
            cluster: options.cluster.clone(),
            name: options.name.clone(),
            lease: options.lease,
            folder,
            inbox: self.receiver,
            sender: self.sender,
            host,
            events: parts.events,
            peers: parts.peers,
            keepalive: None,
            watch: None,
            appends: Default::default(),
            asks: BTreeMap::new(),
            parts: HeldParts::default(),
            links: BTreeMap::new(),
            known: BTreeMap::new(),
            drains: Vec::new(),
            is_drained: false,
            stopping: None,
            has_resigned: false,
            is_stale: false,
        };
        driver.run().await;
    }
}

/// Have the node look for reports in etcd now and then.
async fn look_for_reports(inbox: mpsc::UnboundedSender<Input>) {
    let mut ticks = tokio::time::interval(REPORTS);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    while inbox.send(Input::LookForReports).is_ok() {
        ticks.tick().await;
    }
}

impl NodeShared {
    fn new(options: &NodeOptions) -> Self {
        let partitions = options.partitions.count();
        let table = NodeTable {
            me: None,
            owners: OwnerTable::new(partitions),
            links: BTreeSet::new(),
        };
        Self {
            serving: Arc::new(ServingTable::new(partitions)),
            room: Room::new(options.room_quota),
            revision: AtomicU64::new(0),
            table: RwLock::new(Arc::new(table)),
            pulse: Mutex::default(),
            config: watch::Sender::new(None),
        }
    }
}

/// Take the folder, connect, and read what the cluster was made with.
async fn prepare(options: &NodeOptions) -> Result<Prepared, NodeError> {
    let mut folder = NodeFolder::open(&options.folder)?;
    let mut patience = Patience::default();
    let client = loop {
        match EtcdClient::connect(options.etcd.clone()).await {
            Ok(client) => break client,
            Err(error) => patience.wait(error).await?,
        }
    };
    let status = loop {
        match client.status().await {
            Ok(status) => break status,
            Err(error) => patience.wait(error).await?,
        }
    };
    // A status may be of a member that lags: the revision has to be read.
    let (accepted, revision) = loop {
        match accepted(&client, &options.cluster).await {
            Ok(found) => break found,
            Err(error) => patience.wait(error).await?,
        }
    };
    let accepted = accepted.unwrap_or(0);
    if let Some(seen) = folder.seen()
        && seen.accepted >= accepted
    {
        let (was, is) = (seen.cluster, status.cluster);
        if was != is {
            let said = format!("etcd has the cluster id {is:x}, and had {was:x} before");
            return Err(NodeError::Restored { said });
        }
        check_seen(seen.revision, revision)?;
    }
    let meta = loop {
        let meta = ClusterMeta::read_or_make(&client, &options.cluster, options.partitions);
        match meta.await {
            Ok(meta) => break meta,
            Err(MetaError::Etcd(error)) => patience.wait(error).await?,
            Err(MetaError::Node(error)) => return Err(error),
        }
    };
    let config = match is_shared(&meta.made) {
        true => Some(shared_config(options, &client, &mut patience).await?),
        false => None,
    };
    let seen = EtcdSeen {
        cluster: status.cluster,
        revision: meta.revision,
        accepted,
    };
    let path = options.folder.clone();
    folder
        .saw(seen)
        .map_err(|error| NodeError::Folder { path, error })?;
    Ok(Prepared {
        client,
        folder,
        meta,
        config,
    })
}

/// The text that all nodes share. The first node writes it.
async fn shared_config(
    options: &NodeOptions,
    client: &EtcdClient,
    patience: &mut Patience,
) -> Result<Arc<StoredConfig>, NodeError> {
    let key = ConfigKey::of(options, client);
    loop {
        match key.read_or_put(&options.config).await {
            Ok(config) => return Ok(config),
            Err(ConfigError::Etcd(error)) => patience.wait(error).await?,
            Err(error) => return Err(NodeError::Config(error)),
        }
    }
}

/// Waits for an etcd that does not answer, and says so now and then.
#[derive(Default)]
struct Patience {
    said: Option<Instant>,
}

impl Patience {
    /// Wait, unless etcd itself refuses.
    async fn wait(&mut self, error: EtcdError) -> Result<(), EtcdError> {
        let may_pass = matches!(
            error.refusal(),
            None | Some(EtcdRefusal::Unreachable | EtcdRefusal::Busy)
        );
        if !may_pass {
            return Err(error);
        }
        if self.said.is_none_or(|said| said.elapsed() >= SAID_EACH) {
            tracing::warn!(%error, "the node waits for etcd");
            self.said = Some(Instant::now());
        }
        sleep(RETRY).await;
        Ok(())
    }
}
