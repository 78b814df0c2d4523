//! Sends the messages of alarms: JSON by POST, on a connection of its own for each.
//!
//! A message is tried a few times and then given up, which is an event. Nothing waits for it, and
//! no redirect is followed.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::client::conn::http1;
use hyper::header::{CONTENT_TYPE, HOST, USER_AGENT};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rideau_config::PostUrl;
use rideau_process::panics;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::net::tls::{self, TlsIdentity};
use crate::state::alarms::AlarmPost;
use crate::state::daemon::Daemon;

/// An answer takes no longer.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// How long it is waited before each try.
const TRIES: [Duration; 3] = [
    Duration::ZERO,
    Duration::from_secs(1),
    Duration::from_secs(4),
];
/// This many are sent at a time.
const AT_A_TIME: usize = 16;
/// No more of an answer is read.
const ANSWER_MAX: usize = 64 << 10;

/// The whole of a message.
struct WholePost(Option<Bytes>);

/// Send messages for ever.
pub(crate) async fn keep(daemon: Arc<Daemon>) {
    let room = Arc::new(Semaphore::new(AT_A_TIME));
    loop {
        let turn = Arc::clone(&room).acquire_owned().await;
        let post = daemon.alarms.posts().next().await;
        let daemon = Arc::clone(&daemon);
        tokio::spawn(async move {
            let _turn = turn;
            let sent = panics::contain_async(send(&daemon, &post)).await;
            let why = match sent {
                Ok(Ok(())) => return,
                Ok(Err(error)) => error.to_string(),
                Err(_) => "it failed; the log has why".into(),
            };
            daemon.alarms.not_sent(&post, &why);
        });
    }
}

/// Try a few times.
async fn send(daemon: &Daemon, post: &AlarmPost) -> io::Result<()> {
    let node = daemon.config.load().server.name.clone();
    let body = Bytes::from(body(post, &node));
    let mut last = io::Error::other("it was not tried");
    for before in TRIES {
        tokio::time::sleep(before).await;
        let tried = tokio::time::timeout(ANSWER_WITHIN, once(&post.to, body.clone())).await;
        let late = || io::Error::new(io::ErrorKind::TimedOut, "no answer within 5 s");
        match tried.unwrap_or_else(|_| Err(late())) {
            Ok(()) => return Ok(()),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// The message as it is sent.
fn body(post: &AlarmPost, node: &str) -> String {
    let since = post.since.duration_since(UNIX_EPOCH).unwrap_or_default();
    let lasted = SystemTime::now()
        .duration_since(post.since)
        .unwrap_or_default();
    let message = json!({
        "alarm": post.name,
        "state": if post.is_on { "on" } else { "off" },
        "since_ms": since.as_millis() as u64,
        "for_s": lasted.as_secs(),
        "value": post.value,
        "when": post.when,
        "text": post.text,
        "node": node,
    });
    message.to_string()
}

/// Send it once, and look at the answer.
async fn once(to: &PostUrl, body: Bytes) -> io::Result<()> {
    let (host, port) = address(to);
    let stream = TcpStream::connect((&*host, port)).await?;
    if !to.is_tls() {
        return ask(stream, to, body).await;
    }
    let connector = tls::connector(&TlsIdentity {
        ca: None,
        own: None,
    })?;
    let name = ServerName::try_from(host).map_err(io::Error::other)?;
    ask(connector.connect(name, stream).await?, to, body).await
}

/// The host and the port of an address.
fn address(to: &PostUrl) -> (String, u16) {
    let usual = if to.is_tls() { 443 } else { 80 };
    let host = to.host();
    // An address of version 6 has colons of its own.
    let port = host
        .rsplit_once(':')
        .filter(|(_, port)| !port.contains(']'));
    let (host, port) = match port.and_then(|(host, port)| Some((host, port.parse().ok()?))) {
        Some((host, port)) => (host, port),
        None => (host, usual),
    };
    (host.trim_matches(['[', ']']).to_owned(), port)
}

async fn ask<S>(stream: S, to: &PostUrl, body: Bytes) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let request = Request::post(to.path())
        .header(HOST, to.host())
        .header(USER_AGENT, concat!("rideau/", env!("CARGO_PKG_VERSION")))
        .header(CONTENT_TYPE, "application/json")
        .body(WholePost(Some(body)))
        .map_err(io::Error::other)?;
    let shaken = http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, conn) = shaken.map_err(io::Error::other)?;
    let answer = async {
        let answer = sender.send_request(request).await;
        judge(answer.map_err(io::Error::other)?).await
    };
    tokio::select! {
        answer = answer => answer,
        // It ends after the answer, unless it breaks.
        Err(error) = conn => Err(io::Error::other(error)),
    }
}

/// Read what is said, and look whether it was taken.
async fn judge(answer: Response<Incoming>) -> io::Result<()> {
    let (parts, mut body) = answer.into_parts();
    let mut len = 0;
    while let Some(frame) = poll_fn(|task| Pin::new(&mut body).poll_frame(task)).await {
        let frame = frame.map_err(io::Error::other)?;
        len += frame.data_ref().map_or(0, Bytes::len);
        if len > ANSWER_MAX {
            break;
        }
    }
    let status = parts.status;
    match status {
        _ if status.is_success() => Ok(()),
        _ if status.is_redirection() => Err(io::Error::other(format!(
            "the answer is {status}, and redirects are not followed"
        ))),
        _ => Err(io::Error::other(format!("the answer is {status}"))),
    }
}

impl Body for WholePost {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}
