//! Which reservation a command is about, and whether it is the client's to change.
//!
//! A value belongs to the user who reserved it. To change it or give it back a client
//! needs its ticket, or has to be the user who reserved it, and knows its fence where
//! the range wants that. A user with the right `range` may do it in the holder's place.

use std::fmt::Display;

use rideau::Failed;
use rideau::allocator::{Proof, Refused, Seen, Which, parse_value};
use rideau_resp::{Arguments, Mistake, Quoted};

use super::no;
use crate::redis::client::{Client, CommandError};
use crate::redis::commands::has;
use crate::state::grant::Grant;
use crate::state::ticket::{Ticket, TicketKind};
use crate::state::values::owner_of;

/// Which reservation a command is about.
pub(super) struct Target<'a> {
    pub(super) which: Which<'a>,
    /// The fence of the ticket.
    pub(super) fence: Option<u64>,
    /// As it was written.
    pub(super) word: &'a [u8],
}

impl<'a> Target<'a> {
    pub(super) fn parse(
        client: &Client,
        command: &'static str,
        arguments: &mut Arguments<'a>,
    ) -> Result<Self, CommandError> {
        let word = arguments.word(command, "a value, a ticket or KEY")?;
        Self::of(client, word, arguments)
    }

    pub(super) fn of(
        client: &Client,
        word: &'a [u8],
        arguments: &mut Arguments<'a>,
    ) -> Result<Self, CommandError> {
        if word.eq_ignore_ascii_case(b"KEY") {
            let key = arguments.word("KEY", "a key")?;
            return Ok(Self {
                which: Which::Key(key),
                fence: None,
                word: key,
            });
        }
        if word.starts_with(b"v-") {
            let (value, fence) = ticket(client, word)?;
            return Ok(Self {
                which: Which::Value(value),
                fence: Some(fence),
                word,
            });
        }
        let text = std::str::from_utf8(word);
        let text = text.map_err(|_| Mistake::wrong("KEY", "a value in UTF-8", word))?;
        let parsed = parse_value(text);
        let (_, value) = parsed.map_err(|error| {
            let word = Quoted(word);
            CommandError(format!("ERR {word} is not a value: {error}."))
        })?;
        Ok(Self {
            which: Which::Value(value),
            fence: None,
            word,
        })
    }

    /// As it was written.
    pub(super) fn shown(&self) -> Quoted<'a> {
        Quoted(self.word)
    }

    /// The client may use the range of what is meant. Of reservations with one key it
    /// knows only those that it may use.
    pub(super) fn check(&mut self, client: &Client) -> Result<(), CommandError> {
        match self.which {
            Which::Value(value) => may_use_value(client, value, self.shown()),
            Which::Key(key) => self.keep_seen(client, key),
        }
    }

    /// The client may give this back: it is its own, or it has a right to do so and may
    /// use the range.
    pub(super) fn check_end(&mut self, client: &Client, right: &str) -> Result<(), CommandError> {
        let may_end = [right, "reserve", "range"];
        let checked = match may_end.iter().any(|right| has(client, right)) {
            true => self.check(client),
            false => Err(no_right(client, right, self.shown())),
        };
        match checked {
            Err(_) if self.is_own(client) => Ok(()),
            checked => checked,
        }
    }

    /// The proof that the client may change the value: its owner and the fence that it sent.
    pub(super) fn proof<'c>(
        &self,
        client: &'c Client,
        fence: Option<u64>,
    ) -> Result<Proof<'c>, CommandError> {
        match self.fence {
            Some(own) if fence.is_some_and(|fence| fence != own) => Err(no::stale(self.shown())),
            // A ticket needs nothing else.
            Some(_) => Ok(Proof {
                fence: self.fence,
                owner: None,
            }),
            None => Ok(Proof {
                fence,
                owner: (!has(client, "range")).then(|| owner_of(client.user.as_deref())),
            }),
        }
    }

    /// Everything that is meant belongs to the client's user.
    #[cold]
    fn is_own(&self, client: &Client) -> bool {
        let owner = owner_of(client.user.as_deref());
        let seen = self.seen(client).unwrap_or_default();
        !seen.is_empty() && seen.iter().all(|seen| seen.owner.as_deref() == Some(owner))
    }

    fn seen(&self, client: &Client) -> Result<Vec<Seen>, Failed> {
        let ranges = &client.daemon.values.ranges;
        ranges.lookup(self.which).into_parts().0
    }

    /// A user that may use some ranges only neither touches nor learns of what others
    /// have under a key.
    fn keep_seen(&mut self, client: &Client, key: &[u8]) -> Result<(), CommandError> {
        let Some(user) = client.user.as_ref() else {
            return Ok(());
        };
        if user.may_use("range", "*") {
            return Ok(());
        }
        let seen = self.seen(client);
        let mut seen = seen.map_err(|failed| no::failed(client, &failed, Quoted(key)))?;
        let all = seen.len();
        seen.retain(|seen| is_seen(client, seen));
        if seen.len() == all && all > 0 {
            return Ok(());
        }
        let no = match &seen[..] {
            [one] => {
                self.which = Which::Value(one.value);
                return Ok(());
            }
            [] => Refused::NotReserved,
            several => Refused::Ambiguous {
                count: several.len(),
            },
        };
        Err(no::failed(client, &Failed::Refused(no), Quoted(key)))
    }
}

