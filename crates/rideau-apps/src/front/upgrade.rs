//! Connections that become something else, such as WebSockets.
//!
//! What they become is not ours to understand: bytes are carried both ways
//! until one side ends, nothing was said for too long, or the process has to
//! go and the grace is over. The session lives as long.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::StatusCode;
use parking_lot::Mutex;
use rideau_core::apps::Ended;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::Front;
use super::access_log::LogEntry;
use super::client::ClientCount;
use super::conn::ClientConn;
use super::forward::Visit;
use super::frames::{FrameWatch, GOING_AWAY};
use super::http1_client::Client;
use super::refusals::RequestRefusal;
use super::reply::HttpReply;
use super::request::{Begun, ProxyRequest};
use super::upload::Upload;
use super::upstream_conn::{Asked, UpstreamConn};
use crate::apps::Session;
use crate::http1::message_io::MessageIo;

/// When the client has said its last, the process has so long to do so.
const LAST_WORDS: Duration = Duration::from_secs(60);
/// A client has so long to take the last word.
const GOODBYE: Duration = Duration::from_secs(1);
/// Bytes that are carried at a time, each way.
const PART: usize = 16 * 1024;

/// A request whose process goes on with something else.
pub(super) struct Turned {
    reply: HttpReply,
    process: MessageIo,
    session: Session,
    tunnel: Tunnel,
    /// Its line of the log of requests.
    log: Option<Box<LogEntry>>,
    /// It counts among the requests of its client.
    counted: Option<Box<ClientCount>>,
}

/// Ask an app for something else; what it answers if it declines.
pub(super) async fn exchange(
    front: &Front,
    conn: &ClientConn,
    begun: &Begun,
) -> Result<Turned, HttpReply> {
    let proxy_request = match &begun.proxy_request {
        Ok(proxy_request) => proxy_request,
        Err(no) => {
            begun.is_refused(conn, no.status().as_u16(), no.word());
            return Err(front.refuse(no, begun, conn));
        }
    };
    let visit = Visit {
        front,
        conn,
        id: &begun.id,
        log: begun.log.as_deref(),
        early: None,
    };
    match turn(proxy_request, &visit).await {
        Ok(turned) => turned,
        Err(no) => {
            proxy_request.refused(&no, begun, conn);
            Err(front.refuse(&no, begun, conn))
        }
    }
}

/// Ask on a connection of its own.
async fn turn(
    proxy_request: &ProxyRequest,
    visit: &Visit<'_>,
) -> Result<Result<Turned, HttpReply>, RequestRefusal> {
    let head = proxy_request.head_for(proxy_request.upgrade.as_deref().unwrap_or_default());
    let mut avoid = None;
    // A process that takes no connection has not seen the request.
    let (mut session, mut line) = loop {
        let session = proxy_request.ask(visit, avoid).await?;
        match session.process().connections.connect().await {
            Ok(wire) => break (session, Box::new(UpstreamConn::new(wire))),
            Err(error) => {
                tracing::debug!("an app takes no connection: {error}");
                let is_last = avoid.replace(session.process().id).is_some();
                session.unreachable();
                if is_last || !proxy_request.config.http.retries {
                    return Err(RequestRefusal::Unreachable);
                }
            }
        }
    };
    let began = session.began(proxy_request.came.0);
    let said = {
        let asked = Asked {
            head: &head,
            wants_upgrade: true,
            ..proxy_request.asked(visit.early)
        };
        let sent = pin!(line.send(asked, Upload::Empty));
        proxy_request.within(sent, None).await
    };
    let (said, allowance) = match said {
        Some((Ok(said), allowance)) => (said, allowance),
        Some((Err(lost), _)) => {
            session.end(Ended::Broken);
            tracing::debug!("an app gave no answer: {}", lost.error);
            return Err(match lost.is_garbage {
                true => RequestRefusal::BadAnswer,
                false => RequestRefusal::Closed,
            });
        }
        None => {
            session.end(Ended::TimedOut);
            return Err(RequestRefusal::RequestTimeout);
        }
    };
    if said.status != StatusCode::SWITCHING_PROTOCOLS {
        let reply = proxy_request.hand_back(visit, session, said, (line, allowance), began);
        return Ok(Err(reply.await));
    }
    let mut reply = proxy_request.signed(visit, &mut session, said.fields, said.status, began);
    reply.date.take_if(|_| said.noted.has_date);
    reply.put("Connection", "upgrade");
    let is_web_socket = (said.noted.upgrade.as_ref())
        .is_some_and(|became| became.eq_ignore_ascii_case(b"websocket"));
    if let Some(became) = said.noted.upgrade {
        reply.put("Upgrade", became);
    }
    session.streamed();
    Ok(Ok(Turned {
        reply,
        process: line.into_wire(),
        session,
        tunnel: Tunnel {
            grace: proxy_request.config.http.stream_grace,
            idle: proxy_request.config.http.stream_idle,
            is_web_socket,
        },
        log: None,
        counted: None,
    }))
}

impl Turned {
    /// Take over from a request what lasts as long as it goes on.
    pub(super) fn keep(&mut self, begun: &mut Begun) {
        self.log = begun.log.take();
        if let Ok(proxy_request) = &mut begun.proxy_request {
            self.counted = proxy_request.by_rules.counted.take();
        }
    }

