//! A program to start, where it listens, and how it becomes ready.
//!
//! In arguments and in values of the environment `{socket}`, `{port}`, `{id}`
//! and `{name}` stand for what each child has of its own, and so do `$SOCKET`
//! and `$PORT` where [`Listen`] says where it listens. All other braces and
//! dollars mean themselves.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::http::Probe;
use super::lines::OutputLimits;
use super::start_error::StartError;
use super::{Address, Signal};

/// A program that children are started from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Program {
    /// The purpose of the children, such as the name of their pool: `{name}`.
    pub name: String,
    /// The program and its arguments. A program without a slash is looked for
    /// in the child's `PATH`, one with a relative path in its directory.
    pub argv: Vec<String>,
    /// The same as it may be shown; nothing if that is the same.
    pub shown: Vec<String>,
    /// All the child's environment but `PATH`, `HOME`, `LANG` and `TZ`, which
    /// are the daemon's unless they are here, and the names that start with
    /// `RIDEAU_` or tell the child where to send its notes, which are always ours.
    pub env: Vec<(String, String)>,
    /// Where it runs; none for where the daemon does.
    pub directory: Option<PathBuf>,
    /// Where it listens, and which process opens that.
    pub listen: Listen,
    /// The user it runs as, by name or by number; none for the daemon's.
    /// It has the user's groups, `HOME`, `USER` and `LOGNAME`.
    pub user: Option<String>,
    /// Another group than the user's own, by name or by number.
    pub group: Option<String>,
    /// Its umask; none for that of the daemon.
    pub umask: Option<u32>,
    /// It may get more rights than its user has, by programs such as `sudo`.
    /// Without a stage this is always so.
    pub new_privileges: bool,
    /// Its resource limits.
    pub limits: ResourceLimits,
    /// How to know that it is ready.
    pub ready: Ready,
    /// Once it is ready, it has to send `WATCHDOG=1` to the socket that
    /// `NOTIFY_SOCKET` names at least so often, which is `WATCHDOG_USEC`.
    pub watchdog: Option<Duration>,
    /// It is ready by then, or it has failed.
    pub start_timeout: Duration,
    /// After so long a child that was asked to stop is killed.
    pub stop_timeout: Duration,
    /// How it is asked to stop.
    pub stop_signal: Signal,
    /// Whether the child or its group is asked.
    pub stop_target: StopTarget,
    /// How much is kept of what it writes.
    pub output: OutputLimits,
}

/// Where a child listens, and which process opens that.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Listen {
    /// Wherever its words say: `{socket}`, `{port}`, or nowhere.
    #[default]
    Named,
    /// At a path of its own, which is `RIDEAU_SOCKET` in its environment.
    Socket,
    /// At a port of the loopback of its own, which is `PORT`.
    Port,
    /// We listen at a path, and it has that as file 3, as systemd passes it on.
    InheritSocket,
    /// We listen at a port of the loopback, and it has that as file 3.
    InheritPort,
    /// It is known to be there, whatever we say.
    Fixed(Address),
}

/// Which processes are asked to stop. Those that are left are killed, whichever
/// were asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum StopTarget {
    /// The child, which stops its own.
    Child,
    /// Every process in its process group.
    #[default]
    Group,
}

/// Resource limits of a child and its descendants; none for those of the daemon.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ResourceLimits {
    /// Open files.
    pub files_max: Option<u64>,
    /// Processes and threads of its user.
    pub processes_max: Option<u64>,
    /// Bytes of a core dump.
    pub core_max: Option<u64>,
    /// Bytes of address space.
    pub address_space_max: Option<u64>,
    /// Bytes of a file that it writes.
    pub file_size_max: Option<u64>,
}

/// How to know that a child is ready.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ready {
    /// It says so as for [`Notify`](Self::Notify); or, for as long as it says
    /// nothing there, it answers this at its address, with whatever status: many
    /// servers listen before they have loaded any code.
    Auto(Probe),
    /// It listens at its address, as [`Listen`] says.
    Connect,
    /// It answers this at its address, as [`Listen`] says.
    Http {
        /// The request of the probe.
        probe: Probe,
        /// Only 200 will do, and not any status below 500.
        exact_200: bool,
    },
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
            shown: Vec::new(),
            env: Vec::new(),
            directory: None,
            listen: Listen::Named,
            user: None,
            group: None,
            umask: None,
            new_privileges: false,
            limits: ResourceLimits::default(),
            ready: Ready::Started,
            watchdog: None,
            start_timeout: Duration::from_secs(30),
            stop_timeout: Duration::from_secs(10),
            stop_signal: Signal::Term,
            stop_target: StopTarget::Group,
            output: OutputLimits::default(),
        }
    }
}

