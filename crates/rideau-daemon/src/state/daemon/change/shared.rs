//! Changes of the part of the config that all nodes of a cluster share.
//!
//! etcd has it in one version. A change on any node is a transaction on that version, and
//! counts when etcd has it; every node then follows.

use std::sync::Arc;
use std::time::Duration;

use rideau_apps::Apps;
use rideau_cluster::{ConfigError, NewConfig, StoredConfig};
use rideau_config::{Config, Plan, join_shared, split_shared};
use tokio::runtime::Handle;

use super::{Daemon, Unchanged, Way};
use crate::state::catalog::Catalog;
use crate::state::cluster::Cluster;
use crate::state::shared_config::SharedState;

impl Daemon {
    /// Begin with what all nodes share.
    pub(crate) fn begin_shared(&self, state: SharedState, file: Arc<str>) {
        self.settings.inner.lock().on_disk = file;
        self.set_shared(|shared| *shared = state);
    }

    /// Why this node does not follow the shared config, if so.
    pub(crate) fn shared_fault(&self) -> Option<String> {
        self.settings.shared.lock().fault.clone()
    }

    pub(super) fn set_shared(&self, change: impl FnOnce(&mut SharedState)) {
        let mut shared = self.settings.shared.lock();
        change(&mut shared);
        let known = shared.known();
        drop(shared);
        if let Some(cluster) = &self.cluster {
            cluster.knows_config(known);
        }
    }

    /// The newest version of what all nodes share, as this node knows it.
    fn stored(&self) -> Option<Arc<StoredConfig>> {
        self.settings.shared.lock().stored.clone()
    }

    /// The text of the file with what all nodes share in the place of what it says of that.
    pub(super) fn with_shared(&self, file: &str) -> Result<String, Unchanged> {
        let Some(stored) = self.stored() else {
            return Ok(file.to_owned());
        };
        let (config, _) = self.check(file)?;
        let joined = joined(file, &config, &stored.text)?;
        let (config_of_joined, _) = self.check(&joined).map_err(|why| why.by_table(&joined))?;
        let is_other = config_of_joined.shared() != config.shared();
        self.set_shared(|shared| shared.is_file_other = is_other);
        if !is_other {
            return Ok(file.to_owned());
        }
        warn_of_file(&stored);
        Ok(joined)
    }

    /// The running text with what another text says of what all nodes share.
    pub(super) fn with_shared_of(&self, running: &str, other: &str) -> Result<String, Unchanged> {
        if self.stored().is_none() {
            return Err(Unchanged::NothingShared);
        }
        let (config, _) = self.check(other)?;
        let shared = split_shared(other, &config)
            .map_err(Unchanged::Split)?
            .shared;
        let running_config = self.config.load();
        joined(running, &running_config, &shared)
    }

    /// Have etcd take what a change means for all nodes, if it means something. It waits for
    /// etcd, so it is called on a thread that may.
    pub(super) fn share(
        &self,
        way: &Way<'_>,
        text: &str,
        new: &Config,
    ) -> Result<Option<Arc<StoredConfig>>, Unchanged> {
        let (Some(seen), Some(cluster)) = (self.stored(), &self.cluster) else {
            return Ok(None);
        };
        if new.shared() == self.config.load().shared() {
            return Ok(None);
        }
        // What this node runs is an older version, which must not take the newer one's place.
        if let Some(fault) = self.shared_fault().filter(|_| !way.is_whole) {
            return Err(Unchanged::Behind { fault });
        }
        Catalog::validate(new).map_err(Unchanged::Option)?;
        Apps::validate(new).map_err(Unchanged::Option)?;
        let may_be = self.values.check(new);
        may_be.map_err(|error| Unchanged::Ranges {
            why: error.to_string(),
        })?;
        let text = split_shared(text, new).map_err(Unchanged::Split)?.shared;
        let put = cluster.node.put_config(
            seen,
            NewConfig {
                text,
                by: way.by.to_owned(),
                within: way.within,
            },
        );
        let Ok(runtime) = Handle::try_current() else {
            return Err(Unchanged::NotShared(Arc::new(ConfigError::Ended)));
        };
        match runtime.block_on(put) {
            Ok(stored) => Ok(Some(stored)),
            Err(error) => Err(Unchanged::NotShared(Arc::new(error))),
        }
    }

