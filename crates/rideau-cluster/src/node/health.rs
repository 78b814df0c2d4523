//! Looks at etcd now and then: how much room it has, and whether it is still the same.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use rideau::store::etcd::{EtcdClient, EtcdError, EtcdRead, EtcdRefusal, EtcdStatus, KeyRange};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};

use super::error::NodeError;
use super::folder::{EtcdSeen, NodeFolder};
use super::input::Input;
use super::meta::{ClusterMade, meta_key};
use super::shared::NodeShared;

/// How often etcd is looked at.
const INTERVAL: Duration = Duration::from_secs(10);

/// The health of etcd, as it was last checked.
pub(super) struct EtcdHealth {
    pub(super) client: EtcdClient,
    pub(super) cluster: String,
    pub(super) made: ClusterMade,
    pub(super) shared: Arc<NodeShared>,
    pub(super) folder: Arc<Mutex<NodeFolder>>,
    /// How many endpoints there are.
    pub(super) endpoints: usize,
}

impl EtcdHealth {
    /// Look until the node ends.
    pub(super) async fn run(self, inbox: mpsc::UnboundedSender<Input>) {
        let mut ticks = interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if let Err(error) = self.look().await {
                let _ = inbox.send(Input::Resign(error));
                return;
            }
        }
    }

    async fn look(&self) -> Result<(), NodeError> {
        let status = match self.status().await {
            Ok(status) => status,
            Err(error) if error.refusal() == Some(EtcdRefusal::OtherCluster) => {
                let said = error.to_string();
                return Err(NodeError::Restored { said });
            }
            // The lease says what follows from an etcd that does not answer.
            Err(_) => return Ok(()),
        };
        self.note_room(&status);
        let seen = self.shared.revision.load(Ordering::Relaxed);
        // A status may be of a member that lags. This is not.
        let read = EtcdRead::newest(KeyRange::key(meta_key(&self.cluster, "made")));
        let Ok(found) = self.client.read(read).await else {
            return Ok(());
        };
        let revision = u64::try_from(found.revision).unwrap_or(0);
        check_seen(seen, revision)?;
        self.shared.revision.fetch_max(revision, Ordering::Relaxed);
        let made = found
            .keys
            .first()
            .map(|key| String::from_utf8_lossy(&key.value));
        let made: Option<ClusterMade> = made.and_then(|text| text.parse().ok());
        // Only the format may be a newer one, when an upgrade was finished.
        let Some(made) = made.filter(|made| made.id == self.made.id) else {
            let said = "the cluster is not the one that was joined".to_owned();
            return Err(NodeError::Restored { said });
        };
        made.check_format()?;
        let folder = Arc::clone(&self.folder);
        let cluster = status.cluster;
        let saved = spawn_blocking(move || {
            let mut folder = folder.lock();
            let accepted = folder.seen().map_or(0, |seen| seen.accepted);
            folder.saw(EtcdSeen {
                cluster,
                revision,
                accepted,
            })
        })
        .await;
        if let Ok(Err(error)) = saved {
            tracing::warn!(%error, "the folder of the node cannot be written");
        }
        Ok(())
    }

    /// One endpoint of another cluster is a mistake of the config. If all are, then etcd is
    /// another one.
    async fn status(&self) -> Result<EtcdStatus, EtcdError> {
        let mut answer = self.client.status().await;
        for _ in 1..2 * self.endpoints {
            match &answer {
                Err(error) if error.refusal() == Some(EtcdRefusal::OtherCluster) => {
                    answer = self.client.status().await;
                }
                _ => break,
            }
        }
        answer
    }

    fn note_room(&self, status: &EtcdStatus) {
        let room = &self.shared.room;
        let before = room.note(status.used_bytes, status.bytes, &status.errors);
        let view = room.view();
        if view.level > before {
            tracing::warn!("{view}");
        } else if view.level < before {
            tracing::info!("{view}");
        }
    }
}

/// An etcd that was restored may be the same but for its revision.
pub(super) fn check_seen(seen: u64, revision: u64) -> Result<(), NodeError> {
    if revision >= seen {
        return Ok(());
    }
    let said = format!("etcd is at revision {revision}, and was at {seen} before");
    Err(NodeError::Restored { said })
}
