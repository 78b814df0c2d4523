//! A server from when its clients can connect to its end, which may be that a newer one has
//! taken over.

use std::io;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use rideau_apps::{FrontListener, IoThreads, PassedListener};
use rideau_config::Config;
use rideau_core::upgrade::{AppLoad, process_shares};
use rideau_process as process;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::cluster::{Joining, StraightListeners};
use super::store_side::{EndingMembers, StoreListeners, StoreSide};
use super::unheard::port_of;
use super::upgrade::{Newer, Offer, Older, OlderTurn};
use super::{
    ControlPaths, LOG_FLUSH_MAX, Ready, StopAsked, cluster, drain, give_back, listening, sd_notify,
    store_watch,
};
use crate::net::tickets::TicketKeys;
use crate::net::tls_files::TlsFiles;
use crate::redis::commands::NAMES;
use crate::state::apps_side::{AppsSide, SideKeys};
use crate::state::certificates::CertificateBook;
use crate::state::daemon::Daemon;
use crate::state::files::Files;
use crate::state::upgrades::Upgrades;
use crate::state::versions::Source;

/// A client that is there when a newer server takes over has so long for one more request.
const LINGER: Duration = Duration::from_secs(5);
/// The same where an app waits for its address.
const LINGER_FIXED: Duration = Duration::from_secs(1);
/// Processes have so long beyond the time of requests and streams.
const PROCESSES_WITHIN: Duration = Duration::from_secs(5);
/// How often the newer server is told how many are left.
const TELL: Duration = Duration::from_millis(200);

/// The threads of a server, and its certificates.
struct Ground {
    io_threads: Arc<IoThreads>,
    front_threads: Arc<IoThreads>,
    tls: TlsFiles,
}

/// A front to which clients can connect.
struct BoundFront {
    listener: FrontListener,
    places: Vec<String>,
    sockets: Vec<PassedListener>,
}

/// A server that serves.
struct Serving {
    ground: Ground,
    apps_side: AppsSide,
    /// None while a newer server opens its own.
    store_side: Option<StoreSide>,
    /// The config and its text, for another store side.
    config: Config,
    source: Source,
    /// Sockets of a store side that was closed.
    closed: Vec<PassedListener>,
    ending: Vec<EndingMembers>,
    front: JoinHandle<()>,
    front_sockets: Vec<PassedListener>,
    /// What names the server if nothing else does.
    port: Option<u16>,
    older: Older,
}

/// Why a server ends.
enum End {
    Asked,
    Failed(String),
    /// A newer one serves.
    Replaced,
}

impl Ground {
    fn new(config: &Config, book: &CertificateBook, tickets: TicketKeys) -> io::Result<Self> {
        let threads = config.server.threads;
        let io_threads = Arc::new(IoThreads::start(threads)?);
        // Applications run on this machine: a front on every core would wait behind them.
        let front_threads = match threads {
            Some(_) => Arc::clone(&io_threads),
            None => Arc::new(IoThreads::start_beside_others()?),
        };
        give_back::keep_small(&[&io_threads, &front_threads]);
        Ok(Self {
            io_threads,
            front_threads,
            tls: TlsFiles::read(config, book, tickets)?,
        })
    }

    async fn bind_front(&self, config: &Config) -> io::Result<BoundFront> {
        let files = Files::new(process::raise_open_files(), config);
        let threads = Arc::clone(&self.front_threads);
        let tls = self.tls.front.clone();
        let (listener, places) = listening::listen_front(config, &files, tls, threads).await?;
        Ok(BoundFront {
            sockets: listener.sockets()?,
            listener,
            places,
        })
    }
}

impl BoundFront {
    fn port(&self) -> Option<u16> {
        let mut places = self.places.iter();
        places.find_map(|place| port_of(place))
    }
}

