//! Commands for the nodes of a cluster.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use rideau_resp::Value;
use serde_json::json;

use super::table::Table;
use super::{Done, Failure, Manner, answer, change, control, show};
use crate::wire::Wire;

#[derive(Args, Debug)]
pub(crate) struct ClusterWords {
    #[command(subcommand)]
    what: Change,
}

#[derive(Subcommand, Debug)]
enum Change {
    /// Have a node give away its partitions, and wait until it owns none
    ///
    /// It stays so, also when the node is started again, until `undrain`. The node goes on to
    /// answer its clients.
    Drain {
        /// The name of the node, from `rideau status nodes`
        node: String,
        /// Do not wait until the node owns nothing
        #[arg(long)]
        no_wait: bool,
    },
    /// Let a node own partitions again
    Undrain {
        /// The name of the node, from `rideau status nodes`
        node: String,
    },
    /// Say that no node of an earlier version is left, so that all nodes use what such a node
    /// does not know
    ///
    /// It is refused while one lives. None can join from then on.
    FinishUpgrade,
    /// Go on with an etcd that was restored from a backup, while all nodes are stopped
    ///
    /// What was reserved and released after the backup is not known, so all values are in
    /// quarantine at first: until `quarantine` of their range is over, only those are in use
    /// again that are renewed or written. Fences go on above all that were ever given.
    AcceptRestore {
        /// The config file of a node
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

/// Where values can be moved to.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
enum Engine {
    /// The etcd of the cluster in the config.
    Etcd,
}

#[derive(Args, Debug)]
pub(crate) struct Move {
    /// Where to
    #[arg(long, value_enum, value_name = "ENGINE")]
    to: Engine,
    /// The config file, which has the cluster and the store where the values are
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// How the server calls us.
const NAME: &str = "rideau-cli";
/// How often it is looked at.
const LOOK: Duration = Duration::from_millis(200);

pub(crate) async fn run(words: &ClusterWords, manner: &Manner) -> Done {
    match &words.what {
        Change::AcceptRestore { file } => accept_restored(file, manner).await,
        Change::FinishUpgrade => {
            let mut wire = control::connect(manner, NAME).await?;
            let answered = wire.ask(&["NODE.UPGRADED"]).await?;
            answer::print(show::good(answered)?, manner)
        }
        Change::Undrain { node } => {
            let mut wire = control::connect(manner, NAME).await?;
            let answered = wire.ask(&["NODE.UNDRAIN", node]).await?;
            answer::print(show::good(answered)?, manner)
        }
        Change::Drain { node, no_wait } => {
            let mut wire = control::connect(manner, NAME).await?;
            let answered = wire.ask(&["NODE.DRAIN", node]).await?;
            let answered = show::good(answered)?;
            if *no_wait {
                return answer::print(answered, manner);
            }
            wait_until_empty(&mut wire, node, manner).await
        }
    }
}

async fn accept_restored(file: &Path, manner: &Manner) -> Done {
    let config = match change::config_in(file, manner)? {
        Ok(config) => config,
        Err(code) => return Ok(code),
    };
    rideau_daemon::accept_restored(&config).await?;
    if manner.json {
        show::print_json(&json!({ "accepted": true }))?;
    } else {
        let text = "accepted. Start the nodes: values are in quarantine until their holders are \
                    heard of, or it is over.";
        show::print_text(text)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Bring the values of a server that does not run into a new cluster.
pub(crate) async fn move_values(words: &Move, manner: &Manner) -> Done {
    let Engine::Etcd = words.to;
    let config = match change::config_in(&words.file, manner)? {
        Ok(config) => config,
        Err(code) => return Ok(code),
    };
    let folder = rideau_daemon::move_to_etcd(&config).await?;
    if manner.json {
        show::print_json(&json!({ "moved": folder }))?;
    } else {
        show::print_text(&format!(
            "moved what was in {}. Start the nodes of the cluster.",
            folder.display()
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Say how many partitions a node owns, until it owns none.
async fn wait_until_empty(wire: &mut Wire, node: &str, manner: &Manner) -> Done {
    let mut last = None;
    loop {
        let Some(owned) = owned(wire, node).await? else {
            let text = format!("node {node} is gone; what it owned is taken over");
            return Err(Failure::Broken(text));
        };
        if last != Some(owned) {
            last = Some(owned);
            if manner.json {
                show::print_json(&json!({ "node": node, "partitions": owned }))?;
            } else {
                show::print_text(&format!("{node} owns {owned} partitions"))?;
            }
        }
        if owned == 0 {
            return Ok(ExitCode::SUCCESS);
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// How many partitions a node owns, if it lives.
async fn owned(wire: &mut Wire, node: &str) -> Result<Option<u64>, Failure> {
    let shown: Value = show::good(wire.ask(&["SHOW", "NODES", node]).await?)?;
    let table = Table::of(&shown).map(|table| table.json());
    let rows = table.and_then(|table| table.as_array().cloned());
    let row = rows.and_then(|rows| rows.into_iter().next());
    let row = row.filter(|row| row["state"] != "lost");
    Ok(row.and_then(|row| row["partitions"].as_u64()))
}
