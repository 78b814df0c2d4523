//! The HTTP side of the server: health, metrics, snapshots, actions, and asks for
//! clients that have nothing but curl.
//!
//! One table, `routes`, says what there is; the router and the OpenAPI document
//! are both made from it. Asks are executed as the commands of the Redis protocol
//! that they are, so that both sides have the same rules and the same words.

mod actions;
mod answer;
mod apps;
mod asks;
mod assets;
mod auth;
mod config;
mod dashboard;
mod entrance;
mod explain;
mod fact_json;
mod grants;
mod health;
mod live;
mod openapi;
mod query;
mod request;
mod respond;
mod route;
mod routes;
mod session_client;
mod shapes;
mod shown;
mod tickets;
mod values;
mod web_logins;

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_rustls::TlsAcceptor;

use crate::net::tls;
use crate::net::tls_files::SharedAcceptor;
use crate::state::daemon::Daemon;
use crate::state::reserve::Reserve;
use crate::state::series::SeriesReader;
use crate::view::facts::Limit;
use crate::view::history::History;
use auth::Known;
use dashboard::Board;
use entrance::Entrance;
use rideau_apps::{
    IoTimeout, ListenOption, PassedListener, Role, answer_and_close, bind, inherited,
};
use rideau_config::HTTP_CONNECTIONS_MAX;
use rideau_process::panics;
use route::Route;
use web_logins::WebLogins;

/// Of these, those of one address that have not logged in; as few as
/// `limits.before_login_max` if that is less.
const STRANGERS_MAX: usize = 64;
/// The answer when all connections are in use.
const FULL: &str = "256 HTTP connections are open, the most that may be: come back soon.";
/// The answer when an address has too many connections.
const CROWDED: &str = "Too many connections from your address have not logged in: log in with \
    those, or come back soon.";
/// A connection beyond all others has so long for its health check.
const SPARE_WITHIN: Duration = Duration::from_secs(2);
/// One that has not logged in in time has so long to be answered.
const LATE_WITHIN: Duration = Duration::from_secs(5);
/// Of all connections, those that are told what happens for as long as they like.
const WATCHERS_MAX: usize = 64;
/// Bytes of a request before its body.
const HEAD_MAX: usize = 16 * 1024;
/// Header lines of a request.
const HEADERS_MAX: usize = 64;
/// A request begins within this, and its head is complete.
const HEAD_WITHIN: Duration = Duration::from_secs(30);
/// A client has said to TLS within this which user it is.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);
/// A body is complete within this.
const BODY_WITHIN: Duration = Duration::from_secs(10);
/// A client that takes nothing of its answer for so long is cut.
const WRITE_WITHIN: Duration = Duration::from_secs(30);

/// The state that all requests share.
struct Admin {
    daemon: Arc<Daemon>,
    routes: &'static [Route],
    history: Arc<History>,
    known: Known,
    connections: Arc<Semaphore>,
    /// Room for health checks beyond these.
    spare: Reserve,
    watchers: Arc<Semaphore>,
    counts: Counts,
    /// What the pages of the dashboard share.
    board: Arc<Board>,
    /// Browsers that have logged in.
    web_logins: WebLogins,
}

/// How often a client met a limit of the HTTP side.
#[derive(Default)]
struct Counts {
    connections: AtomicU64,
    watchers: AtomicU64,
    body: AtomicU64,
}

/// Where the server listens for HTTP.
#[derive(Default)]
pub(crate) struct AdminListener(Vec<Acceptor>);

/// One of these places, within TLS or not.
struct Acceptor {
    listener: TcpListener,
    /// The address that an option names.
    asked: SocketAddr,
    tls: Option<SharedAcceptor>,
}

impl AdminListener {
    /// Listen here, within TLS or not. Says where that is, the port
    /// chosen by the system included.
    ///
    /// # Errors
    ///
    /// If another process does, or it may not be.
    pub(crate) async fn listen(
        &mut self,
        address: SocketAddr,
        tls: Option<SharedAcceptor>,
    ) -> io::Result<SocketAddr> {
        let asked = address;
        let listener = bind::tcp(address, Role::Admin)?;
        let address = listener.local_addr()?;
        self.0.push(Acceptor {
            listener,
            asked,
            tls,
        });
        Ok(address)
    }