/// The client may know of this reservation.
pub(super) fn is_seen(client: &Client, seen: &Seen) -> bool {
    let Some(user) = client.user.as_ref() else {
        return true;
    };
    let ranges = &client.daemon.values.ranges;
    let name = seen.range.and_then(|range| ranges.name(range));
    user.may_use("range", name.as_deref().unwrap_or("*"))
}

/// The client may use the range of this value. If not, it does not learn which that is,
/// nor whether there is one.
pub(super) fn may_use_value(
    client: &Client,
    value: u128,
    shown: impl Display,
) -> Result<(), CommandError> {
    if client.user.is_none() {
        return Ok(());
    }
    let catalog = client.daemon.catalog.load();
    let place = catalog.ranges.of(value);
    // A range that is gone may have values that are held.
    let name = place.map_or("*", |(place, _)| &place.name);
    may_use_values(client, [name], shown)
}

/// The same of several ranges, by their names.
pub(super) fn may_use_values<'n>(
    client: &Client,
    names: impl IntoIterator<Item = &'n str>,
    shown: impl Display,
) -> Result<(), CommandError> {
    let Some(user) = client.user.as_ref() else {
        return Ok(());
    };
    let mut names = names.into_iter();
    if names.all(|name| user.may_use("range", name)) {
        return Ok(());
    }
    Err(CommandError(format!(
        "NOPERM user {} may not use {shown}: add its range to the user's on list.",
        user.name
    )))
}

#[cold]
fn no_right(client: &Client, right: &str, shown: impl Display) -> CommandError {
    CommandError(format!(
        "NOPERM user {} may not do this with {shown}, which is not its own: add \"{right}\" to its \
         allow list.",
        client.user_name()
    ))
}

/// The value and fence of a ticket.
fn ticket(client: &Client, word: &[u8]) -> Result<(u128, u64), CommandError> {
    let read = match Ticket::parse(word) {
        Some(ticket) if ticket.kind == TicketKind::Value => {
            let lease_table = &client.daemon.lease_table;
            let looked = lease_table.look(ticket, client.scope(), |thing| match thing.grant() {
                Some(Grant::Value(held)) => Some((held.value, held.fence)),
                _ => None,
            });
            let gone = |gone| crate::redis::commands::tickets::gone_text(word, gone);
            looked.map_err(gone)?
        }
        _ => client.daemon.values.read_ticket(word),
    };
    read.ok_or_else(|| {
        let word = Quoted(word);
        CommandError(format!(
            "NOSUCH ticket {word}: a ticket of a value is what RESERVE answered with."
        ))
    })
}
