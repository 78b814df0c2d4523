//! No waiting take is overtaken, whatever threads do.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rideau::{AskOptions, Held, Manager, NotTaken, Pool, PoolOptions, Take, queue};
use tokio::runtime::Builder;
use tokio::task::yield_now;

use crate::rig::patient;

/// Enough for more than one shard of idle members.
const MEMBERS: usize = 8;
const TASKS: usize = 64;
const TURNS: usize = 400;
const HOUR: Duration = Duration::from_secs(3600);

struct Units;

impl Manager for Units {
    type Member = ();
    type Error = Infallible;

    async fn start(&self) -> Result<(), Infallible> {
        Ok(())
    }
}

type Answer = Result<Held<'static, Units>, NotTaken>;

/// A take that returned `Pending`.
struct Waiting {
    /// The moment after which it certainly waits.
    since: u64,
    /// Of the task that waits.
    waker: Waker,
    take: Take<'static, Units>,
    answer: Option<Answer>,
}

impl Waiting {
    /// Whether the pool has answered. The task need not have been woken yet.
    fn is_answered(&mut self) -> bool {
        let mut context = Context::from_waker(&self.waker);
        if self.answer.is_none()
            && let Poll::Ready(answer) = Pin::new(&mut self.take).poll(&mut context)
        {
            self.answer = Some(answer);
        }
        self.answer.is_some()
    }
}

/// A pool, and the take that each task waits for, where the others can look at
/// it.
struct Hall {
    pool: Pool<Units>,
    /// Counts what the tasks do, so that all agree what came before what.
    moments: AtomicU64,
    waiting: Vec<Mutex<Option<Waiting>>>,
}

impl Hall {
    fn next_moment(&self) -> u64 {
        self.moments.fetch_add(1, SeqCst)
    }

    /// Take a member. All takes that waited before this one came must have been
    /// answered by then.
    async fn take(&self, task: usize, terms: AskOptions) -> Answer {
        let came = self.next_moment();
        let answer = poll_fn(|context| self.poll(task, &terms, context)).await;
        if answer.is_ok() {
            for other in &self.waiting {
                let mut other = other.lock().unwrap();
                let earlier = other.as_mut().filter(|other| other.since < came);
                let is_overtaken = earlier.is_some_and(|earlier| !earlier.is_answered());
                assert!(!is_overtaken, "a take that waited was overtaken");
            }
        }
        answer
    }

    fn poll(&self, task: usize, terms: &AskOptions, context: &mut Context<'_>) -> Poll<Answer> {
        let mut place = self.waiting[task].lock().unwrap();
        if let Some(waiting) = &mut *place {
            if !waiting.is_answered() {
                return Poll::Pending;
            }
            let answer = place.take().and_then(|waiting| waiting.answer);
            return Poll::Ready(answer.expect("it was answered"));
        }
        let mut take = self.pool.take_owned(*terms);
        let answer = Pin::new(&mut take).poll(context);
        if answer.is_pending() {
            *place = Some(Waiting {
                since: self.next_moment(),
                waker: context.waker().clone(),
                take,
                answer: None,
            });
        }
        answer
    }

    /// Ask for a member, and leave at once if there is none.
    async fn look_in(&self) {
        let mut take = self.pool.take();
        let answer = poll_fn(|context| Poll::Ready(Pin::new(&mut take).poll(context)));
        drop(answer.await);
    }
}

/// Many tasks on few members; says how many takes were served.
fn crowd(queue: queue::Options, is_restless: bool) -> usize {
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .unwrap();
    let options = PoolOptions {
        init: MEMBERS,
        max: MEMBERS,
        queue,
        ..PoolOptions::default()
    };
    runtime.block_on(async {
        let hall = Arc::new(Hall {
            pool: Pool::start(Units, options).await.unwrap(),
            moments: AtomicU64::new(0),
            waiting: (0..TASKS).map(|_| Mutex::default()).collect(),
        });
        let tasks = (0..TASKS).map(|task| {
            let hall = Arc::clone(&hall);
            tokio::spawn(async move {
                let mut served = 0;
                for turn in 0..TURNS {
                    let terms = AskOptions {
                        // By the default law takes that name their wait are
                        // kept apart.
                        wait_max: (task % 2 == 0).then_some(HOUR),
                        ..AskOptions::default()
                    };
                    let answer = hall.take(task, terms).await;
                    yield_now().await;
                    served += usize::from(answer.is_ok());
                    drop(answer);
                    if is_restless && turn % 16 == task % 16 {
                        hall.look_in().await;
                    }
                }
                served
            })
        });
        let mut served = 0;
        for task in tasks.collect::<Vec<_>>() {
            served += task.await.unwrap();
        }
        served
    })
}

#[test]
fn a_take_that_waits_is_served_before_every_take_that_comes_later() {
    assert_eq!(crowd(patient(), false), TASKS * TURNS);
}

#[test]
fn takes_that_are_given_up_change_no_other_turn() {
    assert_eq!(crowd(patient(), true), TASKS * TURNS);
}

/// Takes that name no wait may be shed on a machine that stands still.
#[test]
fn takes_that_name_their_wait_and_takes_that_do_not_stand_in_one_line() {
    assert!(crowd(queue::Options::default(), false) >= TASKS / 2 * TURNS);
}
