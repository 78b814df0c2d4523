//! Lets a connection in and serves it, or says why not.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use rideau_apps::answer_and_close;
use rideau_config::User;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::redis::client::Client;
use crate::redis::connection;
use crate::redis::peer::Proof;
use crate::state::attempts::Origin;
use crate::state::clients::ClientCard;
use crate::state::daemon::Daemon;
use crate::state::holder::Holder;
use crate::state::logins::LoginPlace;
use crate::state::quota::{Counted, Quota};
use crate::state::reserve;

/// A connection that wants to come in.
pub(super) struct Coming {
    pub(super) address: String,
    pub(super) local: String,
    pub(super) origin: Origin,
    pub(super) proof: Proof,
    /// It is counted among those that have not logged in.
    pub(super) place: Option<Arc<LoginPlace>>,
    /// It came to the port for clients of Redis Cluster.
    pub(super) is_straight: bool,
    /// What it sends is encrypted.
    pub(super) is_tls: bool,
}

impl Coming {
    pub(super) fn by_unix(uid: Option<u32>, address: String, path: &str, proof: Proof) -> Self {
        Self {
            address,
            local: path.into(),
            origin: uid.map_or(Origin::Unknown, Origin::User),
            proof,
            place: None,
            is_straight: false,
            is_tls: false,
        }
    }
}

/// Why a connection does not come in.
pub(super) enum Refused {
    /// There are too many. It may still ask how we are.
    Full(String),
    /// No connection comes in any more.
    Stopping,
    /// It is another account's socket.
    NotOperator,
}

/// Let a connection in, or say why not. What it is goes from hand to hand, and a
/// future keeps room for each of them.
pub(super) fn admit(daemon: &Arc<Daemon>, mut coming: Coming) -> Admitted {
    if daemon.clients.len() >= daemon.files.connections() {
        daemon.counts.turned_away.fetch_add(1, Ordering::Relaxed);
        let why = daemon.files.full(&daemon.config.load());
        return Admitted(Err(Refused::Full(format!("-BUSY {why}.\r\n"))));
    }
    if daemon.is_draining() {
        daemon.counts.turned_away.fetch_add(1, Ordering::Relaxed);
        return Admitted(Err(Refused::Stopping));
    }
    // Read before the user: a change that comes meanwhile is followed later.
    let generation = daemon.settings.generation();
    let user = coming.proof.user(daemon);
    let usage = daemon.quotas.of(User::name_of(user.as_ref()));
    let limits = &daemon.config.load().limits;
    let counted = match usage.take(Quota::Connections, user.as_deref(), limits) {
        Ok(counted) => counted,
        Err(over) => {
            daemon.counts.turned_away.fetch_add(1, Ordering::Relaxed);
            return Admitted(Err(Refused::Full(format!("-BUSY {over}.\r\n"))));
        }
    };
    match &user {
        Some(user) => {
            coming.place = None;
            let how = coming.proof.how();
            daemon.logins.succeeded(&user.name, &coming.address, how);
        }
        None if coming.place.is_none() => match enter(daemon, coming.origin) {
            Ok(place) => coming.place = place,
            Err(Crowded) => {
                let why = crowded(daemon, coming.origin);
                return Admitted(Err(Refused::Full(why)));
            }
        },
        None => (),
    }
    daemon.counts.connections.fetch_add(1, Ordering::Relaxed);
    Admitted(Ok(Some(Box::new(welcome(
        daemon, coming, user, counted, generation,
    )))))
}

/// The limit of connections of its address that have not logged in is reached.
pub(super) struct Crowded;

/// Count a connection that has yet to log in, where that is needed.
pub(super) fn enter(daemon: &Daemon, origin: Origin) -> Result<Option<Arc<LoginPlace>>, Crowded> {
    let config = daemon.config.load();
    if config.users.is_empty() {
        return Ok(None);
    }
    let place = daemon.logins.enter(origin, config.limits.before_login_max);
    place.map(Some).ok_or(Crowded)
}

/// Count a connection that is turned away because its address has too many, and say so.
pub(super) fn crowded(daemon: &Daemon, origin: Origin) -> String {
    daemon.counts.logins_crowded.fetch_add(1, Ordering::Relaxed);
    daemon.logins.crowded(origin);
    let most = daemon.config.load().limits.before_login_max;
    format!(
        "-BUSY limits.before_login_max ({most}) reached by connections from {origin} that have not \
         logged in: log in with those or raise it.\r\n"
    )
}

/// A connection that was let in, until it is served, or why it was not. If it
/// never comes to an I/O thread, it is forgotten.
pub(super) struct Admitted(pub(super) Result<Option<Box<Client>>, Refused>);

impl Drop for Admitted {
    fn drop(&mut self) {
        if let Ok(Some(client)) = &mut self.0 {
            client.forget();
        }
    }
}

/// Serve a connection, or turn it away.
pub(super) async fn serve<S>(stream: S, daemon: Arc<Daemon>, mut admitted: Admitted)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let told: &[u8] = match &mut admitted.0 {
        Ok(client) => {
            drop(daemon);
            if let Some(client) = client.take() {
                connection::serve(stream, client).await;
            }
            return;
        }
        Err(Refused::Full(why)) => {
            let place = daemon.reserve.take();
            // Apart, so that those that are let in keep no room for it.
            return Box::pin(reserve::turn_away(stream, why, place)).await;
        }
        Err(Refused::Stopping) => {
            b"-READONLY the server is stopping: connect to another one, or come back later.\r\n"
        }
        Err(Refused::NotOperator) => {
            b"-NOPERM this socket is for root and the account of the server.\r\n"
        }
    };
    Box::pin(answer_and_close(stream, told)).await;
}

fn welcome(
    daemon: &Arc<Daemon>,
    coming: Coming,
    user: Option<Arc<User>>,
    connection: Counted,
    generation: u64,
) -> Client {
    let Coming {
        address,
        local,
        origin,
        proof,
        place,
        is_straight,
        is_tls,
    } = coming;
    let config = daemon.config.load();
    let id = daemon.clients.next_id();
    let name = User::name_of(user.as_ref());
    let card = Arc::new(Holder {
        name: Mutex::new(format!("conn-{id}")),
        user: name.into(),
        session: None,
        connection: Some(id),
    });
    let holder = daemon.lease_table.open(Arc::clone(&card));
    let bytes_max = config.limits.output_max as usize;
    let card = Arc::new(ClientCard {
        local,
        ..ClientCard::new(id, address, (&card, holder), bytes_max)
    });
    daemon.clients.add(&card);
    Client {
        connection: Some(connection),
        proof,
        origin,
        place,
        is_proven: true,
        is_straight,
        is_tls,
        generation,
        ..Client::new(daemon, card, user)
    }
}
