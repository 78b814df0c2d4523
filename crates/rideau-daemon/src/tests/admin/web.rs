//! A server, and a client that speaks plain HTTP/1.1.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::Daemon;
use crate::Source;
use crate::admin::AdminListener;
use crate::serve::Listener;
use crate::serve::keep_sessions;
use rideau_apps::IoThreads;
use rideau_config::{Config, Listen};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

/// Nothing here takes so long unless it hangs.
pub(crate) const LONG: Duration = Duration::from_secs(20);

/// Two members, one broker, one regulator, one unit of any key, and an app that
/// got no request yet.
pub(crate) const CONFIG: &str = concat!(
    r#"
[pool.pg]
group = "db"
member = { list = ["one", "two"] }
max = 2
[broker.work]
[regulator.size]
valve = { kind = "open", max = 4 }
[lock."*"]
per = 1
[store]
kind = "memory"
[range.office]
values = ["10.20.0.0-10.20.0.3"]
start = "free"
[range.held]
values = ["1-2"]
start = "free"
hold = "connection"
[view.both]
values = ["10.20.0.2-10.20.0.9", "1"]
"#,
    "[app.shop]\nexec = [\"python3\", \"",
    env!("CARGO_MANIFEST_DIR"),
    "/../rideau-server/tests/apps/app.py\"]\nidle_after = \"1h\"\n"
);

/// A running server.
pub(crate) struct Server {
    pub(crate) daemon: Arc<Daemon>,
    pub(crate) http: SocketAddr,
    pub(crate) redis: u16,
    tasks: Vec<JoinHandle<()>>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Server {
    pub(crate) async fn start(text: &str) -> Self {
        let config = Config::parse(text, "test", &|_| None).unwrap();
        let source = Source {
            text: text.into(),
            file: None,
        };
        let daemon = Daemon::with(config, source, crate::COMMAND_NAMES).unwrap();
        let free = SocketAddr::from(([127, 0, 0, 1], 0));
        let redis = Listener::bind(&Listen::Tcp(free), 0o600).await.unwrap();
        let mut admin = AdminListener::default();
        let http = admin.listen(free, None).await.unwrap();
        let io_threads = Arc::new(IoThreads::start(Some(1)).unwrap());
        daemon.apps.begin(&daemon.config.load());
        Self {
            http,
            redis: redis.port().unwrap(),
            tasks: vec![
                tokio::spawn(redis.serve(Arc::clone(&daemon), io_threads)),
                tokio::spawn(admin.serve(Arc::clone(&daemon))),
                tokio::spawn(keep_sessions(Arc::clone(&daemon))),
            ],
            daemon,
        }
    }

    /// Ask for something with these headers and this body.
    pub(crate) async fn send(&self, head: &str, headers: &[&str], body: &str) -> Reply {
        let mut stream = self.open(head, headers, body).await;
        let mut answer = Vec::new();
        let read = stream.read_to_end(&mut answer);
        tokio::time::timeout(LONG, read).await.unwrap().unwrap();
        Reply::parse(&String::from_utf8(answer).unwrap())
    }

    /// The same, and the answer is still to be read. Where there are no users, what
    /// needs the operator has its token.
    pub(crate) async fn open(&self, head: &str, headers: &[&str], body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.http).await.unwrap();
        let mut text = format!("{head} HTTP/1.1\r\nConnection: close\r\n");
        if !headers.iter().any(|header| header.starts_with("Host:")) {
            text += &format!("Host: {}\r\n", self.http);
        }
        let needs_operator = self.daemon.config.load().users.is_empty()
            && !headers
                .iter()
                .any(|header| header.starts_with("Authorization:"))
            && (head.starts_with("POST /api/")
                || head.contains("/api/v1/config")
                || head.contains("/logs"));
        if needs_operator {
            let token = self.daemon.operator.token().unwrap();
            text += &format!("Authorization: Bearer {token}\r\n");
        }
        for header in headers {
            text += &format!("{header}\r\n");
        }
        text += &format!("Content-Length: {}\r\n\r\n{body}", body.len());
        stream.write_all(text.as_bytes()).await.unwrap();
        stream
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.send(&format!("GET {path}"), &[], "").await
    }

    /// All numbers, in the form that Prometheus would rather have.
    pub(crate) async fn metrics(&self) -> Reply {
        let accept = "Accept: application/openmetrics-text;q=0.75,text/plain;q=0.5,*/*;q=0.1";
        self.send("GET /metrics", &[accept], "").await
    }

    /// Do what operators do.
    pub(crate) async fn act(&self, path: &str, body: &str) -> Reply {
        self.send(&format!("POST {path}"), &["Rideau-Csrf: 1"], body)
            .await
    }

    /// Open a session; says its id.
    pub(crate) async fn session(&self, body: &str) -> String {
        let reply = self.send("POST /v1/sessions", &[], body).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.json()["id"].as_str().unwrap().to_owned()
    }

    /// Ask for something in a session.
    pub(crate) async fn ask(&self, session: &str, path: &str, body: &str) -> Reply {
        let header = format!("Rideau-Session: {session}");
        self.send(&format!("POST {path}"), &[&header], body).await
    }

    /// A connection of the Redis protocol.
    pub(crate) async fn redis(&self) -> Redis {
        let address = SocketAddr::from(([127, 0, 0, 1], self.redis));
        let stream = TcpStream::connect(address).await.unwrap();
        Redis(BufReader::new(stream))
    }

    /// Look again and again until something is so.
    pub(crate) async fn until(&self, is_so: impl Fn(&Daemon) -> bool) {
        let looked = async {
            while !is_so(&self.daemon) {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        let so = tokio::time::timeout(LONG, looked).await;
        so.expect("it becomes so before long");
    }
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Reply {
    pub(crate) fn parse(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((text, ""));
        let mut lines = head.lines();
        let status = lines.next().unwrap_or_default().split(' ').nth(1);
        let pair = |line: &str| {
            let (name, value) = line.split_once(':').unwrap();
            (name.to_ascii_lowercase(), value.trim().to_owned())
        };
        Self {
            status: status.unwrap_or("0").parse().unwrap(),
            headers: lines.map(pair).collect(),
            body: body.into(),
        }
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map_or("", |(_, value)| value)
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(crate) fn text(&self, name: &str) -> String {
        let json = self.json();
        let text = json[name].as_str();
        text.unwrap_or_else(|| panic!("no {name} in {self:?}"))
            .to_owned()
    }
}

/// A connection of the Redis protocol, one line at a time.
pub(crate) struct Redis(BufReader<TcpStream>);

impl Redis {
    pub(crate) async fn say(&mut self, line: &str) {
        let line = format!("{line}\r\n");
        self.0.write_all(line.as_bytes()).await.unwrap();
    }

    /// The next line, none at the end.
    pub(crate) async fn hear(&mut self) -> Option<String> {
        let mut line = String::new();
        let read = tokio::time::timeout(LONG, self.0.read_line(&mut line)).await;
        let is_over = read.unwrap().is_ok_and(|len| len == 0) || line.is_empty();
        (!is_over).then(|| line.trim_end().to_owned())
    }
}
