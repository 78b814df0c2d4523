//! Watches: order, gaps, and what was compacted.

use std::time::Duration;

use rideau::store::etcd::{
    EtcdClient, EtcdRead, EtcdRefusal, EtcdWatch, KeyChange, KeyRange, Txn, TxnOp, Watched,
};
use tokio::time::timeout;

use crate::server::{Server, patient, until};
use crate::{put, soon};

/// The next revision that a watch tells, with its keys and values.
async fn changed(watch: &mut EtcdWatch) -> (i64, Vec<(String, Option<String>)>) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    loop {
        match soon(watch.next()).await {
            Ok(Watched::Changed { revision, changes }) => {
                let changes = changes.iter().map(|change| match change {
                    KeyChange::Put(key) => (text(&key.key), Some(text(&key.value))),
                    KeyChange::Deleted(key) => (text(&key.key), None),
                });
                return (revision, changes.collect());
            }
            Ok(Watched::Alive) => (),
            Ok(compacted) => panic!("{compacted:?}"),
            // The next call opens it again.
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

#[tokio::test]
async fn a_watch_tells_whole_revisions_in_order() {
    let server = Server::shared().await;
    let client = server.client().await;
    let first = put(&client, "watch/a", "1").await.revision;
    let txn = Txn::new()
        .then(TxnOp::put("watch/b", "2"))
        .then(TxnOp::put("watch/c", "3"))
        .then(TxnOp::put("unwatched/d", "4"))
        .then(TxnOp::Delete(KeyRange::key("watch/a")));
    let second = client.txn(txn).await.unwrap().revision;
    // From the past, and then what comes.
    let mut watch = client.watch(KeyRange::prefix("watch/"), first);
    let some = |value: &str| Some(value.to_owned());
    let (revision, changes) = changed(&mut watch).await;
    assert_eq!(
        (revision, changes),
        (first, vec![("watch/a".into(), some("1"))])
    );
    let (revision, mut changes) = changed(&mut watch).await;
    changes.sort();
    let expected = [
        ("watch/a".into(), None),
        ("watch/b".into(), some("2")),
        ("watch/c".into(), some("3")),
    ];
    assert_eq!((revision, &changes[..]), (second, &expected[..]));
    let third = put(&client, "watch/b", "5").await.revision;
    let (revision, changes) = changed(&mut watch).await;
    assert_eq!(
        (revision, changes),
        (third, vec![("watch/b".into(), some("5"))])
    );
}

#[tokio::test]
async fn a_watch_that_is_asked_says_that_it_is_alive() {
    let server = Server::shared().await;
    let client = server.client().await;
    let revision = put(&client, "alive/a", "").await.revision;
    let mut watch = client.watch(KeyRange::prefix("alive/"), revision);
    changed(&mut watch).await;
    for _ in 0..3 {
        watch.ask_alive();
        assert_eq!(soon(watch.next()).await.unwrap(), Watched::Alive);
    }
}

#[tokio::test]
async fn a_watch_goes_on_where_it_was_cut() {
    let mut server = Server::start().await;
    let client = server.client().await;
    let mut revisions = Vec::new();
    let mut watch = client.watch(KeyRange::prefix("cut/"), 1);
    for round in 0..3 {
        for _ in 0..3 {
            revisions.push(put(&client, "cut/a", "").await.revision);
        }
        // It has some of them when it is cut.
        assert_eq!(changed(&mut watch).await.0, revisions[round * 6]);
        match round {
            0 => {
                server.kill();
                server.begin_again();
            }
            1 => watch.reopen(),
            _ => (),
        }
        until("etcd is written", async || {
            client
                .read(EtcdRead::newest(KeyRange::key("cut/a")))
                .await
                .is_ok()
        })
        .await;
        for _ in 0..3 {
            revisions.push(put(&client, "cut/a", "").await.revision);
        }
        for revision in &revisions[round * 6 + 1..] {
            assert_eq!(changed(&mut watch).await.0, *revision);
        }
    }
}

#[tokio::test]
async fn a_watch_leaves_an_endpoint_that_is_stuck_though_its_caller_waits_in_parts() {
    let [stuck, other, _third] = Server::start_three().await;
    let client = EtcdClient::connect(patient([stuck.address(), other.address()])).await;
    let client = client.unwrap();
    let revision = put(&client, "stuck/a", "").await.revision;
    let hasty = client.with_timeout(Duration::from_secs(1));
    let mut watch = hasty.watch(KeyRange::prefix("stuck/"), revision);
    stuck.pause().await;
    until("the other one answers", async || {
        let part = timeout(Duration::from_millis(100), watch.next()).await;
        matches!(part, Ok(Ok(Watched::Changed { .. })))
    })
    .await;
}

#[tokio::test]
async fn a_watch_is_told_what_was_compacted() {
    let server = Server::start().await;
    let client = server.client().await;
    let first = put(&client, "old/a", "1").await.revision;
    let last = put_many(&client, 3).await;
    client.compact(last).await.unwrap();

    let mut watch = client.watch(KeyRange::prefix("old/"), first);
    let told = soon(watch.next()).await.unwrap();
    assert_eq!(told, Watched::Compacted { revision: last });
    // It stays so, and does not go on with a gap.
    let told = soon(watch.next()).await.unwrap();
    assert_eq!(told, Watched::Compacted { revision: last });
    // What happened at that very revision may be missing.
    let mut watch = client.watch(KeyRange::prefix("old/"), last);
    let told = soon(watch.next()).await.unwrap();
    assert_eq!(told, Watched::Compacted { revision: last });
    let mut watch = client.watch(KeyRange::prefix("old/"), last + 1);
    let next = put_many(&client, 1).await;
    assert_eq!(changed(&mut watch).await.0, next);

    let error = client.compact(first).await.unwrap_err();
    assert_eq!(error.refusal(), Some(EtcdRefusal::Compacted), "{error}");
    let mut read = EtcdRead::newest(KeyRange::prefix("old/"));
    read.revision = first;
    let error = client.read(read).await.unwrap_err();
    assert_eq!(error.refusal(), Some(EtcdRefusal::Compacted), "{error}");
}

async fn put_many(client: &EtcdClient, count: usize) -> i64 {
    let mut revision = 0;
    for _ in 0..count {
        revision = put(client, "old/a", "").await.revision;
    }
    revision
}
