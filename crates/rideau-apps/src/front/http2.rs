//! HTTP/2 with a client: one task for each request, and one for the connection.
//!
//! The frames are those of `h2`; what they ask for is answered as any request is.

mod control_frames;
#[cfg(test)]
mod fuzz;
mod mapped;
mod sending;
mod tunnel;

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use h2::RecvStream;
use h2::server::{Builder, Connection, SendResponse};
use hyper::body::Bytes;
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode};
use parking_lot::Mutex;
use rideau_process::panics;

use self::control_frames::{ControlFrames, FloodGuard};
use self::mapped::MappedHead;
use self::sending::Sending;
use self::tunnel::WebSocket;
use super::Front;
use super::conn::ClientConn;
use super::forward::{GoOn, Sent, Start, Visit};
use super::open_conn::OpenConn;
use super::rate_watch::{RateWatch, UNSENT_MAX};
use super::refusals::RequestRefusal;
use super::reply::{HttpReply, read};
use super::request::Begun;
use super::upload::Source;
use super::upstream_conn::is_bare;
use crate::http1::stream::Stream;
use crate::io_timeout::IoTimeout;

/// Requests at a time on one connection.
const STREAMS_MAX: u32 = 128;
/// Bytes that a client may send before we have taken them: of one request, and of
/// all on a connection.
const WINDOW: u32 = 1 << 20;
/// Bytes of answers that wait to be sent, for each request.
const SEND_MAX: usize = 400 << 10;

/// A client's connection.
struct Served {
    front: Arc<Front>,
    conn: Arc<ClientConn>,
    connection: Connection<ControlFrames<IoTimeout<Stream>>, Bytes>,
    floods: FloodGuard,
}

/// A request that is being answered. If it is dropped before it is over, the
/// client has left.
struct Stay {
    conn: Arc<ClientConn>,
    begun: Option<Begun>,
    is_over: bool,
}

/// What becomes of a request.
enum Outcome {
    Reply(HttpReply),
    /// It is a WebSocket from now on.
    Turned(Box<WebSocket>),
}

/// Serve a client until it leaves, or no client is served any more.
pub(super) async fn serve(mut conn_open: OpenConn, conn: ClientConn, stream: Stream) {
    let conn = Arc::new(conn);
    let patience = conn_open.patience();
    let client = Arc::clone(&conn);
    stream.limit_unsent(UNSENT_MAX);
    let stream = IoTimeout::both(stream, patience.idle, move || client.is_busy());
    let (stream, floods) = ControlFrames::new(stream);
    let front = Arc::clone(&conn_open.front);
    let header_max = front.config.load().header_max;
    let shaken = Builder::new()
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(u32::try_from(header_max).unwrap_or(u32::MAX))
        .initial_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .max_send_buffer_size(SEND_MAX)
        .enable_connect_protocol()
        .handshake(stream);
    let connection = match conn_open.while_open(patience.head, shaken).await {
        Some(Ok(connection)) => connection,
        Some(Err(error)) => return tracing::debug!("no HTTP/2: {error}"),
        None => return tracing::debug!("no HTTP/2 in time"),
    };
    let served = Served {
        front,
        conn,
        connection,
        floods,
    };
    let finish = |served: Pin<&mut Served>| served.get_mut().connection.graceful_shutdown();
    conn_open.run(pin!(served), finish).await;
}

impl Future for Served {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let served = self.get_mut();
        loop {
            let came = served.connection.poll_accept(context);
            let cut_off = served.floods.poll_end(&mut served.connection, context);
            if cut_off.is_ready() {
                break;
            }
            let Some(came) = ready!(came) else {
                break;
            };
            let (request, respond) = match came {
                Ok(came) => came,
                Err(error) => {
                    tracing::debug!("a connection ended: {error}");
                    break;
                }
            };
            let stay = Stay::new(&served.conn);
            let front = Arc::clone(&served.front);
            tokio::spawn(answer(front, stay, request, respond));
        }
        Poll::Ready(())
    }
}

