//! Listens for HTTP, and serves the clients that come.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rideau_config::FrontConfig;
use rideau_process::panics;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use super::certificates::{ALPN_H2, Certificates, Tls};
use super::client::ClientCount;
use super::conn::ClientConn;
use super::http1;
use super::https::{SecurePlace, hsts_text};
use super::ids::Id;
use super::open_conn::OpenConn;
use super::{Front, Phase, http2};
use crate::bind;
use crate::http1::head::HeadLimits;
use crate::http1::stream::Stream;
use crate::io_threads::IoThreads;

/// The first bytes of HTTP/2.
const PREFACE: &[u8] = b"PRI * HTTP/2.0";
/// A client that is silent is asked whether it is there.
const ASK_AFTER: Duration = Duration::from_secs(60);

/// Where HTTP comes in.
#[derive(Default)]
pub struct FrontListener {
    acceptors: Vec<Acceptor>,
    /// Where connections are served, if not here.
    io_threads: Option<Arc<IoThreads>>,
    /// How many connections there are at most, whatever the config says.
    seats_max: Option<usize>,
}

/// One of these places.
struct Acceptor {
    listener: TcpListener,
    tls: Option<Tls>,
}

impl FrontListener {
    /// Listen here as well, within TLS or not. Says where that is, the port
    /// chosen by the system included.
    ///
    /// # Errors
    ///
    /// If another process does, or it may not be.
    pub async fn listen(
        &mut self,
        address: SocketAddr,
        tls: Option<Tls>,
    ) -> io::Result<SocketAddr> {
        self.add(bind::tcp(address)?, tls)
    }

    /// The same with a listener that is there already.
    ///
    /// # Errors
    ///
    /// If the system does not say where that is.
    pub fn add(&mut self, listener: TcpListener, tls: Option<Tls>) -> io::Result<SocketAddr> {
        let address = listener.local_addr()?;
        self.acceptors.push(Acceptor { listener, tls });
        Ok(address)
    }

    /// Serve connections on these I/O threads.
    pub fn use_io_threads(&mut self, io_threads: Arc<IoThreads>) {
        self.io_threads = Some(io_threads);
    }

    /// Let no more connections in, as there are no more files.
    pub fn limit(&mut self, connections_max: usize) {
        self.seats_max = Some(connections_max);
    }

    /// Serve the clients that come until the front finishes or is cut. All
    /// connections are over when this returns.
    pub async fn serve(self, front: Arc<Front>) {
        if let Some(secure) = self.acceptors.iter().find_map(Acceptor::secure) {
            front.set_secure(secure);
        }
        let seats_max = front.config.load().connections_max;
        let seats_max = seats_max.min(self.seats_max.unwrap_or(usize::MAX));
        let seats_max = u32::try_from(seats_max)
            .unwrap_or(u32::MAX)
            .clamp(1, 1 << 24);
        let conns = Arc::new(Semaphore::new(seats_max as usize));
        let io_threads = self.io_threads.as_deref();
        let acceptors = self.acceptors.into_iter();
        let acceptors = acceptors
            .map(|acceptor| acceptor.serve(Arc::clone(&front), Arc::clone(&conns), io_threads));
        futures_util::future::join_all(acceptors).await;
        let within = front.config.load().shutdown_timeout;
        let empty = conns.acquire_many(seats_max);
        if tokio::time::timeout(within, empty).await.is_err() {
            front.cut();
            // Those that are cut are gone as soon as they run.
            let _ =
                tokio::time::timeout(Duration::from_secs(1), conns.acquire_many(seats_max)).await;
        }
    }
}

impl Acceptor {
    /// Where TLS is spoken, if it is here.
    fn secure(&self) -> Option<SecurePlace> {
        let port = self.listener.local_addr().ok()?.port();
        let tls = self.tls.clone()?;
        Some(SecurePlace { tls, port })
    }

    /// Let in the clients that come, until no new client is served.
    async fn serve(self, front: Arc<Front>, conns: Arc<Semaphore>, io_threads: Option<&IoThreads>) {
        let mut phase = front.phase.subscribe();
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                _ = phase.wait_for(|phase| *phase > Phase::Open) => return,
            };
            let (stream, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!("cannot accept a connection: {error}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let Ok(permit) = Arc::clone(&conns).try_acquire_owned() else {
                self.turn_away(&front, stream, &FULL);
                continue;
            };
            let Ok(counted) = front.count_client(peer.ip()) else {
                self.turn_away(&front, stream, &CLIENT_FULL);
                continue;
            };
            let conn_open = OpenConn {
                front: Arc::clone(&front),
                peer,
                phase: front.phase.subscribe(),
                _permit: permit,
                _counted: counted,
            };
            let begin = || conn_open.begin(stream, self.tls.as_ref(), io_threads);
            let _ = panics::contain(begin);
        }
    }

    /// Say no to one too many, if it can hear that and not too many are told so already.
    fn turn_away(&self, front: &Arc<Front>, stream: TcpStream, why: &'static TurnAway) {
        let told = Arc::clone(&front.turned_away).try_acquire_owned();
        if let (None, Ok(permit)) = (&self.tls, told) {
            let id = front.ids.next();
            tokio::spawn(async move {
                why.tell(stream, id).await;
                drop(permit);
            });
        }
    }
}

