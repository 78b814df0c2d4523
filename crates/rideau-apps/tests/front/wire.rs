//! HTTP as bytes: a client that says what it likes, and servers that do.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// No test takes longer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Run a test that must not hang.
pub(crate) async fn within<T>(test: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(PATIENCE, test).await;
    done.expect("the test hangs")
}

/// One side of a connection.
pub(crate) struct Peer {
    pub(crate) stream: TcpStream,
    held: Vec<u8>,
}

/// A request or an answer.
#[derive(Debug, Clone, Default)]
pub(crate) struct Message {
    pub(crate) first: String,
    pub(crate) fields: HashMap<String, String>,
    pub(crate) body: Vec<u8>,
}

impl Message {
    pub(crate) fn status(&self) -> u16 {
        let word = self.first.split(' ').nth(1);
        word.and_then(|word| word.parse().ok()).unwrap_or(0)
    }

    pub(crate) fn field(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl Peer {
    pub(crate) fn new(stream: TcpStream) -> Self {
        let _ = stream.set_nodelay(true);
        let held = Vec::new();
        Self { stream, held }
    }

    pub(crate) async fn connect(address: SocketAddr) -> Self {
        Self::new(
            TcpStream::connect(address)
                .await
                .expect("a process listens"),
        )
    }

    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        // A peer that is gone is noticed when something is read.
        let _ = self.stream.write_all(bytes.as_ref()).await;
    }

    /// More bytes; whether there were any.
    pub(crate) async fn more(&mut self) -> bool {
        let mut part = vec![0; 64 * 1024];
        let len = self.stream.read(&mut part).await.unwrap_or(0);
        self.held.extend_from_slice(&part[..len]);
        len > 0
    }

    /// The head of what comes next; none at the end.
    pub(crate) async fn head(&mut self) -> Option<Message> {
        let end = loop {
            if let Some(at) = find(&self.held, b"\r\n\r\n") {
                break at;
            }
            if !self.more().await {
                return None;
            }
        };
        let head = String::from_utf8_lossy(&self.held[..end]).into_owned();
        self.held.drain(..end + 4);
        let mut lines = head.split("\r\n");
        let first = lines.next().unwrap_or_default().to_owned();
        let mut fields: HashMap<String, String> = HashMap::new();
        for line in lines {
            let (name, value) = line.split_once(':').unwrap_or((line, ""));
            let all = fields.entry(name.to_ascii_lowercase()).or_default();
            if !all.is_empty() {
                all.push_str(", ");
            }
            all.push_str(value.trim());
        }
        Some(Message {
            first,
            fields,
            body: Vec::new(),
        })
    }

    /// This many bytes; none if there are fewer.
    pub(crate) async fn exactly(&mut self, len: usize) -> Option<Vec<u8>> {
        while self.held.len() < len {
            if !self.more().await {
                return None;
            }
        }
        Some(self.held.drain(..len).collect())
    }

    async fn line(&mut self) -> Option<String> {
        loop {
            if let Some(at) = find(&self.held, b"\r\n") {
                let line = String::from_utf8_lossy(&self.held[..at]).into_owned();
                self.held.drain(..at + 2);
                return Some(line);
            }
            if !self.more().await {
                return None;
            }
        }
    }

    /// A chunk; empty for the last one.
    pub(crate) async fn chunk(&mut self) -> Option<Vec<u8>> {
        let line = self.line().await?;
        let size = usize::from_str_radix(line.split(';').next()?, 16).ok()?;
        let bytes = self.exactly(size).await?;
        self.line().await?;
        Some(bytes)
    }

    /// All that came and was not looked at yet.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.held)
    }

    /// Everything until the end.
    pub(crate) async fn rest(&mut self) -> Vec<u8> {
        while self.more().await {}
        self.take()
    }

    /// A whole request; none at the end or if it is cut.
    pub(crate) async fn request(&mut self) -> Option<Message> {
        let mut message = self.head().await?;
        message.body = self.body(&message, false).await?;
        Some(message)
    }

    /// A whole answer; none if it is cut.
    pub(crate) async fn answer(&mut self) -> Option<Message> {
        let mut message = self.head().await?;
        let is_empty = matches!(message.status(), 101 | 204 | 304);
        message.body = match is_empty {
            true => Vec::new(),
            false => self.body(&message, true).await?,
        };
        Some(message)
    }

    async fn body(&mut self, message: &Message, is_answer: bool) -> Option<Vec<u8>> {
        if message.field("transfer-encoding") == "chunked" {
            let mut body = Vec::new();
            loop {
                let chunk = self.chunk().await?;
                if chunk.is_empty() {
                    return Some(body);
                }
                body.extend(chunk);
            }
        }
        match message.fields.get("content-length") {
            Some(len) => self.exactly(len.parse().ok()?).await,
            None if is_answer => Some(self.rest().await),
            None => Some(Vec::new()),
        }
    }

    /// Ask, and wait for the answer.
    pub(crate) async fn ask(&mut self, request: impl AsRef<[u8]>) -> Message {
        self.send(request).await;
        self.answer().await.expect("an answer")
    }
}

pub(crate) fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|part| part == what)
}

/// A request without a body.
pub(crate) fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: app.example\r\n\r\n")
}

/// A request with one.
pub(crate) fn post(path: &str, body: &str) -> String {
    let len = body.len();
    format!("POST {path} HTTP/1.1\r\nHost: app.example\r\nContent-Length: {len}\r\n\r\n{body}")
}

/// An answer with a body.
pub(crate) fn ok(body: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// An app that answers connections as it likes.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) connections: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

impl Server {
    /// Each connection is given to this, with its number.
    pub(crate) async fn start<F, A>(serve: F) -> Self
    where
        F: Fn(Peer, usize) -> A + Send + Sync + 'static,
        A: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let peer = Peer::new(stream);
                let number = count.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve(peer, number));
            }
        });
        Self {
            address,
            connections,
            task,
        }
    }

    /// Every request gets the answer that this makes of it.
    pub(crate) async fn answering<F>(answer: F) -> Self
    where
        F: Fn(&Message) -> String + Send + Sync + 'static,
    {
        let answer = Arc::new(answer);
        Self::start(move |mut peer, _| {
            let answer = Arc::clone(&answer);
            async move {
                while let Some(request) = peer.request().await {
                    peer.send(answer(&request)).await;
                }
            }
        })
        .await
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}
