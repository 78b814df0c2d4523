//! Commands of operators about the nodes of a cluster.

use std::sync::Arc;

use rideau_resp::{Quoted, Request};

use super::{About, Subject, about, may_use_all};
use crate::redis::client::{Client, CommandError, Next, OnReady, PendingCommand};
use crate::state::cluster::Cluster;
use crate::state::daemon::Unchanged;

/// These commands.
pub(super) const TABLE: &[About] = &[
    about(
        "NODE.DRAIN",
        2,
        "config",
        Subject::Nothing,
        "node",
        "Have a node of the cluster give away its partitions, until NODE.UNDRAIN",
        drain,
    ),
    about(
        "NODE.UNDRAIN",
        2,
        "config",
        Subject::Nothing,
        "node",
        "Let a node of the cluster own its share again",
        undrain,
    ),
    about(
        "NODE.UPGRADED",
        1,
        "config",
        Subject::Nothing,
        "",
        "All nodes run this version: use what earlier versions do not know",
        upgraded,
    ),
];

fn drain(client: &mut Client, request: Request<'_>) -> Result<Next, CommandError> {
    let (cluster, name) = named(client, request, "NODE.DRAIN")?;
    let table = cluster.node.table();
    let owners = &table.owners;
    if !owners.nodes().contains_key(&name) {
        let text = format!(
            "ERR there is no live node {}: SHOW NODES lists them.",
            Quoted(name.as_bytes())
        );
        return Err(CommandError(text));
    }
    let mut others = owners.nodes().keys().filter(|other| **other != name);
    if !others.any(|other| !owners.is_draining(other)) {
        let text = format!(
            "ERR node {name} is the last one that may own partitions: add another node, or let one \
             own its share again with NODE.UNDRAIN."
        );
        return Err(CommandError(text));
    }
    Ok(set(client, cluster, name, true))
}

fn undrain(client: &mut Client, request: Request<'_>) -> Result<Next, CommandError> {
    let (cluster, name) = named(client, request, "NODE.UNDRAIN")?;
    Ok(set(client, cluster, name, false))
}

fn upgraded(client: &mut Client, request: Request<'_>) -> Result<Next, CommandError> {
    request.arguments().end("NODE.UPGRADED")?;
    may_use_all(client, "the whole config")?;
    let by = client.user_name().to_owned();
    let finished = client.daemon.finish_upgrade(&by)?;
    let daemon = Arc::clone(&client.daemon);
    let answer = async move {
        let finished = finished.await;
        let finish: OnReady = Box::new(move |client: &mut Client| match finished {
            Ok(is_new) => {
                if is_new {
                    let text = "the upgrade of the cluster was finished".to_owned();
                    daemon.events.add("cluster", "nodes", text, Some(&by));
                }
                client.reply().simple(match is_new {
                    true => "OK",
                    false => "OK, nothing was left to do",
                });
            }
            Err(why) => {
                let CommandError(text) = Unchanged::NotShared(Arc::new(why)).into();
                client.reply().error(text);
            }
        });
        finish
    };
    Ok(Next::Wait(PendingCommand::work("NODE", Box::pin(answer))))
}

/// The cluster, and the node that a command names.
fn named(
    client: &Client,
    request: Request<'_>,
    command: &'static str,
) -> Result<(Arc<Cluster>, String), CommandError> {
    let mut arguments = request.arguments();
    let name = arguments.text(command, "a node")?.to_owned();
    arguments.end(command)?;
    let none = || CommandError("ERR this server is not a node of a cluster.".into());
    let cluster = client.daemon.cluster.clone().ok_or_else(none)?;
    Ok((cluster, name))
}

/// Write down whether a node shall own nothing.
fn set(client: &Client, cluster: Arc<Cluster>, name: String, is_draining: bool) -> Next {
    let waits_for = name.clone();
    let (daemon, by) = (Arc::clone(&client.daemon), client.user_name().to_owned());
    let answer = async move {
        let done = cluster.node.set_draining(&name, is_draining).await;
        let finish: OnReady = match done {
            Ok(()) => {
                let text = match is_draining {
                    true => "the node was told to give away what it owns",
                    false => "the node was told to own its share again",
                };
                daemon.events.add("node", &name, text.into(), Some(&by));
                Box::new(|client: &mut Client| {
                    client.reply().simple("OK");
                })
            }
            Err(error) => Box::new(move |client: &mut Client| {
                let text = format!("UNKNOWN etcd did not confirm the change: {error}");
                client.reply().error(text);
            }),
        };
        finish
    };
    Next::Wait(PendingCommand::work(waits_for, Box::pin(answer)))
}
