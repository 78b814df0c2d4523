//! The connection itself: which user it is, what it speaks, how it ends.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rideau_config::globs;
use rideau_config::label::Label;
use rideau_resp::{Arguments, Mistake, Protocol, Request, Upper};

use super::look::{OwnedViewer, see_and_tell};
use super::{ALL, About, page};
use crate::redis::client::{Client, CommandError, Next, Replies};
use crate::redis::login;
use crate::redis::subscriptions::Watch;
use crate::state::clients::ClientCard;
use crate::state::daemon::Daemon;
use crate::state::end::EndReason;
use crate::view::tables::More;

/// No client promises to say something less often: a day.
const HEARTBEAT_MAX: u64 = 86_400_000;

pub(super) fn ping(client: &mut Client, request: Request<'_>) -> Result<Next, CommandError> {
    let is_subscribed = super::is_subscriber(client);
    let mut reply = client.reply();
    match request.word(1) {
        // As Redis does it while one is subscribed.
        message if is_subscribed => {
            reply
                .array(2)
                .bulk("pong")
                .bulk(message.unwrap_or_default());
        }
        Some(message) => {
            reply.bulk(message);
        }
        None => {
            reply.simple("PONG");
        }
    }
    Ok(Next::Done)
}

pub(super) fn echo(client: &mut Client, request: Request<'_>) -> Result<Next, CommandError> {
    client.reply().bulk(request.word(1).unwrap_or_default());
    Ok(Next::Done)
}

pub(super) fn select(client: &mut Client, request: Request<'_>) -> Result<Next, CommandError> {
    if request.word(1) != Some(b"0") {
        return Err(CommandError("ERR there is one database: SELECT 0.".into()));
    }
    client.reply().simple("OK");
    Ok(Next::Done)
}

pub(super) fn hello(client: &mut Client, request: Request<'_>) -> Result<Next, CommandError> {
    let mut arguments = request.arguments();
    let mut protocol = client.protocol;
    if let Some(version) = arguments.next() {
        protocol = match version {
            b"2" => Protocol::Resp2,
            b"3" => Protocol::Resp3,
            _ => {
                return Err(CommandError(
                    "NOPROTO this server speaks versions 2 and 3 of the protocol.".into(),
                ));
            }
        };
    }
    let mut login = None;
    while let Some(option) = arguments.next() {
        match Upper::of(option).as_bytes() {
            b"AUTH" => {
                let user = arguments.word("AUTH", "a user")?;
                client.check_label(Label::User, user)?;
                let password = arguments.word("AUTH", "a password")?;
                login = Some((user.to_vec(), password.to_vec()));
            }
            b"SETNAME" => set_name(client, arguments.word("SETNAME", "a name")?)?,
            _ => return Err(Mistake::unknown("HELLO", option).into()),
        }
    }
    let finish = move |client: &mut Client| {
        client.speak(protocol);
        greet(client);
        super::follow_watch(client);
    };
    match login {
        None if login::is_needed(client) => Err(CommandError(
            "NOAUTH authentication required: send HELLO 3 AUTH user password.".into(),
        )),
        None => {
            finish(client);
            Ok(Next::Done)
        }
        Some((user, password)) => login::begin(client, user, password, finish),
    }
}

fn greet(client: &mut Client) {
    let (id, protocol) = (client.card.id as i64, client.protocol);
    let mode = match client.is_straight {
        true => "cluster",
        false => "standalone",
    };
    client
        .reply()
        .map(7)
        .bulk("server")
        .bulk("rideau")
        .bulk("version")
        .bulk(env!("CARGO_PKG_VERSION"))
        .bulk("proto")
        .integer(if protocol == Protocol::Resp3 { 3 } else { 2 })
        .bulk("id")
        .integer(id)
        .bulk("mode")
        .bulk(mode)
        .bulk("role")
        .bulk("master")
        .bulk("modules")
        .array(0);
}