impl Program {
    /// Could a child of this program ever be ready?
    pub(super) fn check(&self) -> Result<(), StartError> {
        let untold = |what| Err(StartError::Untold { what });
        let (socket, port) = (self.wants_socket(), self.wants_port());
        match self.ready {
            _ if self.argv.is_empty() => Err(StartError::Empty),
            Ready::Socket if !socket => untold("{socket}"),
            Ready::Port if !port => untold("{port}"),
            Ready::Connect | Ready::Http { .. } | Ready::Auto(_)
                if self.listen == Listen::Named && !socket && !port =>
            {
                untold("{socket}")
            }
            _ => Ok(()),
        }
    }

    /// Does a child get a port of its own?
    pub(super) fn wants_port(&self) -> bool {
        match self.listen {
            Listen::Named => self.names("{port}"),
            Listen::Port | Listen::InheritPort => true,
            Listen::Socket | Listen::InheritSocket | Listen::Fixed(_) => false,
        }
    }

    /// Is a path of its own where a child is?
    pub(super) fn wants_socket(&self) -> bool {
        match self.listen {
            Listen::Named => self.names("{socket}"),
            Listen::Socket | Listen::InheritSocket => true,
            Listen::Port | Listen::InheritPort | Listen::Fixed(_) => false,
        }
    }

    /// Do we listen for it?
    pub(super) fn inherits(&self) -> bool {
        matches!(self.listen, Listen::InheritSocket | Listen::InheritPort)
    }

    /// Does it say of itself how it is?
    pub(super) fn hears_notes(&self) -> bool {
        matches!(self.ready, Ready::Notify | Ready::Auto(_)) || self.watchdog.is_some()
    }

    /// Does it want what only a stage can do?
    pub(super) fn needs_stage(&self) -> bool {
        let is_other = self.user.is_some() || self.group.is_some() || self.umask.is_some();
        is_other || self.inherits() || self.limits != ResourceLimits::default()
    }

    /// Is a child told of this?
    pub(super) fn names(&self, placeholder: &str) -> bool {
        let values = self.env.iter().map(|(_, value)| value);
        let mut texts = self.argv.iter().chain(values);
        texts.any(|text| text.contains(placeholder))
    }

    /// The word it is spoken of by.
    pub(super) fn word(&self) -> String {
        self.shown().first().cloned().unwrap_or_default()
    }

    /// The program and its words, without what is secret of them.
    pub(super) fn shown(&self) -> &[String] {
        match self.shown.len() == self.argv.len() {
            true => &self.shown,
            false => &self.argv,
        }
    }
}

/// The details of one child.
pub(super) struct Own<'a> {
    pub(super) socket: &'a str,
    pub(super) port: Option<u16>,
    pub(super) id: u64,
    pub(super) name: &'a str,
    /// Do `$SOCKET` and `$PORT` stand for something?
    pub(super) has_dollars: bool,
}

impl Own<'_> {
    /// The text with what it stands for. What is put in is not looked at again.
    pub(super) fn fill(&self, text: &str) -> String {
        let mut filled = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find(['{', '$']) {
            filled.push_str(&rest[..at]);
            rest = &rest[at..];
            let len = placeholder_len(rest);
            match self.value(&rest[..len]) {
                Some(value) => {
                    filled.push_str(&value);
                    rest = &rest[len..];
                }
                None => {
                    filled.push_str(&rest[..1]);
                    rest = &rest[1..];
                }
            }
        }
        filled + rest
    }

    fn value(&self, placeholder: &str) -> Option<String> {
        match placeholder {
            "$SOCKET" | "$PORT" if !self.has_dollars => None,
            "{socket}" | "$SOCKET" => Some(self.socket.to_owned()),
            "{port}" | "$PORT" => self.port.map(|port| port.to_string()),
            "{id}" => Some(self.id.to_string()),
            "{name}" => Some(self.name.to_owned()),
            _ => None,
        }
    }
}

/// How much of a text that starts with a brace or a dollar could stand for
/// something: up to the other brace, or a whole word.
fn placeholder_len(text: &str) -> usize {
    if text.starts_with('{') {
        return text.find('}').map_or(1, |end| end + 1);
    }
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let end = text[1..].find(|c| !is_word(c));
    end.map_or(text.len(), |end| end + 1)
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
            has_dollars: true,
        };
        for (text, filled) in [
            ("unix:{socket}", "unix:/run/7.sock"),
            ("{id}-{id}", "7-7"),
            ("{\"at\": {port}}", "{\"at\": 20001}"),
            ("{name}", "{port}"),
            ("{{id}", "{7"),
            ("${HOME} {", "${HOME} {"),
            ("unix:$SOCKET,$PORT", "unix:/run/7.sock,20001"),
            ("$PORTS $SOCKET_DIR $$PORT", "$PORTS $SOCKET_DIR $20001"),
            ("é{sockets}", "é{sockets}"),
        ] {
            assert_eq!(own.fill(text), filled, "{text}");
        }
    }

    #[test]
    fn a_process_without_a_port_is_told_of_none() {
        let own = Own {
            socket: "",
            port: None,
            id: 1,
            name: "",
            has_dollars: false,
        };
        assert_eq!(own.fill("{port}"), "{port}");
        assert_eq!(own.fill("$SOCKET"), "$SOCKET");
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
