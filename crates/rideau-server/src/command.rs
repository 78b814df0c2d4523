//! What clients can ask for.
//!
//! One table says what there is; it is what `COMMAND` shows and what rights are
//! checked against. Each command parses its own words.

mod brokers;
mod connection;
mod locks;
mod look;
mod pools;
mod quiet;
mod ranges;
mod regulators;
mod sessions;
mod settings;
mod tail;
mod tickets;
mod watch;

use std::sync::atomic::Ordering;

use crate::client::{Client, Replies, Step, Wrong};
use crate::config::{User, edits};
use crate::holdings::Why;
use crate::login;
use crate::resp::{Protocol, Quoted, Request, Upper};

/// A command, for those who look.
#[derive(Clone, Copy, Debug)]
pub struct About {
    /// Its name.
    pub name: &'static str,
    /// How many words it has at least, its name among them.
    pub words: usize,
    /// What a user must be allowed for it.
    pub right: &'static str,
    /// What follows its name.
    pub usage: &'static str,
    /// What it does.
    pub summary: &'static str,
    run: Run,
}

type Run = fn(&mut Client, Request<'_>) -> Result<Step, Wrong>;

const fn about(
    name: &'static str,
    words: usize,
    right: &'static str,
    usage: &'static str,
    summary: &'static str,
    run: Run,
) -> About {
    About {
        name,
        words,
        right,
        usage,
        summary,
        run,
    }
}

/// Every command.
pub const ALL: &[About] = &[
    about(
        "LOCK",
        2,
        "lock",
        "key [PER n] [BUCKETS m] [UNITS u] [WAIT ms] [ASYNC] [ID nonce] [NOTE text]",
        "Take units of a key, exactly if fewer than PER x BUCKETS are held",
        locks::lock,
    ),
    about(
        "RELEASE",
        2,
        "release",
        "ticket [OK | FAIL [reason]] | value [FENCE n] | KEY k [FENCE n]",
        "End any lease by its ticket, or give a value back",
        tickets::release,
    ),
    about(
        "RESERVE",
        2,
        "reserve",
        "place[,place...] [PREFER place[,place...]]... [TTL ms] [KEY k]... [UNIQUE k]... [DATA d] \
         [SET field value]... [COUNT n [PARTIAL]] [ID id] [HINT value] [WAIT ms] [NOTE text]",
        "Have values of ranges for a time; a place is a range, a network, a-b or a value",
        ranges::reserve,
    ),
    about(
        "REFRESH",
        2,
        "update",
        "value|ticket|KEY k [FENCE n] [TTL ms] [value ...]",
        "Hold values for longer",
        ranges::refresh,
    ),
    about(
        "LOOKUP",
        2,
        "lookup",
        "value | ticket | KEY k",
        "Who has a value, or what has a key",
        ranges::lookup,
    ),
    about(
        "UPDATE",
        2,
        "update",
        "value|ticket|KEY k [FENCE n] [TTL ms] [DATA d] [SET field value]... [UNSET field]... \
         [KEY k]... [UNIQUE k]... [CLAIM]",
        "Change what stands beside a value, and hold it from now on",
        ranges::update,
    ),
    about(
        "WRITE",
        2,
        "update",
        "value|ticket|KEY k [FENCE n] [TTL ms] [DATA d] [SET field value]... [KEY k]... \
         [UNIQUE k]... [CLAIM]",
        "Replace what stands beside a value, and hold it from now on",
        ranges::write,
    ),
    about(
        "CLAIM",
        2,
        "reserve",
        "value [TTL ms] [KEY k]... [UNIQUE k]... [DATA d] [SET field value]...",
        "Have a certain value",
        ranges::claim,
    ),
    about(
        "TAKE",
        2,
        "take",
        "pool|@group [WAIT ms] [ASYNC] [ID nonce] [NOTE text] [FLOW key]",
        "Take a member of a pool",
        pools::take,
    ),
    about(
        "ASK",
        2,
        "ask",
        "broker [VALUE v] [FLOW key] [NB] [DYN] [WAIT ms] [ASYNC] [NOTE text]",
        "Ask for somebody who offers",
        brokers::ask,
    ),
    about(
        "OFFER",
        2,
        "offer",
        "broker [VALUE v] [FLOW key] [NB] [DYN] [WAIT ms] [ASYNC] [NOTE text]",
        "Offer yourself to those who ask",
        brokers::offer,
    ),
    about(
        "DONE",
        2,
        "done",
        "ref [payload]",
        "End a match; the other party gets the payload",
        brokers::done,
    ),
    about(
        "LEN",
        2,
        "ask",
        "broker",
        "How many ask and how many offer",
        brokers::len,
    ),
    about(
        "REG.ASK",
        2,
        "ask",
        "regulator [WAIT ms] [ASYNC] [NOTE text]",
        "Ask a regulator for a lease",
        regulators::ask,
    ),
    about(
        "REG.CONTINUE",
        2,
        "renew",
        "ref",
        "Ask to keep a lease: go, or stop",
        regulators::renew,
    ),
    about(
        "REG.UPDATE",
        3,
        "pool",
        "regulator microseconds",
        "Tell a regulator the lead of those who want its leases",
        regulators::update,
    ),
    about(
        "REG.DONE",
        2,
        "release",
        "ref [FAIL]",
        "Give a lease back",
        regulators::done,
    ),
    about(
        "UNLOCK",
        2,
        "unlock",
        "key",
        "Give back what this holder took last of a key",
        locks::unlock,
    ),
    about(
        "LOCK.STAT",
        2,
        "show",
        "key",
        "How many units of a key are held",
        locks::stat,
    ),
    about(
        "LOCK.LS",
        1,
        "show",
        "[prefix] [COUNT n] [CURSOR c]",
        "Keys of which units are held",
        locks::list,
    ),
    about(
        "AWAIT",
        2,
        "await",
        "ticket [ms]",
        "Wait for the answer of an ASYNC command, or for the end of a match",
        tickets::wait,
    ),
    about(
        "CANCEL",
        2,
        "cancel",
        "ticket | value [FENCE n] | KEY k [FENCE n]",
        "Give up an ASYNC command that waits, or forget the holder of a value",
        tickets::cancel,
    ),
    about("HELD", 1, "held", "", "What this holder has", tickets::held),
    about(
        "SESSION",
        2,
        "session",
        "OPEN [TTL ms] [GRACE ms] [NAME n] | ATTACH id | DETACH | RENEW [id] | \
         CLOSE [id] [FAIL] | LS",
        "A holder that outlives a connection",
        sessions::session,
    ),
    about(
        "POOL.OFFER",
        3,
        "offer",
        "pool value",
        "Bring a member that goes with this connection",
        pools::offer,
    ),
    about(
        "POOL.WITHDRAW",
        2,
        "withdraw",
        "ticket",
        "Take back a member that was brought",
        tickets::release,
    ),
    about(
        "POOL.PAUSE",
        2,
        "pool",
        "pool",
        "Hand nothing out until POOL.RESUME",
        pools::pause,
    ),
    about(
        "POOL.RESUME",
        2,
        "pool",
        "pool",
        "Hand members out again",
        pools::resume,
    ),
    about("POOL.ADD", 3, "pool", "name toml", "Add a pool", pools::add),
    about(
        "POOL.DEL",
        2,
        "pool",
        "name [GRACEFUL ms | NOW]",
        "Remove a pool: who waits is refused, who holds may finish",
        pools::delete,
    ),
    about(
        "POOL.SET",
        4,
        "pool",
        "name key value [key value ...]",
        "Change a pool; nobody loses a place or a lease",
        pools::set,
    ),
    about(
        "POOL.RECYCLE",
        2,
        "pool",
        "pool [OVER ms]",
        "Replace all members one after the other",
        pools::recycle,
    ),
    about(
        "POOL.STAT",
        2,
        "show",
        "pool",
        "A pool's numbers",
        pools::stat,
    ),
    about(
        "RANGE.ADD",
        3,
        "range",
        "name toml",
        "Add a range",
        ranges::add,
    ),
    about(
        "RANGE.SET",
        4,
        "range",
        "name key value [key value ...]",
        "Change a range; nobody loses a value",
        ranges::set,
    ),
    about(
        "RANGE.DRAIN",
        2,
        "range",
        "name",
        "Give out nothing more of a range, and remove it when all has come back",
        ranges::drain,
    ),
    about(
        "RANGE.REMOVE",
        2,
        "range",
        "name",
        "Remove a range of which nothing is held",
        ranges::remove,
    ),
    about(
        "RANGE.STAT",
        1,
        "show",
        "[range]",
        "How many values are free, reserved, quarantined, detached and cooling",
        ranges::stat,
    ),
    about(
        "RANGE.LS",
        1,
        "lookup",
        "[range] [COUNT n] [CURSOR c]",
        "Some reservations, page by page",
        ranges::list,
    ),
    about(
        "RANGE.MEM",
        1,
        "show",
        "",
        "What values cost in memory",
        ranges::memory,
    ),
    about(
        "RANGE.DEBUG",
        2,
        "range",
        "seconds",
        "Log what happens to values for a while",
        ranges::debug,
    ),
    about(
        "RANGE.WATCH",
        1,
        "subscribe",
        "[range]",
        "Hear of what happens to values",
        ranges::watch,
    ),
    about(
        "RANGE.RELEASE",
        3,
        "release",
        "KEYPREFIX p | FIELD name content",
        "Give back all values with such a key or field, whoever holds them",
        ranges::bulk_release,
    ),
    about(
        "SHOW",
        2,
        "show",
        "POOLS | GROUPS | BROKERS | REGULATORS | LOCKS | CLIENTS | SESSIONS | HOLDERS | DROPS \
         | EVENTS | CONFIG | LIMITS [name] [COUNT n]",
        "What there is, as a table: the names of the columns, then the rows",
        look::show,
    ),
    about(
        "CONFIG",
        2,
        "config",
        "GET path ... | SET path value ... | CHECK toml | PLAN toml | APPLY toml | RELOAD \
         | REWRITE [FORCE] | HISTORY | ROLLBACK [version] | TEXT [version]",
        "What the server was told; a change counts as a whole or not at all",
        settings::config,
    ),
    about(
        "EXPLAIN",
        2,
        "explain",
        "ticket | d-id | pool | @group | broker | regulator | key | connection [JSON]",
        "What something is about, in plain words",
        look::explain,
    ),
    about(
        "SUBSCRIBE",
        2,
        "subscribe",
        "rideau:events[:kind[:name]] ...",
        "Hear of events",
        watch::subscribe,
    ),
    about(
        "PSUBSCRIBE",
        2,
        "subscribe",
        "pattern ...",
        "Hear of events on all channels that a pattern fits",
        watch::psubscribe,
    ),
    about(
        "UNSUBSCRIBE",
        1,
        "subscribe",
        "[channel ...]",
        "Hear of events no more",
        watch::unsubscribe,
    ),
    about(
        "PUNSUBSCRIBE",
        1,
        "subscribe",
        "[pattern ...]",
        "Hear of events no more",
        watch::punsubscribe,
    ),
    about(
        "MONITOR",
        1,
        "monitor",
        "",
        "See every command of everybody",
        watch::monitor,
    ),
    about(
        "INFO",
        1,
        "info",
        "[section ...]",
        "The server's numbers as text",
        look::info,
    ),
    about(
        "PING",
        1,
        "",
        "[message]",
        "Is anybody there?",
        connection::ping,
    ),
    about("ECHO", 2, "", "message", "Say it again", connection::echo),
    about(
        "HELLO",
        1,
        "",
        "[2|3 [AUTH user password] [SETNAME name]]",
        "Choose the protocol",
        connection::hello,
    ),
    about(
        "AUTH",
        2,
        "",
        "[user] password",
        "Say who you are",
        connection::auth,
    ),
    about("QUIT", 1, "", "", "End properly", connection::quit),
    about(
        "RESET",
        1,
        "",
        "",
        "Give everything back and begin again",
        connection::reset,
    ),
    about(
        "SELECT",
        2,
        "",
        "0",
        "There is one database",
        connection::select,
    ),
    about(
        "CLIENT",
        2,
        "",
        "ID | GETNAME | SETNAME name | SETINFO attribute value | INFO | LIST | KILL id | \
         HEARTBEAT ms | REPLY ON|OFF|SKIP | NO-EVICT on|off | NO-TOUCH on|off",
        "The connections",
        connection::client,
    ),
    about(
        "COMMAND",
        1,
        "",
        "[COUNT | DOCS [name ...] | LIST]",
        "What there is",
        connection::command,
    ),
];

/// The command of this name.
pub fn find(name: &[u8]) -> Option<&'static About> {
    // Most names differ in length already, the most frequent stand first, and nearly
    // all clients write them in upper case.
    ALL.iter().find(|about| {
        let known = about.name.as_bytes();
        known == name || known.eq_ignore_ascii_case(name)
    })
}

