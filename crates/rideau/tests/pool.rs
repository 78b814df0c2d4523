//! The pool's handle: takes, releases, starts and ends, on a paused clock.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rideau::{Held, Manager, Pool, PoolOptions};

struct Numbers(Arc<AtomicU64>);

impl Manager for Numbers {
    type Member = u64;
    type Error = Infallible;

    async fn start(&self) -> Result<u64, Infallible> {
        Ok(self.0.fetch_add(1, Ordering::Relaxed))
    }
}

fn numbers() -> Numbers {
    Numbers(Arc::default())
}

#[tokio::test(start_paused = true)]
async fn what_is_released_last_is_taken_first() {
    let options = PoolOptions {
        init: 2,
        max: 2,
        ..PoolOptions::default()
    };
    let pool = Pool::start(numbers(), options).await.unwrap();
    let one = pool.take().await.unwrap();
    let other = pool.take().await.unwrap();
    let (first, second) = (*one, *other);
    assert_ne!(first, second);
    assert!(pool.try_take().is_err());
    drop(one);
    drop(other);
    assert_eq!(*pool.take().await.unwrap(), second);
    let waiting = pool.take_owned(Default::default());
    let all = (pool.take().await.unwrap(), pool.take().await.unwrap());
    let waiting = tokio::spawn(waiting);
    tokio::task::yield_now().await;
    assert_eq!(pool.stats().len(), 1);
    Held::fail(all.0);
    let fresh = waiting.await.unwrap().unwrap();
    assert_eq!(*fresh, 2);
    println!("{}", pool.explain());
}