pub(super) fn auth(client: &mut Client, request: Request<'_>) -> Result<Next, CommandError> {
    let mut arguments = request.arguments();
    let first = arguments.word("AUTH", "a password")?.to_vec();
    let second = arguments.next().map(<[u8]>::to_vec);
    arguments.end("AUTH")?;
    let (user, password) = match second {
        Some(password) => (first, password),
        None => (b"default".to_vec(), first),
    };
    client.check_label(Label::User, &user)?;
    login::begin(client, user, password, |client| {
        client.reply().simple("OK");
        super::follow_watch(client);
    })
}

pub(super) fn quit(client: &mut Client, _request: Request<'_>) -> Result<Next, CommandError> {
    client.ending = Some(EndReason::Quit);
    client.reply().simple("OK");
    Ok(Next::Close)
}

pub(super) fn reset(client: &mut Client, _request: Request<'_>) -> Result<Next, CommandError> {
    client.watch = Watch::default();
    client.card.is_listening.store(false, Ordering::Relaxed);
    client.transaction = None;
    client.heartbeat = None;
    client.replies = Replies::On;
    client.speak(Protocol::Resp2);
    let user = client.proof.user(&client.daemon);
    login::become_user(client, user);
    client.is_proven = true;
    client.reply().simple("RESET");
    Ok(Next::Done)
}

pub(super) fn client(client: &mut Client, request: Request<'_>) -> Result<Next, CommandError> {
    let mut arguments = request.arguments();
    let what = arguments.word("CLIENT", "ID, SETNAME, LIST, KILL or another word")?;
    match Upper::of(what).as_bytes() {
        b"ID" => {
            let id = client.card.id as i64;
            client.reply().integer(id);
        }
        b"GETNAME" => {
            let name = client.holder_card().name.lock().clone();
            client.reply().bulk(name);
        }
        b"SETNAME" => {
            set_name(client, arguments.word("CLIENT SETNAME", "a name")?)?;
            client.reply().simple("OK");
        }
        b"SETINFO" => {
            set_info(client, &mut arguments)?;
            client.reply().simple("OK");
        }
        b"HEARTBEAT" => {
            let ms = arguments.number("CLIENT HEARTBEAT", "milliseconds", 0..=HEARTBEAT_MAX)?;
            arguments.end("CLIENT HEARTBEAT")?;
            client.heartbeat = (ms > 0).then(|| Duration::from_millis(ms));
            client.reply().simple("OK");
        }
        b"REPLY" => return reply(client, arguments),
        b"NO-EVICT" | b"NO-TOUCH" | b"CAPA" => {
            client.reply().simple("OK");
        }
        b"TRACKING" | b"CACHING" | b"TRACKINGINFO" | b"GETREDIR" => {
            return Err(CommandError(
                "ERR nothing is tracked: no values are stored here that a client could keep a \
                 copy of. Turn client-side caching off; SUBSCRIBE rideau:events and RANGE.WATCH \
                 tell of changes."
                    .into(),
            ));
        }
        b"INFO" => {
            let line = line(&client.daemon, &client.card);
            client.reply().verbatim(&line);
        }
        b"LIST" => {
            // Where there are no users, SHOW CLIENTS tells every client the same.
            if client.user.is_some() || login::is_needed(client) {
                super::allowed(client, "client")?;
            }
            return list(client, arguments);
        }
        b"KILL" => {
            super::allowed(client, "client")?;
            return kill(client, arguments);
        }
        _ => return Err(Mistake::unknown("CLIENT", what).into()),
    }
    Ok(Next::Done)
}

/// Which answers the client wants from now on. Only the return to all of them
/// has one itself.
fn reply(client: &mut Client, mut arguments: Arguments<'_>) -> Result<Next, CommandError> {
    let how = arguments.word("CLIENT REPLY", "ON, OFF or SKIP")?;
    arguments.end("CLIENT REPLY")?;
    let replies = match Upper::of(how).as_bytes() {
        b"ON" => Replies::On,
        b"OFF" => Replies::Off,
        // A client that wants none does not want the one after the next either.
        b"SKIP" if client.replies == Replies::Off => Replies::Off,
        b"SKIP" => Replies::Skip,
        _ => return Err(Mistake::wrong("CLIENT REPLY", "ON, OFF or SKIP", how).into()),
    };
    client.replies = replies;
    if replies == Replies::On {
        client.reply().simple("OK");
    }
    Ok(Next::Done)
}

