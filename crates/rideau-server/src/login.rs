//! Who a connection is, and what it may do.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use crate::client::{Client, Finish, Step, Wait, Wrong};
use crate::command;
use crate::config::password::Hash;
use crate::config::{Password, User};
use crate::daemon::Daemon;
use crate::holdings::{Card, Why};

/// The user of one who need not say so: on a Unix socket by its id, and anybody
/// where there are no users at all.
pub(crate) fn without_password(daemon: &Daemon, uid: Option<u32>) -> Option<Arc<User>> {
    let config = daemon.config.load();
    let uid = uid?;
    let user = config.users.iter().find(|user| user.uids.contains(&uid));
    user.cloned().map(Arc::new)
}

/// The user of this name, who has proved it in another way.
pub(crate) fn named(daemon: &Daemon, name: &str) -> Option<Arc<User>> {
    let config = daemon.config.load();
    let user = config.users.iter().find(|user| user.name == name);
    user.cloned().map(Arc::new)
}

/// Follow a change of the config: a user may do other things from now on, or
/// nothing at all.
pub(crate) fn follow(client: &mut Client) {
    let generation = client.daemon.settings.generation();
    if client.generation == generation {
        return;
    }
    client.generation = generation;
    let Some(user) = client.user.clone() else {
        return;
    };
    let is_by_uid = client.uid.is_some_and(|uid| user.uids.contains(&uid));
    let config = client.daemon.config.load_full();
    let found = if is_by_uid {
        without_password(&client.daemon, client.uid)
    } else {
        let mut users = config.users.iter();
        users
            .find(|known| known.name == user.name)
            .cloned()
            .map(Arc::new)
    };
    match found {
        Some(found) if found.name != user.name => become_user(client, found),
        found => client.user = found,
    }
}

/// The connection has to say who it is before it can do anything.
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
) -> Result<Step, Wrong> {
    let config = client.daemon.config.load();
    if config.users.is_empty() {
        if user == b"default" {
            return Err(Wrong(
                "ERR there is no password here: the config has no users, and anybody who can \
                 connect may do anything."
                    .into(),
            ));
        }
        return Err(Wrong("WRONGPASS there is no such user.".into()));
    }
    let found = config
        .users
        .iter()
        .find(|known| known.name.as_bytes() == user);
    let found = found.cloned().map(Arc::new);
    let daemon = Arc::clone(&client.daemon);
    let answer = async move {
        let is_right = check(&daemon, found.clone(), password).await;
        let finish: Finish = Box::new(move |client| match found {
            Some(user) if is_right => {
                become_user(client, user);
                then(client);
            }
            _ => {
                client.daemon.counts.denied.fetch_add(1, Ordering::Relaxed);
                client
                    .reply()
                    .error("WRONGPASS the user or the password is wrong.");
            }
        });
        finish
    };
    Ok(Step::Wait(Wait {
        answer: Box::pin(answer),
        name: "a password check".into(),
    }))
}

/// What a connection held as another it gives back first, and it leaves the
/// other's session.
pub(crate) fn become_user(client: &mut Client, user: Arc<User>) {
    let name = client.holder_card().name.lock().clone();
    command::leave_session(client);
    client.daemon.end_holder(client.holder, Why::Quit);
    let card = Arc::new(Card {
        name: Mutex::new(name),
        user: user.name.as_str().into(),
        session: None,
        connection: Some(client.card.id),
    });
    client.holder = client.daemon.holdings.open(Arc::clone(&card));
    *client.card.holder.lock() = client.holder;
    *client.card.card.lock() = card;
    client.user = Some(user);
}

/// As few as the config allows are checked at a time: each costs memory and
/// time on purpose.
pub(crate) async fn check(daemon: &Daemon, user: Option<Arc<User>>, password: Vec<u8>) -> bool {
    let _turn = match daemon.password_checks.try_take() {
        Some(turn) => turn,
        None => {
            let counts = &daemon.counts;
            counts.checks_delayed.fetch_add(1, Ordering::Relaxed);
            daemon.password_checks.take().await
        }
    };
    let checked = tokio::task::spawn_blocking(move || {
        let hash = match user.and_then(|user| user.password.clone()) {
            Some(Password::Hash(hash)) => Some(hash),
            Some(Password::File(path)) => {
                let text = std::fs::read_to_string(path).ok();
                text.and_then(|text| Hash::of_file(&text).ok())
            }
            None => None,
        };
        hash.is_some_and(|hash| hash.verify(&password))
    });
    checked.await.unwrap_or(false)
}
