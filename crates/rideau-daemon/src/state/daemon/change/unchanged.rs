//! Why a config was not changed, in words one can act on.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use rideau::OptionError;
use rideau_cluster::ConfigError;
use rideau_config::SplitFault;
use rideau_config::human::stop;
use rideau_config::text::{self, PathFault};
use rideau_config::{Fault, Faults, Level};

use crate::state::daemon::NotDone;

/// Why nothing was changed.
#[derive(Clone, Debug)]
pub enum Unchanged {
    /// The text is wrong.
    Faults(Faults),
    /// Values do not fit what is there, in words: the text is one that no user has
    /// before them, so that its lines say nothing.
    Values {
        /// Where, and what.
        said: Vec<String>,
    },
    /// There can be no value at the path.
    Path(PathFault),
    /// An option breaks a rule.
    Option(OptionError),
    /// The server was started without a file.
    NoFile,
    /// The file cannot be read.
    Unread {
        /// The file.
        file: PathBuf,
        /// Why.
        error: String,
    },
    /// The file cannot be written.
    Unwritten {
        /// The file.
        file: PathBuf,
        /// Why.
        error: String,
    },
    /// The file was edited since it was read.
    Edited {
        /// The file.
        file: PathBuf,
    },
    /// There was no config before this one.
    NothingBefore,
    /// This version is not kept.
    NoVersion {
        /// Its number.
        serial: u64,
        /// The oldest that is kept.
        oldest: u64,
        /// The one that counts.
        newest: u64,
    },
    /// There is no such pool.
    NoPool {
        /// Its name.
        name: String,
    },
    /// There is a pool of this name.
    PoolThere {
        /// The name.
        name: String,
    },
    /// Values cannot be given out like that.
    Ranges {
        /// Why.
        why: String,
    },
    /// There is no such range.
    NoRange {
        /// Its name.
        name: String,
    },
    /// There is a range of this name.
    RangeThere {
        /// The name.
        name: String,
    },
    /// The limit of ranges is reached.
    TooManyRanges {
        /// This many.
        most: usize,
    },
    /// The limit of names is reached.
    TooMany {
        /// This many.
        most: usize,
    },
    /// What all nodes share cannot be taken out of a text, or put into one.
    Split(SplitFault),
    /// Nodes share no config.
    NothingShared,
    /// A newer program is about to take over.
    Upgrading {
        /// The number of the upgrade.
        serial: u64,
    },
    /// This node does not follow what all nodes share.
    Behind {
        /// Why.
        fault: String,
    },
    /// etcd has not taken what all nodes share.
    NotShared(Arc<ConfigError>),
}

/// This many faults are told in one line.
const FAULTS_MAX: usize = 5;

impl Unchanged {
    /// The same by table instead of by line.
    pub(super) fn by_table(self, whole: &str) -> Self {
        let Self::Faults(faults) = self else {
            return self;
        };
        let one = |fault: &Fault| match text::table_at(whole, fault.line) {
            Some(table) => format!("{table}: {}", sentence(fault)),
            None => sentence(fault),
        };
        Self::Values {
            said: errors(&faults).map(one).collect(),
        }
    }

    /// The error reply: what kind it is, where, and a sentence.
    pub fn reply(&self) -> String {
        match self {
            Self::NoPool { .. } | Self::NoRange { .. } => format!("NOSUCH {self}"),
            Self::TooMany { .. } | Self::TooManyRanges { .. } | Self::Upgrading { .. } => {
                format!("BUSY {self}")
            }
            Self::PoolThere { .. } | Self::RangeThere { .. } => format!("ERR {self}"),
            Self::NotShared(why) if is_unknown(why) => format!("UNKNOWN {self}"),
            _ => format!("CONFIG {self}"),
        }
    }
}

