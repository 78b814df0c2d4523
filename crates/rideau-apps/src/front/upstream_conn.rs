//! One connection to a process, driven by the task that uses it.

use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::task::{Context, Poll, ready};

use httparse::{ParserConfig, Status};
use hyper::StatusCode;
use hyper::body::Bytes;

use crate::apps::Session;
use crate::front::headers::{self, Noted};
use crate::front::upload::{Extent, Upload};
use crate::http1::chunks::Chunks;
use crate::http1::message_io::{MessageIo, Rest};

/// Bytes of the head of an answer, and its fields.
const HEAD_MAX: usize = 256 * 1024;
const FIELDS_MAX: usize = 128;

/// A connection to a process.
pub(super) struct UpstreamConn {
    wire: Box<MessageIo>,
    /// The rest of the request to send.
    upload: Upload,
    /// In chunks.
    is_chunked: bool,
    /// Something of the request was sent.
    is_begun: bool,
    /// The rest of the answer to read.
    rest: Rest,
    /// The process would take another one.
    keeps: bool,
    /// The session whose answer comes by it.
    session: Option<Session>,
}

/// A request as it is sent.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    /// Its head, as it is if no body follows.
    pub(super) head: &'a [u8],
    /// It asks for a head alone.
    pub(super) wants_head: bool,
    /// It asks to go on with something else.
    pub(super) wants_upgrade: bool,
    /// Tells the client what a process says before its answer.
    pub(super) early: Option<&'a Early<'a>>,
}

/// Tells a client what a process says before its answer, as it is written.
pub(super) type Early<'a> = dyn Fn(&[u8]) + Send + Sync + 'a;

/// The head of an answer.
pub(super) struct Said {
    pub(super) status: StatusCode,
    /// The fields to forward, as bytes.
    pub(super) fields: Vec<u8>,
    pub(super) noted: Noted,
}

/// Why a request got no answer.
pub(super) struct Lost {
    /// Its upload, if nothing of it was sent.
    pub(super) upload: Option<Upload>,
    /// The process said something that is no answer, rather than nothing.
    pub(super) is_garbage: bool,
    pub(super) error: io::Error,
}

impl UpstreamConn {
    pub(super) fn new(wire: Box<MessageIo>) -> Self {
        Self {
            wire,
            upload: Upload::Empty,
            is_chunked: false,
            is_begun: false,
            rest: Rest::Nothing,
            keeps: true,
            session: None,
        }
    }

    /// The idle connection, for another request; none if something is under way.
    pub(super) fn into_idle(self) -> Option<Box<MessageIo>> {
        let is_sent = matches!(self.upload, Upload::Empty) && self.wire.is_flushed();
        let is_answered = matches!(self.rest, Rest::Nothing);
        let is_ready = is_sent && is_answered && self.keeps && self.wire.unread().is_empty();
        is_ready.then_some(self.wire)
    }

    /// Send a request, and wait for the head of its answer.
    pub(super) async fn send(&mut self, asked: Asked<'_>, upload: Upload) -> Result<Said, Lost> {
        self.begin(asked.head, upload);
        poll_fn(|context| self.poll_answer(asked, context)).await
    }

    /// Wait for the head of the answer to a request that was begun.
    pub(super) fn poll_answer(
        &mut self,
        asked: Asked<'_>,
        context: &mut Context<'_>,
    ) -> Poll<Result<Said, Lost>> {
        self.poll_said(asked, context)
            .map_err(|error| self.lose(error))
    }

    #[cold]
    fn lose(&mut self, error: io::Error) -> Lost {
        let upload = std::mem::replace(&mut self.upload, Upload::Empty);
        Lost {
            upload: (!self.is_begun).then_some(upload),
            is_garbage: error.kind() == io::ErrorKind::InvalidData,
            error,
        }
    }

