//! Heads and bodies in chunks by chance: however they are cut, they are read in
//! the same way, and no process behind us reads them in another.

use std::time::Duration;

use httparse::{EMPTY_HEADER, Status};
use rideau_core::Rng;

use crate::front::conn::ClientConn;
use crate::front::headers::{self, Toward};
use crate::front::ids::Id;
use crate::http1::chunks::Chunks;
use crate::http1::head::{Framing, Head, HeadLimits, is_token};
use rideau_testing::fuzz::{self, Tried, below, is_once_in, one};

const USUAL: u64 = 20_000;

const LIMITS: HeadLimits = HeadLimits {
    bytes_max: 2000,
    fields_max: 12,
};

const LINES: &[&[u8]] = &[
    b"GET / HTTP/1.1",
    b"POST /a?b=c HTTP/1.1",
    b"GET http://a/b HTTP/1.1",
    b"OPTIONS * HTTP/1.1",
    b"HEAD /\xc3\xa9 HTTP/1.0",
    b"GET / HTTP/1.0",
    b"GET /a b HTTP/1.1",
    b"get / http/1.1",
    b"GET / HTTP/1.1 ",
    b"",
];

const FIELDS: &[&[u8]] = &[
    b"Host: a",
    b"Host: a.example:80",
    b"Host: [::1]:80",
    b"host:a",
    b"Host: a, b",
    b"Content-Length: 5",
    b"Content-Length: 0",
    b"content-length:5",
    b"Content-Length: 5, 5",
    b"Content-Length: +5",
    b"Content-Length: 99999999999999999999",
    b"Content-Length : 5",
    b"Content_Length: 5",
    b"Transfer-Encoding: chunked",
    b"transfer-encoding:Chunked",
    b"Transfer-Encoding: gzip, chunked",
    b"Transfer_Encoding: chunked",
    b"Transfer-Encoding:\x0bchunked",
    b"Connection: close",
    b"Connection: keep-alive, X",
    b"Connection: content-length, host, transfer-encoding",
    b"Connection: Upgrade",
    b"Upgrade: websocket",
    b"TE: trailers",
    b"Expect: 100-continue",
    b"Accept: text/html",
    b"Cookie: a=b; c=d",
    b"X-Forwarded-For: 1.1.1.1",
    b"X-Forwarded-Host: evil",
    b"X-Request-Id: \xff",
    b"X: \xc3\xa9",
    b"X:",
    b"X",
    b" folded",
    b"\tfolded",
    b": a",
    b"X: a\0b",
    b"X: a\rb",
];

const PARTS: &[&[u8]] = &[
    b"\r\n",
    b"\r",
    b"\n",
    b"\r\n\r\n",
    b" ",
    b"\t",
    b":",
    b",",
    b"\0",
    b"\x0b",
    b"\x7f",
    b"\xff",
    b"\xc3\xa9",
    b"Host: a\r\n",
    b"Content-Length: 1\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"HTTP/1.1",
    b"GET ",
    b"chunked",
    b"0\r\n\r\n",
    b"5\r\nhello\r\n",
    b";",
    b"ffffffff",
    b"0",
    b"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
];

#[test]
fn a_head_is_read_in_one_way() {
    let (mut good, mut bad) = (0_u32, 0_u32);
    fuzz::run("front-heads", USUAL, head, |input| {
        let is_good = check_head(input)?;
        good += u32::from(is_good);
        bad += u32::from(!is_good);
        Ok(())
    });
    assert!(good > bad / 20 && bad > good / 20, "{good} good, {bad} bad");
}

#[test]
fn chunks_are_read_in_one_way() {
    let (mut good, mut bad) = (0_u32, 0_u32);
    fuzz::run("front-chunks", USUAL, chunks, |input| {
        let is_good = check_chunks(input)?;
        good += u32::from(is_good);
        bad += u32::from(!is_good);
        Ok(())
    });
    assert!(good > bad / 20 && bad > good / 20, "{good} good, {bad} bad");
}

fn head(rng: &mut Rng) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..below(rng, 6) / 4 {
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(match is_once_in(rng, 8) {
        true => one(rng, LINES),
        false => LINES[below(rng, 5)],
    });
    bytes.extend_from_slice(b"\r\n");
    if !is_once_in(rng, 5) {
        bytes.extend_from_slice(b"Host: a\r\n");
    }
    for _ in 0..below(rng, 4) {
        bytes.extend_from_slice(one(rng, FIELDS));
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"\r\n");
    bytes.extend_from_slice(one(
        rng,
        &[&b""[..], b"hello", b"0\r\n\r\n", b"GET / HTTP/1.1\r\n"],
    ));
    if is_once_in(rng, 2) {
        fuzz::damage(&mut bytes, rng, PARTS);
    }
    bytes
}

