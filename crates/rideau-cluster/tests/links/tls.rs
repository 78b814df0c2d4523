//! Links with certificates.

use std::net::TcpListener;

use rcgen::{CertificateParams, KeyPair};
use rideau_cluster::{LinkOptions, PeerLinks, PeerTls, RefusalReason};
use rideau_testing::certificates::{Signer, signer};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::harness::{TestNode, node, options, pair, until};

/// The certificate of a node, of an authority that it trusts.
fn tls(name: &str, by: &Signer, trusted: &Signer) -> PeerTls {
    let key = KeyPair::generate().expect("the system has random bytes");
    let params = CertificateParams::new(vec![name.to_owned()]).expect("it is a DNS name");
    let certificate = params.signed_by(&key, by).expect("it can be signed");
    let key = PrivateKeyDer::try_from(key.serialize_der()).expect("it is a key");
    let authority = CertificateDer::from(trusted.der().to_vec());
    let certificate = CertificateDer::from(certificate.der().to_vec());
    PeerTls::new(vec![authority], vec![certificate], key).expect("they belong together")
}

fn with_tls(name: &str, tls: PeerTls) -> LinkOptions {
    let mut options = options(node(name));
    options.tls = Some(tls);
    options
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_with_certificates_are_linked() {
    let signer = signer("cluster");
    let (mut first, mut second) = pair(
        with_tls("n1", tls("n1", &signer, &signer)),
        with_tls("n2", tls("n2", &signer, &signer)),
    )
    .await;
    assert_eq!(first.reply(&second.me, "echo one").await, "one");
    assert_eq!(second.reply(&first.me, "echo two").await, "two");
    let long = "x".repeat(1 << 20);
    assert_eq!(first.reply(&second.me, &format!("echo {long}")).await, long);

    // New certificates count for the next link.
    let other = node("n1");
    second.links.renew_tls(tls("n2", &signer, &signer));
    first.links.renew_tls(tls("n1", &signer, &signer));
    second.sees_at(2, &[]);
    second.is_unlinked(&other).await;
    first.is_unlinked(&second.me).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_that_do_not_name_the_node_are_refused() {
    let (signer, stranger) = (signer("cluster"), signer("stranger"));
    let right = |name: &str| with_tls(name, tls(name, &signer, &signer));
    let another = |name: &str| with_tls(name, tls("n9", &signer, &signer));
    let strange = |name: &str| with_tls(name, tls(name, &stranger, &signer));
    let cases = [
        (another("n1"), right("n2")),
        (right("n1"), another("n2")),
        (strange("n1"), right("n2")),
        (right("n1"), strange("n2")),
    ];
    for (first, second) in cases {
        let (first, second) = (TestNode::start(first), TestNode::start(second));
        first.sees(&[(&second.me, second.address)]);
        second.sees(&[(&first.me, first.address)]);
        first.refused(RefusalReason::Certificate).await;
        second.refused(RefusalReason::Certificate).await;
        assert_eq!(first.links.stats().links_made, 0);
        assert_eq!(second.links.stats().links_made, 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_side_without_tls_is_refused() {
    let signer = signer("cluster");
    let first = TestNode::start(options(node("n1")));
    let second = TestNode::start(with_tls("n2", tls("n2", &signer, &signer)));
    first.sees(&[(&second.me, second.address)]);
    second.sees(&[(&first.me, first.address)]);
    second.refused(RefusalReason::Certificate).await;
    until(|| first.links.stats().dials_failed + first.refusals(RefusalReason::Malformed) > 0).await;
    assert_eq!(first.links.stats().links_made, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn addresses_beyond_loopback_need_tls_or_a_private_network() {
    let server = TestNode::start(options(node("n1"))).server;
    let start = |options: LinkOptions| {
        let listener = TcpListener::bind("0.0.0.0:0").expect("there is a free port");
        PeerLinks::start(options, listener, server.clone())
    };
    let refused = start(options(node("n1"))).expect_err("it is not loopback");
    assert!(refused.to_string().contains("plain = true"), "{refused}");
    let mut private = options(node("n1"));
    private.is_private = true;
    assert!(start(private).is_ok());
    let signer = signer("cluster");
    assert!(start(with_tls("n1", tls("n1", &signer, &signer))).is_ok());
    let mut nameless = with_tls("n1", tls("n1", &signer, &signer));
    nameless.me.name = "no name".to_owned();
    assert!(start(nameless).is_err());
}
