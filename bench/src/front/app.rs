//! The application behind every front: this program again, told by a word to
//! answer three bytes to whatever it is asked, but for two paths.
//!
//! One thread serves all connections, so that it costs a front little that its
//! application runs on the same machine.

mod bodies;

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::thread;
use std::time::Duration;
use std::{env, str};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener};
use tokio::runtime::Builder;

pub(super) use self::bodies::{CHUNKED, JSON, chunked, rows};

use self::bodies::Page;
use super::started::{Place, Started, this_program};

/// What makes this program the application.
pub(crate) const WORD: &str = "--app";

/// What requests are answered.
pub(super) const BODY: &[u8] = b"ok\n";
const ANSWER: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 3\r\n\r\nok\n";
const LAST_ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 3\r\n\
      Connection: close\r\n\r\nok\n";

/// Longer than any head that a front sends.
const HEAD_MAX: usize = 8 * 1024;

/// How it is run, as words that its front passes on to it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Options {
    /// Listens here, and not at `$PORT`.
    pub(super) socket: Option<PathBuf>,
    /// Leaves a file here whose name is its process id.
    pub(super) pids: Option<PathBuf>,
    /// Takes so long before it listens.
    pub(super) delay: Duration,
}

impl Options {
    /// The words after the name of this program.
    pub(super) fn words(&self) -> Vec<String> {
        let mut words = vec![WORD.to_owned()];
        let mut tell = |name: &str, value: String| words.extend([name.to_owned(), value]);
        if let Some(socket) = &self.socket {
            tell("--socket", socket.display().to_string());
        }
        if let Some(pids) = &self.pids {
            tell("--pids", pids.display().to_string());
        }
        if !self.delay.is_zero() {
            tell("--delay", self.delay.as_millis().to_string());
        }
        words
    }

    fn of(words: &[String]) -> Option<Self> {
        let mut options = Self::default();
        for pair in words.chunks(2) {
            let [name, value] = pair else { return None };
            match name.as_str() {
                "--socket" => options.socket = Some(value.into()),
                "--pids" => options.pids = Some(value.into()),
                "--delay" => options.delay = Duration::from_millis(value.parse().ok()?),
                _ => return None,
            }
        }
        Some(options)
    }
}

/// The application, started by hand.
pub(super) fn start_app(place: Place) -> Started {
    let mut command = app_command(&place, Duration::ZERO);
    Started::new(&mut command, &place, None).expect("the bench can be its own application")
}

pub(super) fn app_command(place: &Place, delay: Duration) -> Command {
    let mut options = Options {
        delay,
        ..Options::default()
    };
    let mut command = Command::new(this_program());
    match place {
        Place::Port(address) => drop(command.env("PORT", address.port().to_string())),
        Place::Socket(path) => options.socket = Some(path.clone()),
    }
    command.args(options.words());
    command
}

/// Is the application, given the words after [`WORD`], until it is killed.
pub(crate) fn serve(words: &[String]) -> ! {
    let options = Options::of(words).expect("the bench knows its own words");
    thread::sleep(options.delay);
    let place = match &options.socket {
        Some(socket) => Place::Socket(socket.clone()),
        None => {
            let port = env::var("PORT").expect("PORT says where to listen");
            let port: u16 = port.parse().expect("a port is a number");
            Place::Port((Ipv4Addr::LOCALHOST, port).into())
        }
    };
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("the system has sockets");
    runtime.block_on(accept(&place, options.pids.as_deref()))
}

async fn accept(place: &Place, pids: Option<&Path>) -> ! {
    match place {
        Place::Port(address) => {
            let listener = TcpListener::bind(address).await.expect("the port is free");
            count_in(pids);
            loop {
                if let Ok((stream, _)) = listener.accept().await {
                    let _ = stream.set_nodelay(true);
                    tokio::spawn(answer(stream));
                }
            }
        }
        Place::Socket(path) => {
            let listener = UnixListener::bind(path).expect("no process listens there");
            count_in(pids);
            loop {
                if let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(answer(stream));
                }
            }
        }
    }
}

