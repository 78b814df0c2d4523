//! Words, requests and replies by chance, all from one seed.

use rideau_core::Rng;
use rideau_resp::{Reply, Value};

use super::peer::Words;

/// Parts of words that a parser may stumble over.
const PARTS: &[&[u8]] = &[
    b"",
    b"\r\n",
    b"\r",
    b"\n",
    b"*1\r\n$1\r\n",
    b"$-1\r\n",
    b"\0",
    b"\xff\xfe",
    b"PING",
    b" ",
    b"\"",
    b"'",
    b"\\x4",
    "é".as_bytes(),
    b"0123456789",
];

/// A number below `bound`, as an index.
pub(crate) fn below(rng: &mut Rng, bound: usize) -> usize {
    rng.below(bound as u64) as usize
}

/// One of them.
pub(crate) fn one<T: Copy>(rng: &mut Rng, of: &[T]) -> T {
    of[below(rng, of.len())]
}

pub(crate) fn word(rng: &mut Rng) -> Vec<u8> {
    let mut word = Vec::new();
    for _ in 0..below(rng, 4) {
        if below(rng, 3) == 0 {
            word.push(rng.draw() as u8);
        } else {
            word.extend_from_slice(one(rng, PARTS));
        }
    }
    word
}

/// At least one.
pub(crate) fn words(rng: &mut Rng) -> Words {
    (0..=below(rng, 5)).map(|_| word(rng)).collect()
}

/// As client libraries send them.
pub(crate) fn array(words: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// As a person may type them, in one of the ways that there are.
pub(crate) fn line(words: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    let mut line = Vec::new();
    for word in words {
        for _ in 0..below(rng, 2) {
            line.push(one(rng, b" \t\r\x0b\x0c"));
        }
        typed(word, &mut line, rng);
        line.push(one(rng, b" \t\r"));
    }
    line.extend_from_slice(one(rng, &[&b"\n"[..], b"\r\n"]));
    line
}

fn typed(word: &[u8], line: &mut Vec<u8>, rng: &mut Rng) {
    let plain = |byte: &u8| byte.is_ascii_graphic() && !b"\"'".contains(byte);
    // A bare word must not begin as another type of RESP would.
    let bare = word.first().is_some_and(u8::is_ascii_alphanumeric) && word.iter().all(plain);
    if bare && below(rng, 2) == 0 {
        return line.extend_from_slice(word);
    }
    if !word.iter().any(|byte| b"\0\n\\".contains(byte)) && below(rng, 2) == 0 {
        line.push(b'\'');
        for &byte in word {
            if byte == b'\'' {
                line.push(b'\\');
            }
            line.push(byte);
        }
        return line.push(b'\'');
    }
    line.push(b'"');
    for &byte in word {
        match byte {
            b'\n' => line.extend_from_slice(b"\\n"),
            b'"' | b'\\' => line.extend_from_slice(&[b'\\', byte]),
            0 => line.extend_from_slice(b"\\x00"),
            _ if below(rng, 4) == 0 => {
                line.extend_from_slice(format!("\\x{byte:02X}").as_bytes());
            }
            _ => line.push(byte),
        }
    }
    line.push(b'"');
}

/// A reply that both versions have a form for, at most so deep.
pub(crate) fn reply(rng: &mut Rng, depth: usize) -> Value {
    let kinds = if depth == 0 { 8 } else { 12 };
    match below(rng, kinds) {
        0 => Value::Null,
        1 => Value::Simple(letters(rng)),
        2 => Value::Error(letters(rng)),
        3 => Value::Integer(rng.draw() as i64 >> below(rng, 64)),
        4 => Value::Double(double(rng)),
        5 => Value::Boolean(below(rng, 2) == 0),
        6 => Value::Bulk(word(rng)),
        7 => Value::Verbatim {
            format: *b"txt",
            text: letters(rng).into_bytes(),
        },
        8 => Value::Array(replies(rng, depth)),
        9 => Value::Push(replies(rng, depth)),
        // The peer's parser keeps sets and keys in a hash table.
        10 => Value::Set((0..below(rng, 4)).map(key).collect()),
        _ => Value::Map(
            (0..below(rng, 4))
                .map(|at| (key(at), reply(rng, depth - 1)))
                .collect(),
        ),
    }
}

fn replies(rng: &mut Rng, depth: usize) -> Vec<Value> {
    (0..below(rng, 4)).map(|_| reply(rng, depth - 1)).collect()
}

fn key(at: usize) -> Value {
    match at {
        0 => Value::Integer(-1),
        1 => Value::Bulk(b"one\r\n".to_vec()),
        2 => Value::Simple("two".to_owned()),
        _ => Value::Boolean(true),
    }
}

fn letters(rng: &mut Rng) -> String {
    (0..below(rng, 9))
        .map(|_| one(rng, &['a', 'Z', ' ', 'é', '"', '$', '*', '-']))
        .collect()
}

fn double(rng: &mut Rng) -> f64 {
    match below(rng, 4) {
        0 => one(rng, &[0.0, -0.0, 1.0, f64::INFINITY, f64::NEG_INFINITY]),
        1 => one(rng, &[f64::NAN, f64::MAX, f64::MIN_POSITIVE, 5e-324]),
        2 => rng.draw() as i64 as f64 / 1000.0,
        _ => f64::from_bits(rng.draw()),
    }
}

/// Write a value with the writer of replies.
pub(crate) fn write(value: &Value, reply: &mut Reply<'_>) {
    match value {
        Value::Null => reply.null(),
        Value::Simple(text) => reply.simple(text),
        Value::Error(text) => reply.error(text),
        Value::Integer(number) => reply.integer(*number),
        Value::Double(number) => reply.double(*number),
        Value::Boolean(yes) => reply.boolean(*yes),
        Value::Bulk(bytes) => reply.bulk(bytes),
        Value::Verbatim { text, .. } => reply.verbatim(std::str::from_utf8(text).unwrap()),
        Value::Array(values) => reply.array(values.len()),
        Value::Push(values) => reply.push(values.len()),
        Value::Set(values) => reply.set(values.len()),
        Value::Map(pairs) => reply.map(pairs.len()),
        Value::Big(_) => unreachable!("no test writes big numbers"),
    };
    match value {
        Value::Array(values) | Value::Push(values) | Value::Set(values) => {
            for value in values {
                write(value, reply);
            }
        }
        Value::Map(pairs) => {
            for (key, value) in pairs {
                write(key, reply);
                write(value, reply);
            }
        }
        _ => (),
    }
}