/// Execute one request. Its answer is behind what was answered before, if the
/// client wants one.
#[inline]
pub fn execute(client: &mut Client, request: Request<'_>) -> Step {
    if client.replies == Replies::On {
        return answer(client, request);
    }
    quiet::execute(client, request)
}

/// Execute one request and answer it.
fn answer(client: &mut Client, request: Request<'_>) -> Step {
    let Some(about) = find(request.name()) else {
        let text = unknown(request.name());
        client.reply().error(text);
        return Step::Done;
    };
    // Only its own connection counts, so nobody is overwritten.
    let commands = client.card.commands.load(Ordering::Relaxed);
    client.card.commands.store(commands + 1, Ordering::Relaxed);
    *client.card.last.lock() = about.name;
    login::follow(client);
    if client.daemon.clients.is_monitored() {
        show(client, about, request);
    }
    let before = client.out.len();
    let done = may(client, about, request).and_then(|()| (about.run)(client, request));
    match done {
        Ok(step) => step,
        Err(Wrong(text)) => {
            // Whatever was begun is not to be seen.
            client.out.truncate(before);
            client.reply().error(text);
            Step::Done
        }
    }
}

/// Whether the client may do this, and has said enough.
fn may(client: &Client, about: &About, request: Request<'_>) -> Result<(), Wrong> {
    let name = about.name;
    if request.len() < about.words {
        let usage = about.usage;
        return Err(Wrong(format!(
            "ERR wrong number of arguments for '{name}': write {name} {usage}."
        )));
    }
    if is_subscriber(client) && !LISTENING.contains(&name) {
        return Err(Wrong(format!(
            "ERR Can't execute '{}': this connection listens to events, and only {} are allowed \
             meanwhile; UNSUBSCRIBE first, or use HELLO 3.",
            name.to_lowercase(),
            LISTENING.join(", ")
        )));
    }
    if about.right.is_empty() {
        return Ok(());
    }
    match &client.user {
        Some(user) if has_right(user, about.right) => Ok(()),
        Some(user) => Err(Wrong(format!(
            "NOPERM user {} may not use {name}: add \"{}\" to its allow list.",
            user.name, about.right
        ))),
        None if client.daemon.config.load().users.is_empty() => Ok(()),
        None => Err(Wrong(
            "NOAUTH say who you are first: AUTH user password.".into(),
        )),
    }
}

