//! What holds in every interleaving of threads that share a broker, a match or
//! a regulator.
//!
//! Loom runs each model once for every order of its locks and atomics, up to a
//! number of preemptions, and fails it where no thread can go on. A model says
//! how it ended, and its test names every end there is: none may be missing, or
//! the race it is about was never run.

#![cfg(rideau_loom)]
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "loom/explore.rs"]
mod explore;

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use loom::future::block_on;
use loom::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use loom::thread;

use rideau::valve::{self, Open};
use rideau::{
    AskOptions, Asking, Broker, BrokerOptions, Ended, Lease, Leasing, Match, Now, Peer, Refusal,
    Refused, Regulator, RegulatorOptions, RegulatorStats, Tally, queue,
};

use explore::{at_once, explore};

#[test]
fn a_dropped_ask_is_cancelled_or_its_peer_learns_that_it_went_away() {
    let ends = explore(|| {
        let (broker, asking) = broker_and_ask();
        let offer = || match broker.try_offer(1) {
            Ok(mut worker) => {
                assert_eq!(worker.value, "anna");
                word(block_on(worker.peer.ended()))
            }
            no => answer(&no),
        };
        let (end, ()) = at_once(offer, move || drop(asking));
        settled(&broker);
        (end, broker.stats().asks.cancelled)
    });
    assert_eq!(ends, [("busy", 1), ("down", 0)]);
}

#[test]
fn an_offer_never_waits_behind_an_ask_that_was_dropped() {
    let ends = explore(|| {
        let (broker, asking) = broker_and_ask();
        let offer = || match broker.offer_now(1, AskOptions::default()) {
            Now::Answered(worker) => word(block_on(worker.unwrap().peer.ended())),
            Now::Waiting(offering) => {
                assert_eq!(broker.try_ask("bert").unwrap().value, 1);
                drop(offering);
                "waits"
            }
        };
        let (end, ()) = at_once(offer, move || drop(asking));
        settled(&broker);
        end
    });
    assert_eq!(ends, ["down", "waits"]);
}

#[test]
fn what_a_dropped_ask_brought_is_dropped_with_it() {
    let ends = explore(|| {
        let broker = Broker::new(never()).unwrap();
        let brought = Arc::new(());
        let asking = broker.begin_ask(Arc::clone(&brought), AskOptions::default());
        let (end, ()) = at_once(|| broker.try_offer(1).is_ok(), move || drop(asking));
        assert_eq!(Arc::strong_count(&brought), 1);
        end
    });
    assert_eq!(ends, [false, true]);
}

#[test]
fn what_came_for_a_dropped_ask_is_dropped_with_it() {
    let ends = explore(|| {
        let broker = Broker::new(never()).unwrap();
        let brought = Arc::new(());
        let asking = broker.begin_ask("anna", AskOptions::default());
        let offer = || broker.try_offer(Arc::clone(&brought)).is_ok();
        let (end, ()) = at_once(offer, move || drop(asking));
        assert_eq!(Arc::strong_count(&brought), 1);
        end
    });
    assert_eq!(ends, [false, true]);
}

#[test]
fn a_waiter_gets_one_answer_from_the_first_to_come() {
    let ends = explore(|| {
        let (broker, asking) = broker_and_ask();
        let ticket = asking.ticket().unwrap();
        let client = thread::spawn(move || answer(&block_on(asking)));
        let canceller = thread::spawn({
            let broker = broker.clone();
            move || broker.cancel(ticket)
        });
        let worker = answer(&broker.try_offer(1));
        let end = (client.join().unwrap(), worker, canceller.join().unwrap());
        settled(&broker);
        end
    });
    assert_eq!(ends, [("cancelled", "busy", true), ("met", "met", false)]);
}

#[test]
fn a_waiter_that_leaves_after_a_look_is_matched_or_cancelled() {
    let ends = explore(|| {
        let (broker, asking) = broker_and_ask();
        let ask = move || match look(asking) {
            Poll::Ready(met) => {
                met.unwrap().peer.done();
                "collected"
            }
            Poll::Pending => "left",
        };
        let offer = || match broker.try_offer(1) {
            Ok(mut worker) => word(block_on(worker.peer.ended())),
            no => answer(&no),
        };
        let end = at_once(offer, ask);
        settled(&broker);
        end
    });
    let all = [("busy", "left"), ("done", "collected"), ("down", "left")];
    assert_eq!(ends, all);
}

