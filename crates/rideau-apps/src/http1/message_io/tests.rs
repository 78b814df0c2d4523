//! Both ends of a connection, within TLS and not.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Waker;

use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig, crypto};
use tokio_rustls::{TlsAcceptor, TlsConnector, client};

use super::*;

/// Both ends of a connection: of what is sent on one, the other has taken nothing.
async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let (near, far) = tokio::join!(TcpStream::connect(address), listener.accept());
    (near.expect("a client"), far.expect("a connection").0)
}

/// The same within TLS.
async fn tls_pair() -> (client::TlsStream<TcpStream>, MessageIo) {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".into()]).expect("one");
    let certificate = made.cert.der().clone();
    let key = made.signing_key.serialize_der().try_into().expect("a key");
    let provider = Arc::new(crypto::ring::default_provider());
    let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .expect("a certificate");
    let mut roots = RootCertStore::empty();
    roots.add(certificate).expect("a certificate");
    let client = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let (near, far) = pair().await;
    let name = ServerName::try_from("localhost").expect("a name");
    let (near, far) = tokio::join!(
        TlsConnector::from(Arc::new(client)).connect(name, near),
        TlsAcceptor::from(Arc::new(server)).accept(far)
    );
    let far = Stream::Tls(Box::new(far.expect("TLS").into()));
    (near.expect("TLS"), MessageIo::new(far))
}

#[tokio::test]
async fn what_tls_holds_back_is_not_sent_yet_and_goes_when_it_can() {
    let (mut near, mut far) = tls_pair().await;
    let mut noop = Context::from_waker(Waker::noop());
    let mut len = 0;
    loop {
        far.out().extend_from_slice(&[7; 1000]);
        len += 1000;
        match far.poll_send(&mut noop) {
            Poll::Ready(sent) => assert_eq!(sent.expect("it goes on"), 1000),
            Poll::Pending => break,
        }
    }
    assert!(far.is_given(), "there is room for it in TLS");
    assert!(!far.is_flushed(), "but none on the way");
    let read = async {
        let mut all = vec![0; len];
        near.read_exact(&mut all).await.expect("all of it");
        all
    };
    let sent = async {
        while !far.is_flushed() {
            let sent = poll_fn(|context| far.poll_send(context)).await;
            sent.expect("it goes on");
        }
    };
    let (all, ()) = tokio::join!(read, sent);
    assert!(all.iter().all(|byte| *byte == 7));
}

#[tokio::test]
async fn one_that_waits_has_no_room() {
    let (near, far) = pair().await;
    let (near, mut far) = (Stream::Tcp(near), MessageIo::new(Stream::Tcp(far)));
    let mut near = MessageIo::new(near);
    for round in 0..3 {
        assert_eq!(near.send_first(b"a few words"), 11);
        let came = poll_fn(|context| far.poll_more(context)).await;
        assert_eq!(came.expect("they come"), 11, "in round {round}");
        assert_eq!(far.unread(), b"a few words");
        far.consume(5);
        assert_eq!(far.unread(), b" words");
        far.consume(6);
        let more = poll_fn(|context| Poll::Ready(far.poll_more(context).is_pending()));
        assert!(more.await, "nothing more comes");
        assert!(far.is_silent());
        far.out().extend_from_slice(b"an answer");
        assert!(far.send_now());
        let came = poll_fn(|context| near.poll_more(context)).await;
        assert_eq!(came.expect("it comes"), 9);
        near.consume(9);
        let room = [&near, &far].map(|wire| wire.held.capacity() + wire.out.capacity());
        assert_eq!(room, [0, 0], "in round {round}");
    }
}

#[tokio::test]
async fn all_comes_in_the_end_when_more_is_sent_than_there_is_room_for() {
    let (near, far) = pair().await;
    let (mut near, mut far) = (
        MessageIo::new(Stream::Tcp(near)),
        MessageIo::new(Stream::Tcp(far)),
    );
    let text: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
    let mut came = Vec::new();
    let sent = async {
        near.send_first(&text);
        while !near.is_flushed() {
            let sent = poll_fn(|context| near.poll_send(context)).await;
            sent.expect("it goes on");
        }
    };
    let read = async {
        while came.len() < text.len() {
            let len = poll_fn(|context| far.poll_more(context)).await;
            assert!(len.expect("more comes") > 0);
            came.extend_from_slice(far.unread());
            far.consume(far.unread().len());
        }
    };
    tokio::join!(sent, read);
    assert!(came == text);
    drop(near);
    let end = poll_fn(|context| far.poll_more(context)).await;
    assert_eq!(end.expect("an end"), 0);
}
