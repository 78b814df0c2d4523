//! What the handle adds to the balancer: names, ranks and threads.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::collections::HashSet;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rideau::{
    AskOptions, Balancer, BalancerMethod, Broker, BrokerOptions, Clock, Rank, Regulator,
    RegulatorOptions, Side, meter, queue, valve,
};

const ALL: [BalancerMethod; 5] = [
    BalancerMethod::Random,
    BalancerMethod::ByThread,
    BalancerMethod::Better,
    BalancerMethod::MostlyRandom,
    BalancerMethod::MostlyByThread,
];

#[test]
fn no_candidate_leaves_no_choice_and_one_is_always_it() {
    for method in ALL {
        let balancer = Balancer::new(method, Side::Ask);
        assert!(balancer.is_empty());
        assert_eq!(balancer.choose(), None);
        balancer.add("a", 1, None);
        assert_eq!(balancer.choose().as_deref(), Some(&1), "{method:?}");
        assert_eq!(balancer.remove("a").as_deref(), Some(&1));
        assert_eq!(balancer.remove("a"), None);
        assert_eq!(balancer.choose(), None);
    }
}

#[test]
fn chance_reaches_every_candidate() {
    let balancer = Balancer::new(BalancerMethod::Random, Side::Ask);
    for (name, value) in [("a", 1), ("b", 2), ("c", 3)] {
        balancer.add(name, value, None);
    }
    let chosen: HashSet<_> = (0..300).map(|_| *balancer.choose().unwrap()).collect();
    assert_eq!(chosen, HashSet::from([1, 2, 3]));
}

#[test]
fn a_thread_stays_with_its_candidate() {
    let balancer = Arc::new(Balancer::new(BalancerMethod::ByThread, Side::Ask));
    balancer.add("a", 1, None);
    balancer.add("b", 2, None);
    let threads: Vec<_> = (0..32)
        .map(|_| {
            let balancer = Arc::clone(&balancer);
            thread::spawn(move || {
                let chosen: HashSet<_> = (0..20).map(|_| *balancer.choose().unwrap()).collect();
                assert_eq!(chosen.len(), 1);
                chosen.into_iter().next().unwrap()
            })
        })
        .collect();
    let chosen: HashSet<_> = threads
        .into_iter()
        .map(|thread| thread.join().unwrap())
        .collect();
    assert_eq!(chosen.len(), 2, "threads spread over the candidates");
}

/// D18: a name outlives the value that has it.
#[test]
fn a_name_keeps_its_place_when_it_is_taken_over() {
    let balancer = Balancer::new(BalancerMethod::ByThread, Side::Ask);
    for (name, value) in [("a", 1), ("b", 2), ("c", 3)] {
        assert_eq!(balancer.add(name, value, None), None);
    }
    let mine = *balancer.choose().unwrap();
    let name = ["a", "b", "c"][mine - 1];
    assert_eq!(balancer.add(name, 9, None).as_deref(), Some(&mine));
    assert_eq!(balancer.choose().as_deref(), Some(&9));
    assert_eq!(balancer.names(), ["a", "b", "c"]);
    assert_eq!(balancer.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn the_shorter_wait_is_better() {
    let balancer = Balancer::new(BalancerMethod::Better, Side::Ask);
    let brokers = ["slow", "fast"].map(|name| {
        let broker: Broker<(), ()> = Broker::new_by(better(), &Clock::paused()).unwrap();
        balancer.add(name, (name, broker.clone()), Some(broker.rank()));
        broker
    });
    let waiting = brokers[0].begin_ask((), AskOptions::default());
    tokio::time::sleep(Duration::from_millis(300)).await;
    for _ in 0..50 {
        let chosen = balancer.choose().unwrap();
        assert_eq!(chosen.0, "fast");
        assert!(chosen.1.is_empty());
    }
    drop(waiting);
    let _offering = brokers[0].begin_offer((), AskOptions::default());
    let _asking = brokers[1].begin_ask((), AskOptions::default());
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(balancer.choose().unwrap().0, "slow");
}

#[tokio::test(start_paused = true)]
async fn regulators_are_compared_likewise() {
    let balancer = Balancer::new(BalancerMethod::Better, Side::Ask);
    let regulators = ["busy", "free"].map(|name| {
        let options = RegulatorOptions {
            meters: vec![meter::Options::Better(meter::Better::default())],
            read_after: 1,
            ..RegulatorOptions::new(valve::Options::Open(valve::Open { max: 1 }))
        };
        let regulator = Regulator::new_by(options, &Clock::paused()).unwrap();
        balancer.add(name, regulator.clone(), Some(regulator.rank()));
        regulator
    });
    let _held = regulators[0].try_ask().unwrap();
    let _waiting = regulators[0].begin_ask(AskOptions::default());
    tokio::time::sleep(Duration::from_millis(300)).await;
    for _ in 0..50 {
        let lease = balancer.choose().unwrap().try_ask();
        assert!(lease.is_ok());
    }
}

#[tokio::test]
async fn a_candidate_that_publishes_nothing_loses_and_two_leave_no_choice() {
    let balancer = Balancer::new(BalancerMethod::Better, Side::Ask);
    let broker: Broker<(), ()> = Broker::new(better()).unwrap();
    tokio::task::yield_now().await;
    let published: Arc<Rank> = broker.rank();
    assert!(published.expects(Side::Ask).is_some());
    balancer.add("silent", 1, None);
    balancer.add("mute", 2, None);
    assert_eq!(balancer.choose(), None);
    balancer.remove("mute");
    balancer.add("loud", 3, Some(published));
    for _ in 0..50 {
        assert_eq!(balancer.choose().as_deref(), Some(&3));
    }
    // What a closed broker published is withdrawn.
    broker.close();
    assert_eq!(balancer.choose(), None);
}

#[test]
fn candidates_come_and_go_while_others_choose() {
    let balancer = Arc::new(Balancer::new(BalancerMethod::MostlyRandom, Side::Ask));
    balancer.add("stays", 0, None);
    let chooser = thread::spawn({
        let balancer = Arc::clone(&balancer);
        move || {
            for _ in 0..2000 {
                let chosen = balancer.choose();
                assert!(chosen.is_none_or(|value| *value < 4));
            }
        }
    });
    for turn in 0..500 {
        let name = ["a", "b", "c"][turn % 3];
        balancer.add(name, turn % 3 + 1, None);
        balancer.remove(["b", "c", "a"][turn % 3]);
    }
    chooser.join().unwrap();
    assert!(balancer.names().contains(&"stays".to_owned()));
}

fn better() -> BrokerOptions {
    let queue = queue::Options {
        shedding: queue::Shedding::Never,
        ..queue::Options::default()
    };
    BrokerOptions {
        asks: queue.clone(),
        offers: queue,
        meters: vec![meter::Options::Better(meter::Better::default())],
        read_after: 1,
    }
}