#[test]
fn one_of_two_asks_gets_the_offer_and_closing_answers_the_other() {
    let ends = explore(|| {
        let broker = broker();
        let clients = ["anna", "bert"].map(|name| {
            let broker = broker.clone();
            thread::spawn(move || answer(&block_on(broker.ask(name))))
        });
        let worker = block_on(broker.offer(1)).unwrap();
        broker.close();
        let clients = clients.map(|client| client.join().unwrap());
        settled(&broker);
        (worker.value, clients)
    });
    let all = [("anna", ["met", "closed"]), ("bert", ["closed", "met"])];
    assert_eq!(ends, all);
}

#[test]
fn one_of_two_asks_that_do_not_wait_gets_the_offer() {
    let ends = explore(|| {
        let broker = broker();
        let offering = broker.begin_offer(1, AskOptions::default());
        let ask = |name, broker: Broker<_, _>| move || answer(&broker.try_ask(name));
        let (anna, bert) = at_once(ask("anna", broker.clone()), ask("bert", broker.clone()));
        let worker = block_on(offering).unwrap();
        settled(&broker);
        (worker.value, [anna, bert])
    });
    let all = [("anna", ["met", "busy"]), ("bert", ["busy", "met"])];
    assert_eq!(ends, all);
}

#[test]
fn a_watching_peer_learns_of_the_end() {
    for (how, end) in WAYS {
        let ends = explore(move || {
            let (mut worker, client) = met();
            let watch = move || word(block_on(worker.ended()));
            at_once(|| end(client), watch).1
        });
        assert_eq!(ends, [how], "told to the one that waited");

        let ends = explore(move || {
            let (worker, mut client) = met();
            let watch = move || word(block_on(client.ended()));
            at_once(|| end(worker), watch).1
        });
        assert_eq!(ends, [how], "told to the one that came");
    }
}

/// The work has no order of its own: the end must bring it along.
#[test]
fn a_peer_that_learns_of_the_end_sees_what_the_other_did_before() {
    let ends = explore(|| {
        let (mut worker, client) = met();
        let work = Arc::new(AtomicUsize::new(0));
        let watch = {
            let work = Arc::clone(&work);
            move || {
                let at_once = worker.has_ended().is_some();
                if !at_once {
                    block_on(worker.ended());
                }
                (at_once, work.load(Relaxed))
            }
        };
        let end = || {
            work.store(1, Relaxed);
            client.done();
        };
        at_once(end, watch).1
    });
    assert_eq!(ends, [(false, 1), (true, 1)]);
}

#[test]
fn a_peer_that_watches_again_is_woken_in_the_new_place() {
    let ends = explore(|| {
        let (mut worker, client) = met();
        let watch = move || {
            let first = look(worker.ended()).is_ready();
            (first, word(block_on(worker.ended())))
        };
        at_once(|| client.done(), watch).1
    });
    assert_eq!(ends, [(false, "done"), (true, "done")]);
}

#[test]
fn a_peer_that_watched_and_ends_still_wakes_the_other() {
    let ends = explore(|| {
        let (mut worker, mut client) = met();
        let watch = move || word(block_on(worker.ended()));
        let look_and_end = move || {
            let seen = look(client.ended()).is_ready();
            client.done();
            seen
        };
        at_once(look_and_end, watch)
    });
    assert_eq!(ends, [(false, "done")]);
}

#[test]
fn a_match_collected_late_tells_of_an_end_before_that() {
    let ends = explore(|| {
        let (broker, asking) = broker_and_ask();
        let ask = move || {
            let mut client = block_on(asking).unwrap();
            let at_once = client.peer.has_ended().is_some();
            (at_once, word(block_on(client.peer.ended())))
        };
        at_once(|| drop(broker.try_offer(1).unwrap()), ask).1
    });
    assert_eq!(ends, [(false, "down"), (true, "down")]);
}

#[test]
fn of_two_peers_that_end_at_once_at_most_one_sees_the_others_end() {
    let ends = explore(|| {
        let (worker, client) = met();
        let end = |peer: Peer, end: fn(Peer)| {
            move || {
                let seen = peer.has_ended().map(word);
                end(peer);
                seen
            }
        };
        at_once(end(client, drop), end(worker, Peer::done))
    });
    let all = [(None, None), (None, Some("down")), (Some("done"), None)];
    assert_eq!(ends, all);
}

