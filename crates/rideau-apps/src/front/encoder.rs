//! Compresses bytes as they come.

use std::cell::RefCell;
use std::io;

use flate2::{Compress, FlushCompress, Status};
use zstd::stream::raw::{self, CParameter, InBuffer, Operation, OutBuffer};
use zstd::zstd_safe::WriteBuf;

use super::accept_encoding::Coding;

const ZSTD_LEVEL: i32 = 3;
/// How far Zstandard looks back and how long its tables are, as powers of two: an encoder takes
/// less than 768 KiB.
const ZSTD: [CParameter; 3] = [
    CParameter::WindowLog(16),
    CParameter::HashLog(15),
    CParameter::ChainLog(14),
];
const GZIP_LEVEL: u32 = 5;
/// As far as gzip can look back.
const GZIP_WINDOW: u8 = 15;
/// Room that is made for what comes out.
const ROOM: usize = 4 << 10;

/// Compresses one body.
pub(super) enum Encoder {
    Zstd(Box<raw::Encoder<'static>>),
    Gzip(Box<Compress>),
}

/// How far what was written has to come out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Push {
    /// As far as is best.
    Some,
    /// All of it, so that the client has it.
    All,
    /// All of it, and it was the last.
    End,
}

thread_local! {
    /// Those for bodies that are here as a whole: making one takes longer than using it.
    static READY: RefCell<Vec<(Coding, Encoder)>> = const { RefCell::new(Vec::new()) };
}

/// All of a body; none if that would not be shorter.
pub(super) fn whole(coding: Coding, bytes: &[u8]) -> Option<Vec<u8>> {
    let ready = READY.with_borrow_mut(|ready| {
        let at = ready.iter().position(|(known, _)| *known == coding)?;
        Some(ready.swap_remove(at).1)
    });
    let mut encoder = match ready {
        Some(encoder) => encoder,
        None => Encoder::new(coding).ok()?,
    };
    let mut out = Vec::with_capacity(bytes.len() / 2 + ROOM);
    encoder.push(bytes, Push::End, &mut out).ok()?;
    if encoder.reset().is_ok() {
        READY.with_borrow_mut(|ready| ready.push((coding, encoder)));
    }
    out.shrink_to_fit();
    (out.len() < bytes.len()).then_some(out)
}

