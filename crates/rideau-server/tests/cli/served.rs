//! A server of its own for a test, and the program with it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rideau_testing::{Running, Start, command};

/// A server that ends with the test.
pub(crate) struct Served {
    process: Running,
    folder: Folder,
}

/// A folder of its own, which goes with the test.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("rideau-{name}-{}-{count}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const CONFIG: &str = r#"
[server]
drain = "1s"

[pool.licences]
member = { list = ["CAD-001"] }

[broker.default]

[store]
kind = "memory"

[range.number]
values = ["1-2"]
start = "free"

[view.low]
values = ["1"]

[lock."*"]
"#;

impl Served {
    /// Start one, and wait until it listens.
    pub(crate) fn start() -> Self {
        let folder = Folder::new("cli");
        let file = folder.0.join("rideau.toml");
        fs::write(&file, CONFIG).unwrap();
        let listen = format!("unix:{}", folder.0.join("sock").display());
        let mut process = rideau()
            .args(["serve", "--admin", "none", "--listen", &listen, "-c"])
            .arg(&file)
            .stdout(Stdio::piped())
            .start();
        let mut line = String::new();
        let mut out = BufReader::new(process.stdout.take().unwrap());
        out.read_line(&mut line).unwrap();
        assert_eq!(line.trim_end(), format!("rideau serves at {listen}"));
        Self { process, folder }
    }

    /// Its folder, which goes with it.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder.0
    }

    /// The program, that knows where the server is.
    pub(crate) fn rideau(&self) -> Command {
        let mut command = rideau();
        let place = format!("unix:{}", self.folder.0.join("sock").display());
        command.env("RIDEAU_SERVER", place);
        command
    }

    /// Run the program with these words to its end.
    pub(crate) fn run(&self, words: &[&str]) -> Output {
        self.rideau().args(words).output().unwrap()
    }

    /// Kill it, as a power cut would.
    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Its id.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Wait for its end; says its exit code.
    pub(crate) fn wait(&mut self) -> Option<i32> {
        self.process.wait().unwrap().code()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.process.end();
    }
}

/// The program, in an environment that says nothing.
pub(crate) fn rideau() -> Command {
    let mut command = command(env!("CARGO_BIN_EXE_rideau"));
    for name in ["RIDEAU_SERVER", "RIDEAU_PASSWORD", "NO_COLOR"] {
        command.env_remove(name);
    }
    command.stdin(Stdio::null());
    command
}

pub(crate) fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// Wait until a file is there, for as long as a test may hang.
pub(crate) fn wait_for(path: &Path) {
    for _ in 0..3_000 {
        if path.exists() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{} never came", path.display());
}
