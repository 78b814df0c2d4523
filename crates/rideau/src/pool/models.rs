//! What holds in every interleaving of threads that share a pool.
//!
//! Members start, stop and are checked at once here, on the thread that wants
//! it. Models say how they ended, and each test names every end there is.

#[path = "../../tests/loom/explore.rs"]
mod explore;

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::Waker;

use rideau_core::queue;

use super::*;
use explore::{at_once, explore_within};
use std::pin::pin;
use std::task::{Context, Poll};

/// How many times a thread may be stopped where it could go on: a step of a
/// pool has many such places, and three are enough to get between any two.
const PREEMPTIONS: usize = 3;

fn explore<T>(model: impl Fn() -> T + Send + Sync + 'static) -> Vec<T>
where
    T: Ord + Clone + Send + 'static,
{
    explore_within(PREEMPTIONS, model)
}

/// Counts how many of its members are alive. The counts are no part of what is
/// explored.
#[derive(Clone, Default)]
struct Numbers(Arc<(AtomicUsize, AtomicUsize)>);

struct Number {
    number: usize,
    alive: Numbers,
}

impl Drop for Number {
    fn drop(&mut self) {
        self.alive.0.1.fetch_sub(1, SeqCst);
    }
}

impl Manager for Numbers {
    type Member = Number;
    type Error = Infallible;

    async fn start(&self) -> Result<Number, Infallible> {
        let number = self.0.0.fetch_add(1, SeqCst);
        self.0.1.fetch_add(1, SeqCst);
        let alive = self.clone();
        Ok(Number { number, alive })
    }
}

impl Numbers {
    fn born(&self) -> usize {
        self.0.0.load(SeqCst)
    }

    fn alive(&self) -> usize {
        self.0.1.load(SeqCst)
    }
}

fn options(init: usize, max: usize) -> Options {
    Options {
        init,
        max,
        // No deadlines: there is no timer to keep them.
        idle_age_max: None,
        life_max: None,
        check_after: None,
        queue: queue::Options {
            shedding: queue::Shedding::Never,
            ..queue::Options::default()
        },
        ..Options::default()
    }
}

/// A pool whose members lie in the idle cache.
fn open(init: usize, max: usize) -> (Pool<Numbers>, Numbers) {
    let numbers = Numbers::default();
    let pool = Pool::new(numbers.clone(), options(init, max)).expect("these make sense");
    (pool, numbers)
}

type Owned = Held<'static, Numbers>;

fn take(pool: &Pool<Numbers>) -> Owned {
    pool.try_take_owned().expect("one is idle")
}

fn wait(pool: &Pool<Numbers>) -> Take<'static, Numbers> {
    let mut waiting = pool.take_owned(AskOptions::USUAL);
    assert!(poll(&mut waiting).is_none());
    waiting
}

/// The answer, if it is there.
fn poll(take: &mut Take<'static, Numbers>) -> Option<Result<Owned, NotTaken>> {
    let mut context = Context::from_waker(Waker::noop());
    match pin!(take).poll(&mut context) {
        Poll::Ready(answer) => Some(answer),
        Poll::Pending => None,
    }
}

/// The member that must be there by now.
fn served(take: &mut Take<'static, Numbers>) -> Owned {
    let answer = poll(take).expect("it has been answered");
    answer.expect("it has been served")
}

/// All members are idle, as many as are alive, and the numbers add up.
fn at_rest(pool: &Pool<Numbers>, numbers: &Numbers, idle: usize) {
    let stats = pool.stats();
    assert_eq!(stats.members.idle, idle);
    assert_eq!((stats.members.size(), numbers.alive()), (idle, idle));
    let takes = stats.takes;
    let ended = takes.served + takes.cancelled + takes.shed_total();
    assert_eq!(takes.came, ended);
}

