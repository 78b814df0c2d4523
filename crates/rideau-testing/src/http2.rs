//! Frames of HTTP/2 as bytes, for clients that say what no library lets them say.

/// What a client begins with: the preface, and an empty SETTINGS frame.
pub const BEGIN: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// Kinds of frames.
pub const DATA: u8 = 0;
/// The fields of a request.
pub const HEADERS: u8 = 1;
/// How much one stream matters.
pub const PRIORITY: u8 = 2;
/// A stream is given up.
pub const RST_STREAM: u8 = 3;
/// What a side can do.
pub const SETTINGS: u8 = 4;
/// Is the other side there?
pub const PING: u8 = 6;
/// A side leaves.
pub const GOAWAY: u8 = 7;
/// More may be sent.
pub const WINDOW_UPDATE: u8 = 8;
/// More fields of the same request.
pub const CONTINUATION: u8 = 9;

/// The flag of the last frame of a stream.
pub const END_STREAM: u8 = 1;
/// The flag of the last frame with fields.
pub const END_HEADERS: u8 = 4;

/// A frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).expect("a frame is short");
    let [_, a, b, c] = len.to_be_bytes();
    let mut frame = vec![a, b, c, kind, flags];
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// A frame as it was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadFrame<'a> {
    /// Its kind.
    pub kind: u8,
    /// Its content.
    pub payload: &'a [u8],
    /// What follows it.
    pub rest: &'a [u8],
}

/// The first frame, if it is there as a whole.
pub fn first_frame(bytes: &[u8]) -> Option<ReadFrame<'_>> {
    let (header, rest) = bytes.split_first_chunk::<9>()?;
    let [a, b, c, kind, ..] = *header;
    let len = u32::from_be_bytes([0, a, b, c]) as usize;
    let (payload, rest) = rest.split_at_checked(len)?;
    Some(ReadFrame {
        kind,
        payload,
        rest,
    })
}

/// Fields as they are, without any compression.
pub fn literal_fields<'a>(fields: impl IntoIterator<Item = (&'a [u8], &'a [u8])>) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            put_len(&mut block, text.len());
            block.extend_from_slice(text);
        }
    }
    block
}

/// A length in seven bits, or in as many more as it takes.
fn put_len(block: &mut Vec<u8>, len: usize) {
    const MOST: usize = 0x7f;
    if len < MOST {
        return block.push(len as u8);
    }
    block.push(MOST as u8);
    let mut rest = len - MOST;
    while rest >= 0x80 {
        block.push((rest & MOST) as u8 | 0x80);
        rest >>= 7;
    }
    block.push(rest as u8);
}

#[test]
fn fields_have_their_lengths_before_them() {
    let long = [b'v'; 300];
    let block = literal_fields([(&b":method"[..], &b"GET"[..]), (b"x", &long)]);
    // 300 is 127 and 173: 45 with a mark that more follows, and 1.
    let expected = [b"\0\x07:method\x03GET\0\x01x\x7f\xad\x01", &long[..]].concat();
    assert_eq!(block, expected);
}

#[test]
fn a_frame_is_read_as_it_was_written() {
    let bytes = [frame(PING, 1, 7, b"abc"), b"rest".to_vec()].concat();
    let expected = ReadFrame {
        kind: PING,
        payload: b"abc",
        rest: b"rest",
    };
    assert_eq!(first_frame(&bytes), Some(expected));
    assert_eq!(first_frame(&bytes[..11]), None);
}
