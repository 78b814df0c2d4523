//! HTTP/1 with a client.
//!
//! One request after the other is read, answered and sent, all in the task of
//! the connection. While an app thinks, the client is watched, so that one who
//! leaves takes its request along.

mod client;
mod head;

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::Method;
use hyper::body::Bytes;
use parking_lot::Mutex;

use self::client::Came;
pub(super) use self::client::{Client, Patience, put_date};
pub(super) use self::head::{Limits, Trouble, is_text, is_token, length};
use super::Front;
use super::body::{Answer, Broken, Source};
use super::connections::{Early, is_bare};
use super::errand::{Begun, Heard};
use super::forward::Sent;
use super::refusals::No;
use super::reply::Reply;
use super::seat::Seat;
use super::stream::Stream;
use super::upgrade::{self, Turned};

/// What a client sends after the head of a request.
pub(super) struct Body(Arc<Mutex<Client>>);

/// A client's connection.
struct Connection<'a> {
    front: &'a Front,
    seat: &'a Seat,
    client: Arc<Mutex<Client>>,
    /// Where the next request is written to.
    room: Vec<u8>,
}

/// What is to be known of a request to answer it.
#[derive(Clone, Copy)]
struct Manner {
    /// It asks for a head alone.
    wants_head: bool,
    /// The client speaks a version that knows chunks.
    is_recent: bool,
    /// The client would send more requests.
    keeps: bool,
    /// It takes what follows a body in chunks.
    takes_trailers: bool,
}

/// How the end of a body is told.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// By its length, or there is none.
    Known,
    Chunks,
    /// By the end of the connection.
    Close,
}

/// Serve a client until it leaves, or nobody is served any more.
pub(super) async fn serve(
    front: &Front,
    seat: &Seat,
    stream: Stream,
    limits: Limits,
    patience: Patience,
) {
    let client = Client::new(stream, limits, patience);
    let connection = Connection {
        front,
        seat,
        client: Arc::new(Mutex::new(client)),
        room: Vec::new(),
    };
    connection.serve().await;
}

