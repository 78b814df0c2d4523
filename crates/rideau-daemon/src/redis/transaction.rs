//! Commands between `MULTI` and `EXEC`: kept as they were sent, and executed together.

use std::sync::Arc;

use rideau_resp::{Request, RequestLimits, RequestParser};

use crate::state::budget::{Budget, Drawn};

/// This many commands wait for one `EXEC`.
pub(crate) const QUEUED_MAX: usize = 4096;
/// This many bytes of them are each connection's own. All beyond that is drawn from
/// what all connections share.
const OWN: usize = 4 * 1024;

/// The commands that a client has queued.
pub(crate) struct Transaction {
    /// The commands, one behind the other.
    bytes: Vec<u8>,
    count: usize,
    drawn: Drawn,
    /// The user that queued them.
    user: Box<str>,
    /// One of them was refused, so none is executed.
    is_spoiled: bool,
    /// The answers are not wanted.
    pub is_silent: bool,
    parser: RequestParser,
    /// The commands before it are done.
    at: usize,
}

/// Why a command cannot be queued.
pub(crate) enum TooLong {
    /// The limit of commands is reached.
    Commands,
    /// The limit of their bytes is reached.
    Bytes,
    /// The limit of bytes of all connections is reached.
    Shared(u64),
}

impl Transaction {
    /// Nothing yet, of this user.
    pub(crate) fn new(budget: &Arc<Budget>, user: &str) -> Self {
        Self {
            bytes: Vec::new(),
            count: 0,
            drawn: Drawn::new(budget),
            user: user.into(),
            is_spoiled: false,
            is_silent: false,
            parser: RequestParser::default(),
            at: 0,
        }
    }

    /// Queue a command, if there are no more than this many bytes.
    ///
    /// # Errors
    ///
    /// If there is no room.
    pub(crate) fn add(&mut self, request: Request<'_>, bytes_max: usize) -> Result<(), TooLong> {
        if self.is_spoiled {
            return Ok(());
        }
        if self.count == QUEUED_MAX {
            return Err(TooLong::Commands);
        }
        let before = self.bytes.len();
        request.write_to(&mut self.bytes);
        let len = self.bytes.len();
        let is_drawn = len <= bytes_max && self.drawn.set(len.saturating_sub(OWN) as u64);
        if !is_drawn {
            self.bytes.truncate(before);
            return Err(match len > bytes_max {
                true => TooLong::Bytes,
                false => TooLong::Shared(self.drawn.max()),
            });
        }
        self.count += 1;
        Ok(())
    }

    /// None of them will be executed.
    pub(crate) fn spoil(&mut self) {
        self.is_spoiled = true;
        self.bytes = Vec::new();
        self.count = 0;
        self.drawn.give_back();
    }

    /// They may be executed.
    pub(crate) fn is_good(&self) -> bool {
        !self.is_spoiled
    }

    /// They are of this user.
    pub(crate) fn is_of(&self, user: &str) -> bool {
        *self.user == *user
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// The next to be executed.
    pub(crate) fn next_request(&mut self) -> Option<Request<'_>> {
        let limits = RequestLimits {
            bulk_max: usize::MAX,
            frame_max: usize::MAX,
            ..RequestLimits::default()
        };
        let read = self.parser.next(&self.bytes, &mut self.at, &limits);
        read.expect("a client sent it before")
    }
}
