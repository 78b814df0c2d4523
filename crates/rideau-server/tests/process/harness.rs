//! A folder for one test's children, and what a test wants to know of them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rideau_process::{Process, Program, Ready, RunFolder, StartError, StartReport};
use rideau_testing::{Running, Start, command};

/// Longer than anything takes on a busy machine; it only catches what hangs.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// The program that is its own stage.
pub(crate) const STAGE: &str = env!("CARGO_BIN_EXE_rideau");

/// A temporary folder with room for children, gone with the test.
pub(crate) struct Harness {
    path: PathBuf,
    pub(crate) folder: RunFolder,
}

impl Harness {
    /// A harness whose children start by way of a stage, as the program's do.
    pub(crate) fn new() -> Self {
        let mut harness = Self::bare();
        harness.folder = harness.folder.clone().with_stage(Path::new(STAGE));
        harness
    }

    /// A harness without a stage.
    pub(crate) fn bare() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("rideau-process-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        // A test that was killed may have had our number.
        let _ = fs::remove_dir_all(&path);
        let folder = RunFolder::open(&path.join("run")).unwrap();
        Self { path, folder }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Write a file and say where it is.
    pub(crate) fn write(&self, name: &str, text: &str) -> String {
        let path = self.path.join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// Write a file that may be executed.
    pub(crate) fn script(&self, name: &str, text: &str) -> String {
        let path = self.write(name, text);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    pub(crate) async fn start(&self, program: &Program) -> Result<Process, StartError> {
        let started = Process::start(program, &self.folder, |_| ());
        tokio::time::timeout(LONG * 2, started).await.unwrap()
    }

    pub(crate) async fn start_reported(
        &self,
        program: &Program,
    ) -> Result<Process, Box<StartReport>> {
        let started = Process::start_reported(program, &self.folder, |_| ());
        tokio::time::timeout(LONG * 2, started).await.unwrap()
    }

    /// The files that are left of children.
    pub(crate) fn files(&self) -> Vec<String> {
        files(self.folder.path())
    }
}

impl Drop for Harness {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

pub(crate) fn files(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.filter(|name| name != "lock").collect();
    names.sort();
    names
}

/// A program that has as long as it needs to start.
pub(crate) fn program(argv: &[&str], ready: Ready) -> Program {
    Program {
        name: "test".to_owned(),
        argv: argv.iter().map(|word| (*word).to_owned()).collect(),
        ready,
        start_timeout: LONG,
        stop_timeout: LONG,
        ..Program::default()
    }
}

pub(crate) fn shell(script: &str, ready: Ready) -> Program {
    program(&["sh", "-c", script], ready)
}

pub(crate) fn python(script: &str, ready: Ready) -> Program {
    program(&["python3", "-c", script, "{socket}", "{port}"], ready)
}

/// Wait for something to become so.
pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let mut waited = Duration::ZERO;
    while !is_so() {
        assert!(waited < LONG, "{what} did not come true");
        tokio::time::sleep(Duration::from_millis(2)).await;
        waited += Duration::from_millis(2);
    }
}

/// Does a process with this number run? A zombie does not.
pub(crate) fn runs(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit_once(')')
        .map_or("", |(_, rest)| rest.trim_start());
    !state.is_empty() && !state.starts_with(['Z', 'X'])
}

/// Is there a process with this number, even a zombie?
pub(crate) fn exists(pid: i32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

/// The number that a child wrote to a file.
pub(crate) async fn number_in(path: &Path) -> i32 {
    let mut number = None;
    until("a number in a file", || {
        let text = fs::read_to_string(path).unwrap_or_default();
        number = text.strip_suffix('\n').and_then(|text| text.parse().ok());
        number.is_some()
    })
    .await;
    number.unwrap()
}

pub(crate) fn texts(process: &Process) -> Vec<String> {
    let lines = process.last_lines().into_iter();
    lines.map(|line| line.text).collect()
}

/// The variable that says to a test that it is alone in its program.
pub(crate) const ALONE: &str = "RIDEAU_TEST_ALONE";

/// Run a test again in a program of its own, with a word for what it is to do.
pub(crate) fn alone(name: &str, word: &str) -> Running {
    command(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(ALONE, word)
        .stdout(Stdio::null())
        .start()
}
