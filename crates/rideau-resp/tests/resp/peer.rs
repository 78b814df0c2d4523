//! The two ends of a connection, without a connection.

use rideau_resp::{
    BadReply, Fault, ReplyLimits, ReplyParser, Request, RequestLimits, RequestParser, Value,
};

/// The words of a request.
pub(crate) type Words = Vec<Vec<u8>>;

/// What a server makes of the bytes that it is sent.
#[derive(Debug, Default)]
pub(crate) struct Server {
    parser: RequestParser,
    /// What came and was not yet taken.
    pub(crate) buffer: Vec<u8>,
    /// The requests so far.
    pub(crate) requests: Vec<Words>,
    /// Why it closed the connection, if it did.
    pub(crate) fault: Option<Fault>,
}

impl Server {
    /// Take all requests out of `pieces`, which come one after the other.
    pub(crate) fn of<'a>(
        pieces: impl IntoIterator<Item = &'a [u8]>,
        limits: &RequestLimits,
    ) -> Self {
        let mut server = Self::default();
        for piece in pieces {
            server.receive(piece, limits);
        }
        server
    }

    /// One read, as large as `piece`.
    pub(crate) fn receive(&mut self, piece: &[u8], limits: &RequestLimits) {
        self.buffer.extend_from_slice(piece);
        let mut at = 0;
        while self.fault.is_none() {
            let before = at;
            match self.parser.next(&self.buffer, &mut at, limits) {
                Ok(Some(request)) => {
                    check(request, at - before, limits);
                    self.requests
                        .push(request.words().map(<[u8]>::to_vec).collect());
                    assert!(at > before, "a request is not empty");
                }
                Ok(None) => break,
                Err(fault) => {
                    let again = self.parser.next(&self.buffer, &mut at, limits);
                    assert_eq!(again.unwrap_err(), fault, "a fault stays");
                    self.fault = Some(fault);
                }
            }
        }
        assert!(
            at <= self.buffer.len(),
            "nothing is taken that did not come"
        );
        self.buffer.drain(..at);
        if self.fault.is_none() {
            let (wants, kept) = (self.parser.wants(), self.buffer.len());
            assert!(
                wants <= limits.frame_max.max(kept + 1),
                "{wants} are wanted"
            );
            // The longest head of an array or a word: a type, 20 characters, CR.
            let kept_max = limits.frame_max.max(limits.inline_max) + 22;
            assert!(kept <= kept_max, "more is kept than allowed");
        }
    }

    /// What it would have sent, each request answered with its words.
    pub(crate) fn answers(&self) -> String {
        let mut out = Vec::new();
        for words in &self.requests {
            out.extend_from_slice(&words.join(&b'|'));
            out.push(b'\n');
        }
        if let Some(fault) = self.fault {
            fault.answer(&mut out);
        }
        String::from_utf8(out).unwrap()
    }
}

fn check(request: Request<'_>, len: usize, limits: &RequestLimits) {
    assert!((1..=limits.arguments_max).contains(&request.len()));
    assert_eq!(Some(request.name()), request.word(0));
    assert_eq!(request.word(request.len()), None);
    assert_eq!(request.arguments().len(), request.len() - 1);
    let longest = request.words().map(<[u8]>::len).max();
    let word_max = limits.bulk_max.max(limits.inline_max);
    assert!(longest.is_some_and(|longest| longest <= word_max.min(len)));
}

/// What a client makes of the bytes that it is sent.
#[derive(Debug, Default)]
pub(crate) struct Client {
    parser: ReplyParser,
    /// What came and was not yet taken.
    pub(crate) buffer: Vec<u8>,
    /// The replies so far.
    pub(crate) replies: Vec<Value>,
    /// Why it gave up, if it did.
    pub(crate) fault: Option<BadReply>,
}

impl Client {
    /// Take all replies out of `pieces`, which come one after the other.
    pub(crate) fn of<'a>(pieces: impl IntoIterator<Item = &'a [u8]>, limits: &ReplyLimits) -> Self {
        let mut client = Self::default();
        for piece in pieces {
            client.receive(piece, limits);
        }
        client
    }

    /// One read, as large as `piece`.
    pub(crate) fn receive(&mut self, piece: &[u8], limits: &ReplyLimits) {
        self.buffer.extend_from_slice(piece);
        let mut at = 0;
        while self.fault.is_none() {
            match self.parser.next(&self.buffer, &mut at, limits) {
                Ok(Some(reply)) => self.replies.push(reply),
                Ok(None) => break,
                Err(fault) => self.fault = Some(fault),
            }
        }
        assert!(
            at <= self.buffer.len(),
            "nothing is taken that did not come"
        );
        self.buffer.drain(..at);
        let kept_max = limits.frame_max + 22;
        assert!(self.fault.is_some() || self.buffer.len() <= kept_max);
    }
}
