//! Serves a connection that was let in.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio_rustls::TlsStream;

use super::certificates::{ALPN_H2, Certificates, Tls};
use super::client::ClientCount;
use super::conn::{ClientConn, Ends};
use super::http1;
use super::https::hsts_text;
use super::open_conn::OpenConn;
use super::proxy_protocol::{HEADER_MAX, ProxyHeader, proxy_header};
use super::turn_away::{CLIENT_FULL, NO_PROXY_HEADER, TurnAway};
use super::{Front, http2};
use crate::http1::head::HeadLimits;
use crate::http1::stream::Stream;
use crate::io_threads::IoThreads;

/// The first bytes of HTTP/2.
const PREFACE: &[u8] = b"PRI * HTTP/2.0";
/// What is on its way is looked for again after this long.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

impl OpenConn {
    /// Serve it, where that is done.
    pub(super) fn begin(self, stream: Stream, tls: Option<&Tls>, io_threads: Option<&IoThreads>) {
        let tls = tls.map(Tls::now);
        let Some(io_threads) = io_threads else {
            tokio::spawn(self.serve(stream, tls));
            return;
        };
        match stream.park() {
            Ok(parked) => io_threads.spawn(|| async {
                match parked.resume() {
                    Ok(stream) => self.serve(stream, tls).await,
                    Err(error) => tracing::warn!("cannot serve a connection: {error}"),
                }
            }),
            Err(error) => tracing::warn!("cannot serve a connection: {error}"),
        }
    }

    async fn serve(mut self, mut stream: Stream, tls: Option<Arc<Certificates>>) {
        stream.prepare_for_client();
        let config = self.front.config.load_full();
        if config.proxy_protocol && self.ends.is_trusted(&config) {
            let heard = self.hear_proxy(&mut stream);
            if let Err(why) = Box::pin(heard).await {
                if tls.is_none() {
                    let id = self.front.ids.next();
                    why.tell(stream, id).await;
                }
                return;
            }
        }
        match (tls, stream) {
            (None, stream) => self.serve_plain(stream).await,
            (Some(tls), Stream::Tcp(stream)) => self.serve_tls(stream, tls).await,
            // TLS is spoken on the network only.
            (Some(_), _) => (),
        }
    }

    async fn serve_plain(self, stream: Stream) {
        let conn = self.conn(false);
        let begun = self.while_open(self.patience().idle, is_http2(&stream));
        match begun.await {
            Some(Ok(true)) => Box::pin(http2::serve(self, conn, stream)).await,
            Some(Ok(false)) => Box::pin(self.serve_http1(conn, stream)).await,
            Some(Err(_)) | None => (),
        }
    }

    async fn serve_tls(self, stream: TcpStream, tls: Arc<Certificates>) {
        let mut conn = self.conn(true);
        let accepted = tls.accept(stream, &self.front.acme_answers);
        let shaken = self.while_open(self.patience().head, accepted);
        let (stream, shown) = match Box::pin(shaken).await {
            Some(Ok(Some((stream, shown)))) => (Box::new(TlsStream::from(stream)), shown),
            Some(Ok(None)) => return,
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

    fn conn(&self, is_tls: bool) -> ClientConn {
        let config = self.front.config.load();
        let is_trusted = self.ends.is_trusted(&config);
        let mut conn = ClientConn::new(self.ends.peer, self.ends.port, is_tls, is_trusted);
        let hsts = config.hsts.as_ref().filter(|_| is_tls);
        conn.hsts = hsts.map(|hsts| hsts_text(hsts).into());
        conn
    }

    /// Hear for which client the peer speaks: the connection is that client's from now on.
    async fn hear_proxy(&mut self, stream: &mut Stream) -> Result<(), &'static TurnAway> {
        let header = self.while_open(self.patience().head, read_proxy_header(stream));
        let Some(Ok(header)) = header.await else {
            return Err(&NO_PROXY_HEADER);
        };
        if let Some((from, to)) = header.ends {
            self.ends = Ends::spoken_for(from, to);
            self.counted = self
                .front
                .count_client(&self.ends)
                .map_err(|()| &CLIENT_FULL)?;
        }
        Ok(())
    }
}

/// Take the PROXY header off the beginning of a connection.
async fn read_proxy_header(stream: &mut Stream) -> io::Result<ProxyHeader> {
    let mut first = vec![0; HEADER_MAX];
    let mut known = 0;
    loop {
        let len = stream.peek(&mut first).await?;
        match proxy_header(&first[..len]) {
            Err(why) => return Err(io::Error::new(io::ErrorKind::InvalidData, why)),
            Ok(Some(header)) => {
                stream.read_exact(&mut first[..header.len]).await?;
                return Ok(header);
            }
            Ok(None) if len == 0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            // The rest is on its way.
            Ok(None) if len == known => tokio::time::sleep(LOOK_AGAIN).await,
            Ok(None) => known = len,
        }
    }
}

/// Does a client begin with HTTP/2, without having asked whether it may?
async fn is_http2(stream: &Stream) -> io::Result<bool> {
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
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

impl Front {
    /// Count a connection of a client; none is counted of a peer that speaks for others.
    ///
    /// # Errors
    ///
    /// If it has too many.
    pub(super) fn count_client(&self, ends: &Ends) -> Result<Option<ClientCount>, ()> {
        let config = self.config.load();
        let Some(max) = config.client_connections_max else {
            return Ok(None);
        };
        if ends.is_trusted(&config) {
            return Ok(None);
        }
        let counted = self.clients.enter(ends.peer.ip(), max);
        if counted.is_none() {
            self.clients_turned_away.fetch_add(1, Ordering::Relaxed);
        }
        counted.map(Some).ok_or(())
    }
}
