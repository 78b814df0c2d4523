//! Listens for HTTP, and lets in the clients that come.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rideau_process::panics;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{Semaphore, watch};

use super::certificates::Tls;
use super::conn::Ends;
use super::https::SecurePlace;
use super::open_conn::OpenConn;
use super::turn_away::{CLIENT_FULL, FULL, TurnAway};
use super::{Accepting, Front, Phase};
use crate::bind;
use crate::http1::stream::Stream;
use crate::inherited::{self, ListenOption, PassedListener, Role, Socket};
use crate::io_threads::IoThreads;

/// Where HTTP comes in.
#[derive(Default)]
pub struct FrontListener {
    acceptors: Vec<Acceptor>,
    /// The address that an option names, for each that has one.
    asked: Vec<Option<ListenOption>>,
    /// Where connections are served, if not here.
    io_threads: Option<Arc<IoThreads>>,
    /// How many connections there are at most, whatever the config says.
    seats_max: Option<usize>,
}

/// One of these places.
enum Acceptor {
    Tcp(TcpListener, Option<Tls>),
    Unix(UnixListener),
}

impl FrontListener {
    /// The sockets, for another server on this machine.
    ///
    /// # Errors
    ///
    /// If there are too many open files.
    pub fn sockets(&self) -> io::Result<Vec<PassedListener>> {
        let all = self.acceptors.iter().zip(&self.asked);
        let passed = all.map(|(acceptor, asked)| match acceptor {
            Acceptor::Tcp(listener, _) => inherited::of_listener(
                listener.as_fd(),
                &listener.local_addr()?.to_string(),
                *asked,
            ),
            Acceptor::Unix(listener) => {
                let at = listener.local_addr()?;
                let path = at.as_pathname().map(|path| path.display().to_string());
                let place = format!("unix:{}", path.unwrap_or_default());
                inherited::of_listener(listener.as_fd(), &place, None)
            }
        });
        passed.collect()
    }
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
        let listener = bind::tcp(address, Role::Front)?;
        let bound = listener.local_addr()?;
        let role = Role::Front;
        self.push(
            Acceptor::Tcp(listener, tls),
            Some(ListenOption { address, role }),
        );
        Ok(bound)
    }

    fn push(&mut self, acceptor: Acceptor, asked: Option<ListenOption>) {
        self.acceptors.push(acceptor);
        self.asked.push(asked);
    }

    /// The same with a listener that is there already.
    ///
    /// # Errors
    ///
    /// If the system does not say where that is.
    pub fn add(&mut self, listener: TcpListener, tls: Option<Tls>) -> io::Result<SocketAddr> {
        let address = listener.local_addr()?;
        self.push(Acceptor::Tcp(listener, tls), None);
        Ok(address)
    }

    /// Listen at a path of the file system, for those who may write to a file of this mode.
    ///
    /// # Errors
    ///
    /// If another process does, or it may not be.
    pub async fn listen_unix(&mut self, path: &Path, mode: u32) -> io::Result<()> {
        let listener = bind::unix_for(path, mode).await?;
        self.push(Acceptor::Unix(listener), None);
        Ok(())
    }

    /// Listen at the sockets of this name that a supervisor passed to the server. Says where
    /// they are.
    ///
    /// # Errors
    ///
    /// If there are none.
    pub fn listen_passed(&mut self, name: &str) -> io::Result<Vec<String>> {
        let passed = inherited::named(name)?;
        let mut places = Vec::new();
        for (place, socket) in passed {
            let acceptor = match socket {
                Socket::Tcp(listener, _) => Acceptor::Tcp(TcpListener::from_std(listener)?, None),
                Socket::Unix(listener) => Acceptor::Unix(UnixListener::from_std(listener)?),
            };
            self.push(acceptor, None);
            places.push(place);
        }
        Ok(places)
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
    /// The TLS that is spoken here, if any is.
    const fn tls(&self) -> Option<&Tls> {
        match self {
            Self::Tcp(_, tls) => tls.as_ref(),
            Self::Unix(_) => None,
        }
    }

    /// Where TLS is spoken, if it is here.
    fn secure(&self) -> Option<SecurePlace> {
        let Self::Tcp(listener, Some(tls)) = self else {
            return None;
        };
        let port = listener.local_addr().ok()?.port();
        let tls = tls.clone();
        Some(SecurePlace { tls, port })
    }

    async fn accept(&self) -> io::Result<(Stream, Ends)> {
        match self {
            Self::Tcp(listener, _) => {
                let (stream, peer) = listener.accept().await?;
                let ends = Ends::of_tcp(&stream, peer);
                Ok((Stream::Tcp(stream), ends))
            }
            Self::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                Ok((Stream::Unix(stream), Ends::of_unix()))
            }
        }
    }

    /// The next client, while they are let in.
    async fn accept_while(
        &self,
        accepting: &mut watch::Receiver<Accepting>,
    ) -> io::Result<(Stream, Ends)> {
        loop {
            let _ = accepting.wait_for(|it| *it == Accepting::Yes).await;
            tokio::select! {
                accepted = self.accept() => return accepted,
                _ = accepting.wait_for(|it| *it == Accepting::No) => (),
            }
        }
    }

    /// Let in the clients that come, until no new client is served.
    async fn serve(self, front: Arc<Front>, conns: Arc<Semaphore>, io_threads: Option<&IoThreads>) {
        let mut phase = front.phase.subscribe();
        let mut accepting = front.accepting.subscribe();
        loop {
            let accepted = tokio::select! {
                accepted = self.accept_while(&mut accepting) => accepted,
                _ = phase.wait_for(|phase| *phase > Phase::Open) => return,
            };
            let (stream, ends) = match accepted {
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
            let Ok(counted) = front.count_client(&ends) else {
                self.turn_away(&front, stream, &CLIENT_FULL);
                continue;
            };
            let conn_open = OpenConn {
                front: Arc::clone(&front),
                ends,
                phase: front.phase.subscribe(),
                _permit: permit,
                counted,
            };
            let begin = || conn_open.begin(stream, self.tls(), io_threads);
            let _ = panics::contain(begin);
        }
    }

    /// Say no to one too many, if it can hear that and not too many are told so already.
    fn turn_away(&self, front: &Arc<Front>, stream: Stream, why: &'static TurnAway) {
        let told = Arc::clone(&front.turned_away).try_acquire_owned();
        if let (None, Ok(permit)) = (self.tls(), told) {
            let id = front.ids.next();
            tokio::spawn(async move {
                why.tell(stream, id).await;
                drop(permit);
            });
        }
    }
}
