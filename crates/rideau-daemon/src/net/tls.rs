//! TLS: the certificate of the server, and which users clients are.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use rideau_apps::FrontCertificate;
pub use rideau_apps::client_tls::{BadTls, TlsIdentity};
pub(crate) use rideau_apps::client_tls::{certificates, key};
use rideau_apps::client_tls::{certificates_in, read};
use rideau_config::{CertificateConfig, Tls};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{self, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};
use webpki::EndEntityCert;

use super::der::{self, next};
use super::tickets::TicketKeys;

/// The acceptor for the Redis protocol and the admin page.
///
/// # Errors
///
/// If a file cannot be read or does not hold what it should.
pub fn acceptor(tls: &Tls) -> Result<TlsAcceptor, BadTls> {
    let (all, own) = (certificates(&tls.cert)?, key(&tls.key)?);
    let config = server(&tls.cert, all, own, tls.client_ca.as_deref())?;
    Ok(TlsAcceptor::from(config))
}

/// A certificate of the front that was read.
#[derive(Clone, Debug)]
pub(crate) struct ReadCertificate {
    /// Its name in the config, or the host that it was ordered for.
    pub(crate) name: String,
    /// From when to when it is valid.
    pub(crate) life: (SystemTime, SystemTime),
    /// For the front.
    pub(crate) front: FrontCertificate,
}

/// The certificates of the front that the config names.
///
/// # Errors
///
/// If a file cannot be read or does not hold what it should.
pub(crate) fn front(
    all: &[CertificateConfig],
    keys: &TicketKeys,
) -> Result<Vec<ReadCertificate>, BadTls> {
    let read = |one: &CertificateConfig| {
        let ca = one.client_ca.as_deref();
        let mut read = read_pair(&one.name, &one.cert, &one.key, ca, keys)?;
        read.front.is_default = one.is_default;
        Ok(read)
    };
    all.iter().map(read).collect()
}

/// Files of a certificate that was ordered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct StoredPair {
    /// The certificate and those above it, PEM.
    pub(crate) cert: PathBuf,
    /// Its key, PEM.
    pub(crate) key: PathBuf,
}

/// The certificate that was ordered for a host.
///
/// # Errors
///
/// If a file cannot be read or does not hold what it should.
pub(crate) fn ordered(
    host: &str,
    pair: &StoredPair,
    keys: &TicketKeys,
) -> Result<ReadCertificate, BadTls> {
    read_pair(host, &pair.cert, &pair.key, None, keys)
}

fn read_pair(
    name: &str,
    cert: &Path,
    own: &Path,
    client_ca: Option<&Path>,
    keys: &TicketKeys,
) -> Result<ReadCertificate, BadTls> {
    let all = certificates(cert)?;
    let first = all.first().expect("there is one at least");
    let life =
        der::life(first).ok_or_else(|| BadTls::of(cert, "it does not say how long it is valid"))?;
    let mut config = server(cert, all.clone(), key(own)?, client_ca)?;
    // Sessions go on where clients have shown the same.
    let mut scope = read(cert)?;
    scope.extend(client_ca.map(read).transpose()?.unwrap_or_default());
    Arc::make_mut(&mut config).ticketer = keys.tickets(scope);
    Ok(ReadCertificate {
        name: name.into(),
        life,
        front: FrontCertificate {
            names: names(cert, first)?,
            is_default: false,
            asks_clients: client_ca.is_some(),
            config,
        },
    })
}

/// Both files of a pair are there, and belong together.
pub(crate) fn is_whole(pair: &StoredPair) -> bool {
    ordered("", pair, &TicketKeys::default()).is_ok()
}

/// A certificate and a key, both PEM, belong together.
///
/// # Errors
///
/// If they do not.
pub(crate) fn check_pair(cert: &str, own: &str) -> Result<(), BadTls> {
    let (cert_text, key_text) = (Path::new("the certificate"), Path::new("the key"));
    let all = certificates_in(cert_text, cert.as_bytes())?;
    let own = PrivateKeyDer::from_pem_slice(own.as_bytes());
    let own = own.map_err(|error| BadTls::of(key_text, error))?;
    server(cert_text, all, own, None).map(|_| ())
}

/// How to speak with clients that are shown this certificate.
fn server(
    cert: &Path,
    all: Vec<CertificateDer<'static>>,
    own: PrivateKeyDer<'static>,
    client_ca: Option<&Path>,
) -> Result<Arc<ServerConfig>, BadTls> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| BadTls(error.to_string()))?;
    let builder = match client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(path)? {
                let added = roots.add(certificate);
                added.map_err(|error| BadTls::of(path, error))?;
            }
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(verifier.map_err(|error| BadTls::of(path, error))?)
        }
    };
    let config = builder
        .with_single_cert(all, own)
        .map_err(|error| BadTls::of(cert, error))?;
    Ok(Arc::new(config))
}

/// The names of hosts that a certificate is for.
fn names(cert: &Path, first: &CertificateDer<'_>) -> Result<Vec<String>, BadTls> {
    let first = EndEntityCert::try_from(first).map_err(|error| BadTls::of(cert, error))?;
    Ok(first.valid_dns_names().map(str::to_owned).collect())
}

/// The connector to a server.
///
/// # Errors
///
/// If a file cannot be read or does not hold what it should.
pub fn connector(papers: &TlsIdentity) -> Result<TlsConnector, BadTls> {
    Ok(TlsConnector::from(Arc::new(papers.config()?)))
}

/// The common name in the subject of a client's certificate: the name of its user. The
/// certificate was verified before. A certificate with several names has none: its
/// signer may have looked at another than we would.
pub fn common_name(certificate: &CertificateDer<'_>) -> Option<String> {
    const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
    let mut subject = der::subject(certificate)?;
    let mut names = Vec::new();
    while !subject.is_empty() {
        let (_, mut set) = next(&mut subject)?;
        while !set.is_empty() {
            let (_, mut attribute) = next(&mut set)?;
            let (_, name) = next(&mut attribute)?;
            let value = next(&mut attribute)?;
            if name == COMMON_NAME {
                names.push(value);
            }
        }
    }
    let [(kind, name)] = names[..] else {
        return None;
    };
    // UTF8String, PrintableString or IA5String.
    let is_read = matches!(kind, 0x0c | 0x13 | 0x16);
    let name = String::from_utf8(name.to_vec()).ok();
    name.filter(|name| is_read && !name.contains(char::is_control))
}
