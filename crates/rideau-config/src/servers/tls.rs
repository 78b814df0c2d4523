//! TLS towards servers.

use std::path::PathBuf;

use crate::key::{Form, Key};
use crate::keyed::Keyed;
use crate::kinds::{Kind, Maybe, text_kinds};
use crate::section::Section;
use crate::server::{File, SecretFile};
use crate::shown::Rows;
use crate::table::section;

section! {
    /// How servers are known within TLS, and how they know us.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct ServerTls {
        /// The authorities that may have signed the certificates of the servers, PEM.
        ca: Option<PathBuf> = None, Maybe<File>, Live, usual = "those of this machine",
            sample = r#""/etc/rideau/tls/internal.pem""#;
        /// The name that their certificates have, and which they are asked for (SNI).
        name: Option<String> = None, Maybe<ServerName>, Live, usual = "that of each server",
            sample = r#""api.internal""#;
        /// A certificate for servers that ask for one, PEM,
        cert: Option<PathBuf> = None, Maybe<File>, Live, sample = r#""/etc/rideau/tls/front.pem""#;
        /// and its key.
        key: Option<PathBuf> = None, Maybe<SecretFile>, Live,
            sample = r#""/etc/rideau/tls/front.key""#;
    }
}

/// How it is written.
pub(crate) const TLS_SAMPLE: &str = concat!(
    r#"{ ca = "/etc/rideau/tls/internal.pem", name = "api.internal", "#,
    r#"cert = "/etc/rideau/tls/front.pem", key = "/etc/rideau/tls/front.key" }"#
);

/// Authorities of this machine, a table, or no TLS.
pub(crate) struct TlsTable;

text_kinds! {
    /// A name or an address that a certificate may have.
    ServerName: String, Form::Text, |text, _| {
        let is_known = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
        match !text.is_empty() && text.len() <= 253 && text.chars().all(is_known) {
            true => Ok(text.to_ascii_lowercase()),
            false => Err((
                format!("{text:?} is not a name that a certificate has"),
                "write it as \"api.internal\"".into(),
            )),
        }
    }, |name| name.clone();
}

impl Kind<Option<ServerTls>> for TlsTable {
    const FORM: Form = Form::Any(&[
        Form::Words(&["none", "system"]),
        Form::Table(ServerTls::KEYS, || ServerTls::default().rows()),
    ]);

    fn read(section: &Section<'_>, key: &Key) -> Option<Option<ServerTls>> {
        if section.is_word(key.name, "none") {
            return Some(None);
        }
        if section.is_word(key.name, "system") {
            return Some(Some(ServerTls::default()));
        }
        let part = section.part(key)?;
        let mut tls = ServerTls::default();
        tls.read_keys(&part);
        for (one, other) in [("cert", "key"), ("key", "cert")] {
            if part.has(one) && !part.has(other) {
                let message = format!("`tls` has a `{one}` and no `{other}`");
                section
                    .notes
                    .error(part.at(one), message, "write both, or neither");
            }
        }
        Some(Some(tls))
    }

    fn show(value: &Option<ServerTls>, key: &Key, rows: &mut Rows) {
        match value {
            Some(tls) if *tls == ServerTls::default() => rows.text(key.name, "system"),
            Some(tls) => rows.below(key.name, |rows| tls.show_keys(rows)),
            None => rows.text(key.name, "none"),
        }
    }
}
