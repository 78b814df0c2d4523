//! TLS as a client speaks it: which servers it believes, and how it says who it is.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};

/// A file of TLS is no good.
#[derive(Debug)]
pub struct BadTls(pub String);

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

impl TlsIdentity {
    /// How to speak with a server.
    ///
    /// # Errors
    ///
    /// If a file cannot be read or does not hold what it should.
    pub fn config(&self) -> Result<ClientConfig, BadTls> {
        let mut roots = RootCertStore::empty();
        let ca = self.trusted()?;
        for certificate in certificates(&ca)? {
            let added = roots.add(certificate);
            // In the system's own file some are of kinds that are not used any more.
            if self.ca.is_some() {
                added.map_err(|error| BadTls::of(&ca, error))?;
            }
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| BadTls(error.to_string()))?
            .with_root_certificates(roots);
        Ok(match &self.own {
            None => builder.with_no_client_auth(),
            Some((cert, own)) => builder
                .with_client_auth_cert(certificates(cert)?, key(own)?)
                .map_err(|error| BadTls::of(cert, error))?,
        })
    }

    /// The files that count.
    ///
    /// # Errors
    ///
    /// If the system has no list of authorities.
    pub fn files(&self) -> Result<Vec<PathBuf>, BadTls> {
        let own = self.own.clone();
        let own = own.into_iter().flat_map(|(cert, key)| [cert, key]);
        Ok([self.trusted()?].into_iter().chain(own).collect())
    }

    fn trusted(&self) -> Result<PathBuf, BadTls> {
        match &self.ca {
            Some(ca) => Ok(ca.clone()),
            None => system_trusts(),
        }
    }
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

/// The certificates in a file.
///
/// # Errors
///
/// If there are none.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, BadTls> {
    certificates_in(path, &read(path)?)
}

/// The certificates in a text, which is named in what is said of it.
///
/// # Errors
///
/// If there are none.
pub fn certificates_in(path: &Path, text: &[u8]) -> Result<Vec<CertificateDer<'static>>, BadTls> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    let all = all.map_err(|error| BadTls::of(path, error))?;
    if all.is_empty() {
        return Err(BadTls::of(path, "there is no certificate in it"));
    }
    Ok(all)
}

/// The key in a file.
///
/// # Errors
///
/// If there is none.
pub fn key(path: &Path) -> Result<PrivateKeyDer<'static>, BadTls> {
    PrivateKeyDer::from_pem_slice(&read(path)?).map_err(|error| BadTls::of(path, error))
}

/// The bytes of a file.
///
/// # Errors
///
/// If it cannot be read.
pub fn read(path: &Path) -> Result<Vec<u8>, BadTls> {
    fs::read(path).map_err(|error| BadTls::of(path, error))
}

impl BadTls {
    /// It is this file.
    pub fn of(path: &Path, why: impl fmt::Display) -> Self {
        Self(format!("{}: {why}", path.display()))
    }
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