    /// This node follows a version from now on.
    pub(super) fn follows(&self, stored: Arc<StoredConfig>) {
        let file = Arc::clone(&self.settings.inner.lock().on_disk);
        let running = self.config.load().shared();
        // A file that cannot be read any more says something else, too.
        let is_same = |file: &str| self.check(file).is_ok_and(|(it, _)| it.shared() == running);
        let is_file_other = !is_same(&file);
        self.set_shared(|shared| {
            shared.stored = Some(stored);
            shared.fault = None;
            shared.is_file_other = is_file_other;
        });
    }

    /// Wait until other nodes follow what this one has just changed: a client may go there
    /// next.
    pub(super) fn wait_for_others(&self, version: u64) {
        if let (Some(cluster), Ok(runtime)) = (&self.cluster, Handle::try_current()) {
            let within = cluster.node.options().patience.max(Duration::from_secs(1));
            runtime.block_on(cluster.until_known(version, within));
        }
    }

    /// Be as the shared config says, which another node has changed. What cannot be followed
    /// is told, and tried again later.
    pub(crate) fn follow_shared(self: &Arc<Self>, stored: &Arc<StoredConfig>) {
        let turn = self.settings.turn.lock();
        let shared = self.settings.shared.lock().clone();
        let version = |stored: &Arc<StoredConfig>| stored.version;
        let known = shared.stored.as_ref().map_or(0, version);
        if known > stored.version || (known == stored.version && shared.fault.is_none()) {
            return;
        }
        let followed = self.adopt(stored);
        drop(turn);
        match followed {
            Ok(plan) => {
                let steps = plan.steps.len();
                tracing::info!(
                    version = stored.version,
                    node = stored.node,
                    by = stored.by,
                    steps,
                    "the shared config was changed"
                );
            }
            Err(why) => {
                let fault = why.to_string();
                if shared.fault.as_ref() != Some(&fault) {
                    let text = format!(
                        "version {} of the shared config, by {} at {}, cannot be followed: {fault}",
                        stored.version, stored.by, stored.node
                    );
                    tracing::warn!("{text}");
                    self.events.add("config", "shared", text, Some(&stored.by));
                }
                self.set_shared(|shared| {
                    shared.stored = Some(Arc::clone(stored));
                    shared.fault = Some(fault);
                });
            }
        }
    }

    /// Be as a version says, while it is this change's turn.
    pub(super) fn adopt(self: &Arc<Self>, stored: &Arc<StoredConfig>) -> Result<Plan, Unchanged> {
        let running = self.settings.text();
        let text = joined(&running, &self.config.load(), &stored.text)?;
        let (new, _) = self.check(&text).map_err(|why| why.by_table(&text))?;
        let by = format!("{}@{}", stored.by, stored.node);
        let way = Way {
            within: stored.within,
            ..Way::new("shared", &by)
        };
        let plan = self.put(&way, text, new)?;
        self.follows(Arc::clone(stored));
        Ok(plan)
    }

    /// Begin to share a part of the config with all nodes, now that none of an earlier
    /// version is left. Says whether it was not shared before.
    ///
    /// # Errors
    ///
    /// If a node of an earlier version lives, or etcd does not confirm it.
    pub(crate) fn finish_upgrade(
        &self,
        by: &str,
    ) -> Result<impl Future<Output = Result<bool, ConfigError>> + Send + 'static, Unchanged> {
        let cluster: Option<Arc<Cluster>> = self.cluster.clone();
        let cluster = cluster.ok_or(Unchanged::NothingShared)?;
        let text = split_shared(&self.settings.text(), &self.config.load());
        let new = NewConfig {
            text: text.map_err(Unchanged::Split)?.shared,
            by: by.to_owned(),
            within: None,
        };
        Ok(async move { cluster.node.finish_upgrade(new).await })
    }
}

/// A text with another shared part. `config` is what the text says.
pub(crate) fn joined(text: &str, config: &Config, shared: &str) -> Result<String, Unchanged> {
    let own = split_shared(text, config).map_err(Unchanged::Split)?.own;
    join_shared(&own, shared).map_err(Unchanged::Split)
}

/// The log says that the file of a node is not what counts.
pub(crate) fn warn_of_file(stored: &StoredConfig) {
    let StoredConfig {
        version, node, by, ..
    } = stored;
    tracing::warn!(
        "what all nodes share is not as the file of this node says: version {version} of etcd \
         counts, by {by} at {node}; `rideau config push FILE` makes a file count, and CONFIG \
         REWRITE changes the file"
    );
}
