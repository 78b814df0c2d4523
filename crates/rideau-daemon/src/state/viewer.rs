//! Which names and tickets a user may see.

use rideau_apps::Event;
use rideau_config::{DEFAULT_USER, KINDS, User, text};
use serde_json::Value;

use crate::state::holder::Holder;
use crate::state::ticket::Ticket;
use crate::state::values::sees_fence;

/// What a client sees: names that it may use, and tickets in full that are its own, for
/// with one a thing can be released.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Viewer<'a> {
    /// The user that looks, where there are users.
    user: Option<&'a User>,
    /// It sees the tickets of others in full.
    is_all: bool,
    /// It is known, so its rights say what it reads of programs; an unknown client
    /// reads nothing of them.
    is_known: bool,
}

impl<'a> Viewer<'a> {
    /// Everything.
    pub(crate) const ALL: Viewer<'static> = Viewer {
        user: None,
        is_all: true,
        is_known: true,
    };

    /// The viewer for this user, or for any client if there are no users.
    pub(crate) fn of(user: Option<&'a User>) -> Self {
        Self {
            user,
            is_all: user.is_some_and(|user| user.may("client")),
            is_known: user.is_some(),
        }
    }

    /// The owner whose things it sees; none if it sees those of all.
    pub(crate) fn owner(self) -> Option<&'a str> {
        match self.user {
            _ if self.is_all => None,
            Some(user) => Some(&user.name),
            None => Some(DEFAULT_USER),
        }
    }

    /// It sees what is this holder's.
    pub(crate) fn sees_of(self, card: &Holder) -> bool {
        self.owner().is_none_or(|owner| *owner == *card.user)
    }

    /// It may know this name. What is no pool, broker, regulator or lock has no
    /// names that one may not know.
    pub(crate) fn sees(self, kind: &str, name: &str) -> bool {
        let kind = if kind == "group" { "pool" } else { kind };
        let has_names = KINDS.contains(&kind);
        !has_names || self.user.is_none_or(|user| user.may_use(kind, name))
    }

    /// It may know of an event of this kind and name.
    pub(crate) fn sees_event(self, kind: &str, name: &str) -> bool {
        let sees = match kind {
            // They tell where others are, and what they may not do.
            "login" | "denied" => self.is_known && self.owner().is_none_or(|own| own == name),
            // They tell what programs there are, and more of the config.
            "config" => {
                let user = self.user;
                self.is_known && user.is_none_or(|user| user.may("config"))
            }
            _ => true,
        };
        if !sees {
            return false;
        }
        let Some(user) = self.user.filter(|user| !user.may_use_all()) else {
            return true;
        };
        match kind {
            "leak" => user.may_use("pool", name),
            "process" => {
                let pool = name.rsplit_once('.').map_or(name, |(pool, _)| pool);
                user.may_use("pool", pool)
            }
            "shed" => ["pool", "broker", "regulator"]
                .iter()
                .any(|kind| user.may_use(kind, name)),
            // These tell of all that was changed, and of what others do.
            "config" | "client" | "session" | "alarm" => false,
            kind => self.sees(kind, name),
        }
    }

    /// It may read what programs of this pool or app write, and why they fail.
    pub(crate) fn sees_output(self, kind: &str, name: &str) -> bool {
        let right = match kind {
            "pool" | "app" => kind,
            _ => return true,
        };
        let may_read = |user: &User| user.may(right) && user.may_use(kind, name);
        self.is_known && self.user.is_none_or(may_read)
    }

    /// An event in words, with all that may be seen of it.
    pub(crate) fn text_of(self, event: &Event) -> String {
        event.text(self.sees_output(event.kind, &event.name))
    }

    /// The same as one line of JSON.
    pub(crate) fn json_of(self, event: &Event) -> Value {
        event.json(self.sees_output(event.kind, &event.name))
    }

    /// This holder is its user's.
    pub(crate) fn is_of(self, card: &Holder) -> bool {
        self.user.is_some_and(|user| *user.name == *card.user)
    }

    /// It sees a connection or a session of this holder: all of them, if no name is
    /// kept from it, and else those of its user.
    pub(crate) fn sees_holder(self, card: &Holder) -> bool {
        self.sees_all_names() || self.is_of(card)
    }

    /// It may know this key of the config.
    pub(crate) fn sees_path(self, path: &str) -> bool {
        if self.sees_all_names() {
            return true;
        }
        let named = text::named(path);
        named.is_some_and(|(kind, name)| self.sees(kind, &name))
    }

    /// It may know the fence of a value that has this owner.
    pub(crate) fn sees_fence(self, owner: Option<&[u8]>) -> bool {
        self.user.is_none() || sees_fence(self.user, owner)
    }

    /// No name is kept from it.
    pub(crate) fn sees_all_names(self) -> bool {
        self.user.is_none_or(User::may_use_all)
    }

    /// A ticket, in full if one may use it.
    pub(crate) fn ticket(self, ticket: Ticket, card: &Holder) -> String {
        if self.sees_of(card) {
            ticket.to_string()
        } else {
            format!("{ticket:?}")
        }
    }
}