fn chunks(rng: &mut Rng) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..below(rng, 4) {
        let len = below(rng, 20);
        let head = match below(rng, 4) {
            0 => format!("{len:X}"),
            1 => format!("{len:04x};a=b"),
            _ => format!("{len:x}"),
        };
        bytes.extend_from_slice(head.as_bytes());
        bytes.extend_from_slice(b"\r\n");
        bytes.extend((0..len).map(|_| *one(rng, &[&b'a', &b'\r', &b'\n', &b'0'])));
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(one(rng, &[&b"0\r\n"[..], b"000;x\r\n", b"0\r\nX: y\r\n"]));
    bytes.extend_from_slice(b"\r\nrest");
    if is_once_in(rng, 2) {
        fuzz::damage(&mut bytes, rng, PARTS);
    }
    bytes
}

/// Check a head. Says whether it is a sound one.
fn check_head(input: &[u8]) -> Result<bool, String> {
    let mut head = Head::default();
    let whole = head.pass(input, &LIMITS);
    let (mut cut, mut seen) = (Head::default(), Vec::new());
    let mut passed = Ok(None);
    for piece in pieces(input) {
        seen.extend_from_slice(piece);
        passed = cut.pass(&seen, &LIMITS);
        if passed != Ok(None) {
            break;
        }
    }
    if whole != passed {
        return Err(format!("whole it is {whole:?}, and in pieces {passed:?}"));
    }
    let Ok(Some(len)) = whole else {
        return Ok(false);
    };
    if (head.framing(), head.length()) != (cut.framing(), cut.length()) {
        return Err("its pieces have another length".into());
    }
    let lengths = head_lengths(&head, &input[..len]);
    if lengths > 1 {
        return Err(format!("it has {lengths} lengths"));
    }
    if head.fields(input).all("host").count() > 1 {
        return Err("it is for two".into());
    }
    is_read_alike(&head, &input[..len])?;
    for is_trusted in [false, true] {
        is_sent_alike(&head, input, is_trusted)?;
    }
    Ok(true)
}

/// The same bytes in pieces that follow from them.
fn pieces(bytes: &[u8]) -> Vec<&[u8]> {
    let sum = |sum: u64, byte: &u8| sum.wrapping_mul(31).wrapping_add(u64::from(*byte));
    let mut rng = Rng::new(bytes.iter().fold(0, sum));
    let most = one(&mut rng, &[&1, &3, &20, &200]);
    let (mut all, mut rest) = (Vec::new(), bytes);
    while !rest.is_empty() {
        let (piece, behind) = rest.split_at(rest.len().min(1 + below(&mut rng, *most)));
        all.push(piece);
        rest = behind;
    }
    all
}

fn head_lengths(head: &Head, bytes: &[u8]) -> usize {
    let fields = head.fields(bytes);
    fields.all("content-length").count() + fields.all("transfer-encoding").count()
}

/// Another parser finds the same in it, if it takes such targets.
fn is_read_alike(head: &Head, bytes: &[u8]) -> Tried {
    let is_usual = |byte: &u8| byte.is_ascii_alphanumeric() || b"/?=&.*:-".contains(byte);
    if !head.target(bytes).iter().all(is_usual) {
        return Ok(());
    }
    let mut room = [EMPTY_HEADER; LIMITS.fields_max];
    let mut other = httparse::Request::new(&mut room);
    match other.parse(bytes) {
        Ok(Status::Complete(len)) if len == bytes.len() => (),
        other => return Err(format!("another finds {other:?}")),
    }
    let target = other.path.unwrap_or_default().as_bytes();
    if target != head.target(bytes) || other.method != Some(head.method().as_str()) {
        return Err(format!("another finds it is for {}", target.escape_ascii()));
    }
    let theirs = other.headers.iter();
    let theirs: Vec<_> = theirs
        .map(|field| (field.name.as_bytes(), field.value.trim_ascii()))
        .collect();
    let ours = head.fields(bytes).iter();
    let ours: Vec<_> = ours
        .map(|(name, value)| (name, value.trim_ascii()))
        .collect();
    match theirs == ours {
        true => Ok(()),
        false => Err(format!("another finds {theirs:?}, and we {ours:?}")),
    }
}

