//! A server of a test's own: the real program, with a folder and a port, gone
//! with the test.

use std::env;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio, id};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{panicking, sleep};
use std::time::{Duration, Instant};

use rideau_testing::{Running, Signal, Start, command};

use crate::networks::Network;
use crate::wire::Wire;

/// How long anything may take. It only ends a test that would hang.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// What most tests want: a list of each kind of thing, and small limits.
pub(crate) const CONFIG: &str = r#"
[pool.one]
member = { list = ["m1"] }
queue = { kind = "never" }

[pool.two]
member = { list = ["m1", "m2"] }
queue = { kind = "never" }

[pool.brought]
member = "offered"
queue = { kind = "never" }

[broker.desk]
asks = { kind = "never" }
offers = { kind = "never" }

[regulator.few]
queue = { kind = "never" }
valve = { kind = "open", max = 1 }

[lock."*"]
queue = { kind = "never" }
"#;

/// The most files that the system allows: some tests need many.
const ALL_FILES: &str = r#" ulimit -n "$(ulimit -Hn)";"#;

pub(crate) struct Server {
    child: Running,
    host: Ipv4Addr,
    port: u16,
    http: Option<u16>,
    folder: PathBuf,
    /// The test has ended it itself.
    is_ended: AtomicBool,
}

/// The program: that of the tests, or the one that `RIDEAU_PROGRAM` names.
pub(crate) fn program() -> PathBuf {
    let named = env::var_os("RIDEAU_PROGRAM").map(PathBuf::from);
    named.unwrap_or_else(|| env!("CARGO_BIN_EXE_rideau").into())
}

/// How the program is told to serve a file.
fn serve(file: &Path) -> Vec<String> {
    vec!["serve".into(), "-c".into(), file.display().to_string()]
}

impl Server {
    /// Serve what [`CONFIG`] says.
    pub(crate) fn start() -> Self {
        Self::with(CONFIG)
    }

    /// Serve what a config says, on a port of its own. `{secret}` in it is a
    /// file with the password `open sesame`.
    pub(crate) fn with(config: &str) -> Self {
        Self::at(config, None, ALL_FILES)
    }

    /// The same, and it speaks HTTP on a second port.
    pub(crate) fn with_http(config: &str) -> Self {
        Self::at(config, Some(free_port()), ALL_FILES)
    }

    /// The same, and it finds one limit of open files, and another that it can raise
    /// that to.
    pub(crate) fn with_files(config: &str, usual: u32, most: u32) -> Self {
        let limit = format!("ulimit -Sn {usual}; ulimit -Hn {most};");
        Self::at(config, Some(free_port()), &limit)
    }

    /// The same, and no file of it gets larger than this many KiB.
    pub(crate) fn with_file_limit(config: &str, kibibytes: u32) -> Self {
        // A process that ignores the signal gets an error instead.
        let limit = format!("trap '' XFSZ; ulimit -f {kibibytes};");
        Self::at(config, None, &(limit + ALL_FILES))
    }

    /// The same, and `{folder}/small` is a disk of this many MiB that no other
    /// process sees.
    pub(crate) fn with_small_disk(config: &str, mebibytes: u32) -> Self {
        let mount = format!("mount -t tmpfs -o size={mebibytes}m none {{folder}}/small;");
        Self::at(config, Some(free_port()), &mount)
    }

    /// A file on that disk, as others see it.
    pub(crate) fn on_small_disk(&self, name: &str) -> PathBuf {
        let folder = self.folder.display();
        format!("/proc/{}/root{folder}/small/{name}", self.child.id()).into()
    }

