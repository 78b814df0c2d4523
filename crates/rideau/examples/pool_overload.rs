//! Twice as many takers as a pool can serve, behind two waiting lines: a plain
//! time-out, and a bounded CoDel queue.
//!
//!     cargo run --release --example pool_overload
//!
//! In real time. A query is a thread that sleeps for 2.5 ms; takers come at
//! random, and keep coming whatever happens to them.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::error::Error;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use rideau::{Held, Manager, Pool, PoolOptions, queue};

const MEMBERS: usize = 4;
const QUERY: Duration = Duration::from_micros(2500);
/// Twice what four members can do at best: 1600 queries a second.
const TAKERS_PER_SECOND: f64 = 3200.0;
const TIMEOUT: Duration = Duration::from_millis(200);
const TARGET: Duration = Duration::from_millis(20);
const INTERVAL: Duration = Duration::from_millis(200);
/// Not counted: until the waiting line is as long as it will be.
const WARM_UP: Duration = Duration::from_secs(1);
const COUNTED: Duration = Duration::from_secs(4);

/// Sessions of a server that needs 2.5 ms for whatever it is asked.
struct Sessions;

struct Session;

impl Manager for Sessions {
    type Member = Session;
    type Error = Infallible;

    async fn start(&self) -> Result<Session, Infallible> {
        Ok(Session)
    }
}

impl Session {
    async fn query(&mut self) {
        // Timers of tokio are exact to a millisecond, which is too coarse here.
        let slept = tokio::task::spawn_blocking(|| thread::sleep(QUERY)).await;
        slept.expect("a sleeping task does not panic");
    }
}

/// What became of one taker: how long it waited for its member, or why it has none.
type Outcome = Result<Duration, &'static str>;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let codel = queue::Options {
        shedding: queue::Shedding::BoundedCoDel {
            target: TARGET,
            interval: INTERVAL,
            wait_max: TARGET * 2,
        },
        ..queue::Options::default()
    };
    println!(
        "{MEMBERS} members, queries of {QUERY:?}, {TAKERS_PER_SECOND} takers a second, {COUNTED:?} \
         after {WARM_UP:?} of warm-up\n"
    );
    println!("| waiting line | came | served | served/s | p50 wait | p99 wait | shed |");
    println!("|---|---|---|---|---|---|---|");
    for (name, queue) in [
        (
            "`kind=timeout timeout=200ms`",
            queue::Options::timeout(TIMEOUT),
        ),
        ("`kind=bounded-codel target=20ms interval=200ms`", codel),
    ] {
        println!("| {name} {}", row(&overload(queue).await?));
    }
    Ok(())
}

/// What became of the takes that came after the warm-up.
async fn overload(queue: queue::Options) -> Result<Vec<Outcome>, Box<dyn Error>> {
    let options = PoolOptions {
        init: MEMBERS,
        max: MEMBERS,
        queue,
        ..PoolOptions::default()
    };
    let pool = Pool::start(Sessions, options).await?;
    let (outcomes, came) = channel();
    let runtime = tokio::runtime::Handle::current();
    let crowd = thread::spawn(move || {
        let (start, mut due) = (Instant::now(), Duration::ZERO);
        let mut seed = 1;
        while due < WARM_UP + COUNTED {
            thread::sleep(due.saturating_sub(start.elapsed()));
            let outcomes = (due >= WARM_UP).then(|| outcomes.clone());
            runtime.spawn(one_taker(pool.clone(), outcomes));
            due += gap(&mut seed);
        }
    });
    // The last taker to be answered closes the channel.
    Ok(tokio::task::spawn_blocking(move || {
        let all = came.iter().collect();
        crowd.join().expect("the crowd does not panic");
        all
    })
    .await?)
}

async fn one_taker(pool: Pool<Sessions>, outcomes: Option<Sender<Outcome>>) {
    let outcome = match pool.take().await {
        Ok(mut session) => {
            session.query().await;
            Ok(Held::waited(&session))
        }
        Err(no) => Err(no.refusal.reason.word()),
    };
    if let Some(outcomes) = outcomes {
        outcomes.send(outcome).expect("the counter runs");
    }
}

/// The time between two takes that are independent of each other.
fn gap(seed: &mut u64) -> Duration {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    let chance = ((*seed >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
    Duration::from_secs_f64(-chance.ln() / TAKERS_PER_SECOND)
}

fn row(outcomes: &[Outcome]) -> String {
    let mut waits: Vec<Duration> = outcomes.iter().filter_map(|o| o.ok()).collect();
    waits.sort_unstable();
    let quantile = |of_100: usize| waits[(waits.len() - 1) * of_100 / 100];
    let mut shed = BTreeMap::new();
    for reason in outcomes.iter().filter_map(|outcome| outcome.err()) {
        *shed.entry(reason).or_insert(0) += 1;
    }
    let shed: Vec<_> = shed
        .iter()
        .map(|(why, count)| format!("{count} {why}"))
        .collect();
    format!(
        "| {} | {} | {:.0} | {:.1?} | {:.1?} | {} |",
        outcomes.len(),
        waits.len(),
        waits.len() as f64 / COUNTED.as_secs_f64(),
        quantile(50),
        quantile(99),
        shed.join(", ")
    )
}
