//! TLS: the certificate of the server, and which users clients are.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rideau_apps::FrontCertificate;
use rideau_config::{CertificateConfig, Tls};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};
use webpki::EndEntityCert;

use super::tickets::TicketKeys;

/// A file of TLS is no good.
#[derive(Debug)]
pub struct BadTls(String);

/// The acceptor for the Redis protocol and the admin page.
///
/// # Errors
///
/// If a file cannot be read or does not hold what it should.
pub fn acceptor(tls: &Tls) -> Result<TlsAcceptor, BadTls> {
    let config = server(&tls.cert, &tls.key, tls.client_ca.as_deref())?;
    Ok(TlsAcceptor::from(config))
}

/// The certificates of the front.
///
/// # Errors
///
/// If a file cannot be read or does not hold what it should.
pub(crate) fn front(
    all: &[CertificateConfig],
    keys: &TicketKeys,
) -> Result<Vec<FrontCertificate>, BadTls> {
    let certificate = |one: &CertificateConfig| {
        let ca = one.client_ca.as_deref();
        let mut config = server(&one.cert, &one.key, ca)?;
        // Sessions go on where clients have shown the same.
        let mut scope = read(&one.cert)?;
        scope.extend(ca.map(read).transpose()?.unwrap_or_default());
        Arc::make_mut(&mut config).ticketer = keys.tickets(scope);
        Ok(FrontCertificate {
            names: names(&one.cert)?,
            is_default: one.is_default,
            asks_clients: one.client_ca.is_some(),
            config,
        })
    };
    all.iter().map(certificate).collect()
}

/// How to speak with clients that are shown this certificate.
fn server(cert: &Path, own: &Path, client_ca: Option<&Path>) -> Result<Arc<ServerConfig>, BadTls> {
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
                added.map_err(|error| bad(path, error))?;
            }
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(verifier.map_err(|error| bad(path, error))?)
        }
    };
    let config = builder
        .with_single_cert(certificates(cert)?, key(own)?)
        .map_err(|error| bad(cert, error))?;
    Ok(Arc::new(config))
}

/// The names of hosts that a certificate is for.
fn names(cert: &Path) -> Result<Vec<String>, BadTls> {
    let all = certificates(cert)?;
    let first = all.first().expect("there is one at least");
    let first = EndEntityCert::try_from(first).map_err(|error| bad(cert, error))?;
    Ok(first.valid_dns_names().map(str::to_owned).collect())
}

/// Certificates that a client trusts, and its own.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TlsIdentity {
    /// The authorities that may have signed the server's certificate; none for those
    /// that the system trusts.
    pub ca: Option<PathBuf>,
    /// Our own certificate, and its key.
    pub own: Option<(PathBuf, PathBuf)>,
}

/// Where systems keep the certificates of the authorities that they trust.
const TRUSTED: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// The connector to a server.
///
/// # Errors
///
/// If a file cannot be read or does not hold what it should.
pub fn connector(papers: &TlsIdentity) -> Result<TlsConnector, BadTls> {
    let mut roots = RootCertStore::empty();
    let ca = match &papers.ca {
        Some(ca) => ca.clone(),
        None => system_trusts()?,
    };
    for certificate in certificates(&ca)? {
        let added = roots.add(certificate);
        // In the system's own file some are of kinds that are not used any more.
        if papers.ca.is_some() {
            added.map_err(|error| bad(&ca, error))?;
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| BadTls(error.to_string()))?
        .with_root_certificates(roots);
    let config = match &papers.own {
        None => builder.with_no_client_auth(),
        Some((cert, own)) => builder
            .with_client_auth_cert(certificates(cert)?, key(own)?)
            .map_err(|error| bad(cert, error))?,
    };
    Ok(TlsConnector::from(Arc::new(config)))
}

fn system_trusts() -> Result<PathBuf, BadTls> {
    let said = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
    let mut known = said.into_iter().chain(TRUSTED.map(PathBuf::from));
    known.find(|path| path.exists()).ok_or_else(|| {
        BadTls(
            "this system has no list of trusted certificates; name a file of \
            certificates"
                .into(),
        )
    })
}

/// The common name in the subject of a client's certificate: the name of its user. The
/// certificate was verified before. A certificate with several names has none: its
/// signer may have looked at another than we would.
pub fn common_name(certificate: &CertificateDer<'_>) -> Option<String> {
    const SEQUENCE: u8 = 0x30;
    const VERSION: u8 = 0xa0;
    const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
    let mut whole: &[u8] = certificate.as_ref();
    let mut certificate = next(&mut whole)?.1;
    let mut signed = next(&mut certificate)?.1;
    // Serial number, algorithm, issuer and validity come before the subject, and
    // perhaps a version before them.
    if signed.first() == Some(&VERSION) {
        next(&mut signed)?;
    }
    for _ in 0..4 {
        next(&mut signed)?;
    }
    let (kind, mut subject) = next(&mut signed)?;
    if kind != SEQUENCE {
        return None;
    }
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

/// The next value of DER: its type and its bytes.
fn next<'a>(from: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let (&kind, rest) = from.split_first()?;
    let (&first, mut rest) = rest.split_first()?;
    let len = if first < 0x80 {
        usize::from(first)
    } else {
        let (digits, after) = rest.split_at_checked(usize::from(first & 0x7f))?;
        if digits.len() > size_of::<u32>() {
            return None;
        }
        rest = after;
        let number = digits
            .iter()
            .fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
        usize::try_from(number).ok()?
    };
    let (value, rest) = rest.split_at_checked(len)?;
    *from = rest;
    Some((kind, value))
}

pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, BadTls> {
    let text = read(path)?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let all = all.map_err(|error| bad(path, error))?;
    if all.is_empty() {
        return Err(bad(path, "there is no certificate in it"));
    }
    Ok(all)
}

pub(crate) fn key(path: &Path) -> Result<PrivateKeyDer<'static>, BadTls> {
    PrivateKeyDer::from_pem_slice(&read(path)?).map_err(|error| bad(path, error))
}

fn read(path: &Path) -> Result<Vec<u8>, BadTls> {
    fs::read(path).map_err(|error| bad(path, error))
}

fn bad(path: &Path, why: impl fmt::Display) -> BadTls {
    BadTls(format!("{}: {why}", path.display()))
}

impl fmt::Display for BadTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadTls {}

impl From<BadTls> for io::Error {
    fn from(error: BadTls) -> Self {
        Self::new(io::ErrorKind::InvalidInput, error)
    }
}