/// Answer a request, unless its client leaves before.
async fn answer(
    front: Arc<Front>,
    mut stay: Stay,
    request: Request<RecvStream>,
    respond: SendResponse<Bytes>,
) {
    let (parts, incoming) = request.into_parts();
    let respond = Mutex::new(respond);
    let conn = Arc::clone(&stay.conn);
    let mut has_panicked = false;
    let outcome = {
        let outcome = stay.outcome(&front, &parts, incoming, &respond);
        let mut outcome = pin!(panics::contain_async(outcome));
        // The client is heard while an app thinks.
        let outcome = poll_fn(|context| match outcome.as_mut().poll(context) {
            Poll::Ready(Ok(outcome)) => Poll::Ready(Some(outcome)),
            Poll::Ready(Err(panicked)) => {
                has_panicked = true;
                let no = RequestRefusal::Panicked(panicked);
                let reply = front.refuse_at_once(&no, &conn);
                Poll::Ready(Some(Outcome::Reply(reply)))
            }
            Poll::Pending => respond.lock().poll_reset(context).map(|_| None),
        });
        outcome.await
    };
    let reply = match outcome {
        Some(Outcome::Reply(reply)) => reply,
        Some(Outcome::Turned(web_socket)) => {
            return web_socket.carry(&mut stay, respond.into_inner()).await;
        }
        None => return,
    };
    let entry = stay.begun.as_ref().and_then(|begun| begun.log.as_ref());
    if let (Some(entry), true) = (entry, has_panicked) {
        entry.refused(reply.status.as_u16(), Some("internal_error"));
    }
    let is_short = parts.method == Method::HEAD || is_bare(reply.status) || reply.body.is_over();
    let (response, body) = reply.into_response().into_parts();
    let response = Response::from_parts(response, ());
    match respond.into_inner().send_response(response, is_short) {
        Ok(_) if is_short => stay.is_over = true,
        Ok(stream) => {
            let watch = RateWatch::taken(front.config.load().send_rate_min);
            let sending = Sending {
                stream,
                body,
                watch,
                sent: 0,
            };
            sending.run(&mut stay).await;
        }
        Err(error) => tracing::debug!("an answer cannot be sent: {error}"),
    }
}

/// Tell a client something before its answer, if it is still there.
fn tell(respond: &Mutex<SendResponse<Bytes>>, status: StatusCode, fields: &[u8]) {
    let mut early = Response::new(());
    *early.status_mut() = status;
    *early.headers_mut() = read(fields);
    if let Err(error) = respond.lock().send_informational(early) {
        tracing::debug!("early hints cannot be sent: {error}");
    }
}

impl Stay {
    fn new(conn: &Arc<ClientConn>) -> Self {
        conn.enter();
        Self {
            conn: Arc::clone(conn),
            begun: None,
            is_over: false,
        }
    }

    /// What becomes of a request.
    async fn outcome(
        &mut self,
        front: &Front,
        parts: &Parts,
        incoming: RecvStream,
        respond: &Mutex<SendResponse<Bytes>>,
    ) -> Outcome {
        let mapped = MappedHead::new(parts, front.config.load().headers_max);
        let head = match mapped {
            Ok(head) => head,
            Err(no) => return Outcome::Reply(self.refuse(front, &no)),
        };
        let heard = head.heard();
        let begun = self.begun.insert(front.begin(&self.conn, &heard));
        if let Some(key) = &head.web_socket {
            return self.turn(front, incoming, key).await;
        }
        let expects = |value: &[u8]| value.eq_ignore_ascii_case(b"100-continue");
        let expects = heard.fields.get("expect").is_some_and(expects);
        let go_on = || tell(respond, StatusCode::CONTINUE, b"");
        let sent = (!incoming.is_end_stream()).then_some(Sent {
            source: Source::Http2(incoming),
            len: heard.length,
            is_checked: false,
            expects,
            go_on: expects.then_some(&go_on as &GoOn<'_>),
        });
        let early = |fields: &[u8]| tell(respond, StatusCode::EARLY_HINTS, fields);
        let visit = Visit {
            front,
            conn: &self.conn,
            id: &begun.id,
            log: begun.log.as_deref(),
            early: Some(&early),
        };
        Outcome::Reply(front.answer(begun, &visit, sent, Start::New).await)
    }

    /// The answer to what is no request.
    fn refuse(&self, front: &Front, no: &RequestRefusal) -> HttpReply {
        let reply = front.refuse_at_once(no, &self.conn);
        front.log_no_request(no, &self.conn, reply.length.unwrap_or_default());
        reply
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        self.conn.leave();
        if let (Some(begun), false) = (&self.begun, self.is_over) {
            begun.is_gone(&self.conn);
        }
    }
}
