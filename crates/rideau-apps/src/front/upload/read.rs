//! Reads what a client sends before a process is bothered with it.

use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::Bytes;
use tokio::time::Instant;

use super::Upload;
use super::inflow::{Inflow, Unread};
use super::passing::{Fate, Passing};
use crate::front::body_buffer::{BodyBuffer, BufferMax, Full};
use crate::front::budget::Reserved;

/// How much of a body waits for its end. What is in memory can be sent again.
const MOST: BufferMax = BufferMax {
    memory: 64 << 10,
    // How long it may be is said elsewhere.
    file: u64::MAX,
};
/// A body that is longer need not be kept as a whole,
const LONG: u64 = 8 << 20;
/// if so much of it
const FIRST: u64 = 1 << 20;
/// came within this.
const FIRST_WITHIN: Duration = Duration::from_secs(1);

/// Read all of it; or if it is long and comes fast, as much as shows that.
pub(in crate::front) async fn read(
    mut inflow: Inflow,
    len: Option<u64>,
    reserved: Reserved,
) -> Result<(Upload, Option<Fate>), Unread> {
    let since = Instant::now();
    let mut buffer = Box::new(BodyBuffer::new(reserved, MOST));
    let mut came = 0;
    while let Some(part) = poll_fn(|context| poll_part(&mut inflow, &mut buffer, context)).await? {
        let before = came;
        came += part.len() as u64;
        buffer.push(&part);
        drop(part);
        if before < FIRST && came >= FIRST && is_passed_on(len, since.elapsed()) {
            let passing = Passing::new(Some(buffer), inflow, len);
            let fate = passing.fate.clone();
            return Ok((Upload::Passing(Box::new(passing)), Some(fate)));
        }
        poll_fn(|context| {
            let room = buffer.poll_room(context);
            if room.is_pending() {
                // A disk that is slow is no fault of the client.
                inflow.pause();
            }
            room
        })
        .await?;
    }
    poll_fn(|context| buffer.poll_kept(context)).await?;
    let upload = match buffer.into_whole() {
        Ok(whole) => Upload::Whole(whole),
        Err(buffer) => Upload::Buffered(buffer),
    };
    Ok((upload, None))
}

/// Read none of it, or only its first part, to see that it begins well.
pub(in crate::front) async fn peek(
    mut inflow: Inflow,
    len: Option<u64>,
    is_checked: bool,
    reserved: Reserved,
) -> Result<(Upload, Option<Fate>), Unread> {
    let mut first = None;
    if is_checked {
        let mut buffer = Box::new(BodyBuffer::new(reserved, MOST));
        let part = poll_fn(|context| inflow.poll_part(context)).await?;
        if let Some(part) = part {
            buffer.push(&part);
        }
        inflow.pause();
        first = Some(buffer);
    }
    let passing = Passing::new(first, inflow, len);
    let fate = passing.fate.clone();
    Ok((Upload::Passing(Box::new(passing)), Some(fate)))
}

/// The next part, while what came before is written.
fn poll_part(
    inflow: &mut Inflow,
    buffer: &mut BodyBuffer,
    context: &mut Context<'_>,
) -> Poll<Result<Option<Bytes>, Unread>> {
    if let Poll::Ready(part) = inflow.poll_part(context) {
        return Poll::Ready(part);
    }
    match buffer.poll_room(context) {
        Poll::Ready(Err(full)) => Poll::Ready(Err(full.into())),
        Poll::Ready(Ok(())) | Poll::Pending => Poll::Pending,
    }
}

/// Whether a body of this length is passed on, if its beginning took so long.
fn is_passed_on(len: Option<u64>, took: Duration) -> bool {
    len.is_some_and(|len| len > LONG) && took <= FIRST_WITHIN
}

impl From<Full> for Unread {
    fn from(Full: Full) -> Self {
        Self::NoRoom
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::io;
    use std::net::IpAddr;
    use std::pin::Pin;
    use std::task::ready;

    use rideau_config::FrontConfig;
    use rideau_testing::Scratch;
    use tokio::time::Sleep;

    use super::*;
    use crate::front::budget::BufferBudget;
    use crate::front::upload::{Extent, Incoming, Source};

    /// A client that sends these, and rests before each.
    struct Client {
        parts: VecDeque<Vec<u8>>,
        rest: Duration,
        resting: Option<Pin<Box<Sleep>>>,
    }

    impl Incoming for Client {
        fn poll_part(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
            let rest = self.rest;
            let resting = self
                .resting
                .get_or_insert_with(|| Box::pin(tokio::time::sleep(rest)));
            ready!(resting.as_mut().poll(context));
            self.resting = None;
            Poll::Ready(Ok(self.parts.pop_front().map(Into::into)))
        }
    }

    /// What becomes of a body of parts of 64 KiB, and whether all of it comes out again.
    async fn check(parts: usize, rest: Duration, is_told: bool) -> Upload {
        let folder = Scratch::new();
        let budget = BufferBudget::new(&FrontConfig {
            buffer_dir: Some(folder.path().into()),
            ..FrontConfig::default()
        });
        let parts = (0..parts).map(|number| vec![number as u8; 64 << 10]);
        let all: Vec<_> = parts.clone().flatten().collect();
        let client = Client {
            parts: parts.collect(),
            rest,
            resting: None,
        };
        let inflow = Inflow::new(Source::Http1(Box::new(client)), u64::MAX, Some(500));
        let reserved = budget.reserve(IpAddr::from([127, 0, 0, 1]));
        let len = is_told.then_some(all.len() as u64);
        let (mut upload, _) = read(inflow, len, reserved).await.expect("it is read");
        let extent = upload.extent();
        assert_eq!(extent, Extent::Length(all.len() as u64));
        let mut came = Vec::new();
        while let Some(part) = poll_fn(|context| upload.poll_part(context)).await {
            came.extend_from_slice(&part.expect("all of it comes"));
        }
        assert!(came == all);
        upload
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_body_is_passed_on_when_it_comes_fast() {
        // This many as are just too long.
        let long = (LONG >> 16) as usize + 1;
        let (fast, slow) = (Duration::from_millis(50), Duration::from_millis(70));
        let passed = |upload| matches!(upload, Upload::Passing(_));
        assert!(passed(check(long, fast, true).await));
        assert!(!passed(check(long, slow, true).await));
        assert!(!passed(check(long - 1, fast, true).await));
        assert!(!passed(check(long, fast, false).await));
    }

    #[test]
    fn only_a_long_body_that_comes_fast_is_passed_on() {
        let within = |millis| Duration::from_millis(millis);
        assert!(is_passed_on(Some(LONG + 1), within(1000)));
        assert!(!is_passed_on(Some(LONG + 1), within(1001)));
        assert!(!is_passed_on(Some(LONG), within(10)));
        // It is to be told how long it is.
        assert!(!is_passed_on(None, within(10)));
    }
}
