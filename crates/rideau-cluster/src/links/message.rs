//! Messages between nodes, as RESP3 push frames.
//!
//! Every frame is `>n verb …`. Numbers are those of RESP, which have a sign: an unsigned
//! number has the same 64 bits. Commands, replies and rows are bytes that this module
//! never looks into.

use std::time::Duration;

use rideau_core::cluster::{PeerMessage, RowMessage};
use rideau_resp::{Protocol, ReplyLimits, Value};

use super::fields::{BadFrame, FrameFields, begin, signed};
use super::rows;

/// Bytes of a frame.
pub(super) const FRAME_MAX: usize = 4 << 20;
/// Bytes of what a [`LinkMessage`] carries. A longer report goes in chunks.
pub const MESSAGE_MAX: usize = 256 << 10;
/// Bytes of a frame around what it carries.
pub(super) const ENVELOPE_MAX: usize = 4 << 10;

/// Limits of a frame for the node that reads it.
pub(super) const FRAME_LIMITS: ReplyLimits = ReplyLimits {
    frame_max: FRAME_MAX,
    bulk_max: FRAME_MAX,
    elements_max: 16,
    depth_max: 1,
};

/// A command that another node shall run, because it owns what the command names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerAsk {
    /// How many nodes have passed it on, the sender included.
    pub hop: u8,
    /// The partition that it concerns.
    pub partition: u32,
    /// The ownership that the sender knows of.
    pub epoch: u64,
    /// The holder, as the sender names it.
    pub holder: Vec<u8>,
    /// The user, whose rights the owner checks again.
    pub user: String,
    /// How long the client waits; none if it waits for as long as it takes. A command
    /// without a wait has zero.
    pub wait: Option<Duration>,
    /// The version that the client speaks. The reply is written in it.
    pub protocol: Protocol,
    /// The command, as the client sent it.
    pub command: Vec<u8>,
}

/// The result of a command on another node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerAnswer {
    /// What the asking node notes in its holdings, if the command took something. Its
    /// bytes are the node's own.
    pub row: Option<Vec<u8>>,
    /// The reply, for the client as it is.
    pub reply: Vec<u8>,
}

/// Messages between nodes that need no answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LinkMessage {
    /// For a holder behind the receiving node.
    Push {
        /// The holder, as the receiver named it in an ask.
        holder: Vec<u8>,
        /// The bytes of the message.
        bytes: Vec<u8>,
    },
    /// A holder behind the sender has ended. It is repeated on every new link until the
    /// receiver says [`heard`](crate::PeerLinks::heard).
    Ended {
        /// To tell which one was heard.
        id: u64,
        /// The partition in which it holds or waits.
        partition: u32,
        /// The ownership that the sender knows of.
        epoch: u64,
        /// The holder, as the sender named it in an ask.
        holder: Vec<u8>,
    },
    /// A part of what the sender reports to the new owner of a partition.
    Report {
        /// Which partition.
        partition: u32,
        /// The ownership that it is for.
        epoch: u64,
        /// Which part, from zero on.
        chunk: u32,
        /// How many parts there are.
        chunks: u32,
        /// The part.
        bytes: Vec<u8>,
    },
    /// Free values of a range. A newer digest replaces one that was not yet written.
    Digest {
        /// The partition.
        partition: u32,
        /// The name of the range.
        range: Vec<u8>,
        /// The numbers.
        bytes: Vec<u8>,
    },
    /// The sender wants to be told what happens to values of the receiver, or does not any more.
    Watches(bool),
    /// The sender tells everything of that from now on.
    Watched {
        /// It begins. If not, it has left something out.
        is_first: bool,
    },
    /// What happened to a value of the sender.
    Happened(Vec<u8>),
    /// The newest version of the shared config that the sender knows. Only links of version 2
    /// of the protocol carry it.
    Config {
        /// The version.
        version: u64,
        /// Empty if the sender follows it, and its file says the same.
        note: String,
    },
    /// A message between the machines of two nodes.
    Peer(PeerMessage),
    /// A message between an entry node and an owner about rows in memory.
    Row {
        /// What is told, or asked.
        message: RowMessage,
        /// Details of the answer for the client.
        told: Vec<u8>,
    },
}

