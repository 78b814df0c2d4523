//! What an authority is shown that asks whether a host is ours.
//!
//! It is shown before any rule is looked at, and only while an order needs it: the authority
//! asks from several places, within TLS (`tls-alpn-01`) or by HTTP (`http-01`). What else is
//! asked for below the same path is the app's.

use std::sync::Arc;

use arc_swap::ArcSwap;
use hyper::Method;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::server::ClientHello;

use super::host::host_name;

/// The protocol that is spoken only to show a certificate.
pub const ACME_TLS: &[u8] = b"acme-tls/1";
const PATH: &[u8] = b"/.well-known/acme-challenge/";

/// Answers for an authority.
#[derive(Clone, Default)]
pub struct AcmeAnswers(Arc<ArcSwap<Vec<Shown>>>);

/// An answer that is shown until this is dropped.
#[must_use]
pub struct AcmeAnswer {
    all: AcmeAnswers,
    answer: Arc<ShownAnswer>,
}

type Shown = Arc<ShownAnswer>;

struct ShownAnswer {
    /// In small letters.
    host: String,
    how: How,
}

enum How {
    /// The last part of the path, and the text there.
    Http { token: String, text: Arc<str> },
    /// The certificate.
    Tls(Arc<ServerConfig>),
}

impl AcmeAnswers {
    /// Show this text to those who ask for the token at that host by HTTP.
    pub fn show_text(&self, host: &str, token: &str, text: &str) -> AcmeAnswer {
        let (token, text) = (token.to_owned(), text.into());
        self.show(host, How::Http { token, text })
    }

    /// Show this certificate to those who ask for that host, and speak [`ACME_TLS`].
    pub fn show_certificate(&self, host: &str, config: Arc<ServerConfig>) -> AcmeAnswer {
        self.show(host, How::Tls(config))
    }

    fn show(&self, host: &str, how: How) -> AcmeAnswer {
        let host = host.to_ascii_lowercase();
        let answer = Arc::new(ShownAnswer { host, how });
        self.0.rcu(|all| {
            let mut all = Vec::clone(all);
            all.push(Arc::clone(&answer));
            all
        });
        let all = self.clone();
        AcmeAnswer { all, answer }
    }

    /// The text for a request, if there is one.
    #[inline]
    pub(super) fn text(
        &self,
        method: &Method,
        host: Option<&[u8]>,
        target: &[u8],
    ) -> Option<Arc<str>> {
        let token = target.strip_prefix(PATH)?;
        self.text_of(method, host?, token)
    }

    #[inline(never)]
    fn text_of(&self, method: &Method, host: &[u8], token: &[u8]) -> Option<Arc<str>> {
        let is_read = matches!(*method, Method::GET | Method::HEAD);
        let name = host_name(host);
        let all = self.0.load();
        let mut texts = all.iter().filter(|one| is_read && one.is_for(name));
        texts.find_map(|one| match &one.how {
            How::Http { token: own, text } => (own.as_bytes() == token).then(|| Arc::clone(text)),
            How::Tls(_) => None,
        })
    }

    /// The certificate for a client that wants to see no other, if there is one.
    pub(super) fn certificate(&self, hello: &ClientHello<'_>) -> Option<Arc<ServerConfig>> {
        let all = self.0.load();
        if all.is_empty() || !hello.alpn()?.any(|protocol| protocol == ACME_TLS) {
            return None;
        }
        let name = hello.server_name()?.as_bytes();
        let mut own = all.iter().filter(|one| one.is_for(name));
        own.find_map(|one| match &one.how {
            How::Tls(config) => Some(Arc::clone(config)),
            How::Http { .. } => None,
        })
    }
}

impl ShownAnswer {
    fn is_for(&self, name: &[u8]) -> bool {
        self.host.as_bytes().eq_ignore_ascii_case(name)
    }
}

impl Drop for AcmeAnswer {
    fn drop(&mut self) {
        self.all.0.rcu(|all| {
            let others = all.iter().filter(|one| !Arc::ptr_eq(one, &self.answer));
            others.cloned().collect::<Vec<_>>()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_shown_for_its_host_and_token_until_it_is_dropped() {
        let answers = AcmeAnswers::default();
        let ask = |method: &Method, host: &str, path: &str| {
            let text = answers.text(method, Some(host.as_bytes()), path.as_bytes());
            text.is_some_and(|text| &*text == "abc.key")
        };
        let path = "/.well-known/acme-challenge/abc";
        assert!(!ask(&Method::GET, "shop.example", path));
        let shown = answers.show_text("Shop.example", "abc", "abc.key");
        let other = answers.show_text("shop.example", "def", "def.key");
        assert!(ask(&Method::GET, "shop.example", path));
        assert!(ask(&Method::HEAD, "SHOP.example.:80", path));
        assert!(!ask(&Method::POST, "shop.example", path));
        assert!(!ask(&Method::GET, "other.example", path));
        for other in ["ab", "abcd", "abc?", "ABC", "", "x/../abc"] {
            let path = format!("/.well-known/acme-challenge/{other}");
            assert!(!ask(&Method::GET, "shop.example", &path), "{other}");
        }
        drop(shown);
        assert!(!ask(&Method::GET, "shop.example", path));
        drop(other);
        assert!(answers.0.load().is_empty());
    }
}
