//! Applications of the file: what is run, how many of it, and which requests get
//! there.

mod read;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use rideau_core::apps::{self, TrialRules};
use rideau_core::queue;
use rideau_process::Signal;

use crate::access::{RateLimit, RateTable};
use crate::access_log::{AccessFormat, AccessLog, HiddenPart, LogPlace};
use crate::compression::Compression;
use crate::core_kinds::AppQueue;
use crate::error_page::{ErrorPage, PageFiles};
use crate::exec::{Command, Env, StopSignal};
use crate::front::Network;
use crate::hosts::{Hosts, PathPrefixes};
use crate::kinds::{
    Answer, AutoWord, FullPath, List, Maybe, Number, Or, OrNone, Positive, Size, Span, Text, Word,
};
use crate::servers::UpstreamServers;
use crate::static_files::{STATIC_SAMPLE, StaticFiles, StaticTables};
use crate::table::section;
use crate::waiting_room::{ROOM_SAMPLE, RoomTable, WaitingRoomConfig};
use read::{Account, AppReadyWays, Below, Mask, PathList, TrialTable, UrlPath};
pub(super) use read::{Checked, Sticky, Streams, check_name};

section! {
    /// An application.
    #[derive(Clone, PartialEq, Debug)]
    pub struct AppConfig {
        plain {
            /// The name.
            name: String = String::new();
            /// Servers that others start, instead of processes of its own.
            servers: Option<UpstreamServers> = None;
        }
        flatten {
            /// What is run. New processes are started when it changes.
            run: RunSpec = RunSpec::default();
            /// How its processes come, serve and go.
            options: apps::Options = usual_options();
            /// How requests are treated.
            http: Http = Http::default();
            /// Which requests are let in, and what is written and said of them.
            access: AppAccess = AppAccess::default();
        }
        /// Requests for these hosts go to this app: `"shop.example"`, `"*.shop.example"`.
        /// Empty: all hosts that no other app has.
        hosts: Vec<String> = Vec::new(), Hosts, Requests,
            sample = r#"["shop.example", "*.shop.example"]"#,
            above = "An exact host comes before one with a *, and a longer path before a \
                     shorter one.";
        /// Only requests below one of these paths go to this app.
        paths: Vec<String> = vec!["/".into()], PathPrefixes, Requests;
        /// The app does not see the path that matched.
        strips_path: bool = false, Answer, Requests, name = "strip";
        /// Where `restart.txt` and `always_restart.txt` are, below `root`; or `"none"`.
        restart_dir: Option<PathBuf> = Some("tmp".into()), OrNone<Below>, Live;
        /// Health checks of each process; one that fails them is replaced.
        health: Option<Health> = None, Checked, Live, usual = r#""none""#,
            sample = r#"{ path = "/up", every = "10s", timeout = "2s", fails = 3 }"#;
        /// The name of a cookie that leads back to the same process, or a table. If that
        /// process is busy for longer than `wait`, the request goes to another one.
        sticky => (self): AppConfig, Sticky, Requests, usual = r#""none""#,
            sample = r#"{ cookie = "shop_route", wait = "1s" }"#;
        /// Answers and connections that go on for as long as a client likes, such as events
        /// and WebSockets.
        streams => (self): AppConfig, Streams, Live;
    }
}