    /// What the app said as it turned.
    pub(super) fn take_fields(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.reply.fields)
    }

    /// Carry bytes from now on, to the end of that. Returns how many the client was sent.
    pub(super) async fn carry(self, client: impl AsyncRead + AsyncWrite + Unpin) -> u64 {
        self.tunnel.run(self.session, client, self.process).await
    }

    /// The app did not mean what it said.
    pub(super) fn give_up(self) {
        self.session.end(Ended::Broken);
    }

    /// Tell the client, and carry bytes from now on.
    pub(super) fn begin(self, client: Arc<Mutex<Client>>) {
        let Some(client) = Arc::into_inner(client) else {
            // No task reads a body: there is none.
            return self.session.end(Ended::Left);
        };
        let mut client = client.into_inner();
        client.put_turned(&self.reply);
        let (tunnel, counted, log) = (self.tunnel, self.counted, self.log);
        let (session, client, process) = (self.session, client.into_wire(), self.process);
        tokio::spawn(async move {
            let _counted = counted;
            let sent = tunnel.run(session, client, process).await;
            if let Some(entry) = log {
                entry.sent(sent);
            }
        });
    }
}

/// How long a tunnel may go on.
struct Tunnel {
    /// After its process was told to go.
    grace: Duration,
    /// Without a word.
    idle: Option<Duration>,
    /// Frames go through it.
    is_web_socket: bool,
}

impl Tunnel {
    /// Returns how many bytes the client was sent.
    async fn run(
        self,
        session: Session,
        client: impl AsyncRead + AsyncWrite + Unpin,
        mut process: MessageIo,
    ) -> u64 {
        let heard = Arc::new(Heard::new());
        let mut client = Ear {
            stream: client,
            heard: Arc::clone(&heard),
            frames: self.is_web_socket.then(FrameWatch::default),
        };
        let drained = session.process().drained();
        let ended = async {
            drained.await;
            tokio::time::sleep(self.grace).await;
        };
        let carried = async {
            // What the client is told, though the process may say nothing yet.
            tokio::io::AsyncWriteExt::flush(&mut client).await?;
            tokio::io::copy_bidirectional_with_sizes(&mut client, &mut process, PART, PART).await
        };
        let is_ended = tokio::select! {
            carried = carried => {
                if let Err(error) = carried {
                    tracing::debug!("a tunnel broke: {error}");
                }
                false
            }
            () = ended => {
                tracing::debug!("a tunnel was closed, for its process has to go");
                true
            }
            () = heard.over() => {
                tracing::debug!("a tunnel outlived its client");
                false
            }
            () = heard.silent(self.idle) => {
                tracing::debug!("a tunnel was idle for too long");
                false
            }
        };
        if is_ended {
            let _ = tokio::time::timeout(GOODBYE, client.say_goodbye()).await;
        }
        session.end(Ended::Answered);
        heard.sent.load(Ordering::Relaxed)
    }
}

/// When something was last said, in milliseconds since the start.
struct Heard {
    since: Instant,
    last: AtomicU64,
    /// Bytes that the client was sent.
    sent: AtomicU64,
    /// The client will say no more.
    over: Notify,
}

impl Heard {
    fn new() -> Self {
        Self {
            since: Instant::now(),
            last: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            over: Notify::new(),
        }
    }

    fn note(&self) {
        let millis = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(millis, Ordering::Relaxed);
    }

    /// Resolves when the client has long said its last.
    async fn over(&self) {
        self.over.notified().await;
        tokio::time::sleep(LAST_WORDS).await;
    }

    /// Resolves when nothing was said for so long.
    async fn silent(&self, idle: Option<Duration>) {
        let Some(idle) = idle else {
            return std::future::pending().await;
        };
        loop {
            let last = Duration::from_millis(self.last.load(Ordering::Relaxed));
            let until = self.since + last + idle;
            if until <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(until).await;
        }
    }
}

/// The client's end: what passes there, either way, was said.
struct Ear<S> {
    stream: S,
    heard: Arc<Heard>,
    /// The frames that the client was sent, if there are any.
    frames: Option<FrameWatch>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Ear<S> {
    /// Tell the client that the server goes away, if that is possible here.
    async fn say_goodbye(&mut self) -> io::Result<()> {
        if !self.frames.as_ref().is_some_and(FrameWatch::is_between) {
            return Ok(());
        }
        let stream = &mut self.stream;
        tokio::io::AsyncWriteExt::write_all(stream, &GOING_AWAY).await?;
        tokio::io::AsyncWriteExt::shutdown(stream).await?;
        // Were it closed with something unread, the client might not get it.
        let mut rest = [0; 1024];
        while tokio::io::AsyncReadExt::read(stream, &mut rest).await? > 0 {}
        Ok(())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Ear<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if read.is_ready() {
            self.heard.note();
            if buffer.filled().len() == before {
                self.heard.over.notify_one();
            }
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Ear<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        if let Poll::Ready(done) = &written {
            self.heard.note();
            let len = done.as_ref().map_or(0, |len| *len);
            if let Some(frames) = &mut self.frames {
                frames.pass(&bytes[..len]);
            }
            self.heard.sent.fetch_add(len as u64, Ordering::Relaxed);
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