    /// The sockets, for another server on this machine.
    ///
    /// # Errors
    ///
    /// If there are too many open files.
    pub(crate) fn sockets(&self) -> io::Result<Vec<PassedListener>> {
        let passed = self.0.iter().map(|acceptor| {
            let place = acceptor.listener.local_addr()?.to_string();
            let asked = ListenOption {
                address: acceptor.asked,
                role: Role::Admin,
            };
            inherited::of_listener(acceptor.listener.as_fd(), &place, Some(asked))
        });
        passed.collect()
    }

    /// Serve every connection that comes, for ever.
    pub(crate) async fn serve(self, daemon: Arc<Daemon>) {
        // Without an address there is no page to show a history on.
        if self.0.is_empty() {
            return;
        }
        let history = Arc::new(History::new(&daemon));
        daemon.series.get_or_init(|| series_of(&history));
        let (samples, sampled) = (Arc::clone(&history), Arc::clone(&daemon));
        let samples = tokio::spawn(async move {
            let keep = || Arc::clone(&samples).keep(Arc::clone(&sampled));
            panics::keep("the history", keep).await;
        });
        let _ended = Ended(samples.abort_handle());
        let board = Arc::new(Board::default());
        let (ranked, samples) = (Arc::clone(&board), Arc::clone(&history));
        let ranking = tokio::spawn(async move {
            let keep = || Arc::clone(&ranked).keep(samples.watch());
            panics::keep("the ranking of the dashboard", keep).await;
        });
        let _ranked = Ended(ranking.abort_handle());
        let admin = Arc::new(Admin {
            routes: routes::ALL,
            daemon,
            history,
            known: Known::default(),
            connections: Arc::new(Semaphore::new(HTTP_CONNECTIONS_MAX)),
            spare: Reserve::default(),
            watchers: Arc::new(Semaphore::new(WATCHERS_MAX)),
            counts: Counts::default(),
            board,
            web_logins: WebLogins::default(),
        });
        let router = routes::router(&admin);
        let (admin, router) = (&*admin, &router);
        let acceptors = self.0.iter().map(|acceptor| async move {
            let serve = || acceptor.serve(admin, router);
            panics::keep("the listener for HTTP", serve).await;
        });
        futures_util::future::join_all(acceptors).await;
    }
}

/// The history, for those that do not know it.
fn series_of(history: &Arc<History>) -> SeriesReader {
    let (step, read) = (Arc::clone(history), Arc::clone(history));
    SeriesReader {
        step: Box::new(move |span| step.step(span)),
        values: Box::new(move |name, span| read.values(name, span)),
    }
}

impl Acceptor {
    async fn serve(&self, admin: &Admin, router: &axum::Router) {
        let address = self.listener.local_addr();
        let is_local = address.is_ok_and(|at| at.ip().is_loopback());
        loop {
            let (stream, address) = match self.listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!("cannot accept a connection: {error}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let _ = stream.set_nodelay(true);
            let entrance = Entrance::new(address, is_local);
            let tls = self.tls.as_ref().map(SharedAcceptor::now);
            let begin = || begin(admin, router, tls.as_ref(), entrance, stream);
            let _ = panics::contain(begin);
        }
    }
}

/// Serve a connection, or turn it away.
fn begin(
    admin: &Admin,
    router: &axum::Router,
    tls: Option<&TlsAcceptor>,
    entrance: Entrance,
    stream: TcpStream,
) {
    let permit = match admin.permit(&entrance) {
        Ok(permit) => permit,
        Err(why) => return drop(tokio::spawn(turn_away(stream, why))),
    };
    let served = Served {
        router: router.clone(),
        login_within: admin.daemon.config.load().limits.login_within,
        entrance,
        permit,
        ending: admin.daemon.ending.subscribe(),
    };
    match tls {
        Some(tls) => drop(tokio::spawn(served.serve_tls(stream, tls.clone()))),
        None => drop(tokio::spawn(served.serve(stream))),
    }
}

/// One connection that is served.
struct Served {
    router: axum::Router,
    entrance: Entrance,
    permit: ConnPermit,
    login_within: Duration,
    /// The server ends.
    ending: watch::Receiver<bool>,
}

impl Served {
    /// Serve it within TLS. A client with a certificate is the user that it names.
    async fn serve_tls(mut self, stream: TcpStream, tls: TlsAcceptor) {
        self.entrance.is_tls = true;
        let stream = match tokio::time::timeout(HANDSHAKE_WITHIN, tls.accept(stream)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return tracing::info!("no TLS for HTTP: {error}"),
            Err(_) => return tracing::info!("no TLS for HTTP within {HANDSHAKE_WITHIN:?}"),
        };
        let certificates = stream.get_ref().1.peer_certificates();
        self.entrance.certificate = certificates.and_then(|all| tls::common_name(all.first()?));
        self.serve(stream).await;
    }

