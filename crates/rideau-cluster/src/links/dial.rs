//! Makes connections: dials peers with larger names, and accepts those with smaller ones.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::split;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedMutexGuard, oneshot};
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::rustls::pki_types::CertificateDer;

use super::conn;
use super::frame::{BoxRead, BoxWrite, FrameReader, FrameWriter};
use super::hello::{HandshakeEnd, HandshakeFrame, send};
use super::peer::{LinkedPeer, count};
use super::refusal::RefusalReason;
use super::shared::LinksShared;
use super::tls::{certified_name, channel, check_certificate, may_be_plain};

/// Connections that may be in their handshake at a time. One more pushes out the oldest: a
/// node needs a few milliseconds, so a crowd of silent strangers cannot keep nodes out.
const HANDSHAKES_MAX: usize = 64;
/// The pause after the first attempt to connect that failed. It doubles each time.
const REDIAL_MIN: Duration = Duration::from_millis(20);
/// The pause after the system could not accept a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long a refusal may take to be told.
const TELL_MAX: Duration = Duration::from_secs(1);

/// A connection, with TLS or without.
struct Connection {
    reader: FrameReader<BoxRead>,
    writer: FrameWriter<BoxWrite>,
    /// The TLS channel binding; empty without TLS.
    channel: Vec<u8>,
    /// The certificates of the other side.
    certificates: Option<Vec<CertificateDer<'static>>>,
    is_tls: bool,
}

/// Keep a link to a peer with a larger name, until the peer is gone.
pub(super) async fn keep_linked(shared: Arc<LinksShared>, peer: Arc<LinkedPeer>, address: String) {
    let mut pause = REDIAL_MIN;
    let ended = async || {
        tokio::select! {
            () = peer.gone() => (),
            _ = shared.stopped() => (),
        }
    };
    let redial_max = shared.options.times.redial_max;
    loop {
        let number = peer.next_number();
        let dialed = tokio::select! {
            dialed = dial(&shared, &peer, &address, number) => dialed,
            () = ended() => return,
        };
        match dialed {
            Some((connection, slot)) => {
                let Connection { reader, writer, .. } = connection;
                let since = Instant::now();
                conn::run(&shared, &peer, number, reader, writer, slot).await;
                // Links that end as soon as they begin must not be made in a hurry.
                pause = match since.elapsed() > redial_max {
                    true => REDIAL_MIN,
                    false => pause * 2,
                };
            }
            None => pause *= 2,
        }
        pause = pause.min(redial_max);
        tokio::select! {
            () = sleep(pause) => (),
            () = ended() => return,
        }
    }
}

async fn dial(
    shared: &LinksShared,
    peer: &LinkedPeer,
    address: &str,
    number: u64,
) -> Option<(Connection, OwnedMutexGuard<()>)> {
    let times = &shared.options.times;
    let connected = timeout(times.connect, TcpStream::connect(address)).await;
    let connected = connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
    let stream = match connected {
        Ok(stream) => stream,
        Err(error) => {
            count(&shared.totals.dials_failed, 1);
            tracing::debug!(peer = %peer.node, address, %error, "cannot connect");
            return None;
        }
    };
    let mut made = None;
    let greeted = timeout(times.handshake, async {
        let connection = made.insert(connect(shared, peer, stream).await?);
        let Connection {
            reader,
            writer,
            channel,
            ..
        } = connection;
        let handshake = shared.handshake(channel);
        let version = handshake.dial(&peer.node, number, reader, writer).await?;
        let slot = peer.claim(number).await?;
        peer.speaks(version);
        Ok(slot)
    });
    let greeted = greeted.await.unwrap_or_else(|_| Err(late()));
    match (greeted, made) {
        (Ok(slot), Some(connection)) => Some((connection, slot)),
        (Ok(_), None) => None,
        (Err(end), made) => {
            let name = &peer.node.name;
            refuse(shared, name, end, made).await;
            None
        }
    }
}

/// Accept connections until all links end.
pub(super) async fn accept_all(shared: Arc<LinksShared>, listener: TcpListener) {
    let mut handshakes: VecDeque<oneshot::Sender<()>> = VecDeque::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = shared.stopped() => return,
        };
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept connections of other nodes");
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        handshakes.retain(|handshake| !handshake.is_closed());
        if handshakes.len() >= HANDSHAKES_MAX {
            handshakes.pop_front();
        }
        let (pending, mut pushed_out) = oneshot::channel();
        handshakes.push_back(pending);
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let accepted = tokio::select! {
                accepted = accept(&shared, stream, address) => accepted,
                _ = &mut pushed_out => {
                    let refusal = RefusalReason::Crowded.with("too many connections at a time");
                    return shared.refusals.note(&address.ip().to_string(), &refusal);
                }
                _ = shared.stopped() => return,
            };
            drop(pushed_out);
            if let Some((connection, peer, number, slot)) = accepted {
                let Connection { reader, writer, .. } = connection;
                conn::run(&shared, &peer, number, reader, writer, slot).await;
            }
        });
    }
}

