//! Commands of clients of other nodes, executed here.
//!
//! A command that came to another node and is about something that this node owns is sent
//! here. It is executed with the rights of the user that the other node names, and answered
//! in the protocol that its client speaks. What it waits for is given up when the other node
//! does not want the answer any more.

use std::mem;
use std::sync::Arc;

use parking_lot::Mutex;
use rideau_config::User;
use rideau_core::cluster::Incarnation;
use rideau_process::panics;
use rideau_resp::{Protocol, RequestLimits, RequestParser};

use crate::redis::client::{Client, CommandError, Next, OnReady, PendingCommand, SentCommand};
use crate::redis::commands;
use crate::redis::login;
use crate::redis::peer::Proof;
use crate::state::clients::ClientCard;
use crate::state::daemon::Daemon;
use crate::state::end::EndReason;
use crate::state::holder::{Holder, HolderId};
use crate::state::ticket::Ticket;
use crate::state::values;

/// A command of a client of another node.
#[derive(Clone, Debug)]
pub(crate) struct RemoteCommand {
    /// Its user; none if that node has none.
    pub user: Option<Box<str>>,
    /// The protocol that its client speaks.
    pub protocol: Protocol,
    /// The command of the client.
    pub bytes: Vec<u8>,
    /// The session of this node that its connection is in.
    pub session: Option<(Ticket, HolderId)>,
    /// Details from the node that forwarded it.
    pub sent: SentCommand,
    /// It may wait here.
    pub may_wait: bool,
}

/// Execute a command of a client of another node. Says what the client is answered, and
/// which session it is in then.
pub(crate) async fn execute(
    daemon: &Arc<Daemon>,
    node: &Incarnation,
    command: RemoteCommand,
) -> (Vec<u8>, Option<Ticket>) {
    let mut remote = RemoteClient::new(daemon, node, &command);
    let done = panics::contain_async(remote.0.run(&command.bytes)).await;
    let session = remote.0.session.map(|(ticket, _)| ticket);
    match done {
        Ok(()) => (mem::take(&mut remote.0.out), session),
        Err(panicked) => (format!("-ERR {panicked}.\r\n").into_bytes(), session),
    }
}

/// A client of another node, for as long as one command takes.
struct RemoteClient(Client);

impl RemoteClient {
    fn new(daemon: &Arc<Daemon>, node: &Incarnation, command: &RemoteCommand) -> Self {
        let proof = Proof::Node(command.user.clone());
        let user = proof.user(daemon);
        let holder = Arc::new(Holder {
            name: Mutex::new(format!("node-{}", node.name)),
            user: User::name_of(user.as_ref()).into(),
            session: None,
            connection: None,
        });
        let at = daemon.lease_table.open(Arc::clone(&holder));
        let bytes_max = daemon.config.load().limits.output_max as usize;
        let card = ClientCard::new(0, node.name.clone(), (&holder, at), bytes_max);
        let mut client = Client {
            proof,
            is_proven: true,
            session: command.session,
            sent: command.sent,
            is_in_exec: !command.may_wait,
            ..Client::new(daemon, Arc::new(card), user)
        };
        client.speak(command.protocol);
        Self(client)
    }
}

impl Drop for RemoteClient {
    fn drop(&mut self) {
        let client = &self.0;
        let _ = panics::contain(|| client.daemon.end_holder(client.holder, EndReason::Lost));
    }
}

impl Client {
    /// Execute one command, and wait until the answer may be told.
    async fn run(&mut self, bytes: &[u8]) {
        let limits = RequestLimits {
            bulk_max: bytes.len().max(1),
            frame_max: bytes.len().max(1),
            ..RequestLimits::default()
        };
        let step = match RequestParser::default().next(bytes, &mut 0, &limits) {
            Ok(Some(request)) => commands::execute(self, request),
            _ => {
                let text = "ERR another node sent something that is not a command: please report \
                    it.";
                self.reply().error(text);
                return;
            }
        };
        if let Next::Wait(wait) = step {
            match self.wait_for(wait).await {
                Ok(finish) => {
                    self.hear();
                    finish(self);
                }
                Err(CommandError(text)) => {
                    self.reply().error(text);
                }
            }
        }
        self.end_batch();
        if let Err(failed) = self.held_back.over().await {
            self.out.clear();
            let text = values::unsafe_text(&failed);
            self.reply().error(text);
        }
    }

    /// Wait for an answer. A client that may not have it any more is told so, and what was
    /// given in that moment goes back.
    async fn wait_for(&mut self, wait: PendingCommand) -> Result<OnReady, CommandError> {
        let PendingCommand {
            answer,
            name,
            awaits,
            is_work,
            ..
        } = wait;
        let _waiting = (!is_work).then(|| self.begin_wait()).transpose()?;
        let finish = answer.await;
        if self.generation != self.daemon.settings.generation() {
            login::follow(self);
            commands::may_still(self, &awaits, &name)?;
        }
        Ok(finish)
    }
}
