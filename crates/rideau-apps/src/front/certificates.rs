//! Which certificate a client is shown, by the name that it asks for.
//!
//! The name is in the client's first message, and with the certificate goes whether the
//! client has to show one too. A connection that was let in by one certificate serves no
//! host that has a stricter one.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::server::Acceptor;
use tokio_rustls::server::TlsStream;

use super::acme_answers::AcmeAnswers;
use super::host::host_name;

/// How HTTP/2 is called within TLS.
pub(super) const ALPN_H2: &[u8] = b"h2";
const ALPN_HTTP: &[u8] = b"http/1.1";
/// A fatal alert: there is no such name here.
const UNKNOWN_NAME: [u8; 7] = [21, 3, 3, 0, 2, 2, 112];

/// A certificate, and what it takes to use it.
#[derive(Clone, Debug)]
pub struct FrontCertificate {
    /// The names that it is for; `*.example.org` is for one more word before that.
    pub names: Vec<String>,
    /// It is shown to clients that ask for another name, or for none.
    pub is_default: bool,
    /// Clients have to show a certificate, too.
    pub asks_clients: bool,
    /// The certificate, its key, and how to speak.
    pub config: Arc<ServerConfig>,
}

/// The certificates of a front; changed while they are used.
#[derive(Clone)]
pub struct Tls(Arc<ArcSwap<Certificates>>);

/// All certificates of a moment.
pub(super) struct Certificates {
    all: Vec<FrontCertificate>,
    /// Where each name is among them. Those with a star are without it.
    exact: HashMap<String, usize>,
    wild: HashMap<String, usize>,
    default: Option<usize>,
}

/// The certificate that a connection was let in with.
pub(super) struct ShownCertificate {
    certificates: Arc<Certificates>,
    at: usize,
}

impl Tls {
    /// Take connections in with these.
    pub fn new(certificates: Vec<FrontCertificate>) -> Self {
        let certificates = Certificates::new(certificates);
        Self(Arc::new(ArcSwap::from_pointee(certificates)))
    }

    /// And new ones with these.
    pub fn renew(&self, certificates: Vec<FrontCertificate>) {
        self.0.store(Arc::new(Certificates::new(certificates)));
    }

    pub(super) fn now(&self) -> Arc<Certificates> {
        self.0.load_full()
    }
}

impl Certificates {
    fn new(mut all: Vec<FrontCertificate>) -> Self {
        let (mut exact, mut wild) = (HashMap::new(), HashMap::new());
        for (at, certificate) in all.iter_mut().enumerate() {
            let mut config = (*certificate.config).clone();
            config.alpn_protocols = vec![ALPN_H2.to_vec(), ALPN_HTTP.to_vec()];
            certificate.config = Arc::new(config);
            for name in &certificate.names {
                let name = name.to_ascii_lowercase();
                match name.strip_prefix("*.") {
                    // The certificate that came first keeps a name that two have.
                    Some(rest) => wild.entry(rest.to_owned()).or_insert(at),
                    None => exact.entry(name).or_insert(at),
                };
            }
        }
        // One that is alone is for all.
        let named = all.iter().position(|certificate| certificate.is_default);
        let default = named.or((all.len() == 1).then_some(0));
        Self {
            all,
            exact,
            wild,
            default,
        }
    }

    /// The certificate for a name, which is in small letters: its own, or that for all names
    /// beside it.
    fn own(&self, name: &str) -> Option<usize> {
        let exact = self.exact.get(name);
        let wild = || self.wild.get(name.split_once('.')?.1);
        exact.or_else(wild).copied()
    }

    /// Whether a host, which may have a port, has its own.
    pub(super) fn has_own(&self, host: &[u8]) -> bool {
        let name = str::from_utf8(host_name(host)).unwrap_or_default();
        self.own(&name.to_ascii_lowercase()).is_some()
    }

    fn find(&self, name: Option<&str>) -> Option<usize> {
        let own = name.and_then(|name| self.own(&name.to_ascii_lowercase()));
        own.or(self.default)
    }

