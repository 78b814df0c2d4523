//! TCP streams to a listener in the test.

use rideau::adapters::Tcp;
use rideau::{About, Manager, Retired};
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

/// It only ends a test that would hang.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a test waits for, which must come.
async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(PATIENCE, future).await.expect("it takes too long")
}

/// A manager, a stream that it started, and the other end.
async fn started() -> (Tcp, TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await;
    let listener = listener.expect("a port is free");
    let tcp = Tcp::new(listener.local_addr().expect("it is bound"));
    let stream = soon(tcp.start()).await.expect("a process listens");
    let (peer, _) = soon(listener.accept()).await.expect("it was started");
    (tcp, stream, peer)
}

async fn is_pending(mut future: Pin<&mut impl Future<Output = ()>>) -> bool {
    poll_fn(|task| Poll::Ready(future.as_mut().poll(task).is_pending())).await
}

#[tokio::test]
async fn a_started_stream_carries_bytes_both_ways() {
    let (tcp, mut stream, mut peer) = started().await;
    assert!(stream.nodelay().unwrap());
    stream.write_all(b"ask").await.unwrap();
    let mut bytes = [0; 3];
    soon(peer.read_exact(&mut bytes)).await.unwrap();
    peer.write_all(&bytes).await.unwrap();
    soon(stream.read_exact(&mut bytes)).await.unwrap();
    assert_eq!(&bytes, b"ask");
    assert!(!tcp.is_broken(&mut stream));
    tcp.check(&mut stream, &About::default()).await.unwrap();
}

#[tokio::test]
async fn a_delay_is_kept_if_asked_for() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let tcp = Tcp {
        nodelay: false,
        ..Tcp::new(listener.local_addr().unwrap())
    };
    assert!(!soon(tcp.start()).await.unwrap().nodelay().unwrap());
}

#[tokio::test]
async fn a_port_without_a_listener_is_an_error() {
    assert!(soon(Tcp::new("127.0.0.1:1").start()).await.is_err());
}

#[tokio::test]
async fn a_stream_that_the_other_side_closes_is_lost_and_broken() {
    let (tcp, mut stream, peer) = started().await;
    let lost = tcp.lost(&stream);
    drop(peer);
    soon(lost).await;
    assert!(tcp.is_broken(&mut stream));
}

#[tokio::test]
async fn a_stream_is_known_to_be_broken_before_the_runtime_hears_of_it() {
    let (tcp, mut stream, peer) = started().await;
    // Over the loopback the end arrives while it is sent, and nothing is
    // awaited in between.
    drop(peer);
    assert!(tcp.is_broken(&mut stream));
}

#[tokio::test]
async fn a_stream_that_is_not_watched_is_not_lost_but_broken() {
    let (tcp, mut stream, peer) = started().await;
    let unwatched = Tcp {
        watch: false,
        ..tcp
    };
    let mut lost = pin!(unwatched.lost(&stream));
    drop(peer);
    soon(stream.readable()).await.unwrap();
    assert!(is_pending(lost.as_mut()).await);
    assert!(unwatched.is_broken(&mut stream));
}

#[tokio::test]
async fn unexpected_bytes_break_a_stream_and_are_not_taken_from_its_holder() {
    let (tcp, mut stream, mut peer) = started().await;
    let mut lost = pin!(tcp.lost(&stream));
    assert!(is_pending(lost.as_mut()).await);
    let mut bytes = [0; 4];
    for piece in [b"one.", b"two."] {
        peer.write_all(piece).await.unwrap();
        soon(stream.readable()).await.unwrap();
        assert!(tcp.is_broken(&mut stream));
        assert!(is_pending(lost.as_mut()).await);
        soon(stream.read_exact(&mut bytes)).await.unwrap();
        assert_eq!(&bytes, piece);
        assert!(!tcp.is_broken(&mut stream));
    }
    drop(peer);
    soon(lost).await;
}

#[tokio::test]
async fn a_stop_closes_the_stream_although_it_is_watched() {
    let (tcp, stream, mut peer) = started().await;
    let lost = tcp.lost(&stream);
    let abort = tcp.abort(&stream);
    soon(tcp.stop(stream, Retired::Idle)).await;
    assert_eq!(soon(peer.read(&mut [0])).await.unwrap(), 0);
    soon(lost).await;
    drop(abort);
}

#[tokio::test]
async fn an_abort_ends_a_read_that_waits() {
    let (tcp, mut stream, mut peer) = started().await;
    let abort = tcp.abort(&stream).expect("it can be aborted");
    let held = tokio::spawn(async move {
        let read = stream.read(&mut [0]).await;
        (stream, read)
    });
    std::thread::spawn(abort).join().unwrap();
    let (mut stream, read) = soon(held).await.unwrap();
    assert_eq!(read.unwrap(), 0);
    assert!(tcp.is_broken(&mut stream));
    assert_eq!(soon(peer.read(&mut [0])).await.unwrap(), 0);
}