impl Encoder {
    /// One for this coding.
    ///
    /// # Errors
    ///
    /// If there is none for it, or no memory.
    pub(super) fn new(coding: Coding) -> io::Result<Self> {
        match coding {
            Coding::Zstd => {
                let mut encoder = raw::Encoder::new(ZSTD_LEVEL)?;
                for parameter in ZSTD {
                    encoder.set_parameter(parameter)?;
                }
                Ok(Self::Zstd(Box::new(encoder)))
            }
            Coding::Gzip => {
                let level = flate2::Compression::new(GZIP_LEVEL);
                let compress = Compress::new_gzip(level, GZIP_WINDOW);
                Ok(Self::Gzip(Box::new(compress)))
            }
            Coding::Brotli => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Take more of a body, and put what comes out of it.
    pub(super) fn write(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        self.push(bytes, Push::Some, out)
    }

    /// Put all that was taken.
    pub(super) fn flush(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        self.push(&[], Push::All, out)
    }

    /// The body is over.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        self.push(&[], Push::End, out)
    }

    fn push(&mut self, bytes: &[u8], push: Push, out: &mut Vec<u8>) -> io::Result<()> {
        match self {
            Self::Zstd(encoder) => push_zstd(encoder, bytes, push, out),
            Self::Gzip(compress) => push_gzip(compress, bytes, push, out),
        }
    }

    /// Begin another body.
    fn reset(&mut self) -> io::Result<()> {
        match self {
            Self::Zstd(encoder) => encoder.reinit(),
            Self::Gzip(compress) => {
                compress.reset();
                Ok(())
            }
        }
    }
}

fn push_zstd(
    encoder: &mut raw::Encoder<'_>,
    bytes: &[u8],
    push: Push,
    out: &mut Vec<u8>,
) -> io::Result<()> {
    let mut input = InBuffer::around(bytes);
    while input.pos() < bytes.len() {
        with_room(out, |room| encoder.run(&mut input, room))?;
    }
    loop {
        let left = with_room(out, |room| match push {
            Push::Some => Ok(0),
            Push::All => encoder.flush(room),
            Push::End => encoder.finish(room, true),
        })?;
        if left == 0 {
            return Ok(());
        }
    }
}

/// Have more put behind what is there.
fn with_room<T>(
    out: &mut Vec<u8>,
    put: impl FnOnce(&mut OutBuffer<'_, Vec<u8>>) -> io::Result<T>,
) -> io::Result<T> {
    out.reserve(ROOM);
    let len = out.as_slice().len();
    put(&mut OutBuffer::around_pos(out, len))
}

fn push_gzip(
    compress: &mut Compress,
    bytes: &[u8],
    push: Push,
    out: &mut Vec<u8>,
) -> io::Result<()> {
    let flush = match push {
        Push::Some => FlushCompress::None,
        Push::All => FlushCompress::Sync,
        Push::End => FlushCompress::Finish,
    };
    let mut rest = bytes;
    loop {
        out.reserve(ROOM);
        let before = compress.total_in();
        let status = compress.compress_vec(rest, out, flush)?;
        let taken = usize::try_from(compress.total_in() - before).unwrap_or(rest.len());
        rest = &rest[taken.min(rest.len())..];
        let has_room = out.len() < out.capacity();
        let is_done = match push {
            Push::End => status == Status::StreamEnd,
            _ => rest.is_empty() && has_room,
        };
        if is_done {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use rideau_core::Rng;

    use super::*;

    fn decoded(coding: Coding, bytes: &[u8]) -> Vec<u8> {
        match coding {
            Coding::Zstd => zstd::stream::decode_all(bytes).expect("it is zstd"),
            _ => {
                let mut out = Vec::new();
                let mut decoder = flate2::read::GzDecoder::new(bytes);
                decoder.read_to_end(&mut out).expect("it is gzip");
                out
            }
        }
    }

    const BOTH: [Coding; 2] = [Coding::Zstd, Coding::Gzip];

    fn text(len: usize) -> Vec<u8> {
        let words = b"the quick brown fox jumps over the lazy dog, again and again; ";
        let mut rng = Rng::new(5);
        let mut text = Vec::new();
        while text.len() < len {
            let at = rng.below(words.len() as u64 - 8) as usize;
            text.extend_from_slice(&words[at..at + 8]);
        }
        text.truncate(len);
        text
    }

    #[test]
    fn a_whole_body_comes_back_and_is_only_taken_if_it_is_shorter() {
        for coding in BOTH {
            for len in [100, 1000, 70_000, 1_000_000] {
                let text = text(len);
                let shorter = whole(coding, &text).expect("it is shorter");
                assert!(shorter.len() < len);
                assert_eq!(decoded(coding, &shorter), text, "{coding:?} {len}");
            }
            let mut rng = Rng::new(1);
            let noise: Vec<u8> = (0..5000).map(|_| rng.below(256) as u8).collect();
            assert_eq!(whole(coding, &noise), None);
            assert_eq!(whole(coding, b""), None);
        }
        assert_eq!(whole(Coding::Brotli, &text(1000)), None);
    }

    #[test]
    fn what_was_written_can_be_read_after_each_flush() {
        for coding in BOTH {
            let mut encoder = Encoder::new(coding).expect("there is memory");
            let (mut out, mut written) = (Vec::new(), Vec::new());
            for part in text(300_000).chunks(7_001) {
                encoder.write(part, &mut out).expect("it is compressed");
                encoder.flush(&mut out).expect("it is flushed");
                written.extend_from_slice(part);
                assert_eq!(so_far(coding, &out), written);
            }
            encoder.finish(&mut out).expect("it ends");
            assert_eq!(decoded(coding, &out), written);
            assert!(out.len() < written.len());
        }
    }

    /// What a client reads of a body that is not over.
    fn so_far(coding: Coding, bytes: &[u8]) -> Vec<u8> {
        let mut out = vec![0; 400_000];
        let mut decoder: Box<dyn Read> = match coding {
            Coding::Zstd => Box::new(zstd::stream::read::Decoder::new(bytes).expect("memory")),
            _ => Box::new(flate2::read::GzDecoder::new(bytes)),
        };
        let mut len = 0;
        while let Ok(more @ 1..) = decoder.read(&mut out[len..]) {
            len += more;
        }
        out.truncate(len);
        out
    }

    #[test]
    fn an_encoder_of_zstd_takes_little_memory() {
        let mut context = zstd::zstd_safe::CCtx::create();
        let level = CParameter::CompressionLevel(ZSTD_LEVEL);
        for parameter in ZSTD.into_iter().chain([level]) {
            context.set_parameter(parameter).expect("it is valid");
        }
        let mut out = vec![0; 1 << 20];
        let text = text(500_000);
        let mut input = InBuffer::around(&text);
        let mut room = OutBuffer::around(&mut out[..]);
        context
            .compress_stream(&mut room, &mut input)
            .expect("it is compressed");
        assert!(context.sizeof() <= 768 << 10, "{}", context.sizeof());
    }
}
