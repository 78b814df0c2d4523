//! Frames by chance: each is read as it was written, and no bytes do harm.

use std::time::Duration;

use rideau_core::Rng;
use rideau_core::cluster::{Incarnation, PeerMessage, ReportedRow, RowAnswer, RowMessage};
use rideau_resp::{Protocol, ReplyLimits, ReplyParser, Value};
use rideau_testing::fuzz::{self, Tried, below, damage, is_once_in, one};

use super::hello::{HandshakeFrame, Hello};
use super::message::{FRAME_LIMITS, Frame, LinkMessage, PeerAnswer, PeerAsk};
use super::refusal::RefusalReason;

const FRAMES: u64 = 20_000;

/// Limits that are soon met.
const NARROW: ReplyLimits = ReplyLimits {
    frame_max: 300,
    bulk_max: 200,
    ..FRAME_LIMITS
};

#[test]
fn a_frame_is_read_as_it_was_written() {
    for seed in 0..FRAMES {
        let rng = &mut Rng::new(seed);
        let frames: Vec<_> = (0..=below(rng, 3)).map(|_| frame(rng)).collect();
        let mut bytes = Vec::new();
        frames.iter().for_each(|frame| frame.write(&mut bytes));
        let values = parsed(&bytes, rng, &FRAME_LIMITS).expect("it was written here");
        let read: Vec<_> = values.into_iter().map(Frame::read).collect();
        let expected: Vec<_> = frames.into_iter().map(Ok).collect();
        assert_eq!(read, expected, "seed {seed}");
    }
}

#[test]
fn a_handshake_is_read_as_it_was_written() {
    for seed in 0..FRAMES {
        let rng = &mut Rng::new(seed);
        let frame = handshake_frame(rng);
        let mut bytes = Vec::new();
        frame.write(&mut bytes);
        let mut values = parsed(&bytes, rng, &FRAME_LIMITS).expect("it was written here");
        let value = values.pop().expect("there is one");
        assert_eq!(HandshakeFrame::read(value), Ok(frame), "seed {seed}");
        assert_eq!(values, [], "seed {seed}");
    }
}

#[test]
fn no_bytes_do_harm() {
    fuzz::run("link_frames", FRAMES, make, |input| {
        for limits in [&FRAME_LIMITS, &NARROW] {
            attempt(input, limits)?;
        }
        Ok(())
    });
}

/// Frames with mistakes in them.
fn make(rng: &mut Rng) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..=below(rng, 3) {
        match below(rng, 3) {
            0 => handshake_frame(rng).write(&mut bytes),
            _ => frame(rng).write(&mut bytes),
        }
    }
    let words: [&[u8]; 9] = [
        b">3\r\n",
        b"$-1\r\n",
        b"_\r\n",
        b":-1\r\n",
        b"$999999999\r\n",
        b">999999999\r\n",
        b"|1\r\n+a\r\n+b\r\n",
        b"*1\r\n",
        b"$3\r\nask\r\n",
    ];
    damage(&mut bytes, rng, &words);
    bytes
}

/// Bytes in pieces, as a connection brings them. What is kept stays within the limits, and
/// a frame that can be read is written as something that reads the same.
fn attempt(input: &[u8], limits: &ReplyLimits) -> Tried {
    let rng = &mut Rng::new(input.len() as u64);
    let Ok(values) = parsed(input, rng, limits) else {
        return Ok(());
    };
    for value in values {
        if let Ok(frame) = HandshakeFrame::read(value.clone()) {
            let mut again = Vec::new();
            frame.write(&mut again);
            let same = parsed(&again, rng, &FRAME_LIMITS)
                .ok()
                .and_then(|mut it| it.pop());
            let same = same.map(HandshakeFrame::read);
            if same.as_ref().and_then(|same| same.as_ref().ok()) != Some(&frame) {
                return Err(format!("{frame:?} became {same:?}"));
            }
        }
        if let Ok(frame) = Frame::read(value) {
            let mut again = Vec::new();
            frame.write(&mut again);
            let same = parsed(&again, rng, &FRAME_LIMITS)
                .ok()
                .and_then(|mut it| it.pop());
            let same = same.map(Frame::read);
            if same.as_ref().and_then(|same| same.as_ref().ok()) != Some(&frame) {
                return Err(format!("{frame:?} became {same:?}"));
            }
        }
    }
    Ok(())
}

/// All values in bytes that come in pieces; nothing if they are none.
fn parsed(bytes: &[u8], rng: &mut Rng, limits: &ReplyLimits) -> Result<Vec<Value>, ()> {
    let (mut parser, mut values) = (ReplyParser::default(), Vec::new());
    let (mut buffer, mut rest) = (Vec::new(), bytes);
    while !rest.is_empty() {
        let (piece, behind) = rest.split_at(1 + below(rng, rest.len().min(100)));
        rest = behind;
        buffer.extend_from_slice(piece);
        let mut at = 0;
        while let Some(value) = parser.next(&buffer, &mut at, limits).map_err(drop)? {
            values.push(value);
        }
        buffer.drain(..at);
        let kept_max = limits.frame_max + 100;
        assert!(buffer.len() <= kept_max, "{} bytes are kept", buffer.len());
    }
    Ok(values)
}

