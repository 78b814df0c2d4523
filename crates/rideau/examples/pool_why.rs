//! "The pool timed out, but why?" Three ways to get nothing, and what a pool
//! says of each.
//!
//!     cargo run -p rideau --example pool_why
//!
//! On tokio's paused clock, so that it ends at once.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rideau::{AskOptions, Backoff, Clock, Held, Manager, Pool, PoolOptions};
use tokio::time::sleep;

/// Lends sessions of a server that can be switched off.
struct Sessions {
    is_down: Arc<AtomicBool>,
}

struct Session;

impl Manager for Sessions {
    type Member = Session;
    type Error = io::Error;

    async fn start(&self) -> io::Result<Session> {
        match self.is_down.load(Ordering::Relaxed) {
            true => Err(io::ErrorKind::ConnectionRefused.into()),
            false => Ok(Session),
        }
    }
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), Box<dyn Error>> {
    let is_down = Arc::new(AtomicBool::new(false));
    let sessions = Sessions {
        is_down: Arc::clone(&is_down),
    };
    let options = PoolOptions {
        max: 2,
        // A take that comes while the server is down is told so at once.
        fail_fast: true,
        backoff: Backoff {
            failures: 1,
            ..Backoff::default()
        },
        ..PoolOptions::default()
    };
    let pool = Pool::new_by(sessions, options, &Clock::paused())?;
    let patient = AskOptions {
        wait_max: Some(Duration::from_secs(1)),
        ..AskOptions::default()
    };

    println!("The members are held for a long time:");
    let report = pool.take().await?;
    Held::note(&report, "the nightly report");
    sleep(Duration::from_secs(40)).await;
    let export = pool.take().await?;
    Held::note(&export, "GET /export");
    println!("  {}", nothing(&pool, patient).await);

    println!("A take does not want to wait:");
    println!("  {}", pool.try_take().err().ok_or("a member was there")?);

    println!("The server is down:");
    is_down.store(true, Ordering::Relaxed);
    Held::fail(report);
    Held::fail(export);
    println!("  {}", nothing(&pool, AskOptions::default()).await);

    println!("\nAnd what the pool says by itself:");
    print!("{}", pool.explain());
    Ok(())
}

async fn nothing(pool: &Pool<Sessions>, terms: AskOptions) -> String {
    match pool.take_on(terms).await {
        Ok(_) => "a member after all".into(),
        Err(no) => no.to_string(),
    }
}
