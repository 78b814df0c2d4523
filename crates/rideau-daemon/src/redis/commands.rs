//! The commands of the Redis protocol.
//!
//! One table says what there is; it is what `COMMAND` shows and what rights are
//! checked against. Each command parses its own words.

mod apps;
mod ask_args;
mod awaits;
mod brokers;
mod connection;
mod instead;
mod leases;
mod locks;
mod look;
mod lost;
mod multi;
mod needs;
mod nodes;
mod page;
#[cfg(test)]
pub(crate) mod planted;
mod pools;
mod quiet;
mod ranges;
mod regulators;
mod route;
mod sessions;
mod settings;
mod shared;
mod slots;
mod still;
mod table;
mod tickets;
mod tools;
mod upgrade;
mod watch;

use std::sync::atomic::Ordering;

use crate::redis::client::{Client, CommandError, Next, Replies, STOPPING};
use crate::redis::login;
use crate::state::attempts::Origin;
use crate::state::daemon::Daemon;
use crate::state::daemon::no_use;
use crate::state::pending::Needs;
use rideau_config::label::Label;
use rideau_config::{CONTROL, User, edits, far, is_control};
use rideau_process::panics;
use rideau_resp::{Mistake, Protocol, Quoted, Request, Upper};

pub(crate) use route::{IN_SESSION, NO_PARTITION, NOT_MINE, ValueAsk, down_text};
pub(crate) use still::{deny, may_still};
pub(crate) use watch::follow as follow_watch;

use needs::may_run;

/// Every command: our own, and those that tools for Redis send.
pub(crate) const ALL: &[About] = &{
    let mut all = [table::OURS[0]; COUNT];
    let (mut at, mut of) = (0, 0);
    while of < TABLES.len() {
        let mut row = 0;
        while row < TABLES[of].len() {
            all[at] = TABLES[of][row];
            (at, row) = (at + 1, row + 1);
        }
        of += 1;
    }
    all
};

/// Each family of commands has its own.
const TABLES: [&[About]; 6] = [
    table::OURS,
    apps::TABLE,
    nodes::TABLE,
    slots::TABLE,
    tools::TABLE,
    upgrade::TABLE,
];

const COUNT: usize = {
    let (mut count, mut of) = (0, 0);
    while of < TABLES.len() {
        count += TABLES[of].len();
        of += 1;
    }
    count
};

/// The names of all commands, in the order of the table.
pub const NAMES: &[&str] = &{
    let mut names = [""; ALL.len()];
    let mut at = 0;
    while at < ALL.len() {
        names[at] = ALL[at].name;
        at += 1;
    }
    names
};

/// A command, as clients see it in a list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct About {
    /// Its name.
    pub name: &'static str,
    /// How many words it has at least, its name among them.
    pub words: usize,
    /// The right that a user needs; empty if no login is needed.
    pub right: &'static str,
    /// It is only for clients that are known, also where there are no users.
    pub is_control: bool,
    /// It gives something out, or brings something that is given out.
    pub is_grant: bool,
    /// The kind of its first argument.
    pub subject: Subject,
    /// The syntax of its arguments.
    pub usage: &'static str,
    /// A sentence that says what it does.
    pub summary: &'static str,
    run: Run,
}

/// What the first argument of a command is. A client of a cluster goes by that, and finds the
/// node that decides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Subject {
    /// The key of a lock, or the name of a pool, a broker, an app, a range …
    Name,
    /// A ticket, or the reference of a match or a lease.
    Ticket,
    /// A value of a range, the ticket of one, or `KEY` and a key of one.
    Value,
    /// Something else, or there need not be one.
    Nothing,
}

impl About {
    /// The rights that it needs.
    const fn needs(&self) -> Needs {
        Needs {
            name: self.name,
            right: self.right,
            is_control: self.is_control,
        }
    }

    /// Its first argument is what clients for Redis call a key.
    fn has_key(&self) -> bool {
        self.subject != Subject::Nothing
    }

    /// Write down that a client that did not log in may not use this. What is not control,
    /// clients try before they log in.
    #[cold]
    fn deny_to(&self, daemon: &Daemon, origin: Origin, error: &str) {
        if let Some(why) = error.strip_prefix("NOAUTH ").filter(|_| self.is_control) {
            daemon.logins.denied_to(origin, self.right, why);
        }
    }
}

