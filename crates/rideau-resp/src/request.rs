//! Takes requests out of a buffer without copying them.
//!
//! Bytes may come in any pieces: the parser remembers how far it came, and
//! looks at no byte of a word more than once. The buffer is the caller's.

use memchr::memchr;

use super::fault::Fault;
use super::limits::RequestLimits;
use super::line::{self, Span};
use super::number::{self, BadNumber};
use super::reply::{Protocol, Reply};

/// The words that one digit can count: most requests have fewer.
const FEW: usize = 9;

/// With more words a request is rare, and the room for them is given up.
const SPANS_KEPT: usize = 64;

/// The same for the bytes of a line.
const TEXT_KEPT: usize = 1024;

/// A handshake record of TLS begins with it.
const TLS: u8 = 0x16;

/// Where one connection is within what it sends.
///
/// Invariant: `phase` and `spans` count from the start of the first request
/// that is not yet complete.
#[derive(Debug, Default)]
pub struct RequestParser {
    phase: Phase,
    /// The words of a short request that was there as a whole.
    few: [Span; FEW],
    spans: Vec<Span>,
    /// The words of a line, which may be shorter than what was typed.
    text: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Default)]
enum Phase {
    #[default]
    Start,
    /// A line of words that does not end in its first `seen` bytes.
    Line {
        seen: usize,
    },
    Array(Rest),
}

/// The rest of an array.
#[derive(Clone, Copy, Debug)]
struct Rest {
    /// The number of words.
    left: usize,
    /// The first of them starts here, with its length.
    next: usize,
    /// Where it lies, once the length is known.
    word: Option<Span>,
}

impl RequestParser {
    /// The next request in `buffer` from `at` on, if all of it is there.
    ///
    /// `at` moves behind it and behind what Redis skips: blank lines and empty
    /// arrays. What lies before `at` may go; the next call must bring the rest
    /// again, and more.
    ///
    /// # Errors
    ///
    /// If a client sent what is no request. It is [told so](Fault::answer), and
    /// the connection closed: asked again, the parser says the same.
    #[inline]
    pub fn next<'a>(
        &'a mut self,
        buffer: &'a [u8],
        at: &mut usize,
        limits: &RequestLimits,
    ) -> Result<Option<Request<'a>>, Fault> {
        let bytes = buffer.get(*at..).unwrap_or_default();
        if matches!(self.phase, Phase::Start)
            && self.spans.capacity() <= SPANS_KEPT
            && let Some((len, count)) = whole(bytes, limits, &mut self.few)
        {
            *at += len;
            let spans = &self.few[..count];
            return Ok(Some(Request { bytes, spans }));
        }
        self.next_of_any_kind(buffer, at, limits)
    }

    #[inline(never)]
    fn next_of_any_kind<'a>(
        &'a mut self,
        buffer: &'a [u8],
        at: &mut usize,
        limits: &RequestLimits,
    ) -> Result<Option<Request<'a>>, Fault> {
        loop {
            let frame = buffer.get(*at..).unwrap_or_default();
            let Some(len) = self.advance(frame, limits)? else {
                return Ok(None);
            };
            let typed = matches!(self.phase, Phase::Line { .. });
            self.phase = Phase::Start;
            *at += len;
            if !self.spans.is_empty() {
                let bytes = if typed { &self.text } else { frame };
                let spans = &self.spans;
                return Ok(Some(Request { bytes, spans }));
            }
        }
    }

    /// With fewer bytes from `at` on, the next call finds nothing new.
    ///
    /// Unless as much has come already, at most [`RequestLimits::frame_max`]; but it is
    /// the client's word, so make room for it step by step.
    pub fn wants(&self) -> usize {
        match self.phase {
            Phase::Start => 1,
            Phase::Line { seen } => seen + 1,
            Phase::Array(Rest { word, next, .. }) => word.map_or(next + 1, |(_, end)| end + 2),
        }
    }

    /// Go on with the first request of `frame`, and say how long it is once it
    /// is complete.
    fn advance(&mut self, frame: &[u8], limits: &RequestLimits) -> Result<Option<usize>, Fault> {
        match self.phase {
            Phase::Start => self.start(frame, limits),
            Phase::Line { seen } => self.line(frame, seen, limits),
            Phase::Array(rest) => self.array(frame, rest, limits),
        }
    }

    fn start(&mut self, frame: &[u8], limits: &RequestLimits) -> Result<Option<usize>, Fault> {
        self.spans.clear();
        self.spans.shrink_to(SPANS_KEPT);
        self.text.clear();
        self.text.shrink_to(TEXT_KEPT);
        let Some(&kind) = frame.first() else {
            return Ok(None);
        };
        match kind {
            b'*' => self.open(frame, limits),
            TLS => Err(Fault::Tls),
            _ if is_type(kind) => Err(Fault::NotArray(kind)),
            _ => self.line(frame, 0, limits),
        }
    }

    fn open(&mut self, frame: &[u8], limits: &RequestLimits) -> Result<Option<usize>, Fault> {
        let Some((count, len)) = number::line(&frame[1..]).map_err(Fault::Count)? else {
            return Ok(None);
        };
        let left = usize::try_from(count.max(0)).unwrap_or(usize::MAX);
        if left > limits.arguments_max {
            let max = limits.arguments_max;
            return Err(Fault::Arguments { max });
        }
        let rest = Rest {
            left,
            next: 1 + len,
            word: None,
        };
        self.array(frame, rest, limits)
    }

    fn array(
        &mut self,
        frame: &[u8],
        mut rest: Rest,
        limits: &RequestLimits,
    ) -> Result<Option<usize>, Fault> {
        while rest.left > 0 {
            rest.word = match rest.word {
                None => bulk(frame, rest.next, limits)?,
                known => known,
            };
            let come = rest.word.and_then(|(start, end)| {
                let ending = frame.get(end..end + 2)?;
                Some((start, end, ending))
            });
            let Some((start, end, ending)) = come else {
                self.phase = Phase::Array(rest);
                return Ok(None);
            };
            if ending != b"\r\n" {
                return Err(Fault::Ending([ending[0], ending[1]]));
            }
            self.spans.push((start, end));
            rest = Rest {
                left: rest.left - 1,
                next: end + 2,
                word: None,
            };
        }
        Ok(Some(rest.next))
    }

    fn line(
        &mut self,
        frame: &[u8],
        seen: usize,
        limits: &RequestLimits,
    ) -> Result<Option<usize>, Fault> {
        let max = limits.inline_max;
        let found = memchr(b'\n', frame.get(seen..).unwrap_or_default());
        let len = found.map_or(frame.len(), |found| seen + found);
        if len > max {
            return Err(Fault::Inline { max });
        }
        self.phase = Phase::Line { seen: len };
        if found.is_none() {
            return Ok(None);
        }
        let line = &frame[..len];
        if let Some(fault) = line::foreign(line) {
            return Err(fault);
        }
        self.text.clear();
        self.spans.clear();
        line::split(line, limits.arguments_max, &mut self.text, &mut self.spans)?;
        Ok(Some(len + 1))
    }
}

