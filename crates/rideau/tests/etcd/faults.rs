//! Members that die, stop or cannot be reached: what a failed call means.

use std::net::{Ipv4Addr, TcpListener};
use std::thread;
use std::time::{Duration, Instant};

use rideau::store::etcd::{
    EtcdClient, EtcdDoubt, EtcdOptions, EtcdRead, EtcdRefusal, KeptAlive, KeyRange, KeyStamp, Txn,
    TxnOp, Watched,
};

use crate::server::{Server, patient, until};
use crate::{hold, keep, put, read, soon};

/// Where no process listens.
const NOWHERE: &str = "http://127.0.0.1:1";

#[tokio::test]
async fn a_reply_that_does_not_come_leaves_the_outcome_unknown() {
    let server = Server::start().await;
    let client = server.client().await;
    let hasty = client.with_timeout(Duration::from_millis(300));
    let write = || {
        Txn::new()
            .when("log/1", KeyStamp::Version, 0)
            .then(TxnOp::put("log/1", "batch"))
    };
    // The endpoint is connected and checked, so the request itself is what is not answered.
    put(&client, "log/0", "").await;
    server.pause().await;
    let error = hasty.txn(write()).await.unwrap_err();
    assert_eq!(error.doubt(), Some(EtcdDoubt::Silent), "{error}");
    assert!(error.is_unknown() && error.refusal().is_none());

    // The same again finds out: it is done once, whichever of them did it.
    server.resume();
    until("the batch is written", async || {
        client.txn(write()).await.is_ok()
    })
    .await;
    assert!(!client.txn(write()).await.unwrap().holds);
    assert_eq!(read(&client, "log/1").await.unwrap().version, 1);
}

#[tokio::test]
async fn what_is_refused_was_not_done_and_what_is_granted_was_though_etcd_dies() {
    let mut server = Server::start().await;
    let client = server.client().await.with_timeout(Duration::from_secs(2));
    let mut answers = Vec::new();
    for round in 0..3 {
        let writer = tokio::spawn(write_many(client.clone(), round));
        tokio::time::sleep(Duration::from_millis(150)).await;
        server.kill();
        answers.extend(soon(writer).await.unwrap());
        server.start_again().await;
    }
    let refused = answers.iter().filter(|(_, done)| *done == Some(false));
    assert!(refused.count() > 0, "a server that is down is not asked");
    for (key, done) in &answers {
        let is_there = read(&client, key).await.is_some();
        assert!(done.is_none_or(|done| done == is_there), "{key} {done:?}");
    }
}

/// Writes keys until etcd is known to be down. Returns which were done, as far as is known.
async fn write_many(client: EtcdClient, round: usize) -> Vec<(String, Option<bool>)> {
    let (mut answers, mut refused) = (Vec::new(), 0);
    for number in 0.. {
        let key = format!("many/{round}/{number}");
        let since = Instant::now();
        let answer = client
            .txn(Txn::new().then(TxnOp::put(key.clone(), "")))
            .await;
        assert!(
            since.elapsed() < Duration::from_secs(30),
            "it has a time-out"
        );
        let done = match answer {
            Ok(_) => Some(true),
            Err(error) if error.is_unknown() => None,
            Err(error) => {
                assert_eq!(error.refusal(), Some(EtcdRefusal::Unreachable), "{error}");
                refused += 1;
                Some(false)
            }
        };
        answers.push((key, done));
        if refused == 3 {
            break;
        }
    }
    answers
}

#[tokio::test]
async fn endpoints_that_do_not_answer_are_passed_over() {
    let server = Server::shared().await;
    // It takes connections, and says nothing.
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let silent_address = format!("http://{}", silent.local_addr().unwrap());
    let mut options = patient([NOWHERE.to_owned(), silent_address, server.address()]);
    // The silent one uses it up.
    options.connect_timeout = EtcdOptions::CONNECT_TIMEOUT;
    let mut client = EtcdClient::connect(options.clone()).await;
    until("the last one is reached", async || {
        if client.is_err() {
            client = EtcdClient::connect(options.clone()).await;
        }
        client.is_ok()
    })
    .await;
    let client = client.unwrap();
    put(&client, "passed/a", "").await;
    assert!(format!("{client:?}").contains(&server.address()));

    let error = EtcdClient::connect(EtcdOptions::plain([NOWHERE])).await;
    let error = error.unwrap_err();
    assert_eq!(error.refusal(), Some(EtcdRefusal::Unreachable), "{error}");
    assert!(error.to_string().contains(NOWHERE), "{error}");
}

