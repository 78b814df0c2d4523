//! TLS between nodes: both sides have a certificate that names their node.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use rideau_core::cluster::Incarnation;
use tokio_rustls::rustls::client::verify_server_name;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{self, ClientConfig, ConnectionCommon, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::refusal::{LinkRefusal, RefusalReason};

/// The exporter label that binds a proof to one TLS connection.
const EXPORTER: &[u8] = b"EXPORTER-rideau-link";
/// Bytes of it.
const CHANNEL_LEN: usize = 32;

/// What a node brings to TLS. Its certificate has the node's name as a DNS name among its
/// subject alternative names.
#[derive(Clone)]
pub struct PeerTls {
    pub(super) acceptor: TlsAcceptor,
    pub(super) connector: TlsConnector,
}

/// Certificates or a key that cannot be used.
#[derive(Debug)]
pub struct BadPeerTls(String);

impl PeerTls {
    /// The authorities that sign the certificates of nodes, and this node's certificate
    /// with those that lead to an authority, and its key.
    ///
    /// # Errors
    ///
    /// If one of them cannot be used, or the certificate does not belong to the key.
    pub fn new(
        authorities: Vec<CertificateDer<'static>>,
        certificate: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Self, BadPeerTls> {
        let mut roots = RootCertStore::empty();
        for authority in authorities {
            roots.add(authority)?;
        }
        let roots = Arc::new(roots);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider));
        let verifier = verifier
            .build()
            .map_err(|error| BadPeerTls(error.to_string()))?;
        let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(verifier)
            .with_single_cert(certificate.clone(), key.clone_key())?;
        let client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])?
            .with_root_certificates(roots)
            .with_client_auth_cert(certificate, key)?;
        Ok(Self {
            acceptor: TlsAcceptor::from(Arc::new(server)),
            connector: TlsConnector::from(Arc::new(client)),
        })
    }
}

impl fmt::Debug for PeerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PeerTls(..)")
    }
}

impl From<rustls::Error> for BadPeerTls {
    fn from(error: rustls::Error) -> Self {
        Self(error.to_string())
    }
}

impl fmt::Display for BadPeerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadPeerTls {}

/// The name of a node, as certificates have it.
pub(super) fn certified_name(node: &Incarnation) -> Result<ServerName<'static>, LinkRefusal> {
    let name = ServerName::try_from(node.name.clone());
    let name = name
        .ok()
        .filter(|name| matches!(name, ServerName::DnsName(_)));
    let detail = format_args!(
        "{:?} is not a DNS name, so no certificate has it",
        node.name
    );
    name.ok_or_else(|| RefusalReason::Certificate.with(detail))
}

/// Whether the certificate that the other side showed names this node.
pub(super) fn check_certificate(
    certificates: Option<&[CertificateDer<'_>]>,
    node: &Incarnation,
) -> Result<(), LinkRefusal> {
    let refused = |why: &dyn fmt::Display| {
        let detail = format_args!("the certificate is not that of {node}: {why}");
        RefusalReason::Certificate.with(detail)
    };
    let first = certificates.and_then(<[_]>::first);
    let first = first.ok_or_else(|| refused(&"there is none"))?;
    let parsed = ParsedCertificate::try_from(first).map_err(|error| refused(&error))?;
    let name = certified_name(node)?;
    verify_server_name(&parsed, &name).map_err(|error| refused(&error))
}

/// The channel binding of a TLS connection, the same on both sides.
pub(super) fn channel<T>(connection: &ConnectionCommon<T>) -> Result<Vec<u8>, LinkRefusal> {
    let exported = connection.export_keying_material(vec![0; CHANNEL_LEN], EXPORTER, None);
    exported.map_err(|error| RefusalReason::Certificate.with(error))
}

/// Whether two nodes may speak over this address without TLS.
pub(super) fn may_be_plain(address: IpAddr, is_private: bool) -> Result<(), LinkRefusal> {
    if is_private || address.to_canonical().is_loopback() {
        return Ok(());
    }
    let detail = format_args!("{address} is not a loopback address; set up TLS, or plain = true");
    Err(RefusalReason::NeedsTls.with(detail))
}
