//! A hundred visitors, four connections to a database, and a second of patience.

use std::error::Error;
use std::time::Duration;

use rideau::adapters::Postgres;
use rideau::{Pool, PoolOptions, Terms};
use tokio::task::JoinSet;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).ok_or("say where to connect")?;
    let (served, refused) = visits(address.parse()?, 100).await?;
    println!("{served} were served, {refused} were told to come again");
    Ok(())
}

/// Visitors who come at once, each with a query of 50 ms: how many were served, and how many
/// were refused.
pub(crate) async fn visits(database: Postgres, count: u32) -> Result<(u32, u32), Box<dyn Error>> {
    let options = PoolOptions {
        max: 4,
        ..PoolOptions::default()
    };
    let pool = Pool::start(database, options).await?;
    let mut all = JoinSet::new();
    for _ in 0..count {
        all.spawn(visit(pool.clone()));
    }
    let (mut served, mut refused) = (0, 0);
    while let Some(visited) = all.join_next().await {
        match visited?? {
            true => served += 1,
            false => refused += 1,
        }
    }
    pool.close(Duration::from_secs(5)).await;
    Ok((served, refused))
}

/// Whether a visitor got what it came for within a second.
async fn visit(pool: Pool<Postgres>) -> Result<bool, tokio_postgres::Error> {
    match pool.take_on(Terms::within(Duration::from_secs(1))).await {
        Ok(client) => {
            client.query_one("select pg_sleep(0.05)", &[]).await?;
            Ok(true)
        }
        Err(no) => {
            println!("{no}");
            Ok(false)
        }
    }
}