type Accepted = (Connection, Arc<LinkedPeer>, u64, OwnedMutexGuard<()>);

async fn accept(shared: &LinksShared, stream: TcpStream, address: SocketAddr) -> Option<Accepted> {
    let mut made = None;
    // Its address until it has proved its name.
    let mut name = address.ip().to_string();
    let greeted = timeout(shared.options.times.handshake, async {
        let connection = made.insert(admit(shared, stream, address).await?);
        let Connection {
            reader,
            writer,
            channel,
            certificates,
            is_tls,
        } = connection;
        let handshake = shared.handshake(channel);
        let names_node = |hello: &super::hello::Hello| match is_tls {
            true => check_certificate(certificates.as_deref(), &hello.from),
            false => Ok(()),
        };
        let (hello, version) = handshake.accept(reader, writer, names_node).await?;
        name.clone_from(&hello.from.name);
        let peer = shared.admit(&hello.from)?;
        let slot = peer.claim(hello.number).await?;
        peer.speaks(version);
        send(HandshakeFrame::Ready, writer).await?;
        Ok((peer, hello.number, slot))
    });
    let greeted = greeted.await.unwrap_or_else(|_| Err(late()));
    match (greeted, made) {
        (Ok((peer, number, slot)), Some(connection)) => Some((connection, peer, number, slot)),
        (Ok(_), None) => None,
        (Err(end), made) => {
            refuse(shared, &name, end, made).await;
            None
        }
    }
}

/// Note why there is no link, and tell the other side.
async fn refuse(
    shared: &LinksShared,
    name: &str,
    end: HandshakeEnd,
    connection: Option<Connection>,
) {
    let refusal = match end {
        HandshakeEnd::Closed(error) => {
            count(&shared.totals.dials_failed, 1);
            tracing::debug!(peer = name, %error, "a handshake was broken off");
            return;
        }
        HandshakeEnd::Told(mut refusal) => {
            let detail = rideau_resp::Quoted(refusal.detail.as_bytes());
            refusal.detail = format!("it says {detail}");
            return shared.refusals.note(name, &refusal);
        }
        HandshakeEnd::Refused(refusal) => refusal,
    };
    shared.refusals.note(name, &refusal);
    if let Some(Connection { mut writer, .. }) = connection {
        let tell = async {
            send(HandshakeFrame::GoAway(refusal), &mut writer).await?;
            writer.shutdown().await.map_err(HandshakeEnd::from)
        };
        let _ = timeout(TELL_MAX, tell).await;
    }
}

fn late() -> HandshakeEnd {
    RefusalReason::Late
        .with("the handshake took too long")
        .into()
}

/// The dialer's side of TLS, or none.
async fn connect(
    shared: &LinksShared,
    peer: &LinkedPeer,
    stream: TcpStream,
) -> Result<Connection, HandshakeEnd> {
    stream.set_nodelay(true)?;
    let tls = shared.tls.lock().clone();
    let Some(tls) = tls else {
        may_be_plain(stream.peer_addr()?.ip(), shared.options.is_private)?;
        return Ok(plain(stream));
    };
    let name = certified_name(&peer.node)?;
    let stream = tls.connector.connect(name, stream).await?;
    let channel = channel(stream.get_ref().1)?;
    let (reader, writer) = split(stream);
    Ok(Connection {
        reader: FrameReader::new(Box::new(reader)),
        writer: FrameWriter::new(Box::new(writer)),
        channel,
        certificates: None,
        is_tls: true,
    })
}

/// The acceptor's side of TLS, or none.
async fn admit(
    shared: &LinksShared,
    stream: TcpStream,
    address: SocketAddr,
) -> Result<Connection, HandshakeEnd> {
    stream.set_nodelay(true)?;
    let tls = shared.tls.lock().clone();
    let Some(tls) = tls else {
        may_be_plain(address.ip(), shared.options.is_private)?;
        return Ok(plain(stream));
    };
    let stream = tls.acceptor.accept(stream).await?;
    let connection = stream.get_ref().1;
    let channel = channel(connection)?;
    let certificates = connection.peer_certificates();
    let certificates = certificates.map(<[_]>::to_vec);
    let (reader, writer) = split(stream);
    Ok(Connection {
        reader: FrameReader::new(Box::new(reader)),
        writer: FrameWriter::new(Box::new(writer)),
        channel,
        certificates,
        is_tls: true,
    })
}

fn plain(stream: TcpStream) -> Connection {
    let (reader, writer) = stream.into_split();
    Connection {
        reader: FrameReader::new(Box::new(reader)),
        writer: FrameWriter::new(Box::new(writer)),
        channel: Vec::new(),
        certificates: None,
        is_tls: false,
    }
}