/// Serve until the end.
pub(super) async fn run(
    daemon: Arc<Daemon>,
    mut joining: Option<Joining>,
    stop: StopAsked,
    ready: impl FnOnce(&Ready, &Arc<Daemon>),
) -> io::Result<()> {
    let config = daemon.config.load_full();
    let ground = Ground::new(&config, &daemon.certificates, TicketKeys::default())?;
    let straight = joining.as_mut().map(|it| mem::take(&mut it.straight));
    let straight = straight.unwrap_or_default();
    let listeners = StoreListeners::bind(&daemon, &ground.tls, straight).await?;
    let front = ground.bind_front(&config).await?;
    daemon.apps.begin(&config);
    daemon.front.follow_apps();
    let serving = Serving::begin(ground, &daemon, listeners, front, None, ready)?;
    let resigned = joining.map(|joining| joining.begin(&daemon));
    sd_notify::tell("READY=1");
    serving.until_end(stop, resigned).await
}

/// Take over from the server that started this one, and serve until the end.
pub(super) async fn take_over(
    config: Config,
    source: Source,
    upgrades: Upgrades,
    stop: StopAsked,
    ready: impl FnOnce(&Ready, &Arc<Daemon>),
) -> io::Result<()> {
    let began = Instant::now();
    let mut newer = Newer::join().await?;
    let offer = newer.offered().await?;
    let keys = SideKeys {
        sticky: offer.sticky.map(rideau_apps::StickyKey),
        token: offer.token.clone(),
    };
    let side = AppsSide::new(&config, keys, upgrades).map_err(io::Error::other)?;
    let ground = Ground::new(&config, &side.certificates, TicketKeys::of(offer.tickets))?;
    let front = ground.bind_front(&config).await?;
    newer.warm_up(&side, &config).await?;
    side.front.follow_apps();
    // Clients of applications wait for nothing else.
    let (front, bound) = front.serve(&side);
    let opened = async {
        let after = Daemon::after_others(config.clone(), source, NAMES, None, side.clone());
        let daemon = after.map_err(io::Error::other)?;
        let straight = StraightListeners::default();
        let listeners = StoreListeners::bind(&daemon, &ground.tls, straight).await?;
        io::Result::Ok((daemon, listeners))
    };
    let (daemon, listeners) = match opened.await {
        Ok(opened) => opened,
        Err(error) => {
            newer.not_opened(&error.to_string()).await;
            side.apps.close_now().await;
            return Err(error);
        }
    };
    let serving = Serving::begin(ground, &daemon, listeners, bound, Some(front), ready)?;
    newer.opened(&side, &config).await;
    side.upgrades.done(offer.serial, began.elapsed());
    side.events.add(
        "server",
        "upgrade",
        "this server has taken over".into(),
        None,
    );
    let current = Arc::downgrade(&daemon);
    let config = move || match current.upgrade() {
        Some(daemon) => Config::clone(&daemon.config.load()),
        None => config.clone(),
    };
    tokio::spawn(newer.see_off(side, config));
    serving.until_end(stop, None).await
}

impl BoundFront {
    /// Let clients in.
    fn serve(mut self, side: &AppsSide) -> (JoinHandle<()>, Self) {
        let listener = mem::take(&mut self.listener);
        let serving = tokio::spawn(listener.serve(Arc::clone(&side.front)));
        (serving, self)
    }
}

impl Serving {
    /// Serve clients from now on.
    fn begin(
        ground: Ground,
        daemon: &Arc<Daemon>,
        listeners: StoreListeners,
        bound: BoundFront,
        front: Option<JoinHandle<()>>,
        ready: impl FnOnce(&Ready, &Arc<Daemon>),
    ) -> io::Result<Self> {
        let config = daemon.config.load_full();
        let apps_side = daemon.apps_side();
        let mut addresses = listeners.addresses.clone();
        let page = listening::link(daemon, &config, listeners.page.as_ref());
        let port = bound.port();
        let store_side = listeners.serve(daemon, &ground.io_threads, &ground.tls, port)?;
        let (front, bound) = match front {
            Some(front) => (front, bound),
            None => bound.serve(&apps_side),
        };
        let applications = bound.places.len();
        addresses.extend(bound.places);
        super::warn(daemon, &config);
        let now = Ready {
            addresses,
            applications,
            control: store_side.control.as_ref().map(ControlPaths::of),
            page,
        };
        ready(&now, daemon);
        Ok(Self {
            older: Older::new(apps_side.clone()),
            ground,
            apps_side,
            store_side: Some(store_side),
            config: Config::clone(&config),
            source: Source {
                text: daemon.settings.text().to_string(),
                file: daemon.settings.file().map(Into::into),
            },
            closed: Vec::new(),
            ending: Vec::new(),
            front,
            front_sockets: bound.sockets,
            port,
        })
    }

