//! A few connections beyond the limit, for health checks: they may only send `PING`,
//! and not for long.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rideau_resp::{RequestLimits, RequestParser};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// This many at a time.
const MOST: usize = 16;
/// So long each of them has.
pub(crate) const WITHIN: Duration = Duration::from_secs(2);
/// The same to send its first command; then it is told why it cannot stay.
const FIRST_WITHIN: Duration = Duration::from_millis(500);
/// Bytes that it may send.
const BYTES_MAX: usize = 1024;
/// A client that is turned away has so long to take the answer.
const TAKEN_WITHIN: Duration = Duration::from_secs(1);

/// Room for connections that only ask whether the server is there.
#[derive(Clone)]
pub(crate) struct Reserve(Arc<Semaphore>);

impl Default for Reserve {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MOST)))
    }
}

impl Reserve {
    /// A place, until it is dropped. None if all are taken.
    pub(crate) fn take(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.0).try_acquire_owned().ok()
    }
}

/// Answer the pings of a connection there is no room for, and say why it cannot
/// stay as soon as it wants anything else. Without a place only the latter.
pub(crate) async fn turn_away<S>(mut stream: S, why: &str, place: Option<OwnedSemaphorePermit>)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    if place.is_some() {
        let pings = answer_pings(&mut stream);
        match tokio::time::timeout(WITHIN, pings).await {
            Ok(Ok(Stays::No)) | Err(_) => (),
            Ok(Ok(Stays::NotHeld) | Err(_)) => return,
        }
    }
    let told = async {
        stream.write_all(why.as_bytes()).await?;
        stream.shutdown().await
    };
    let _ = tokio::time::timeout(TAKEN_WITHIN, told).await;
    if place.is_some() {
        // What it sent and was not read would make the system forget the answer.
        let mut rest = [0; BYTES_MAX];
        let read = stream.read(&mut rest);
        let _ = tokio::time::timeout(Duration::from_millis(100), read).await;
    }
}

/// The work that is left.
enum Stays {
    /// It wants more than it can have, or has said nothing.
    No,
    /// It has gone.
    NotHeld,
}

async fn answer_pings<S>(stream: &mut S) -> io::Result<Stays>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (mut parser, limits) = (
        RequestParser::default(),
        RequestLimits::default().before_login(),
    );
    let mut bytes = Vec::with_capacity(BYTES_MAX);
    let (mut at, mut pings) = (0, 0);
    loop {
        loop {
            let answer: &[u8] = match parser.next(&bytes, &mut at, &limits) {
                Ok(None) => break,
                Ok(Some(request)) => match (request.name(), request.len()) {
                    (name, 1) if name.eq_ignore_ascii_case(b"PING") => b"+PONG\r\n",
                    (name, 1) if name.eq_ignore_ascii_case(b"QUIT") && pings > 0 => {
                        stream.write_all(b"+OK\r\n").await?;
                        return Ok(Stays::NotHeld);
                    }
                    _ => return Ok(Stays::No),
                },
                Err(_) => return Ok(Stays::No),
            };
            pings += 1;
            stream.write_all(answer).await?;
        }
        if bytes.len() >= BYTES_MAX {
            return Ok(Stays::No);
        }
        let read = stream.read_buf(&mut bytes);
        let read = match pings {
            0 => tokio::time::timeout(FIRST_WITHIN, read).await,
            _ => Ok(read.await),
        };
        match read {
            Ok(Ok(0)) => return Ok(Stays::NotHeld),
            Ok(read) => drop(read?),
            Err(_) => return Ok(Stays::No),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a client that sends this is answered.
    async fn answer(sent: &[u8], reserve: &Reserve) -> String {
        let (mut client, server) = tokio::io::duplex(4096);
        let place = reserve.take();
        let served = tokio::spawn(async move { turn_away(server, "-BUSY\r\n", place).await });
        client.write_all(sent).await.unwrap();
        let mut said = String::new();
        client.read_to_string(&mut said).await.unwrap();
        served.await.unwrap();
        said
    }

    #[tokio::test(start_paused = true)]
    async fn only_pings_are_answered() {
        let reserve = Reserve::default();
        for (sent, said) in [
            (&b"PING\r\n"[..], "+PONG\r\n-BUSY\r\n"),
            (b"*1\r\n$4\r\nping\r\nLOCK a\r\n", "+PONG\r\n-BUSY\r\n"),
            (b"PING\r\nPING\r\nQUIT\r\n", "+PONG\r\n+PONG\r\n+OK\r\n"),
            (b"AUTH a b\r\nPING\r\n", "-BUSY\r\n"),
            (b"", "-BUSY\r\n"),
            (b"*-7\r\n", "-BUSY\r\n"),
        ] {
            assert_eq!(answer(sent, &reserve).await, said, "{sent:?}");
        }
        let _all: Vec<_> = (0..MOST).map(|_| reserve.take().unwrap()).collect();
        assert_eq!(answer(b"PING\r\n", &reserve).await, "-BUSY\r\n");
    }
}