/// The words of one request, the command's name first.
///
/// Invariant: there is at least one word.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    bytes: &'a [u8],
    spans: &'a [Span],
}

impl<'a> Request<'a> {
    /// The command's name, as the client spelled it.
    #[inline]
    pub fn name(&self) -> &'a [u8] {
        self.word(0).unwrap_or_default()
    }

    /// The word at this place; the name is at 0.
    #[inline]
    pub fn word(&self, at: usize) -> Option<&'a [u8]> {
        let &(start, end) = self.spans.get(at)?;
        Some(&self.bytes[start..end])
    }

    /// All words.
    pub fn words(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + use<'a> {
        let bytes = self.bytes;
        self.spans
            .iter()
            .map(move |&(start, end)| &bytes[start..end])
    }

    /// Write it as a client does that sends an array.
    pub fn write_to(&self, bytes: &mut Vec<u8>) {
        let mut sent = Reply::new(bytes, Protocol::Resp2);
        sent.array(self.len());
        for word in self.words() {
            sent.bulk(word);
        }
    }

    /// How many words there are.
    #[allow(clippy::len_without_is_empty, reason = "a request has a name")]
    pub fn len(&self) -> usize {
        self.spans.len()
    }
}

/// The length of the first request of `frame` and how many words it has, if all of
/// it is there and it is like most: a few short words, and nothing odd. Where they
/// lie is in `spans` then.
#[inline]
fn whole(frame: &[u8], limits: &RequestLimits, spans: &mut [Span; FEW]) -> Option<(usize, usize)> {
    /// Two digits say how long a short word is.
    const SHORT: usize = 99;
    let [b'*', count @ b'1'..=b'9', b'\r', b'\n', rest @ ..] = frame else {
        return None;
    };
    let count = usize::from(count - b'0');
    if count > limits.arguments_max || SHORT > limits.bulk_max {
        return None;
    }
    let mut rest = rest;
    for span in &mut spans[..count] {
        let (len, words) = match rest {
            [b'$', one @ b'0'..=b'9', b'\r', b'\n', words @ ..] => (usize::from(one - b'0'), words),
            [
                b'$',
                ten @ b'1'..=b'9',
                one @ b'0'..=b'9',
                b'\r',
                b'\n',
                words @ ..,
            ] => (
                usize::from(ten - b'0') * 10 + usize::from(one - b'0'),
                words,
            ),
            _ => return None,
        };
        // What is left says where we are: so nothing is added up twice.
        let start = frame.len() - words.len();
        let [b'\r', b'\n', behind @ ..] = words.get(len..)? else {
            return None;
        };
        *span = (start, start + len);
        rest = behind;
    }
    let len = frame.len() - rest.len();
    (len <= limits.frame_max).then_some((len, count))
}

/// Where the word lies whose length stands at `next`.
fn bulk(frame: &[u8], next: usize, limits: &RequestLimits) -> Result<Option<Span>, Fault> {
    match frame.get(next) {
        None => return Ok(None),
        Some(b'$') => (),
        Some(&kind) => return Err(Fault::NotBulk(kind)),
    }
    let Some((len, used)) = number::line(&frame[next + 1..]).map_err(Fault::Length)? else {
        return Ok(None);
    };
    let len = u64::try_from(len).map_err(|_| Fault::Length(BadNumber::Negative))?;
    let max = limits.bulk_max;
    let short = usize::try_from(len).ok().filter(|&len| len <= max);
    let short = short.ok_or(Fault::Bulk { len, max })?;

    let start = next + 1 + used;
    let max = limits.frame_max;
    match start.checked_add(short) {
        Some(end) if end < max.saturating_sub(1) => Ok(Some((start, end))),
        _ => Err(Fault::Frame { max }),
    }
}

/// The first bytes of other RESP types, with which no command begins.
fn is_type(byte: u8) -> bool {
    b"$+-:_#,(!=%~>|".contains(&byte)
}
