//! One that has joined a session over HTTP, for as long as one request takes.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{MissedTickBehavior, interval};

use super::answer::HttpError;
use super::request::AdminRequest;
use super::tickets::{no_session, session_of};
use crate::redis::client::{Awaits, Client, CommandError, OnReady, PendingCommand};
use crate::redis::commands;
use crate::redis::login::{self};
use crate::state::clients::ClientCard;
use crate::state::daemon::Daemon;
use crate::state::end::EndReason;
use crate::state::holder::{Holder, HolderId};
use crate::state::ticket::Ticket;

/// A session is renewed this often while one of its requests waits: an open
/// connection is a sign of life.
const RENEW: Duration = Duration::from_millis(200);

/// A client that has joined a session for one request, and leaves it when dropped.
pub(super) struct SessionClient {
    pub(super) client: Client,
    session: Option<Ticket>,
}

impl SessionClient {
    pub(super) fn enter(request: &AdminRequest) -> Result<Self, HttpError> {
        let Some(id) = &request.session else {
            return Err(HttpError::wrong(
                "Asks belong to a session: POST /v1/sessions opens one, and its id goes into the \
                 header Rideau-Session.",
            ));
        };
        let session = session_of(id)?;
        let daemon = request.daemon();
        let row = daemon.sessions.attach(session, request.by());
        let row = row.ok_or_else(|| no_session(id))?;
        let mut client = client(daemon, &row.card, row.holder, Some(row.ticket));
        become_visitor(&mut client, request);
        client.session = Some((session, row.holder));
        Ok(Self {
            client,
            session: Some(session),
        })
    }

    /// A client that is in no session, and holds nothing by itself.
    pub(super) fn alone(request: &AdminRequest) -> Self {
        let daemon = request.daemon();
        let card = Arc::new(Holder {
            name: Mutex::new("http".into()),
            user: request.by().into(),
            session: None,
            connection: None,
        });
        let holder = daemon.lease_table.open(Arc::clone(&card));
        let mut client = client(daemon, &card, holder, None);
        become_visitor(&mut client, request);
        Self {
            client,
            session: None,
        }
    }

    /// Wait for the answer; the session stays alive meanwhile. A client that may not
    /// have it any more is told so, and what was given in that moment goes back.
    pub(super) async fn wait(&mut self, wait: PendingCommand) -> Result<OnReady, HttpError> {
        let PendingCommand {
            mut answer,
            name,
            awaits,
            is_work,
            ..
        } = wait;
        let waiting = (!is_work).then(|| self.client.begin_wait()).transpose();
        let _waiting = waiting.map_err(|CommandError(text)| HttpError::of_command(&text))?;
        let mut ticks = interval(RENEW);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                finish = &mut answer => {
                    self.follow(&awaits, &name)?;
                    return Ok(finish);
                }
                _ = ticks.tick() => {
                    self.follow(&awaits, &name)?;
                    let user = self.client.user_name();
                    if let Some(session) = self.session {
                        let _ = self.client.daemon.sessions.renew(session, user);
                    }
                }
            }
        }
    }

    /// Follow a change of what its user may do.
    fn follow(&mut self, awaits: &Awaits, name: &str) -> Result<(), HttpError> {
        let client = &mut self.client;
        let generation = client.daemon.settings.generation();
        if client.generation == generation {
            return Ok(());
        }
        let user = login::current(&client.daemon, client.user.as_ref(), client.password);
        let may = user.and_then(|user| {
            client.generation = generation;
            client.user = user;
            client.read_config();
            commands::may_still(client, awaits, name)
        });
        may.map_err(|wrong| {
            commands::deny(client, client.user_name(), &wrong);
            HttpError::of_executed(&wrong.0)
        })
    }
}

impl Drop for SessionClient {
    fn drop(&mut self) {
        let daemon = &self.client.daemon;
        match self.session {
            Some(session) => daemon.sessions.detach(session, EndReason::Quit),
            None => drop(daemon.end_holder(self.client.holder, EndReason::Quit)),
        }
    }
}

/// Make the client the user that makes the request, with what was known of it then.
fn become_visitor(client: &mut Client, request: &AdminRequest) {
    client.user.clone_from(&request.user);
    client.password = request.password;
    client.generation = request.generation;
}

/// A client as commands want one. It is in no list: the session is the holder,
/// and is seen.
fn client(
    daemon: &Arc<Daemon>,
    holder_card: &Arc<Holder>,
    holder: HolderId,
    session: Option<Ticket>,
) -> Client {
    let bytes_max = daemon.config.load().limits.output_max as usize;
    let card = ClientCard {
        session: Mutex::new(session.map(|session| session.to_string())),
        ..ClientCard::new(0, "http".into(), (holder_card, holder), bytes_max)
    };
    Client::new(daemon, Arc::new(card), None)
}
