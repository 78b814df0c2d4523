//! Asks that wait until a value is free on any node.
//!
//! They wait in the partition of the name of their first range, one line for each range, so
//! that they get values in turn. While they wait, asks that come later stand back on all
//! nodes.

use std::time::Duration;

use rideau_cluster::PeerAsk;
use rideau_core::cluster::AskRoute;
use tokio::time::Instant;

use super::{Obtained, ValueAsks, error, wishes};
use crate::redis::client::SentCommand;
use crate::redis::commands::down_text;
use crate::state::cluster::{NoRoute, verbs};

/// How often the first of a line looks whether a node has something for it.
const LOOK: Duration = Duration::from_millis(20);

/// What a waiting ask tries when it is its turn.
#[derive(Clone, Copy)]
pub(super) enum Attempt<'a> {
    /// This command.
    Plain(&'a [u8]),
    /// This command, which takes this key.
    Keyed(&'a [u8], &'a [u8]),
}

impl<'a> Attempt<'a> {
    const fn command(self) -> &'a [u8] {
        match self {
            Self::Plain(command) | Self::Keyed(_, command) => command,
        }
    }
}

impl ValueAsks {
    /// Have a node that has free values execute a command, and wait for one if it may.
    pub(super) async fn seek(&self, ask: &PeerAsk, command: &[u8]) -> Vec<u8> {
        let since = Instant::now();
        let obtained = match self.stands_back(command) {
            true => Obtained::Nothing,
            false => self.obtain(ask, command, None).await,
        };
        let wait = ask.wait.unwrap_or_default();
        match obtained {
            Obtained::Nothing if wait.is_zero() => self.tell_none(ask, command, None).await,
            Obtained::Nothing => {
                let wait = wait.saturating_sub(since.elapsed());
                let ask = PeerAsk {
                    wait: Some(wait),
                    ..ask.clone()
                };
                self.to_line(&ask, command).await
            }
            other => told(other),
        }
    }

    /// Wait in the line of the first range, on the node that has it.
    async fn to_line(&self, ask: &PeerAsk, command: &[u8]) -> Vec<u8> {
        let tiers = wishes(command).tiers(&self.daemon);
        let name = tiers.concat().first().cloned().unwrap_or_default();
        let partition = self.cluster.partitions.of_name(name.as_bytes());
        let why = match self.cluster.route(partition, ask.wait).await {
            AskRoute::Here { .. } => {
                return self.wait_in_line(ask, Attempt::Plain(command)).await;
            }
            AskRoute::Hop { to, epoch } => {
                let ask = PeerAsk {
                    hop: ask.hop.saturating_add(1),
                    partition,
                    epoch,
                    command: verbs::write(verbs::LINE, &[command]),
                    ..ask.clone()
                };
                match self.cluster.ask(&to, &ask).await {
                    Ok(answer) => return answer.reply,
                    Err(error) => NoRoute::Link(to, error),
                }
            }
            AskRoute::NotMine { .. } => NoRoute::Moved,
            AskRoute::Down(reason) => NoRoute::Down(reason),
        };
        error(down_text(&self.cluster, &why, true))
    }

    /// Wait here until it is the ask's turn and a node has something for it.
    pub(super) async fn wait_in_line(&self, ask: &PeerAsk, attempt: Attempt<'_>) -> Vec<u8> {
        let command = attempt.command();
        let since = Instant::now();
        let until = since + ask.wait.unwrap_or_default();
        let ranges = wishes(command).tiers(&self.daemon).concat();
        let name = ranges.first().cloned().unwrap_or_default();
        let _waits = self.cluster.lines.wait_for(ranges);
        let line = self.cluster.lines.line(&name);
        let turn = tokio::time::timeout_at(until, line.lock()).await;
        while turn.is_ok() && Instant::now() < until {
            if self.is_any_known(command) {
                match self.attempt(ask, attempt).await {
                    Obtained::Nothing => (),
                    other => return told(other),
                }
            }
            tokio::time::sleep_until(until.min(Instant::now() + LOOK)).await;
        }
        self.tell_none(ask, command, Some(since.elapsed())).await
    }

    async fn attempt(&self, ask: &PeerAsk, attempt: Attempt<'_>) -> Obtained {
        match attempt {
            Attempt::Plain(command) => self.obtain(ask, command, None).await,
            Attempt::Keyed(key, command) => self.obtain_keyed(ask, key, command).await,
        }
    }

    /// Others wait for all that is wanted.
    fn stands_back(&self, command: &[u8]) -> bool {
        let ranges = wishes(command).tiers(&self.daemon).concat();
        !ranges.is_empty() && ranges.iter().all(|range| self.cluster.is_waited(range))
    }

    /// Tell a client that nothing is free.
    pub(super) async fn tell_none(
        &self,
        ask: &PeerAsk,
        command: &[u8],
        waited: Option<Duration>,
    ) -> Vec<u8> {
        let sent = SentCommand {
            waited,
            is_told_none: true,
            ..SentCommand::default()
        };
        self.run(ask, command, sent).await
    }
}

/// The answer for a client whose ask failed for another reason than free values.
pub(super) fn told(obtained: Obtained) -> Vec<u8> {
    match obtained {
        Obtained::Answer(reply) => reply,
        Obtained::Down(text) | Obtained::Unknown(text) => error(text),
        Obtained::Nothing => error("CLUSTERDOWN nothing is held. Ask again."),
    }
}
