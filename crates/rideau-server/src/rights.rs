//! A change of users counts at once: connections are woken to look at what they may
//! still watch and wait for, and asks in the background are refused.

use std::sync::Arc;

use crate::client::Wrong;
use crate::command;
use crate::config::{Config, OPERATOR, User};
use crate::daemon::Daemon;
use crate::holdings::Card;
use crate::later::Later;
use crate::outbox::Push;
use crate::outcome::Outcome;
use crate::ticket::Ticket;

impl Daemon {
    /// Have all those follow whose user is another than before.
    pub(crate) fn follow_users(&self, old: &Config) {
        let new = self.config.load_full();
        if old.users == new.users {
            return;
        }
        let is_changed = |name: &str| match (find(old, name), find(&new, name)) {
            // Nobody had to be a user, or nobody has to any more.
            (None, None) => old.users.is_empty() != new.users.is_empty(),
            (before, now) => before != now,
        };
        for client in self.clients.all() {
            if is_changed(&Arc::clone(&client.card.lock()).user) {
                client.outbox.wake();
            }
        }
        for (ticket, card, later) in self.holdings.asked(|card| is_changed(&card.user)) {
            let is_known = is_same(old, &new, &card.user);
            let may =
                is_known.and_then(|()| self.may_still_have(&card, ticket, &later, later.name()));
            let Err(wrong) = may else {
                continue;
            };
            command::deny(self, later.command, &card.user, &wrong);
            let Wrong(text) = wrong;
            let outcome = Outcome::denied(text);
            if later.refuse(outcome.clone()) {
                self.holdings.refuse(ticket);
                later.outbox().push(Push::Answer(ticket, outcome));
            }
        }
    }

    /// Whether the holder's user may have what was asked for, as it is called, by the
    /// rights of now.
    pub(crate) fn may_still_have(
        &self,
        card: &Card,
        ticket: Ticket,
        later: &Later,
        name: &str,
    ) -> Result<(), Wrong> {
        let config = self.config.load();
        let user = match &*card.user {
            // No user of the config is called so.
            OPERATOR => Some(&**self.operator.user()),
            name => find(&config, name),
        };
        let kind = ticket.kind.word();
        command::may_still_have(self, user, &config, later.command, kind, name)
    }
}

/// Whether those who asked by this name are still known by it: they may have been
/// nobody, or have another password now.
fn is_same(old: &Config, new: &Config, name: &str) -> Result<(), Wrong> {
    let no = match (find(old, name), find(new, name)) {
        (None, Some(_)) => "NOAUTH the config has users now: say who you are.",
        (Some(before), Some(now)) if before.password != now.password => {
            "NOAUTH the user has another password now: log in again."
        }
        _ => return Ok(()),
    };
    Err(Wrong(no.into()))
}

fn find<'a>(config: &'a Config, name: &str) -> Option<&'a User> {
    config.users.iter().find(|user| user.name == name)
}