#[test]
fn an_ask_is_answered_while_the_broker_closes() {
    let ends = explore(|| {
        let broker = broker();
        let client = thread::spawn({
            let broker = broker.clone();
            move || answer(&block_on(broker.ask("anna")))
        });
        let worker = thread::spawn({
            let broker = broker.clone();
            move || answer(&block_on(broker.offer(1)))
        });
        broker.close();
        let end = (client.join().unwrap(), worker.join().unwrap());
        settled(&broker);
        end
    });
    assert_eq!(ends, [("closed", "closed"), ("met", "met")]);
}

#[test]
fn the_first_in_line_stays_so_while_the_broker_is_reconfigured() {
    let ends = explore(|| {
        let (broker, anna) = broker_and_ask();
        let changer = thread::spawn({
            let broker = broker.clone();
            move || broker.reconfigure(at_most_one()).unwrap()
        });
        let bert = thread::spawn({
            let broker = broker.clone();
            move || answer(&block_on(broker.ask("bert")))
        });
        let worker = broker.try_offer(1).unwrap();
        assert_eq!(worker.value, "anna");
        assert_eq!(block_on(anna).unwrap().value, 1);
        changer.join().unwrap();
        assert_eq!(broker.options(), at_most_one());
        broker.close();
        let end = bert.join().unwrap();
        settled(&broker);
        end
    });
    assert_eq!(ends, ["closed", "full"]);
}

#[test]
fn a_grant_to_a_dropped_ask_leaves_no_lease() {
    let ends = explore(|| {
        let (regulator, lease, leasing) = regulator_and_ask();
        at_once(|| lease.release(), move || drop(leasing));
        let stats = free(&regulator);
        (stats.asks.cancelled, stats.leases.released)
    });
    assert_eq!(ends, [(0, 2), (1, 1)]);
}

#[test]
fn a_grant_to_an_ask_dropped_after_a_poll_leaves_no_lease() {
    let ends = explore(|| {
        let (regulator, lease, leasing) = regulator_and_ask();
        let ((), collected) = at_once(|| drop(lease), move || look(leasing).is_ready());
        (collected, free(&regulator).asks.cancelled)
    });
    assert_eq!(ends, [(false, 0), (false, 1), (true, 0)]);
}

#[test]
fn a_lease_that_a_gone_asker_would_have_got_goes_to_the_next() {
    let ends = explore(|| {
        let (regulator, lease, anna) = regulator_and_ask();
        let bert = regulator.begin_ask(AskOptions::default());
        let asker = thread::spawn(move || drop(anna));
        let next = thread::spawn(move || drop(block_on(bert).unwrap()));
        drop(lease);
        asker.join().unwrap();
        next.join().unwrap();
        free(&regulator).asks.cancelled
    });
    assert_eq!(ends, [0, 1]);
}

#[test]
fn a_waiter_for_a_lease_gets_one_answer_from_the_first_to_come() {
    let ends = explore(|| {
        let (regulator, lease, leasing) = regulator_and_ask();
        let ticket = leasing.ticket().unwrap();
        let asker = thread::spawn(move || lease_answer(&block_on(leasing)));
        let canceller = thread::spawn({
            let regulator = regulator.clone();
            move || regulator.cancel(ticket)
        });
        drop(lease);
        let end = (asker.join().unwrap(), canceller.join().unwrap());
        free(&regulator);
        end
    });
    assert_eq!(ends, [("cancelled", true), ("granted", false)]);
}

/// The count has no order of its own: a lease that is handed on must bring
/// what its last holder did.
#[test]
fn of_two_asks_for_the_only_lease_each_sees_what_the_other_did() {
    let ends = explore(|| {
        let regulator = Regulator::new(only_one()).unwrap();
        let work = {
            let (regulator, done) = (regulator.clone(), Arc::new(AtomicUsize::new(0)));
            move || {
                let lease = block_on(regulator.ask()).unwrap();
                assert_eq!(regulator.size(), 1);
                let before = done.load(Relaxed);
                done.store(before + 1, Relaxed);
                lease.release();
                before
            }
        };
        let end = at_once(work.clone(), work);
        free(&regulator);
        end
    });
    assert_eq!(ends, [(0, 1), (1, 0)]);
}