fn set_name(client: &Client, name: &[u8]) -> Result<(), CommandError> {
    client.check_label(Label::Connection, name)?;
    *client.holder_card().name.lock() = String::from_utf8_lossy(name).into_owned();
    Ok(())
}

fn set_info(client: &Client, arguments: &mut Arguments<'_>) -> Result<(), CommandError> {
    let attribute = arguments.word("CLIENT SETINFO", "LIB-NAME or LIB-VER")?;
    let value = arguments.text("CLIENT SETINFO", "a value")?;
    client.check_label(Label::Library, value.as_bytes())?;
    let mut library = client.card.library.lock();
    match Upper::of(attribute).as_bytes() {
        b"LIB-NAME" => library.0 = value.into(),
        b"LIB-VER" => library.1 = value.into(),
        _ => return Err(Mistake::unknown("CLIENT SETINFO", attribute).into()),
    }
    Ok(())
}

fn kill(client: &mut Client, mut arguments: Arguments<'_>) -> Result<Next, CommandError> {
    let mut word = arguments.word("CLIENT KILL", "the id of a connection")?;
    if Upper::of(word).as_bytes() == b"ID" {
        word = arguments.word("CLIENT KILL ID", "the id of a connection")?;
    }
    let id = std::str::from_utf8(word)
        .ok()
        .and_then(|id| id.parse().ok());
    let id: u64 =
        id.ok_or_else(|| Mistake::wrong("CLIENT KILL", "the id of a connection", word))?;
    let viewer = super::look::viewer(client);
    let found = client.daemon.clients.find(id);
    let found = found.filter(|card| viewer.sees_holder(&card.card.lock()));
    if let Some(card) = &found {
        card.outbox.kill();
        let by = client.user_name().to_owned();
        let name = card.card.lock().name.lock().clone();
        let text = format!("connection {id} ({name}) was killed");
        client.daemon.events.add("client", &name, text, Some(&by));
    }
    client.reply().integer(found.is_some().into());
    Ok(Next::Done)
}

/// The connections, each in a line. If some are left for the next page, a line like the
/// others says so.
fn list(client: &mut Client, mut arguments: Arguments<'_>) -> Result<Next, CommandError> {
    let mut page = page::all(client);
    let mut wanted = Vec::new();
    while let Some(word) = arguments.next() {
        let upper = Upper::of(word);
        if page::option(&mut page, upper.as_bytes(), &mut arguments)? {
            continue;
        }
        match Filter::read(upper.as_bytes(), &mut arguments)? {
            Some(filter) => wanted.push(filter),
            None => return Err(Mistake::unknown("CLIENT LIST", word).into()),
        }
    }
    let see = move |owned: &OwnedViewer| {
        let mut all = owned.daemon.clients.all();
        let viewer = owned.viewer();
        all.retain(|card| viewer.sees_holder(&card.card.lock()));
        all.retain(|card| wanted.iter().all(|filter| filter.keeps(card)));
        let key = |card: &Arc<ClientCard>| card.id.into();
        let line = |card: &Arc<ClientCard>| line(&owned.daemon, card) + "\n";
        let (all, more) = page.cut(all, key, |card| line(card).len());
        let mut text: String = all.iter().map(line).collect();
        if let Some(More { count, from }) = more {
            text += &format!("more={count} from={from}\n");
        }
        text
    };
    see_and_tell(client, "CLIENT LIST", see, |client, text| {
        client.reply().verbatim(&text);
        Ok(())
    })
}

/// Which connections are wanted.
enum Filter {
    Ids(Vec<u64>),
    Listening(bool),
    User(String),
    Name(String),
    Address(String),
    Local(String),
    /// Connections of a kind that there is not.
    Nothing,
}

