//! What the handle adds to the regulator: waits as futures, leases as guards,
//! ends of tasks.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use rideau::valve::{self, Circuit};
use rideau::{
    AskOptions, Clock, Lead, Leasing, Now, Reason, Regulator, RegulatorOptions, Settings, Side,
    Tag, meter, queue,
};

const MS: Duration = Duration::from_millis(1);

/// V17 of the specification.
#[tokio::test(start_paused = true)]
async fn leads_and_waits_are_those_of_the_specification() {
    let start = tokio::time::Instant::now();
    let until = |millis| tokio::time::sleep_until(start + millis * MS);
    let regulator = paused("kind=relative target=100ms min=1 max=3");
    let lease_a = regulator.ask().await.unwrap();
    assert_eq!(
        (lease_a.lead(), lease_a.waited()),
        (lead(0), Duration::ZERO)
    );
    until(10).await;
    let mut asking_b = regulator.begin_ask(AskOptions::default());
    until(20).await;
    regulator.update(lead(150));
    assert!(poll_once(&mut asking_b).is_pending());
    until(30).await;
    regulator.update(lead(99));
    let lease_b = asking_b.await.unwrap();
    assert_eq!((lease_b.lead(), lease_b.waited()), (lead(20), 20 * MS));
    until(40).await;
    let asking_c = regulator.begin_ask(AskOptions::default());
    until(50).await;
    assert_eq!(lease_a.renew().unwrap_err().waited, Duration::ZERO);
    assert_eq!((regulator.size(), regulator.len()), (1, 1));
    until(60).await;
    regulator.update(lead(-5));
    let ticket = asking_c.ticket();
    let lease_c = asking_c.await.unwrap();
    assert_eq!((lease_c.lead(), lease_c.waited()), (lead(20), 20 * MS));
    assert_eq!(ticket, Some(lease_c.ticket()));
    until(70).await;
    assert!(lease_b.renew().is_err());
    until(75).await;
    let lease_c = lease_c.renew().unwrap();
    assert_eq!(
        (lease_c.lead(), lease_c.waited()),
        (lead(0), Duration::ZERO)
    );
    until(80).await;
    lease_c.release();
    assert!(regulator.stats().is_open);
    until(90).await;
    let lease_d = regulator.try_ask().unwrap();
    assert_eq!(
        (lease_d.lead(), lease_d.waited()),
        (lead(-10), Duration::ZERO)
    );
    until(95).await;
    let refusal = regulator.try_ask().unwrap_err();
    assert_eq!(
        (refusal.reason, refusal.waited),
        (Reason::Busy, Duration::ZERO)
    );
}

#[tokio::test]
async fn dropping_a_lease_releases_it_to_the_next() {
    let regulator = regulator("kind=open max=1");
    let lease = regulator.ask().await.unwrap();
    let asking = regulator.begin_ask(AskOptions::default());
    drop(lease);
    let lease = asking.await.unwrap();
    assert_eq!(regulator.size(), 1);
    lease.fail();
    let leases = regulator.stats().leases;
    assert_eq!((leases.released, leases.failed), (1, 1));
    assert_eq!(regulator.size(), 0);
}

#[tokio::test]
async fn a_panic_fails_the_lease() {
    let regulator = regulator("kind=open max=1");
    let task = tokio::spawn({
        let regulator = regulator.clone();
        async move {
            let _lease = regulator.ask().await.unwrap();
            tokio::task::yield_now().await;
            panic!("on purpose");
        }
    });
    assert!(task.await.unwrap_err().is_panic());
    assert_eq!(regulator.stats().leases.failed, 1);
    assert_eq!(regulator.size(), 0);
}

#[tokio::test]
async fn an_aborted_task_releases_its_lease() {
    let regulator = regulator("kind=open max=1");
    let task = tokio::spawn({
        let regulator = regulator.clone();
        async move {
            let _lease = regulator.ask().await.unwrap();
            std::future::pending::<()>().await;
        }
    });
    tokio::task::yield_now().await;
    assert_eq!(regulator.size(), 1);
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    assert_eq!(regulator.size(), 0);
    assert_eq!(regulator.stats().leases.released, 1);
}