/// Everything that goes over a link once both sides have proved themselves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Frame {
    Ask {
        id: u64,
        ask: PeerAsk,
    },
    Answer {
        id: u64,
        answer: PeerAnswer,
    },
    /// The ask is not wanted any more, and neither is what it became.
    Cancel {
        id: u64,
        partition: u32,
        epoch: u64,
    },
    /// The cancel of this ask was heard.
    Cancelled {
        id: u64,
    },
    /// The end of a holder that has this id was heard.
    Heard {
        id: u64,
    },
    Ping {
        seq: u64,
    },
    Pong {
        seq: u64,
    },
    /// The sender closes the link.
    GoAway {
        reason: String,
    },
    Message(LinkMessage),
}

impl PeerAnswer {
    /// An answer that took nothing.
    pub const fn new(reply: Vec<u8>) -> Self {
        Self { row: None, reply }
    }
}

impl LinkMessage {
    /// The bytes it carries.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Push { holder, bytes } => holder.len() + bytes.len(),
            Self::Ended { holder, .. } => holder.len(),
            Self::Report { bytes, .. } => bytes.len(),
            Self::Digest { range, bytes, .. } => range.len() + bytes.len(),
            Self::Happened(bytes) => bytes.len(),
            Self::Config { note, .. } => note.len(),
            Self::Watches(_) | Self::Watched { .. } | Self::Peer(_) => 0,
            Self::Row { message, told } => rows::len(message) + told.len(),
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Push { holder, bytes } => {
                begin(out, "push", 2).bulk(holder).bulk(bytes);
            }
            Self::Ended {
                id,
                partition,
                epoch,
                holder,
            } => {
                begin(out, "ended", 4)
                    .integer(signed(*id))
                    .integer((*partition).into())
                    .integer(signed(*epoch))
                    .bulk(holder);
            }
            Self::Report {
                partition,
                epoch,
                chunk,
                chunks,
                bytes,
            } => {
                begin(out, "report", 5)
                    .integer((*partition).into())
                    .integer(signed(*epoch))
                    .integer((*chunk).into())
                    .integer((*chunks).into())
                    .bulk(bytes);
            }
            Self::Digest {
                partition,
                range,
                bytes,
            } => write_digest(*partition, range, bytes, out),
            Self::Watches(wants) => drop(begin(out, "watches", 1).integer((*wants).into())),
            Self::Watched { is_first } => {
                begin(out, "watched", 1).integer((*is_first).into());
            }
            Self::Happened(bytes) => drop(begin(out, "happened", 1).bulk(bytes)),
            Self::Config { version, note } => {
                begin(out, "config", 2).integer(signed(*version)).bulk(note);
            }
            Self::Peer(PeerMessage::Serves { partition, epoch }) => {
                begin(out, "serves", 2)
                    .integer((*partition).into())
                    .integer(signed(*epoch));
            }
            Self::Row { message, told } => rows::write(message, told, out),
        }
    }
}

impl Frame {
    /// Append the frame's bytes.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Ask { id, ask } => write_ask(*id, ask, out),
            Self::Answer { id, answer } => write_answer(*id, answer, out),
            Self::Cancel {
                id,
                partition,
                epoch,
            } => {
                begin(out, "cancel", 3)
                    .integer(signed(*id))
                    .integer((*partition).into())
                    .integer(signed(*epoch));
            }
            Self::Cancelled { id } => drop(begin(out, "cancelled", 1).integer(signed(*id))),
            Self::Heard { id } => drop(begin(out, "heard", 1).integer(signed(*id))),
            Self::Ping { seq } => drop(begin(out, "ping", 1).integer(signed(*seq))),
            Self::Pong { seq } => drop(begin(out, "pong", 1).integer(signed(*seq))),
            Self::GoAway { reason } => drop(begin(out, "goaway", 1).bulk(reason)),
            Self::Message(message) => message.write(out),
        }
    }

    /// The frame that a parsed value is.
    pub(super) fn read(value: Value) -> Result<Self, BadFrame> {
        let (verb, mut fields) = FrameFields::of(value)?;
        let frame = match verb.as_slice() {
            b"ask" => Self::Ask {
                id: fields.number()?,
                ask: read_ask(&mut fields)?,
            },
            b"answer" => Self::Answer {
                id: fields.number()?,
                answer: PeerAnswer {
                    row: fields.bytes_or_null()?,
                    reply: fields.bytes()?,
                },
            },
            b"cancel" => Self::Cancel {
                id: fields.number()?,
                partition: fields.small()?,
                epoch: fields.number()?,
            },
            b"cancelled" => Self::Cancelled {
                id: fields.number()?,
            },
            b"heard" => Self::Heard {
                id: fields.number()?,
            },
            b"ping" => Self::Ping {
                seq: fields.number()?,
            },
            b"pong" => Self::Pong {
                seq: fields.number()?,
            },
            b"goaway" => Self::GoAway {
                reason: fields.text()?,
            },
            verb => Self::Message(read_message(verb, &mut fields)?),
        };
        fields.end()?;
        match frame {
            Self::Message(message) if message.len() > MESSAGE_MAX => Err(BadFrame::Message),
            frame => Ok(frame),
        }
    }
}