/// Whether the client may do a part of what a command can do.
fn allowed(client: &Client, right: &str) -> Result<(), Wrong> {
    match &client.user {
        Some(user) if !has_right(user, right) => Err(Wrong(format!(
            "NOPERM user {} may not do this: add \"{right}\" to its allow list.",
            user.name
        ))),
        None if login::is_needed(client) => Err(Wrong(
            "NOAUTH say who you are first: AUTH user password.".into(),
        )),
        _ => Ok(()),
    }
}

/// A user may do this, by itself or as one of a group.
pub(crate) fn has_right(user: &User, right: &str) -> bool {
    user.allow.iter().any(|allowed| match allowed.as_str() {
        "@admin" => true,
        "@all" => !ADMIN.contains(&right),
        "@read" => matches!(right, "show" | "explain" | "info" | "held"),
        "@pool" => matches!(right, "take" | "release" | "offer" | "withdraw"),
        "@broker" => matches!(right, "ask" | "offer" | "done" | "renew" | "release"),
        "@lock" => matches!(right, "lock" | "unlock" | "release"),
        "@range" => matches!(
            right,
            "reserve" | "update" | "lookup" | "release" | "cancel"
        ),
        allowed => allowed == right,
    })
}

/// What those can do who listen to events and cannot tell them from answers.
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

/// Not for everybody.
const ADMIN: &[&str] = &["pool", "range", "config", "client", "monitor"];

/// A user may use this thing.
fn may_use(client: &Client, kind: &str, name: &str) -> Result<(), Wrong> {
    match &client.user {
        Some(user) if !user.may_use(kind, name) => Err(Wrong(format!(
            "NOPERM user {} may not use {kind} {name}: add \"{kind}:{name}\" to its on list.",
            user.name
        ))),
        _ => Ok(()),
    }
}

/// The connection goes in this manner; its session stays.
pub(crate) fn leave_session(client: &mut Client, why: Why) {
    sessions::detach(client, why);
}

fn unknown(name: &[u8]) -> String {
    let upper = Upper::of(name);
    let text = String::from_utf8_lossy(upper.as_bytes()).into_owned();
    let near = ALL
        .iter()
        .map(|about| (edits(about.name, &text), about.name))
        .filter(|(far, _)| *far <= 2)
        .min();
    let hint = match near {
        Some((_, near)) => format!("did you mean {near}?"),
        None => "COMMAND LIST shows what there is.".into(),
    };
    format!("ERR unknown command {}: {hint}", Quoted(name))
}

/// Show a command to those who see every one; nobody sees a password.
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
