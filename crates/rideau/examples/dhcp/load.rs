//! Clients that come, renew at half time and go.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rideau::allocator::{Ask, Change, Field, Fields, Key, Place, Prefer, Which};
use rideau::{Failed, Ranges};
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep};

use crate::report::Times;

/// How many clients come, and for how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clients {
    pub(crate) count: usize,
    pub(crate) ttl: Duration,
    /// How often each comes.
    pub(crate) visits: usize,
    /// How often it renews before it goes.
    pub(crate) renewals: usize,
}

impl Clients {
    pub(crate) const FULL: Self = Self {
        count: 20_000,
        ttl: Duration::from_secs(2),
        visits: 3,
        renewals: 2,
    };
    pub(crate) const QUICK: Self = Self {
        count: 500,
        ttl: Duration::from_millis(500),
        visits: 1,
        renewals: 2,
    };
}

/// How long answers took.
pub(crate) struct Served(pub(crate) Times);

/// Serve them all, and show now and then how long answers took in that time.
pub(crate) async fn run(
    ranges: &Ranges,
    clients: Clients,
    every: Duration,
) -> Result<Served, Failed> {
    let times = Arc::new(Mutex::new(Times::default()));
    let mut tasks = JoinSet::new();
    for client in 0..clients.count {
        tasks.spawn(visit(ranges.clone(), clients, client, Arc::clone(&times)));
    }
    let mut all = Times::default();
    let mut shows = interval(every);
    loop {
        tokio::select! {
            biased;
            ended = tasks.join_next() => match ended {
                Some(ended) => ended.expect("no client panics")?,
                None => break,
            },
            _ = shows.tick() => {
                let recent = std::mem::take(&mut *times.lock().expect("no thread panics"));
                if recent.len(0) + recent.len(1) > 0 {
                    println!("{}", Served(recent.clone()));
                }
                all.add(&recent);
            }
        }
    }
    all.add(&times.lock().expect("no thread panics"));
    Ok(Served(all))
}

/// A client comes, stays for a while, and comes again.
async fn visit(
    ranges: Ranges,
    clients: Clients,
    client: usize,
    times: Arc<Mutex<Times>>,
) -> Result<(), Failed> {
    let half = clients.ttl / 2;
    let mac = format!("mac:02:00:00:{:06x}", client);
    // They do not all come at once.
    sleep(half * (client % 1_000) as u32 / 1_000).await;
    for _ in 0..clients.visits {
        let begun = Instant::now();
        let one = ranges
            .reserve(&Ask {
                ttl: Some(clients.ttl),
                data: &named(&mac),
                keys: &[Key {
                    bytes: mac.as_bytes(),
                    unique: true,
                }],
                ..Ask::new(&preferred(&ranges))
            })
            .await?[0];
        record(&times, one.tier, begun);
        let which = Which::Value(one.value);
        for _ in 0..clients.renewals {
            sleep(half).await;
            let begun = Instant::now();
            let none = Fields::new();
            let change = Change {
                fence: Some(one.fence),
                ttl: Some(clients.ttl),
                ..Change::new(&none)
            };
            ranges.update(which, &change).await?;
            record(&times, one.tier, begun);
        }
        ranges.release(one.value, Some(one.fence)).await?;
    }
    Ok(())
}

fn record(times: &Mutex<Times>, tier: u8, begun: Instant) {
    let mut times = times.lock().expect("no thread panics");
    times.record(tier, begun.elapsed());
}

fn named(mac: &str) -> Fields {
    let mut fields = Fields::new();
    fields.set(b"hostname", Field::Bytes(mac.as_bytes()));
    fields
}

fn preferred(ranges: &Ranges) -> [Prefer; 2] {
    let range = |name| Place::Range(ranges.range(name).expect("it was opened"));
    [(0, "primary"), (1, "secondary")].map(|(tier, name)| Prefer {
        tier,
        place: range(name),
    })
}

impl fmt::Display for Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.bars(f)
    }
}