type Run = fn(&mut Client, Request<'_>) -> Result<Next, CommandError>;

const fn about(
    name: &'static str,
    words: usize,
    right: &'static str,
    subject: Subject,
    usage: &'static str,
    summary: &'static str,
    run: Run,
) -> About {
    About {
        name,
        words,
        right,
        is_control: is_control_command(name, right),
        is_grant: is_grant(name),
        subject,
        usage,
        summary,
        run,
    }
}

/// Whether a command is only for clients that are known. What a regulator is told of is
/// no change of its config.
const fn is_control_command(name: &str, right: &str) -> bool {
    let mut at = 0;
    while at < CONTROL.len() {
        if is_same(CONTROL[at], right) {
            return !is_same(name, "REG.UPDATE");
        }
        at += 1;
    }
    false
}

/// Commands that a stopping server refuses.
const GRANTS: &[&str] = &[
    "LOCK",
    "TAKE",
    "ASK",
    "OFFER",
    "RESERVE",
    "CLAIM",
    "REG.ASK",
    "APP.GET",
    "POOL.OFFER",
];

const fn is_grant(name: &str) -> bool {
    let mut at = 0;
    while at < GRANTS.len() {
        if is_same(GRANTS[at], name) {
            return true;
        }
        at += 1;
    }
    false
}

const fn is_same(one: &str, other: &str) -> bool {
    // Both are ASCII and in one case; `==` is not const.
    one.eq_ignore_ascii_case(other)
}

/// The command of this name.
pub(crate) fn find(name: &[u8]) -> Option<&'static About> {
    position(name).map(|at| &ALL[at])
}

/// Where the command of this name is among all.
#[inline]
fn position(name: &[u8]) -> Option<usize> {
    // Those that come by the thousand need no search, as nearly all clients write
    // them in upper case: each is a comparison of one or two machine words.
    match name {
        b"LOCK" => Some(const { place("LOCK") }),
        b"RELEASE" => Some(const { place("RELEASE") }),
        b"TAKE" => Some(const { place("TAKE") }),
        b"DONE" => Some(const { place("DONE") }),
        b"ASK" => Some(const { place("ASK") }),
        b"OFFER" => Some(const { place("OFFER") }),
        b"RESERVE" => Some(const { place("RESERVE") }),
        _ => search(name),
    }
}

fn search(name: &[u8]) -> Option<usize> {
    let is_it = |about: &About| about.name.as_bytes().eq_ignore_ascii_case(name);
    ALL.iter().position(is_it)
}

/// Where a command is that is known while this is compiled.
const fn place(name: &str) -> usize {
    let mut at = 0;
    // Names are all ASCII, so this is the same as `==`, which is not const.
    while !ALL[at].name.eq_ignore_ascii_case(name) {
        at += 1;
    }
    at
}

/// Execute one request. Its answer is behind what was answered before, if the
/// client wants one. A panic costs the request alone.
#[inline]
pub(crate) fn execute(client: &mut Client, request: Request<'_>) -> Next {
    let before = client.out.len();
    let step = panics::contain(|| match client.replies {
        Replies::On => answer(client, request),
        _ => quiet::execute(client, request),
    });
    step.unwrap_or_else(|panicked| {
        client.batch.fail();
        client.answer_panic(before, panicked);
        Next::Done
    })
}

/// Execute one request and answer it.
fn answer(client: &mut Client, request: Request<'_>) -> Next {
    let Some(at) = position(request.name()) else {
        client.batch.add_unknown(ALL.len());
        multi::spoil(client);
        let text = unknown(request.name());
        client.reply().error(text);
        return Next::Done;
    };
    let about = &ALL[at];
    if client.transaction.is_some() {
        login::follow(client);
        if let Some(step) = multi::queue(client, at, request) {
            return step;
        }
    }
    // Only its own connection counts, so no other count is overwritten.
    let commands = client.card.commands.load(Ordering::Relaxed);
    client.card.commands.store(commands + 1, Ordering::Relaxed);
    client.card.last.store(at, Ordering::Relaxed);
    client.batch.add(at);
    login::follow(client);
    if client.daemon.clients.is_monitored() {
        show(client, about, request);
    }
    let before = client.out.len();
    let mut may = may(client, about, request);
    if client.daemon.lease_table.has_untold() && may.is_ok() {
        may = lost::tell(client, about);
    }
    let done = match may {
        Ok(()) if client.daemon.cluster.is_some() => run_where_it_belongs(client, about, request),
        Ok(()) => (about.run)(client, request),
        Err(wrong) => Err(wrong),
    };
    match done {
        Ok(step) => step,
        Err(wrong) => fail(client, about, before, wrong),
    }
}

