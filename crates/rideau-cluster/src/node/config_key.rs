//! The key of the text that all nodes share: read, written, followed. A change is a transaction
//! on the version that it is based on. What the text means is for the host.

use std::sync::Arc;
use std::time::Duration;

use rideau::store::etcd::{EtcdClient, EtcdRead, KeyRange, KeyStamp, Txn, TxnDone, TxnOp, Watched};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::about::NodeAbout;
use super::config::{ConfigCall, ConfigError, NewConfig, StoredConfig};
use super::driver::Driver;
use super::meta::{ClusterMade, FORMAT, FORMAT_OF_CONFIG, meta_key, random};
use super::options::NodeOptions;

/// The longest text: etcd takes no values above 1.5 MiB.
const LEN_MAX: usize = 1 << 20;
/// A request whose outcome is not known is repeated so often: it happens once at most.
const TRIES: u32 = 4;
/// The key is read this often even if the watch says nothing.
const LOOK: Duration = Duration::from_secs(10);
/// A watch that failed is asked again after this long.
const RETRY: Duration = Duration::from_millis(200);

/// Reads and writes it.
#[derive(Clone)]
pub(super) struct ConfigKey {
    pub(super) client: EtcdClient,
    pub(super) cluster: String,
    pub(super) node: String,
}

impl ConfigKey {
    pub(super) fn of(options: &NodeOptions, client: &EtcdClient) -> Self {
        Self {
            client: client.clone(),
            cluster: options.cluster.clone(),
            node: options.name.clone(),
        }
    }

    fn key(&self) -> String {
        meta_key(&self.cluster, "config")
    }

    /// What there is, and the revision at which this was read.
    async fn read(&self) -> Result<(Option<Arc<StoredConfig>>, i64), ConfigError> {
        let read = EtcdRead::newest(KeyRange::key(self.key()));
        let found = self.client.read(read).await?;
        let Some(key) = found.keys.first() else {
            return Ok((None, found.revision));
        };
        let stored = StoredConfig::parse(key).ok_or(ConfigError::Unreadable)?;
        Ok((Some(Arc::new(stored)), found.revision))
    }

    /// What there is, or this text if there is none. The first node of a cluster writes it.
    pub(super) async fn read_or_put(
        &self,
        new: &NewConfig,
    ) -> Result<Arc<StoredConfig>, ConfigError> {
        if let (Some(stored), _) = self.read().await? {
            return Ok(stored);
        }
        match self.put(None, new, |txn| txn).await {
            Err(ConfigError::Changed(stored)) => Ok(stored),
            put => put,
        }
    }

    /// Put a text in the place of a version, or of none. `more` adds to the transaction.
    async fn put(
        &self,
        seen: Option<&StoredConfig>,
        new: &NewConfig,
        more: impl Fn(Txn) -> Txn,
    ) -> Result<Arc<StoredConfig>, ConfigError> {
        let len = new.text.len();
        if len > LEN_MAX {
            let max = LEN_MAX;
            return Err(ConfigError::TooLong { len, max });
        }
        let version = seen.map_or(1, |seen| seen.version + 1);
        let id = u64::from_be_bytes(random());
        let value = StoredConfig::written(version, id, &self.node, new);
        let modified = seen.map_or(0, |seen| seen.modified);
        let read = TxnOp::Read(EtcdRead::newest(KeyRange::key(self.key())));
        let txn = Txn::new()
            .when(self.key(), KeyStamp::Modified, modified)
            .then(TxnOp::put(self.key(), value))
            .otherwise(read);
        let txn = more(txn);
        let mut tries = 0;
        let reply = loop {
            match self.client.txn(txn.clone()).await {
                Ok(reply) => break reply,
                Err(error) => {
                    tries += 1;
                    if !error.is_unknown() || tries == TRIES {
                        return Err(error.into());
                    }
                    sleep(RETRY).await;
                }
            }
        };
        if reply.holds {
            return Ok(Arc::new(StoredConfig {
                version,
                node: self.node.clone(),
                by: new.by.clone(),
                within: new.within,
                text: new.text.as_str().into(),
                id,
                modified: reply.revision,
            }));
        }
        let found = match reply.done.first() {
            Some(TxnDone::Read(found)) => found.keys.first().and_then(StoredConfig::parse),
            _ => None,
        };
        let found = Arc::new(found.ok_or(ConfigError::Unreadable)?);
        match found.id == id {
            // An earlier try had its answer lost.
            true => Ok(found),
            false => Err(ConfigError::Changed(found)),
        }
    }

