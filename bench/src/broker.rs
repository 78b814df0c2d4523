//! Clients that ask meet workers that offer themselves.
//!
//! One operation is one match: both sides have received a number from the
//! other. Nothing draws at random, so every run does the same.
//!
//! `BENCH_CASE=1+1` measures that case alone, and `BENCH_SUBJECT=rideau,actor`
//! these subjects, for a look with `perf`.

mod actor;
mod channel;
mod mutex;
mod ours;
mod sketch;
mod waiting;

use std::sync::Arc;

use tokio::task::JoinSet;

use crate::measure::{Pass, Plan, Sample, Stall, Stamps, Subject, compare, is_wanted, watch};
use crate::report::{Format, print};

/// Brings clients and workers together.
///
/// Dropping the future of an ask or an offer cancels it.
trait Matcher: Clone + Send + Sync + 'static {
    /// As tables show it; ours is [`crate::report::OURS`].
    const NAME: &'static str;

    /// Called inside a runtime.
    fn start() -> Self;

    /// Waits for a worker, gives it `value` and returns the worker's.
    fn ask(&self, value: u64) -> impl Future<Output = u64> + Send;

    /// As [`ask`](Self::ask), for a minute: at least a million must be let wait.
    fn ask_for_long(&self, value: u64) -> impl Future<Output = u64> + Send {
        self.ask(value)
    }

    /// Waits for a client, gives it `value` and returns the client's.
    fn offer(&self, value: u64) -> impl Future<Output = u64> + Send;
}

/// All subjects; a further one is a `mod` above and a line here.
const CONTESTANTS: &[Contestant] = &[
    Contestant::of::<ours::Ours>(),
    Contestant::of::<actor::Actor>(),
    Contestant::of::<mutex::Queues>(),
    Contestant::of::<channel::Channel>(),
    Contestant::of::<sketch::Sketch>(),
];

/// What is measured of one matcher.
struct Contestant {
    name: &'static str,
    introduce: fn(Crowd, &Plan) -> Result<Sample, Stall>,
    wait: fn(usize) -> Sample,
    weigh: fn(usize) -> f64,
}

impl Contestant {
    const fn of<M: Matcher>() -> Self {
        Self {
            name: M::NAME,
            introduce: introduce::<M>,
            wait: waiting::run::<M>,
            weigh: waiting::weigh::<M>,
        }
    }
}

/// How many there are on each side.
#[derive(Clone, Copy)]
struct Crowd {
    clients: usize,
    workers: usize,
}

const CROWDS: [Crowd; 4] = [crowd(1, 1), crowd(8, 8), crowd(64, 8), crowd(1000, 64)];

const fn crowd(clients: usize, workers: usize) -> Crowd {
    Crowd { clients, workers }
}

pub(crate) fn run(plan: &Plan, format: Format) {
    for crowd in CROWDS {
        let case = format!("{}+{}", crowd.clients, crowd.workers);
        contest(&case, plan, format, |contestant| {
            (contestant.introduce)(crowd, plan)
        });
    }
    for waiting in waiting::LENS {
        let case = format!("{waiting} waiting");
        contest(&case, plan, format, |contestant| {
            Ok((contestant.wait)(waiting))
        });
    }
}

/// Bytes of one of `len` that wait.
pub(crate) fn weigh(subject: &str, len: &str) -> f64 {
    let contestant = CONTESTANTS.iter().find(|known| known.name == subject);
    let contestant = contestant.expect("only known contestants are weighed");
    (contestant.weigh)(len.parse().expect("a length is a number"))
}

fn contest(
    case: &str,
    plan: &Plan,
    format: Format,
    run: impl Fn(&Contestant) -> Result<Sample, Stall> + Copy,
) {
    if !is_wanted("BENCH_CASE", case) {
        return;
    }
    let subjects: Vec<_> = CONTESTANTS
        .iter()
        .filter(|contestant| is_wanted("BENCH_SUBJECT", contestant.name))
        .map(|contestant| Subject {
            name: contestant.name,
            run: Box::new(move || run(contestant)),
        })
        .collect();
    print("broker", case, &compare(&subjects, plan), format);
}

fn introduce<M: Matcher>(crowd: Crowd, plan: &Plan) -> Result<Sample, Stall> {
    let pass = |stamps| {
        watch(crowd.clients, stamps, plan, |pass, tasks| {
            send_off::<M>(crowd, pass, tasks)
        })
    };
    let mut sample = pass(Stamps::Off)?;
    sample.extend(pass(Stamps::On)?);
    Ok(sample)
}

/// Set in the numbers of workers, so that an answer tells which side it came
/// from.
const WORKER: u64 = 1 << 32;

fn send_off<M: Matcher>(crowd: Crowd, pass: &Arc<Pass>, tasks: &mut JoinSet<()>) {
    let matcher = M::start();
    for worker in 0..crowd.workers as u64 {
        let (matcher, pass) = (matcher.clone(), Arc::clone(pass));
        tasks.spawn(async move {
            while pass.goes_on() {
                let client = matcher.offer(WORKER | worker).await;
                assert!(client < WORKER, "workers meet clients");
            }
        });
    }
    for client in 0..crowd.clients {
        let (matcher, pass) = (matcher.clone(), Arc::clone(pass));
        tasks.spawn(async move {
            while pass.goes_on() {
                let worker = pass.turn(client, || matcher.ask(client as u64)).await;
                assert!(worker >= WORKER, "clients meet workers");
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Poll;

    use tokio::runtime::Builder;

    use super::*;

    #[test]
    fn both_sides_get_the_number_of_the_other() {
        CONTESTANTS.iter().for_each(|contestant| {
            let plan = Plan::QUICK;
            let sample = (contestant.introduce)(crowd(3, 2), &plan).unwrap();
            assert_eq!(sample.len(), 6, "{}", contestant.name);
        });
    }

    #[test]
    fn a_cancelled_party_is_not_met() {
        check_cancel::<actor::Actor>();
        check_cancel::<mutex::Queues>();
        check_cancel::<channel::Channel>();
        check_cancel::<sketch::Sketch>();
    }

    fn check_cancel<M: Matcher>() {
        let runtime = Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let matcher = M::start();
            poll_once(matcher.ask(1)).await;
            poll_once(matcher.offer(WORKER)).await;
            tokio::task::yield_now().await;
            poll_once(matcher.offer(WORKER)).await;
            tokio::task::yield_now().await;

            let other = matcher.clone();
            let client = tokio::spawn(async move { other.ask(2).await });
            assert_eq!(matcher.offer(WORKER | 2).await, 2, "{}", M::NAME);
            assert_eq!(client.await.unwrap(), WORKER | 2, "{}", M::NAME);
        });
    }

    async fn poll_once(future: impl Future) {
        let mut future = pin!(future);
        std::future::poll_fn(|cx| {
            let _ = future.as_mut().poll(cx);
            Poll::Ready(())
        })
        .await;
    }
}