#[test]
fn a_take_dropped_around_its_hand_over_leaves_the_member_to_the_next() {
    let ends = explore(|| {
        let (pool, numbers) = open(1, 1);
        let held = take(&pool);
        let first = wait(&pool);
        let mut second = wait(&pool);
        at_once(move || drop(held), move || drop(first));
        drop(served(&mut second));
        at_rest(&pool, &numbers, 1);
        assert_eq!(numbers.born(), 1);
        pool.stats().takes.cancelled
    });
    // Granted and declined, or withdrawn before.
    assert_eq!(ends, [0, 1]);
}

#[test]
fn a_member_put_back_during_an_ask_is_taken_or_handed_over() {
    let ends = explore(|| {
        let (pool, numbers) = open(1, 1);
        let held = take(&pool);
        let mut asking = pool.take_owned(AskOptions::USUAL);
        let ask = move || {
            let answer = poll(&mut asking).map(|held| held.expect("no take is refused"));
            (answer, asking)
        };
        let ((), (answer, mut asking)) = at_once(move || drop(held), ask);
        let end = match &answer {
            Some(_) => "taken",
            None => "handed over",
        };
        drop(answer.unwrap_or_else(|| served(&mut asking)));
        at_rest(&pool, &numbers, 1);
        end
    });
    assert_eq!(ends, ["handed over", "taken"]);
}

#[test]
fn no_take_overtakes_a_waiting_one() {
    let ends = explore(|| {
        let (pool, numbers) = open(1, 1);
        let held = take(&pool);
        let mut first = wait(&pool);
        let mut asking = pool.take_owned(AskOptions::USUAL);
        let ask = move || (poll(&mut asking).is_some(), asking);
        let ((), (overtook, mut second)) = at_once(move || drop(held), ask);
        assert!(!overtook);
        drop(served(&mut first));
        drop(served(&mut second));
        at_rest(&pool, &numbers, 1);
    });
    assert_eq!(ends, [()]);
}

#[test]
fn of_two_asks_at_a_release_both_are_served_in_the_end() {
    // Three threads have many more ways.
    let ends = explore_within(2, || {
        let (pool, numbers) = open(1, 1);
        let held = take(&pool);
        let ask = |pool: &Pool<Numbers>| {
            let mut asking = pool.take_owned(AskOptions::USUAL);
            move || {
                let answer = poll(&mut asking).map(|held| held.expect("no take is refused"));
                let at_once = answer.is_some();
                drop(answer);
                (at_once, asking)
            }
        };
        let other = loom::thread::spawn(ask(&pool));
        let (one, ()) = at_once(ask(&pool), move || drop(held));
        let other = other.join().expect("it asked");
        let mut waiting = Vec::from_iter([one, other]);
        waiting.retain(|(at_once, _)| !at_once);
        let count = waiting.len();
        // The take that came first is served first, and then the other.
        for _ in 0..count {
            waiting.retain_mut(|(_, asking)| poll(asking).is_none());
        }
        assert!(waiting.is_empty());
        at_rest(&pool, &numbers, 1);
        count
    });
    assert_eq!(ends, [0, 1, 2]);
}

#[test]
fn a_limit_that_falls_while_a_member_is_put_back_is_kept() {
    let ends = explore(|| {
        let (pool, numbers) = open(2, 2);
        let (one, other) = (take(&pool), take(&pool));
        let shrink = {
            let pool = pool.clone();
            move || pool.reconfigure(options(1, 1)).expect("these make sense")
        };
        at_once(move || drop(one), shrink);
        assert_eq!(numbers.alive(), 1);
        assert!(pool.try_take().is_err(), "one is out already");
        drop(other);
        at_rest(&pool, &numbers, 1);
        pool.stats().retired_for(core::Retired::Surplus)
    });
    assert_eq!(ends, [1]);
}