section! {
    /// The program of an app, and how it is run.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct RunSpec {
        plain {
            /// The program and its words. `{socket}`, `{port}`, `{id}` and `{name}`
            /// stand for what each process has of its own.
            command: Vec<String> = Vec::new();
            /// The same as it may be shown: variables of the file are not filled in.
            shown: Vec<String> = Vec::new();
        }
        /// The program and its arguments; no shell reads them.
        exec => (shown): Vec<String>, Command, Replaced, usual = "required",
            sample = r#"["gunicorn", "shop.wsgi", "--bind", "unix:{socket}"]"#,
            above = "What is run. {socket}, {port}, {id} and {name} are as for members of pools. \
                     It has no variables but those of `env`, PATH, HOME, LANG and TZ, and what \
                     `listen` tells it.";
        /// Where it runs, and where `restart_dir` is. Links are followed at each start.
        root: Option<PathBuf> = None, Maybe<FullPath>, Replaced, usual = "where rideau runs",
            sample = r#""/srv/shop""#;
        /// Its variables.
        env: Vec<(String, String)> = Vec::new(), Env, Replaced, usual = "{}",
            sample = r#"{ SHOP_ENV = "production" }"#;
        /// The account it runs as, if the server may choose one.
        user: Option<String> = None, Maybe<Account>, Replaced, usual = "as rideau does",
            sample = r#""www-data""#;
        /// A group other than the user's.
        group: Option<String> = None, Maybe<Account>, Replaced, usual = "the user's",
            sample = r#""www-data""#;
        /// Its mask for new files.
        umask: Option<u32> = None, Maybe<Mask>, Replaced, usual = "rideau's",
            sample = r#""022""#;
        /// Whether it may get more rights than its user has, by `sudo` and other programs
        /// with a setuid bit.
        new_privileges: bool = false, Answer, Replaced;
        /// Open files of a process.
        files_max: Option<u64> = None, OrNone<Number>, Replaced, bounds = (16, 1_000_000_000),
            sample = "4096";
        /// Processes and threads of its user.
        processes_max: Option<u64> = None, OrNone<Number>, Replaced,
            bounds = (1, 1_000_000_000), sample = "256";
        /// Where the program listens.
        listen: AppListen = AppListen::Port, Text, Replaced, sample = r#""socket""#,
            above = ABOUT_LISTEN;
        /// How to know that it is ready.
        ready: AppReady = AppReady::Auto, AppReadyWays, Started, sample = r#"{ http = "/up" }"#,
            above = ABOUT_READY;
        /// A process that does not send `WATCHDOG=1` within this time is replaced.
        watchdog: Option<Duration> = None, OrNone<Positive>, Replaced, sample = r#""30s""#;
        /// Paths that the server requests once before it sends clients' requests.
        warm_up: Vec<String> = Vec::new(), PathList, Started, sample = r#"["/", "/catalogue"]"#;
        /// A file for what it writes, instead of the server's log.
        log: Option<PathBuf> = None, OrNone<FullPath>, Started,
            sample = r#""/var/log/shop.log""#;
        /// A process that is not ready after this long has failed.
        start_timeout: Duration = Duration::from_secs(30), Positive, Started,
            above = "Starts and ends.";
        /// The signal that asks it to stop.
        stop_signal: Signal = Signal::Term, StopSignal, Started;
        /// A process that has not ended after this long is killed, with all it has started.
        stop_timeout: Duration = Duration::from_secs(10), Span, Started;
    }
}

section! { for apps::Options {
    /// Processes that are kept when no requests come.
    min => (min): usize, Number, Live, bounds = (0, PROCESSES_MAX), sample = "1",
        above = "How many processes, and which requests wait.";
    /// The most processes; `"none"`: only `max` of `[front]` limits them.
    max => (max): Option<usize>, OrNone<Number>, Live, bounds = (1, PROCESSES_MAX),
        sample = "8";
    /// Requests at a time in one process; `"auto"`: the number at which it serves best, which
    /// is learnt.
    concurrency => (concurrency): Option<usize>, Or<Number, AutoWord>, Live, bounds = (1, MANY);
    /// Where requests wait: any of the queues. With `"paced"` a request waits for 30 s at most;
    /// `{ timeout = "10s" }` is a fixed time instead.
    queue => (queue): queue::Options, AppQueue, Live,
        usual = r#"{ kind = "paced", max = "auto" }"#,
        sample = r#"{ kind = "paced", max = "auto" }"#;
    /// One more process is started when longer waits are expected.
    target_wait => (target_wait): Option<Duration>, OrNone<Positive>, Live,
        sample = r#""500ms""#;
    /// Processes above `min` that were not used for this long are stopped; or `"none"`.
    idle_after => (idle_after): Option<Duration>, OrNone<Positive>, Live;
    /// A process is replaced after this many requests, give or take a tenth.
    requests_max => (requests_max): Option<u64>, OrNone<Number>, Live,
        bounds = (1, 1_000_000_000_000), sample = "5_000";
    /// A process is replaced after this long, give or take a tenth.
    life_max => (life_max): Option<Duration>, OrNone<Positive>, Live, sample = r#""24h""#;
    /// A process that uses more is replaced, without harm to requests.
    memory_soft => (memory_soft): Option<u64>, OrNone<Size>, Live, bounds = (MIB, SIZE_MAX),
        sample = r#""384MiB""#;
    /// A process that uses more is killed.
    memory_hard => (memory_hard): Option<u64>, OrNone<Size>, Live, bounds = (MIB, SIZE_MAX),
        sample = r#""512MiB""#;
    /// A process that ends sooner, without having answered a request, has failed to start.
    uptime_min => (uptime_min): Duration, Span, Live;
    /// Pause after a start that failed, doubled with each.
    backoff_first => (backoff_first): Duration, Positive, Live;
    /// The longest pause.
    backoff_max => (backoff_max): Duration, Positive, Live;
    /// After this many failed starts of new code the old code is kept.
    deploy_tries => (deploy_tries): u32, Number, Live, bounds = (1, 100);
    /// New code serves a part of the requests beside the old code, and is judged by its
    /// failures and times; `"none"`: it serves all as soon as it is ready.
    trial => (trial): Option<TrialRules>, TrialTable, Live, usual = "a table with its defaults",
        sample = r#"{ answers = 50, time = "10s", quiet = "60s", max = "5m", slow = true }"#;
    /// How long a process has to finish its requests before it is stopped.
    drain_timeout => (drain_timeout): Duration, Span, Live;
    /// A process is replaced after this many time-outs in close succession.
    timeouts_max => (timeouts_max): u32, Number, Live, bounds = (1, 1_000_000);
    /// The longest time between two of these time-outs.
    timeouts_window => (timeouts_window): Duration, Positive, Live;
} }

