//! One connection to a server that speaks the Redis protocol.
//!
//! It is the holder of what is asked for on it: when this program dies, the
//! system closes it, and the server takes back what it held.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use rideau_daemon::tls::{self, BadTls, TlsIdentity};
use rideau_resp::{BadReply, Protocol, Reply, ReplyLimits, ReplyParser, Value};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::{self, pki_types::ServerName};

/// A server, and the user that we are to it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Server {
    place: Place,
    /// Our certificates, if TLS is used.
    tls: Option<TlsIdentity>,
    user: Option<String>,
    password: Option<String>,
    /// It was not named.
    is_usual: bool,
}

#[derive(Clone, PartialEq, Eq)]
enum Place {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

/// A connection.
pub(crate) struct Wire {
    stream: Box<dyn Stream>,
    parser: ReplyParser,
    limits: ReplyLimits,
    read: Vec<u8>,
    /// How much of `read` has been taken.
    at: usize,
    out: Vec<u8>,
    /// The server's answer to `HELLO`.
    pub(crate) greeting: Value,
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum WireFault {
    /// No server answers there.
    Unreachable {
        /// Where.
        server: String,
        /// The error of the system.
        error: io::Error,
    },
    /// Our own files for TLS cannot be used.
    Unready(BadTls),
    /// The TLS handshake failed.
    Insecure {
        /// Where.
        server: String,
        /// Why not.
        error: io::Error,
    },
    /// It is not known which server answers there.
    Untrusted {
        /// Where.
        server: String,
        /// Why not.
        error: io::Error,
    },
    /// The connection ended.
    Lost(io::Error),
    /// The bytes are not a reply.
    Garbled(BadReply),
    /// The server does not let us in.
    Denied(String),
    /// None is where it usually is, and there are several elsewhere.
    Several(Vec<Server>),
}

const PORT: u16 = 7433;
const REDIS_PORT: u16 = 6379;
const SCHEMES: [&str; 3] = ["redis", "rediss", "rideau"];
const PASSWORD: &str = "RIDEAU_PASSWORD";

impl Server {
    /// The server at a port of this machine.
    pub(crate) fn local(port: u16) -> Self {
        Self {
            place: Place::Tcp {
                host: "127.0.0.1".into(),
                port,
            },
            tls: None,
            user: None,
            password: None,
            is_usual: false,
        }
    }

    /// The server that listens at a socket.
    pub(super) fn at_socket(path: PathBuf) -> Self {
        Self {
            place: Place::Unix(path),
            tls: None,
            user: None,
            password: None,
            is_usual: false,
        }
    }

    /// It was not named.
    pub(super) const fn is_usual(&self) -> bool {
        self.is_usual
    }

    /// Its port, if it is on this machine and we need not log in.
    pub(super) fn open_port(&self) -> Option<u16> {
        let Place::Tcp { host, port } = &self.place else {
            return None;
        };
        let is_local = host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
        let is_open = is_local && self.tls.is_none() && self.login().is_none();
        is_open.then_some(*port)
    }

    /// A Redis at this address; the password of our own server is not for it.
    pub(crate) fn parse_redis(text: &str) -> Result<Self, String> {
        let mut server = parse(text, REDIS_PORT)?;
        server.password = server.password.or(Some(String::new()));
        Ok(server)
    }

    /// Speak TLS there, with these papers.
    pub(crate) fn speak_tls(&mut self, papers: TlsIdentity) -> Result<(), String> {
        if let Place::Unix(path) = &self.place {
            return Err(format!("there is no TLS at unix:{}", path.display()));
        }
        self.tls = Some(papers);
        Ok(())
    }

