//! A server with applications in a folder of its own, and what must be true when
//! it is gone.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rideau_testing::{Running, Signal, Start, command, signal};

use crate::peer::Peer;

/// Nothing takes longer, unless it hangs.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// A server with applications.
pub(crate) struct Harness {
    pub(crate) folder: PathBuf,
    server: Option<Running>,
    /// Where HTTP is.
    pub(crate) front: SocketAddr,
    /// Where commands are.
    pub(crate) control: String,
    /// Where operators look.
    admin: SocketAddr,
}

/// An answer of the front.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    /// The value of a field of its head.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

/// An answer whose body may be any bytes.
#[derive(Debug)]
pub(crate) struct RawAnswer {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: Vec<u8>,
}

impl RawAnswer {
    /// The values of all fields of that name, joined by commas.
    pub(crate) fn field(&self, name: &str) -> Option<String> {
        let named = self.head.lines().filter_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        });
        let named: Vec<_> = named.collect();
        (!named.is_empty()).then(|| named.join(", "))
    }
}

/// The versions of HTTP that a client may speak, as curl calls them.
pub(crate) const VERSIONS: [&str; 2] = ["--http1.1", "--http2-prior-knowledge"];

/// The tests may take much longer, and tell more.
pub(crate) fn is_soak() -> bool {
    std::env::var_os("RIDEAU_SOAK").is_some()
}

/// A folder for one test.
pub(crate) fn folder() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("rideau-apps-{}-{number}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(path.join("tmp")).unwrap();
    path
}

/// The words that run the application for tests.
pub(crate) fn app_words() -> String {
    static PYTHON: OnceLock<String> = OnceLock::new();
    // What is called so may be a script that takes its time to find the real one.
    let python = PYTHON.get_or_init(|| {
        let said = command("python3")
            .args(["-c", "import sys; print(sys.executable)"])
            .output()
            .expect("python3 is installed");
        String::from_utf8(said.stdout).unwrap().trim().to_owned()
    });
    let app = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/apps/app.py");
    format!("[{python:?}, {:?}]", app.display().to_string())
}

impl Harness {
    /// A server with these applications; in the text, APP stands for the words
    /// that run the one for tests and FOLDER for the folder.
    pub(crate) fn new(folder: &Path, apps: &str) -> Self {
        Self::with_front(folder, "", apps)
    }

    pub(crate) fn with_front(folder: &Path, front: &str, apps: &str) -> Self {
        Self::write(folder, front, apps);
        Self::start(folder)
    }

    /// Write the config of a server.
    pub(crate) fn write(folder: &Path, front: &str, apps: &str) {
        let text = format!(
            "[server]\nlisten = [\"127.0.0.1:0\"]\nadmin = \"127.0.0.1:0\"\n\
             run_dir = \"FOLDER/run\"\n[front]\nlisten = [\"127.0.0.1:0\"]\n{front}\n{apps}\n"
        );
        // New code serves at once, unless a test is about its trial.
        let text = match text.contains("trial =") {
            true => text,
            false => text.replace("exec = APP\n", "exec = APP\ntrial = \"none\"\n"),
        };
        let text = text.replace("APP", &app_words());
        let text = text.replace("FOLDER", &folder.display().to_string());
        fs::write(folder.join("rideau.toml"), text).unwrap();
    }

    /// Start the server that the folder has the config of.
    pub(crate) fn start(folder: &Path) -> Self {
        Self::start_limited(folder, "")
    }

    /// The same, in a shell that limits it first.
    pub(crate) fn start_limited(folder: &Path, limit: &str) -> Self {
        let mut log = fs::OpenOptions::new();
        let log = log.create(true).append(true).open(folder.join("log"));
        let mut server = command("sh")
            .args(["-c", &format!("{limit}\nexec \"$0\" \"$@\"")])
            .arg(env!("CARGO_BIN_EXE_rideau"))
            .args(["serve", "-c"])
            .arg(folder.join("rideau.toml"))
            .stdout(Stdio::piped())
            .stderr(log.unwrap())
            .start();
        let mut said = BufReader::new(server.stdout.take().unwrap());
        let (mut admin, mut front, mut control) = (None, None, None);
        while front.is_none() || control.is_none() {
            let mut line = String::new();
            if said.read_line(&mut line).unwrap() == 0 {
                let log = fs::read_to_string(folder.join("log")).unwrap_or_default();
                panic!("the server ended: {log}");
            }
            // `rideau serves at PLACE`, and what for.
            let place = line.split_whitespace().nth(3).unwrap().to_owned();
            match place.strip_prefix("http://") {
                Some(address) if admin.is_none() => admin = Some(address.parse().unwrap()),
                Some(address) => front = Some(address.parse().unwrap()),
                None => control = Some(place),
            }
        }
        thread::spawn(move || {
            let mut rest = String::new();
            let _ = said.read_to_string(&mut rest);
        });
        Self {
            folder: folder.to_owned(),
            server: Some(server),
            front: front.unwrap(),
            control: control.unwrap(),
            admin: admin.unwrap(),
        }
    }

