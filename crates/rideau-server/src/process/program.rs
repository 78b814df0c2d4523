//! What to start, and how to know that it is ready.
//!
//! In arguments and in values of the environment `{socket}`, `{port}`, `{id}`
//! and `{name}` stand for what each child has of its own. All other braces
//! mean themselves.

use std::path::PathBuf;
use std::time::Duration;

use super::Signal;
use super::lines::OutputLimits;
use super::start_error::StartError;

/// A program that children are started from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Program {
    /// Whom the children are for, such as the name of their pool: `{name}`.
    pub name: String,
    /// The program and its arguments. A program without a slash is looked for
    /// in the child's `PATH`, one with a relative path in its directory.
    pub argv: Vec<String>,
    /// All the child's environment but `PATH`, `HOME`, `LANG` and `TZ`, which
    /// are the daemon's unless they are here, and the names that start with
    /// `RIDEAU_` or tell the child whom to notify, which are always ours.
    pub env: Vec<(String, String)>,
    /// Where it runs; none for where the daemon does.
    pub directory: Option<PathBuf>,
    /// How to know that it is ready.
    pub ready: Ready,
    /// It is ready by then, or it has failed.
    pub start_timeout: Duration,
    /// After so long a child that was asked to stop is killed.
    pub stop_timeout: Duration,
    /// How it is asked to stop.
    pub stop_signal: Signal,
    /// How much is kept of what it writes.
    pub output: OutputLimits,
}

/// How to know that a child is ready.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ready {
    /// It listens at `{socket}`, which is its address.
    Socket,
    /// It listens at `{port}` of the loopback, which is its address.
    Port,
    /// It sends `READY=1` to the datagram socket that `NOTIFY_SOCKET` names.
    /// Its address is `{socket}` or else `{port}`, if it was told of one.
    Notify,
    /// It writes a line that contains this text, on either output. If the text
    /// has an `{address}` in it, that is its address: whatever stands there, up
    /// to what follows in the text, or else up to the next white space. If not,
    /// it is as for [`Notify`](Self::Notify).
    Line(String),
    /// It runs. Its address is as for [`Notify`](Self::Notify).
    Started,
}

impl Default for Program {
    fn default() -> Self {
        Self {
            name: String::new(),
            argv: Vec::new(),
            env: Vec::new(),
            directory: None,
            ready: Ready::Started,
            start_timeout: Duration::from_secs(30),
            stop_timeout: Duration::from_secs(10),
            stop_signal: Signal::Term,
            output: OutputLimits::default(),
        }
    }
}

impl Program {
    /// Could a child of this program ever be ready?
    pub(super) fn check(&self) -> Result<(), StartError> {
        let untold = |what| Err(StartError::Untold { what });
        match self.ready {
            _ if self.argv.is_empty() => Err(StartError::Empty),
            Ready::Socket if !self.names("{socket}") => untold("{socket}"),
            Ready::Port if !self.names("{port}") => untold("{port}"),
            _ => Ok(()),
        }
    }

    /// Is a child told of this?
    pub(super) fn names(&self, placeholder: &str) -> bool {
        let values = self.env.iter().map(|(_, value)| value);
        let mut texts = self.argv.iter().chain(values);
        texts.any(|text| text.contains(placeholder))
    }

    /// The word it is spoken of by.
    pub(super) fn word(&self) -> String {
        self.argv.first().cloned().unwrap_or_default()
    }
}

/// What one child has of its own.
pub(super) struct Own<'a> {
    pub(super) socket: &'a str,
    pub(super) port: Option<u16>,
    pub(super) id: u64,
    pub(super) name: &'a str,
}

impl Own<'_> {
    /// The text with what it stands for. What is put in is not looked at again.
    pub(super) fn fill(&self, text: &str) -> String {
        let mut filled = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find('{') {
            filled.push_str(&rest[..at]);
            rest = &rest[at..];
            let end = rest.find('}').map_or(1, |end| end + 1);
            match self.value(&rest[..end]) {
                Some(value) => {
                    filled.push_str(&value);
                    rest = &rest[end..];
                }
                None => {
                    filled.push('{');
                    rest = &rest[1..];
                }
            }
        }
        filled + rest
    }

    fn value(&self, placeholder: &str) -> Option<String> {
        match placeholder {
            "{socket}" => Some(self.socket.to_owned()),
            "{port}" => self.port.map(|port| port.to_string()),
            "{id}" => Some(self.id.to_string()),
            "{name}" => Some(self.name.to_owned()),
            _ => None,
        }
    }
}

/// The address in a line that has the text in it: none if it has not, and
/// an empty one if the text asks for none.
pub(super) fn heard<'a>(line: &'a str, text: &str) -> Option<&'a str> {
    let Some((before, after)) = text.split_once("{address}") else {
        return line.contains(text).then_some("");
    };
    let (_, rest) = line.split_once(before)?;
    let end = match after {
        "" => rest.find(char::is_whitespace).unwrap_or(rest.len()),
        after => rest.find(after)?,
    };
    Some(&rest[..end]).filter(|address| !address.is_empty())
}

#[cfg(test)]
mod tests {
    use super::{Own, heard};

    #[test]
    fn each_child_is_told_of_its_own_things_and_other_braces_stay() {
        let own = Own {
            socket: "/run/7.sock",
            port: Some(20_001),
            id: 7,
            name: "{port}",
        };
        for (text, filled) in [
            ("unix:{socket}", "unix:/run/7.sock"),
            ("{id}-{id}", "7-7"),
            ("{\"at\": {port}}", "{\"at\": 20001}"),
            ("{name}", "{port}"),
            ("{{id}", "{7"),
            ("${HOME} {", "${HOME} {"),
            ("é{sockets}", "é{sockets}"),
        ] {
            assert_eq!(own.fill(text), filled, "{text}");
        }
    }

    #[test]
    fn who_has_no_port_is_told_of_none() {
        let own = Own {
            socket: "",
            port: None,
            id: 1,
            name: "",
        };
        assert_eq!(own.fill("{port}"), "{port}");
    }

    #[test]
    fn a_line_may_carry_the_address() {
        for (line, text, address) in [
            ("server ready.", "ready", Some("")),
            ("server ready.", "running", None),
            ("on 1.2.3.4:5 now", "on {address}", Some("1.2.3.4:5")),
            ("on 1.2.3.4:5", "on {address}", Some("1.2.3.4:5")),
            (
                "at http://[::1]:8/ (1)",
                "http://{address}/",
                Some("[::1]:8"),
            ),
            ("at http://[::1]:8", "http://{address}/", None),
            ("on ", "on {address}", None),
            ("/run/a.sock", "{address}", Some("/run/a.sock")),
        ] {
            assert_eq!(heard(line, text), address, "{line}: {text}");
        }
    }
}
