//! The files of TLS, read again when the config is.

use tokio_rustls::TlsAcceptor;

use crate::net::tls;
use crate::state::daemon::Daemon;

/// What the files of TLS say now; none if they cannot be used.
pub(crate) fn renewed(daemon: &Daemon) -> Option<TlsAcceptor> {
    let config = daemon.config.load();
    match tls::acceptor(config.tls.as_ref()?) {
        Ok(acceptor) => Some(acceptor),
        Err(error) => {
            let text = format!("the files of TLS cannot be used, the old ones go on: {error}");
            daemon.events.add("config", "tls", text, None);
            None
        }
    }
}