fn frame(rng: &mut Rng) -> Frame {
    let id = number(rng);
    match below(rng, 13) {
        0..3 => Frame::Ask { id, ask: ask(rng) },
        3..5 => Frame::Answer {
            id,
            answer: PeerAnswer {
                row: (!is_once_in(rng, 3)).then(|| bytes(rng)),
                reply: bytes(rng),
            },
        },
        5 => Frame::Cancel {
            id,
            partition: number(rng) as u32,
            epoch: number(rng),
        },
        6 => Frame::Cancelled { id },
        7 => Frame::Heard { id },
        8 => Frame::Ping { seq: id },
        9 => Frame::Pong { seq: id },
        10 => Frame::GoAway { reason: text(rng) },
        _ => Frame::Message(message(rng)),
    }
}

fn ask(rng: &mut Rng) -> PeerAsk {
    PeerAsk {
        hop: number(rng) as u8,
        partition: number(rng) as u32,
        epoch: number(rng),
        holder: bytes(rng),
        user: text(rng),
        wait: (!is_once_in(rng, 3)).then(|| Duration::from_millis(number(rng) >> 1)),
        protocol: match is_once_in(rng, 2) {
            true => Protocol::Resp2,
            false => Protocol::Resp3,
        },
        command: bytes(rng),
    }
}

fn message(rng: &mut Rng) -> LinkMessage {
    let (partition, epoch) = (number(rng) as u32, number(rng));
    match below(rng, 10) {
        6 => LinkMessage::Watches(is_once_in(rng, 2)),
        7 => LinkMessage::Watched {
            is_first: is_once_in(rng, 2),
        },
        8 => LinkMessage::Happened(bytes(rng)),
        9 => LinkMessage::Config {
            version: number(rng),
            note: text(rng),
        },
        0 => LinkMessage::Push {
            holder: bytes(rng),
            bytes: bytes(rng),
        },
        1 => LinkMessage::Ended {
            id: number(rng),
            partition,
            epoch,
            holder: bytes(rng),
        },
        2 => LinkMessage::Report {
            partition,
            epoch,
            chunk: number(rng) as u32,
            chunks: number(rng) as u32,
            bytes: bytes(rng),
        },
        3 => LinkMessage::Digest {
            partition,
            range: bytes(rng),
            bytes: bytes(rng),
        },
        4 => LinkMessage::Peer(PeerMessage::Serves { partition, epoch }),
        _ => LinkMessage::Row {
            message: row_message(rng, partition, epoch),
            told: bytes(rng),
        },
    }
}

fn row_message(rng: &mut Rng, partition: u32, epoch: u64) -> RowMessage {
    let ticket = number(rng);
    match below(rng, 8) {
        0 => RowMessage::Ask {
            partition,
            epoch,
            row: reported(rng),
        },
        1 => RowMessage::Answer {
            partition,
            epoch,
            ticket,
            answer: match below(rng, 3) {
                0 => RowAnswer::Granted {
                    fence: number(rng) >> 1,
                },
                1 => RowAnswer::Refused,
                _ => RowAnswer::NotMine,
            },
        },
        2 => RowMessage::End {
            partition,
            epoch,
            ticket,
            how: bytes(rng),
        },
        3 => RowMessage::Ended {
            partition,
            epoch,
            ticket,
        },
        4 => RowMessage::Report {
            partition,
            epoch,
            rows: (0..below(rng, 4)).map(|_| reported(rng)).collect(),
        },
        5 => RowMessage::Reported { partition, epoch },
        6 => RowMessage::DropRow {
            partition,
            epoch,
            ticket,
            how: bytes(rng),
        },
        _ => RowMessage::RowDropped {
            partition,
            epoch,
            ticket,
        },
    }
}

fn reported(rng: &mut Rng) -> ReportedRow {
    ReportedRow {
        ticket: number(rng),
        fence: is_once_in(rng, 2).then(|| number(rng) >> 1),
        age: Duration::from_nanos(number(rng)),
        what: bytes(rng),
    }
}

fn handshake_frame(rng: &mut Rng) -> HandshakeFrame {
    match below(rng, 4) {
        0 => HandshakeFrame::Hello(Hello {
            versions: (number(rng) as u32, number(rng) as u32),
            cluster: text(rng),
            from: Incarnation::new(&text(rng), number(rng)),
            to: Incarnation::new(&text(rng), number(rng)),
            nonce: [number(rng) as u8; 32],
            number: number(rng),
        }),
        1 => HandshakeFrame::Proof(bytes(rng)),
        2 => HandshakeFrame::Ready,
        _ => {
            let reason = RefusalReason::ALL[below(rng, RefusalReason::ALL.len())];
            HandshakeFrame::GoAway(reason.with(text(rng)))
        }
    }
}

/// Small ones, large ones, and those at the ends.
fn number(rng: &mut Rng) -> u64 {
    match below(rng, 4) {
        0 => rng.below(10),
        1 => [0, u64::MAX, i64::MAX as u64, 1 << 63, u64::from(u32::MAX)][below(rng, 5)],
        _ => rng.draw() >> rng.below(64),
    }
}

fn bytes(rng: &mut Rng) -> Vec<u8> {
    let len = below(rng, 40);
    (0..len).map(|_| rng.draw() as u8).collect()
}

fn text(rng: &mut Rng) -> String {
    let words = ["n1", "é", "\r\n", "@", "$5", " ", ">", "\0", "x"];
    (0..below(rng, 6)).map(|_| one(rng, &words)).collect()
}