impl Filter {
    /// The filter that begins with this word, if one does.
    fn read(word: &[u8], arguments: &mut Arguments<'_>) -> Result<Option<Self>, CommandError> {
        const KINDS: &str = "NORMAL, PUBSUB, MASTER or REPLICA";
        Ok(Some(match word {
            b"ID" => {
                let mut ids = vec![arguments.number("ID", "a connection", 0..=u64::MAX)?];
                // All that follow; the next word may be another option.
                while arguments.clone().number("ID", "", 0..=u64::MAX).is_ok() {
                    ids.push(arguments.number("ID", "a connection", 0..=u64::MAX)?);
                }
                Self::Ids(ids)
            }
            b"TYPE" => {
                let kind = arguments.word("TYPE", KINDS)?;
                match Upper::of(kind).as_bytes() {
                    b"NORMAL" => Self::Listening(false),
                    b"PUBSUB" => Self::Listening(true),
                    b"MASTER" | b"REPLICA" | b"SLAVE" => Self::Nothing,
                    _ => return Err(Mistake::wrong("TYPE", KINDS, kind).into()),
                }
            }
            b"USER" => Self::User(arguments.text("USER", "a user")?.into()),
            b"NAME" => Self::Name(arguments.text("NAME", "a name")?.into()),
            b"ADDR" => Self::Address(arguments.text("ADDR", "an address")?.into()),
            b"LADDR" => Self::Local(arguments.text("LADDR", "an address")?.into()),
            _ => return Ok(None),
        }))
    }

    fn keeps(&self, card: &ClientCard) -> bool {
        match self {
            Self::Ids(ids) => ids.contains(&card.id),
            Self::Listening(is_listening) => {
                card.is_listening.load(Ordering::Relaxed) == *is_listening
            }
            Self::User(user) => *card.card.lock().user == **user,
            Self::Name(name) => *card.card.lock().name.lock() == *name,
            Self::Address(address) => card.address == *address,
            Self::Local(address) => card.local == *address,
            Self::Nothing => false,
        }
    }
}

/// A connection in one line, as Redis shows it and more.
fn line(daemon: &Daemon, card: &ClientCard) -> String {
    let holder = *card.holder.lock();
    let holder_card = Arc::clone(&card.card.lock());
    let age = card.since.elapsed();
    let idle = card.silent();
    let (library, version) = card.library.lock().clone();
    let foreign = card.foreign_releases.load(Ordering::Relaxed);
    let advice = if foreign > 0 {
        "uses-a-pooled-client:open-a-SESSION-or-a-dedicated-connection"
    } else {
        ""
    };
    format!(
        "id={} addr={} laddr={} name={} age={} idle={} flags={} db=0 user={} resp={} \
         lib-name={library} \
         lib-ver={version} cmd={} held={} waiting={} session={} advice={advice}",
        card.id,
        card.address,
        card.local,
        holder_card.name.lock(),
        age.as_secs(),
        idle.as_secs(),
        match card.is_listening.load(Ordering::Relaxed) {
            true => "P",
            false => "N",
        },
        holder_card.user,
        if card.outbox.is_resp3() { 3 } else { 2 },
        daemon.last_command(card).to_lowercase(),
        daemon.lease_table.count(holder),
        u8::from(card.is_waiting.load(Ordering::Relaxed)),
        card.session
            .lock()
            .as_deref()
            .map_or("", |id| &id[..id.len().min(12)]),
    )
}

