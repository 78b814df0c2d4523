//! TLS: the certificate of the server, and which users clients are.

use std::path::Path;
use std::sync::Arc;

use rideau_apps::FrontCertificate;
pub use rideau_apps::client_tls::{BadTls, TlsIdentity};
pub(crate) use rideau_apps::client_tls::{certificates, key};
use rideau_config::{CertificateConfig, Tls};
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{self, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};
use webpki::EndEntityCert;

use super::tickets::TicketKeys;

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
                added.map_err(|error| BadTls::of(path, error))?;
            }
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(verifier.map_err(|error| BadTls::of(path, error))?)
        }
    };
    let config = builder
        .with_single_cert(certificates(cert)?, key(own)?)
        .map_err(|error| BadTls::of(cert, error))?;
    Ok(Arc::new(config))
}

/// The names of hosts that a certificate is for.
fn names(cert: &Path) -> Result<Vec<String>, BadTls> {
    let all = certificates(cert)?;
    let first = all.first().expect("there is one at least");
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
