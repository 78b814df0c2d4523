//! Leads clients to TLS, and tells them to stay there.

use std::fmt::Write;

use rideau_config::Hsts;

use super::certificates::Tls;
use super::host::host_name;
use super::location::push_path;

/// The port of `https` that no address has to name.
const HTTPS: u16 = 443;

/// Where TLS is spoken.
#[derive(Clone)]
pub(super) struct SecurePlace {
    pub(super) tls: Tls,
    pub(super) port: u16,
}

impl SecurePlace {
    /// Where a request finds the same within TLS, if its host has a certificate.
    pub(super) fn location(&self, host: &[u8], path: &[u8]) -> Option<String> {
        if path == b"*" || !self.tls.now().has_own(host) {
            return None;
        }
        let mut location = String::from("https://");
        location.push_str(str::from_utf8(host_name(host)).ok()?);
        if self.port != HTTPS {
            let _ = write!(location, ":{}", self.port);
        }
        if !path.starts_with(b"/") {
            location.push('/');
        }
        push_path(&mut location, path);
        Some(location)
    }
}

/// The value of `Strict-Transport-Security`.
pub(super) fn hsts_text(hsts: &Hsts) -> String {
    let mut text = format!("max-age={}", hsts.max_age.as_secs());
    if hsts.subdomains {
        text.push_str("; includeSubDomains");
    }
    if hsts.preload {
        text.push_str("; preload");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::front::certificates::FrontCertificate;
    use std::sync::Arc;
    use std::time::Duration;
    use tokio_rustls::rustls::{ServerConfig, crypto};

    fn place(port: u16) -> SecurePlace {
        let provider = Arc::new(crypto::ring::default_provider());
        let made = rcgen::generate_simple_self_signed(vec!["any".into()]).unwrap();
        let key = made.signing_key.serialize_der().try_into().unwrap();
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key);
        let certificate = FrontCertificate {
            names: vec!["shop.example".into(), "*.shop.example".into()],
            is_default: true,
            asks_clients: false,
            config: Arc::new(config.unwrap()),
        };
        SecurePlace {
            tls: Tls::new(vec![certificate]),
            port,
        }
    }

    #[test]
    fn a_host_with_a_certificate_is_led_to_it() {
        let at = |port, host: &str, path: &str| {
            let found = place(port).location(host.as_bytes(), path.as_bytes());
            found.unwrap_or_default()
        };
        let shop = "shop.example:8080";
        assert_eq!(at(443, shop, "/a?b=c"), "https://shop.example/a?b=c");
        assert_eq!(at(8443, shop, "/"), "https://shop.example:8443/");
        assert_eq!(at(443, "A.Shop.Example", "?b"), "https://A.Shop.Example/?b");
        assert_eq!(at(443, "other.example", "/"), "");
        assert_eq!(at(443, "", "/"), "");
        assert_eq!(at(443, shop, "*"), "");
        let odd = at(443, shop, "/é\"{a}\r\nSet-Cookie: a");
        let expected = "https://shop.example/%C3%A9%22%7Ba%7D%0D%0ASet-Cookie:%20a";
        assert_eq!(odd, expected);
    }

    #[test]
    fn what_browsers_are_told_has_what_was_asked_for() {
        let hsts = Hsts {
            max_age: Duration::from_secs(365 * 24 * 3600),
            subdomains: true,
            preload: true,
        };
        let all = "max-age=31536000; includeSubDomains; preload";
        assert_eq!(hsts_text(&hsts), all);
        assert_eq!(hsts_text(&Hsts::default()), "max-age=15552000");
    }
}
