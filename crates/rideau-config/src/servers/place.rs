//! Where a server is.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::key::{Form, Key};
use crate::kinds::Written;
use crate::section::Made;

/// Where a server is.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ServerPlace {
    /// At an address.
    Address(SocketAddr),
    /// At a port of each address that a name has.
    Name {
        /// The name, in small letters.
        host: String,
        /// The port.
        port: u16,
    },
    /// At a socket in the file system.
    Socket(PathBuf),
}

/// Names are no longer.
const NAME_LEN_MAX: usize = 253;

impl ServerPlace {
    /// Its name or its address without the port; none for a socket.
    pub fn host(&self) -> Option<String> {
        match self {
            Self::Address(address) => Some(address.ip().to_string()),
            Self::Name { host, .. } => Some(host.clone()),
            Self::Socket(_) => None,
        }
    }
}

impl fmt::Display for ServerPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Name { host, port } => write!(f, "{host}:{port}"),
            Self::Socket(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl Written for ServerPlace {
    const FORM: Form = Form::Text;

    fn make(text: &str, _: &Key) -> Made<Self> {
        let bad = |hint: &str| Err((format!("{text:?} is not a server"), hint.to_owned()));
        if let Some((scheme, rest)) = text.split_once("://") {
            let rest = rest.trim_end_matches('/');
            let (port, tls) = match scheme {
                "https" => (":443", ", and tls = \"system\""),
                _ => (":80", ""),
            };
            let port = if rest.contains(':') { "" } else { port };
            return bad(&format!("write \"{rest}{port}\"{tls}"));
        }
        if let Some(path) = text.strip_prefix("unix:") {
            return match path.starts_with('/') {
                true => Ok(Self::Socket(path.into())),
                false => bad("write the path from the root on, as in \"unix:/run/api.sock\""),
            };
        }
        if let Ok(address) = text.parse::<SocketAddr>() {
            return match address.port() {
                0 => bad("its port is zero"),
                _ => Ok(Self::Address(address)),
            };
        }
        let Some((host, port)) = text.rsplit_once(':') else {
            return bad(&format!("write its port, too, as in \"{text}:8080\""));
        };
        let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        let is_label = |label: &str| {
            let is_known = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
            !label.is_empty() && label.len() <= 63 && label.chars().all(is_known)
        };
        let is_number = |label: &str| label.chars().all(|c| c.is_ascii_digit());
        let is_name = host.len() <= NAME_LEN_MAX
            && host.split('.').all(is_label)
            && !host.split('.').next_back().is_some_and(is_number);
        match port.parse() {
            Ok(port) if is_name && port > 0 => Ok(Self::Name { host, port }),
            _ => bad(
                "write \"10.0.0.7:8080\", \"[::1]:8080\", \"api.internal:8080\" or \
                      \"unix:/run/api.sock\"",
            ),
        }
    }

    fn word(&self) -> String {
        self.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(text: &str) -> Made<ServerPlace> {
        ServerPlace::make(text, &Key::BARE)
    }

    #[test]
    fn servers_are_shown_as_they_are_written() {
        for text in [
            "10.0.0.7:8080",
            "[::1]:80",
            "api.internal:8080",
            "localhost:3000",
            "a_b-c.example:1",
            "unix:/run/api.sock",
        ] {
            assert_eq!(place(text).unwrap().word(), text);
        }
        assert_eq!(place("Api.Internal.:80").unwrap().word(), "api.internal:80");
    }

    #[test]
    fn what_is_no_server_is_refused() {
        for text in [
            "",
            "10.0.0.7",
            "10.0.0.7:0",
            "10.0.0.256:80",
            "api.internal",
            "api.internal:0",
            "api.internal:99999",
            "api..internal:80",
            "a b:80",
            ":80",
            "unix:run/api.sock",
            "http://10.0.0.7:8080",
            "https://api.internal",
            "api.internal:80/path",
        ] {
            assert!(place(text).is_err(), "{text:?}");
        }
    }
}