fn count_in(pids: Option<&Path>) {
    if let Some(pids) = pids {
        let file = pids.join(process::id().to_string());
        fs::write(file, "").expect("the bench made the folder");
    }
}

/// Answers until the other end has enough.
async fn answer<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S) {
    let mut buffer = [0; HEAD_MAX];
    let mut len = 0;
    loop {
        match stream.read(&mut buffer[len..]).await {
            Ok(more) if more > 0 => len += more,
            _ => return,
        }
        while let Some(end) = head_len(&buffer[..len]) {
            let head = &buffer[..end];
            let is_last = is_last(head);
            // It costs the smallest request no second look.
            let (page, body) = match head.starts_with(b"GET / ") {
                true => (Page::Word, 0),
                false => (Page::of(head), body_len(head)),
            };
            let here = body.min(len - end);
            if bodies::skip(&mut stream, body - here).await.is_err() {
                return;
            }
            let written = match page {
                Page::Word if is_last => stream.write_all(LAST_ANSWER).await,
                Page::Word => stream.write_all(ANSWER).await,
                Page::Chunked => bodies::write_chunked(&mut stream).await,
                Page::Json => bodies::write_json(&mut stream).await,
            };
            if written.is_err() || is_last {
                return;
            }
            buffer.copy_within(end + here..len, 0);
            len -= end + here;
        }
    }
}

/// How long the head is that these bytes begin with; nothing if it has not come
/// as a whole.
pub(super) fn head_len(bytes: &[u8]) -> Option<usize> {
    let end = bytes.windows(4).position(|bytes| bytes == b"\r\n\r\n")?;
    Some(end + 4)
}

/// What a head says under a name.
pub(super) fn field<'a>(head: &'a [u8], name: &str) -> Option<&'a str> {
    let lines = head.split(|byte| *byte == b'\n').skip(1);
    let mut fields = lines.filter_map(|line| str::from_utf8(line).ok()?.split_once(':'));
    let (_, value) = fields.find(|(known, _)| known.eq_ignore_ascii_case(name))?;
    Some(value.trim())
}

/// Bytes that follow a head; fronts that have read a body say how long it is.
fn body_len(head: &[u8]) -> usize {
    let len = field(head, "content-length").and_then(|len| len.parse().ok());
    len.unwrap_or(0)
}

/// Whether the client wants the connection to end with the answer.
fn is_last(head: &[u8]) -> bool {
    let line = head.split(|byte| *byte == b'\r').next();
    let is_old = line.is_some_and(|line| line.ends_with(b"HTTP/1.0"));
    match field(head, "connection") {
        Some(says) if is_old => !says.eq_ignore_ascii_case("keep-alive"),
        Some(says) => says.eq_ignore_ascii_case("close"),
        None => is_old,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_words_say_how_it_is_run() {
        let options = Options {
            socket: Some("{socket}".into()),
            pids: Some("/tmp/pids".into()),
            delay: Duration::from_millis(300),
        };
        for options in [options, Options::default()] {
            let words = options.words();
            assert_eq!(words[0], WORD);
            assert_eq!(Options::of(&words[1..]), Some(options));
        }
        assert_eq!(Options::of(&["--delay".into()]), None);
    }

    #[test]
    fn a_head_that_is_not_whole_has_no_length() {
        assert_eq!(head_len(b"GET / HTTP/1.1\r\nHost: a\r\n"), None);
        assert_eq!(head_len(b"GET / HTTP/1.1\r\n\r\nGET"), Some(18));
    }

    #[test]
    fn a_connection_ends_as_its_client_wants() {
        assert!(!is_last(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert!(is_last(b"GET / HTTP/1.1\r\nconnection: Close\r\n\r\n"));
        assert!(is_last(b"GET / HTTP/1.0\r\nHost: a\r\n\r\n"));
        assert!(!is_last(
            b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"
        ));
    }
}
