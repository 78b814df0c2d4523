//! Why a node cannot be part of its cluster.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::PathBuf;

use rideau::store::etcd::EtcdError;

use super::about::NodeAbout;
use super::config::ConfigError;

/// Why a node does not start, or had to give up. Trying again does not help.
#[derive(Debug)]
#[non_exhaustive]
pub enum NodeError {
    /// The options make no sense.
    Options(String),
    /// The folder cannot be used.
    Folder {
        /// Where it is.
        path: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
    /// Another process has the folder.
    FolderTaken(PathBuf),
    /// etcd refuses.
    Etcd(EtcdError),
    /// The cluster was made with another number of partitions, or other stripes.
    OtherPartitions {
        /// The stored number of partitions, and the stripe.
        made: (u32, u32),
        /// Those of the options.
        wanted: (u32, u32),
    },
    /// The stored format is unknown to this version.
    Format {
        /// The format that is stored, as far as it can be read.
        stored: String,
        /// The newest format that this version knows.
        known: u32,
    },
    /// Another node has this name.
    NameTaken {
        /// The name.
        name: String,
        /// The published data of that node, if it is still there.
        about: Option<Box<NodeAbout>>,
    },
    /// etcd was restored from a backup, or is another one.
    Restored {
        /// The state that was seen, and the one that is there now.
        said: String,
    },
    /// These nodes live, so what etcd has cannot be changed without them.
    Living(Vec<String>),
    /// The record of a partition was not written by this version.
    BadOwner(u32),
    /// The host of the partitions has panicked.
    HostFailed,
    /// The text that all nodes share cannot be read or written.
    Config(ConfigError),
    /// The node's thread has ended.
    Ended,
}

impl fmt::Display for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Options(said) => write!(f, "the options of the node: {said}"),
            Self::Folder { path, error } => {
                write!(f, "the folder of the node, {}: {error}", path.display())
            }
            Self::FolderTaken(path) => write!(
                f,
                "another process uses the folder {}; give each node a folder of its own",
                path.display()
            ),
            Self::Etcd(error) => error.fmt(f),
            Self::OtherPartitions { made, wanted } => write!(
                f,
                "the cluster was made with {} partitions and stripe {}, and the config has {} \
                 and {}; these cannot be changed, so correct the config",
                made.0, made.1, wanted.0, wanted.1
            ),
            Self::Format { stored, known } => write!(
                f,
                "the cluster is stored in format {stored}, and this version knows formats up to \
                 {known}; start a version that knows it"
            ),
            Self::NameTaken { name, about } => {
                write!(f, "another node of the cluster is called {name}")?;
                if let Some(about) = about {
                    write!(f, " and lives at {:?}", about.peers)?;
                }
                f.write_str("; give each node a name of its own")
            }
            Self::Restored { said } => write!(
                f,
                "{said}: etcd was restored from a backup, or is another one, so what was \
                 reserved since then is not known; stop all nodes and run \
                 `rideau cluster accept-restore FILE` to go on with what etcd has"
            ),
            Self::Living(nodes) if nodes.is_empty() => {
                f.write_str("a node of the cluster was started meanwhile; stop all nodes first")
            }
            Self::Living(nodes) => write!(
                f,
                "these nodes of the cluster live: {}; stop all nodes first",
                nodes.join(", ")
            ),
            Self::BadOwner(partition) => write!(
                f,
                "the record of partition {partition} is unknown to this version; use the one \
                 that the nodes run"
            ),
            Self::HostFailed => f.write_str(
                "the thread that keeps the partitions of the node has \
                panicked",
            ),
            Self::Config(error) => error.fmt(f),
            Self::Ended => f.write_str("the node has ended"),
        }
    }
}

impl Error for NodeError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Folder { error, .. } => Some(error),
            Self::Etcd(error) => Some(error),
            _ => None,
        }
    }
}

impl From<EtcdError> for NodeError {
    fn from(error: EtcdError) -> Self {
        Self::Etcd(error)
    }
}
