//! Which user a connection is, and what it may do.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use rideau_config::password::Hash;
use rideau_config::{Password, User};
use rideau_process::panics::{self, Panicked};

use crate::redis::client::{
    Awaits, Client, CommandError, Next, OnReady, PendingCommand, answer_panic,
};
use crate::state::attempts::Origin;
use crate::state::daemon::Daemon;
use crate::state::end::EndReason;
use crate::state::holder::Holder;
use crate::state::logins::{Fingerprint, How, LoginPlace};
use crate::state::quota::{Over, Quota};

/// Follow a change of the config: a user may do other things from now on, or
/// nothing at all.
#[inline]
pub(crate) fn follow(client: &mut Client) {
    let generation = client.daemon.settings.generation();
    if client.generation != generation {
        follow_to(client, generation);
    }
}

#[cold]
fn follow_to(client: &mut Client, generation: u64) {
    client.generation = generation;
    client.read_config();
    let Some(user) = client.user.clone() else {
        return;
    };
    if client.daemon.operator.is(&user) && !client.is_proven {
        return;
    }
    let found = if client.is_proven {
        client.proof.user(&client.daemon)
    } else {
        let config = client.daemon.config.load();
        let mut users = config.users.iter();
        let found = users.find(|known| known.name == user.name);
        if let Some(found) = found
            && password_now(&client.daemon, found) != client.password
        {
            return lapse(client);
        }
        found.cloned().map(Arc::new)
    };
    match found {
        Some(found) if found.name == user.name => client.user = Some(found),
        found => become_user(client, found),
    }
}

/// Its password is another now: it has to log in again. Until then it keeps what it
/// holds, which is given back if it does not log in as the same user in time.
fn lapse(client: &mut Client) {
    client.daemon.logins.lapsed(client.user_name());
    client.user = None;
    client.password = None;
}

/// What the password of a user is known by now. None if there is none, or its file
/// cannot be read.
pub(crate) fn password_now(daemon: &Daemon, user: &User) -> Option<Fingerprint> {
    let logins = &daemon.logins;
    match user.password.as_ref()? {
        Password::Hash(hash) => Some(logins.fingerprint(hash.as_str().as_bytes())),
        Password::File(path) => {
            let text = std::fs::read(path).ok()?;
            Some(logins.fingerprint(&text))
        }
    }
}

/// The connection has to log in before it can do anything.
pub(crate) fn is_needed(client: &Client) -> bool {
    client.user.is_none() && !client.daemon.config.load().users.is_empty()
}

/// Check a password, away from the threads that serve others, and go on as that
/// user.
///
/// # Errors
///
/// If there are no users, or too many passwords are being checked.
pub(crate) fn begin(
    client: &mut Client,
    user: Vec<u8>,
    password: Vec<u8>,
    then: impl FnOnce(&mut Client) + Send + 'static,
) -> Result<Next, CommandError> {
    if client.daemon.operator.is_token(&password) {
        let operator = Arc::clone(client.daemon.operator.user());
        let logins = &client.daemon.logins;
        logins.succeeded(&operator.name, &client.card.address, How::Token);
        client.is_proven = false;
        client.password = None;
        become_user(client, Some(operator));
        then(client);
        return Ok(Next::Done);
    }
    let config = client.daemon.config.load();
    if config.users.is_empty() {
        return Ok(refuse_token(client, &user));
    }
    let found = config
        .users
        .iter()
        .find(|known| known.name.as_bytes() == user);
    let found = found.cloned().map(Arc::new);
    let daemon = Arc::clone(&client.daemon);
    let (origin, place) = (client.origin, client.place.clone());
    let answer = async move {
        let checked = match attempt(daemon, found.clone(), password, origin, place).await {
            Ok(checked) => checked,
            Err(panicked) => return answer_panic(panicked),
        };
        let finish: OnReady = Box::new(move |client| match still(client, found, checked) {
            Some((user, password)) => {
                let counted = match client.connection_of(&user) {
                    Ok(counted) => counted,
                    Err(over) => return turn_away(client, over),
                };
                client.is_proven = false;
                client.password = Some(password);
                let from = &client.card.address;
                let logins = &client.daemon.logins;
                logins.succeeded(&user.name, from, How::Password);
                // After a change of its password it goes on with what it holds.
                if client.user.is_none() && *client.holder_card().user == *user.name {
                    client.user = Some(user);
                } else {
                    become_user(client, Some(user));
                }
                client.connection = Some(counted);
                then(client);
            }
            None => {
                client
                    .reply()
                    .error("WRONGPASS the user or the password is wrong.");
            }
        });
        finish
    };
    let answer = Box::pin(answer);
    Ok(Next::Wait(PendingCommand::new(
        "a password check",
        Awaits::Anything,
        answer,
    )))
}