#[test]
fn a_member_taken_while_the_pool_closes_goes_when_it_is_released() {
    let ends = explore(|| {
        let (pool, numbers) = open(1, 1);
        let mut asking = pool.take_owned(AskOptions::USUAL);
        let ask = move || poll(&mut asking).expect("no take waits for a closing pool");
        let close = {
            let pool = pool.clone();
            move || {
                let mut context = Context::from_waker(Waker::noop());
                pin!(pool.close(Duration::MAX)).poll(&mut context)
            }
        };
        let (answer, _) = at_once(ask, close);
        let end = match answer {
            Ok(held) => {
                assert_eq!(numbers.alive(), 1);
                drop(held);
                "taken"
            }
            Err(refused) => refused.refusal.reason.word(),
        };
        assert!(pool.driver.look(|tables, _| tables.pool.is_closed()));
        at_rest(&pool, &numbers, 0);
        end
    });
    assert_eq!(ends, ["closed", "taken"]);
}

/// The taker has the member out of the idle cache, but has to bring it to be checked.
#[test]
fn a_stale_member_taken_while_the_pool_closes_is_not_forgotten() {
    let ends = explore(|| {
        let (pool, numbers) = open(1, 1);
        let check = Options {
            check_after: Some(Duration::ZERO),
            ..options(1, 1)
        };
        pool.reconfigure(check).expect("these make sense");
        let mut asking = pool.take_owned(AskOptions::USUAL);
        let ask = move || (poll(&mut asking), asking);
        let close = {
            let pool = pool.clone();
            move || {
                let mut context = Context::from_waker(Waker::noop());
                pin!(pool.close(Duration::MAX)).poll(&mut context)
            }
        };
        let ((answer, mut asking), _) = at_once(ask, close);
        let answer = answer.or_else(|| poll(&mut asking));
        let end = answer.expect("no take waits for a closed pool").is_ok();
        assert!(pool.driver.look(|tables, _| tables.pool.is_closed()));
        at_rest(&pool, &numbers, 0);
        end
    });
    assert_eq!(ends, [false, true]);
}

/// The holder looks whether its member may be used again, and then puts it
/// back; in between it is lost.
#[test]
fn a_member_lost_while_it_is_put_back_stays_nowhere() {
    let ends = explore(|| {
        let (pool, numbers) = open(1, 1);
        let held = take(&pool);
        let id = Held::about(&held).id;
        let lose = {
            let pool = pool.clone();
            move || {
                pool.driver.step(|step| {
                    let pool = &mut step.machine.pool;
                    pool.lost(0, id, step.now, step.effects);
                });
            }
        };
        at_once(move || drop(held), lose);
        // The pool has not been asked anything since.
        assert_eq!((numbers.born(), numbers.alive()), (2, 1));
        assert_eq!(take(&pool).number, 1);
        at_rest(&pool, &numbers, 1);
        pool.stats().retired_for(core::Retired::Lost)
    });
    assert_eq!(ends, [1]);
}

/// Its holder may have taken it without asking.
#[test]
fn a_member_taken_while_all_are_replaced_goes_at_its_release() {
    let ends = explore(|| {
        let (pool, numbers) = open(1, 1);
        let replace = {
            let pool = pool.clone();
            move || pool.replace(Duration::ZERO)
        };
        let first = {
            let pool = pool.clone();
            move || pool.try_take().ok().map(|held| held.number)
        };
        let (number, ()) = at_once(first, replace);
        assert_eq!((numbers.born(), numbers.alive()), (2, 1));
        assert_eq!(take(&pool).number, 1);
        at_rest(&pool, &numbers, 1);
        number
    });
    // Between the two there is none for a while.
    assert_eq!(ends, [None, Some(0), Some(1)]);
}

#[test]
fn nothing_is_taken_once_the_pool_is_suspended() {
    let ends = explore(|| {
        let (pool, numbers) = open(1, 1);
        let suspend = {
            let pool = pool.clone();
            move || {
                pool.suspend();
                pool.try_take().is_ok()
            }
        };
        let (taken, after) = at_once(|| pool.try_take().map(drop), suspend);
        assert!(!after);
        assert_eq!(pool.stats().members.idle, 1);
        let mut waiting = wait(&pool);
        pool.resume();
        drop(served(&mut waiting));
        drop(waiting);
        at_rest(&pool, &numbers, 1);
        taken.is_ok()
    });
    assert_eq!(ends, [false, true]);
}