    /// TLS is spoken there, as its address says.
    pub(crate) const fn has_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// The words that log us in, if we have to.
    fn login(&self) -> Option<Vec<String>> {
        let password = self
            .password
            .clone()
            .or_else(|| std::env::var(PASSWORD).ok())
            .filter(|password| !password.is_empty())?;
        let mut words = vec!["AUTH".to_owned()];
        words.extend(self.user.clone());
        words.push(password);
        Some(words)
    }
}

impl Default for Server {
    fn default() -> Self {
        Self {
            is_usual: true,
            ..Self::local(PORT)
        }
    }
}

impl FromStr for Server {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse(text, PORT)
    }
}

fn parse(text: &str, default_port: u16) -> Result<Server, String> {
    let unix = |path: &str| Server::at_socket(path.into());
    if let Some(path) = text.strip_prefix("unix:") {
        return Ok(unix(path.strip_prefix("//").unwrap_or(path)));
    }
    if text.starts_with('/') {
        return Ok(unix(text));
    }
    if let Some((scheme, _)) = text.split_once("://")
        && !SCHEMES.contains(&scheme)
    {
        return Err(format!(
            "{scheme}:// is not spoken; write HOST:PORT, unix:/PATH, redis://HOST:PORT or, for \
             TLS, rediss://HOST:PORT"
        ));
    }
    let secure = text.strip_prefix("rediss://");
    let rest = ["redis://", "rideau://"]
        .iter()
        .find_map(|scheme| text.strip_prefix(scheme))
        .or(secure)
        .unwrap_or(text);
    let (login, place) = rest
        .rsplit_once('@')
        .map_or((None, rest), |(login, place)| (Some(login), place));
    let place = place.split('/').next().unwrap_or_default();
    let (host, port) = host_and_port(place, default_port).ok_or_else(|| {
        format!("{place:?} is not an address; write HOST:PORT, unix:/PATH or redis://HOST:PORT")
    })?;
    let (user, password) = match login.map(|login| login.split_once(':').unwrap_or((login, ""))) {
        None => (None, None),
        Some((user, password)) => (decoded(user), decoded(password)),
    };
    Ok(Server {
        place: Place::Tcp { host, port },
        tls: secure.map(|_| TlsIdentity::default()),
        user,
        password,
        is_usual: false,
    })
}

fn host_and_port(place: &str, default_port: u16) -> Option<(String, u16)> {
    let (host, port) = match place.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            (host, port.strip_prefix(':'))
        }
        None => match place.rsplit_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (place, None),
        },
    };
    let host = if host.is_empty() { "127.0.0.1" } else { host };
    let port = match port {
        Some(port) => port.parse().ok()?,
        None => default_port,
    };
    (!host.contains(char::is_whitespace)).then(|| (host.to_owned(), port))
}

/// A part of an address without its `%40`; none if it is empty.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        let digits = behind.get(..2).filter(|_| first == b'%');
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &behind[2..];
            }
            None => {
                bytes.push(first);
                rest = behind;
            }
        }
    }
    let text = String::from_utf8_lossy(&bytes).into_owned();
    (!text.is_empty()).then_some(text)
}

/// Speak TLS with a server, if it is the one it should be.
async fn secured(
    stream: TcpStream,
    host: &str,
    papers: &TlsIdentity,
    server: &Server,
) -> Result<TlsStream<TcpStream>, WireFault> {
    let connector = tls::connector(papers).map_err(WireFault::Unready)?;
    let fault = |error| without_tls(server.to_string(), error);
    let name = ServerName::try_from(host.to_owned());
    let name = name.map_err(|error| fault(io::Error::other(error)))?;
    connector.connect(name, stream).await.map_err(fault)
}

/// Why TLS is not spoken: the certificate is not trusted, or something else failed.
fn without_tls(server: String, error: io::Error) -> WireFault {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    match inner {
        Some(rustls::Error::InvalidCertificate(_)) => WireFault::Untrusted { server, error },
        _ => WireFault::Insecure { server, error },
    }
}

impl Wire {
    /// Connect, log in, and agree on the third version of the protocol.
    pub(crate) async fn connect(server: &Server, name: &str) -> Result<Self, WireFault> {
        let unreachable = |error| WireFault::Unreachable {
            server: server.to_string(),
            error,
        };
        let stream: Box<dyn Stream> = match &server.place {
            Place::Tcp { host, port } => {
                let stream = TcpStream::connect((host.as_str(), *port)).await;
                let stream = stream.map_err(unreachable)?;
                stream.set_nodelay(true).map_err(unreachable)?;
                match &server.tls {
                    Some(papers) => Box::new(secured(stream, host, papers, server).await?),
                    None => Box::new(stream),
                }
            }
            Place::Unix(path) => Box::new(UnixStream::connect(path).await.map_err(unreachable)?),
        };
        let mut wire = Self {
            stream,
            parser: ReplyParser::default(),
            limits: ReplyLimits::default(),
            read: Vec::with_capacity(4096),
            at: 0,
            out: Vec::new(),
            greeting: Value::Null,
        };
        if let Some(login) = server.login()
            && let Value::Error(text) = wire.ask(&login).await?
        {
            return Err(WireFault::Denied(text));
        }
        match wire.ask(&["HELLO", "3", "SETNAME", name]).await? {
            Value::Error(text) => Err(WireFault::Denied(text)),
            greeting => {
                wire.greeting = greeting;
                Ok(wire)
            }
        }
    }

