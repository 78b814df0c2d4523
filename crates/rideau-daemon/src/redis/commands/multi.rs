//! `MULTI` and `EXEC`: commands that are queued, and then executed one behind the other.
//!
//! Most clients send pipelines so. Nothing of another command of the connection comes in
//! between, and none of them waits; other clients may come in between.

use rideau_config::OWN;
use rideau_resp::{Request, Upper};

use super::{About, Subject, about};
use crate::redis::client::{Client, CommandError, Next};
use crate::redis::transaction::{QUEUED_MAX, TooLong, Transaction};

pub(super) const MULTI: About = about(
    "MULTI",
    1,
    OWN,
    Subject::Nothing,
    "",
    "Queue the commands that follow, until EXEC or DISCARD",
    multi,
);

pub(super) const EXEC: About = about(
    "EXEC",
    1,
    "",
    Subject::Nothing,
    "",
    "Execute what was queued since MULTI, in order; none of it waits",
    exec,
);

pub(super) const DISCARD: About = about(
    "DISCARD",
    1,
    "",
    Subject::Nothing,
    "",
    "Forget what was queued since MULTI",
    discard,
);

pub(super) const WATCH: About = about(
    "WATCH",
    2,
    "",
    Subject::Nothing,
    "key ...",
    "Refused: there are no values to watch; LOCK keeps others from a key",
    watch,
);

pub(super) const UNWATCH: About = about(
    "UNWATCH",
    1,
    "",
    Subject::Nothing,
    "",
    "Nothing is watched, so this does nothing",
    unwatch,
);

/// These are executed at once, also behind `MULTI`.
const AT_ONCE: &[&str] = &["EXEC", "DISCARD", "MULTI", "WATCH", "QUIT", "RESET"];

/// These change which user a connection is, what it speaks or what it hears. What they
/// say is no answer among others.
const ALONE: &[&str] = &[
    "AUTH",
    "HELLO",
    "SUBSCRIBE",
    "PSUBSCRIBE",
    "UNSUBSCRIBE",
    "PUNSUBSCRIBE",
    "RANGE.WATCH",
    "MONITOR",
];

fn multi(client: &mut Client, request: Request<'_>) -> Result<Next, CommandError> {
    request.arguments().end("MULTI")?;
    if client.transaction.is_some() {
        return Err(CommandError(
            "ERR MULTI calls can not be nested: EXEC or DISCARD first.".into(),
        ));
    }
    let transaction = Transaction::new(&client.daemon.input, client.user_name());
    client.transaction = Some(Box::new(transaction));
    client.reply_ok();
    Ok(Next::Done)
}

fn exec(client: &mut Client, request: Request<'_>) -> Result<Next, CommandError> {
    request.arguments().end("EXEC")?;
    let Some(transaction) = client.transaction.take() else {
        return Err(CommandError(
            "ERR EXEC without MULTI: nothing is queued.".into(),
        ));
    };
    if !transaction.is_good() {
        return Err(CommandError(
            "EXECABORT Transaction discarded because of previous errors: none of its commands \
             was executed."
                .into(),
        ));
    }
    if !transaction.is_of(client.user_name()) {
        return Err(CommandError(
            "EXECABORT Transaction discarded because this connection has logged in as another user \
             meanwhile: none of its commands was executed."
                .into(),
        ));
    }
    Ok(Next::Exec(transaction))
}

fn discard(client: &mut Client, request: Request<'_>) -> Result<Next, CommandError> {
    request.arguments().end("DISCARD")?;
    if client.transaction.take().is_none() {
        return Err(CommandError(
            "ERR DISCARD without MULTI: nothing is queued.".into(),
        ));
    }
    client.reply_ok();
    Ok(Next::Done)
}

fn watch(client: &mut Client, _request: Request<'_>) -> Result<Next, CommandError> {
    Err(CommandError(match client.transaction.is_some() {
        true => "ERR WATCH inside MULTI is not allowed.".into(),
        false => {
            "ERR WATCH has nothing to watch: this server keeps no values of its own. LOCK key \
                  keeps others from a key until RELEASE."
                .into()
        }
    }))
}

fn unwatch(client: &mut Client, request: Request<'_>) -> Result<Next, CommandError> {
    request.arguments().end("UNWATCH")?;
    client.reply_ok();
    Ok(Next::Done)
}

/// An unknown command was sent behind `MULTI`.
pub(super) fn spoil(client: &mut Client) {
    if let Some(transaction) = &mut client.transaction {
        transaction.spoil();
    }
}

/// Queue a command that was sent behind `MULTI`, unless it is one of those that are
/// executed at once.
#[cold]
pub(super) fn queue(client: &mut Client, at: usize, request: Request<'_>) -> Option<Next> {
    let about = &super::ALL[at];
    if AT_ONCE.contains(&about.name) {
        return None;
    }
    let may = may_queue(client, about, request).and_then(|()| add(client, request));
    let before = client.out.len();
    match may {
        Ok(()) => {
            client.reply().simple("QUEUED");
        }
        Err(wrong) => {
            client.batch.add(at);
            spoil(client);
            super::fail(client, about, before, wrong);
        }
    }
    Some(Next::Done)
}

/// Whether a command can be queued, by the rights of now. They are looked up again when
/// it is executed.
fn may_queue(client: &Client, about: &About, request: Request<'_>) -> Result<(), CommandError> {
    super::may(client, about, request)?;
    super::route::redirect(client, about, request)?;
    let word = request.word(1).map(Upper::of);
    let is_reply = word.is_some_and(|word| word.as_bytes() == b"REPLY");
    let is_alone = ALONE.contains(&about.name) || about.name == "CLIENT" && is_reply;
    match is_alone {
        true => Err(CommandError(format!(
            "ERR {} inside MULTI is not allowed: send it before MULTI, or after EXEC.",
            about.name
        ))),
        false => Ok(()),
    }
}

fn add(client: &mut Client, request: Request<'_>) -> Result<(), CommandError> {
    let bytes_max = client.config.limits.frame_max;
    let Some(transaction) = &mut client.transaction else {
        return Ok(());
    };
    let added = transaction.add(request, bytes_max as usize);
    added.map_err(|too_long| {
        CommandError(match too_long {
            TooLong::Commands => format!(
                "BUSY {QUEUED_MAX} commands are queued, the most that one MULTI may have: EXEC \
                 fewer at a time, or send them without MULTI."
            ),
            TooLong::Bytes => format!(
                "BUSY limits.frame_max ({bytes_max} bytes) reached by the commands behind this \
                 MULTI: EXEC fewer at a time or raise it."
            ),
            TooLong::Shared(max) => format!(
                "BUSY limits.input_max ({max} bytes) reached by commands that are not complete: \
                 send them again later or raise it."
            ),
        })
    })
}