    /// Have nodes write what earlier versions of the program do not know: from then on, the
    /// text is shared. Says whether they did not before.
    async fn finish_upgrade(&self, new: &NewConfig) -> Result<bool, ConfigError> {
        let made_key = meta_key(&self.cluster, "made");
        let read = EtcdRead::newest(KeyRange::key(made_key.clone()));
        let found = self.client.read(read).await?;
        let made = found.keys.first().ok_or(ConfigError::Unreadable)?;
        let modified = made.modified;
        let made = std::str::from_utf8(&made.value).ok();
        let made: Option<ClusterMade> = made.and_then(|text| text.parse().ok());
        let made = made.ok_or(ConfigError::Unreadable)?;
        if made.format >= FORMAT {
            return Ok(false);
        }
        let newer = ClusterMade {
            format: FORMAT,
            ..made
        };
        let put = self.put(None, new, |txn| {
            txn.when(made_key.clone(), KeyStamp::Modified, modified)
                .then(TxnOp::put(made_key.clone(), newer.to_string()))
        });
        match put.await {
            // Another node was asked the same at the same time.
            Ok(_) | Err(ConfigError::Changed(_)) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Publish every version, as long as the node runs.
    pub(super) async fn follow(self, told: watch::Sender<Option<Arc<StoredConfig>>>) {
        let mut ticks = interval(LOOK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut watch = None;
        loop {
            if let Ok((stored, revision)) = self.read().await {
                let is_newer = told.send_if_modified(|known| {
                    let at =
                        |it: &Option<Arc<StoredConfig>>| it.as_ref().map_or(0, |it| it.modified);
                    let is_newer = at(&stored) > at(known);
                    if is_newer {
                        known.clone_from(&stored);
                    }
                    is_newer
                });
                let from = revision + 1;
                let watch =
                    watch.get_or_insert_with(|| self.client.watch(KeyRange::key(self.key()), from));
                if is_newer {
                    watch.ask_alive();
                }
            }
            let Some(watched) = &mut watch else {
                sleep(RETRY).await;
                continue;
            };
            let told = tokio::select! {
                told = watched.next() => told,
                _ = ticks.tick() => Ok(Watched::Alive),
            };
            match told {
                Ok(Watched::Compacted { .. }) => watch = None,
                Ok(_) => (),
                Err(error) => {
                    tracing::debug!(%error, "the watch of the shared config is opened again");
                    sleep(RETRY).await;
                }
            }
        }
    }
}

impl Driver {
    /// Do it beside everything else. An asker that is gone needs no answer.
    pub(super) fn config_call(&self, call: ConfigCall) {
        let key = ConfigKey {
            client: self.reader.clone(),
            cluster: self.cluster.clone(),
            node: self.name.clone(),
        };
        match call {
            ConfigCall::Put { seen, new, reply } => {
                tokio::spawn(async move {
                    let _ = reply.send(key.put(Some(&seen), &new, |txn| txn).await);
                });
            }
            ConfigCall::FinishUpgrade { new, reply } => {
                let old = self.old_nodes();
                if !old.is_empty() {
                    let _ = reply.send(Err(ConfigError::OldNodes(old)));
                    return;
                }
                tokio::spawn(async move {
                    let _ = reply.send(key.finish_upgrade(&new).await);
                });
            }
        }
    }

    /// The nodes that do not know the newest format.
    fn old_nodes(&self) -> Vec<String> {
        let nodes = self.machine.table().nodes().iter();
        let is_old = |about: &str| NodeAbout::parse(about).format < FORMAT;
        let old = nodes.filter(|(_, known)| is_old(&known.record.about));
        old.map(|(name, _)| name.clone()).collect()
    }
}

/// Whether nodes of a cluster of this format share a text.
pub(super) const fn is_shared(made: &ClusterMade) -> bool {
    made.format >= FORMAT_OF_CONFIG
}