#[test]
fn a_lease_is_renewed_before_a_close_or_is_over() {
    let ends = explore(|| {
        let (regulator, lease, leasing) = regulator_and_ask();
        let keep = || {
            let renewed = lease.renew().is_ok();
            (renewed, lease_answer(&block_on(leasing)))
        };
        let close = {
            let regulator = regulator.clone();
            move || regulator.close()
        };
        let (end, ()) = at_once(keep, close);
        adds_up(&regulator.stats().asks);
        assert_eq!((regulator.size(), regulator.len()), (0, 0));
        end
    });
    assert_eq!(
        ends,
        [(false, "closed"), (true, "closed"), (true, "granted")]
    );
}

/// A way to end a match, and what the other party is told.
type Way = (&'static str, fn(Peer));
const WAYS: [Way; 2] = [("done", Peer::done), ("down", drop)];

fn never() -> BrokerOptions {
    BrokerOptions {
        asks: no_ask_is_shed(),
        offers: no_ask_is_shed(),
        ..BrokerOptions::default()
    }
}

fn at_most_one() -> BrokerOptions {
    let asks = queue::Options {
        max: Some(1),
        ..no_ask_is_shed()
    };
    BrokerOptions { asks, ..never() }
}

fn only_one() -> RegulatorOptions {
    RegulatorOptions {
        queue: no_ask_is_shed(),
        ..RegulatorOptions::new(valve::Options::Open(Open { max: 1 }))
    }
}

/// Nothing that needs a timer.
fn no_ask_is_shed() -> queue::Options {
    queue::Options {
        shedding: queue::Shedding::Never,
        ..queue::Options::default()
    }
}

fn broker() -> Broker<&'static str, u32> {
    Broker::new(never()).unwrap()
}

fn broker_and_ask() -> (Broker<&'static str, u32>, Asking<&'static str, u32>) {
    let broker = broker();
    let asking = broker.begin_ask("anna", AskOptions::default());
    (broker, asking)
}

/// A worker that waited, and a client that came.
fn met() -> (Peer, Peer) {
    let broker = broker();
    let offering = broker.begin_offer(1, AskOptions::default());
    let client = broker.try_ask("anna").unwrap();
    let worker = block_on(offering).unwrap();
    (worker.peer, client.peer)
}

/// A regulator with one lease, its holder, and an ask that waits for it.
fn regulator_and_ask() -> (Regulator, Lease, Leasing) {
    let regulator = Regulator::new(only_one()).unwrap();
    let lease = regulator.try_ask().unwrap();
    let leasing = regulator.begin_ask(AskOptions::default());
    (regulator, lease, leasing)
}

/// Neither side waits, and every ask and offer is accounted for.
fn settled<A: Send, O: Send>(broker: &Broker<A, O>) {
    let stats = broker.stats();
    assert!(broker.is_empty());
    adds_up(&stats.asks);
    adds_up(&stats.offers);
    assert_eq!(stats.asks.served, stats.offers.served);
}

/// No ask waits, no lease is held, and the next ask gets one.
fn free(regulator: &Regulator) -> RegulatorStats {
    let stats = regulator.stats();
    assert_eq!((stats.len, stats.size), (0, 0));
    adds_up(&stats.asks);
    assert_eq!(stats.asks.served, stats.leases.released);
    assert!(regulator.try_ask().is_ok());
    stats
}

fn adds_up(tally: &Tally) {
    assert_eq!(
        tally.came,
        tally.served + tally.cancelled + tally.shed_total()
    );
}

fn answer<V, W>(answer: &Result<Match<W>, Refused<V>>) -> &'static str {
    match answer {
        Ok(_) => "met",
        Err(refused) => refused.refusal.reason.word(),
    }
}

fn lease_answer(answer: &Result<Lease, Refusal>) -> &'static str {
    match answer {
        Ok(_) => "granted",
        Err(refusal) => refusal.reason.word(),
    }
}

fn word(ended: Ended) -> &'static str {
    match ended {
        Ended::Done => "done",
        Ended::Down => "down",
    }
}

/// Poll once, and be woken for nothing later.
fn look<F: Future>(future: F) -> Poll<F::Output> {
    let mut future = pin!(future);
    block_on(poll_fn(|context| {
        Poll::Ready(future.as_mut().poll(context))
    }))
}