    /// Send a request, as far as that can be done at once.
    pub(super) fn begin(&mut self, head: &[u8], upload: Upload) {
        let extent = upload.extent();
        self.is_chunked = extent == Extent::Unknown;
        self.is_begun = false;
        self.upload = upload;
        if extent == Extent::Nothing {
            self.is_begun = self.wire.send_first(head) > 0;
            return;
        }
        let out = self.wire.out();
        out.extend_from_slice(headers::open(head));
        match extent {
            Extent::Length(len) => headers::put_length(out, len),
            _ => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
        }
        out.extend_from_slice(b"\r\n");
    }

    fn poll_said(&mut self, asked: Asked<'_>, context: &mut Context<'_>) -> Poll<io::Result<Said>> {
        // One that answers before it heard all may close as well, and its
        // answer counts.
        let broken = match self.poll_upload(context) {
            Poll::Ready(Err(error)) if !self.is_begun => return Poll::Ready(Err(error)),
            Poll::Ready(Err(error)) => Some(error),
            _ => None,
        };
        loop {
            if let Some(said) = self.parse(asked)? {
                return Poll::Ready(Ok(said));
            }
            match self.wire.poll_more(context) {
                Poll::Ready(Ok(0)) => {
                    let end = io::ErrorKind::UnexpectedEof.into();
                    return Poll::Ready(Err(broken.unwrap_or(end)));
                }
                Poll::Ready(Ok(_)) => (),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => match broken {
                    Some(error) => return Poll::Ready(Err(error)),
                    None => return Poll::Pending,
                },
            }
        }
    }

    /// Send what is to be sent; ready when that was all.
    pub(super) fn poll_upload(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let is_waiting = self.take_upload(context)?;
            if self.wire.is_flushed() {
                return match is_waiting {
                    true => Poll::Pending,
                    false => Poll::Ready(Ok(())),
                };
            }
            let sent = ready!(self.wire.poll_send(context))?;
            self.is_begun |= sent > 0;
        }
    }

    /// Take as much of the upload as has room; says whether more is to come.
    fn take_upload(&mut self, context: &mut Context<'_>) -> io::Result<bool> {
        while !matches!(self.upload, Upload::Empty) && self.wire.has_room() {
            match self.upload.poll_part(context) {
                Poll::Pending => return Ok(true),
                Poll::Ready(Some(Ok(part))) if self.is_chunked => put_chunk(&mut self.wire, part),
                Poll::Ready(Some(Ok(part))) => self.wire.push(part),
                Poll::Ready(None) => {
                    self.upload = Upload::Empty;
                    if self.is_chunked {
                        put_last_chunk(&mut self.wire, &[]);
                    }
                }
                Poll::Ready(Some(Err(broken))) => {
                    self.keeps = false;
                    return Err(io::Error::other(broken));
                }
            }
        }
        Ok(!matches!(self.upload, Upload::Empty))
    }

    /// The head of the answer, if it is there. Those before the last are skipped.
    fn parse(&mut self, asked: Asked<'_>) -> io::Result<Option<Said>> {
        loop {
            let unread = self.wire.unread();
            if unread.is_empty() {
                return Ok(None);
            }
            let mut room = [const { MaybeUninit::uninit() }; FIELDS_MAX];
            let mut answer = httparse::Response::new(&mut []);
            let config = ParserConfig::default();
            let parsed = config.parse_response_with_uninit_headers(&mut answer, unread, &mut room);
            let len = match parsed.map_err(|_| garbage())? {
                Status::Partial if unread.len() > HEAD_MAX => return Err(garbage()),
                Status::Partial => return Ok(None),
                Status::Complete(len) => len,
            };
            let status = answer.code.and_then(|code| StatusCode::from_u16(code).ok());
            let status = status.ok_or_else(garbage)?;
            let is_recent = answer.version == Some(1);
            let mut fields = Vec::with_capacity(len + 128);
            let noted = headers::to_client(&mut fields, answer.headers);
            let noted = noted.ok_or_else(garbage)?;
            self.wire.consume(len);
            if status.is_informational() && status != StatusCode::SWITCHING_PROTOCOLS {
                if status == StatusCode::EARLY_HINTS
                    && let Some(tell) = asked.early
                {
                    tell(&fields);
                }
                continue;
            }
            self.keeps = if is_recent {
                !noted.closes
            } else {
                noted.keeps
            };
            self.rest = rest_of(status, &noted, asked).ok_or_else(garbage)?;
            if matches!(self.rest, Rest::ToEnd) {
                self.keeps = false;
            }
            return Ok(Some(Said {
                status,
                fields,
                noted,
            }));
        }
    }

    /// An answer comes by it, for this one.
    pub(super) fn use_for(&mut self, session: Session) {
        self.session = Some(session);
    }

    /// The session that it is used for.
    pub(super) fn session(&self) -> Option<&Session> {
        self.session.as_ref()
    }

    /// It is used for no session any more.
    pub(super) fn take_session(&mut self) -> Option<Session> {
        self.session.take()
    }

    /// The next part of the upload has not come from the client.
    pub(super) fn awaits_client(&self) -> bool {
        self.upload.is_awaited()
    }

    /// The process has said all of its answer.
    pub(super) fn is_answered(&self) -> bool {
        matches!(self.rest, Rest::Nothing)
    }

    /// The next part of the answer; none after its end.
    pub(super) fn poll_part(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<Option<Bytes>>> {
        if !matches!(self.upload, Upload::Empty) || !self.wire.is_flushed() {
            // It need not hear the rest to say all that it wants to.
            if let Poll::Ready(Err(_)) = self.poll_upload(context) {
                self.upload = Upload::Empty;
                self.keeps = false;
            }
        }
        self.wire.poll_part(&mut self.rest, context)
    }

    /// The trailers of a chunked answer.
    pub(super) fn take_trailers(&mut self) -> Vec<u8> {
        headers::trailers(&self.wire.take_trailers())
    }

    /// The process has said all of its answer, and the rest of it is here and short.
    pub(super) fn has_all(&self) -> bool {
        self.wire.has_all(&self.rest)
    }

    /// Hand on what came of an answer already, if it says how long that is.
    /// Says whether it was all.
    pub(super) fn pour(&mut self, into: &mut MessageIo) -> bool {
        self.wire.pour(&mut self.rest, into)
    }

    /// The connection without HTTP.
    pub(super) fn into_wire(self) -> MessageIo {
        *self.wire
    }
}

