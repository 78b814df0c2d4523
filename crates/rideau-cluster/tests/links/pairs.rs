//! Nodes that are linked, and nothing goes wrong.

use std::time::Duration;

use rideau_cluster::{LinkError, LinkMessage};
use rideau_core::cluster::PeerMessage;

use crate::harness::{TestNode, answered, ask, node, options, pair, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_answer_each_other() {
    let (first, second) = pair(options(node("n1")), options(node("n2"))).await;
    assert_eq!(first.reply(&second.me, "echo one").await, "one");
    assert_eq!(second.reply(&first.me, "echo two").await, "two");
    let taken = first.ask(&second.me, "take three").expect("it is sent");
    let taken = answered(taken).await.expect("it is answered");
    assert_eq!(taken.row.as_deref(), Some(&b"three"[..]));

    let stats = first.links.stats();
    assert_eq!((stats.peers, stats.links, stats.links_made), (1, 1, 1));
    assert_eq!((stats.asks_out, stats.asks_in, stats.reconnects), (2, 1, 0));
    until(|| first.peer(&second.me).rtt.is_some()).await;
    until(|| first.links.stats().outstanding_bytes == 0).await;
    let peer = first.peer(&second.me);
    assert!(peer.bytes_in > 0 && peer.bytes_out > 0);
    assert_eq!(second.server.log().undone, [] as [&str; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_have_a_link_for_each_pair() {
    let nodes = ["n1", "n2", "n3"].map(|name| TestNode::start(options(node(name))));
    let all: Vec<_> = nodes.iter().map(|it| (&it.me, it.address)).collect();
    nodes.iter().for_each(|it| it.sees(&all));
    until(|| nodes.iter().all(|it| it.links.stats().links == 2)).await;
    for from in &nodes {
        for to in nodes.iter().filter(|to| to.me != from.me) {
            assert_eq!(from.reply(&to.me, "echo hello").await, "hello");
        }
        let to_itself = from.ask(&from.me, "echo hello").err();
        assert_eq!(to_itself, Some(LinkError::NoLink));
    }
    for it in &nodes {
        assert_eq!(it.links.stats().links_made, 2);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_come_in_any_order() {
    let (first, second) = pair(options(node("n1")), options(node("n2"))).await;
    let waits = first.ask(&second.me, "wait slow").expect("it is sent");
    assert_eq!(first.reply(&second.me, "echo quick").await, "quick");
    second.server.gate.add_permits(1);
    let slow = answered(waits).await.expect("it is answered");
    assert_eq!(slow.reply, b"slow");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ask_arrives_as_it_was_sent() {
    let (first, second) = pair(options(node("n1")), options(node("n2"))).await;
    let command = "echo \r\n$5\r\n\0 >3 ping";
    assert_eq!(first.reply(&second.me, command).await, command[5..]);
    let log = second.server.log();
    assert_eq!(log.served, [(first.me.clone(), command.to_owned())]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_arrive_in_order() {
    let (first, mut second) = pair(options(node("n1")), options(node("n2"))).await;
    let serves = PeerMessage::Serves {
        partition: 3,
        epoch: 9,
    };
    let push = LinkMessage::Push {
        holder: b"conn-4".to_vec(),
        bytes: b">1\r\n+rideau:sure\r\n".to_vec(),
    };
    first.links.send(&second.me, push.clone()).expect("room");
    first.links.tell(&second.me, serves.clone()).expect("room");
    assert_eq!(second.message(&first.me).await, push);
    assert_eq!(second.message(&first.me).await, LinkMessage::Peer(serves));
    let digest = LinkMessage::Digest {
        partition: 1,
        range: b"ports".to_vec(),
        bytes: vec![0, 255, 13, 10],
    };
    first.links.send(&second.me, digest.clone()).expect("room");
    assert_eq!(second.message(&first.me).await, digest);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_report_arrives_in_chunks() {
    let mut small = options(node("n1"));
    small.limits.bytes_max = 64 << 10;
    let (first, mut second) = pair(small, options(node("n2"))).await;
    let report: Vec<u8> = (0..1_000_000_u32).map(|at| at.to_le_bytes()[0]).collect();
    let (links, to, sent) = (first.links.clone(), second.me.clone(), report.clone());
    let sending = tokio::spawn(async move { links.send_report(&to, 5, 8, &sent).await });
    let mut came = Vec::new();
    loop {
        let LinkMessage::Report {
            partition,
            epoch,
            chunk,
            chunks,
            bytes,
        } = second.message(&first.me).await
        else {
            panic!("it is a report");
        };
        assert_eq!((partition, epoch), (5, 8));
        came.push(bytes);
        assert_eq!(chunk as usize + 1, came.len());
        assert!(first.links.stats().outstanding_bytes <= 64 << 10);
        if chunk + 1 == chunks {
            break;
        }
    }
    assert_eq!(sending.await.expect("it does not panic"), Ok(()));
    assert!(came.concat() == report, "the chunks make the report");
    assert_eq!(first.links.send_report(&second.me, 5, 9, b"").await, Ok(()));
    assert!(matches!(
        second.message(&first.me).await,
        LinkMessage::Report { chunk: 0, chunks: 1, bytes, .. } if bytes.is_empty()
    ));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_answer_cancels_its_ask() {
    let (first, second) = pair(options(node("n1")), options(node("n2"))).await;
    let waits = first.ask(&second.me, "wait long").expect("it is sent");
    second.server.logged(|log| log.served.len() == 1).await;
    drop(waits);
    second.server.logged(|log| log.dropped == 1).await;
    until(|| first.peer(&second.me).unheard == 0).await;
    until(|| second.peer(&first.me).running == 0).await;
    assert_eq!(first.peer(&second.me).outstanding, 0);
    assert_eq!(first.links.stats().outstanding_bytes, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_no_caller_reads_is_handed_back() {
    let (first, second) = pair(options(node("n1")), options(node("n2"))).await;
    let taken = first.ask(&second.me, "take it").expect("it is sent");
    until(|| first.peer(&second.me).outstanding == 0).await;
    drop(taken);
    let log = first.server.logged(|log| !log.unclaimed.is_empty()).await;
    assert_eq!(log.unclaimed, ["it"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_dropped_ask_is_undone_once_or_handed_back() {
    let (first, second) = pair(options(node("n1")), options(node("n2"))).await;
    for count in 0..500 {
        drop(
            first
                .ask(&second.me, &format!("take {count}"))
                .expect("it is sent"),
        );
    }
    until(|| first.peer(&second.me).unheard == 0).await;
    let log = second.server.logged(|log| log.served.len() == 500).await;
    let mut ends = [log.undone, first.server.log().unclaimed].concat();
    ends.sort_by_key(|word| word.parse::<u32>().expect("a number"));
    let all: Vec<_> = (0..500).map(|count| count.to_string()).collect();
    assert_eq!(ends, all);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ask_ends_after_its_wait() {
    let mut short = options(node("n1"));
    short.times.answer = Duration::from_millis(20);
    let (first, second) = pair(short, options(node("n2"))).await;
    let mut timed = ask("wait long");
    timed.wait = Some(Duration::from_millis(1));
    let answer = first.links.ask(&second.me, &timed).expect("it is sent");
    assert_eq!(answered(answer).await, Err(LinkError::TimedOut));
    second.server.logged(|log| log.dropped == 1).await;
    until(|| first.peer(&second.me).unheard == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_costs_one_ask() {
    let (first, second) = pair(options(node("n1")), options(node("n2"))).await;
    let reply = first.reply(&second.me, "fail").await;
    assert!(reply.starts_with("-ERR "), "{reply}");
    assert_eq!(first.reply(&second.me, "echo on").await, "on");
    assert_eq!(first.links.stats().links_made, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_end_with_the_last_handle() {
    let (first, mut second) = pair(options(node("n1")), options(node("n2"))).await;
    let TestNode {
        me,
        links,
        server,
        mut events,
        ..
    } = first;
    let clone = links.clone();
    drop(links);
    assert_eq!(clone.stats().links, 1);
    drop(clone);
    second.is_unlinked(&me).await;
    while events.recv().await.is_some() {}
    until(|| std::sync::Arc::strong_count(&server) == 1).await;
}