    async fn until_end(
        mut self,
        mut stop: StopAsked,
        resigned: Option<watch::Receiver<Option<String>>>,
    ) -> io::Result<()> {
        let end = self.until_ended(&mut stop, resigned).await;
        match end {
            Ok(End::Replaced) => {
                self.leave().await;
                Ok(())
            }
            Ok(End::Asked) => self.stop(None).await,
            Ok(End::Failed(why)) => self.stop(Some(why)).await,
            Err(error) => self.stop(Some(error.to_string())).await,
        }
    }

    async fn until_ended(
        &mut self,
        stop: &mut StopAsked,
        resigned: Option<watch::Receiver<Option<String>>>,
    ) -> io::Result<End> {
        let mut resigned = Box::pin(cluster::resigned(resigned));
        loop {
            let turn = tokio::select! {
                () = stop.asked() => return Ok(End::Asked),
                failed = store_fails(self.store_side.as_ref()) => return Ok(End::Failed(failed)),
                why = &mut resigned => return Ok(End::Failed(why)),
                turn = self.older.next() => turn,
            };
            match turn {
                OlderTurn::Offer => {
                    if let Err(error) = self.offer().await {
                        self.older.cannot_offer(&error);
                    }
                }
                OlderTurn::Close => self.close().await,
                OlderTurn::Open => self.open_again().await?,
                OlderTurn::Leave => return Ok(End::Replaced),
            }
        }
    }

    /// Tell the newer server what it has to know.
    async fn offer(&mut self) -> io::Result<()> {
        let Some(store_side) = &self.store_side else {
            return Ok(());
        };
        let config = store_side.daemon.config.load_full();
        let mut sockets = store_side.sockets()?;
        for socket in &self.front_sockets {
            sockets.push(socket.again()?);
        }
        let side = &self.apps_side;
        let mut apps = side.apps.handovers();
        let loads: Vec<_> = apps
            .iter()
            .map(|app| AppLoad {
                busy: app.busy,
                idle: app.idle,
                min: app.min,
            })
            .collect();
        let overlap = usize::from(config.upgrade.overlap.0);
        let shares = process_shares(&loads, config.front.limits.max, overlap);
        for (app, share) in apps.iter_mut().zip(shares) {
            app.start = share.start;
            side.apps.give_up_idle(&app.name, share.give_up);
        }
        let offer = Offer {
            apps,
            processes: side.apps.live(),
            finishes_ms: millis(finishes(&config)),
            files_usual: process::open_files_usual(),
            sticky: Some(side.front.sticky_key().0),
            tickets: self.ground.tls.tickets.all(),
            token: store_side.daemon.operator.token().map(str::to_owned),
            ..Offer::default()
        };
        self.older.offer(offer, &sockets).await;
        Ok(())
    }

    /// Close what both servers cannot have open.
    async fn close(&mut self) {
        if let Some(store_side) = self.store_side.take() {
            self.config = Config::clone(&store_side.daemon.config.load());
            self.source.text = store_side.daemon.settings.text().to_string();
            let (sockets, ending) = store_side.close().await;
            self.closed = sockets;
            self.ending.push(ending);
        }
        self.older.closed();
    }