/// A process gets one head, for one host, with no length but ours.
fn is_sent_alike(head: &Head, bytes: &[u8], is_trusted: bool) -> Tried {
    let peer = ([10, 0, 0, 9], 5000).into();
    let toward = Toward {
        conn: &ClientConn::new(peer, 3000, true, is_trusted),
        id: &Id::Theirs(b"id-1".as_slice().into()),
        came: Duration::from_secs(1_700_000_000),
        names_fields: head.names_fields(),
        host: None,
        prefix: None,
    };
    let mut sent = b"GET / HTTP/1.1\r\n".to_vec();
    headers::to_process(&mut sent, head.fields(bytes), &toward);
    sent.extend_from_slice(b"\r\n");
    let mut again = Head::default();
    let limits = HeadLimits {
        bytes_max: sent.len(),
        fields_max: LIMITS.fields_max + 10,
    };
    let shown = sent.escape_ascii();
    if again.pass(&sent, &limits) != Ok(Some(sent.len())) {
        return Err(format!("what is sent is no head: {shown}"));
    }
    if again.framing() != Framing::Nothing || head_lengths(&again, &sent) > 0 {
        return Err(format!("a length of the client is passed on: {shown}"));
    }
    let is_doubtful = |name: &[u8]| {
        let name = name.to_ascii_lowercase();
        [&b"content_length"[..], b"transfer_encoding"].contains(&&*name)
    };
    if again
        .fields(&sent)
        .iter()
        .any(|(name, _)| is_doubtful(name))
    {
        return Err(format!("some read this as a length: {shown}"));
    }
    Ok(())
}

/// What is found in chunks: the body, how much was used, and what followed; none
/// if they are no chunks or not whole.
type Body = Option<(Vec<u8>, usize, Vec<u8>)>;

/// Check a body. Says whether it is a sound one.
fn check_chunks(input: &[u8]) -> Result<bool, String> {
    let whole = read_chunks(&[input]);
    let cut = read_chunks(&pieces(input));
    if whole != cut {
        return Err(format!("whole it is {whole:?}, and in pieces {cut:?}"));
    }
    let slow = slowly(input);
    if whole != slow {
        return Err(format!("it is {whole:?}, and read slowly {slow:?}"));
    }
    Ok(whole.is_some())
}

fn read_chunks(pieces: &[&[u8]]) -> Body {
    let (mut chunks, mut body, mut used) = (Chunks::default(), Vec::new(), 0);
    for piece in pieces {
        let mut rest = *piece;
        while !rest.is_empty() {
            let found = chunks.next(rest)?;
            assert!(found.used > 0, "it stands still");
            used += found.used;
            body.extend_from_slice(found.data);
            if found.is_over {
                return Some((body, used, chunks.into_trailers()));
            }
            rest = &rest[found.used..];
        }
    }
    None
}

/// The same by the words of the standard, a line at a time.
fn slowly(input: &[u8]) -> Body {
    let (mut body, mut trailers, mut at) = (Vec::new(), Vec::new(), 0);
    loop {
        let line = line(input, &mut at)?;
        let digits = line.split(|byte| *byte == b';').next()?;
        let is_size = digits.iter().all(u8::is_ascii_hexdigit) && !digits.is_empty();
        let digits = str::from_utf8(digits).ok().filter(|_| is_size)?;
        let size = u64::from_str_radix(digits, 16)
            .ok()
            .filter(|_| digits.len() <= 15)?;
        if size == 0 {
            break;
        }
        let end = at.checked_add(usize::try_from(size).ok()?)?;
        body.extend_from_slice(input.get(at..end)?);
        at = end;
        input.get(at..)?.strip_prefix(b"\r\n")?;
        at += 2;
    }
    loop {
        let line = line(input, &mut at)?;
        if line.is_empty() {
            return Some((body, at, trailers));
        }
        let name = line.split(|byte| *byte == b':').next()?;
        if name.len() == line.len() || !is_token(name) {
            return None;
        }
        trailers.extend_from_slice(line);
        trailers.extend_from_slice(b"\r\n");
    }
}

/// The next line, if it has nothing in it that cannot be seen.
fn line<'a>(input: &'a [u8], at: &mut usize) -> Option<&'a [u8]> {
    let rest = input.get(*at..)?;
    let end = rest.iter().position(|byte| *byte == b'\r')?;
    rest.get(end..)?.strip_prefix(b"\r\n")?;
    let line = &rest[..end];
    let is_seen = |byte: &u8| (*byte >= b' ' || *byte == b'\t') && *byte != 0x7f;
    *at += end + 2;
    line.iter().all(is_seen).then_some(line)
}
