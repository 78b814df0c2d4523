//! The servers that are measured: started on free ports, stopped by their ids.

use std::env;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::folder::Folder;
use super::frames::{Form, Reply, Scan};
use super::roof;
use crate::measure::Family;

/// A server that runs until this is dropped, even by a panic.
pub(crate) struct Server {
    child: Child,
    /// What ends it; otherwise it is killed.
    stop: Option<Command>,
    /// Removed after it has ended.
    folder: Option<Folder>,
    pub(crate) address: SocketAddr,
}

/// Long enough for a machine that is busy with something else.
const START_MAX: Duration = Duration::from_secs(10);

impl Server {
    pub(crate) fn redis(folder: Folder) -> Self {
        let address = free_address();
        let mut command = Command::new("redis-server");
        command
            .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .args(["--port", &address.port().to_string()])
            .arg("--dir")
            .arg(folder.path());
        Self::start(&mut command, None, folder, address)
    }

    /// One that may be part of a cluster, and writes everything down before it answers.
    pub(crate) fn redis_in_cluster(folder: Folder) -> Self {
        // The port for the other nodes is 10,000 above it.
        let address = loop {
            let address = free_address();
            if address.port() < 50_000 {
                break address;
            }
        };
        let mut command = Command::new("redis-server");
        command
            .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "yes"])
            .args(["--appendfsync", "always", "--cluster-enabled", "yes"])
            .args(["--port", &address.port().to_string()])
            .arg("--dir")
            .arg(folder.path());
        Self::start(&mut command, None, folder, address)
    }

    /// One that does nothing; if it `keeps`, it writes down what it was told.
    pub(crate) fn roof(folder: Folder, keeps: bool) -> Self {
        let address = free_address();
        let mut command = Command::new(env::current_exe().expect("Linux knows what runs"));
        command.arg(roof::WORD).arg(address.to_string());
        if keeps {
            command.arg(folder.path().join("log"));
        }
        Self::start(&mut command, None, folder, address)
    }

    /// Ours, with what `config` says besides where to listen.
    pub(crate) fn ours(program: &Path, threads: usize, config: &str, folder: Folder) -> Self {
        let address = free_address();
        let file = folder.path().join("rideau.toml");
        let server =
            format!("[server]\nlisten = [\"{address}\"]\nadmin = \"none\"\nthreads = {threads}\n");
        let log = "[log]\nlevel = \"warn\"\n";
        fs::write(&file, server + log + config).expect("the temporary folder can be written");
        let mut command = Command::new(program);
        command.args(["serve", "--config"]).arg(&file);
        Self::start(&mut command, None, folder, address)
    }

    /// An etcd of one member.
    pub(crate) fn etcd(folder: Folder) -> Self {
        let (address, peers) = (free_address(), free_address());
        let (url, peers) = (format!("http://{address}"), format!("http://{peers}"));
        let mut command = Command::new("etcd");
        command.arg("--data-dir").arg(folder.path().join("etcd"));
        for (name, value) in [
            ("--listen-client-urls", &url),
            ("--advertise-client-urls", &url),
            ("--listen-peer-urls", &peers),
            ("--initial-advertise-peer-urls", &peers),
            ("--initial-cluster", &format!("default={peers}")),
        ] {
            command.args([name, value]);
        }
        command.stderr(Stdio::null());
        Self::start(&mut command, None, folder, address)
    }

    /// End it as a crash of its machine would.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Bytes of memory that it uses.
    pub(crate) fn resident(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        let status = status.unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let number = line.and_then(|line| line.split_whitespace().next());
        number
            .and_then(|number| number.parse::<u64>().ok())
            .unwrap_or(0)
            * 1024
    }

    /// Starts a server, and waits until it listens.
    pub(super) fn start(
        command: &mut Command,
        stop: Option<Command>,
        folder: Folder,
        address: SocketAddr,
    ) -> Self {
        let command = command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = match command.spawn() {
            Ok(child) => child,
            Err(error) => fail(&format!("cannot start {command:?}: {error}")),
        };
        let mut server = Self {
            child,
            stop,
            folder: Some(folder),
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

    /// The server and all processes that it has started.
    pub(super) fn family(&self) -> Family {
        Family::of(self.child.id())
    }

    /// Sends one command, outside of what is measured, and returns its answer.
    pub(crate) fn ask(&self, frame: &[u8]) -> Vec<u8> {
        let (yes, back) = (Vec::new(), 0);
        self.exchange(frame, 1, &Form::Resp { yes, back })
    }

    /// Sends commands, outside of what is measured, and returns their answers.
    ///
    /// # Panics
    ///
    /// If one of them is an error.
    pub(crate) fn exchange(&self, frames: &[u8], answers: usize, form: &Form) -> Vec<u8> {
        let mut stream = TcpStream::connect(self.address).expect("it listens");
        stream.write_all(frames).expect("it reads");
        let (mut heard, mut at, mut answer) = (0, 0, Vec::new());
        while heard < answers {
            let mut bytes = [0; 16 * 1024];
            let len = stream.read(&mut bytes).expect("it answers");
            assert!(len > 0, "a server closed the connection");
            answer.extend_from_slice(&bytes[..len]);
            while let Scan::Whole(Reply { end, is_error, .. }) = form.scan(&answer, at) {
                let text = String::from_utf8_lossy(&answer[at..end]);
                assert!(!is_error, "a server answered {text}");
                (heard, at) = (heard + 1, end);
            }
        }
        answer
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Nothing that it keeps is wanted any more.
        match &mut self.stop {
            Some(stop) => drop(stop.output()),
            None => drop(self.child.kill()),
        }
        // Once waited for, its processor time counts as ours, and not as that
        // of other programs that disturb.
        let _ = self.child.wait();
        drop(self.folder.take());
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

pub(crate) fn fail(reason: &str) -> ! {
    eprintln!("{reason}");
    process::exit(1)
}

/// An address that nothing listens at; another program may be quicker than ours,
/// but then ours says so and ends.
pub(crate) fn free_address() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("there is a free port");
    listener.local_addr().expect("it is bound")
}
