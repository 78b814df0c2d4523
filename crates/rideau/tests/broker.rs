//! What the handle adds to the broker: waits as futures, peers, ends of tasks.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use rideau::{
    AskOptions, Broker, BrokerOptions, Clock, Ended, Flow, Lead, Now, Reason, Side, Tag, meter,
    queue,
};

const MS: Duration = Duration::from_millis(1);

#[tokio::test(start_paused = true)]
async fn a_match_swaps_values_and_tells_lead_and_wait() {
    let broker = paused(never());
    let worker = tokio::spawn({
        let broker = broker.clone();
        async move { broker.offer(7).await.unwrap() }
    });
    tokio::time::sleep(20 * MS).await;
    let client = broker.ask("anna").await.unwrap();
    let worker = worker.await.unwrap();

    assert_eq!((client.value, worker.value), (7, "anna"));
    assert_eq!(client.ticket, worker.ticket);
    assert_eq!(worker.lead, Lead::from_nanos(20_000_000));
    assert_eq!(client.lead, worker.lead.reversed());
    assert_eq!(worker.waited, 20 * MS);
    assert_eq!(client.waited, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn an_ask_is_shed_at_its_time_even_if_no_offer_comes() {
    let broker = paused(timeout(50 * MS));
    let refused = broker.ask("anna").await.unwrap_err();
    assert_eq!(refused.value, "anna");
    assert_eq!(refused.refusal.reason, Reason::Timeout);
    assert_eq!(refused.refusal.waited, 50 * MS);
    assert_eq!(refused.refusal.len, 0);

    let terms = AskOptions {
        wait_max: Some(10 * MS),
        ..AskOptions::default()
    };
    let refused = broker.ask_on("bert", terms).await.unwrap_err();
    assert_eq!(refused.refusal.reason, Reason::Deadline);
    assert_eq!(refused.refusal.waited, 10 * MS);
    assert!(
        refused.to_string().contains("its own deadline came"),
        "{refused}"
    );
}

/// D19: giving up an ask takes it out of the queue.
#[tokio::test(start_paused = true)]
async fn dropping_the_future_cancels_the_ask() {
    let broker = paused(never());
    let waited = tokio::time::timeout(5 * MS, broker.ask("anna")).await;
    assert!(waited.is_err());
    assert_eq!(broker.len(Side::Ask), 0);
    assert_eq!(broker.stats().asks.cancelled, 1);
    assert_eq!(
        broker.try_offer(1).unwrap_err().refusal.reason,
        Reason::Busy
    );
}

#[tokio::test]
async fn a_future_that_is_never_polled_never_asks() {
    let broker = broker(never());
    drop(broker.ask("anna"));
    assert_eq!(broker.stats().asks.came, 0);
}

#[tokio::test]
async fn a_match_that_is_not_collected_ends_the_peer() {
    let broker = broker(never());
    let mut asking = broker.begin_ask("anna", AskOptions::default());
    assert!(poll_once(&mut asking).is_pending());
    let mut worker = broker.offer(1).await.unwrap();
    assert_eq!(worker.peer.has_ended(), None);
    drop(asking);
    assert_eq!(worker.peer.ended().await, Ended::Down);
}

#[tokio::test]
async fn both_learn_how_the_other_ended() {
    for how in [Ended::Done, Ended::Down] {
        let broker = broker(never());
        let asking = broker.begin_ask("anna", AskOptions::default());
        let worker = broker.offer(1).await.unwrap();
        let mut client = asking.await.unwrap();
        let watching = tokio::spawn(async move { client.peer.ended().await });
        tokio::task::yield_now().await;
        match how {
            Ended::Done => worker.peer.done(),
            Ended::Down => drop(worker),
        }
        assert_eq!(watching.await.unwrap(), how);
    }
}

#[tokio::test]
async fn a_panicking_party_is_seen_to_go_down() {
    let broker = broker(never());
    let asking = broker.begin_ask("anna", AskOptions::default());
    let worker = tokio::spawn({
        let broker = broker.clone();
        async move {
            let _met = broker.offer(1).await.unwrap();
            panic!("on purpose");
        }
    });
    let mut client = asking.await.unwrap();
    assert_eq!(client.peer.ended().await, Ended::Down);
    assert!(worker.await.unwrap_err().is_panic());
}

#[tokio::test]
async fn a_try_never_waits() {
    let broker = broker(never());
    assert_eq!(
        broker.try_ask("anna").unwrap_err().refusal.reason,
        Reason::Busy
    );
    let offering = broker.begin_offer(3, AskOptions::default());
    assert_eq!(broker.try_ask("bert").unwrap().value, 3);
    assert_eq!(offering.await.unwrap().value, "bert");
}

#[tokio::test]
async fn asking_now_gives_the_answer_or_the_wait_for_it() {
    let broker = broker(never());
    let Now::Waiting(asking) = broker.ask_now("anna", AskOptions::default()) else {
        panic!("there is no offer yet");
    };
    assert!(asking.ticket().is_some());
    let Now::Answered(worker) = broker.offer_now(5, AskOptions::default()) else {
        panic!("anna waits");
    };
    assert_eq!(worker.unwrap().value, "anna");
    assert_eq!(asking.await.unwrap().value, 5);
}

#[tokio::test]
async fn an_ask_cancelled_by_ticket_or_tag_gets_an_answer() {
    let broker = broker(never());
    let one = broker.begin_ask("anna", AskOptions::default());
    let ticket = one.ticket().unwrap();
    assert!(broker.cancel(ticket));
    assert!(!broker.cancel(ticket));
    assert_eq!(one.await.unwrap_err().refusal.reason, Reason::Cancelled);

    let terms = AskOptions {
        tag: Some(Tag(9)),
        ..AskOptions::default()
    };
    let tagged = [broker.begin_ask("a", terms), broker.begin_ask("b", terms)];
    let other = broker.begin_ask("c", AskOptions::default());
    assert_eq!(broker.cancel_tag(Tag(9)), 2);
    for asking in tagged {
        assert_eq!(asking.await.unwrap_err().refusal.reason, Reason::Cancelled);
    }
    assert_eq!(broker.len(Side::Ask), 1);
    drop(other);
    assert!(broker.is_empty());
}

#[test]
fn plain_threads_meet_without_a_runtime() {
    let broker = broker(timeout(Duration::from_secs(30)));
    let worker = thread::spawn({
        let broker = broker.clone();
        move || {
            broker
                .offer_blocking(4, AskOptions::default())
                .unwrap()
                .value
        }
    });
    let client = broker.ask_blocking("anna", AskOptions::default()).unwrap();
    assert_eq!(client.value, 4);
    assert_eq!(worker.join().unwrap(), "anna");
}

#[test]
fn a_thread_is_shed_at_its_time_without_a_runtime() {
    let broker = broker(timeout(2 * MS));
    let refused = broker
        .ask_blocking("anna", AskOptions::default())
        .unwrap_err();
    assert_eq!(refused.refusal.reason, Reason::Timeout);
    assert!(refused.refusal.waited >= 2 * MS);
}

#[tokio::test]
async fn closing_answers_all_that_wait() {
    let broker = broker(never());
    let asking = broker.begin_ask("anna", AskOptions::default());
    broker.close();
    assert_eq!(asking.await.unwrap_err().refusal.reason, Reason::Closed);
    assert_eq!(
        broker.offer(1).await.unwrap_err().refusal.reason,
        Reason::Closed
    );
}

#[tokio::test]
async fn the_last_handle_closes_the_broker_and_all_that_wait_are_told() {
    let broker = broker(never());
    let asking = broker.begin_ask("anna", AskOptions::default());
    let clone = broker.clone();
    drop(broker);
    assert_eq!(clone.len(Side::Ask), 1);
    drop(clone);
    assert_eq!(asking.await.unwrap_err().refusal.reason, Reason::Closed);
}

#[test]
fn a_thread_can_wait_for_a_ticket_it_holds() {
    let broker = broker(timeout(2 * MS));
    let asking = broker.begin_ask("anna", AskOptions::default());
    assert_eq!(asking.wait().unwrap_err().refusal.reason, Reason::Timeout);
}

#[tokio::test(start_paused = true)]
async fn a_change_keeps_all_that_wait_and_wakes_the_timer() {
    let broker = paused(never());
    let asking = broker.begin_ask("anna", AskOptions::default());
    tokio::time::sleep(5 * MS).await;
    broker.reconfigure(timeout(20 * MS)).unwrap();
    let refused = asking.await.unwrap_err();
    assert_eq!(refused.refusal.waited, 20 * MS);

    let mut bad = never();
    bad.asks.min = 2;
    bad.asks.max = Some(1);
    let error = broker.reconfigure(bad).unwrap_err();
    assert_eq!(
        error.to_string(),
        "option `asks.min` is over `max`; lower it or raise `max`"
    );
    assert_eq!(broker.options(), timeout(20 * MS));
}

#[tokio::test]
async fn flows_are_served_in_turn() {
    let fair = queue::Options {
        fair: Some(queue::FairOptions::default()),
        ..never().asks
    };
    let broker = broker(BrokerOptions {
        asks: fair,
        ..never()
    });
    let flow = |name: &str| AskOptions {
        flow: Flow::of(name),
        ..AskOptions::default()
    };
    let asked = ["a1", "a2", "b1"].map(|name| broker.begin_ask(name, flow(&name[..1])));
    for expected in ["a1", "b1", "a2"] {
        assert_eq!(broker.try_offer(1).unwrap().value, expected);
    }
    drop(asked);
}

#[tokio::test(start_paused = true)]
async fn the_timer_task_ends_with_the_broker() {
    let runtime = tokio::runtime::Handle::current().metrics();
    let before = runtime.num_alive_tasks();
    let broker = paused(timeout(50 * MS));
    let asking = broker.begin_ask("anna", AskOptions::default());
    assert_eq!(runtime.num_alive_tasks(), before + 1);
    drop(broker);
    drop(asking);
    while runtime.num_alive_tasks() > before {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_task_that_always_finds_a_match_lets_others_run() {
    let broker = broker(never());
    let workers: Vec<_> = (0..8)
        .map(|n| broker.begin_offer(n, AskOptions::default()))
        .collect();
    let others = Arc::new(AtomicUsize::new(0));
    let client = tokio::spawn({
        let others = Arc::clone(&others);
        async move {
            for n in 0..8 {
                assert_eq!(broker.ask("anna").await.unwrap().value, n);
            }
            others.load(SeqCst)
        }
    });
    tokio::spawn(async move { others.fetch_add(1, SeqCst) });
    assert_eq!(client.await.unwrap(), 1);
    drop(workers);
}

#[tokio::test]
async fn a_single_poll_finds_a_waiting_offer() {
    let broker = broker(never());
    for n in 0..8 {
        let _worker = broker.begin_offer(n, AskOptions::default());
        let look = pin!(broker.ask("anna")).poll(&mut Context::from_waker(Waker::noop()));
        let Poll::Ready(met) = look else {
            panic!("an offer was there");
        };
        assert_eq!(met.unwrap().value, n);
    }
}

#[tokio::test]
async fn what_was_brought_is_dropped_outside_the_lock_and_once() {
    let drops = Arc::new(AtomicUsize::new(0));
    let broker: Broker<Curious, u32> = Broker::new(never()).unwrap();
    let curious = || Curious(Arc::clone(&drops), Some(broker.clone()));
    drop(broker.begin_ask(curious(), AskOptions::default()));
    let asking = broker.begin_ask(curious(), AskOptions::default());
    drop(broker.offer(1).await.unwrap());
    drop(asking);
    drop(broker.try_ask(curious()));
    let asking = broker.begin_ask(curious(), AskOptions::default());
    broker.close();
    drop(asking);
    assert_eq!(drops.load(SeqCst), 4);
}

#[tokio::test(start_paused = true)]
async fn a_protector_turns_asks_away_while_there_are_no_offers() {
    let options = BrokerOptions {
        meters: vec![meter::Options::Pie(meter::Pie::default())],
        ..timeout(Duration::from_secs(5))
    };
    let broker = paused(options);
    let mut waiting = Vec::new();
    let mut turned_away = 0;
    for _ in 0..4000 {
        tokio::time::sleep(5 * MS).await;
        match broker.ask_now("anna", AskOptions::default()) {
            Now::Waiting(asking) => waiting.push(asking),
            Now::Answered(Err(refused)) => {
                assert_eq!(refused.refusal.reason, Reason::Protected);
                turned_away += 1;
            }
            Now::Answered(Ok(_)) => panic!("there is no offer"),
        }
    }
    assert!(turned_away > 1000, "{turned_away}");
    assert_eq!(broker.stats().asks.shed_for(Reason::Protected), turned_away);
    assert_eq!(broker.stats().asks.came, 4000);
    let explained = broker.explain();
    assert!(
        explained.contains(&format!("turned {turned_away} asks away")),
        "{explained}"
    );
    // D17: control calls are never turned away.
    let last = waiting.last().unwrap().ticket().unwrap();
    for _ in 0..100 {
        assert!(broker.len(Side::Ask) > 0);
    }
    assert!(broker.cancel(last));
}

#[tokio::test(start_paused = true)]
async fn a_meter_publishes_the_wait_to_expect_and_raises_no_false_alarm() {
    let options = BrokerOptions {
        meters: vec![
            meter::Options::Better(meter::Better::default()),
            meter::Options::Overload(meter::Overload::default()),
        ],
        read_after: 1,
        ..never()
    };
    let broker = paused(options);
    let _asking = broker.begin_ask("anna", AskOptions::default());
    tokio::time::sleep(300 * MS).await;
    let expects = broker.rank().expects(Side::Ask).unwrap();
    assert!(expects >= 200 * MS, "{expects:?}");
    assert_eq!(broker.rank().expects(Side::Offer), Some(Duration::ZERO));
    assert!(broker.alarms().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_broker_explains_itself() {
    let broker = paused(timeout(10 * MS));
    for _ in 0..3 {
        let _ = broker.ask("anna").await;
    }
    let explained = broker.explain();
    assert!(explained.contains("3 (timeout)"), "{explained}");
    assert!(
        explained.contains("No worker has offered itself yet"),
        "{explained}"
    );
}

#[tokio::test(start_paused = true)]
async fn the_broker_names_the_option_that_would_help() {
    let broker = paused(BrokerOptions::default());
    assert!(broker.try_ask("anna").is_err());
    let explained = broker.explain();
    let advice = "Or wait for one (`WAIT`, `wait_max`) rather than ask only at once.";
    assert!(explained.contains(advice), "{explained}");

    let wait_cap = Some(5 * MS);
    let asks = queue::Options {
        shedding: queue::Shedding::Paced { wait_cap },
        ..queue::Options::default()
    };
    let options = BrokerOptions { asks, ..never() };
    broker.reconfigure(options).unwrap();
    let terms = AskOptions {
        wait_max: Some(10 * MS),
        ..AskOptions::default()
    };
    let refused = broker.ask_on("anna", terms).await.unwrap_err();
    assert_eq!(refused.refusal.reason, Reason::Deadline);
    let explained = broker.explain();
    let advice = "Or name a longer wait (`WAIT`, `wait_max`) up to the queue's `wait_cap` (5ms).";
    assert!(explained.contains(advice), "{explained}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_stress_every_ask_is_answered_once() {
    let broker: Broker<u64, u64> = Broker::new(BrokerOptions::default()).unwrap();
    let clients: Vec<_> = (0..32_u64)
        .map(|client| tokio::spawn(ask_and_give_up(broker.clone(), client)))
        .collect();
    let workers: Vec<_> = (0..8)
        .map(|_| {
            let broker = broker.clone();
            tokio::spawn(async move { while broker.offer(0).await.is_ok() {} })
        })
        .collect();
    let mut met = 0;
    for client in clients {
        met += client.await.unwrap();
    }
    broker.close();
    for worker in workers {
        worker.await.unwrap();
    }
    let stats = broker.stats();
    assert!(met <= stats.asks.served);
    assert_eq!(stats.asks.served, stats.offers.served);
    assert_eq!(stats.asks.came, 32 * 500);
    let ended = stats.asks.served + stats.asks.cancelled + stats.asks.shed_total();
    assert_eq!(ended, stats.asks.came);
    assert!(broker.is_empty());
}

/// Asks often, and every seventh time gives up at once, whatever happens to
/// the ask. Says how many matches it saw.
async fn ask_and_give_up(broker: Broker<u64, u64>, client: u64) -> u64 {
    let mut met = 0;
    for turn in 0..500 {
        let ask = broker.ask(client * 1000 + turn);
        let answer = if turn % 7 == 0 {
            poll_once(&mut pin!(ask))
        } else {
            Poll::Ready(ask.await)
        };
        met += u64::from(matches!(answer, Poll::Ready(Ok(_))));
    }
    met
}

/// Looks at the broker when it is dropped, which would hang under its lock.
struct Curious(Arc<AtomicUsize>, Option<Broker<Self, u32>>);

impl Drop for Curious {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
        if let Some(broker) = self.1.take() {
            let _ = broker.len(Side::Ask);
        }
    }
}

fn never() -> BrokerOptions {
    let queue = queue::Options {
        shedding: queue::Shedding::Never,
        ..queue::Options::default()
    };
    BrokerOptions {
        asks: queue.clone(),
        offers: queue,
        ..BrokerOptions::default()
    }
}

fn timeout(wait_max: Duration) -> BrokerOptions {
    BrokerOptions {
        asks: queue::Options::timeout(wait_max),
        ..never()
    }
}

fn broker(options: BrokerOptions) -> Broker<&'static str, u32> {
    Broker::new(options).unwrap()
}

fn paused(options: BrokerOptions) -> Broker<&'static str, u32> {
    Broker::new_by(options, &Clock::paused()).unwrap()
}

/// Poll once, without a later wake.
fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}
