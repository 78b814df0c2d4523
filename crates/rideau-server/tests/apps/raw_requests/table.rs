//! The requests of `requests.txt`, and what is said of them there.

use std::fmt;

use super::client::{Ending, Outcome};

const TABLE: &str = include_str!("../requests.txt");

/// A request, and what becomes of it.
pub(super) struct Case {
    pub(super) name: String,
    /// Its bytes. Between two parts an answer is waited for.
    pub(super) parts: Vec<Vec<u8>>,
    pub(super) ours: Outcome,
    pub(super) nginx: Outcome,
    seen: Vec<Seen>,
}

/// A request as the application sees it.
struct Seen {
    /// How it begins.
    line: Vec<u8>,
    body: Option<Vec<u8>>,
    /// Fields, and what they say; none if they must not be there.
    fields: Vec<(String, Option<Vec<u8>>)>,
}

/// All of them.
pub(super) fn cases() -> Vec<Case> {
    let blocks = TABLE.split("\n\n").map(|block| {
        let lines = block.lines().filter(|line| !line.starts_with('#'));
        lines.collect::<Vec<_>>()
    });
    let blocks = blocks.filter(|lines| !lines.is_empty());
    let cases: Vec<_> = blocks.map(|lines| Case::read(&lines)).collect();
    for (at, case) in cases.iter().enumerate() {
        let is_new = cases[..at].iter().all(|other| other.name != case.name);
        assert!(is_new, "there are two of {}", case.name);
    }
    cases
}

impl Case {
    fn read(lines: &[&str]) -> Self {
        let [name, bytes, said] = lines else {
            panic!("not a name, its bytes and what becomes of them: {lines:?}");
        };
        let columns: Vec<_> = said.splitn(3, " | ").collect();
        let [ours, seen, nginx] = columns[..] else {
            panic!("{name}: not three columns");
        };
        let (nginx, why) = match nginx.split_once(": ") {
            Some((nginx, why)) => (nginx, Some(why)),
            None => (nginx, None),
        };
        let nginx = nginx.strip_prefix("nginx ");
        let nginx = nginx.unwrap_or_else(|| panic!("{name}: nothing of nginx"));
        let case = Self {
            name: (*name).to_owned(),
            parts: bytes.split("{await}").map(written).collect(),
            ours: Outcome::read(ours),
            nginx: Outcome::read(nginx),
            seen: match seen {
                "-" => Vec::new(),
                _ => seen.split(" + ").map(Seen::read).collect(),
            },
        };
        let differs = case.ours != case.nginx;
        assert_eq!(differs, why.is_some(), "{name}: why does nginx differ?");
        case
    }

    /// The first answer has no body.
    pub(super) fn is_for_head(&self) -> bool {
        self.parts[0].starts_with(b"HEAD ")
    }

    /// Whether the application should have seen that.
    pub(super) fn sees(&self, requests: &[String]) -> bool {
        let mut pairs = self.seen.iter().zip(requests);
        self.seen.len() == requests.len() && pairs.all(|(seen, request)| seen.is(request))
    }
}

impl Seen {
    /// `METHOD TARGET`, then what else is of interest: `"body"`, `name=value`, `name=-`.
    fn read(text: &str) -> Self {
        let mut words = text.split(' ');
        let mut word = || words.next().unwrap_or_else(|| panic!("no target: {text}"));
        let line = written(&format!("{} {} HTTP/1.1", word(), word()));
        let (mut body, mut fields) = (None, Vec::new());
        for word in words {
            if let Some(quoted) = word.strip_prefix('"') {
                body = Some(written(quoted.strip_suffix('"').unwrap()));
                continue;
            }
            let (name, value) = word.split_once('=').unwrap();
            let value = (value != "-").then(|| written(&value.replace('+', " ")));
            fields.push((name.to_owned(), value));
        }
        Self { line, body, fields }
    }

    /// Whether the application wrote down this one.
    fn is(&self, request: &str) -> bool {
        let request = written(request);
        let Some(end) = request.windows(4).position(|end| end == b"\r\n\r\n") else {
            return false;
        };
        let (head, body) = (&request[..end], &request[end + 4..]);
        let mut lines = head.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
        if lines.next() != Some(&*self.line) {
            return false;
        }
        if self.body.as_ref().is_some_and(|wanted| wanted != body) {
            return false;
        }
        let of = |wanted: &str| -> Option<Vec<u8>> {
            let values = lines.clone().filter_map(|line| {
                let colon = line.iter().position(|byte| *byte == b':')?;
                let is_it = line[..colon].eq_ignore_ascii_case(wanted.as_bytes());
                is_it.then(|| line[colon + 1..].trim_ascii())
            });
            let values: Vec<_> = values.collect();
            (!values.is_empty()).then(|| values.join(&b", "[..]))
        };
        self.fields.iter().all(|(name, value)| of(name) == *value)
    }
}

impl Outcome {
    /// Statuses and then how it ends.
    fn read(text: &str) -> Self {
        let mut words: Vec<_> = text.split(' ').map(str::to_owned).collect();
        let ending = match words.pop().as_deref() {
            Some("keep") => Ending::Kept,
            Some("close") => Ending::Closed,
            Some("waits") => Ending::Waits,
            other => panic!("no ending in {text}: {other:?}"),
        };
        Self {
            statuses: words,
            ending,
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for status in &self.statuses {
            write!(f, "{status} ")?;
        }
        f.write_str(match self.ending {
            Ending::Kept => "keep",
            Ending::Closed => "close",
            Ending::Waits => "waits",
        })
    }
}

/// The bytes of a text with escapes; `{text*3}` stands three times.
fn written(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let (piece, len) = match c {
            '{' => {
                let end = rest.find('}').unwrap_or_else(|| panic!("open: {rest}"));
                let (piece, count) = rest[1..end].rsplit_once('*').unwrap();
                (written(piece).repeat(count.parse().unwrap()), end + 1)
            }
            '\\' => match &rest[1..2] {
                "r" => (b"\r".to_vec(), 2),
                "n" => (b"\n".to_vec(), 2),
                "t" => (b"\t".to_vec(), 2),
                "x" => (vec![u8::from_str_radix(&rest[2..4], 16).unwrap()], 4),
                other => (other.as_bytes().to_vec(), 2),
            },
            _ => (rest.as_bytes()[..c.len_utf8()].to_vec(), c.len_utf8()),
        };
        bytes.extend(piece);
        rest = &rest[len..];
    }
    bytes
}

/// Bytes as they can be read, and [written] again.
pub(super) fn shown(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        match byte {
            b'\r' => text.push_str("\\r"),
            b'\n' => text.push_str("\\n"),
            b'\\' | b'{' | b'}' => text.extend(['\\', char::from(*byte)]),
            b' '..=b'~' => text.push(char::from(*byte)),
            _ => text.push_str(&format!("\\x{byte:02x}")),
        }
    }
    text
}