impl OpenConn {
    /// Serve it, where that is done.
    fn begin(self, stream: TcpStream, tls: Option<&Tls>, io_threads: Option<&IoThreads>) {
        let tls = tls.map(Tls::now);
        let Some(io_threads) = io_threads else {
            tokio::spawn(self.serve(stream, tls));
            return;
        };
        match stream.into_std() {
            Ok(stream) => io_threads.spawn(|| async {
                match TcpStream::from_std(stream) {
                    Ok(stream) => self.serve(stream, tls).await,
                    Err(error) => tracing::warn!("cannot serve a connection: {error}"),
                }
            }),
            Err(error) => tracing::warn!("cannot serve a connection: {error}"),
        }
    }

    async fn serve(self, stream: TcpStream, tls: Option<Arc<Certificates>>) {
        let mut conn = self.conn(&stream, tls.is_some());
        let Some(tls) = tls else {
            let begun = self.while_open(self.patience().idle, is_http2(&stream));
            return match begun.await {
                Some(Ok(true)) => Box::pin(http2::serve(self, conn, Stream::Tcp(stream))).await,
                Some(Ok(false)) => Box::pin(self.serve_http1(conn, Stream::Tcp(stream))).await,
                Some(Err(_)) | None => (),
            };
        };
        let shaken = self.while_open(self.patience().head, tls.accept(stream));
        let (stream, shown) = match Box::pin(shaken).await {
            Some(Ok((stream, shown))) => (Box::new(stream), shown),
            Some(Err(error)) => return tracing::debug!("no TLS for HTTP: {error}"),
            None => return tracing::debug!("no TLS for HTTP in time"),
        };
        conn.shown = Some(shown);
        match stream.get_ref().1.alpn_protocol() {
            Some(ALPN_H2) => Box::pin(http2::serve(self, conn, Stream::Tls(stream))).await,
            _ => Box::pin(self.serve_http1(conn, Stream::Tls(stream))).await,
        }
    }

    async fn serve_http1(mut self, conn: ClientConn, stream: Stream) {
        let front = Arc::clone(&self.front);
        let config = front.config.load_full();
        let limits = HeadLimits {
            bytes_max: usize::try_from(config.header_max).unwrap_or(usize::MAX),
            fields_max: config.headers_max,
        };
        let patience = self.patience();
        let served = http1::serve(&front, &conn, stream, limits, patience);
        // It looks by itself whether it should finish.
        self.run(pin!(served), |_| ()).await;
    }

    fn conn(&self, stream: &TcpStream, is_tls: bool) -> ClientConn {
        let _ = stream.set_nodelay(true);
        // A client that vanished without a word is noticed at last.
        let asked = TcpKeepalive::new()
            .with_time(ASK_AFTER)
            .with_interval(ASK_AFTER / 4);
        let _ = SockRef::from(stream).set_tcp_keepalive(&asked);
        let port = stream.local_addr().map_or(0, |local| local.port());
        let config = self.front.config.load();
        let is_trusted = is_trusted(&config, self.peer.ip());
        let mut conn = ClientConn::new(self.peer, port, is_tls, is_trusted);
        let hsts = config.hsts.as_ref().filter(|_| is_tls);
        conn.hsts = hsts.map(|hsts| hsts_text(hsts).into());
        conn
    }
}

/// Does a client begin with HTTP/2, without having asked whether it may?
async fn is_http2(stream: &TcpStream) -> io::Result<bool> {
    let mut first = [0; PREFACE.len()];
    loop {
        let len = stream.peek(&mut first).await?;
        if len == 0 || first[..len] != PREFACE[..len] {
            return Ok(false);
        }
        if len == PREFACE.len() {
            return Ok(true);
        }
        // The rest is on its way.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Whether a peer is believed that speaks for others.
fn is_trusted(config: &FrontConfig, peer: IpAddr) -> bool {
    config.trust.iter().any(|network| network.has(peer))
}

/// The answer to a connection that is one too many.
struct TurnAway {
    status: &'static str,
    word: &'static str,
    body: &'static str,
}

const FULL: TurnAway = TurnAway {
    status: "503 Service Unavailable",
    word: "connections_max",
    body: "The server has no room for another connection. Please try again soon.\n",
};
const CLIENT_FULL: TurnAway = TurnAway {
    status: "429 Too Many Requests",
    word: "client_connections_max",
    body: "Your address has too many connections. Please try again soon.\n",
};

impl TurnAway {
    /// Say so, and let the client read that before the end.
    async fn tell(&self, mut stream: TcpStream, id: Id) {
        let Self { status, word, body } = self;
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nRetry-After: 1\r\n\
             X-Rideau-Error: {word}\r\nX-Request-Id: {id}\r\nConnection: close\r\n\
             Content-Length: {}\r\n\r\n",
            body.len()
        );
        let told = async {
            stream.write_all(head.as_bytes()).await?;
            stream.write_all(body.as_bytes()).await?;
            stream.shutdown().await?;
            let mut rest = [0; 1024];
            while stream.read(&mut rest).await? > 0 {}
            io::Result::Ok(())
        };
        let _ = tokio::time::timeout(Duration::from_secs(1), told).await;
    }
}

impl Front {
    /// Count a connection of a client; none is counted of a peer that speaks for others.
    ///
    /// # Errors
    ///
    /// If it has too many.
    fn count_client(&self, peer: IpAddr) -> Result<Option<ClientCount>, ()> {
        let config = self.config.load();
        let Some(max) = config.client_connections_max else {
            return Ok(None);
        };
        if is_trusted(&config, peer) {
            return Ok(None);
        }
        let counted = self.clients.enter(peer, max);
        if counted.is_none() {
            self.clients_turned_away.fetch_add(1, Ordering::Relaxed);
        }
        counted.map(Some).ok_or(())
    }
}