section! { for TrialRules {
    /// New code can be judged good after this many answers.
    answers => (answers): u64, Number, Live, bounds = (1, MANY);
    /// The shortest time of a trial with a verdict.
    time => (time): Duration, Positive, Live;
    /// After this time fewer answers are enough.
    quiet => (quiet): Duration, Positive, Live;
    /// The trial ends after this time at the latest.
    max => (max): Duration, Positive, Live;
    /// Whether code that is much slower is bad, too.
    slow => (judges_slow): bool, Answer, Live;
} }

section! {
    /// How requests are treated.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Http {
        plain {
            /// The cookie that leads back to the same process; none for none.
            sticky: Option<String> = None;
            /// How long streams may go on when their process has to go.
            stream_grace: Duration = Duration::from_secs(30);
            /// A stream ends when nothing was said on it for this long.
            stream_idle: Option<Duration> = None;
        }
        /// The time that an app has for a request, from the grant of a place to the end of
        /// the answer.
        request_timeout: Option<Duration> = None, OrNone<Positive>, Requests,
            sample = r#""60s""#, above = "Requests.";
        /// Bytes of a request's body.
        body_max: u64 = 1 << 30, Size, Requests, bounds = (0, SIZE_MAX);
        /// Bodies of requests are read before a place is asked for, but for long ones that come
        /// fast.
        buffers_requests: bool = true, Answer, Requests, name = "buffer_requests";
        /// Answers are taken from the app as fast as it gives them, and kept while the client
        /// is slower, so that their place is free; they are never delayed by that.
        buffers_responses: bool = true, Answer, Requests, name = "buffer_responses";
        /// The most bytes of an answer that are kept in a file, beyond 1 MiB in memory; after
        /// that the app has to wait for the client.
        buffer_response_max: u64 = 128 << 20, Size, Requests, bounds = (0, SIZE_MAX);
        /// Connections to a process that are idle for this long are closed.
        keep_alive: Duration = Duration::from_millis(1500), Span, Live;
        /// A request that failed before it had an effect is tried once more, in another process.
        retries: bool = true, Answer, Requests, name = "retry";
        /// Answers have a `Server-Timing` header: how long the request waited and the app took.
        tells_timing: bool = false, Answer, Requests, name = "timing";
    }
}

