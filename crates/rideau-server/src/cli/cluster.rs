//! Commands for the nodes of a cluster.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use rideau_resp::Value;
use serde_json::json;

use super::table::Table;
use super::{Done, Failure, Manner, answer, control, show};
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
}

/// How the server calls us.
const NAME: &str = "rideau-cli";
/// How often it is looked at.
const LOOK: Duration = Duration::from_millis(200);

pub(crate) async fn run(words: &ClusterWords, manner: &Manner) -> Done {
    let mut wire = control::connect(manner, NAME).await?;
    match &words.what {
        Change::Undrain { node } => {
            let answered = wire.ask(&["NODE.UNDRAIN", node]).await?;
            answer::print(show::good(answered)?, manner)
        }
        Change::Drain { node, no_wait } => {
            let answered = wire.ask(&["NODE.DRAIN", node]).await?;
            let answered = show::good(answered)?;
            if *no_wait {
                return answer::print(answered, manner);
            }
            wait_until_empty(&mut wire, node, manner).await
        }
    }
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
