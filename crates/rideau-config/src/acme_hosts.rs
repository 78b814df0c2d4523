//! The hosts that certificates are ordered for, and how each can prove to be ours.

use rideau_core::acme::{AcmeChallenge, AcmeHost};

use super::acme::{AcmeConfig, is_address};
use super::config::Config;
use super::front::{FrontConfig, FrontListen};
use super::server::Listen;

const HTTPS: u16 = 443;
/// Ends of names that no public authority knows.
const OWN_NAMES: [&str; 4] = [".localhost", ".local", ".internal", ".home.arpa"];

impl Config {
    /// The hosts that certificates are ordered for, unless another certificate is for them.
    /// A list names them in any case.
    pub fn acme_hosts(&self, has_other: impl Fn(&str) -> bool) -> Vec<AcmeHost> {
        let Some(acme) = &self.front.acme else {
            return Vec::new();
        };
        let names = match &acme.hosts {
            Some(hosts) => hosts.clone(),
            None => {
                let apps = self.apps.iter().flat_map(|app| &app.hosts);
                let routes = self.front.routes.iter().flat_map(|route| &route.hosts);
                let is_wanted = |host: &&String| is_public(host) && !has_other(host);
                let mut all: Vec<_> = apps.chain(routes).filter(is_wanted).cloned().collect();
                all.sort_unstable();
                all.dedup();
                all
            }
        };
        let host = |name: String| AcmeHost {
            challenges: challenges(acme, &name, &self.front),
            name,
        };
        names.into_iter().map(host).collect()
    }
}

/// How a host can prove to be ours, what is tried first at the front. None if it cannot.
fn challenges(acme: &AcmeConfig, host: &str, front: &FrontConfig) -> Vec<AcmeChallenge> {
    let mut all = match &acme.challenges {
        Some(challenges) => challenges.clone(),
        None => usual_challenges(acme, front),
    };
    if host.starts_with("*.") {
        all.retain(|challenge| *challenge == AcmeChallenge::Dns);
    }
    all
}

fn usual_challenges(acme: &AcmeConfig, front: &FrontConfig) -> Vec<AcmeChallenge> {
    let is_tcp = |listen: &FrontListen| !matches!(listen, FrontListen::At(Listen::Unix(_)));
    let http = front.listen.iter().any(is_tcp);
    let tls = !front.tls_listen.is_empty();
    let is_first = front.tls_listen.iter().any(|at| at.port() == HTTPS);
    let tls_alpn = |is_here: bool| is_here.then_some(AcmeChallenge::TlsAlpn);
    let all = [
        tls_alpn(tls && is_first),
        http.then_some(AcmeChallenge::Http),
        tls_alpn(tls && !is_first),
        (!acme.dns_command.is_empty()).then_some(AcmeChallenge::Dns),
    ];
    all.into_iter().flatten().collect()
}

/// Whether a public authority may know a host by this name.
fn is_public(host: &str) -> bool {
    let is_own = OWN_NAMES.iter().any(|end| host.ends_with(end));
    host.contains('.') && !host.contains('*') && !is_own && !is_address(host)
}