    /// A connection of the Redis protocol. Where there are no users, what needs the
    /// operator is said on a connection of the operator.
    pub(crate) fn peer(&self) -> Peer {
        let peer = Peer::new(self.port());
        let config = fs::read_to_string(self.folder.join("rideau.toml")).unwrap();
        match config.contains("[user.") {
            true => peer,
            false => peer.with_operator(self.port(), &self.token(), |name| {
                let is_open = ["APP.GET", "APP.LS", "APP.STAT"].contains(&name);
                (name.starts_with("APP.") && !is_open) || name == "CONFIG"
            }),
        }
    }

    /// A connection of the operator.
    pub(crate) fn operator(&self) -> Peer {
        Peer::operator(self.port(), &self.token())
    }

    fn port(&self) -> u16 {
        let (_, port) = self.control.rsplit_once(':').unwrap();
        port.parse().unwrap()
    }

    pub(crate) fn token(&self) -> String {
        let socket = rideau_daemon::control::find(self.port()).unwrap();
        let token = fs::read_to_string(socket.with_extension("token")).unwrap();
        token.trim_end().to_owned()
    }

    /// What the operator is answered over HTTP.
    pub(crate) fn admin(&self, method: &str, path: &str, body: &str) -> Answer {
        let fields = format!(
            "Rideau-Csrf: 1\r\nAuthorization: Bearer {}\r\n",
            self.token()
        );
        ask_with(self.admin, method, path, &fields, body.as_bytes()).unwrap()
    }

    /// What a user is shown over HTTP, by its name and password in base64.
    pub(crate) fn admin_as(&self, basic: &str, path: &str) -> Answer {
        let fields = format!("Authorization: Basic {basic}\r\n");
        ask_with(self.admin, "GET", path, &fields, b"").unwrap()
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.ask("GET", "test", path, b"").unwrap()
    }

    /// One request on a connection of its own.
    pub(crate) fn ask(
        &self,
        method: &str,
        host: &str,
        path: &str,
        body: &[u8],
    ) -> std::io::Result<Answer> {
        ask(self.front, method, host, path, body)
    }

    /// One with these lines in its head.
    pub(crate) fn ask_saying(&self, path: &str, fields: &str) -> Answer {
        ask_with(self.front, "GET", path, fields, b"").unwrap()
    }

    /// What curl is answered, which is told this; the path is sent as it is.
    pub(crate) fn curl(&self, words: &[&str], path: &str) -> RawAnswer {
        let done = command("curl")
            .args(["--silent", "--show-error", "--max-time", "50"])
            .args(["--include", "--path-as-is", "--globoff"])
            .args(words)
            .arg(format!("http://{}{path}", self.front))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{words:?} {path}: {said}");
        let end = done.stdout.windows(4).position(|end| end == b"\r\n\r\n");
        let (head, body) = done.stdout.split_at(end.unwrap() + 4);
        let head = String::from_utf8_lossy(head).into_owned();
        RawAnswer {
            status: head.split(' ').nth(1).unwrap().trim().parse().unwrap(),
            head,
            body: body.to_vec(),
        }
    }

    /// What a command of the command line says.
    pub(crate) fn cli(&self, words: &[&str]) -> String {
        self.try_cli(words)
            .unwrap_or_else(|(_, errors)| panic!("{words:?}: {errors}"))
    }

    /// What a command prints; how it ended and what it complains of, if it fails.
    pub(crate) fn try_cli(&self, words: &[&str]) -> Result<String, (Option<i32>, String)> {
        let done = command(env!("CARGO_BIN_EXE_rideau"))
            .args(["--server", &self.control])
            .args(words)
            .output()
            .unwrap();
        if done.status.success() {
            return Ok(String::from_utf8_lossy(&done.stdout).into_owned());
        }
        let errors = String::from_utf8_lossy(&done.stderr).into_owned();
        Err((done.status.code(), errors))
    }

    /// The processes that are ready.
    pub(crate) fn ready(&self) -> Vec<i32> {
        let said = self.cli(&["--json", "status", "processes"]);
        let rows: serde_json::Value = serde_json::from_str(&said).unwrap();
        let rows = rows.as_array().unwrap().iter();
        let rows = rows.filter(|row| row["state"] == "ready");
        rows.map(|row| row["pid"].as_i64().unwrap() as i32)
            .collect()
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.server.as_ref().unwrap().id()
    }

    /// What the server uses of memory, in KiB.
    pub(crate) fn memory(&self) -> u64 {
        self.status_of("VmRSS:")
    }