impl fmt::Display for Unchanged {
    #[expect(clippy::too_many_lines, reason = "a sentence for each")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Faults(faults) => show(errors(faults).map(line).collect(), f),
            Self::Values { said } => show(said.clone(), f),
            Self::Path(fault) => write!(f, "{fault}{}", stop(&fault.to_string())),
            Self::Option(error) => write!(f, "{error}{}", stop(&error.to_string())),
            Self::Upgrading { serial } => write!(
                f,
                "upgrade {serial} is under way, and the newer program has read the config: \
                 change it when UPGRADE STATUS says that it has ended.",
            ),
            Self::NoFile => f.write_str(
                "the server was started without a file: start it with one, or use CONFIG APPLY.",
            ),
            Self::Unread { file, error } => write!(
                f,
                "{} cannot be read: {error}. The running config goes on.",
                file.display()
            ),
            Self::Unwritten { file, error } => write!(
                f,
                "{} cannot be written: {error}. It is as it was.",
                file.display()
            ),
            Self::Edited { file } => write!(
                f,
                "{} was edited since it was read: CONFIG RELOAD takes it over, CONFIG REWRITE \
                 FORCE overwrites it.",
                file.display()
            ),
            Self::NothingBefore => f.write_str(
                "the server still has the config that it was started with: there is nothing to \
                 go back to.",
            ),
            Self::NoVersion {
                serial,
                oldest,
                newest,
            } => write!(
                f,
                "version {serial} is not kept: CONFIG HISTORY shows {oldest} to {newest}."
            ),
            Self::NoPool { name } => write!(
                f,
                "pool \"{name}\": SHOW POOLS lists them, POOL.ADD adds one."
            ),
            Self::PoolThere { name } => write!(
                f,
                "there is a pool {name} already: POOL.SET changes it, POOL.DEL removes it."
            ),
            Self::Ranges { why } => write!(f, "{why}{}", stop(why)),
            Self::NoRange { name } => write!(
                f,
                "range \"{name}\": SHOW RANGES lists them, RANGE.ADD adds one."
            ),
            Self::RangeThere { name } => write!(
                f,
                "there is a range {name} already: RANGE.SET changes it, RANGE.DRAIN removes it."
            ),
            Self::TooManyRanges { most } => write!(
                f,
                "limits.ranges_max ({most}) reached: remove some ranges or raise it."
            ),
            Self::Split(fault) => write!(f, "{fault}{}", stop(&fault.to_string())),
            Self::NothingShared => f.write_str(
                "nodes share no config: this server is not a node of a cluster, or `rideau \
                 cluster finish-upgrade` was not called yet.",
            ),
            Self::Behind { fault } => write!(
                f,
                "this node does not follow what all nodes share ({}): change it on another \
                 node, or with CONFIG PUSH.",
                fault.trim_end_matches('.')
            ),
            Self::NotShared(why) => match &**why {
                ConfigError::Changed(_) => {
                    write!(f, "{why}: look at it with CONFIG TEXT, and change that.")
                }
                why if is_unknown(why) => write!(
                    f,
                    "{why}: CONFIG GET shows what counts when the node has heard of it."
                ),
                why => write!(f, "{why}{}", stop(&why.to_string())),
            },
            Self::TooMany { most } => write!(
                f,
                "limits.names_max ({most}) reached: remove some names or raise it."
            ),
        }
    }
}

impl std::error::Error for Unchanged {}

impl From<NotDone> for Unchanged {
    fn from(why: NotDone) -> Self {
        match why {
            NotDone::Option(error) => Self::Option(error),
            NotDone::Values(error) => Self::Ranges {
                why: error.to_string(),
            },
        }
    }
}

/// Whether etcd may have taken it all the same.
fn is_unknown(why: &ConfigError) -> bool {
    matches!(why, ConfigError::Etcd(error) if error.is_unknown())
}

/// The first few, each with where it is: `3:7 unknown key `maxx`; did you mean
/// `max`?`
fn show(mut errors: Vec<String>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let more = errors.len().saturating_sub(FAULTS_MAX);
    errors.truncate(FAULTS_MAX);
    f.write_str(&errors.join(" "))?;
    if more > 0 {
        write!(f, " There are {more} more.")?;
    }
    Ok(())
}

fn errors(faults: &Faults) -> impl Iterator<Item = &Fault> {
    faults.iter().filter(|fault| fault.level == Level::Error)
}

fn line(fault: &Fault) -> String {
    format!("{}:{} {}", fault.line, fault.column, sentence(fault))
}

fn sentence(fault: &Fault) -> String {
    let Fault { message, hint, .. } = fault;
    let said = match hint.as_str() {
        "" => message.clone(),
        hint => format!("{message}; {hint}"),
    };
    let stop = stop(&said);
    said + stop
}
