//! Links that break, work one way only, or come back with another life of a node.

use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use rideau_cluster::{LinkError, LinkEvent, LinkMessage, LinkOptions, PeerLinks};
use rideau_core::Rng;
use rideau_core::cluster::{Incarnation, PeerMessage};

use crate::harness::{ServerLog, TestNode, answered, ask, hasty, node, options, pair, until};
use crate::proxy::{Flow, Proxy, Way};

/// Two nodes with a network between them. The first one dials.
async fn apart(first: LinkOptions, second: LinkOptions) -> (TestNode, Proxy, TestNode) {
    let (mut first, mut second) = (TestNode::start(first), TestNode::start(second));
    let proxy = Proxy::to(second.address).await;
    first.sees(&[(&second.me, proxy.address)]);
    second.sees(&[(&first.me, first.address)]);
    first.is_linked(&second.me).await;
    second.is_linked(&first.me).await;
    (first, proxy, second)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_node_returns_as_a_new_incarnation() {
    let (mut first, second) = pair(options(node("n1")), options(node("n2"))).await;
    let waits = first.ask(&second.me, "wait long").expect("it is sent");
    let old = second.me.clone();
    drop(second);
    assert_eq!(answered(waits).await, Err(LinkError::Broken));
    first.is_unlinked(&old).await;
    let gone = first.ask(&old, "echo one").err();
    assert_eq!(gone, Some(LinkError::NoLink));
    assert_eq!(first.peer(&old).unheard, 1);

    let mut second = TestNode::start(options(Incarnation::new("n2", 5)));
    first.sees_at(5, &[(&second.me, second.address)]);
    second.sees_at(5, &[(&first.me, first.address)]);
    first.is_linked(&second.me).await;
    second.is_linked(&first.me).await;
    assert_eq!(first.reply(&second.me, "echo two").await, "two");
    assert_eq!(first.ask(&old, "echo one").err(), Some(LinkError::NoLink));
    assert_eq!(first.links.peers().len(), 1);
    assert_eq!(first.peer(&second.me).unheard, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dialing_node_returns_as_a_new_incarnation() {
    let (first, mut second) = pair(options(node("n1")), options(node("n2"))).await;
    let waits = first.ask(&second.me, "wait long").expect("it is sent");
    second.server.logged(|log| log.served.len() == 1).await;
    let old = first.me.clone();
    drop((waits, first));
    second.is_unlinked(&old).await;

    // The new life connects before the other node's watch shows it.
    let mut first = TestNode::start(options(Incarnation::new("n1", 5)));
    first.sees_at(5, &[(&second.me, second.address)]);
    first.is_linked(&second.me).await;
    second.sees_at(5, &[(&first.me, first.address)]);
    second.is_linked(&first.me).await;
    // What the old life asked ends with it.
    second.server.logged(|log| log.dropped == 1).await;
    assert_eq!(first.reply(&second.me, "echo two").await, "two");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_breaks_asks_and_the_next_link_cancels_them() {
    let (mut first, proxy, mut second) = apart(options(node("n1")), options(node("n2"))).await;
    let waits = first.ask(&second.me, "wait long").expect("it is sent");
    second.server.logged(|log| log.served.len() == 1).await;
    proxy.set_both(Flow::Hold);
    proxy.cut();
    assert_eq!(answered(waits).await, Err(LinkError::Broken));
    first.is_unlinked(&second.me).await;
    second.is_unlinked(&first.me).await;
    assert_eq!(first.peer(&second.me).unheard, 1);
    // A broken link ends nothing.
    assert_eq!(second.server.log().dropped, 0);
    assert_eq!(second.peer(&first.me).running, 1);

    proxy.set_both(Flow::Pass);
    first.is_linked(&second.me).await;
    second.is_linked(&first.me).await;
    second.server.logged(|log| log.dropped == 1).await;
    until(|| first.peer(&second.me).unheard == 0).await;
    assert_eq!(first.links.stats().reconnects, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_lost_answer_took_is_undone() {
    let (mut first, proxy, mut second) = apart(options(node("n1")), options(node("n2"))).await;
    proxy.set(Way::Back, Flow::Lose);
    let taken = first.ask(&second.me, "take it").expect("it is sent");
    let waits = first.ask(&second.me, "wait both").expect("it is sent");
    second.server.logged(|log| log.served.len() == 2).await;
    proxy.cut();
    assert_eq!(answered(taken).await, Err(LinkError::Broken));
    assert_eq!(answered(waits).await, Err(LinkError::Broken));
    first.is_unlinked(&second.me).await;
    second.is_unlinked(&first.me).await;
    // This one gets its answer while there is no link.
    second.server.gate.add_permits(1);
    until(|| second.peer(&first.me).running == 0).await;
    assert_eq!(second.server.log().undone, [] as [&str; 0]);

    proxy.set(Way::Back, Flow::Pass);
    proxy.cut();
    let log = second.server.logged(|log| log.undone.len() == 2).await;
    let mut undone = log.undone;
    undone.sort();
    assert_eq!(undone, ["both", "it"]);
    until(|| first.peer(&second.me).unheard == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_heard_is_not_undone() {
    let (mut first, proxy, second) = apart(hasty(node("n1")), hasty(node("n2"))).await;
    for count in 0..600 {
        let taken = first.ask(&second.me, &format!("take {count}"));
        answered(taken.expect("it is sent"))
            .await
            .expect("it is answered");
    }
    proxy.cut();
    first.is_unlinked(&second.me).await;
    first.is_linked(&second.me).await;
    assert_eq!(first.reply(&second.me, "echo on").await, "on");
    assert_eq!(second.server.log().undone, [] as [&str; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_that_works_one_way_is_found_dead_by_both() {
    for way in [Way::There, Way::Back] {
        for flow in [Flow::Lose, Flow::Hold, Flow::HalfClose] {
            let (mut first, proxy, mut second) = apart(hasty(node("n1")), hasty(node("n2"))).await;
            let waits = first.ask(&second.me, "wait long").expect("it is sent");
            second.server.logged(|log| log.served.len() == 1).await;
            proxy.set(way, flow);
            assert_eq!(
                answered(waits).await,
                Err(LinkError::Broken),
                "{way:?} {flow:?}"
            );
            first.is_unlinked(&second.me).await;
            second.is_unlinked(&first.me).await;
            proxy.set(way, Flow::Pass);
            proxy.cut();
            until(|| first.links.stats().links == 1).await;
            second.server.logged(|log| log.dropped == 1).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newer_link_ends_the_older_one_unread() {
    // Only the node that dials notices that the network is silent.
    let mut patient = options(node("n2"));
    patient.times.dead = Duration::from_secs(3_600);
    let (mut first, proxy, mut second) = apart(hasty(node("n1")), patient).await;
    proxy.hold_old();
    let late = first.ask(&second.me, "take late").expect("it is sent");
    assert_eq!(answered(late).await, Err(LinkError::Broken));
    first.is_unlinked(&second.me).await;
    first.is_linked(&second.me).await;
    second.is_unlinked(&first.me).await;
    second.is_linked(&first.me).await;
    // What was on its way over the old link arrives now, and is not read.
    proxy.release_old();
    until(|| first.peer(&second.me).unheard == 0).await;
    assert_eq!(first.reply(&second.me, "echo on").await, "on");
    let log = second.server.log();
    assert_eq!(log.served, [(first.me.clone(), "echo on".to_owned())]);
    assert_eq!(second.links.stats().links_made, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_wait_until_the_watch_shows_their_sender() {
    let mut first = TestNode::start(hasty(Incarnation::new("n1", 7)));
    let mut second = TestNode::start(hasty(node("n2")));
    second.sees_at(6, &[]);
    first.sees_at(7, &[(&second.me, second.address)]);
    first.is_linked(&second.me).await;
    let message = PeerMessage::Serves {
        partition: 1,
        epoch: 2,
    };
    first.links.tell(&second.me, message.clone()).expect("room");
    let early = first.ask(&second.me, "echo early").expect("it is sent");
    // Pings are answered meanwhile, and nothing else is heard.
    let first_rtt = first.peer(&second.me).rtt;
    until(|| first.peer(&second.me).rtt != first_rtt).await;
    assert_eq!(second.server.log().served, []);
    assert!(second.events.is_empty());
    assert_eq!(
        second.ask(&first.me, "echo no").err(),
        Some(LinkError::NoLink)
    );

    second.sees_at(7, &[(&first.me, first.address)]);
    second.is_linked(&first.me).await;
    assert_eq!(second.message(&first.me).await, LinkMessage::Peer(message));
    assert_eq!(
        answered(early).await.expect("it is answered").reply,
        b"early"
    );
    assert_eq!(first.links.stats().links_made, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_incarnation_that_is_gone_is_cut_off() {
    let (mut first, mut second) = pair(options(node("n1")), options(node("n2"))).await;
    let waits = first.ask(&second.me, "wait long").expect("it is sent");
    second.server.logged(|log| log.served.len() == 1).await;
    second.sees_at(9, &[]);
    second.is_unlinked(&first.me).await;
    second.server.logged(|log| log.dropped == 1).await;
    assert_eq!(answered(waits).await, Err(LinkError::Broken));
    first.is_unlinked(&second.me).await;
    // It dials again, in vain. An older view of the watch changes nothing.
    second.sees_at(8, &[(&first.me, first.address)]);
    first
        .refused(rideau_cluster::RefusalReason::Incarnation)
        .await;
    second
        .refused(rideau_cluster::RefusalReason::Incarnation)
        .await;
    assert!(second.events.is_empty());
    assert_eq!(second.links.stats().links, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_a_holder_is_repeated_until_it_was_heard() {
    let (mut first, proxy, mut second) = apart(options(node("n1")), options(node("n2"))).await;
    let holder = b"conn-1".to_vec();
    first
        .links
        .end_holder(&second.me, 7, 3, holder.clone())
        .expect("room");
    let ended = second.message(&first.me).await;
    let LinkMessage::Ended { id, .. } = ended else {
        panic!("{ended:?} is no end");
    };
    proxy.cut();
    for _ in 0..2 {
        first.is_unlinked(&second.me).await;
        second.is_unlinked(&first.me).await;
        // What comes while there is no link is told, too.
        first.is_linked(&second.me).await;
        second.is_linked(&first.me).await;
        assert_eq!(second.message(&first.me).await, ended);
        assert_eq!(first.peer(&second.me).unheard, 1);
        proxy.cut();
    }
    until(|| second.links.stats().links_made == 4).await;
    second.links.heard(&first.me, id);
    until(|| first.peer(&second.me).unheard == 0).await;

    // An end in an older ownership is not repeated once a newer one was reported for.
    first
        .links
        .end_holder(&second.me, 7, 3, holder.clone())
        .expect("room");
    first
        .links
        .end_holder(&second.me, 7, 4, holder.clone())
        .expect("room");
    first
        .links
        .end_holder(&second.me, 8, 3, holder)
        .expect("room");
    assert_eq!(first.peer(&second.me).unheard, 3);
    first.links.reported(7, 4);
    assert_eq!(first.peer(&second.me).unheard, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn links_come_back_however_often_they_are_cut() {
    let (first, proxy, second) = apart(hasty(node("n1")), hasty(node("n2"))).await;
    let (mut answers, mut broken) = (0, 0);
    for round in 0..2_000 {
        if round % 100 == 50 {
            proxy.cut();
        }
        match first.ask(&second.me, &format!("take {round}")) {
            Ok(answer) => match answered(answer).await {
                Ok(answer) => {
                    assert_eq!(answer.reply, round.to_string().as_bytes());
                    answers += 1;
                }
                Err(error) => {
                    assert_eq!(error, LinkError::Broken);
                    broken += 1;
                }
            },
            Err(error) => {
                assert_eq!(error, LinkError::NoLink);
                until(|| first.links.stats().links == 1).await;
            }
        }
    }
    until(|| first.links.stats().links == 1 && first.peer(&second.me).unheard == 0).await;
    // Each ask ran at most once, and what no answer told of was undone.
    let log = second.server.log();
    let mut served = log.served.clone();
    served.sort();
    served.dedup();
    assert_eq!(served.len(), log.served.len());
    assert_eq!(log.served.len() - log.undone.len(), answers);
    assert!(log.undone.len() <= broken);
    assert!(first.links.stats().reconnects > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_that_was_taken_is_answered_or_undone_and_never_both() {
    let (first, proxy, second) = apart(hasty(node("n1")), hasty(node("n2"))).await;
    let asking: Vec<_> = (0..8)
        .map(|seed| {
            let (links, to) = (first.links.clone(), second.me.clone());
            tokio::spawn(ask_and_drop(links, to, seed))
        })
        .collect();
    let cutting = tokio::spawn(async move {
        for _ in 0..10 {
            let made = proxy.made();
            proxy.cut();
            until(|| proxy.made() > made).await;
        }
        proxy
    });
    let mut answered = Vec::new();
    for asking in asking {
        answered.extend(asking.await.expect("it does not panic"));
    }
    let _proxy = cutting.await.expect("it does not panic");
    until(|| first.links.stats().links == 1 && first.peer(&second.me).unheard == 0).await;
    until(|| second.peer(&first.me).running == 0).await;
    let is_all = |log: &ServerLog| {
        let unclaimed = first.server.log().unclaimed.len();
        answered.len() + log.undone.len() + unclaimed + log.dropped == log.served.len()
    };
    let log = second.server.logged(is_all).await;
    let mut ends = [answered, log.undone, first.server.log().unclaimed].concat();
    let count = ends.len();
    ends.sort();
    ends.dedup();
    assert_eq!(ends.len(), count, "nothing has two ends");
    assert!(log.dropped > 0 && first.links.stats().reconnects > 0);
}

/// Ask for many things, and leave some before they are answered. Returns what was got.
async fn ask_and_drop(links: PeerLinks, to: Incarnation, seed: u64) -> Vec<String> {
    let rng = &mut Rng::new(seed);
    let mut answered = Vec::new();
    let mut count = 0;
    while count < 1_000 {
        let verb = ["take", "later"][rng.below(2) as usize];
        let word = format!("{seed}-{count}");
        let Ok(mut answer) = links.ask(&to, &ask(&format!("{verb} {word}"))) else {
            tokio::task::yield_now().await;
            continue;
        };
        count += 1;
        let patience = match rng.below(3) {
            0 => rng.below(8),
            _ => u64::MAX,
        };
        let mut polls = 0;
        let polled = std::future::poll_fn(|cx| {
            polls += 1;
            match Pin::new(&mut answer).poll(cx) {
                Poll::Pending if polls > patience => Poll::Ready(None),
                Poll::Pending if patience < u64::MAX => {
                    cx.waker().wake_by_ref();
                    Poll::Pending
                }
                polled => polled.map(Some),
            }
        });
        if let Some(Ok(_)) = polled.await {
            answered.push(word);
        }
    }
    answered
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_bytes_end_a_link_at_worst() {
    for seed in 0..60 {
        let rng = &mut Rng::new(seed);
        let (first, proxy, mut second) = apart(hasty(node("n1")), hasty(node("n2"))).await;
        proxy.damage(1 + rng.below(4_000));
        // Their answers may never come: what was asked may be damaged.
        let asks: Vec<_> = (0..20)
            .map_while(|count| first.ask(&second.me, &format!("echo {count}")).ok())
            .collect();
        until(|| second.peer(&first.me).asks_in + first.links.stats().reconnects > 0).await;
        drop(asks);
        proxy.cut();
        until(|| {
            let message = PeerMessage::Serves {
                partition: 1,
                epoch: seed,
            };
            let _ = first.links.tell(&second.me, message.clone());
            let heard = LinkEvent::Message(first.me.clone(), LinkMessage::Peer(message));
            second.events.try_recv() == Ok(heard)
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closing_node_says_why() {
    let (mut first, mut second) = pair(options(node("n1")), options(node("n2"))).await;
    second.links.close("it drains");
    first.is_unlinked(&second.me).await;
    assert_eq!(second.event().await, LinkEvent::Unlinked(first.me.clone()));
    assert_eq!(second.links.stats().links, 0);
}
