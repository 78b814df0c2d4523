//! Connections that become something else, such as WebSockets.
//!
//! What they become is not ours to understand: bytes are carried both ways
//! until one side ends, nothing was said for too long, or the process has to
//! go and the grace is over. The session lives as long.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::header::{self, HeaderValue};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rideau_core::apps::Ended;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::body::{Answer, Upload};
use super::connections::Line;
use super::forward::Errand;
use super::headers;
use super::refusals::No;
use super::seat::Turn;
use crate::apps::Session;

/// A client and a process have so long to become something else when both have
/// said that they will.
const TURN_WITHIN: Duration = Duration::from_secs(10);
/// When the client has said its last, the process has so long to do so.
const LAST_WORDS: Duration = Duration::from_secs(60);
/// Bytes that are carried at a time, each way.
const PART: usize = 16 * 1024;

/// Ask an app for something else, on a connection of its own.
pub(super) async fn exchange(
    errand: &Errand<'_>,
    mut request: Request<Upload>,
    wanted: HeaderValue,
    client: OnUpgrade,
) -> Result<Response<Answer>, No> {
    let fields = request.headers_mut();
    fields.insert(header::UPGRADE, wanted);
    fields.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    let mut avoid = None;
    // A process that takes no connection has not seen the request.
    let (session, mut line) = loop {
        let session = errand.ask(&request, avoid).await?;
        match session.process().connections.connect().await {
            Ok(line) => break (session, line),
            Err(error) => {
                tracing::debug!("an app takes no connection: {error}");
                let is_last = avoid.replace(session.process().id).is_some();
                session.unreachable();
                if is_last || !errand.config.http.retries {
                    return Err(No::Unreachable);
                }
            }
        }
    };
    let began = std::time::Instant::now();
    let mut answer = match errand.within(line.send(request)).await {
        Some(Ok(answer)) => answer,
        Some(Err(lost)) => {
            session.end(Ended::Broken);
            tracing::debug!("an app gave no answer: {lost}");
            return Err(match lost.is_garbage {
                true => No::BadAnswer,
                false => No::Closed,
            });
        }
        None => {
            session.end(Ended::TimedOut);
            return Err(No::RequestTimeout);
        }
    };
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Ok(errand.hand_back(session, answer, line, began).await);
    }
    let process = hyper::upgrade::on(&mut answer);
    let (mut parts, _) = answer.into_parts();
    let became = parts.headers.remove(header::UPGRADE);
    headers::to_client(&mut parts.headers);
    if let Some(became) = became {
        parts.headers.insert(header::UPGRADE, became);
    }
    let connection = HeaderValue::from_static("upgrade");
    parts.headers.insert(header::CONNECTION, connection);
    let took = began.elapsed();
    errand.app.counts.answered(parts.status, took);
    errand.sign(&mut parts.headers, &session, took);
    errand.seat.turn(Turn::Tunnel);
    session.upgraded();
    let tunnel = Tunnel {
        grace: errand.config.http.upgrade_grace,
        idle: errand.config.http.upgrade_idle,
    };
    tokio::spawn(tunnel.run(session, line, client, process));
    Ok(Response::from_parts(
        parts,
        Answer::whole(Default::default()),
    ))
}

/// How long a tunnel may go on.
struct Tunnel {
    /// After its process was told to go.
    grace: Duration,
    /// Without a word.
    idle: Option<Duration>,
}

impl Tunnel {
    async fn run(self, session: Session, line: Box<Line>, client: OnUpgrade, process: OnUpgrade) {
        let turned = turn(line, client, process);
        let (client, process) = match tokio::time::timeout(TURN_WITHIN, turned).await {
            Ok(Ok(ends)) => ends,
            Ok(Err(error)) => {
                tracing::debug!("a connection did not become what it should: {error}");
                return session.end(Ended::Left);
            }
            Err(_) => return session.end(Ended::Left),
        };
        let heard = Arc::new(Heard::new());
        let mut client = Ear(TokioIo::new(client), Arc::clone(&heard));
        let mut process = TokioIo::new(process);
        let drained = session.process().drained();
        let ended = async {
            drained.await;
            tokio::time::sleep(self.grace).await;
        };
        tokio::select! {
            carried = tokio::io::copy_bidirectional_with_sizes(
                &mut client,
                &mut process,
                PART,
                PART,
            ) => if let Err(error) = carried {
                tracing::debug!("a tunnel broke: {error}");
            },
            () = ended => tracing::debug!("a tunnel was closed, for its process has to go"),
            () = heard.over() => tracing::debug!("a tunnel outlived its client"),
            () = heard.silent(self.idle) => tracing::debug!("a tunnel was idle for too long"),
        }
        session.end(Ended::Answered);
    }
}

/// Both ends of a tunnel, when client and process have become what they said.
async fn turn(
    mut line: Box<Line>,
    client: OnUpgrade,
    mut process: OnUpgrade,
) -> hyper::Result<(Upgraded, Upgraded)> {
    let process = poll_fn(|context| {
        let _ = line.poll(context);
        Pin::new(&mut process).poll(context)
    });
    let process = process.await?;
    Ok((client.await?, process))
}

/// When something was last said, in milliseconds since the start.
struct Heard {
    since: Instant,
    last: AtomicU64,
    /// The client will say no more.
    over: Notify,
}

impl Heard {
    fn new() -> Self {
        Self {
            since: Instant::now(),
            last: AtomicU64::new(0),
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
struct Ear<S>(S, Arc<Heard>);

impl<S: AsyncRead + Unpin> AsyncRead for Ear<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.0).poll_read(context, buffer);
        if read.is_ready() {
            self.1.note();
            if buffer.filled().len() == before {
                self.1.over.notify_one();
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
        let written = Pin::new(&mut self.0).poll_write(context, bytes);
        if written.is_ready() {
            self.1.note();
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