pub(super) fn command(client: &mut Client, request: Request<'_>) -> Result<Next, CommandError> {
    let mut arguments = request.arguments();
    let what = arguments.next().map(Upper::of);
    let mut reply = client.reply();
    match what.as_ref().map(Upper::as_bytes) {
        None => {
            reply.array(ALL.len());
            ALL.iter().for_each(|about| entry(&mut reply, about));
        }
        Some(b"COUNT") => {
            reply.integer(ALL.len() as i64);
        }
        Some(b"LIST") => {
            let wanted = filter(arguments)?;
            reply.array(wanted.len());
            for about in wanted {
                reply.bulk(about.name.to_lowercase());
            }
        }
        Some(b"GETKEYS") => {
            let name = arguments.word("COMMAND GETKEYS", "a command")?;
            let about = super::find(name);
            let about =
                about.ok_or_else(|| CommandError("ERR Invalid command specified".into()))?;
            let key = arguments.next().filter(|_| about.has_key());
            let no_key = || CommandError("ERR The command has no key arguments".into());
            reply.array(1).bulk(key.ok_or_else(no_key)?);
        }
        Some(b"INFO") => {
            let names: Vec<_> = arguments.map(super::find).collect();
            // An answer is many times as long as a name.
            if names.len() > ALL.len() {
                return Err(CommandError(format!(
                    "ERR COMMAND INFO takes at most {} names, the number of commands.",
                    ALL.len()
                )));
            }
            reply.array(names.len());
            for about in names {
                match about {
                    Some(about) => entry(&mut reply, about),
                    None => drop(reply.null()),
                }
            }
        }
        Some(b"DOCS") => {
            // Each once, however often it is said.
            let mut is_wanted = [false; ALL.len()];
            let mut names = Vec::new();
            for at in arguments.filter_map(super::position) {
                if !std::mem::replace(&mut is_wanted[at], true) {
                    names.push(&ALL[at]);
                }
            }
            if names.is_empty() {
                names = ALL.iter().collect();
            }
            reply.map(names.len());
            for about in names {
                docs(&mut reply, about);
            }
        }
        Some(_) => {
            return Err(CommandError(
                "ERR COMMAND takes nothing, COUNT, LIST, INFO, DOCS or GETKEYS.".into(),
            ));
        }
    }
    Ok(Next::Done)
}

/// The commands that `COMMAND LIST` shows.
fn filter(mut arguments: Arguments<'_>) -> Result<Vec<&'static About>, CommandError> {
    const HOW: &str = "MODULE name, ACLCAT category or PATTERN pattern";
    let all = ALL.iter();
    let Some(word) = arguments.next() else {
        return Ok(all.collect());
    };
    if Upper::of(word).as_bytes() != b"FILTERBY" {
        return Err(Mistake::wrong("COMMAND LIST", "FILTERBY or nothing", word).into());
    }
    let how = arguments.word("FILTERBY", HOW)?;
    let what = arguments.word("FILTERBY", HOW)?;
    arguments.end("COMMAND LIST FILTERBY")?;
    Ok(match Upper::of(how).as_bytes() {
        // There are no modules.
        b"MODULE" => Vec::new(),
        b"ACLCAT" => all
            .filter(|about| category(about).as_bytes().eq_ignore_ascii_case(what))
            .collect(),
        b"PATTERN" => {
            let what = what.to_ascii_lowercase();
            all.filter(|about| globs(&what, about.name.to_lowercase().as_bytes()))
                .collect()
        }
        _ => return Err(Mistake::wrong("FILTERBY", HOW, how).into()),
    })
}

/// The right that a command needs, as Redis' tools call it.
fn category(about: &About) -> &'static str {
    match about.right {
        "" => "connection",
        right => right,
    }
}

/// A command as Redis' own tools read it.
fn entry(reply: &mut rideau_resp::Reply<'_>, about: &About) {
    // The first key, the last, and the step from one to the next.
    let key = i64::from(about.has_key());
    reply
        .array(10)
        .bulk(about.name.to_lowercase())
        .integer(-(about.words as i64))
        .array(1)
        .simple("fast")
        .integer(key)
        .integer(key)
        .integer(key)
        .array(1)
        .simple(format_args!("@{}", category(about)))
        .array(0)
        .array(0)
        .array(0);
}

fn docs(reply: &mut rideau_resp::Reply<'_>, about: &About) {
    reply
        .bulk(about.name.to_lowercase())
        .map(5)
        .bulk("summary")
        .bulk(about.summary)
        .bulk("since")
        .bulk("0.1.0")
        .bulk("group")
        .bulk(category(about))
        .bulk("complexity")
        .bulk("O(1)")
        .bulk("arguments");
    if about.usage.is_empty() {
        reply.array(0);
        return;
    }
    reply
        .array(1)
        .map(3)
        .bulk("name")
        .bulk(about.usage)
        .bulk("type")
        .bulk("string")
        .bulk("display_text")
        .bulk(about.usage);
}
