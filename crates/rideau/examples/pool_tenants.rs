//! Two tenants share a pool: one sends a hundred takers at once, the other one
//! now and then. In a fair queue each waits for itself.
//!
//!     cargo run -p rideau --example pool_tenants
//!
//! On tokio's paused clock, which jumps to the next timer, so this takes no time
//! and prints the same each time.

use std::convert::Infallible;
use std::error::Error;
use std::time::Duration;

use rideau::{AskOptions, Clock, Flow, Held, Manager, Pool, PoolOptions, Settings};
use tokio::task::JoinSet;
use tokio::time::sleep;

/// Lends numbers; the holder of one may work.
struct Numbers;

impl Manager for Numbers {
    type Member = u32;
    type Error = Infallible;

    async fn start(&self) -> Result<u32, Infallible> {
        Ok(0)
    }
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), Box<dyn Error>> {
    for queue in ["queue.kind=never", "queue.kind=never queue.fair_by=flow"] {
        let words = format!("init=2 max=2 {queue}");
        let options = PoolOptions::parse(Settings::parse(&words)?)?;
        let pool = Pool::start_by(Numbers, options, &Clock::paused()).await?;

        let mut zenith = JoinSet::new();
        for _ in 0..100 {
            zenith.spawn(work(pool.clone(), "zenith"));
        }
        // Acme comes when zenith has taken all there is.
        sleep(Duration::from_millis(1)).await;
        let mut acme = JoinSet::new();
        for _ in 0..3 {
            acme.spawn(work(pool.clone(), "acme"));
        }
        println!("{words}");
        for (name, takers) in [("acme", acme), ("zenith", zenith)] {
            let waits = takers.join_all().await;
            let longest = waits.into_iter().max().unwrap_or_default();
            println!("  the slowest of {name} waited {longest:?}");
        }
    }
    Ok(())
}

/// Hold a member for 10 ms. Says how long the taker waited for it.
async fn work(pool: Pool<Numbers>, tenant: &str) -> Duration {
    let terms = AskOptions {
        flow: Flow::of(tenant),
        ..AskOptions::default()
    };
    let mut held = pool.take_on(terms).await.expect("no take is shed");
    sleep(Duration::from_millis(10)).await;
    *held += 1;
    Held::waited(&held)
}
