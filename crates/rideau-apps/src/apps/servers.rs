//! The servers of an upstream: those that the config names, at the addresses that they have now.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use rideau_config::{ServerPlace, UpstreamServers};
use rideau_core::apps::ProcessId;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};

use super::Inner;
use super::app::App;
use super::look_up::look_up;
use super::process_task::{IDLE_MAX, ProcessSlot};
use super::running::{Origin, Running};
use super::server_list::{AppServers, ServerManner, UpstreamServer};
use super::server_task;
use crate::upstream::{Connections, KeepAlive, ServerTls, TlsTowardServers};

/// Lookups that follow from failures come no closer than this.
const AGAIN_MIN: Duration = Duration::from_secs(1);

/// Have the machine know the servers of an upstream until that is gone.
pub(super) async fn keep(apps: Weak<Inner>, app: Weak<App>) {
    loop {
        let Some(watched) = app.upgrade() else { return };
        let Some(servers) = &watched.servers else {
            return;
        };
        let since = Instant::now();
        let again_in = tokio::select! {
            biased;
            () = servers.changed.notified() => continue,
            again_in = round(&apps, &watched, servers) => again_in,
        };
        let Some(again_in) = again_in else { return };
        let mut rest = pin!(sleep(again_in));
        loop {
            let is_over = tokio::select! {
                () = servers.changed.notified() => true,
                () = servers.down.notified() => {
                    let soon = since + AGAIN_MIN;
                    if soon < rest.deadline() {
                        rest.as_mut().reset(soon);
                    }
                    false
                }
                () = &mut rest => true,
            };
            if is_over {
                break;
            }
        }
    }
}

/// Look names up, and have the machine know what was found. Says when to do so again; none if
/// nothing is there any more.
async fn round(apps: &Weak<Inner>, app: &Arc<App>, servers: &AppServers) -> Option<Duration> {
    let config = app.config.load_full();
    let spec = config.servers.as_ref()?;
    let manner = ServerManner::new(spec, &config.http);
    servers.refresh_tls(apps, app, &manner).await;
    // Those that are known already need not wait for the others.
    servers.settle(apps, app, spec, &manner)?;
    let file = apps.upgrade()?.hosts_file.load_full();
    let names = spec.places.iter().filter_map(|place| match place {
        ServerPlace::Name { host, port } => {
            let file = file.as_deref().cloned();
            Some(async move { (place, look_up(host, *port, file).await) })
        }
        ServerPlace::Address(_) | ServerPlace::Socket(_) => None,
    });
    let mut lookups: FuturesUnordered<_> = names.collect();
    let has_names = !lookups.is_empty();
    while let Some((place, found)) = lookups.next().await {
        servers.found(apps, app, place, found);
        servers.settle(apps, app, spec, &manner)?;
    }
    let inner = apps.upgrade()?;
    inner.step(|step| (step.machine).await_servers(app.id, false, step.now, step.effects));
    let is_whole = {
        let known = servers.known.lock();
        let is_name = |place: &&ServerPlace| matches!(place, ServerPlace::Name { .. });
        let mut names = spec.places.iter().filter(is_name);
        names.all(|place| known.addresses.contains_key(place))
    };
    Some(match (has_names, is_whole) {
        (true, false) => spec.lookup_every.min(AGAIN_MIN),
        (true, true) => spec.lookup_every,
        // The files of TLS may change.
        (false, _) => spec.lookup_every.max(AGAIN_MIN),
    })
}

impl AppServers {
    /// A name was looked up.
    fn found(
        &self,
        apps: &Weak<Inner>,
        app: &App,
        place: &ServerPlace,
        found: io::Result<Vec<SocketAddr>>,
    ) {
        let mut known = self.known.lock();
        let said = match found {
            Ok(found) => {
                let was_lost = known.lost.remove(place);
                known.addresses.insert(place.clone(), found);
                was_lost.then(|| format!("{place} is found again"))
            }
            Err(error) => {
                let is_new = known.lost.insert(place.clone());
                let kept = match known.addresses.contains_key(place) {
                    true => "; the addresses that it had are used",
                    false => "",
                };
                is_new.then(|| format!("{place} is not found: {error}{kept}"))
            }
        };
        drop(known);
        if let (Some(text), Some(inner)) = (said, apps.upgrade()) {
            inner.tell(&app.name, text, None);
        }
    }

