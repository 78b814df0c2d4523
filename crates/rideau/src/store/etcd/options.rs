//! Where etcd is, and what it is told of this client.

use std::fmt;
use std::time::Duration;

use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

use super::error::{EtcdError, EtcdRefusal};

/// Where etcd is, and how long a call may take.
#[derive(Clone, Debug)]
pub struct EtcdOptions {
    /// Addresses of members, such as `https://10.0.0.1:2379`. One is used until it fails.
    pub endpoints: Vec<String>,
    /// The user, where etcd asks for one.
    pub login: Option<EtcdLogin>,
    /// Needed for endpoints with `https`.
    pub tls: Option<EtcdTls>,
    /// How long an endpoint may take until it is connected and has told its version.
    pub connect_timeout: Duration,
    /// How long a call may take, with all endpoints that it tries.
    pub timeout: Duration,
}

impl EtcdOptions {
    /// How long an endpoint may take unless the options say otherwise.
    pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
    /// How long a call may take unless the options say otherwise: longer than most
    /// elections of a leader.
    pub const TIMEOUT: Duration = Duration::from_secs(5);

    /// Without user and TLS.
    pub fn plain(endpoints: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            endpoints: endpoints.into_iter().map(Into::into).collect(),
            login: None,
            tls: None,
            connect_timeout: Self::CONNECT_TIMEOUT,
            timeout: Self::TIMEOUT,
        }
    }

    /// What to connect to, with its name.
    pub(super) fn targets(&self) -> Result<Vec<(String, Endpoint)>, EtcdError> {
        if self.endpoints.is_empty() {
            return Err(wrong("none", "no endpoint is named"));
        }
        let targets = self.endpoints.iter().map(|name| self.target(name));
        targets.collect()
    }

    fn target(&self, name: &str) -> Result<(String, Endpoint), EtcdError> {
        let is_secret = name.starts_with("https://");
        if !is_secret && !name.starts_with("http://") {
            return Err(wrong(name, "it begins neither with http:// nor https://"));
        }
        let endpoint = Endpoint::from_shared(name.to_owned());
        let endpoint = endpoint.map_err(|error| wrong(name, error.to_string()))?;
        let endpoint = endpoint
            .connect_timeout(self.connect_timeout)
            .http2_keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT);
        let endpoint = match (&self.tls, is_secret) {
            (Some(tls), true) => endpoint.tls_config(tls.config(self.connect_timeout)),
            (None, false) => Ok(endpoint),
            (None, true) => return Err(wrong(name, "https needs the authority's certificate")),
            (Some(_), false) => return Err(wrong(name, "there is TLS, so it must be https")),
        };
        let endpoint = endpoint.map_err(|error| wrong(name, causes(&error)))?;
        Ok((name.to_owned(), endpoint))
    }
}

/// How often a connection with calls or streams is probed. etcd closes connections that
/// are probed more often than every 5 s.
const PING_INTERVAL: Duration = Duration::from_secs(10);
/// How long a probe may take before the connection counts as broken.
const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// A user of etcd.
#[derive(Clone)]
pub struct EtcdLogin {
    /// Its name.
    pub user: String,
    /// Its password.
    pub password: String,
}

impl fmt::Debug for EtcdLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("EtcdLogin");
        shown.field("user", &self.user).finish_non_exhaustive()
    }
}

/// What encrypts the connections and proves both sides.
#[derive(Clone)]
pub struct EtcdTls {
    /// The certificate of the authority that signed those of the members, as PEM.
    pub authority: Vec<u8>,
    /// The certificate and the key of this client, as PEM, where etcd asks for one.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
    /// The name in the members' certificates, if it is not the one in their addresses.
    pub server_name: Option<String>,
}

impl EtcdTls {
    fn config(&self, timeout: Duration) -> ClientTlsConfig {
        let authority = Certificate::from_pem(&self.authority);
        let mut config = ClientTlsConfig::new().ca_certificate(authority);
        if let Some((certificate, key)) = &self.identity {
            config = config.identity(Identity::from_pem(certificate, key));
        }
        if let Some(name) = &self.server_name {
            config = config.domain_name(name);
        }
        config.timeout(timeout)
    }
}

impl fmt::Debug for EtcdTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("EtcdTls");
        shown.field("has_identity", &self.identity.is_some());
        shown.field("server_name", &self.server_name);
        shown.finish_non_exhaustive()
    }
}

fn wrong(endpoint: &str, said: impl Into<String>) -> EtcdError {
    EtcdError::refused(EtcdRefusal::Options, "connect", endpoint, said)
}

fn causes(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::{EtcdLogin, EtcdOptions, EtcdRefusal, EtcdTls};

    #[test]
    fn options_that_make_no_sense_are_refused() {
        let tls = EtcdTls {
            authority: Vec::new(),
            identity: None,
            server_name: None,
        };
        for (endpoints, tls) in [
            (&[][..], None),
            (&["10.0.0.1:2379"], None),
            (&["http://"], None),
            (&["https://a:2379"], None),
            (&["http://a:2379"], Some(tls)),
        ] {
            let mut options = EtcdOptions::plain(endpoints.iter().copied());
            options.tls = tls;
            let error = options.targets().expect_err("they make no sense");
            assert_eq!(error.refusal(), Some(EtcdRefusal::Options), "{error}");
        }
        assert!(EtcdOptions::plain(["http://a:2379"]).targets().is_ok());
    }

    #[test]
    fn a_password_is_not_shown() {
        let login = EtcdLogin {
            user: "anna".to_owned(),
            password: "secret".to_owned(),
        };
        assert!(!format!("{login:?}").contains("secret"));
    }
}
