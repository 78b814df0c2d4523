//! HTTP/2 with a client: hyper speaks it, and what it hears is answered as any
//! request is.

mod patient;

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::http::request::Parts;
use hyper::service::service_fn;
use hyper::{Request, Response, header};
use hyper_util::rt::{TokioExecutor, TokioIo};

use self::patient::Patient;
use super::Front;
use super::body::{Answer, Broken, Source};
use super::fields::{Fields, Span};
use super::forward::{Heard, Sent};
use super::http1::length;
use super::refusals::No;
use super::reply::read;
use super::router::is_host;
use super::seat::Seat;
use super::serve::Guest;
use super::stream::Stream;

/// Requests at a time on one connection.
const STREAMS_MAX: u32 = 128;

/// An answer, and that the client is busy with it.
struct Guarded {
    answer: Answer,
    _visit: Visit,
}

/// A request that is being answered.
struct Visit(Arc<Seat>);

/// Serve a client until it leaves, or nobody is served any more.
pub(super) async fn serve(guest: Guest, seat: Seat, stream: Stream) {
    let seat = Arc::new(seat);
    let patient = Patient::new(stream, Arc::clone(&seat), guest.patience().idle);
    let (front, header_max) = (
        Arc::clone(&guest.front),
        guest.front.config.load().header_max,
    );
    let service = service_fn(move |request| {
        let (front, seat) = (Arc::clone(&front), Arc::clone(&seat));
        async move { Ok::<_, Infallible>(answer(&front, seat, request).await) }
    });
    let served = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(u32::try_from(header_max).unwrap_or(u32::MAX))
        .serve_connection(TokioIo::new(patient), service);
    guest.run(served, |served| served.graceful_shutdown()).await;
}

async fn answer(front: &Front, seat: Arc<Seat>, request: Request<Incoming>) -> Response<Guarded> {
    let visit = Visit::new(&seat);
    let (parts, incoming) = request.into_parts();
    let reply = match written(&parts) {
        None => front.refuse_at_once(&No::Bad("whom it is for is no host")),
        Some((bytes, spans)) => {
            let fields = Fields::new(&bytes, &spans);
            let len = fields.get("content-length").and_then(length);
            let whole = parts.uri.path_and_query();
            let heard = Heard {
                method: &parts.method,
                target: whole.map_or("/", |whole| whole.as_str()).as_bytes(),
                fields,
                host: fields.get("host"),
                accept: fields.get("accept"),
                names_fields: true,
                length: len,
                upgrades: false,
            };
            let begun = front.begin(&seat, &heard);
            let sent = (!incoming.is_end_stream()).then_some(Sent {
                source: Source::Http2(incoming),
                len,
                is_checked: false,
            });
            front.answer(&seat, &begun, sent, None).await
        }
    };
    reply.into_response().map(|answer| Guarded {
        answer,
        _visit: visit,
    })
}

/// Fields as HTTP/1 has them, with the host among them; none if that is none.
fn written(parts: &Parts) -> Option<(Vec<u8>, Vec<Span>)> {
    let (mut bytes, mut spans) = (Vec::new(), Vec::new());
    let mut add = |name: &str, value: &[u8]| {
        let at = |bytes: &Vec<u8>| u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let start = at(&bytes);
        bytes.extend_from_slice(name.as_bytes());
        let colon = at(&bytes);
        bytes.push(b':');
        bytes.extend_from_slice(value);
        spans.push(Span {
            start,
            colon,
            end: at(&bytes),
        });
    };
    // What the request itself says counts more than its fields.
    let authority = parts.uri.authority().map(|host| host.as_str().as_bytes());
    let mut hosts = parts.headers.get_all(header::HOST).iter();
    let host = authority.or_else(|| hosts.next().map(|host| host.as_bytes()));
    if authority.is_none() && hosts.next().is_some() {
        return None;
    }
    add("host", host.filter(|host| is_host(host))?);
    let others = parts
        .headers
        .iter()
        .filter(|(name, _)| *name != header::HOST);
    for (name, value) in others {
        add(name.as_str(), value.as_bytes());
    }
    Some((bytes, spans))
}

impl Body for Guarded {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let guarded = self.get_mut();
        match ready!(guarded.answer.poll_part(context)) {
            Some(part) => Poll::Ready(Some(part.map(Frame::data))),
            None => {
                let trailers = guarded.answer.take_trailers();
                let trailers = (!trailers.is_empty()).then(|| Frame::trailers(read(&trailers)));
                Poll::Ready(trailers.map(Ok))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.answer.is_over()
    }

    fn size_hint(&self) -> SizeHint {
        match &self.answer {
            Answer::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            // What is known of it is said in the fields.
            Answer::Live(_) | Answer::Pumped(_) => SizeHint::default(),
        }
    }
}

impl Visit {
    fn new(seat: &Arc<Seat>) -> Self {
        seat.enter();
        Self(Arc::clone(seat))
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.0.leave();
    }
}
