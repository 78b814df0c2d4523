//! Logins as they happen: which users have come in and how, which have not, and what
//! that means for the next of the same address.
//!
//! [`attempts`](crate::state::attempts) decides. Here are the locks, the clock and the
//! events around it.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rideau_apps::Events;
use rideau_config::human;

use crate::state::attempts::{BeforeLogin, Denials, FailedLogins, Origin, Told};

/// Bytes of a reason that are told.
const WHY_MAX: usize = 512;

/// How a user has shown who it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum How {
    /// It knew the password.
    Password,
    /// By its user id, over a Unix socket.
    Uid,
    /// By the name in its certificate.
    Certificate,
    /// By the control socket.
    Control,
    /// By the operator's token.
    Token,
    /// By the word of another node of the cluster.
    Node,
}

/// Recent logins, failures and denials.
pub(crate) struct Logins {
    failed: Mutex<FailedLogins>,
    before: Arc<Mutex<BeforeLogin>>,
    /// By user and right.
    denials: Mutex<Denials<(String, String)>>,
    /// Of clients that have not logged in, by address and right.
    strangers: Mutex<Denials<(Origin, String)>>,
    hashers: [RandomState; 2],
    events: Arc<Events>,
}

/// One connection has not logged in, as long as this is kept.
pub(crate) struct LoginPlace {
    before: Arc<Mutex<BeforeLogin>>,
    origin: Origin,
}

impl Drop for LoginPlace {
    fn drop(&mut self) {
        self.before.lock().leave(self.origin);
    }
}

/// A keyed hash of a password at the time it was checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Fingerprint(u64, u64);

impl Logins {
    /// No connection has come yet.
    pub(crate) fn new(events: Arc<Events>) -> Self {
        Self {
            failed: Mutex::default(),
            before: Arc::default(),
            denials: Mutex::default(),
            strangers: Mutex::default(),
            hashers: Default::default(),
            events,
        }
    }

    /// A connection that has not logged in. None if there are as many of its
    /// address already.
    pub(crate) fn enter(&self, origin: Origin, most: usize) -> Option<Arc<LoginPlace>> {
        let is_in = self.before.lock().enter(origin, most);
        is_in.then(|| {
            Arc::new(LoginPlace {
                before: Arc::clone(&self.before),
                origin,
            })
        })
    }

    /// How many connections have not logged in, of the address that has most.
    pub(crate) fn most_before_login(&self) -> usize {
        self.before.lock().most()
    }

    /// A user has come in from here.
    pub(crate) fn succeeded(&self, user: &str, from: &str, how: How) {
        let how = match how {
            How::Password => "with a password",
            How::Uid => "by its user id",
            How::Certificate => "by its certificate",
            How::Control => "by the control socket",
            How::Node => "by the word of another node",
            How::Token => "with the token",
        };
        let text = format!("{user} logged in from {from} {how}");
        self.events.add("login", user, text, Some(user));
    }

    /// The password of a user is another now, and its connections have to log in
    /// again: told once, however many they are.
    pub(crate) fn lapsed(&self, user: &str) {
        // No right is called so.
        let key = (user.to_owned(), "its old password".to_owned());
        if self.denials.lock().is_new(key, Instant::now()) {
            let text = format!("the password of {user} was changed: its connections log in again");
            self.events.add("login", user, text, None);
        }
    }

    /// A password or a token was wrong. Says how long the answer is kept back.
    pub(crate) fn failed(&self, origin: Origin) -> Duration {
        let mut told = Vec::new();
        let delay = self.failed.lock().fail(origin, Instant::now(), &mut told);
        self.tell(&told);
        delay
    }

    /// Tell what is due.
    pub(crate) fn look(&self, now: Instant) {
        let mut told = Vec::new();
        self.failed.lock().advance(now, &mut told);
        self.tell(&told);
    }

    fn tell(&self, told: &[Told]) {
        for told in told {
            let origin = told.origin.to_string();
            self.events.add("login", &origin, told.to_string(), None);
        }
    }

    /// A user may not do what it wanted: told once for each right in a while.
    pub(crate) fn denied(&self, user: &str, right: &str, why: &str) {
        let key = (user.to_owned(), right.to_owned());
        if self.denials.lock().is_new(key, Instant::now()) {
            let why = human::cut(why, WHY_MAX);
            let text = format!("{user} was denied {right:?}: {why}");
            self.events.add("denied", user, text, Some(user));
        }
    }

    /// The same, if that is what an error says.
    pub(crate) fn refused(&self, user: &str, right: &str, error: &str) {
        let mut codes = ["NOPERM ", "NOAUTH "].into_iter();
        if let Some(why) = codes.find_map(|code| error.strip_prefix(code)) {
            self.denied(user, right, why);
        }
    }

    /// A client that has not logged in may not do what it wanted: told once for each
    /// address and right in a while.
    pub(crate) fn denied_to(&self, origin: Origin, right: &str, why: &str) {
        let key = (origin, right.to_owned());
        if self.strangers.lock().is_new(key, Instant::now()) {
            let why = human::cut(why, WHY_MAX);
            let origin = origin.to_string();
            let text = format!("a client from {origin} was denied {right:?}: {why}");
            self.events.add("denied", &origin, text, None);
        }
    }

    /// A connection was refused because too many of its address have not logged in: told once
    /// for each address in a while.
    pub(crate) fn crowded(&self, origin: Origin) {
        // No right is called so.
        let key = (origin, "a place before the login".to_owned());
        if self.strangers.lock().is_new(key, Instant::now()) {
            let text = format!(
                "connections from {origin} are refused: too many of them have not logged in"
            );
            self.events.add("login", &origin.to_string(), text, None);
        }
    }

    /// The keyed hash of these bytes; it is of use in this process only.
    pub(crate) fn fingerprint(&self, bytes: &[u8]) -> Fingerprint {
        let [one, other] = &self.hashers;
        Fingerprint(one.hash_one(bytes), other.hash_one(bytes))
    }
}