    /// Send one command and wait for its answer.
    pub(crate) async fn ask(&mut self, words: &[impl AsRef<[u8]>]) -> Result<Value, WireFault> {
        self.put(words);
        self.flush().await?;
        self.answer().await
    }

    /// Add a command to what will be sent.
    pub(crate) fn put(&mut self, words: &[impl AsRef<[u8]>]) {
        let mut request = Reply::new(&mut self.out, Protocol::Resp2);
        request.array(words.len());
        for word in words {
            request.bulk(word);
        }
    }

    /// Send what was put.
    pub(crate) async fn flush(&mut self) -> Result<(), WireFault> {
        let sent = self.stream.write_all(&self.out).await;
        self.out.clear();
        sent.map_err(WireFault::Lost)
    }

    /// The next answer; what was not asked for is passed over.
    pub(crate) async fn answer(&mut self) -> Result<Value, WireFault> {
        loop {
            match self.next().await? {
                Value::Push(_) => (),
                value => return Ok(value),
            }
        }
    }

    /// The next thing that the server says. Nothing is lost if the caller does not
    /// wait for the end of this.
    pub(crate) async fn next(&mut self) -> Result<Value, WireFault> {
        loop {
            let parsed = self.parser.next(&self.read, &mut self.at, &self.limits);
            if let Some(value) = parsed.map_err(WireFault::Garbled)? {
                return Ok(value);
            }
            self.read.drain(..self.at);
            self.at = 0;
            let more = self.stream.read_buf(&mut self.read).await;
            if more.map_err(WireFault::Lost)? == 0 {
                let error = io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed it");
                return Err(WireFault::Lost(error));
            }
        }
    }

    /// End properly. It does no harm if that fails.
    pub(crate) async fn quit(mut self) {
        let _ = self.ask(&["QUIT"]).await;
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Place::Tcp { host, port } => write!(f, "{host}:{port}"),
            Place::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl fmt::Debug for Server {
    /// Without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for WireFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable { server, error } => write!(
                f,
                "no server answers at {server}: {error}; start one with `rideau serve`, or say \
                 where it is with --server"
            ),
            Self::Unready(bad) => write!(f, "TLS cannot be spoken: {bad}"),
            Self::Insecure { server, error } => write!(
                f,
                "there is no TLS with {server}: {error}; it is spoken at `server.tls_listen` of \
                 the config, and elsewhere the server is reached without --tls"
            ),
            Self::Untrusted { server, error } => write!(
                f,
                "there is no TLS with {server}: {error}; --cacert names the authority \
                 that signed its certificate"
            ),
            Self::Lost(error) => write!(f, "the connection to the server was lost: {error}"),
            Self::Garbled(BadReply::Kind(b'H')) => f.write_str(
                "this address speaks HTTP; --server takes an address of `server.listen` in the \
                 config, by default 127.0.0.1:7433",
            ),
            Self::Garbled(bad) => write!(
                f,
                "this address does not speak the Redis protocol: {bad}; --server takes an address \
                 of `server.listen` in the config, by default 127.0.0.1:7433, and --tls is for \
                 `server.tls_listen`"
            ),
            Self::Denied(text) => write!(f, "the server refused the login: {text}"),
            Self::Several(servers) => {
                write!(
                    f,
                    "no server is at 127.0.0.1:{PORT}, and several are elsewhere: name one"
                )?;
                for server in servers {
                    write!(f, "\n  --server {server}")?;
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_in_all_their_forms() {
        for (text, shown) in [
            ("127.0.0.1:7433", "127.0.0.1:7433"),
            ("localhost", "localhost:7433"),
            (":9", "127.0.0.1:9"),
            ("[::1]:7433", "[::1]:7433"),
            ("unix:/run/rideau.sock", "unix:/run/rideau.sock"),
            ("/run/rideau.sock", "unix:/run/rideau.sock"),
            ("redis://ops:p%40ss@db:1/0", "db:1"),
            ("rediss://db:1", "db:1"),
        ] {
            assert_eq!(text.parse::<Server>().unwrap().to_string(), shown);
        }
        assert!("rediss://db".parse::<Server>().unwrap().has_tls());
        assert!(!"redis://db".parse::<Server>().unwrap().has_tls());
        for text in ["a:b", "a b:1", "[::1", "http://a:1", "ftp://a"] {
            assert!(text.parse::<Server>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_password_is_taken_from_the_address_and_never_shown() {
        let server: Server = "redis://ops:p%40s%2@db".parse().unwrap();
        assert_eq!(server.login().unwrap(), ["AUTH", "ops", "p@s%2"]);
        assert_eq!(format!("{server:?}"), "db:7433");
    }
}