    /// Serve it. One that has not logged in in time ends after the request that it
    /// makes, and so does one that was let in for a health check.
    async fn serve<S>(mut self, stream: S)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let io = TokioIo::new(IoTimeout::writes(stream, WRITE_WITHIN));
        let router = TowerToHyperService::new(self.router);
        let (entrance, login) = (self.entrance.clone(), Arc::clone(&self.entrance.login));
        let spare = self.permit.spare;
        let service = service_fn(move |mut request: hyper::Request<hyper::body::Incoming>| {
            request.extensions_mut().insert(entrance.clone());
            let answer = match spare.filter(|_| !is_health_check(&request)) {
                Some(why) => Err(why),
                None => Ok(router.call(request)),
            };
            async move {
                match answer {
                    Ok(answer) => answer.await,
                    Err(why) => Ok(health::full(why)),
                }
            }
        });
        let head_within = spare.map_or(HEAD_WITHIN, |_| SPARE_WITHIN);
        let served = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(head_within)
            .keep_alive(spare.is_none())
            .max_buf_size(HEAD_MAX)
            .max_headers(HEADERS_MAX)
            .serve_connection(io, service);
        let mut served = std::pin::pin!(served);
        let late = async {
            tokio::time::sleep(self.login_within).await;
            if login.is_over() {
                std::future::pending::<()>().await;
            }
        };
        let over = async {
            let _ = self.ending.wait_for(|is_over| *is_over).await;
        };
        let ended = tokio::select! {
            ended = served.as_mut() => Some(ended),
            () = over => {
                served.as_mut().graceful_shutdown();
                Some(served.await)
            }
            () = late, if !login.is_over() => {
                served.as_mut().graceful_shutdown();
                // A request that was sent in time is answered.
                match tokio::time::timeout(LATE_WITHIN, served.as_mut()).await {
                    Ok(ended) => Some(ended),
                    Err(_) if login.is_over() => Some(served.await),
                    Err(_) => None,
                }
            }
        };
        if let Some(Err(error)) = ended {
            tracing::debug!("an HTTP connection ended: {error}");
        }
        drop(self.permit);
    }
}

/// Whether a request only wants to know how the server is.
fn is_health_check<B>(request: &hyper::Request<B>) -> bool {
    matches!(request.uri().path(), "/healthz" | "/readyz")
}

/// The permit of a connection to be served; it is given back on drop.
struct ConnPermit {
    _permit: OwnedSemaphorePermit,
    /// Why it may be used for health checks alone.
    spare: Option<&'static str>,
}

/// Samples are taken only as long as a client can see them.
struct Ended(tokio::task::AbortHandle);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Admin {
    /// A permit for a connection, or why there is none left.
    fn permit(&self, entrance: &Entrance) -> Result<ConnPermit, &'static str> {
        #[cfg(test)]
        assert!(!tests::is_planted(&entrance.address), "planted");
        let permit = Arc::clone(&self.connections).try_acquire_owned();
        let why = match permit {
            Ok(permit) if entrance.enter(&self.daemon, STRANGERS_MAX) => {
                return Ok(ConnPermit {
                    _permit: permit,
                    spare: None,
                });
            }
            Ok(_) => {
                let counts = &self.daemon.counts;
                counts.logins_crowded.fetch_add(1, Ordering::Relaxed);
                self.daemon.logins.crowded(entrance.origin);
                CROWDED
            }
            Err(_) => {
                self.counts.connections.fetch_add(1, Ordering::Relaxed);
                FULL
            }
        };
        // A health check needs no login.
        entrance.login.end();
        let permit = self.spare.take().ok_or(why)?;
        Ok(ConnPermit {
            _permit: permit,
            spare: Some(why),
        })
    }

    /// The limits of this side, which no config changes.
    fn limits(&self) -> [Limit; 4] {
        let used = |max: usize, free: &Semaphore| max.saturating_sub(free.available_permits());
        let kept = self.history.kept();
        let left_out = AtomicU64::new(kept.left_out as u64);
        let connections = used(HTTP_CONNECTIONS_MAX, &self.connections);
        let watchers = used(WATCHERS_MAX, &self.watchers);
        let Counts {
            connections: refused,
            watchers: unwatched,
            body,
        } = &self.counts;
        [
            (
                "http_connections",
                HTTP_CONNECTIONS_MAX,
                Some(connections),
                refused,
            ),
            ("http_watchers", WATCHERS_MAX, Some(watchers), unwatched),
            ("http_body", self.body_max(), None, body),
            (
                "history_series",
                kept.series_max,
                Some(kept.series),
                &left_out,
            ),
        ]
        .map(|(name, max, now, refused)| Limit {
            name,
            max: max as u64,
            now: now.map(|now| now as u64),
            refused: refused.load(Ordering::Relaxed),
            is_config: false,
        })
    }

    /// Bytes of a body: the limit is that of a command.
    fn body_max(&self) -> usize {
        self.daemon.config.load().limits.frame_max as usize
    }
}