/// Execute a command on this node, or have the node that owns what it is about do so.
fn run_where_it_belongs(
    client: &mut Client,
    about: &About,
    request: Request<'_>,
) -> Result<Next, CommandError> {
    match route::elsewhere(client, about, request)? {
        Some(step) => Ok(step),
        None => (about.run)(client, request),
    }
}

#[cold]
fn fail(
    client: &mut Client,
    about: &About,
    before: usize,
    CommandError(text): CommandError,
) -> Next {
    client.batch.fail();
    match &client.user {
        Some(user) => client.daemon.deny(about.needs(), &user.name, &text),
        None => about.deny_to(&client.daemon, client.origin, &text),
    }
    // Whatever was begun is not to be seen.
    client.out.truncate(before);
    client.reply().error(text);
    Next::Done
}

/// Whether the client may do this, and has said enough.
#[inline]
fn may(client: &Client, about: &About, request: Request<'_>) -> Result<(), CommandError> {
    let name = about.name;
    if request.len() < about.words {
        return Err(too_few(about));
    }
    if is_subscriber(client) && !LISTENING.contains(&name) {
        return Err(listens(name));
    }
    if about.is_grant && client.daemon.is_draining() {
        route::redirect(client, about, request)?;
        return Err(CommandError(format!("READONLY {STOPPING}.")));
    }
    let user = client.user.as_deref();
    let may = client.daemon.allows(user, &client.config, about.needs());
    may.map_err(CommandError)
}

#[cold]
fn too_few(&About { name, usage, .. }: &About) -> CommandError {
    CommandError(format!(
        "ERR wrong number of arguments for '{name}': write {name} {usage}."
    ))
}

#[cold]
fn listens(name: &str) -> CommandError {
    CommandError(format!(
        "ERR Can't execute '{}': this connection listens to events, and only {} are allowed \
         meanwhile; UNSUBSCRIBE first, or use HELLO 3.",
        name.to_lowercase(),
        LISTENING.join(", ")
    ))
}

/// Whether the client may do a part of what a command can do.
fn allowed(client: &Client, right: &str) -> Result<(), CommandError> {
    let Err(wrong) = has_part(client, right) else {
        return Ok(());
    };
    // The command itself may be open to all.
    if let Some(why) = wrong.0.strip_prefix("NOAUTH ")
        && is_control(right)
    {
        client.daemon.logins.denied_to(client.origin, right, why);
    }
    Err(wrong)
}

fn has_part(client: &Client, right: &str) -> Result<(), CommandError> {
    match &client.user {
        Some(user) if !user.may(right) => Err(CommandError(format!(
            "NOPERM user {} may not do this: add \"{right}\" to its allow list.",
            user.name
        ))),
        None if login::is_needed(client) => Err(CommandError(
            "NOAUTH authentication required: send AUTH user password.".into(),
        )),
        None if is_control(right) => Err(CommandError(client.daemon.only_for_operators("this"))),
        _ => Ok(()),
    }
}

/// Whether the client has this right.
fn has(client: &Client, right: &str) -> bool {
    let user = client.user.as_deref();
    (user.is_some() || client.config.users.is_empty()) && User::or_anybody_may(user, right)
}

/// Commands that RESP2 clients may use while they are subscribed.
const LISTENING: &[&str] = &[
    "SUBSCRIBE",
    "PSUBSCRIBE",
    "UNSUBSCRIBE",
    "PUNSUBSCRIBE",
    "RANGE.WATCH",
    "PING",
    "QUIT",
    "RESET",
];