/// D19: giving up an ask takes it out of the queue.
#[tokio::test(start_paused = true)]
async fn dropping_the_future_cancels_the_ask() {
    let regulator = paused("kind=open max=0");
    drop(regulator.ask());
    assert_eq!(regulator.stats().asks.came, 0, "it was never polled");
    let waited = tokio::time::timeout(5 * MS, regulator.ask()).await;
    assert!(waited.is_err());
    assert!(regulator.is_empty());
    assert_eq!(regulator.stats().asks.cancelled, 1);
}

#[tokio::test]
async fn a_grant_that_is_not_collected_goes_to_the_next() {
    let regulator = regulator("kind=open max=1");
    let lease = regulator.ask().await.unwrap();
    let mut first = regulator.begin_ask(AskOptions::default());
    let mut second = regulator.begin_ask(AskOptions::default());
    assert!(poll_once(&mut first).is_pending());
    assert!(poll_once(&mut second).is_pending());
    drop(lease);
    assert_eq!((regulator.size(), regulator.len()), (1, 1));
    drop(first);
    assert_eq!((regulator.size(), regulator.len()), (1, 0));
    drop(second.await.unwrap());
    assert_eq!((regulator.size(), regulator.len()), (0, 0));

    let mut answered = regulator.begin_ask(AskOptions::default());
    assert!(answered.ticket().is_some());
    assert_eq!(regulator.size(), 1);
    drop(answered);
    assert_eq!(regulator.size(), 0);
    answered = regulator.begin_ask(AskOptions::default());
    drop(answered.await.unwrap());
    assert_eq!(regulator.size(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_stress_no_lease_leaks() {
    let regulator = regulator("kind=open max=3");
    let tasks: Vec<_> = (0..16)
        .map(|task| tokio::spawn(ask_and_give_up(regulator.clone(), task)))
        .collect();
    let aborted: Vec<_> = (16..32)
        .map(|task| tokio::spawn(ask_and_give_up(regulator.clone(), task)))
        .collect();
    for (turn, task) in aborted.into_iter().enumerate() {
        for _ in 0..turn * 4 {
            tokio::task::yield_now().await;
        }
        task.abort();
        let _ = task.await;
    }
    for task in tasks {
        let ended = tokio::time::timeout(Duration::from_secs(30), task).await;
        ended.expect("a lost lease would keep it waiting").unwrap();
    }
    assert_eq!((regulator.size(), regulator.len()), (0, 0));
    let stats = regulator.stats();
    assert_eq!(stats.asks.served, stats.leases.ended());
    let ended = stats.asks.served + stats.asks.cancelled + stats.asks.shed_total();
    assert_eq!(ended, stats.asks.came);
    assert!(stats.asks.cancelled > 0);
}

/// Asks often, and gives up at a point that differs from turn to turn.
async fn ask_and_give_up(regulator: Regulator, task: u32) {
    for turn in 0..400_u32 {
        let draw = (task * 400 + turn).wrapping_mul(0x9e37_79b9) >> 16;
        if draw.is_multiple_of(3) {
            let lease = regulator.ask().await.unwrap();
            match draw % 4 {
                0 => drop(lease),
                1 => lease.fail(),
                2 => tokio::task::yield_now().await,
                _ => drop(lease.renew()),
            }
        } else {
            let mut ask = pin!(regulator.ask());
            for _ in 0..draw % 5 {
                if poll_once(&mut ask).is_ready() {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
    }
}

#[tokio::test]
async fn renewals_stop_when_there_are_leases_enough() {
    let regulator = regulator("kind=open max=2");
    let one = regulator.ask().await.unwrap();
    let other = regulator.ask().await.unwrap();
    let one = one.renew().unwrap();
    regulator.reconfigure(options("kind=open max=1")).unwrap();
    assert_eq!(regulator.size(), 2, "no holder loses a lease to a change");
    let stopped = one.renew().unwrap_err();
    assert_eq!(
        stopped.to_string(),
        "there are leases enough without this one"
    );
    assert_eq!(regulator.size(), 1);
    let other = other.renew().unwrap();
    regulator.close();
    assert!(other.renew().is_err(), "nothing is renewed at the end");
    let leases = regulator.stats().leases;
    assert_eq!((regulator.size(), leases.renewed), (0, 2));
}

#[tokio::test(start_paused = true)]
async fn an_ask_refused_by_a_rate_is_told_when_its_next_slot_is_free() {
    let regulator = paused("kind=rate limit=1 interval=100ms");
    tokio::time::sleep(30 * MS).await;
    let refusal = regulator.try_ask().unwrap_err();
    assert_eq!(refusal.retry_after, 70 * MS);
}

#[tokio::test(start_paused = true)]
async fn a_rate_opens_by_time_alone() {
    let regulator = paused("kind=rate limit=2 interval=100ms");
    let asks = [0; 3].map(|_| regulator.begin_ask(AskOptions::default()));
    let [one, two, three] = asks;
    let (one, two) = (one.await.unwrap(), two.await.unwrap());
    assert_eq!((one.waited(), two.waited()), (100 * MS, 100 * MS));
    drop(one);
    assert_eq!(three.await.unwrap().waited(), 200 * MS);
}

#[tokio::test(start_paused = true)]
async fn a_breaker_trips_on_failures_and_recovers_by_itself() {
    let regulator = paused("kind=breaker failures=2 window=2 pause=100ms");
    for _ in 0..2 {
        regulator.ask().await.unwrap().fail();
    }
    let circuit = || regulator.stats().valve[0].circuit.unwrap();
    assert!(matches!(circuit(), Circuit::Tripped { .. }));
    assert_eq!(regulator.try_ask().unwrap_err().reason, Reason::Busy);
    let probe = regulator.ask().await.unwrap();
    assert_eq!(probe.waited(), 100 * MS);
    assert!(matches!(circuit(), Circuit::Probing { granted: 1, .. }));
    probe.release();
    assert_eq!(circuit(), Circuit::Closed { failures: 0 });
    assert!(regulator.try_ask().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_change_keeps_leases_and_places() {
    let regulator = paused("kind=open max=1");
    let held = regulator.ask().await.unwrap();
    let first = regulator.begin_ask(AskOptions::default());
    let second = regulator.begin_ask(AskOptions::default());
    tokio::time::sleep(5 * MS).await;
    regulator.reconfigure(options("kind=open max=2")).unwrap();
    let first = first.await.unwrap();
    assert_eq!(first.waited(), 5 * MS);
    assert_eq!((regulator.size(), regulator.len()), (2, 1));

    let error = regulator
        .reconfigure(RegulatorOptions::new(valve::Options::LeastOf(Vec::new())))
        .unwrap_err();
    assert!(error.to_string().contains("is empty"), "{error}");
    assert_eq!(regulator.options(), options("kind=open max=2"));

    let shedding = RegulatorOptions {
        queue: queue::Options::timeout(20 * MS),
        ..options("kind=open max=2")
    };
    regulator.reconfigure(shedding).unwrap();
    let refusal = second.await.unwrap_err();
    assert_eq!((refusal.reason, refusal.waited), (Reason::Timeout, 20 * MS));
    drop((held, first));
    assert_eq!(regulator.size(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_ask_is_shed_at_its_own_deadline() {
    let regulator = paused("kind=open max=0");
    let terms = AskOptions {
        wait_max: Some(10 * MS),
        ..AskOptions::default()
    };
    let refusal = regulator.ask_on(terms).await.unwrap_err();
    assert_eq!(
        (refusal.reason, refusal.waited),
        (Reason::Deadline, 10 * MS)
    );
    let explained = regulator.explain();
    assert!(explained.contains("deadline"), "{explained}");
    assert!(regulator.alarms().is_empty());
}

#[tokio::test]
async fn an_ask_cancelled_by_ticket_or_tag_gets_an_answer() {
    let regulator = regulator("kind=open max=1");
    let lease = regulator.ask().await.unwrap();
    assert!(!regulator.cancel(lease.ticket()), "a lease does not wait");
    let one = regulator.begin_ask(AskOptions::default());
    let ticket = one.ticket().unwrap();
    assert!(regulator.cancel(ticket));
    assert!(!regulator.cancel(ticket));
    assert_eq!(one.await.unwrap_err().reason, Reason::Cancelled);

    let terms = AskOptions {
        tag: Some(Tag(9)),
        ..AskOptions::default()
    };
    let tagged = [regulator.begin_ask(terms), regulator.begin_ask(terms)];
    let other = regulator.begin_ask(AskOptions::default());
    assert_eq!(regulator.cancel_tag(Tag(9)), 2);
    for asking in tagged {
        assert_eq!(asking.await.unwrap_err().reason, Reason::Cancelled);
    }
    lease.release();
    assert!(other.await.is_ok());
}

#[tokio::test]
async fn asking_now_gives_the_answer_or_the_wait_for_it() {
    let regulator = regulator("kind=open max=1");
    let Now::Answered(lease) = regulator.ask_now(AskOptions::default()) else {
        panic!("no lease is held yet");
    };
    let Now::Waiting(leasing) = regulator.ask_now(AskOptions::default()) else {
        panic!("there is one lease");
    };
    lease.unwrap().release();
    assert!(leasing.await.is_ok());
}

#[tokio::test]
async fn closing_answers_every_ask_and_leaves_leases_alone() {
    let regulator = regulator("kind=open max=1");
    let lease = regulator.ask().await.unwrap();
    let asking = regulator.begin_ask(AskOptions::default());
    regulator.close();
    assert_eq!(asking.await.unwrap_err().reason, Reason::Closed);
    assert_eq!(regulator.ask().await.unwrap_err().reason, Reason::Closed);
    assert_eq!(regulator.size(), 1);
    lease.release();
    assert_eq!(regulator.size(), 0);
}

#[test]
fn plain_threads_wait_without_a_runtime() {
    let regulator = regulator("kind=open max=1");
    let inside = Arc::new(AtomicUsize::new(0));
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let (regulator, inside) = (regulator.clone(), Arc::clone(&inside));
            thread::spawn(move || {
                for _ in 0..50 {
                    let _lease = regulator.ask_blocking(AskOptions::default()).unwrap();
                    assert_eq!(inside.fetch_add(1, SeqCst), 0);
                    inside.fetch_sub(1, SeqCst);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(regulator.size(), 0);
    assert_eq!(regulator.stats().leases.released, 200);
}

#[test]
fn time_moves_on_without_a_runtime() {
    let since = std::time::Instant::now();
    let regulator = regulator("kind=rate limit=1 interval=2ms");
    let _lease = regulator.ask_blocking(AskOptions::default()).unwrap();
    // The thread may have been kept from asking until then.
    assert!(since.elapsed() >= 2 * MS);
    let terms = AskOptions {
        wait_max: Some(2 * MS),
        ..AskOptions::default()
    };
    let refusal = regulator.ask_blocking(terms).unwrap_err();
    assert_eq!(refusal.reason, Reason::Deadline);
}

#[tokio::test(start_paused = true)]
async fn the_timer_task_ends_with_the_last_of_handle_wait_and_lease() {
    let runtime = tokio::runtime::Handle::current().metrics();
    let before = runtime.num_alive_tasks();
    let regulator = paused("kind=open max=1");
    let lease = regulator.ask().await.unwrap();
    let asking = regulator.begin_ask(AskOptions::default());
    drop(regulator);
    drop(lease);
    let lease = asking.await.unwrap();
    assert_eq!(runtime.num_alive_tasks(), before + 1);
    drop(lease);
    while runtime.num_alive_tasks() > before {
        tokio::task::yield_now().await;
    }
}

/// D17: only asks are ever refused by the protector.
#[tokio::test(start_paused = true)]
async fn a_protector_turns_asks_away_but_never_a_holder() {
    let regulator = Regulator::new_by(
        RegulatorOptions {
            queue: queue::Options::timeout(Duration::from_secs(5)),
            meters: vec![meter::Options::Pie(meter::Pie::default())],
            ..options("kind=open max=1")
        },
        &Clock::paused(),
    )
    .unwrap();
    let mut lease = regulator.ask().await.unwrap();
    let mut waiting: Vec<Leasing> = Vec::new();
    let mut turned_away = 0;
    for _ in 0..4000 {
        tokio::time::sleep(5 * MS).await;
        match regulator.ask_now(AskOptions::default()) {
            Now::Waiting(leasing) => waiting.push(leasing),
            Now::Answered(Err(refusal)) => {
                assert_eq!(refusal.reason, Reason::Protected);
                turned_away += 1;
            }
            Now::Answered(Ok(_)) => panic!("there is one lease"),
        }
    }
    assert!(turned_away > 1000, "{turned_away}");
    let last = waiting.last().unwrap().ticket().unwrap();
    for _ in 0..100 {
        lease = lease.renew().unwrap();
        regulator.update(lead(1));
        assert!(!regulator.is_empty());
    }
    assert!(regulator.cancel(last));
    waiting.clear();
    lease.release();
    assert_eq!((regulator.size(), regulator.len()), (0, 0));
}

#[tokio::test]
async fn a_waker_that_is_woken_or_dropped_may_look_at_the_regulator() {
    let regulator = regulator("kind=open max=1");
    let looks = Arc::new(AtomicUsize::new(0));
    let lease = regulator.ask().await.unwrap();
    for gives_up in [true, false] {
        let curious = Arc::new(Curious(regulator.clone(), Arc::clone(&looks)));
        let mut asking = regulator.begin_ask(AskOptions::default());
        let waker = Waker::from(curious);
        assert!(
            pin!(&mut asking)
                .poll(&mut Context::from_waker(&waker))
                .is_pending()
        );
        drop(waker);
        if gives_up {
            drop(asking);
            assert_eq!(looks.load(SeqCst), 1, "its waker was dropped");
        } else {
            regulator.close();
            assert_eq!(looks.load(SeqCst), 3, "it was woken and dropped");
        }
    }
    drop(lease);
}

#[tokio::test(start_paused = true)]
async fn a_regulator_feeds_another() {
    let entry = meter::Entry {
        regulator: "second".into(),
        side: Side::Ask,
        update: 10 * MS,
    };
    let update = meter::Update {
        entries: vec![entry],
        seed: 1,
    };
    let first = Regulator::new_by(
        RegulatorOptions {
            meters: vec![meter::Options::Update(update)],
            read_after: 1,
            ..options("kind=open max=1")
        },
        &Clock::paused(),
    )
    .unwrap();
    let second = paused("kind=relative target=-10ms max=1");
    first.feed("second", &second);
    // The first stands open and no ask comes: its lead falls below the target.
    let lease = second.ask().await.unwrap();
    assert!(lease.waited() >= 10 * MS);
    drop((lease, second));
    tokio::time::sleep(100 * MS).await;
    assert!(first.try_ask().is_ok());
}

/// Looks at the regulator when it is woken and when it is dropped, which would
/// hang under its lock.
struct Curious(Regulator, Arc<AtomicUsize>);

impl Curious {
    fn look(&self) {
        self.1.fetch_add(1, SeqCst);
        let _ = self.0.len();
    }
}

impl Wake for Curious {
    fn wake(self: Arc<Self>) {
        self.look();
    }
}

impl Drop for Curious {
    fn drop(&mut self) {
        self.look();
    }
}

/// A valve by its words, behind a queue that sheds no ask.
fn options(valve: &str) -> RegulatorOptions {
    let valve = valve::Options::parse(Settings::parse(valve).unwrap()).unwrap();
    let queue = queue::Options {
        shedding: queue::Shedding::Never,
        ..queue::Options::default()
    };
    RegulatorOptions {
        queue,
        ..RegulatorOptions::new(valve)
    }
}

fn regulator(valve: &str) -> Regulator {
    Regulator::new(options(valve)).unwrap()
}

fn paused(valve: &str) -> Regulator {
    Regulator::new_by(options(valve), &Clock::paused()).unwrap()
}

fn lead(millis: i64) -> Lead {
    Lead::from_nanos(millis * 1_000_000)
}

/// Poll once, without a later wake.
fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}