/// The user as it is now, if what was checked is still its password: a check takes a
/// while.
fn still(
    client: &Client,
    found: Option<Arc<User>>,
    checked: Option<Fingerprint>,
) -> Option<(Arc<User>, Fingerprint)> {
    let (found, checked) = found.zip(checked)?;
    let config = client.daemon.config.load();
    let user = config.users.iter().find(|user| user.name == found.name)?;
    let is_right = password_now(&client.daemon, user) == Some(checked);
    is_right.then(|| (Arc::new(user.clone()), checked))
}

/// There are no users, and this is not the operator's token: no, as late as to a wrong
/// password.
#[cold]
fn refuse_token(client: &Client, user: &[u8]) -> Next {
    let text = match user == b"default" {
        true => format!(
            "ERR there is no password here: the config has no users. What every client may do \
             needs \
             no login; for the rest, {}",
            client.daemon.operator.advice()
        ),
        false => "WRONGPASS there is no such user.".into(),
    };
    let daemon = Arc::clone(&client.daemon);
    let (origin, place) = (client.origin, client.place.clone());
    let answer = async move {
        refused(daemon, origin, place).await;
        let finish: OnReady = Box::new(move |client| {
            client.reply().error(text);
        });
        finish
    };
    let answer = Box::pin(answer);
    Next::Wait(PendingCommand::new(
        "a token check",
        Awaits::Anything,
        answer,
    ))
}

/// A token was wrong: it is counted as a wrong password is, and answered as late.
pub(crate) async fn refused(daemon: Arc<Daemon>, origin: Origin, place: Option<Arc<LoginPlace>>) {
    // As with a password, closing the connection early gains nothing.
    let _ = tokio::spawn(async move {
        delay(&daemon, origin).await;
        drop(place);
    })
    .await;
}

/// A login failed: wait for as long as its answer is kept back.
async fn delay(daemon: &Daemon, origin: Origin) {
    daemon.counts.denied.fetch_add(1, Ordering::Relaxed);
    let delay = daemon.logins.failed(origin);
    if !delay.is_zero() {
        tokio::time::sleep(delay).await;
    }
}

/// The limit of connections of the user is reached.
#[cold]
fn turn_away(client: &mut Client, over: Over) {
    let counts = &client.daemon.counts;
    counts.turned_away.fetch_add(1, Ordering::Relaxed);
    let CommandError(text) = over.into();
    client.reply().error(text);
}

/// Try a password: what it is known by if it is right. A wrong one is answered later
/// and later, by the address that it comes from.
///
/// The try is finished even if the client does not wait for the answer. Until then it
/// has its turn, and its place among those that have not logged in: closing a
/// connection early gains nothing.
///
/// # Errors
///
/// If the check panicked, which says nothing about the password.
pub(crate) async fn attempt(
    daemon: Arc<Daemon>,
    user: Option<Arc<User>>,
    password: Vec<u8>,
    origin: Origin,
    place: Option<Arc<LoginPlace>>,
) -> Result<Option<Fingerprint>, Panicked> {
    let attempt = tokio::spawn(async move {
        let checked = panics::contain_async(check(&daemon, user, password)).await;
        let checked = checked.unwrap_or_else(Err);
        if matches!(checked, Ok(None)) {
            delay(&daemon, origin).await;
        }
        drop(place);
        checked
    });
    // It ends early only with the server.
    attempt.await.unwrap_or(Ok(None))
}

/// Be this user, or none, from now on. What the connection held as another it gives
/// back first, and it leaves the other's session.
pub(crate) fn become_user(client: &mut Client, user: Option<Arc<User>>) {
    let name = client.holder_card().name.lock().clone();
    client.leave_session(EndReason::Quit);
    client.daemon.end_holder(client.holder, EndReason::Quit);
    let user_name = User::name_of(user.as_ref());
    let card = Arc::new(Holder {
        name: Mutex::new(name),
        user: user_name.into(),
        session: None,
        connection: Some(client.card.id),
    });
    client.holder = client.daemon.lease_table.open(Arc::clone(&card));
    *client.card.holder.lock() = client.holder;
    *client.card.card.lock() = card;
    client.usage = client.daemon.quotas.of(user_name);
    // A connection that is there already stays, whichever user it is.
    let counted = user.as_ref();
    client.connection = counted.map(|_| client.usage.count(Quota::Connections));
    client.user = user;
}

