//! Clients of our own, for what `wrk` does not tell: which requests failed and
//! why, and how long the longest took.

use std::cell::RefCell;
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::task::LocalSet;
use tokio::time::timeout;

use super::app::{BODY, field, head_len};

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: bench.example\r\n\r\n";
/// A request that is not answered by then never is.
const ANSWER_MAX: Duration = Duration::from_secs(20);
/// Longer than any answer.
const ANSWER_LEN_MAX: usize = 8 * 1024;
/// Failures that are told in words.
const TOLD_MAX: usize = 3;

/// What became of requests.
pub(super) struct Answers {
    pub(super) failed: u64,
    /// The first failures, in words.
    pub(super) why: Vec<String>,
    /// From request to answer, in nanoseconds.
    pub(super) waits: Histogram<u64>,
    pub(super) elapsed: Duration,
}

/// This many clients ask one thing after the other, for so long.
pub(super) fn ask_for(address: SocketAddr, clients: usize, len: Duration) -> Answers {
    let waits = Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("the bounds are in order");
    let answers = Rc::new(RefCell::new(Answers {
        failed: 0,
        why: Vec::new(),
        waits,
        elapsed: Duration::ZERO,
    }));
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("the system has sockets");
    let since = Instant::now();
    LocalSet::new().block_on(&runtime, async {
        let asking = |_| tokio::task::spawn_local(ask(address, since + len, Rc::clone(&answers)));
        let clients: Vec<_> = (0..clients).map(asking).collect();
        for client in clients {
            client.await.expect("clients do not panic");
        }
    });
    let mut answers = Rc::into_inner(answers)
        .expect("all clients have ended")
        .into_inner();
    answers.elapsed = since.elapsed();
    answers
}

async fn ask(address: SocketAddr, until: Instant, answers: Rc<RefCell<Answers>>) {
    let mut line = None;
    while Instant::now() < until {
        let since = Instant::now();
        let turn = timeout(ANSWER_MAX, turn(address, &mut line)).await;
        let turn = turn.unwrap_or_else(|_| Err("no answer".into()));
        let mut answers = answers.borrow_mut();
        match turn {
            Ok(()) => answers
                .waits
                .saturating_record(since.elapsed().as_nanos() as u64),
            Err(why) => {
                line = None;
                answers.fail(format!("{why}, after {:.1?}", since.elapsed()));
            }
        }
    }
}

/// Asks once, over the connection of the last time if that may go on.
async fn turn(address: SocketAddr, line: &mut Option<TcpStream>) -> Result<(), String> {
    let mut stream = match line.take() {
        Some(stream) => stream,
        None => connect(address).await.map_err(said("connect"))?,
    };
    stream.write_all(REQUEST).await.map_err(said("write"))?;
    let mut buffer = [0; ANSWER_LEN_MAX];
    let mut len = 0;
    loop {
        match stream
            .read(&mut buffer[len..])
            .await
            .map_err(said("read"))?
        {
            0 => return Err(format!("closed after {len} bytes of an answer")),
            more => len += more,
        }
        match whole(&buffer[..len])? {
            Some(Next::Goes) => {
                *line = Some(stream);
                return Ok(());
            }
            Some(Next::Ends) => return Ok(()),
            None => (),
        }
    }
}

async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Asks once over a connection of its own.
pub(super) fn ask_once(address: SocketAddr) -> io::Result<()> {
    let mut stream = std::net::TcpStream::connect(address)?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    stream.write_all(REQUEST)?;
    let (mut buffer, mut len) = ([0; ANSWER_LEN_MAX], 0);
    loop {
        match stream.read(&mut buffer[len..])? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            more => len += more,
        }
        if whole(&buffer[..len]).map_err(io::Error::other)?.is_some() {
            return Ok(());
        }
    }
}

/// Whether the connection goes on after an answer.
#[derive(Debug, PartialEq)]
enum Next {
    Goes,
    Ends,
}

/// Whether an answer has come as a whole, and is what the application says.
fn whole(bytes: &[u8]) -> Result<Option<Next>, String> {
    let Some(end) = head_len(bytes) else {
        return Ok(None);
    };
    let (head, body) = bytes.split_at(end);
    if !head.starts_with(b"HTTP/1.1 200 ") {
        let line = head.split(|byte| *byte == b'\r').next().unwrap_or(head);
        let line = String::from_utf8_lossy(line);
        let error = field(head, "x-rideau-error").unwrap_or("no reason given");
        return Err(format!("{line} ({error})"));
    }
    if field(head, "content-length") != Some("3") {
        return Err("an answer without its length".into());
    }
    match body.len() {
        0..3 => return Ok(None),
        _ if body != BODY => return Err("another answer".into()),
        _ => (),
    }
    let says = field(head, "connection");
    Ok(Some(match says {
        Some(says) if says.eq_ignore_ascii_case("close") => Next::Ends,
        _ => Next::Goes,
    }))
}

fn said(what: &'static str) -> impl Fn(io::Error) -> String {
    move |error| format!("{what}: {error}")
}

impl Answers {
    fn fail(&mut self, why: String) {
        self.failed += 1;
        if self.why.len() < TOLD_MAX {
            self.why.push(why);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_whole_with_its_last_byte() {
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nok\n";
        assert_eq!(whole(answer), Ok(Some(Next::Goes)));
        for len in 0..answer.len() {
            assert_eq!(whole(&answer[..len]), Ok(None));
        }
        let last = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nok\n";
        assert_eq!(whole(last), Ok(Some(Next::Ends)));
    }

    #[test]
    fn a_no_is_a_failure_with_its_reason() {
        let no = b"HTTP/1.1 503 Unavailable\r\nX-Rideau-Error: full\r\n\r\n";
        assert_eq!(whole(no), Err("HTTP/1.1 503 Unavailable (full)".into()));
        assert!(whole(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nno\n").is_err());
        assert!(whole(b"HTTP/1.1 200 OK\r\n\r\nok\n").is_err());
    }
}