/// Say no to one too many.
async fn turn_away(stream: TcpStream, text: &str) {
    let body = format!("{}\n", json!({ "error": text, "code": "BUSY" }));
    let answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: \
         1\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    answer_and_close(stream, answer.as_bytes()).await;
}

#[cfg(test)]
mod tests {
    use rideau_testing::PanicLog;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use rideau_config::Config;

    /// A connection that comes from there meets a panic.
    static PLANTED: parking_lot::Mutex<String> = parking_lot::Mutex::new(String::new());

    pub(super) fn is_planted(address: &str) -> bool {
        *PLANTED.lock() == address
    }

    async fn serve() -> SocketAddr {
        let config = Config::parse("", "test.toml", &|_| None).expect("it is a config");
        let daemon = Daemon::new(config, crate::redis::commands::NAMES).expect("it is sound");
        let mut listener = AdminListener::default();
        let address = listener.listen(([127, 0, 0, 1], 0).into(), None).await;
        let address = address.expect("a port is free");
        tokio::spawn(listener.serve(daemon));
        address
    }

    async fn ask(mut stream: TcpStream, path: &str) -> String {
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let _ = stream.write_all(request.as_bytes()).await;
        let mut said = String::new();
        let _ = stream.read_to_string(&mut said).await;
        said
    }

    #[tokio::test]
    async fn a_panic_costs_one_connection() {
        let address = serve().await;
        let socket = tokio::net::TcpSocket::new_v4().expect("there are sockets");
        let bound = socket.bind(([127, 0, 0, 1], 0).into());
        bound.expect("a port is free");
        *PLANTED.lock() = socket.local_addr().expect("it is bound").to_string();
        let stream = socket.connect(address).await.expect("it listens");
        assert_eq!(ask(stream, "/healthz").await, "");
        let stream = TcpStream::connect(address).await.expect("it listens");
        assert!(ask(stream, "/healthz").await.starts_with("HTTP/1.1 200 "));
    }

    #[tokio::test]
    async fn a_panic_on_another_thread_is_told_by_the_id_in_the_log() {
        let log = PanicLog::begin(panics::log_panic);
        let address = serve().await;
        let stream = TcpStream::connect(address).await.expect("it listens");
        let said = ask(stream, "/test/away").await;
        assert!(said.starts_with("HTTP/1.1 500 "), "{said}");
        assert!(log.has_id_of(panics::TOLD, &said), "{said}");
    }

    #[tokio::test]
    async fn a_panic_costs_one_request() {
        let address = serve().await;
        let mut stream = TcpStream::connect(address).await.expect("it listens");
        // The second comes on the same connection.
        let requests = b"GET /test/panic HTTP/1.1\r\nHost: localhost\r\n\r\n\
            GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(requests).await.expect("it reads");
        let mut said = String::new();
        stream.read_to_string(&mut said).await.expect("it answers");
        assert!(said.starts_with("HTTP/1.1 500 "), "{said}");
        assert!(said.contains("\"error\":\"internal error "), "{said}");
        assert!(said.contains("HTTP/1.1 200 OK"), "{said}");
    }
}