    /// What it answers to a `GET` of this path: the whole answer.
    pub(crate) fn get(&self, path: &str) -> String {
        let place = self.url().replace("http://", "");
        let mut stream = TcpStream::connect(&place).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: {place}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).unwrap();
        said
    }

    /// One that does not start, and what it says.
    pub(crate) fn refuses(config: &str) -> String {
        let mut server = Self::launch(config, None, ALL_FILES);
        let ended = server.ended();
        server.is_ended.store(true, Ordering::Relaxed);
        let said = server.said();
        assert!(!ended.success(), "{said}");
        said
    }

    fn at(config: &str, http: Option<u16>, first: &str) -> Self {
        let mut server = Self::launch(config, http, first);
        server.wait_until_ready();
        server
    }

    fn launch(config: &str, http: Option<u16>, first: &str) -> Self {
        Self::launch_of(&program(), config, http, first)
    }

    /// The same as [`with`](Self::with), of another program.
    pub(crate) fn of(program: &Path, config: &str) -> Self {
        let mut server = Self::launch_of(program, config, None, ALL_FILES);
        server.wait_until_ready();
        server
    }

    /// The same as [`with`](Self::with), in a network of the test.
    pub(crate) fn within(network: &Network, config: &str) -> Self {
        let program = program();
        let mut server = Self::launch_in(Some(network), &program, config, None, ALL_FILES);
        server.wait_until_ready();
        server
    }

    fn launch_of(program: &Path, config: &str, http: Option<u16>, first: &str) -> Self {
        Self::launch_in(None, program, config, http, first)
    }

    fn launch_in(
        network: Option<&Network>,
        program: &Path,
        config: &str,
        http: Option<u16>,
        first: &str,
    ) -> Self {
        let host = network.map_or(Ipv4Addr::LOCALHOST, Network::host);
        let folder = folder();
        let port = free_port();
        let file = folder.join("rideau.toml");
        let admin = http.map_or("none".into(), |port| format!("127.0.0.1:{port}"));
        let listen = match network {
            Some(_) => format!(r#"["{host}:{port}"]"#),
            // Both, as by default.
            None => format!(r#"["127.0.0.1:{port}", "[::1]:{port}"]"#),
        };
        let head = format!("[server]\nlisten = {listen}\nadmin = \"{admin}\"\n");
        let secret = folder.join("secret");
        fs::write(&secret, "open sesame").unwrap();
        let config = config.replace("{secret}", &secret.display().to_string());
        let config = config.replace("{folder}", &folder.display().to_string());
        fs::write(&file, head + &config).unwrap();
        fs::create_dir(folder.join("small")).unwrap();
        let first = first.replace("{folder}", &folder.display().to_string());
        let raised = format!(r#"{first} exec "$0" "$@""#);
        let mut command = match (network, first.contains("mount ")) {
            (Some(network), _) => network.command("bash"),
            (None, true) => command("unshare"),
            (None, false) => command("bash"),
        };
        if first.contains("mount ") {
            command.args(["-m", "bash"]);
        }
        command.args(["-c", &raised]).arg(program);
        command.args(serve(&file)).stdin(Stdio::null());
        command.env("XDG_STATE_HOME", folder.join("state"));
        command.stdout(File::create(folder.join("stdout")).unwrap());
        command.stderr(File::create(folder.join("stderr")).unwrap());
        let child = command.start();
        Self {
            child,
            host,
            port,
            http,
            folder,
            is_ended: AtomicBool::new(false),
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        (self.host, self.port).into()
    }

    /// Where it speaks HTTP.
    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.http.unwrap())
    }

    /// The file that it was started with, and that goes with it.
    pub(crate) fn file(&self) -> PathBuf {
        self.folder.join("rideau.toml")
    }

    pub(crate) fn port(&self) -> String {
        self.port.to_string()
    }

    /// A connection that speaks the second version of the protocol.
    pub(crate) fn connect(&self) -> Wire {
        Wire::connect(self.address()).unwrap()
    }

    /// A connection of the operator.
    pub(crate) fn operator(&self) -> Wire {
        let mut wire = self.connect();
        assert_eq!(wire.ask(&format!("AUTH {}", self.token())).text(), "OK");
        wire
    }

    /// What proves that one is the operator.
    pub(crate) fn token(&self) -> String {
        let socket = rideau_daemon::control::find(self.port).unwrap();
        let token = fs::read_to_string(socket.with_extension("token")).unwrap();
        token.trim_end().to_owned()
    }

    /// A connection that speaks the third.
    pub(crate) fn connect3(&self) -> Wire {
        let mut wire = self.connect();
        let hello = wire.ask("HELLO 3");
        assert_eq!(hello.field("proto").int(), 3, "{hello}");
        wire
    }

    /// Kill it as a power cut would.
    pub(crate) fn kill(&self) {
        self.signal(Signal::KILL);
    }

    /// Stop it in order, and wait for its end. Says what it said.
    pub(crate) fn stop(mut self) -> String {
        self.signal(Signal::TERM);
        let ended = self.child.wait().unwrap();
        let said = self.said();
        assert!(ended.success(), "{ended:?}: {said}");
        said
    }

    /// Its number in the system.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Where its files are.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Ask it to stop in order.
    pub(crate) fn ask_to_stop(&self) {
        self.signal(Signal::TERM);
    }

    /// It is over.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Wait for its end.
    pub(crate) fn ended(&mut self) -> ExitStatus {
        until("the server has ended", || self.has_ended());
        self.is_ended.store(true, Ordering::Relaxed);
        self.child.wait().unwrap()
    }

    fn signal(&self, signal: Signal) {
        self.is_ended.store(true, Ordering::Relaxed);
        rideau_testing::signal(self.child.id(), signal);
    }

    /// Bytes of memory that the server has touched and still has.
    pub(crate) fn memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:"));
        let kibibytes = line.unwrap().split_whitespace().nth(1).unwrap();
        kibibytes.parse::<u64>().unwrap() * 1024
    }

    /// Wait until this many commands wait.
    pub(crate) fn until_waiting(&self, count: usize) {
        let mut observer = self.connect();
        until(&format!("{count} commands wait"), || {
            let list = observer.ask("CLIENT LIST").text();
            list.lines()
                .filter(|line| line.contains(" waiting=1 "))
                .count()
                == count
        });
    }

    /// Wait until only the observer is connected.
    pub(crate) fn until_alone(&self) {
        let mut observer = self.connect();
        until("all others are gone", || {
            observer.ask("CLIENT LIST").text().lines().count() == 1
        });
    }

    /// What the program wrote to its standard error.
    pub(crate) fn said(&self) -> String {
        fs::read_to_string(self.folder.join("stderr")).unwrap()
    }

    fn wait_until_ready(&mut self) {
        let address = self.address();
        until("the server is ready", || {
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none(), "{ended:?}: {}", self.said());
            Wire::connect(address).is_ok_and(|mut wire| wire.ask("PING").text() == "PONG")
        });
    }

    fn check(&mut self) {
        let ended = self.child.try_wait().unwrap();
        let said = self.said();
        assert!(ended.is_none(), "it ended by itself, {ended:?}: {said}");
        assert!(!said.contains("panicked"), "{said}");
        assert_eq!(self.connect().ask("PING").text(), "PONG");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if panicking() {
            eprintln!("the server said: {}", self.said());
        } else if !self.is_ended.load(Ordering::Relaxed) {
            self.check();
        }
        self.child.end();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Run a test again in a process with the most files that the system allows.
/// The variable tells it so.
pub(crate) fn run_with_all_files(name: &str, variable: &str) {
    let raised = r#"ulimit -n "$(ulimit -Hn)"; exec "$0" "$@""#;
    let mut test = command("sh");
    test.args(["-c", raised]);
    run_again(test, name, variable);
}

/// Run a test again in a process that this command makes. The variable tells it so.
pub(crate) fn run_again(mut test: Command, name: &str, variable: &str) {
    test.arg(env::current_exe().unwrap());
    test.args(["--exact", name, "--nocapture"]);
    let output = test.env(variable, "1").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    // Indented, or its count would be taken for one of ours.
    let said = said.replace('\n', "\n  ");
    assert!(output.status.success(), "{said}");
    assert!(said.contains("1 passed"), "{said}");
}

/// Poll until `done` says so.
pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let since = Instant::now();
    while !done() {
        assert!(since.elapsed() < PATIENCE, "still waiting until {what}");
        sleep(Duration::from_millis(2));
    }
}

/// A port that no process listened on a moment ago, and none of those that the
/// system gives to connecting clients.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let number = id().wrapping_mul(64).wrapping_add(next);
        let port = u16::try_from(12_000 + number % 8_000).unwrap();
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}

fn folder() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = env::temp_dir().join(format!("rideau-daemon-{}-{number}", id()));
    fs::create_dir(&path).unwrap();
    path
}
