//! Connections that must not become links.

use std::net::SocketAddr;
use std::time::Duration;

use rideau_cluster::{LinkOptions, LinkSecret, RefusalReason};
use rideau_core::cluster::Incarnation;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::harness::{TestNode, node, options, until};
use crate::proxy::{Flow, Proxy, Way};

/// Two nodes that refuse each other for a reason, which both count.
async fn check_refused(first: LinkOptions, second: LinkOptions, reason: RefusalReason) {
    let (first, second) = (TestNode::start(first), TestNode::start(second));
    first.sees(&[(&second.me, second.address)]);
    second.sees(&[(&first.me, first.address)]);
    first.refused(reason).await;
    second.refused(reason).await;
    for it in [first, second] {
        assert_eq!(it.links.stats().links_made, 0);
        assert!(it.events.is_empty());
        let others = it.links.stats().refusals.into_iter();
        let others: Vec<_> = others.filter(|it| it.0 != reason && it.1 > 0).collect();
        assert_eq!(others, []);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_secret_is_refused() {
    let mut second = options(node("n2"));
    second.secret = LinkSecret::new(&[b'x'; 32]).expect("it is long enough");
    check_refused(options(node("n1")), second, RefusalReason::Secret).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_cluster_is_refused() {
    let mut second = options(node("n2"));
    second.cluster = "office".to_owned();
    check_refused(options(node("n1")), second, RefusalReason::Cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn versions_without_one_in_common_are_refused() {
    for (older, newer) in [((1, 2), (3, 4)), ((3, 4), (1, 2))] {
        let (mut first, mut second) = (options(node("n1")), options(node("n2")));
        first.versions = older;
        second.versions = newer;
        check_refused(first, second, RefusalReason::Version).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_version_in_common_is_enough() {
    let (mut first, mut second) = (options(node("n1")), options(node("n2")));
    first.versions = (1, 2);
    second.versions = (2, 3);
    let (first, second) = crate::harness::pair(first, second).await;
    assert_eq!(first.reply(&second.me, "echo on").await, "on");
    assert_eq!(first.peer(&second.me).version, Some(2));
    assert_eq!(second.peer(&first.me).version, Some(2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_reached_another_node_is_refused() {
    // The address of n2 has gone to n3, or something relays to it.
    let (first, third) = (
        TestNode::start(options(node("n1"))),
        TestNode::start(options(node("n3"))),
    );
    first.sees(&[(&node("n2"), third.address)]);
    third.sees(&[(&first.me, first.address)]);
    first.refused(RefusalReason::Incarnation).await;
    third.refused(RefusalReason::Incarnation).await;
    // The same for another life of the right node.
    let second = TestNode::start(options(Incarnation::new("n2", 4)));
    second.sees(&[(&first.me, first.address)]);
    first.sees_at(2, &[]);
    first.sees_at(3, &[(&node("n2"), second.address)]);
    second.refused(RefusalReason::Incarnation).await;
    assert_eq!(first.links.stats().links_made, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_node_with_the_larger_name_must_not_dial() {
    // n2 takes this node for one with a larger name than its own.
    let (first, second) = (
        TestNode::start(options(node("n1"))),
        TestNode::start(options(node("n2"))),
    );
    let hello = hello_of(&second.me, &first.me);
    let said = exchange(first.address, &hello).await;
    assert!(
        said.contains("goaway") && said.contains("direction"),
        "{said}"
    );
    let itself = hello_of(&first.me, &first.me);
    let said = exchange(first.address, &itself).await;
    assert!(said.contains("direction"), "{said}");
    assert_eq!(first.refusals(RefusalReason::Direction), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replayed_handshake_is_refused() {
    let (mut first, mut second) = (
        TestNode::start(options(node("n1"))),
        TestNode::start(options(node("n2"))),
    );
    let proxy = Proxy::to(second.address).await;
    second.sees(&[(&first.me, first.address)]);
    first.sees(&[(&second.me, proxy.address)]);
    first.is_linked(&second.me).await;
    second.is_linked(&first.me).await;
    let recorded = proxy.sent();
    assert!(recorded.starts_with(b">8\r\n$5\r\nhello\r\n"));
    drop(first);
    until(|| second.links.stats().links == 0).await;
    let said = exchange(second.address, &recorded).await;
    assert!(said.contains("goaway") && said.contains("secret"), "{said}");
    second.refused(RefusalReason::Secret).await;
    assert_eq!(second.links.stats().links_made, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reflected_handshake_is_refused() {
    let first = TestNode::start(options(node("n1")));
    let mirror = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = mirror.local_addr().expect("it is bound");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = mirror.accept().await {
            tokio::spawn(async move {
                let (mut from, mut to) = stream.split();
                let _ = tokio::io::copy(&mut from, &mut to).await;
            });
        }
    });
    first.sees(&[(&node("n2"), address)]);
    first.refused(RefusalReason::Incarnation).await;
    assert_eq!(first.links.stats().links_made, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proof_is_of_no_use_for_another_node() {
    // Something at the address of n2 lets n3 answer, and changes the names both see.
    let (first, third) = (
        TestNode::start(options(node("n1"))),
        TestNode::start(options(node("n3"))),
    );
    third.sees(&[(&first.me, first.address)]);
    let relay = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = relay.local_addr().expect("it is bound");
    let target = third.address;
    tokio::spawn(async move {
        while let Ok((near, _)) = relay.accept().await {
            let Ok(far) = TcpStream::connect(target).await else {
                continue;
            };
            let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
            tokio::spawn(rename(near_in, far_out, "n2@1", "n3@1"));
            tokio::spawn(rename(far_in, near_out, "n3@1", "n2@1"));
        }
    });
    first.sees(&[(&node("n2"), address)]);
    first.refused(RefusalReason::Secret).await;
    third.refused(RefusalReason::Secret).await;
    assert_eq!(first.links.stats().links_made, 0);
    assert_eq!(third.links.stats().links_made, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_is_refused() {
    let second = TestNode::start(options(node("n2")));
    let long = [b">8\r\n$5\r\nhello\r\n".to_vec(), vec![b'\n'; 8 << 10]].concat();
    let padded = b"+x\r\n".repeat(2_000);
    let announced = b">8\r\n$1000000\r\n".to_vec();
    let many = b">100000000\r\n".to_vec();
    let deep = b"*1\r\n".repeat(1_000);
    let ask = b">2\r\n$3\r\nask\r\n:1\r\n".to_vec();
    let http = b"GET / HTTP/1.1\r\n\r\n".to_vec();
    let proof = b">2\r\n$5\r\nproof\r\n$1\r\nx\r\n".to_vec();
    let all = [long, padded, announced, many, deep, ask, http, proof];
    for garbage in &all {
        let said = exchange(second.address, garbage).await;
        assert!(said.is_empty() || said.contains("malformed"), "{said}");
    }
    // One that is cut off is none of these.
    let refused = || second.refusals(RefusalReason::Malformed);
    until(|| refused() >= all.len() as u64 - 1).await;
    assert_eq!(second.links.stats().links_made, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_connection_is_closed() {
    let mut hasty = options(node("n2"));
    hasty.times.handshake = Duration::from_millis(50);
    let second = TestNode::start(hasty);
    let mut stream = TcpStream::connect(second.address)
        .await
        .expect("it listens");
    let mut said = Vec::new();
    stream.read_to_end(&mut said).await.expect("it is closed");
    assert!(said.starts_with(b">3\r\n$6\r\ngoaway\r\n$4\r\nlate\r\n"));
    second.refused(RefusalReason::Late).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_of_strangers_does_not_keep_nodes_out() {
    let mut patient = options(node("n2"));
    patient.times.handshake = Duration::from_secs(3_600);
    let (mut first, mut second) = (
        TestNode::start(options(node("n1"))),
        TestNode::start(patient),
    );
    let mut crowd = Vec::new();
    while second.refusals(RefusalReason::Crowded) == 0 {
        crowd.push(
            TcpStream::connect(second.address)
                .await
                .expect("it listens"),
        );
    }
    assert!(crowd.len() > 64);
    // The oldest of the crowd make room, so nodes get through.
    first.sees(&[(&second.me, second.address)]);
    second.sees(&[(&first.me, first.address)]);
    first.is_linked(&second.me).await;
    second.is_linked(&first.me).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handshake_that_is_cut_is_tried_again() {
    let (mut first, mut second) = (
        TestNode::start(options(node("n1"))),
        TestNode::start(options(node("n2"))),
    );
    let proxy = Proxy::to(second.address).await;
    second.sees(&[(&first.me, first.address)]);
    // The acceptor hears everything, and its answers are lost.
    proxy.set(Way::Back, Flow::Lose);
    first.sees(&[(&second.me, proxy.address)]);
    until(|| !proxy.sent().is_empty()).await;
    proxy.cut();
    until(|| first.links.stats().dials_failed > 0).await;
    proxy.set(Way::Back, Flow::Pass);
    proxy.cut();
    first.is_linked(&second.me).await;
    second.is_linked(&first.me).await;
}

/// The hello that this node would send to that one.
fn hello_of(from: &Incarnation, to: &Incarnation) -> Vec<u8> {
    let (from, to) = (from.to_string(), to.to_string());
    let (from_len, to_len, nonce) = (from.len(), to.len(), "x".repeat(32));
    let text = format!(
        ">8\r\n$5\r\nhello\r\n:1\r\n:1\r\n$4\r\nshop\r\n${from_len}\r\n{from}\r\n\
         ${to_len}\r\n{to}\r\n$32\r\n{nonce}\r\n:1\r\n"
    );
    text.into_bytes()
}

/// What a node says to these bytes before it closes the connection.
async fn exchange(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    // It may be closed while they are written.
    let _ = stream.write_all(bytes).await;
    let mut said = Vec::new();
    let _ = stream.read_to_end(&mut said).await;
    String::from_utf8_lossy(&said).into_owned()
}

async fn rename(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    old: &'static str,
    new: &'static str,
) {
    let mut bytes = [0; 4 << 10];
    while let Ok(len @ 1..) = from.read(&mut bytes).await {
        let found = bytes[..len].windows(old.len());
        let found: Vec<_> = found
            .enumerate()
            .filter(|(_, at)| *at == old.as_bytes())
            .map(|(at, _)| at)
            .collect();
        for at in found {
            bytes[at..at + new.len()].copy_from_slice(new.as_bytes());
        }
        if to.write_all(&bytes[..len]).await.is_err() {
            return;
        }
    }
}
