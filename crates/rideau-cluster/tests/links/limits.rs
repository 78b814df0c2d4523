//! Slow peers, floods and long frames: nothing waits, and nothing grows without end.

use rideau_cluster::{LinkError, LinkMessage, MESSAGE_MAX};

use crate::harness::{TestNode, answered, ask, hasty, node, options, pair, until};
use crate::proxy::{Flow, Proxy};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_asks_is_refused_at_once() {
    let mut few = options(node("n1"));
    few.limits.asks_max = 16;
    let (first, second) = pair(few, options(node("n2"))).await;
    let mut waits = Vec::new();
    let refused = loop {
        match first.ask(&second.me, "wait long") {
            Ok(answer) => waits.push(answer),
            Err(error) => break error,
        }
    };
    assert_eq!((refused, waits.len()), (LinkError::Busy, 16));
    assert_eq!(first.links.stats().asks_busy, 1);
    // Messages still pass, and each answer makes room for one ask.
    let message = LinkMessage::Push {
        holder: Vec::new(),
        bytes: Vec::new(),
    };
    assert_eq!(first.links.send(&second.me, message), Ok(()));
    second.server.gate.add_permits(1);
    until(|| first.peer(&second.me).outstanding == 15).await;
    waits.push(first.ask(&second.me, "wait long").expect("there is room"));
    assert_eq!(
        first.ask(&second.me, "wait long").err(),
        Some(LinkError::Busy)
    );
    // So does a cancelled ask, once the peer knows of it.
    drop(waits);
    until(|| first.peer(&second.me).unheard == 0).await;
    assert_eq!(first.reply(&second.me, "echo on").await, "on");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_are_limited_for_each_link_and_for_the_node() {
    let mut first = options(node("n1"));
    first.limits.bytes_max = 40_000;
    first.limits.node_bytes_max = 60_000;
    let first = TestNode::start(first);
    let others = ["n2", "n3"].map(|name| TestNode::start(options(node(name))));
    let all: Vec<_> = others.iter().map(|it| (&it.me, it.address)).collect();
    first.sees(&all);
    others
        .iter()
        .for_each(|it| it.sees(&[(&first.me, first.address)]));
    until(|| first.links.stats().links == 2).await;
    let long = format!("wait {}", "x".repeat(9_000));
    let mut waits = Vec::new();
    let mut fill = |to: &TestNode| {
        let mut count = 0;
        while let Ok(answer) = first.ask(&to.me, &long) {
            waits.push(answer);
            count += 1;
        }
        assert_eq!(first.ask(&to.me, &long).err(), Some(LinkError::Busy));
        count
    };
    assert_eq!(others.each_ref().map(&mut fill), [4, 2]);
    assert!(first.links.stats().outstanding_bytes <= 60_000);
    others[0].server.gate.add_permits(4);
    until(|| first.peer(&others[0].me).outstanding == 0).await;
    assert_eq!(fill(&others[1]), 2);
    drop(waits);
    until(|| first.links.stats().outstanding_bytes == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_reader_is_refused_more_and_then_cut_off() {
    let (mut first, second) = (
        TestNode::start(hasty(node("n1"))),
        TestNode::start(options(node("n2"))),
    );
    let proxy = Proxy::to(second.address).await;
    first.sees(&[(&second.me, proxy.address)]);
    second.sees(&[(&first.me, first.address)]);
    first.is_linked(&second.me).await;
    proxy.set_both(Flow::Hold);
    let message = LinkMessage::Push {
        holder: b"conn-1".to_vec(),
        bytes: vec![b'x'; MESSAGE_MAX / 2],
    };
    let refused = loop {
        if let Err(error) = first.links.send(&second.me, message.clone()) {
            break error;
        }
        assert!(first.links.stats().outstanding_bytes <= 8 << 20);
    };
    assert!(
        matches!(refused, LinkError::Busy | LinkError::NoLink),
        "{refused}"
    );
    first.is_unlinked(&second.me).await;
    assert_eq!(first.links.stats().outstanding_bytes, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_does_not_read_its_events_stops_the_sender() {
    let (first, mut second) = pair(options(node("n1")), options(node("n2"))).await;
    let message = |number: u64| LinkMessage::Push {
        holder: number.to_be_bytes().to_vec(),
        bytes: vec![b'x'; 64 << 10],
    };
    let mut sent = 0;
    while first.links.send(&second.me, message(sent)).is_ok() {
        sent += 1;
    }
    for number in 0..sent {
        assert_eq!(second.message(&first.me).await, message(number));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_that_breaks_the_limits_is_cut_off() {
    let (mut many, mut few) = (options(node("n1")), options(node("n2")));
    (many.limits.asks_max, few.limits.asks_max) = (64, 8);
    let (mut first, second) = pair(many, few).await;
    // The link may be gone before the last one.
    let asks = (0..64).map(|_| first.ask(&second.me, "wait long"));
    let waits: Vec<_> = asks.map_while(Result::ok).collect();
    assert!(waits.len() > 8);
    for wait in waits {
        assert_eq!(answered(wait).await, Err(LinkError::Broken));
    }
    first.is_unlinked(&second.me).await;
    first.is_linked(&second.me).await;
    second.server.logged(|log| log.dropped == 8).await;
    until(|| first.peer(&second.me).unheard == 0).await;
    assert_eq!(first.reply(&second.me, "echo on").await, "on");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_does_not_fit_is_undone_and_refused() {
    let (first, second) = pair(options(node("n1")), options(node("n2"))).await;
    let reply = first.reply(&second.me, "long 5000000").await;
    assert!(reply.starts_with("-BUSY "), "{reply}");
    let log = second.server.logged(|log| !log.undone.is_empty()).await;
    assert_eq!(log.undone, ["5000000"]);
    assert_eq!(
        first.reply(&second.me, "long 3000000").await.len(),
        3_000_000
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_that_are_too_long_are_not_sent() {
    let (first, second) = pair(options(node("n1")), options(node("n2"))).await;
    let mut long = ask("echo");
    long.command = vec![b'x'; 4 << 20];
    let refused = first.links.ask(&second.me, &long).err();
    assert_eq!(refused, Some(LinkError::TooLong));
    let long = LinkMessage::Push {
        holder: Vec::new(),
        bytes: vec![b'x'; MESSAGE_MAX + 1],
    };
    assert_eq!(first.links.send(&second.me, long), Err(LinkError::TooLong));
    let word = "x".repeat(3 << 20);
    assert_eq!(first.reply(&second.me, &format!("echo {word}")).await, word);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_asks_at_a_time_are_all_answered() {
    let (first, second) = pair(options(node("n1")), options(node("n2"))).await;
    for round in 0..20 {
        let asks: Vec<_> = (0..1_024)
            .map(|count| first.ask(&second.me, &format!("take {round}-{count}")))
            .collect();
        for (asked, count) in asks.into_iter().zip(0..) {
            let answer = answered(asked.expect("there is room")).await;
            let expected = format!("{round}-{count}");
            assert_eq!(answer.expect("it is answered").reply, expected.as_bytes());
        }
    }
    assert_eq!(second.server.log().served.len(), 20 * 1_024);
    assert_eq!(second.server.log().undone, [] as [&str; 0]);
    until(|| first.links.stats().outstanding_bytes == 0).await;
}