impl Connection<'_> {
    async fn serve(mut self) {
        loop {
            let came = poll_fn(|context| {
                let is_open = self.front.is_open();
                self.client.lock().poll_head(is_open, context)
            });
            let goes_on = match came.await {
                Came::Over => false,
                Came::Trouble(trouble) => {
                    let reply = self.front.refuse_at_once(&No::from(trouble));
                    let manner = Manner {
                        wants_head: false,
                        is_recent: true,
                        keeps: false,
                        takes_trailers: false,
                    };
                    let _ = self.send(reply, manner).await;
                    false
                }
                Came::Head(len) => match self.answer(len).await {
                    Ok(goes_on) => goes_on,
                    Err(turned) => return turned.begin(self.client),
                },
            };
            if !goes_on {
                break;
            }
        }
        poll_fn(|context| self.client.lock().poll_end(context)).await;
    }

    /// Answer a request whose head is complete; says whether another can follow.
    ///
    /// # Errors
    ///
    /// None, but the connection has become something else.
    async fn answer(&mut self, len: usize) -> Result<bool, Turned> {
        let room = std::mem::take(&mut self.room);
        let (begun, manner, sent) = self.begin(len, room);
        let wants_upgrade = matches!(&begun.errand, Ok(errand) if errand.upgrade.is_some());
        if wants_upgrade {
            // Seldom, and long: it would be room that every request takes.
            let mut turned = Box::pin(upgrade::exchange(self.front, self.seat, &begun));
            return match self.while_there(turned.as_mut()).await {
                Some(Ok(turned)) => Err(turned),
                Some(Err(reply)) => Ok(self.send_of(&begun, reply, manner).await),
                None => Ok(false),
            };
        }
        let reply = {
            let early = |fields: &[u8]| self.client.lock().put_early(fields);
            let early: Option<&Early<'_>> = manner.is_recent.then_some(&early);
            let answered = pin!(self.front.answer(self.seat, &begun, sent, early));
            self.while_there(answered).await
        };
        let Some(reply) = reply else {
            begun.is_gone(self.seat);
            return Ok(false);
        };
        let goes_on = self.send_of(&begun, reply, manner).await;
        self.room = begun.into_room();
        Ok(goes_on)
    }

    /// Send the answer to a request, and tell if it did not arrive as a whole. Says
    /// whether another request can follow.
    async fn send_of(&self, begun: &Begun, reply: Reply, manner: Manner) -> bool {
        match self.send(reply, manner).await {
            Ok(goes_on) => return goes_on,
            Err(None) => begun.is_gone(self.seat),
            Err(Some(broken)) => begun.is_cut(self.seat, broken.word()),
        }
        false
    }

    /// Take a head as it was read.
    fn begin(&self, len: usize, room: Vec<u8>) -> (Begun, Manner, Option<Sent>) {
        let mut client = self.client.lock();
        let (begun, manner, length) = {
            let (head, bytes) = client.head();
            let heard = Heard {
                method: head.method(),
                target: head.target(bytes),
                fields: head.fields(bytes),
                host: head.host(bytes),
                accept: head.accept(bytes),
                names_fields: head.names_fields(),
                length: head.length(),
                upgrades: head.upgrades(),
            };
            let manner = Manner {
                wants_head: *head.method() == Method::HEAD,
                is_recent: head.is_recent(),
                keeps: head.keeps_alive(),
                takes_trailers: head.takes_trailers(),
            };
            let begun = self.front.begin(self.seat, &heard, room);
            (begun, manner, head.length())
        };
        let has_body = client.take_head(len);
        let sent = has_body.then(|| Sent {
            source: Source::Http1(Body(Arc::clone(&self.client))),
            len: length,
            is_checked: true,
        });
        (begun, manner, sent)
    }

    /// Wait for something as long as the client is there; none if it left.
    async fn while_there<T>(&self, mut done: Pin<&mut impl Future<Output = T>>) -> Option<T> {
        let there = poll_fn(|context| {
            if let Poll::Ready(done) = done.as_mut().poll(context) {
                return Poll::Ready(Some(done));
            }
            self.client.lock().poll_away(context).map(|()| None)
        });
        let done = there.await;
        if done.is_none() {
            self.client.lock().close();
        }
        done
    }

    /// Send an answer; says whether another request can follow.
    ///
    /// # Errors
    ///
    /// If the client did not take all of it, or the app did not say all of it.
    async fn send(&self, mut reply: Reply, manner: Manner) -> Result<bool, Option<Broken>> {
        let keeps = manner.keeps && !reply.closes && self.front.is_open();
        let (is_short, end) = {
            let mut client = self.client.lock();
            let end = client.put_head(&reply, manner, keeps);
            if !keeps || end == End::Close {
                client.close_after();
            }
            let has_body = !manner.wants_head && !is_bare(reply.status);
            let is_short =
                !has_body || end == End::Known && reply.body.pour(client.wire(), reply.at);
            if is_short && client.wire().send_now() {
                // As it mostly is.
                client.answered(Some(reply.at));
                return Ok(client.goes_on());
            }
            (is_short, end)
        };
        let mut is_over = is_short;
        let sent =
            poll_fn(|context| self.poll_sent(&mut reply.body, &mut is_over, end, manner, context));
        let is_sent = sent.await;
        let mut client = self.client.lock();
        client.answered(is_short.then_some(reply.at));
        if !is_sent {
            client.close();
            return Err(reply.body.broken());
        }
        Ok(client.goes_on())
    }

    /// Send what is there; ready when that was all, or it cannot be sent.
    fn poll_sent(
        &self,
        body: &mut Answer,
        is_over: &mut bool,
        end: End,
        manner: Manner,
        context: &mut Context<'_>,
    ) -> Poll<bool> {
        loop {
            // The client is not locked while the body is asked, which may ask it.
            let mut is_whole = true;
            while !*is_over && self.client.lock().wire().has_room() {
                match body.poll_part(context) {
                    Poll::Pending => break,
                    Poll::Ready(Some(Ok(part))) => self.client.lock().put_part(part, end),
                    Poll::Ready(Some(Err(_))) => (*is_over, is_whole) = (true, false),
                    Poll::Ready(None) => {
                        *is_over = true;
                        let trailers = match manner.takes_trailers {
                            true => body.take_trailers(),
                            false => Vec::new(),
                        };
                        self.client.lock().put_end(end, &trailers);
                    }
                }
            }
            let mut client = self.client.lock();
            if !is_whole {
                // What was not whole must not seem so.
                client.close_broken();
            }
            if client.wire().is_flushed() {
                if *is_over {
                    return Poll::Ready(!client.is_broken());
                }
                return client.poll_gone(context).map(|()| false);
            }
            match client.poll_send(context) {
                Poll::Ready(Ok(())) => (),
                Poll::Ready(Err(_)) => return Poll::Ready(false),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

impl Body {
    /// The next part of it; none after its end.
    pub(super) fn poll_part(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<Option<Bytes>>> {
        self.0.lock().poll_part(context)
    }
}
