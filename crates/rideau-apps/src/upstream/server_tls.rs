//! TLS towards servers: with which authorities, by which name, and with which certificate of
//! our own.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::{TlsConnector, TlsStream};

use crate::client_tls::{BadTls, TlsIdentity};
use crate::http1::stream::Stream;

/// How HTTP/1 is called within TLS.
const ALPN_HTTP: &[u8] = b"http/1.1";

/// How to speak TLS with all servers of an upstream; what its files say is changed while it is
/// used.
pub(crate) struct TlsTowardServers {
    identity: TlsIdentity,
    config: ArcSwapOption<ClientConfig>,
    /// What the files were when they were last read.
    seen: Mutex<Vec<Option<Seen>>>,
}

/// Which file it is, and what says that it is another: its number, when it changed and its size.
type Seen = (u64, i64, i64, u64);

/// How to speak TLS with one server.
#[derive(Clone)]
pub(crate) struct ServerTls {
    toward: Arc<TlsTowardServers>,
    name: ServerName<'static>,
}

impl TlsTowardServers {
    /// Nothing is read yet.
    pub(crate) fn new(identity: TlsIdentity) -> Self {
        Self {
            identity,
            config: ArcSwapOption::empty(),
            seen: Mutex::default(),
        }
    }

    /// It is made of these files.
    pub(crate) fn is_of(&self, identity: &TlsIdentity) -> bool {
        self.identity == *identity
    }

    /// Read the files, if they are others than before. It blocks.
    ///
    /// # Errors
    ///
    /// If a file cannot be read or does not hold what it should: then the old ones count.
    pub(crate) fn refresh(&self) -> Result<(), BadTls> {
        let files = self.identity.files()?;
        let now: Vec<_> = files.iter().map(|path| seen(path)).collect();
        let mut seen = self.seen.lock();
        if *seen == now {
            return Ok(());
        }
        // They are tried again when they change once more.
        *seen = now;
        let mut config = self.identity.config()?;
        config.alpn_protocols = vec![ALPN_HTTP.to_vec()];
        self.config.store(Some(Arc::new(config)));
        Ok(())
    }

    /// How to speak with the server that has this name.
    ///
    /// # Errors
    ///
    /// If it is no name.
    pub(crate) fn named(self: &Arc<Self>, name: &str) -> Result<ServerTls, BadTls> {
        let name = ServerName::try_from(name.to_owned());
        Ok(ServerTls {
            toward: Arc::clone(self),
            name: name.map_err(|error| BadTls(error.to_string()))?,
        })
    }
}

impl ServerTls {
    /// Speak TLS from now on.
    ///
    /// # Errors
    ///
    /// If the server does not, or is not the one that was meant.
    pub(super) async fn secure(&self, stream: Stream) -> io::Result<Stream> {
        let config = self.toward.config.load_full();
        let config = config.ok_or_else(|| io::Error::other("the files of TLS cannot be used"))?;
        let Stream::Tcp(stream) = stream else {
            // It does not leave the machine.
            return Ok(stream);
        };
        let secured = TlsConnector::from(config).connect(self.name.clone(), stream);
        let secured = secured.await?;
        Ok(Stream::Tls(Box::new(TlsStream::from(secured))))
    }
}

fn seen(path: &Path) -> Option<Seen> {
    let about = fs::metadata(path).ok()?;
    Some((about.ino(), about.mtime(), about.mtime_nsec(), about.len()))
}
