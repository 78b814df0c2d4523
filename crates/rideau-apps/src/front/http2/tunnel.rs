//! A WebSocket of a client that speaks HTTP/2: a stream of it is a connection of its own.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use hyper::Response;
use hyper::body::Bytes;
use hyper::header;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{Outcome, Stay};
use crate::front::Front;
use crate::front::refusals::RequestRefusal;
use crate::front::reply::{HttpReply, read};
use crate::front::upgrade::{self, Turned};
use crate::front::web_socket::WebSocketKey;
use crate::http1::fields::is;

/// A WebSocket whose app has agreed to it.
pub(super) struct WebSocket {
    turned: Turned,
    incoming: RecvStream,
    response: Response<()>,
}

/// A stream as a connection.
struct StreamIo {
    incoming: RecvStream,
    outgoing: SendStream<Bytes>,
    /// What came and was not read yet.
    part: Bytes,
}

impl Stay {
    /// Ask an app for a WebSocket.
    pub(super) async fn turn(
        &mut self,
        front: &Front,
        incoming: RecvStream,
        key: &WebSocketKey,
    ) -> Outcome {
        let begun = self.begun.as_ref().expect("the request was begun");
        let mut turned = match upgrade::exchange(front, &self.conn, begun).await {
            Ok(turned) => turned,
            // That would mean that it agrees.
            Err(reply) if reply.status.is_success() => {
                drop(reply);
                return Outcome::Reply(self.bad_answer(front));
            }
            Err(reply) => return Outcome::Reply(reply),
        };
        let mut response = Response::new(());
        let mut fields = read(&turned.take_fields());
        let upgrade = fields.remove(header::UPGRADE);
        let accept = fields.remove(header::SEC_WEBSOCKET_ACCEPT);
        fields.remove(header::CONNECTION);
        let is_agreed = upgrade.is_some_and(|protocol| is(protocol.as_bytes(), "websocket"))
            && accept.is_some_and(|accept| key.is_proved_by(accept.as_bytes()));
        if !is_agreed {
            turned.give_up();
            return Outcome::Reply(self.bad_answer(front));
        }
        *response.headers_mut() = fields;
        Outcome::Turned(Box::new(WebSocket {
            turned,
            incoming,
            response,
        }))
    }

    /// The app answered what no app may.
    fn bad_answer(&self, front: &Front) -> HttpReply {
        let no = RequestRefusal::BadAnswer;
        let begun = self.begun.as_ref().expect("the request was begun");
        if let Ok(proxy_request) = &begun.proxy_request {
            proxy_request.refused(&no, begun, &self.conn);
        }
        front.refuse(&no, begun, &self.conn)
    }
}

impl WebSocket {
    /// Tell the client, and carry bytes both ways to their end.
    pub(super) async fn carry(self, stay: &mut Stay, mut respond: SendResponse<Bytes>) {
        let outgoing = match respond.send_response(self.response, false) {
            Ok(outgoing) => outgoing,
            Err(error) => return tracing::debug!("an answer cannot be sent: {error}"),
        };
        stay.is_over = true;
        let client = StreamIo {
            incoming: self.incoming,
            outgoing,
            part: Bytes::new(),
        };
        let sent = self.turned.carry(client).await;
        if let Some(entry) = stay.begun.as_ref().and_then(|begun| begun.log.as_ref()) {
            entry.sent(sent);
        }
    }
}

fn broken(error: h2::Error) -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, error)
}

impl AsyncRead for StreamIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.part.is_empty() {
            match ready!(self.incoming.poll_data(context)) {
                Some(part) => self.part = part.map_err(broken)?,
                None => return Poll::Ready(Ok(())),
            }
        }
        let len = self.part.len().min(buffer.remaining());
        let part = self.part.split_to(len);
        buffer.put_slice(&part);
        // It may send as much again.
        let released = self.incoming.flow_control().release_capacity(len);
        Poll::Ready(released.map_err(broken))
    }
}

impl AsyncWrite for StreamIo {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        // As much as nothing is claimed while others may have something to send.
        self.outgoing.reserve_capacity(1);
        while self.outgoing.capacity() == 0 {
            match ready!(self.outgoing.poll_capacity(context)) {
                Some(room) => drop(room.map_err(broken)?),
                None => return Poll::Ready(Err(broken(Reason::CANCEL.into()))),
            }
        }
        let len = bytes.len();
        let part = Bytes::copy_from_slice(bytes);
        self.outgoing.send_data(part, false).map_err(broken)?;
        Poll::Ready(Ok(len))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ended = self.outgoing.send_data(Bytes::new(), true);
        Poll::Ready(ended.map_err(broken))
    }
}
