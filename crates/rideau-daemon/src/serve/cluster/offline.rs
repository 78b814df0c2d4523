//! Changes of a cluster that an operator makes while its nodes are stopped.

use std::io;
use std::path::{Path, PathBuf};

use rideau::allocator::{Entry, LogSplit};
use rideau::store::{Embedded, Piece, Store};
use rideau_cluster::OfflineCluster;
use rideau_config::{ClusterConfig, Config};
use rideau_core::cluster::Partitions;

use super::etcd_options;
use crate::state::values;

/// Accept the etcd of a config, which was restored from a backup. Values of which it may not
/// know the holders are in quarantine when nodes take their partitions over.
///
/// # Errors
///
/// If a node lives, or etcd fails.
pub async fn accept_restored(config: &Config) -> io::Result<()> {
    let (_, offline) = open(config).await?;
    let mut forgotten = Vec::new();
    Entry::Forgotten.put(&mut forgotten);
    let accepted = offline.accept_restored(&forgotten).await;
    accepted.map_err(io::Error::other)
}

/// Bring the values of a server into the cluster of a config, which has none yet. Says where
/// they were: no server uses that folder for values any more.
///
/// # Errors
///
/// If the folder has no values or is in use, the cluster has some already, or etcd fails.
pub async fn move_to_etcd(config: &Config) -> io::Result<PathBuf> {
    let folder = values::folder(config);
    let stored = folder.join(values::RANGES);
    if !stored.exists() {
        let text = format!(
            "there are no values in {}: name it in [store]",
            folder.display()
        );
        return Err(io::Error::other(text));
    }
    let (partitions, offline) = open(config).await?;
    let name = &config.cluster.as_ref().expect("it was just opened").name;
    if let Some(other) = values::moved_to(&folder)
        && (other != *name || offline.is_used())
    {
        let text = format!("the values were moved to the cluster {other} before");
        return Err(io::Error::other(text));
    }
    if offline.is_used() {
        let text = "the cluster has values already: values are moved into a new cluster only";
        return Err(io::Error::other(text));
    }
    let (epoch, snapshots) = read(&stored, partitions)?;
    let secret = values::stored_secret(&folder)?;
    // From here on a server without the cluster must not give them out.
    values::mark_moved(&folder, name)?;
    let filled = offline.fill(epoch, secret, &snapshots).await;
    filled.map_err(|error| {
        let folder = folder.display();
        io::Error::other(format!(
            "{error}; repeat this, or remove the file `moved` in {folder} to go on without the \
             cluster, before a node is started"
        ))
    })?;
    Ok(folder)
}

async fn open(config: &Config) -> io::Result<(Partitions, OfflineCluster)> {
    let missing = || io::Error::other("the config has no [cluster]");
    let cluster: &ClusterConfig = config.cluster.as_ref().ok_or_else(missing)?;
    let partitions = Partitions::new(cluster.partitions, 0).map_err(io::Error::other)?;
    let etcd = etcd_options(cluster)?;
    let offline = OfflineCluster::open(etcd, &cluster.name, partitions, cluster.lease);
    let offline = offline.await.map_err(io::Error::other)?;
    Ok((partitions, offline))
}

/// The first epoch, and what each partition has.
fn read(stored: &Path, partitions: Partitions) -> io::Result<(u64, Vec<Vec<u8>>)> {
    let mut store = Embedded::open(stored).map_err(io::Error::other)?;
    let mut split = LogSplit::new(partitions);
    let loaded = store.load(Partitions::ONE, &[0], &mut |_, piece| {
        let (Piece::Snapshot(bytes) | Piece::Batch(bytes)) = piece;
        split.read(bytes).map_err(|error| error.to_string())
    });
    loaded.map_err(io::Error::other)?;
    Ok(((split.fence() >> 32) + 1, split.finish()))
}
