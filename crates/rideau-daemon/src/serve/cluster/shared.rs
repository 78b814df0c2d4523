//! What nodes share of their configs: at the start of a node, and whenever it changes.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rideau_cluster::{NewConfig, StoredConfig};
use rideau_config::{Config, split_shared};
use rideau_process::panics;
use tokio::time::sleep;

use crate::state::cluster::Cluster;
use crate::state::daemon::{Daemon, joined, warn_of_file};
use crate::state::shared_config::SharedState;
use crate::state::versions::Source;

/// What could not be followed is tried again after this long: it may have hung on what was
/// held.
const AGAIN: Duration = Duration::from_secs(10);

/// The config of a node that starts.
pub(in crate::serve) struct StartConfig {
    /// The config that counts.
    pub(in crate::serve) config: Config,
    /// Its text.
    pub(in crate::serve) source: Source,
    /// What nodes share, and the text of the file; none if they share nothing.
    pub(in crate::serve) shared: Option<(SharedState, Arc<str>)>,
}

/// What this node's file says of what nodes share, for a cluster that has nothing yet.
pub(super) fn of_file(config: &Config, text: &str) -> io::Result<NewConfig> {
    let split = split_shared(text, config).map_err(io::Error::other)?;
    Ok(NewConfig {
        text: split.shared,
        by: "start".into(),
        within: None,
    })
}

impl StartConfig {
    /// What the file of a node says, with what all nodes share.
    ///
    /// # Errors
    ///
    /// If both do not go together.
    pub(in crate::serve) fn new(
        config: Config,
        source: Source,
        cluster: Option<&Cluster>,
    ) -> io::Result<Self> {
        let stored = cluster.and_then(|cluster| cluster.node.config().borrow().clone());
        let Some(stored) = stored else {
            return Ok(Self {
                config,
                source,
                shared: None,
            });
        };
        let file: Arc<str> = source.text.as_str().into();
        let unfit = |why: &dyn std::fmt::Display| unfit(&stored, why);
        let text = joined(&file, &config, &stored.text).map_err(|why| unfit(&why))?;
        let env = |name: &str| std::env::var(name).ok();
        let both = Config::parse(&text, "the shared config", &env);
        let both = both.map_err(|faults| unfit(&faults.render(false)))?;
        let is_file_other = both.shared() != config.shared();
        if is_file_other {
            warn_of_file(&stored);
        }
        let state = SharedState {
            stored: Some(stored),
            fault: None,
            is_file_other,
        };
        let shared = Some((state, file));
        Ok(match is_file_other {
            true => Self {
                config: both,
                source: Source { text, ..source },
                shared,
            },
            false => Self {
                config,
                source,
                shared,
            },
        })
    }
}

fn unfit(stored: &StoredConfig, why: &dyn std::fmt::Display) -> io::Error {
    let StoredConfig {
        version, node, by, ..
    } = stored;
    io::Error::other(format!(
        "what all nodes share, version {version} by {by} at {node}, does not go with the file of \
         this node: {why}"
    ))
}

/// Follow what all nodes share, in the background.
pub(super) fn begin(daemon: Arc<Daemon>, cluster: Arc<Cluster>) {
    tokio::spawn(async move {
        panics::keep("what all nodes share of the config", || {
            follow(Arc::clone(&daemon), Arc::clone(&cluster))
        })
        .await;
    });
}

async fn follow(daemon: Arc<Daemon>, cluster: Arc<Cluster>) {
    let mut newest = cluster.node.config();
    loop {
        let stored = newest.borrow_and_update().clone();
        if let Some(stored) = stored {
            let daemon = Arc::clone(&daemon);
            let followed = panics::away(move || daemon.follow_shared(&stored)).await;
            if let Err(panicked) = followed {
                tracing::error!("following the shared config ended with an {panicked}");
            }
        }
        let is_behind = daemon.shared_fault().is_some();
        tokio::select! {
            changed = newest.changed() => if changed.is_err() {
                return;
            },
            () = sleep(AGAIN), if is_behind => (),
        }
    }
}
