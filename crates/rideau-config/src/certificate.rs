//! Certificates of the front: which names it has, and which clients it lets in.

use std::path::PathBuf;

use super::keyed::Keyed;
use super::kinds::{Answer, Maybe};
use super::section::Section;
use super::server::{File, SecretFile};
use super::table::section;

section! {
    /// A certificate of the front, for the names that it is for.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct CertificateConfig {
        plain {
            /// Its name in the config.
            name: String = String::new();
        }
        /// The certificate and those above it, PEM.
        cert: PathBuf = PathBuf::new(), File, Connections, usual = "required",
            sample = r#""/etc/rideau/tls/shop.pem""#;
        /// Its key, PEM.
        key: PathBuf = PathBuf::new(), SecretFile, Connections, usual = "required",
            sample = r#""/etc/rideau/tls/shop.key""#;
        /// Clients of these names need a certificate signed by it.
        client_ca: Option<PathBuf> = None, Maybe<File>, Connections,
            sample = r#""/etc/rideau/tls/customers.pem""#;
        /// It is shown to clients that ask for a name that no certificate has, or for none. A
        /// single certificate is always the default.
        is_default: bool = false, Answer, Connections, name = "default";
    }
}

impl CertificateConfig {
    /// None if a file is missing; that is noted.
    pub(super) fn read(name: &str, section: &Section<'_>) -> Option<Self> {
        for key in ["cert", "key"] {
            if !section.has(key) {
                let message = format!("[certificate.{name}] has no `{key}`");
                let hint = format!("write {key} = \"/path/to/file.pem\"");
                section.notes.error(section.at.clone(), message, hint);
            }
        }
        let mut certificate = Self {
            name: name.into(),
            ..Self::default()
        };
        certificate.read_keys(section);
        let is_whole = section.text("cert").is_some() && section.text("key").is_some();
        is_whole.then_some(certificate)
    }
}
