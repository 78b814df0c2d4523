//! A client as commands want one, before it has said anything.

use std::sync::{Arc, Weak};
use std::task::Waker;

use rideau_config::User;
use rideau_resp::Protocol;

use super::{Client, Replies, SentCommand};
use crate::redis::commit_wait::CommitWait;
use crate::redis::peer::Proof;
use crate::redis::subscriptions::Watch;
use crate::state::attempts::Origin;
use crate::state::clients::ClientCard;
use crate::state::command_stats::Batch;
use crate::state::daemon::Daemon;

impl Client {
    /// The client with this card, as this user.
    pub(crate) fn new(
        daemon: &Arc<Daemon>,
        card: Arc<ClientCard>,
        user: Option<Arc<User>>,
    ) -> Self {
        let holder = *card.holder.lock();
        let usage = daemon.quotas.of(&card.card.lock().user);
        Self {
            daemon: Arc::clone(daemon),
            card,
            user,
            usage,
            connection: None,
            holder,
            session: None,
            far: None,
            protocol: Protocol::Resp2,
            out: Vec::new(),
            held_back: CommitWait::default(),
            watch: Watch::default(),
            proof: Proof::None,
            origin: Origin::Unknown,
            place: None,
            password: None,
            is_proven: false,
            generation: daemon.settings.generation(),
            config: daemon.config.load_full(),
            rules: Arc::clone(&daemon.catalog.load().rules),
            pool: Weak::new(),
            broker: Weak::new(),
            waker: Waker::noop().clone(),
            now: daemon.lease_table.now(),
            batch: Batch::default(),
            heartbeat: None,
            ending: None,
            replies: Replies::On,
            retry_after: None,
            full: None,
            transaction: None,
            is_in_exec: false,
            sent: SentCommand::default(),
            is_straight: false,
            is_tls: false,
        }
    }
}
