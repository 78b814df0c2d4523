//! The text that all nodes share, as etcd has it: what a version is, how it is written, and why
//! a change is refused.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rideau::store::etcd::{EtcdError, EtcdKey};
use tokio::sync::oneshot;

/// The text that all nodes share, in one version.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredConfig {
    /// The number of changes, from 1 on.
    pub version: u64,
    /// The node that wrote it.
    pub node: String,
    /// The user that wanted it.
    pub by: String,
    /// How long holders of what it removes may keep that, if this was said.
    pub within: Option<Duration>,
    /// The text.
    pub text: Arc<str>,
    /// Drawn for this version: a request of unknown outcome is known again by it.
    pub(super) id: u64,
    /// The revision at which it was written.
    pub(super) modified: i64,
}

/// A text that is to take the place of another.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NewConfig {
    /// The text.
    pub text: String,
    /// The user that wants it.
    pub by: String,
    /// How long holders of what it removes may keep that, if this is said.
    pub within: Option<Duration>,
}

/// Why a text was not written.
#[derive(Debug)]
pub enum ConfigError {
    /// Another version is there by now.
    Changed(Arc<StoredConfig>),
    /// It is too long.
    TooLong {
        /// This many bytes.
        len: usize,
        /// The most that there may be.
        max: usize,
    },
    /// These nodes run a version of the program that does not know it.
    OldNodes(Vec<String>),
    /// etcd refuses, or it is not known whether it was written.
    Etcd(EtcdError),
    /// What etcd has cannot be read by this version.
    Unreadable,
    /// The node has ended.
    Ended,
}

impl StoredConfig {
    pub(super) fn parse(key: &EtcdKey) -> Option<Self> {
        let text = std::str::from_utf8(&key.value).ok()?;
        let (head, text) = text.split_once('\n')?;
        let mut fields = head.splitn(6, ' ');
        let format = fields.next()?;
        let version = fields.next()?.parse().ok()?;
        let id = u64::from_str_radix(fields.next()?, 16).ok()?;
        let within = match fields.next()? {
            "-" => None,
            millis => Some(Duration::from_millis(millis.parse().ok()?)),
        };
        let (node, by) = (fields.next()?.to_owned(), fields.next()?.to_owned());
        (format == "1").then(|| Self {
            version,
            node,
            by,
            within,
            text: text.into(),
            id,
            modified: key.modified,
        })
    }

    pub(super) fn written(version: u64, id: u64, node: &str, new: &NewConfig) -> String {
        let within = new.within.map(|within| within.as_millis().to_string());
        let within = within.as_deref().unwrap_or("-");
        let (by, text) = (new.by.replace('\n', " "), &new.text);
        format!("1 {version} {id:016x} {within} {node} {by}\n{text}")
    }
}

/// What the driver is asked to do with the text.
pub(super) enum ConfigCall {
    /// Put a text in the place of this version.
    Put {
        seen: Arc<StoredConfig>,
        new: NewConfig,
        reply: oneshot::Sender<Result<Arc<StoredConfig>, ConfigError>>,
    },
    /// Begin to share one.
    FinishUpgrade {
        new: NewConfig,
        reply: oneshot::Sender<Result<bool, ConfigError>>,
    },
}

impl From<EtcdError> for ConfigError {
    fn from(error: EtcdError) -> Self {
        Self::Etcd(error)
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Changed(newer) => write!(
                f,
                "{} at node {} has changed the shared config meanwhile, to version {}",
                newer.by, newer.node, newer.version
            ),
            Self::TooLong { len, max } => write!(
                f,
                "the shared part of the config has {len} bytes, and etcd takes {max}"
            ),
            Self::OldNodes(names) => write!(
                f,
                "these nodes run an earlier version: {}; replace them first",
                names.join(", ")
            ),
            Self::Etcd(error) if error.is_unknown() => {
                write!(
                    f,
                    "etcd has not confirmed the change, and may have made it: {error}"
                )
            }
            Self::Etcd(error) => write!(f, "etcd refuses the change: {error}"),
            Self::Unreadable => f.write_str(
                "what etcd has as the shared config is unknown to this version of the program",
            ),
            Self::Ended => f.write_str("the node has ended"),
        }
    }
}

impl Error for ConfigError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_read_as_it_was_written() {
        for within in [None, Some(Duration::from_millis(1_500))] {
            let new = NewConfig {
                text: "[limits]\n\n[lock.\"*\"]\n".to_owned(),
                by: "anna of two words".to_owned(),
                within,
            };
            let value = StoredConfig::written(7, 0xab, "n1", &new);
            let key = |value: &str| EtcdKey {
                key: "k".into(),
                value: value.to_owned().into(),
                created: 3,
                modified: 9,
                version: 1,
                lease: None,
            };
            let stored = StoredConfig::parse(&key(&value)).expect("it was just written");
            assert_eq!((stored.version, stored.id, stored.modified), (7, 0xab, 9));
            assert_eq!((&*stored.text, &*stored.by), (&*new.text, &*new.by));
            assert_eq!((&*stored.node, stored.within), ("n1", within));
            for bad in [
                "",
                "2 7 ab - n1 anna\n",
                "1 7 ab - n1\n",
                "1 7 ab x n1 anna\n",
            ] {
                assert_eq!(StoredConfig::parse(&key(bad)), None, "{bad}");
            }
        }
    }
}
