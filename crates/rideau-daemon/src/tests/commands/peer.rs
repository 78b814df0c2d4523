//! A Redis client with nothing between the test and the wire.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use rideau_resp::{ReplyLimits, ReplyParser, Value};

/// A connection to a server.
pub(crate) struct Peer {
    stream: TcpStream,
    parser: ReplyParser,
    buffer: Vec<u8>,
    operator: Operator,
    /// Whether a command of this name is only for the operator.
    is_control: fn(&str) -> bool,
    is_third: bool,
}

/// The connection that says what only the operator may.
enum Operator {
    /// There is none.
    None,
    /// One to this port with this token, as soon as there is need.
    Token(u16, String),
    /// One that is open.
    Peer(Box<Peer>),
}

impl Peer {
    pub(crate) fn new(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        // Only a hang takes as long.
        let limit = Some(Duration::from_secs(20));
        stream.set_read_timeout(limit).unwrap();
        Self {
            stream,
            parser: ReplyParser::default(),
            buffer: Vec::new(),
            operator: Operator::None,
            is_control: |_| false,
            is_third: false,
        }
    }

    /// A connection of the operator, who has this token.
    pub(crate) fn operator(port: u16, token: &str) -> Self {
        let mut operator = Self::new(port);
        assert_eq!(operator.say(&format!("AUTH {token}")), "+OK");
        operator
    }

    /// What only the operator may do is said on a second connection from now on, as
    /// from a second terminal.
    pub(crate) fn with_operator(
        mut self,
        port: u16,
        token: &str,
        is_control: fn(&str) -> bool,
    ) -> Self {
        self.operator = Operator::Token(port, token.into());
        self.is_control = is_control;
        self
    }

    /// Send words, and read the answer.
    pub(crate) fn ask(&mut self, words: &[&str]) -> Value {
        let is_control = self.is_control(words);
        if let Operator::Token(port, token) = &self.operator
            && is_control
        {
            self.operator = Operator::Peer(Box::new(Self::operator(*port, token)));
        }
        // Both speak the same version of the protocol.
        if let Operator::Peer(operator) = &mut self.operator
            && is_control
        {
            operator.ask(&["HELLO", if self.is_third { "3" } else { "2" }]);
            return operator.ask(words);
        }
        self.is_third = match words {
            ["HELLO", version, ..] => *version == "3",
            _ => self.is_third,
        };
        self.send(words);
        self.next().unwrap()
    }

    /// Only the operator may do this, and it does not matter on which connection.
    fn is_control(&self, words: &[&str]) -> bool {
        let starts = |with: [&str; 2]| {
            let first = words.iter().zip(with);
            words.len() >= 2
                && first
                    .into_iter()
                    .all(|(word, with)| word.eq_ignore_ascii_case(with))
        };
        let name = words.first().copied().unwrap_or_default();
        let is_control = (self.is_control)(name) && !name.eq_ignore_ascii_case("MONITOR");
        is_control || starts(["CLIENT", "KILL"]) || starts(["SHOW", "CONFIG"])
    }

    /// The same with words that are separated by spaces; the answer as text.
    pub(crate) fn say(&mut self, line: &str) -> String {
        let words: Vec<_> = line.split(' ').collect();
        text(&self.ask(&words))
    }

    pub(crate) fn send(&mut self, words: &[&str]) {
        let mut out = format!("*{}\r\n", words.len());
        for word in words {
            out += &format!("${}\r\n{word}\r\n", word.len());
        }
        self.stream.write_all(out.as_bytes()).unwrap();
    }

    /// The next answer or push; none if the server has ended the connection.
    pub(crate) fn next(&mut self) -> Option<Value> {
        loop {
            let mut at = 0;
            let limits = ReplyLimits::default();
            let next = self.parser.next(&self.buffer, &mut at, &limits);
            self.buffer.drain(..at);
            if let Some(value) = next.unwrap() {
                return Some(value);
            }
            let mut piece = [0; 4096];
            match self.stream.read(&mut piece) {
                Ok(0) => return None,
                Ok(len) => self.buffer.extend_from_slice(&piece[..len]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("no answer: {error}"),
            }
        }
    }

    /// The same, as text.
    pub(crate) fn hear(&mut self) -> String {
        text(&self.next().unwrap())
    }
}

/// A value in one line.
pub(crate) fn text(value: &Value) -> String {
    let all = |values: &[Value]| values.iter().map(text).collect::<Vec<_>>().join(", ");
    let plain = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match value {
        Value::Null => "nil".into(),
        Value::Simple(text) => format!("+{text}"),
        Value::Error(text) => format!("-{text}"),
        Value::Integer(number) => number.to_string(),
        Value::Bulk(bytes) => plain(bytes),
        Value::Verbatim { text, .. } => format!("={}", plain(text)),
        Value::Array(values) => format!("[{}]", all(values)),
        Value::Push(values) => format!(">[{}]", all(values)),
        Value::Map(pairs) => {
            let pairs = pairs.iter();
            let pairs: Vec<_> = pairs
                .map(|(key, value)| format!("{}: {}", text(key), text(value)))
                .collect();
            format!("{{{}}}", pairs.join(", "))
        }
        other => format!("{other:?}"),
    }
}

/// The rows of a table without its header, as text.
pub(crate) fn rows(value: &Value) -> Vec<String> {
    let Value::Array(rows) = value else {
        panic!("no table: {value:?}");
    };
    rows[1..].iter().map(text).collect()
}

/// The cell of a table's row below a column.
pub(crate) fn cell(value: &Value, row: usize, column: &str) -> String {
    let Value::Array(rows) = value else {
        panic!("no table: {value:?}");
    };
    let (Value::Array(header), Value::Array(row)) = (&rows[0], &rows[row + 1]) else {
        panic!("no rows: {value:?}");
    };
    assert_eq!(header.len(), row.len());
    let at = header.iter().position(|name| text(name) == column);
    text(&row[at.unwrap_or_else(|| panic!("no column {column}"))])
}