    /// What it used at most since that was forgotten, in KiB.
    pub(crate) fn peak_memory(&self) -> u64 {
        self.status_of("VmHWM:")
    }

    pub(crate) fn forget_peak(&self) {
        fs::write(format!("/proc/{}/clear_refs", self.pid()), "5").unwrap();
    }

    fn status_of(&self, key: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(key));
        let kib = line.and_then(|line| line.split_whitespace().next());
        kib.unwrap().parse().unwrap()
    }

    /// Kill the server, without a word to its clients.
    pub(crate) fn kill(&mut self) {
        let mut server = self.server.take().unwrap();
        server.kill().unwrap();
        server.wait().unwrap();
    }

    /// Ask the server to stop, and wait for its end.
    pub(crate) fn stop(&mut self) -> ExitStatus {
        let mut server = self.server.take().unwrap();
        signal(server.id(), Signal::TERM);
        let until = Instant::now() + LONG;
        loop {
            if let Some(status) = server.try_wait().unwrap() {
                return status;
            }
            if Instant::now() > until {
                let _ = server.kill();
                panic!("the server does not stop: {}", self.log());
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Stop the server; nothing of it is left.
    pub(crate) fn end(mut self) {
        let status = self.stop();
        assert!(status.success(), "{status}: {}", self.log());
        not_panicked(&self.log());
        nothing_is_left(&self.folder);
    }
}

impl Drop for Harness {
    fn drop(&mut self) {
        drop(self.server.take());
        if thread::panicking() {
            eprintln!("--- log\n{}", self.log());
        }
    }
}

/// The server did not, whatever an application wrote.
pub(crate) fn not_panicked(log: &str) {
    let mut own = log.lines().filter(|line| !line.contains(" INFO app: "));
    assert!(!own.any(|line| line.contains("panicked")), "{log}");
}

/// No process, no socket.
pub(crate) fn nothing_is_left(folder: &Path) {
    let left = processes_of(folder);
    assert!(left.is_empty(), "processes are left: {left:?}");
    let run = fs::read_dir(folder.join("run"));
    let sockets = run.into_iter().flatten().flatten().filter(|entry| {
        use std::os::unix::fs::FileTypeExt;
        entry.file_type().is_ok_and(|kind| kind.is_socket())
    });
    let sockets: Vec<_> = sockets.map(|entry| entry.path()).collect();
    assert!(sockets.is_empty(), "sockets are left: {sockets:?}");
    let _ = fs::remove_dir_all(folder);
}

/// The processes whose environment or command names the folder, servers not
/// counted.
pub(crate) fn processes_of(folder: &Path) -> Vec<i32> {
    let wanted = folder.display().to_string();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<i32>() else {
            continue;
        };
        let read = |name: &str| fs::read(entry.path().join(name)).unwrap_or_default();
        let names = |bytes: &[u8]| String::from_utf8_lossy(bytes).contains(&wanted);
        let is_server = names(&read("cmdline"));
        let status = String::from_utf8_lossy(&read("stat")).into_owned();
        let is_dead = status
            .rsplit_once(") ")
            .is_none_or(|(_, rest)| rest.starts_with('Z') || rest.starts_with('X'));
        if !is_server && !is_dead && names(&read("environ")) {
            found.push(pid);
        }
    }
    found
}

/// Wait until it is so, and fail if it never is.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let limit = Instant::now() + LONG;
    while !is_so() {
        assert!(Instant::now() < limit, "it never came: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

pub(crate) fn ask(
    front: SocketAddr,
    method: &str,
    host: &str,
    path: &str,
    body: &[u8],
) -> std::io::Result<Answer> {
    ask_with(front, method, path, &format!("Host: {host}\r\n"), body)
}

/// The same with these lines in its head.
pub(crate) fn ask_with(
    place: SocketAddr,
    method: &str,
    path: &str,
    fields: &str,
    body: &[u8],
) -> std::io::Result<Answer> {
    let mut stream = TcpStream::connect(place)?;
    stream.set_read_timeout(Some(LONG))?;
    let length = match body.is_empty() {
        true => String::new(),
        false => format!("Content-Length: {}\r\n", body.len()),
    };
    let head = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n{fields}{length}\r\n");
    stream.write_all(head.as_bytes())?;
    stream.write_all(body)?;
    let mut said = Vec::new();
    stream.read_to_end(&mut said)?;
    let said = String::from_utf8_lossy(&said).into_owned();
    let broken = || std::io::Error::other(format!("no answer: {said:?}"));
    let (head, body) = said.split_once("\r\n\r\n").ok_or_else(broken)?;
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
    Ok(Answer {
        status: status.ok_or_else(broken)?,
        head: head.to_owned(),
        body: body.to_owned(),
    })
}