/// Send a part of a body as a chunk.
pub(super) fn put_chunk(wire: &mut MessageIo, part: Bytes) {
    use io::Write;
    if part.is_empty() {
        // That would be the end.
        return;
    }
    let _ = write!(wire.out(), "{:x}\r\n", part.len());
    wire.push(part);
    wire.out().extend_from_slice(b"\r\n");
}

/// Send the end of a body in chunks, and what follows it.
pub(super) fn put_last_chunk(wire: &mut MessageIo, trailers: &[u8]) {
    let out = wire.out();
    out.extend_from_slice(b"0\r\n");
    out.extend_from_slice(trailers);
    out.extend_from_slice(b"\r\n");
}

/// The framing of an answer's body; none if the head is malformed.
fn rest_of(status: StatusCode, noted: &Noted, asked: Asked<'_>) -> Option<Rest> {
    if status == StatusCode::SWITCHING_PROTOCOLS {
        // An answer cannot go on with what was not asked for.
        return asked.wants_upgrade.then_some(Rest::Nothing);
    }
    let has_none = asked.wants_head || is_bare(status);
    Some(match noted.length {
        _ if has_none => Rest::Nothing,
        _ if noted.is_chunked => Rest::Chunks(Chunks::default()),
        Some(0) => Rest::Nothing,
        Some(len) => Rest::Length(len),
        None => Rest::ToEnd,
    })
}

/// Answers with this status have no body.
pub(super) fn is_bare(status: StatusCode) -> bool {
    matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
}

fn garbage() -> io::Error {
    io::ErrorKind::InvalidData.into()
}
