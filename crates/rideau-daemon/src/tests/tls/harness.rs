//! A server with certificates made for one test, and clients with theirs.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::Daemon;
use crate::net::tls_files::SharedAcceptor;
use crate::serve::Listener;
use crate::tls;
use rideau_apps::IoThreads;
use rideau_apps::bind;
use rideau_config::{Config, Tls};
use rideau_testing::certificates::{Identity, Signer, papers, signer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};

/// Longer than anything takes on a busy machine; it only catches what hangs.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// A temporary folder, gone with the test.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("rideau-tls-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        path
    }

    /// The files of a certificate: itself and its key.
    pub(crate) fn papers(&self, name: &str, papers: &Identity) -> [PathBuf; 2] {
        [
            self.write(&format!("{name}.pem"), &papers.certificate()),
            self.write(&format!("{name}.key"), &papers.key()),
        ]
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A server within TLS.
pub(crate) struct Server {
    pub(crate) daemon: Arc<Daemon>,
    pub(crate) port: u16,
    pub(crate) signer: Signer,
    pub(crate) folder: Folder,
}

pub(crate) const USERS: &str = "
[user.orders]
password_file = \"/nowhere\"
allow = [\"@all\"]
[lock.\"*\"]
";

impl Server {
    /// One that wants certificates from clients if there is a signer of theirs.
    pub(crate) async fn start(config: &str, clients: Option<&Signer>) -> Self {
        Self::start_within(config, clients, LONG).await
    }

    /// One that cuts clients that have not got in by then.
    pub(crate) async fn start_within(
        config: &str,
        clients: Option<&Signer>,
        within: Duration,
    ) -> Self {
        let folder = Folder::new();
        let signer = signer("servers");
        let [cert, key] = folder.papers("server", &papers("the server", &signer));
        folder.write("ca.pem", &signer.pem());
        let client_ca = clients.map(|signer| folder.write("clients.pem", &signer.pem()));
        let acceptor = tls::acceptor(&Tls {
            cert,
            key,
            client_ca,
        });
        let config = Config::parse(config, "test.toml", &|_| None)
            .unwrap_or_else(|faults| panic!("{faults}"));
        let daemon = Daemon::new(config, crate::COMMAND_NAMES).unwrap();
        let address = "127.0.0.1:0".parse().unwrap();
        let acceptor = SharedAcceptor::new(acceptor.unwrap());
        let listener = Listener::tls(
            bind::tcp(address, rideau_apps::Role::Redis).unwrap(),
            acceptor,
            within,
            false,
        );
        let port = listener.port().unwrap();
        let io_threads = Arc::new(IoThreads::start(Some(1)).unwrap());
        tokio::spawn(listener.serve(Arc::clone(&daemon), io_threads));
        Self {
            daemon,
            port,
            signer,
            folder,
        }
    }

    pub(crate) async fn plain(&self) -> TcpStream {
        TcpStream::connect(("127.0.0.1", self.port)).await.unwrap()
    }

    /// A client that trusts this signer and shows these papers.
    pub(crate) async fn client(
        &self,
        trusted: &Signer,
        papers: Option<&Identity>,
    ) -> std::io::Result<TlsStream<TcpStream>> {
        connect(self.plain().await, trusted, papers).await
    }
}

pub(crate) async fn connect(
    stream: TcpStream,
    trusted: &Signer,
    papers: Option<&Identity>,
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match papers {
        None => builder.with_no_client_auth(),
        Some(papers) => {
            let key = PrivateKeyDer::try_from(papers.key_der()).unwrap();
            builder
                .with_client_auth_cert(vec![papers.certificate_der().into()], key)
                .unwrap()
        }
    };
    let name = ServerName::try_from("localhost").unwrap();
    let shaken = TlsConnector::from(Arc::new(config)).connect(name, stream);
    tokio::time::timeout(LONG, shaken).await.unwrap()
}

/// Send a line as people type it, and read one line of the answer. Nothing is
/// what comes from a server that has hung up.
pub(crate) async fn ask(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), line: &str) -> String {
    if stream
        .write_all(format!("{line}\r\n").as_bytes())
        .await
        .is_err()
    {
        return String::new();
    }
    let mut answer = Vec::new();
    let read = async {
        while let Ok(byte) = stream.read_u8().await {
            if byte == b'\n' {
                break;
            }
            answer.push(byte);
        }
    };
    tokio::time::timeout(LONG, read).await.unwrap();
    String::from_utf8_lossy(&answer).trim_end().to_owned()
}