/// It listens to events, and its protocol has no other way to tell them.
fn is_subscriber(client: &Client) -> bool {
    client.watch.is_subscribed() && client.protocol == Protocol::Resp2
}

/// A user may use this thing. Every name that a client says passes here, so here it is
/// seen that it is one; the keys of locks have a label of their own.
fn may_use(client: &Client, kind: &str, name: &str) -> Result<(), CommandError> {
    if kind != "lock" {
        client.check_label(Label::Thing, name.as_bytes())?;
    }
    match &client.user {
        Some(user) if !user.may_use(kind, name) => Err(CommandError(no_use(user, kind, name))),
        _ => Ok(()),
    }
}

/// A user may use everything, which this is about.
fn may_use_all(client: &Client, what: &str) -> Result<(), CommandError> {
    match &client.user {
        Some(user) if !user.may_use_all() => Err(CommandError(format!(
            "NOPERM user {} may not use {what}: that takes \"*\" on its on list.",
            user.name
        ))),
        _ => Ok(()),
    }
}

impl From<Mistake> for CommandError {
    fn from(mistake: Mistake) -> Self {
        let usage = mistake.unknown_to().and_then(usage);
        Self(match usage {
            Some(usage) => format!("ERR {mistake}. It takes {usage}."),
            None => format!("ERR {mistake}."),
        })
    }
}

/// The syntax of a command, by its name or its first word.
pub(crate) fn usage(name: &str) -> Option<&'static str> {
    let first = name.split(' ').next()?;
    let about = ALL.iter().find(|about| about.name == first)?;
    Some(about.usage)
}

fn unknown(name: &[u8]) -> String {
    if let Some(instead) = instead::of(name) {
        return format!("ERR unknown command {}: {instead}", Quoted(name));
    }
    let upper = Upper::of(name);
    let text = String::from_utf8_lossy(upper.as_bytes()).into_owned();
    let near = ALL
        .iter()
        .map(|about| (edits(about.name, &text), about.name))
        .filter(|(edits, name)| *edits <= far(name, &text))
        .min();
    let hint = match near {
        Some((_, near)) => format!("did you mean {near}?"),
        None => "COMMAND LIST shows all commands.".into(),
    };
    format!("ERR unknown command {}: {hint}", Quoted(name))
}

/// Show a command to the clients that see every one; no password is shown.
fn show(client: &Client, about: &About, request: Request<'_>) {
    use std::fmt::Write;
    let since = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    let mut line = format!(
        "{}.{:06} [0 {}] \"{}\"",
        since.as_secs(),
        since.subsec_micros(),
        client.card.address,
        about.name
    );
    let shown = match about.name {
        "AUTH" | "HELLO" => 0,
        // The text of a config has hashes of passwords, that of a pool what its
        // programs are told.
        "CONFIG" | "POOL.ADD" | "POOL.SET" | "RANGE.ADD" | "RANGE.SET" => 1,
        _ => usize::MAX,
    };
    for word in request.words().skip(1).take(shown) {
        let _ = write!(line, " {}", Quoted(word));
    }
    client.daemon.clients.show(&line);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_found_in_any_case() {
        for about in ALL {
            for name in [about.name.to_owned(), about.name.to_lowercase()] {
                let found = find(name.as_bytes()).map(|found| found.name);
                assert_eq!(found, Some(about.name), "{name}");
            }
        }
        assert!(find(b"LOCKS").is_none() && find(b"").is_none());
    }

    #[test]
    fn the_usage_of_show_names_all_that_is_shown() {
        let usage = usage("SHOW").expect("it is a command");
        for what in crate::view::tables::TableKind::ALL {
            assert!(usage.contains(&what.word().to_uppercase()), "{what:?}");
        }
    }

    #[test]
    fn what_is_short_and_not_known_is_not_taken_for_something_else() {
        assert!(unknown(b"LOK").ends_with("did you mean LOCK?"));
        assert!(unknown(b"RESEVRE").ends_with("did you mean RESERVE?"));
        assert!(unknown(b"SOT").ends_with("COMMAND LIST shows all commands."));
        assert!(unknown(b"SET").contains("LOCK key WAIT ms"), "of Redis");
    }
}