    /// Open it again, as after a restart.
    async fn open_again(&mut self) -> io::Result<()> {
        if self.store_side.is_some() {
            return Ok(());
        }
        let (config, source) = (self.config.clone(), self.source.clone());
        let mut side = self.apps_side.clone();
        let ended = self.ending.last();
        side.token = ended.and_then(|ended| ended.token());
        let daemon = Daemon::after_others(config, source, NAMES, None, side);
        let daemon = daemon.map_err(io::Error::other)?;
        let sockets = mem::take(&mut self.closed);
        let Ground {
            io_threads, tls, ..
        } = &self.ground;
        let opened = StoreSide::open_again(daemon, sockets, io_threads, tls, self.port).await?;
        self.store_side = Some(opened);
        Ok(())
    }

    /// Stop, because an operator asked for it or something failed.
    async fn stop(mut self, failed: Option<String>) -> io::Result<()> {
        self.older.stop().await;
        sd_notify::tell("STOPPING=1");
        if let Some(store_side) = &self.store_side {
            self.config = Config::clone(&store_side.daemon.config.load());
        }
        self.front_sockets.clear();
        self.closed.clear();
        if let Some(store_side) = &mut self.store_side {
            store_side.stop_listening().await;
        }
        let daemon = self
            .store_side
            .as_ref()
            .map(|side| Arc::clone(&side.daemon));
        let drained = async {
            if let Some(daemon) = &daemon {
                drain(daemon).await;
            }
        };
        let (finished, ()) =
            tokio::join!(finish(&self.config, &self.apps_side, self.front), drained);
        self.ground.front_threads.finish().await;
        self.ground.io_threads.finish().await;
        self.apps_side.front.flush_logs(LOG_FLUSH_MAX);
        drop(self.store_side);
        match failed {
            Some(why) => Err(io::Error::other(why)),
            None => finished,
        }
    }

    /// A newer server serves: finish what was begun here, and end.
    async fn leave(mut self) {
        if let Some(pid) = self.older.newer_pid() {
            sd_notify::tell(&format!("MAINPID={pid}"));
        }
        self.older.tell_done();
        self.front_sockets.clear();
        self.closed.clear();
        let side = self.apps_side.clone();
        let Self {
            config,
            older,
            front,
            ground,
            ending,
            ..
        } = self;
        let end = Instant::now() + finishes(&config);
        let has_fixed = side.apps.handovers().iter().any(|app| app.is_fixed);
        let is_free = watch::Sender::new(!has_fixed);
        let finishing = async {
            side.front.leave();
            side.apps.end_streams();
            tokio::time::sleep(if has_fixed { LINGER_FIXED } else { LINGER }).await;
            side.front.finish();
            side.apps.close_fixed().await;
            is_free.send_replace(true);
            let _ = front.await;
            let left = end.saturating_duration_since(Instant::now());
            side.apps.close(left).await;
        };
        let telling = async {
            loop {
                let frees = *is_free.borrow();
                older.tell_left(side.apps.live(), frees).await;
                tokio::time::sleep(TELL).await;
            }
        };
        tokio::select! {
            () = finishing => (),
            () = telling => (),
        }
        for members in ending {
            members.ended().await;
        }
        ground.front_threads.finish().await;
        ground.io_threads.finish().await;
        side.front.flush_logs(LOG_FLUSH_MAX);
    }
}

/// Wait for the store to fail, where that ends the server.
async fn store_fails(side: Option<&StoreSide>) -> String {
    let Some(side) = side else {
        return std::future::pending().await;
    };
    let failed = store_watch::watch(&side.daemon).await;
    format!("the store failed, and store.on_failure ends the server: {failed}")
}

/// Stop the front and the applications: what is served is finished.
async fn finish(config: &Config, side: &AppsSide, front: JoinHandle<()>) -> io::Result<()> {
    let end = Instant::now() + config.front.shutdown_timeout;
    side.front.finish();
    let served = front.await;
    let left = end.saturating_duration_since(Instant::now());
    side.apps.close(left).await;
    served.map_err(io::Error::other)
}

/// How long a server needs at most to finish beside a newer one.
fn finishes(config: &Config) -> Duration {
    let graces = config.apps.iter().map(|app| app.http.stream_grace);
    let within = graces.max().unwrap_or_default();
    within.max(config.front.shutdown_timeout) + PROCESSES_WITHIN
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