/// The user as it is now, with the rights that it has now. The operator is in no config.
/// A connection that came with a password came with this one.
///
/// # Errors
///
/// If it is no more or has another password, or if one has to be a user now and is none.
pub(crate) fn current(
    daemon: &Daemon,
    user: Option<&Arc<User>>,
    password: Option<Fingerprint>,
) -> Result<Option<Arc<User>>, CommandError> {
    let config = daemon.config.load();
    let Some(user) = user else {
        return match config.users.is_empty() {
            true => Ok(None),
            false => Err(CommandError(
                "NOAUTH the config has users now: send AUTH user password.".into(),
            )),
        };
    };
    if daemon.operator.is(user) {
        return Ok(Some(Arc::clone(user)));
    }
    match config.users.iter().find(|known| known.name == user.name) {
        Some(found) if password.is_none() || password == password_now(daemon, found) => {
            Ok(Some(Arc::new(found.clone())))
        }
        Some(found) => Err(CommandError(format!(
            "NOAUTH user {} has another password now: log in again.",
            found.name
        ))),
        None => Err(gone(&user.name)),
    }
}

/// Why a connection of a user is over, if that user is no more.
pub(crate) fn removed(client: &Client) -> Option<CommandError> {
    let user = client.user.as_ref()?;
    let config = client.daemon.config.load();
    let is_there = config.users.iter().any(|known| known.name == user.name);
    let is_there = is_there || client.daemon.operator.is(user);
    (!is_there).then(|| gone(&user.name))
}

fn gone(user: &str) -> CommandError {
    CommandError(format!(
        "NOAUTH user {user} was removed: log in as another."
    ))
}

/// What the password is known by if it is right. As few as the config allows are
/// checked at a time: each costs memory and time on purpose.
async fn check(
    daemon: &Daemon,
    user: Option<Arc<User>>,
    password: Vec<u8>,
) -> Result<Option<Fingerprint>, Panicked> {
    // Taken before the check: a file that changes meanwhile counts as changed.
    let now = user.as_ref().and_then(|user| password_now(daemon, user));
    let _turn = match daemon.password_checks.try_take() {
        Some(turn) => turn,
        None => {
            let counts = &daemon.counts;
            counts.checks_delayed.fetch_add(1, Ordering::Relaxed);
            daemon.password_checks.take().await
        }
    };
    let config = daemon.config.load_full();
    let checked = panics::away(move || {
        #[cfg(test)]
        assert!(password != b"TEST.PANIC", "planted");
        let own = user.as_ref().and_then(|user| user.password.as_ref());
        let others = config
            .users
            .iter()
            .filter_map(|user| user.password.as_ref());
        is_right(own, others, &password).0
    });
    let is_right = checked.await?;
    Ok(now.filter(|_| is_right))
}

/// Whether this is the password, and how many hashes were made to know. It is one also
/// for a user who is not there or has no password, so that the time does not tell which
/// users there are.
fn is_right<'a>(
    own: Option<&'a Password>,
    others: impl Iterator<Item = &'a Password>,
    given: &[u8],
) -> (bool, usize) {
    let mut tries = own.into_iter().chain(others);
    let tried = tries.find_map(|password| Some((password, try_password(password, given)?)));
    match tried {
        Some((password, is_right)) => (is_right && own == Some(password), 1),
        None => (false, 0),
    }
}

/// Make one hash to see whether this is the password. None if there is no
/// password to compare with.
fn try_password(password: &Password, given: &[u8]) -> Option<bool> {
    let path = match password {
        Password::Hash(hash) => return Some(hash.verify(given)),
        Password::File(path) => path,
    };
    let text = std::fs::read_to_string(path).ok()?;
    let text = text.trim_end_matches(['\r', '\n']);
    if text.starts_with("$argon2") {
        return Some(Hash::parse(text).ok()?.verify(given));
    }
    // What stands there is compared as it is, and takes as long.
    let _ = Hash::of(given);
    let is_same = |(one, other): (&u8, &u8)| one ^ other;
    let differ = text.as_bytes().iter().zip(given).map(is_same);
    let differ = differ.fold(0, |all, differ| all | differ);
    (!text.is_empty()).then_some(differ == 0 && text.len() == given.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_much_is_done_for_a_user_who_is_not_there_as_for_a_wrong_password() {
        let folder = std::env::temp_dir();
        let file = |name: &str, text: Option<&str>| {
            let path = folder.join(format!("rideau-login-{}-{name}", std::process::id()));
            if let Some(text) = text {
                std::fs::write(&path, text).unwrap();
            }
            Password::File(path)
        };
        let hash = Hash::of(b"right").unwrap();
        let all = [
            file("missing", None),
            file("empty", Some("")),
            Password::Hash(hash.clone()),
            file("plain", Some("right\n")),
            file("hash", Some(hash.as_str())),
        ];
        for own in [None].into_iter().chain(all.iter().map(Some)) {
            assert_eq!(is_right(own, all.iter(), b"righ"), (false, 1), "{own:?}");
        }
        for own in &all[2..] {
            assert_eq!(is_right(Some(own), all.iter(), b"right"), (true, 1));
        }
        for own in [None, Some(&all[0])] {
            assert_eq!(is_right(own, all.iter(), b"right"), (false, 1));
        }
        for password in &all {
            if let Password::File(path) = password {
                let _ = std::fs::remove_file(path);
            }
        }
    }
}
