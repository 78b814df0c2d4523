//! HTTP/1 with a client.
//!
//! One request after the other is read, answered and sent, all in the task of
//! the connection. While an app thinks, the client is watched, so that one that
//! leaves takes its request along.

#[cfg(test)]
mod fuzz;

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::Method;
use hyper::body::Bytes;
use parking_lot::Mutex;

use super::Front;
use super::body::Answer;
use super::broken::Broken;
use super::conn::ClientConn;
use super::fast_path::FastPath;
use super::forward::{Sent, Start, Visit};
use super::http1_client::{BodyEnd, Came, Client, Manner, Patience};
use super::rate_watch::RateWatch;
use super::refusals::RequestRefusal;
use super::reply::HttpReply;
use super::request::{Begun, Heard, ProxyRequest};
use super::upgrade::{self, Turned};
use super::upload::{Incoming, Source};
use super::upstream_conn::{Asked, Early, Lost, Said};
use crate::http1::head::{HeadLimits, Trouble};
use crate::http1::message_io::MessageIo;
use crate::http1::stream::Stream;
use rideau_process::panics::{self, Panicked};

/// The body of a client's request.
struct Body(Arc<Mutex<Client>>);

/// A client's connection.
struct Connection<'a> {
    front: &'a Front,
    conn: &'a ClientConn,
    client: Arc<Mutex<Client>>,
}

/// Why a client did not get all of an answer.
enum Unsent {
    /// It left.
    Gone,
    /// It took it too slowly.
    Slow,
    /// The app did not say all of it.
    Cut(Broken),
}

/// The rest of an answer on its way.
struct Outflow<'a> {
    body: &'a mut Answer,
    /// All of it was taken from there.
    is_over: bool,
    end: BodyEnd,
    manner: Manner,
    watch: RateWatch,
}

/// The next step for a request.
enum Ahead<'a> {
    /// All, from here on.
    Start(Start<'a>),
    /// Its answer began.
    Said(&'a ProxyRequest, FastPath, Said),
    /// Its answer was written as a whole, and the client does not take it at once.
    Reply(HttpReply),
}

/// Serve a client until it leaves, or no client is served any more.
pub(super) fn serve<'a>(
    front: &'a Front,
    conn: &'a ClientConn,
    stream: Stream,
    limits: HeadLimits,
    patience: Patience,
) -> impl Future<Output = ()> + 'a {
    let client = Client::new(stream, limits, patience);
    let client = Arc::new(Mutex::new(client));
    let connection = Connection {
        front,
        conn,
        client: Arc::clone(&client),
    };
    let served = panics::contain_async(connection.serve());
    async move {
        match served.await {
            Ok(None) => (),
            Ok(Some(turned)) => turned.begin(client),
            Err(panicked) => Box::pin(fail(client, front, conn, panicked)).await,
        }
    }
}

/// A request of this client made the server panic. It is told so if it was not
/// answered yet, and the connection ends.
async fn fail(client: Arc<Mutex<Client>>, front: &Front, conn: &ClientConn, panicked: Panicked) {
    let reply = front.refuse_at_once(&RequestRefusal::Panicked(panicked), conn);
    client.lock().fail(reply);
    let _ = poll_fn(|context| client.lock().poll_send(context)).await;
    poll_fn(|context| client.lock().poll_end(context)).await;
}