fn read_message(verb: &[u8], fields: &mut FrameFields) -> Result<LinkMessage, BadFrame> {
    Ok(match verb {
        b"push" => LinkMessage::Push {
            holder: fields.bytes()?,
            bytes: fields.bytes()?,
        },
        b"ended" => LinkMessage::Ended {
            id: fields.number()?,
            partition: fields.small()?,
            epoch: fields.number()?,
            holder: fields.bytes()?,
        },
        b"report" => LinkMessage::Report {
            partition: fields.small()?,
            epoch: fields.number()?,
            chunk: fields.small()?,
            chunks: fields.small()?,
            bytes: fields.bytes()?,
        },
        b"digest" => LinkMessage::Digest {
            partition: fields.small()?,
            range: fields.bytes()?,
            bytes: fields.bytes()?,
        },
        b"watches" => LinkMessage::Watches(fields.number()? != 0),
        b"watched" => LinkMessage::Watched {
            is_first: fields.number()? != 0,
        },
        b"happened" => LinkMessage::Happened(fields.bytes()?),
        b"config" => LinkMessage::Config {
            version: fields.number()?,
            note: fields.text()?,
        },
        b"serves" => LinkMessage::Peer(PeerMessage::Serves {
            partition: fields.small()?,
            epoch: fields.number()?,
        }),
        b"row" => {
            let (message, told) = rows::read(fields)?;
            LinkMessage::Row { message, told }
        }
        _ => return Err(BadFrame::Verb),
    })
}

/// Append an ask without taking it apart.
pub(super) fn write_ask(id: u64, ask: &PeerAsk, out: &mut Vec<u8>) {
    let mut frame = begin(out, "ask", 9);
    frame
        .integer(signed(id))
        .integer(ask.hop.into())
        .integer(ask.partition.into())
        .integer(signed(ask.epoch))
        .bulk(&ask.holder)
        .bulk(&ask.user);
    match ask.wait {
        None => frame.null(),
        // Half a billion years are enough.
        Some(wait) => frame.integer(i64::try_from(wait.as_millis()).unwrap_or(i64::MAX)),
    };
    let protocol = match ask.protocol {
        Protocol::Resp2 => 2,
        Protocol::Resp3 => 3,
    };
    frame.integer(protocol).bulk(&ask.command);
}

fn read_ask(fields: &mut FrameFields) -> Result<PeerAsk, BadFrame> {
    Ok(PeerAsk {
        hop: fields.small()?,
        partition: fields.small()?,
        epoch: fields.number()?,
        holder: fields.bytes()?,
        user: fields.text()?,
        wait: match fields.next()? {
            Value::Null => None,
            Value::Integer(wait) => {
                let wait = u64::try_from(wait).map_err(|_| BadFrame::Field)?;
                Some(Duration::from_millis(wait))
            }
            _ => return Err(BadFrame::Field),
        },
        protocol: match fields.number()? {
            2 => Protocol::Resp2,
            3 => Protocol::Resp3,
            _ => return Err(BadFrame::Field),
        },
        command: fields.bytes()?,
    })
}

/// Append an answer without taking it apart.
pub(super) fn write_answer(id: u64, answer: &PeerAnswer, out: &mut Vec<u8>) {
    let mut frame = begin(out, "answer", 3);
    frame.integer(signed(id));
    match &answer.row {
        Some(row) => frame.bulk(row),
        None => frame.null(),
    };
    frame.bulk(&answer.reply);
}

/// Append a digest without taking it apart.
pub(super) fn write_digest(partition: u32, range: &[u8], bytes: &[u8], out: &mut Vec<u8>) {
    let mut frame = begin(out, "digest", 3);
    frame.integer(partition.into()).bulk(range).bulk(bytes);
}