    /// Begin TLS with a client. None if it came only to see a certificate, which an authority
    /// does.
    ///
    /// # Errors
    ///
    /// If the client does not speak it, or asks for a name that has no certificate.
    pub(super) async fn accept(
        self: Arc<Self>,
        stream: TcpStream,
        answers: &AcmeAnswers,
    ) -> io::Result<Option<(TlsStream<TcpStream>, ShownCertificate)>> {
        let mut begun = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
        if let Some(config) = answers.certificate(&begun.client_hello()) {
            begun.into_stream(config).await?.shutdown().await?;
            return Ok(None);
        }
        let at = self.find(begun.client_hello().server_name());
        let Some(at) = at else {
            begun.io.write_all(&UNKNOWN_NAME).await?;
            begun.io.shutdown().await?;
            return Err(io::Error::other("there is no certificate for that name"));
        };
        let stream = begun.into_stream(Arc::clone(&self.all[at].config)).await?;
        let certificates = self;
        Ok(Some((stream, ShownCertificate { certificates, at })))
    }
}

impl ShownCertificate {
    /// Whether a connection that was let in with this may ask for a host. One that could ask
    /// for several at a time may ask for those of its certificate; every other one for those
    /// whose certificate asks no more of clients.
    pub(super) fn is_for(&self, host: &[u8], is_shared: bool) -> bool {
        let certificates = &*self.certificates;
        if certificates.all.len() == 1 {
            return true;
        }
        let name = str::from_utf8(host_name(host)).unwrap_or_default();
        match certificates.own(&name.to_ascii_lowercase()) {
            None => true,
            Some(at) => at == self.at || !is_shared && !certificates.all[at].asks_clients,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificates(all: &[(&[&str], bool, bool)]) -> Certificates {
        let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
        let all = all.iter().map(|(names, is_default, asks_clients)| {
            let made = rcgen::generate_simple_self_signed(vec!["any".into()]).unwrap();
            let key = made.signing_key.serialize_der().try_into().unwrap();
            let config = ServerConfig::builder_with_provider(Arc::clone(&provider))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_no_client_auth()
                .with_single_cert(vec![made.cert.der().clone()], key);
            FrontCertificate {
                names: names.iter().map(|name| (*name).to_owned()).collect(),
                is_default: *is_default,
                asks_clients: *asks_clients,
                config: Arc::new(config.unwrap()),
            }
        });
        Certificates::new(all.collect())
    }

    #[test]
    fn a_name_has_its_own_certificate_or_that_of_its_neighbours_or_the_default() {
        let all = certificates(&[
            (&["a.example", "b.example"], false, false),
            (&["*.example", "Shop.Other"], false, false),
            (&[], true, false),
        ]);
        let cases = [
            (Some("a.example"), Some(0)),
            (Some("B.EXAMPLE"), Some(0)),
            (Some("c.example"), Some(1)),
            (Some("d.c.example"), Some(2)),
            (Some("example"), Some(2)),
            (Some("shop.other"), Some(1)),
            (None, Some(2)),
        ];
        for (name, found) in cases {
            assert_eq!(all.find(name), found, "{name:?}");
        }
        let without = certificates(&[
            (&["a.example"], false, false),
            (&["b.example"], false, false),
        ]);
        assert_eq!(without.find(Some("c.example")), None);
        assert_eq!(without.find(None), None);
        let alone = certificates(&[(&["a.example"], false, false)]);
        assert_eq!(alone.find(Some("c.example")), Some(0));
    }

    #[test]
    fn a_connection_serves_no_host_with_a_stricter_certificate() {
        let all = Arc::new(certificates(&[
            (&["open.example"], true, false),
            (&["also.example"], false, false),
            (&["closed.example"], false, true),
        ]));
        let shown = |at| ShownCertificate {
            certificates: Arc::clone(&all),
            at,
        };
        assert!(shown(0).is_for(b"open.example:443", true));
        assert!(shown(0).is_for(b"unknown.example", true));
        assert!(!shown(0).is_for(b"also.example", true));
        assert!(shown(0).is_for(b"also.example", false));
        assert!(!shown(0).is_for(b"Closed.Example.", false));
        assert!(shown(2).is_for(b"closed.example:8443", true));
        assert!(shown(2).is_for(b"open.example", false));
    }
}
