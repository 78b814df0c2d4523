//! A change of users counts at once: connections are woken to look at what they may
//! still watch and wait for, and asks in the background are refused.

use std::sync::Arc;

use rideau_config::{Config, OPERATOR, User};

use crate::state::answer::Outcome;
use crate::state::daemon::Daemon;
use crate::state::holder::Holder;
use crate::state::pending::{Later, Needs};
use crate::state::push::Push;
use crate::state::ticket::Ticket;

impl Daemon {
    /// Have all clients and asks follow whose user is another than before.
    pub(crate) fn follow_users(&self, old: &Config) {
        let new = self.config.load_full();
        if old.users == new.users {
            return;
        }
        let is_changed = |name: &str| match (find(old, name), find(&new, name)) {
            // No client had to be a user, or none has to any more.
            (None, None) => old.users.is_empty() != new.users.is_empty(),
            (before, now) => before != now,
        };
        for client in self.clients.all() {
            if is_changed(&Arc::clone(&client.card.lock()).user) {
                client.outbox.wake();
            }
        }
        for (ticket, card, later) in self.lease_table.asked(|card| is_changed(&card.user)) {
            let is_known = is_same(old, &new, &card.user);
            let may =
                is_known.and_then(|()| self.may_still_have(&card, ticket, &later, later.name()));
            let Err(text) = may else {
                continue;
            };
            self.deny(later.needs, &card.user, &text);
            let outcome = Outcome::denied(text);
            if later.refuse(outcome.clone()) {
                self.lease_table.refuse(ticket);
                later.outbox().push(Push::Answer(ticket, outcome));
            }
        }
    }

    /// Whether a user has the right that a command needs.
    ///
    /// # Errors
    ///
    /// The error for the client.
    #[inline]
    pub(crate) fn allows(
        &self,
        user: Option<&User>,
        config: &Config,
        needs: Needs,
    ) -> Result<(), String> {
        let Needs {
            name,
            right,
            is_control,
        } = needs;
        if right.is_empty() {
            return Ok(());
        }
        match user {
            Some(user) if user.may(right) => Ok(()),
            Some(user) => Err(format!(
                "NOPERM user {} may not use {name}: add \"{right}\" to its allow list.",
                user.name
            )),
            None if !config.users.is_empty() => {
                Err("NOAUTH authentication required: send AUTH user password.".into())
            }
            None if is_control => Err(self.only_for_operators(name)),
            None => Ok(()),
        }
    }

    /// A client that did not log in may not use this, where there are no users.
    #[cold]
    pub(crate) fn only_for_operators(&self, name: &str) -> String {
        let advice = self.operator.advice();
        format!("NOAUTH {name} is not open to all: {advice}")
    }

    /// Write down that a user may not use a command, if an error says so.
    #[cold]
    pub(crate) fn deny(&self, needs: Needs, user: &str, error: &str) {
        let right = match needs.right {
            "" => needs.name,
            right => right,
        };
        self.logins.refused(user, right, error);
    }

    /// Whether the holder's user may have what was asked for, as it is called, by the
    /// rights of now.
    ///
    /// # Errors
    ///
    /// The error for the client.
    pub(crate) fn may_still_have(
        &self,
        card: &Holder,
        ticket: Ticket,
        later: &Later,
        name: &str,
    ) -> Result<(), String> {
        let config = self.config.load();
        let user = match &*card.user {
            // No user of the config is called so.
            OPERATOR => Some(&**self.operator.user()),
            name => find(&config, name),
        };
        self.allows(user, &config, later.needs)?;
        let kind = ticket.kind.word();
        match user {
            Some(user) if !user.may_use(kind, name) => Err(no_use(user, kind, name)),
            _ => Ok(()),
        }
    }
}

/// A user may not use this thing.
#[cold]
pub(crate) fn no_use(user: &User, kind: &str, name: &str) -> String {
    format!(
        "NOPERM user {} may not use {kind} {name}: add \"{kind}:{name}\" to its on list.",
        user.name
    )
}

/// Whether clients that asked by this name are still known by it: they may have been no
/// user, or have another password now.
fn is_same(old: &Config, new: &Config, name: &str) -> Result<(), String> {
    let no = match (find(old, name), find(new, name)) {
        (None, Some(_)) => "NOAUTH the config has users now: send AUTH user password.",
        (Some(before), Some(now)) if before.password != now.password => {
            "NOAUTH the user has another password now: log in again."
        }
        _ => return Ok(()),
    };
    Err(no.into())
}

fn find<'a>(config: &'a Config, name: &str) -> Option<&'a User> {
    config.users.iter().find(|user| user.name == name)
}
