//! Certificates that are made for one test.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

/// An authority that signs certificates.
pub type Signer = CertifiedIssuer<'static, KeyPair>;

/// A certificate and its key.
#[derive(Debug)]
pub struct Identity {
    certificate: rcgen::Certificate,
    key: KeyPair,
}

/// An authority of this name.
///
/// # Panics
///
/// If no key can be made.
pub fn signer(name: &str) -> Signer {
    let mut params = params(name, Vec::new());
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, key()).expect("what was made here can be signed")
}

/// The certificate of this name for `localhost`.
///
/// # Panics
///
/// If no key can be made.
pub fn papers(name: &str, signer: &Signer) -> Identity {
    papers_for(name, &["localhost"], signer)
}

/// The certificate of this name for these hosts.
///
/// # Panics
///
/// If no key can be made.
pub fn papers_for(name: &str, hosts: &[&str], signer: &Signer) -> Identity {
    let key = key();
    let hosts = hosts.iter().map(|host| (*host).to_owned()).collect();
    let certificate = params(name, hosts).signed_by(&key, signer);
    Identity {
        certificate: certificate.expect("what was made here can be signed"),
        key,
    }
}

impl Identity {
    /// The certificate as text.
    pub fn certificate(&self) -> String {
        self.certificate.pem()
    }

    /// The key as text.
    pub fn key(&self) -> String {
        self.key.serialize_pem()
    }

    /// The certificate as bytes.
    pub fn certificate_der(&self) -> Vec<u8> {
        self.certificate.der().to_vec()
    }

    /// The key as bytes.
    pub fn key_der(&self) -> Vec<u8> {
        self.key.serialize_der()
    }
}

fn key() -> KeyPair {
    KeyPair::generate().expect("the system has random bytes")
}

fn params(name: &str, hosts: Vec<String>) -> CertificateParams {
    let mut params = CertificateParams::new(hosts).expect("these are names of hosts");
    params.distinguished_name.push(DnType::CommonName, name);
    params
}