impl Connection<'_> {
    /// One request after the other. What most of them need is here and in no other
    /// future: each that is made is first made elsewhere, and then moved. Says what the
    /// last of them has become, if it is something else.
    async fn serve(self) -> Option<Box<Turned>> {
        let turned = loop {
            let came = poll_fn(|context| {
                let is_open = self.front.is_open();
                self.client.lock().poll_head(is_open, context)
            });
            let len = match came.await {
                Came::Head(len) => len,
                Came::Trouble(trouble) => {
                    Box::pin(self.refuse(trouble)).await;
                    break None;
                }
                Came::Over => break None,
            };
            let (mut begun, manner, sent) = self.begin(len);
            let answered = {
                let early = |fields: &[u8]| self.client.lock().put_early(fields);
                let visit = Visit {
                    front: self.front,
                    conn: self.conn,
                    id: &begun.id,
                    log: begun.log.as_deref(),
                    early: manner.is_recent.then_some(&early as &Early<'_>),
                };
                let fast_path = match &begun.proxy_request {
                    Ok(proxy_request) if sent.is_none() && proxy_request.is_plain() => {
                        proxy_request
                            .fast_path(&visit)
                            .map(|fast_path| (fast_path, proxy_request))
                    }
                    _ => Err(Box::new(Start::New)),
                };
                let answered = match fast_path {
                    Ok((mut fast_path, proxy_request)) => {
                        let asked = proxy_request.asked(visit.early);
                        let said =
                            poll_fn(|context| self.poll_ride(&mut fast_path, asked, context));
                        match said.await {
                            Some(Ok(said)) => {
                                self.hand_on(fast_path, said, proxy_request, &visit, manner)
                            }
                            Some(Err(lost)) => Err(Box::new(Ahead::Start(fast_path.lost(lost)))),
                            None => {
                                drop(fast_path);
                                Ok(self.is_gone(&begun))
                            }
                        }
                    }
                    Err(start) => Err(Box::new(Ahead::Start(*start))),
                };
                match answered {
                    Ok(goes_on) => Ok(goes_on),
                    Err(ahead) => Box::pin(self.go_on(&begun, &visit, manner, sent, ahead)).await,
                }
            };
            self.log_sent(&begun);
            match answered {
                Ok(true) => (),
                Ok(false) => break None,
                Err(mut turned) => {
                    turned.keep(&mut begun);
                    break Some(turned);
                }
            }
        };
        if turned.is_none() {
            poll_fn(|context| self.client.lock().poll_end(context)).await;
        }
        turned
    }

    /// Note in the log how much of an answer was sent.
    fn log_sent(&self, begun: &Begun) {
        if let Some(entry) = &begun.log {
            entry.sent(self.client.lock().body_sent());
        }
    }

    /// Answer what is no request.
    async fn refuse(&self, trouble: Trouble) {
        let no = RequestRefusal::from(trouble);
        let reply = self.front.refuse_at_once(&no, self.conn);
        let len = reply.length.unwrap_or_default();
        self.front.log_no_request(&no, self.conn, len);
        let manner = Manner {
            wants_head: *self.client.lock().head().0.method() == Method::HEAD,
            ..Manner::LAST
        };
        let _ = self.send(reply, manner).await;
    }

    /// Wait for what a process says, as long as the client is there; none if it left.
    fn poll_ride(
        &self,
        fast_path: &mut FastPath,
        asked: Asked<'_>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Said, Lost>>> {
        match fast_path.line.poll_answer(asked, context) {
            Poll::Ready(said) => Poll::Ready(Some(said)),
            Poll::Pending => self.client.lock().poll_away(context).map(|()| None),
        }
    }

    /// Hand an answer on if it is here as a whole. Says whether another request can
    /// follow.
    ///
    /// # Errors
    ///
    /// If it takes longer, what is left to do.
    fn hand_on<'b>(
        &self,
        mut fast_path: FastPath,
        said: Said,
        proxy_request: &'b ProxyRequest,
        visit: &Visit<'_>,
        manner: Manner,
    ) -> Result<bool, Box<Ahead<'b>>> {
        let is_second = proxy_request.deserves_second(&fast_path.session, &said);
        if !fast_path.line.has_all() || is_second || proxy_request.by_rules.compress.is_some() {
            return Err(Box::new(Ahead::Said(proxy_request, fast_path, said)));
        }
        let (mut reply, _) =
            proxy_request.begun_reply(visit, &mut fast_path.session, said, fast_path.began);
        let at = reply.at;
        let written = self.write(&mut reply, manner, |_, wire, _| {
            fast_path.finish(wire, at);
            true
        });
        written.map_err(|_| Box::new(Ahead::Reply(reply)))
    }

    /// Do what is left to do for a request. Says whether another can follow.
    ///
    /// # Errors
    ///
    /// None, but the connection has become something else.
    async fn go_on(
        &self,
        begun: &Begun,
        visit: &Visit<'_>,
        manner: Manner,
        sent: Option<Sent<'_>>,
        ahead: Box<Ahead<'_>>,
    ) -> Result<bool, Box<Turned>> {
        let reply = match (*ahead, &begun.proxy_request) {
            (Ahead::Start(_), Ok(proxy_request)) if proxy_request.upgrade.is_some() => {
                let turned = pin!(upgrade::exchange(self.front, self.conn, begun));
                match self.while_there(turned).await {
                    Some(Ok(turned)) => return Err(Box::new(turned)),
                    Some(Err(reply)) => reply,
                    None => return Ok(false),
                }
            }
            (Ahead::Start(start), _) => {
                let answered = {
                    let answered = pin!(self.front.answer(begun, visit, sent, start));
                    self.while_there(answered).await
                };
                match answered {
                    Some(reply) => reply,
                    None => return Ok(self.is_gone(begun)),
                }
            }
            (Ahead::Said(proxy_request, fast_path, said), _) => {
                let (live, began) = ((fast_path.line, None), fast_path.began);
                if proxy_request.deserves_second(&fast_path.session, &said) {
                    let failed = (said, live);
                    proxy_request
                        .second(visit, fast_path.session, failed, began)
                        .await
                } else {
                    proxy_request
                        .hand_back(visit, fast_path.session, said, live, began)
                        .await
                }
            }
            (Ahead::Reply(reply), _) => {
                let sent = self.send_rest(reply, manner, true, BodyEnd::Known).await;
                return Ok(self.sent(begun, sent));
            }
        };
        Ok(self.send_of(begun, reply, manner).await)
    }

    /// The client left before it had an answer: no other request can follow.
    #[cold]
    fn is_gone(&self, begun: &Begun) -> bool {
        self.client.lock().close();
        begun.is_gone(self.conn);
        false
    }

    /// Send the answer to a request, and tell if it did not arrive as a whole. Says
    /// whether another request can follow.
    async fn send_of(&self, begun: &Begun, reply: HttpReply, manner: Manner) -> bool {
        let sent = self.send(reply, manner).await;
        self.sent(begun, sent)
    }

    fn sent(&self, begun: &Begun, sent: Result<bool, Unsent>) -> bool {
        match sent {
            Ok(goes_on) => return goes_on,
            Err(Unsent::Gone) => begun.is_gone(self.conn),
            Err(Unsent::Slow) => begun.is_slow(self.conn),
            Err(Unsent::Cut(broken)) => begun.is_cut(self.conn, broken.word()),
        }
        false
    }

    /// Take a head as it was read.
    fn begin(&self, len: usize) -> (Begun, Manner, Option<Sent<'static>>) {
        let mut client = self.client.lock();
        let (begun, manner, length) = {
            let (head, bytes) = client.head();
            let heard = Heard {
                method: head.method(),
                target: head.target(bytes),
                version: match head.is_recent() {
                    true => "HTTP/1.1",
                    false => "HTTP/1.0",
                },
                fields: head.fields(bytes),
                host: head.host(bytes),
                accept: head.accept(bytes),
                names_fields: head.names_fields(),
                length: head.length(),
                upgrades: head.upgrades(),
                is_shared: false,
            };
            let manner = Manner {
                wants_head: *head.method() == Method::HEAD,
                is_recent: head.is_recent(),
                keeps: head.keeps_alive(),
                takes_trailers: head.takes_trailers(),
            };
            let begun = self.front.begin(self.conn, &heard);
            (begun, manner, head.length())
        };
        let has_body = client.take_head(len);
        let sent = has_body.then(|| Sent {
            source: Source::Http1(Box::new(Body(Arc::clone(&self.client)))),
            len: length,
            is_checked: true,
            expects: client.expects(),
            go_on: None,
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
    async fn send(&self, mut reply: HttpReply, manner: Manner) -> Result<bool, Unsent> {
        let (at, has_body) = (reply.at, manner.has_body(reply.status));
        let written = self.write(&mut reply, manner, |body, wire, end| {
            !has_body || end == BodyEnd::Known && body.pour(wire, at)
        });
        match written {
            Ok(goes_on) => Ok(goes_on),
            Err((is_short, end)) => self.send_rest(reply, manner, is_short, end).await,
        }
    }

    /// Write the head of an answer and as much of its body as is poured, and send
    /// that if it is all, and the client takes it at once. Says whether another
    /// request can follow.
    ///
    /// # Errors
    ///
    /// If it is not, or the client does not: whether all was poured, and how the end
    /// is told.
    fn write(
        &self,
        reply: &mut HttpReply,
        manner: Manner,
        pour: impl FnOnce(&mut Answer, &mut MessageIo, BodyEnd) -> bool,
    ) -> Result<bool, (bool, BodyEnd)> {
        let keeps = manner.keeps && !reply.closes && self.front.is_staying();
        let mut client = self.client.lock();
        let keeps = keeps && !client.expects();
        let end = client.put_head(reply, manner, keeps);
        if !keeps || end == BodyEnd::Close {
            client.close_after();
        }
        let before = client.wire().to_send();
        let is_short = pour(&mut reply.body, client.wire(), end);
        client.count_body(before);
        if is_short && client.wire().send_now() {
            // As it mostly is.
            client.answered(Some(reply.at));
            return Ok(client.goes_on());
        }
        Err((is_short, end))
    }

    /// Send the rest of an answer; says whether another request can follow.
    ///
    /// # Errors
    ///
    /// If the client did not take all of it, or the app did not say all of it.
    async fn send_rest(
        &self,
        mut reply: HttpReply,
        manner: Manner,
        is_short: bool,
        end: BodyEnd,
    ) -> Result<bool, Unsent> {
        let mut outflow = Outflow {
            body: &mut reply.body,
            is_over: is_short,
            end,
            manner,
            watch: RateWatch::taken(self.front.config.load().send_rate_min),
        };
        self.client.lock().watch_taking();
        let sent = poll_fn(|context| self.poll_sent(&mut outflow, context)).await;
        let mut client = self.client.lock();
        client.answered(is_short.then_some(reply.at));
        match sent {
            Ok(()) => return Ok(client.goes_on()),
            Err(Unsent::Slow) => client.reset(),
            Err(_) => client.close(),
        }
        sent.map(|()| false)
    }

    /// Send what is there; ready when that was all, or it cannot be sent.
    fn poll_sent(
        &self,
        outflow: &mut Outflow<'_>,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Unsent>> {
        loop {
            let is_whole = self.take_parts(outflow, context);
            let mut client = self.client.lock();
            if !is_whole {
                // What was not whole must not seem so.
                client.close_broken();
            }
            if client.wire().is_flushed() {
                outflow.watch.pause();
                return match outflow.is_over {
                    true if client.is_broken() => Poll::Ready(Err(outflow.unsent())),
                    true => Poll::Ready(Ok(())),
                    false => client.poll_gone(context).map(|()| Err(outflow.unsent())),
                };
            }
            match client.poll_send(context) {
                Poll::Ready(Ok(len)) => outflow.watch.passed(len),
                Poll::Ready(Err(_)) => return Poll::Ready(Err(outflow.unsent())),
                Poll::Pending => {
                    drop(client);
                    if !outflow.is_over {
                        outflow.body.keep(context);
                    }
                    return outflow.watch.poll_slow(context).map(|()| Err(Unsent::Slow));
                }
            }
        }
    }

    /// Take what is there of an answer, as far as there is room for it; says whether it is
    /// not broken off.
    fn take_parts(&self, outflow: &mut Outflow<'_>, context: &mut Context<'_>) -> bool {
        // The client is not locked while the body is asked, which may ask it.
        while !outflow.is_over && self.client.lock().wire().has_room() {
            match outflow.body.poll_part(context) {
                Poll::Pending => break,
                Poll::Ready(Some(Ok(part))) => self.client.lock().put_part(part, outflow.end),
                Poll::Ready(Some(Err(_))) => {
                    outflow.is_over = true;
                    return false;
                }
                Poll::Ready(None) => {
                    outflow.is_over = true;
                    let trailers = match outflow.manner.takes_trailers {
                        true => outflow.body.take_trailers(),
                        false => Vec::new(),
                    };
                    self.client.lock().put_end(outflow.end, &trailers);
                }
            }
        }
        true
    }
}

impl Outflow<'_> {
    /// Why the client does not get the rest, if it is fast enough.
    fn unsent(&self) -> Unsent {
        self.body.broken().map_or(Unsent::Gone, Unsent::Cut)
    }
}

impl Incoming for Body {
    fn poll_part(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        self.0.lock().poll_part(context)
    }
}