#[tokio::test]
async fn an_endpoint_of_another_cluster_is_refused() {
    let (mut one, other) = (Server::start().await, Server::start().await);
    let options = patient([one.address(), other.address()]);
    let client = EtcdClient::connect(options).await.unwrap();
    put(&client, "mine", "").await;
    one.kill();
    until("the other one is found", async || {
        let error = client.txn(Txn::new()).await.unwrap_err();
        error.refusal() == Some(EtcdRefusal::OtherCluster)
    })
    .await;
    one.start_again().await;
    until("the first one is found again", async || {
        client.txn(Txn::new()).await.is_ok()
    })
    .await;
    assert!(read(&client, "mine").await.is_some());
}

#[tokio::test]
async fn three_members_go_on_without_a_leader_that_dies() {
    let mut servers = start_three().await;
    let client = go_on_without(&mut servers, async |leader| leader.kill()).await;

    // Two of three are gone: only what may be old can be read.
    servers[1].kill();
    let client = client.with_timeout(Duration::from_secs(1));
    let mut read = EtcdRead::newest(KeyRange::key("written"));
    let error = client.txn(Txn::new().then(TxnOp::put("more", ""))).await;
    let error = error.unwrap_err();
    assert!(error.is_unknown() || error.refusal() == Some(EtcdRefusal::Unreachable));
    assert!(client.read(read.clone()).await.is_err());
    read.may_be_old = true;
    until("the last one is asked", async || {
        let found = client.read(read.clone()).await;
        found.is_ok_and(|found| found.count == 1)
    })
    .await;
}

#[tokio::test]
async fn three_members_go_on_without_a_leader_that_is_paused() {
    let mut servers = start_three().await;
    go_on_without(&mut servers, async |leader| leader.pause().await).await;
}

/// Three members, the leader first, so that a client uses it.
async fn start_three() -> [Server; 3] {
    let mut servers = Server::start_three().await;
    let leader = leader_of(&servers).await;
    servers.swap(0, leader);
    servers
}

/// Ends the leader: keepalives, watches and writes with the old fence go on.
async fn go_on_without(servers: &mut [Server; 3], end: impl AsyncFn(&mut Server)) -> EtcdClient {
    let options = patient(servers.iter().map(Server::address));
    let client = EtcdClient::connect(options).await.unwrap();
    let (lease, created) = hold(&client, "node", Duration::from_secs(5)).await;
    let mut keeper = client.keep_lease(lease.id, Duration::from_secs(1));
    assert_eq!(keep(&mut keeper).await, KeptAlive::Kept(lease.ttl));
    let mut watch = client.watch(KeyRange::key("written"), created);

    end(&mut servers[0]).await;
    let hasty = client.with_timeout(Duration::from_secs(1));
    let fenced = || {
        Txn::new()
            .when("node", KeyStamp::Created, created)
            .then(TxnOp::put("written", ""))
    };
    until("a write is done", async || {
        let reply = hasty.txn(fenced()).await;
        reply.is_ok_and(|reply| reply.holds)
    })
    .await;
    // No election loses a lease.
    assert_eq!(keep(&mut keeper).await, KeptAlive::Kept(lease.ttl));
    until("the write is seen", async || {
        matches!(soon(watch.next()).await, Ok(Watched::Changed { .. }))
    })
    .await;
    client
}

async fn leader_of(servers: &[Server]) -> usize {
    for (index, server) in servers.iter().enumerate() {
        let status = server.client().await.status().await.unwrap();
        if status.leader == Some(status.member) {
            return index;
        }
    }
    panic!("a cluster that serves has a leader");
}

#[tokio::test]
async fn a_thread_that_blocks_uses_it_in_a_runtime_of_its_own() {
    let server = Server::shared().await;
    let options = server.options();
    let thread = thread::spawn(move || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build().unwrap();
        let client = runtime.block_on(EtcdClient::connect(options)).unwrap();
        runtime.block_on(put(&client, "blocking/a", "1"));
        runtime.block_on(read(&client, "blocking/a"))
    });
    let read = tokio::task::spawn_blocking(|| thread.join().unwrap()).await;
    assert_eq!(read.unwrap().unwrap().value, "1");
}