section! {
    /// Which requests are let in, and what is written and said of them.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct AppAccess {
        /// Only clients of these networks are served, as far as `[front]` serves them; empty: all
        /// of those.
        allow: Vec<Network> = Vec::new(), List, Requests, sample = r#"["10.0.0.0/8"]"#,
            above = "Which clients may come, and how often.";
        /// Clients of these networks are not served, whatever `allow` says.
        deny: Vec<Network> = Vec::new(), List, Requests, sample = r#"["10.9.0.0/16"]"#;
        /// Requests and WebSockets of one address at a time, or of one /64 of IPv6. What is over it
        /// is told 429.
        client_connections_max: Option<usize> = None, OrNone<Number>, Requests,
            bounds = (1, 10_000_000), sample = "32";
        /// How often one client may ask for this app; `[front]` limits it as well.
        rate_limit: Option<RateLimit> = None, RateTable, Requests, usual = r#""none""#,
            sample = r#"{ rate = "20/s", burst = 40, by = "client" }"#;
        /// The log of its requests, instead of that of `[front]`.
        access_log: Option<AccessLog> = None, Maybe<LogPlace>, Requests,
            usual = "that of `[front]`", sample = r#""stdout""#,
            above = "The log of its requests, and pages for the front's own answers.";
        /// The form of its lines.
        access_format: Option<AccessFormat> = None, Maybe<Word>, Requests,
            usual = "that of `[front]`", sample = r#""json""#;
        /// What is left out of it, besides what `[front]` leaves out.
        access_hide: Vec<HiddenPart> = Vec::new(), List, Requests,
            sample = r#"["query:token"]"#;
        /// Pages for the front's own answers, by status, before those of `[front]`.
        error_page: Vec<ErrorPage> = Vec::new(), PageFiles, Requests, usual = "{}",
            sample = "{}";
        /// Browsers that would wait longer get a page that says their place in the line, and come
        /// in in that order: a table, or `"none"`.
        waiting_room: Option<Option<WaitingRoomConfig>> = None, Maybe<RoomTable>, Requests,
            usual = "that of `[front]`", sample = ROOM_SAMPLE;
        /// Files that the front serves to `GET` and `HEAD` by itself: a table, a list of them, or
        /// `"none"`. What there is no file for goes to the app.
        static_files: Option<Vec<StaticFiles>> = None, Maybe<StaticTables>, Requests,
            name = "static", usual = "that of `[front]`",
            sample = STATIC_SAMPLE,
            above = "Files that the front serves by itself, and compression of answers.";
        /// Answers are compressed in these ways, `"zstd"` and `"gzip"`; empty: none are.
        compress: Option<Vec<Compression>> = None, Maybe<List>, Requests,
            usual = "that of `[front]`", sample = r#"["zstd", "gzip"]"#;
        /// Shorter answers are not compressed.
        compress_min: Option<u64> = None, Maybe<Size>, Requests, bounds = (0, SIZE_MAX),
            usual = "that of `[front]`", sample = r#""1KiB""#;
    }
}

section! {
    /// How to know that a process is well.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Health {
        /// The path of the health check.
        path: String = String::new(), UrlPath, Live, usual = "required";
        /// How often.
        every: Duration = Duration::from_secs(10), Positive, Live;
        /// How long a process has to answer.
        timeout: Duration = Duration::from_secs(2), Positive, Live;
        /// After this many failures in a row the process is replaced.
        fails: u32 = 3, Number, Live, bounds = (1, 1000);
    }
}

/// The comment about `listen` in the sample file.
const ABOUT_LISTEN: &str = "\
Where it listens:
  \"socket\"   at the path RIDEAU_SOCKET; the default if `exec` or `env` name {socket}
  \"port\"     at the port PORT of the loopback; the default for all others
  \"inherit\"  rideau does, and it has that as file 3 with LISTEN_FDS=1, as systemd passes it on
  an address such as \"127.0.0.1:9000\": always there, so there is one process only";

/// The comment about `ready` in the sample file.
const ABOUT_READY: &str = "\
When it is ready:
  \"auto\"       when it sends READY=1 to NOTIFY_SOCKET; or, if it sends nothing, when it answers
               `health.path`, or else /, with whatever status
  \"connect\"    when it listens
  \"http\"       when it answers that with a status below 500; { http = \"/up\" } for another path
  \"notify\"     when it sends READY=1
  { line = … } when it writes a line with this text in it";

const PROCESSES_MAX: u64 = 100_000;
pub(super) const MANY: u64 = 1_000_000;
const MIB: u64 = 1 << 20;
/// No machine has more.
const SIZE_MAX: u64 = 1 << 50;

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
    /// By its word if it sends one; or else by its first answer.
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

/// New code is on trial unless the config says otherwise.
fn usual_options() -> apps::Options {
    apps::Options {
        trial: Some(TrialRules::default()),
        ..apps::Options::default()
    }
}

impl AppConfig {
    /// The host that the server's own requests to the app are for: the first that is a whole
    /// name.
    pub fn probe_host(&self) -> &str {
        let mut whole = self.hosts.iter().filter(|host| !host.contains('*'));
        whole.next().map_or("localhost", String::as_str)
    }

    /// This command, with everything else as it usually is.
    pub fn new(name: &str, command: Vec<String>) -> Self {
        Self {
            name: name.into(),
            run: RunSpec {
                listen: AppListen::usual(command.iter()),
                shown: command.clone(),
                command,
                ..RunSpec::default()
            },
            ..Self::default()
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
    /// The usual `listen` for a program with these arguments.
    fn usual<'a>(mut words: impl Iterator<Item = &'a String>) -> Self {
        match words.any(|word| word.contains("{socket}") || word.contains("$SOCKET")) {
            true => Self::Socket,
            false => Self::Port,
        }
    }
}
