//! `with` lends a member to a piece of code, and knows whether that came to its
//! end. A connection with half an answer in it is not for the next one.
//!
//!     cargo run -p rideau --example pool_with
//!
//! On tokio's paused clock, so that it ends at once.

use std::convert::Infallible;
use std::error::Error;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rideau::{AskOptions, Clock, Fate, Manager, Pool, PoolOptions};
use tokio::time::{sleep, timeout};

/// Lends sessions that are numbered, so that one sees which one it is.
#[derive(Default)]
struct Sessions {
    started: AtomicU32,
}

struct Session {
    number: u32,
}

impl Manager for Sessions {
    type Member = Session;
    type Error = Infallible;

    async fn start(&self) -> Result<Session, Infallible> {
        let number = self.started.fetch_add(1, Ordering::Relaxed) + 1;
        Ok(Session { number })
    }
}

/// The user of a session says which one it was.
async fn query(session: &mut Session, takes: Duration, works: bool) -> Result<u32, String> {
    sleep(takes).await;
    match works {
        true => Ok(session.number),
        false => Err(format!("no such table, says session {}", session.number)),
    }
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), Box<dyn Error>> {
    let options = PoolOptions {
        max: 1,
        on_error: Fate::Check,
        on_cancel: Fate::Replace,
        ..PoolOptions::default()
    };
    let pool = Pool::new_by(Sessions::default(), options, &Clock::paused())?;
    let short = Duration::from_millis(5);

    let done = pool.with(AskOptions::default(), async |s| query(s, short, true).await);
    println!("done:      {:?}", done.await?);

    let failed = pool.with(AskOptions::default(), async |s| {
        query(s, short, false).await
    });
    println!("failed:    {:?}", failed.await?);

    let long = Duration::from_secs(60);
    let cancelled = pool.with(AskOptions::default(), async |s| query(s, long, true).await);
    println!("cancelled: {:?}", timeout(short, cancelled).await.is_err());

    let next = pool.with(AskOptions::default(), async |s| query(s, short, true).await);
    println!("the next:  {:?}", next.await?);
    Ok(())
}
