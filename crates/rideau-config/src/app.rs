//! Applications of the file: what is run, how many of it, and which requests get
//! there.

mod hosts;
mod read;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use rideau_core::apps;
use rideau_process::Signal;

/// An application.
#[derive(Clone, PartialEq, Debug)]
pub struct AppConfig {
    /// The name.
    pub name: String,
    /// A request for these hosts gets here: `shop.example`, `*.shop.example`;
    /// none for any host that no other app has.
    pub hosts: Vec<String>,
    /// And for these paths.
    pub paths: Vec<String>,
    /// The application does not see the path that led here.
    pub strips_path: bool,
    /// What is run. New processes are started when it changes.
    pub run: RunSpec,
    /// How its processes come, serve and go.
    pub options: apps::Options,
    /// How requests are treated.
    pub http: Http,
    /// Where markers to restart are, below the root; none for nowhere.
    pub restart_dir: Option<PathBuf>,
    /// How to know that a process is well.
    pub health: Option<Health>,
}

/// What is run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunSpec {
    /// The program and its words. `{socket}`, `{port}`, `{id}` and `{name}`
    /// stand for what each process has of its own.
    pub command: Vec<String>,
    /// The same as it may be shown: variables of the file are not filled in.
    pub shown: Vec<String>,
    /// Where it runs; none for where we do. Links on the way are followed
    /// anew at each start.
    pub root: Option<PathBuf>,
    /// Variables it has besides ours.
    pub env: Vec<(String, String)>,
    /// The user it runs as; none for ours.
    pub user: Option<String>,
    /// The group it runs as; none for the user's.
    pub group: Option<String>,
    /// Its mask for new files.
    pub umask: Option<u32>,
    /// It may get more rights than its user has.
    pub new_privileges: bool,
    /// As many files it may have open.
    pub files_max: Option<u64>,
    /// As many processes its user may have.
    pub processes_max: Option<u64>,
    /// How it gets a place to listen at.
    pub listen: AppListen,
    /// How to know that it is ready.
    pub ready: AppReady,
    /// It gives a sign of life at least so often; none if it need not.
    pub watchdog: Option<Duration>,
    /// Paths that are asked for once before any other request is let in.
    pub warm_up: Vec<String>,
    /// It is ready by then, or it has failed.
    pub start_timeout: Duration,
    /// After so long a process that was asked to stop is killed.
    pub stop_timeout: Duration,
    /// What it is asked to stop with.
    pub stop_signal: Signal,
    /// Where what it writes goes; none for our own log.
    pub log: Option<PathBuf>,
}

/// How a process gets a place to listen at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AppListen {
    /// We listen, and it inherits that.
    Inherit,
    /// It listens at a Unix socket whose path it is told.
    Socket,
    /// It listens at a port of the loopback that it is told.
    Port,
    /// It always listens here.
    Fixed(SocketAddr),
}

/// How to know that a process is ready.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AppReady {
    /// By its word if it sends one; or else as fits how it listens.
    Auto,
    /// It listens.
    Connect,
    /// It answers a request for this path.
    Http(String),
    /// It says so, as systemd's services do.
    Notify,
    /// It writes a line with this text.
    Line(String),
}

/// How requests are treated.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Http {
    /// A request takes no longer, from its grant to the end of the answer's
    /// head.
    pub request_timeout: Option<Duration>,
    /// A request has no more bytes than this.
    pub body_max: u64,
    /// Requests are read before they take a place; none for as fits the
    /// concurrency.
    pub buffers_requests: Option<bool>,
    /// Answers give their place back before they are sent; none for as fits
    /// the concurrency.
    pub buffers_responses: Option<bool>,
    /// A connection to a process that is idle for so long is closed.
    pub keep_alive: Duration,
    /// What failed without harm is tried once more.
    pub retries: bool,
    /// The cookie that leads back to the same process; none for none.
    pub sticky: Option<String>,
    /// How long connections that became something else may go on when their
    /// process has to go.
    pub upgrade_grace: Duration,
    /// Such a connection ends when nothing was said on it for so long.
    pub upgrade_idle: Option<Duration>,
    /// Answers say how long they waited and took.
    pub tells_timing: bool,
}

/// How to know that a process is well.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Health {
    /// What it is asked for.
    pub path: String,
    /// How often.
    pub every: Duration,
    /// How long it has for an answer.
    pub timeout: Duration,
    /// As many that fail in a row end it.
    pub fails: u32,
}

impl AppConfig {
    /// This command, with everything else as it usually is.
    pub fn new(name: &str, command: Vec<String>) -> Self {
        let listen = AppListen::usual(command.iter());
        Self {
            name: name.into(),
            hosts: Vec::new(),
            paths: vec!["/".into()],
            strips_path: false,
            run: RunSpec {
                shown: command.clone(),
                command,
                root: None,
                env: Vec::new(),
                user: None,
                group: None,
                umask: None,
                new_privileges: false,
                files_max: None,
                processes_max: None,
                listen,
                ready: AppReady::Auto,
                watchdog: None,
                warm_up: Vec::new(),
                start_timeout: Duration::from_secs(30),
                stop_timeout: Duration::from_secs(10),
                stop_signal: Signal::Term,
                log: None,
            },
            options: apps::Options::default(),
            http: Http::default(),
            restart_dir: Some("tmp".into()),
            health: None,
        }
    }
}

impl RunSpec {
    /// What runs now is what this says, too: only how it is watched and ended
    /// may differ.
    pub fn is_same_program(&self, other: &Self) -> bool {
        let watched = |run: &Self| Self {
            start_timeout: self.start_timeout,
            stop_timeout: self.stop_timeout,
            stop_signal: self.stop_signal,
            warm_up: self.warm_up.clone(),
            ready: self.ready.clone(),
            log: self.log.clone(),
            ..run.clone()
        };
        watched(self) == watched(other)
    }
}

impl AppListen {
    /// What fits a program with these words.
    fn usual<'a>(mut words: impl Iterator<Item = &'a String>) -> Self {
        match words.any(|word| word.contains("{socket}") || word.contains("$SOCKET")) {
            true => Self::Socket,
            false => Self::Port,
        }
    }
}

impl Default for Http {
    fn default() -> Self {
        Self {
            request_timeout: None,
            body_max: 1 << 30,
            buffers_requests: None,
            buffers_responses: None,
            keep_alive: Duration::from_millis(1500),
            retries: true,
            sticky: None,
            upgrade_grace: Duration::from_secs(30),
            upgrade_idle: None,
            tells_timing: false,
        }
    }
}
