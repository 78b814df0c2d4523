//! From deadpool-postgres to Rideau: what changes in a program, line by line.
//!
//!     cargo run --example from_deadpool --features postgres -- 'host=/run/postgresql user=anna'

use rideau::adapters::{Postgres, Recycle};
use rideau::{Held, Pool, PoolOptions};
use std::error::Error;
use std::time::Duration;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).ok_or("say where to connect")?;

    // let config: tokio_postgres::Config = address.parse()?;
    // let manager = Manager::from_config(config, NoTls, ManagerConfig {
    //     recycling_method: RecyclingMethod::Clean,
    // });
    let manager = Postgres {
        recycle: Recycle::Clean,
        ..address.parse()?
    };

    // let pool = Pool::builder(manager).max_size(16).build()?;
    let options = PoolOptions {
        max: 16,
        // deadpool recycles at every take. So does this.
        check_after: Some(Duration::ZERO),
        ..PoolOptions::default()
    };
    let pool = Pool::new(manager, options)?;

    // let mut client = pool.get().await?;
    let mut client = pool.take().await?;

    // From here on nothing changes: both lend a tokio_postgres::Client.
    let transaction = client.transaction().await?;
    let row = transaction.query_one("select 6 * 7", &[]).await?;
    transaction.commit().await?;
    println!("{}", row.get::<_, i32>(0));

    // let client = Object::take(client);
    let client = Held::detach(client);
    drop(client);

    // pool.close();
    pool.close(Duration::from_secs(5)).await;
    Ok(())
}
