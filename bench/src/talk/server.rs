//! The servers that are measured: started on free ports, stopped by their ids.

use std::env;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use super::frames::{Reply, Scan, scan};

/// A server that runs until this is dropped, even by a panic.
pub(crate) struct Server {
    child: Child,
    folder: PathBuf,
    pub(crate) address: SocketAddr,
}

/// Long enough for a machine that is busy with something else.
const START_MAX: Duration = Duration::from_secs(10);

impl Server {
    pub(crate) fn redis() -> Self {
        let (folder, address) = (folder(), free_address());
        let mut command = Command::new("redis-server");
        command
            .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .args(["--port", &address.port().to_string()])
            .arg("--dir")
            .arg(&folder);
        Self::start(&mut command, folder, address)
    }

    /// Ours, with what `config` says besides where to listen.
    pub(crate) fn ours(program: &Path, threads: usize, config: &str) -> Self {
        let (folder, address) = (folder(), free_address());
        let file = folder.join("rideau.toml");
        let server =
            format!("[server]\nlisten = [\"{address}\"]\nadmin = \"none\"\nthreads = {threads}\n");
        let log = "[log]\nlevel = \"warn\"\n";
        fs::write(&file, server + log + config).expect("the temporary folder can be written");
        Self::start(
            Command::new(program).args(["serve", "--config"]).arg(&file),
            folder,
            address,
        )
    }

    fn start(command: &mut Command, folder: PathBuf, address: SocketAddr) -> Self {
        let command = command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = match command.spawn() {
            Ok(child) => child,
            Err(error) => fail(&format!("cannot start {command:?}: {error}")),
        };
        let mut server = Self {
            child,
            folder,
            address,
        };
        server.wait_until_it_listens();
        server
    }

    fn wait_until_it_listens(&mut self) {
        let until = Instant::now() + START_MAX;
        while TcpStream::connect(self.address).is_err() {
            let end = self.child.try_wait().expect("it is our child");
            assert!(end.is_none(), "a server ended at once: {end:?}");
            assert!(Instant::now() < until, "a server does not listen");
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Processor time of all its threads so far.
    pub(crate) fn cpu_time(&self) -> Duration {
        let tasks = format!("/proc/{}/task", self.child.id());
        let tasks = fs::read_dir(tasks).expect("Linux lists the threads of what runs");
        let nanos = tasks
            .flatten()
            .filter_map(|task| fs::read_to_string(task.path().join("schedstat")).ok())
            .filter_map(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        Duration::from_nanos(nanos.sum())
    }

    /// Sends one command, outside of what is measured, and returns its answer.
    pub(crate) fn ask(&self, frame: &[u8]) -> Vec<u8> {
        let mut stream = TcpStream::connect(self.address).expect("it listens");
        stream.write_all(frame).expect("it reads");
        let mut answer = Vec::new();
        loop {
            let mut bytes = [0; 1024];
            let len = stream.read(&mut bytes).expect("it answers");
            assert!(len > 0, "a server closed the connection");
            answer.extend_from_slice(&bytes[..len]);
            if let Scan::Whole(Reply { is_error, .. }) = scan(&answer, 0) {
                let text = String::from_utf8_lossy(&answer);
                assert!(!is_error, "a server answered {text}");
                return answer;
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It keeps nothing, so there is nothing to finish.
        let _ = self.child.kill();
        // Once waited for, its processor time counts as ours, and not as that of
        // others who disturb.
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Where our program is: beside this one. It is built if it is not there.
pub(crate) fn program() -> PathBuf {
    let bench = env::current_exe().expect("Linux knows what runs");
    let program = bench.with_file_name("rideau");
    if !program.exists() {
        eprintln!("there is no {}: building it", program.display());
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let built = Command::new(cargo)
            .args(["build", "--release", "-p", "rideau-server"])
            .status();
        if !built.is_ok_and(|status| status.success()) || !program.exists() {
            fail("build it first: cargo build --release -p rideau-server");
        }
    }
    program
}

/// Ends this program if there is nothing to compare with.
pub(crate) fn want_redis() {
    let version = Command::new("redis-server").arg("--version").output();
    match version {
        Ok(version) => eprint!("{}", String::from_utf8_lossy(&version.stdout)),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            fail("there is no redis-server in PATH; on Debian: apt install redis-server")
        }
        Err(error) => fail(&format!("redis-server does not run: {error}")),
    }
}

fn fail(reason: &str) -> ! {
    eprintln!("{reason}");
    process::exit(1)
}

/// An address that nobody listens at; another program may be quicker than ours,
/// but then ours says so and ends.
fn free_address() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("there is a free port");
    listener.local_addr().expect("it is bound")
}

fn folder() -> PathBuf {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let name = format!(
        "rideau-bench-{}-{}",
        process::id(),
        NEXT.fetch_add(1, Relaxed)
    );
    let folder = env::temp_dir().join(name);
    fs::create_dir_all(&folder).expect("the temporary folder can be written");
    folder
}