    /// Read the files of TLS, if they changed.
    async fn refresh_tls(&self, apps: &Weak<Inner>, app: &App, manner: &ServerManner) {
        let identity = manner.tls.as_ref().map(|(identity, _)| identity.clone());
        let Some(identity) = identity else {
            self.known.lock().tls = None;
            return;
        };
        let tls = {
            let mut known = self.known.lock();
            let same = known.tls.take().filter(|tls| tls.is_of(&identity));
            let tls = same.unwrap_or_else(|| Arc::new(TlsTowardServers::new(identity)));
            known.tls = Some(Arc::clone(&tls));
            tls
        };
        let read = spawn_blocking(move || tls.refresh()).await;
        if let (Ok(Err(error)), Some(inner)) = (read, apps.upgrade()) {
            let text = format!("the files of TLS are not used as they are now: {error}");
            inner.tell(&app.name, text, None);
        }
    }

    /// Have the machine know the servers as they are known here. None if nothing is there any
    /// more.
    fn settle(
        &self,
        apps: &Weak<Inner>,
        app: &Arc<App>,
        spec: &UpstreamServers,
        manner: &ServerManner,
    ) -> Option<()> {
        let inner = apps.upgrade()?;
        if !inner.tables().by_id.contains_key(&app.id) {
            return None;
        }
        let mut known = self.known.lock();
        known
            .addresses
            .retain(|place, _| spec.places.contains(place));
        known.lost.retain(|place| spec.places.contains(place));
        let mut wanted: Vec<UpstreamServer> = Vec::new();
        for place in &spec.places {
            for address in known.addresses_of(place) {
                // Two names of one address are one server.
                if wanted.iter().all(|server| server.address != address) {
                    wanted.push(UpstreamServer {
                        place: place.clone(),
                        address,
                        manner: manner.clone(),
                    });
                }
            }
        }
        let is_there =
            |server: &UpstreamServer| known.servers.iter().any(|(other, _)| other == server);
        let new: Vec<_> = wanted
            .iter()
            .filter(|server| !is_there(server))
            .cloned()
            .collect();
        // New ones come first, so that there is always one to ask.
        for server in new {
            if let Some(id) = inner.add_server(app, &server, known.tls.as_ref()) {
                known.servers.push((server, id));
            }
        }
        let is_wanted = |server: &UpstreamServer| wanted.contains(server);
        let (kept, gone) = std::mem::take(&mut known.servers)
            .into_iter()
            .partition(|(server, _)| is_wanted(server));
        known.servers = kept;
        drop(known);
        let gone: Vec<(UpstreamServer, ProcessId)> = gone;
        for (_, id) in gone {
            inner.step(|step| step.machine.detach(id, step.now, step.effects));
        }
        Some(())
    }
}

impl Inner {
    /// Have the machine know one more server, which gets requests from then on.
    fn add_server(
        self: &Arc<Self>,
        app: &Arc<App>,
        server: &UpstreamServer,
        tls: Option<&Arc<TlsTowardServers>>,
    ) -> Option<ProcessId> {
        let tls = match (&server.manner.tls, tls) {
            (Some((_, name)), Some(tls)) => match named(tls, name.as_deref(), &server.place) {
                Ok(tls) => Some(tls),
                Err(why) => {
                    self.tell(&app.name, why, None);
                    return None;
                }
            },
            _ => None,
        };
        let keep_alive = KeepAlive {
            idle_for: server.manner.keep_alive,
            idle_max: IDLE_MAX,
            connect_within: server.manner.connect_within,
        };
        let (mut slot, stop) = ProcessSlot::new();
        let (id, running) = self.step(|step| {
            let id = (step.machine).add_server(app.id, step.now, step.effects)?;
            let running = Arc::new(Running {
                id,
                generation: 1,
                app: Arc::clone(app),
                connections: Connections::new(server.address.clone(), tls, keep_alive),
                address: server.address.clone(),
                requests: Default::default(),
                processor: Default::default(),
                origin: Origin::Server(server.place.clone()),
                draining: slot.draining.subscribe(),
            });
            slot.running = Some(Arc::clone(&running));
            // Asks that wait get places in it when this step ends.
            self.tables().slots.insert(id, slot);
            Some((id, running))
        })?;
        let watched = Arc::downgrade(&running);
        self.spawn(server_task::run(Arc::clone(self), id, watched, stop));
        let text = format!("server {} gets requests", running.called());
        self.tell(&app.name, text, None);
        Some(id)
    }
}

/// How to speak TLS with a server.
fn named(
    tls: &Arc<TlsTowardServers>,
    name: Option<&str>,
    place: &ServerPlace,
) -> Result<ServerTls, String> {
    let own = place.host().unwrap_or_default();
    let name = name.unwrap_or(&own);
    let why = |error| format!("no TLS can be spoken with {place} as {name:?}: {error}");
    tls.named(name).map_err(why)
}
