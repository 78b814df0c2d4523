//! A pool that sizes itself: a broker's meter tells a regulator how scarce the
//! workers are.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::time::Duration;

use rideau::{
    AskOptions, Broker, BrokerOptions, Clock, Lead, Refusal, Regulator, RegulatorOptions, Side,
    meter, queue, valve,
};

const MS: Duration = Duration::from_millis(1);

#[tokio::test(start_paused = true)]
async fn a_pool_grows_while_workers_are_scarce_and_shrinks_when_idle() {
    let broker = Broker::new_by(told_of_offers(), &Clock::paused()).unwrap();
    let size = regulator("size", &broker);
    let workers: Vec<_> = (0..8)
        .map(|_| tokio::spawn(work(size.clone(), broker.clone())))
        .collect();
    tokio::time::sleep(5000 * MS).await;
    assert_eq!(size.size(), 1, "no take comes");

    let clients: Vec<_> = (0..20)
        .map(|_| tokio::spawn(ask_all_the_time(broker.clone())))
        .collect();
    tokio::time::sleep(3000 * MS).await;
    assert_eq!(size.size(), 4, "as many as may, while clients wait");

    for client in clients {
        client.abort();
    }
    tokio::time::sleep(10_000 * MS).await;
    assert_eq!(size.size(), 1, "no take comes any more");

    broker.close();
    size.close();
    for worker in workers {
        assert!(worker.await.unwrap().is_err());
    }
    assert_eq!(size.size(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_name_feeds_its_latest_regulator_and_keeps_it_alive_no_longer() {
    let runtime = tokio::runtime::Handle::current().metrics();
    let broker: Broker<(), ()> = Broker::new_by(told_of_offers(), &Clock::paused()).unwrap();
    let alone = runtime.num_alive_tasks();
    let first = regulator("size", &broker);
    let second = regulator("size", &broker);
    let (one, other) = (first.try_ask().unwrap(), second.try_ask().unwrap());
    let unfed = first.begin_ask(AskOptions::default());
    let _asking = broker.begin_ask((), AskOptions::default());
    let lease = second.ask().await.unwrap();
    assert_eq!(first.len(), 1, "it is told no more");

    drop((lease, other, second));
    drop((unfed, one, first));
    while runtime.num_alive_tasks() > alone {
        tokio::task::yield_now().await;
    }
    // There is no regulator to tell.
    tokio::time::sleep(100 * MS).await;
    assert!(broker.try_offer(()).is_ok());
}

/// Works while it holds a lease, and offers itself until it is not wanted.
async fn work(size: Regulator, broker: Broker<(), ()>) -> Result<(), Refusal> {
    loop {
        let mut lease = size.ask().await?;
        loop {
            match broker.offer(()).await {
                Ok(mut client) => {
                    client.peer.ended().await;
                }
                Err(_) => match lease.renew() {
                    Ok(kept) => lease = kept,
                    Err(_) => break,
                },
            }
        }
    }
}

async fn ask_all_the_time(broker: Broker<(), ()>) {
    loop {
        if let Ok(worker) = broker.ask(()).await {
            tokio::time::sleep(20 * MS).await;
            worker.peer.done();
        }
    }
}

fn told_of_offers() -> BrokerOptions {
    let entry = meter::Entry {
        regulator: "size".into(),
        side: Side::Offer,
        update: 50 * MS,
    };
    let update = meter::Update {
        entries: vec![entry],
        seed: 1,
    };
    BrokerOptions {
        offers: queue::Options::timeout(500 * MS),
        meters: vec![meter::Options::Update(update)],
        read_after: 1,
        ..BrokerOptions::default()
    }
}

/// A regulator of one to four leases that the broker tells of its workers: one
/// more for each time that clients waited for them.
fn regulator(name: &str, broker: &Broker<(), ()>) -> Regulator {
    let valve = valve::Options::Relative(valve::Relative {
        target: Lead::ZERO,
        min: 1,
        max: 4,
    });
    let queue = queue::Options {
        shedding: queue::Shedding::Never,
        ..queue::Options::default()
    };
    let regulator = Regulator::new_by(
        RegulatorOptions {
            queue,
            ..RegulatorOptions::new(valve)
        },
        &Clock::paused(),
    )
    .unwrap();
    broker.feed(name, &regulator);
    regulator
}
