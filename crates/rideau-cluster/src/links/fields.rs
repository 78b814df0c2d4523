//! The fields of a frame: how they are written behind its verb, and read again.

use std::fmt;

use rideau_resp::{BadReply, Protocol, Reply, Value};

/// Why bytes are no frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BadFrame {
    Reply(BadReply),
    /// It is not a push.
    Kind,
    /// No frame has this verb.
    Verb,
    /// A field is missing, or of another type.
    Field,
    /// There are more fields than the verb has.
    Longer,
    /// A message carries more than it may.
    Message,
}

/// Begin a frame with this verb and number of fields.
pub(super) fn begin<'a>(out: &'a mut Vec<u8>, verb: &str, fields: usize) -> Reply<'a> {
    let mut reply = Reply::new(out, Protocol::Resp3);
    reply.push(1 + fields).bulk(verb);
    reply
}

/// The same 64 bits.
pub(super) const fn signed(number: u64) -> i64 {
    number as i64
}

/// The fields after the verb of a frame.
pub(super) struct FrameFields(std::vec::IntoIter<Value>);

impl FrameFields {
    /// The verb of a push, and its fields.
    pub(super) fn of(value: Value) -> Result<(Vec<u8>, Self), BadFrame> {
        let Value::Push(values) = value else {
            return Err(BadFrame::Kind);
        };
        let mut fields = Self(values.into_iter());
        let verb = fields.bytes()?;
        Ok((verb, fields))
    }

    pub(super) fn next(&mut self) -> Result<Value, BadFrame> {
        self.0.next().ok_or(BadFrame::Field)
    }

    pub(super) fn number(&mut self) -> Result<u64, BadFrame> {
        match self.next()? {
            Value::Integer(number) => Ok(number as u64),
            _ => Err(BadFrame::Field),
        }
    }

    pub(super) fn small<T: TryFrom<u64>>(&mut self) -> Result<T, BadFrame> {
        T::try_from(self.number()?).map_err(|_| BadFrame::Field)
    }

    pub(super) fn bytes(&mut self) -> Result<Vec<u8>, BadFrame> {
        self.bytes_or_null()?.ok_or(BadFrame::Field)
    }

    pub(super) fn bytes_or_null(&mut self) -> Result<Option<Vec<u8>>, BadFrame> {
        match self.next()? {
            Value::Bulk(bytes) => Ok(Some(bytes)),
            Value::Null => Ok(None),
            _ => Err(BadFrame::Field),
        }
    }

    pub(super) fn text(&mut self) -> Result<String, BadFrame> {
        String::from_utf8(self.bytes()?).map_err(|_| BadFrame::Field)
    }

    pub(super) fn end(mut self) -> Result<(), BadFrame> {
        match self.0.next() {
            None => Ok(()),
            Some(_) => Err(BadFrame::Longer),
        }
    }
}

impl From<BadReply> for BadFrame {
    fn from(bad: BadReply) -> Self {
        Self::Reply(bad)
    }
}

impl fmt::Display for BadFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reply(bad) => write!(f, "not a frame: {bad}"),
            Self::Kind => f.write_str("a frame is not a push"),
            Self::Verb => f.write_str("a frame has an unknown verb"),
            Self::Field => f.write_str("a field of a frame is missing or of another type"),
            Self::Longer => f.write_str("a frame has too many fields"),
            Self::Message => f.write_str("a message is too long"),
        }
    }
}
