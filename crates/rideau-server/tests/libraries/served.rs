//! A server for the examples of the libraries.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rideau_testing::{Running, Scratch, Start, command};

use crate::tools::clients;

/// A server that ends with its guard.
pub(crate) struct Served {
    pub port: u16,
    _child: Running,
    _folder: Scratch,
}

impl Served {
    /// A Rideau with what the examples need.
    pub(crate) fn start() -> Self {
        let examples = fs::read_to_string(clients().join("tasks.toml")).unwrap();
        Self::with(&format!("[store]\nkind = \"memory\"\n{examples}"))
    }

    /// One with this config.
    pub(crate) fn with(config: &str) -> Self {
        let folder = Scratch::new();
        let port = free_port();
        let head = format!("[server]\nlisten = [\"127.0.0.1:{port}\"]\nadmin = \"none\"\n");
        let config = head + config;
        fs::write(folder.join("rideau.toml"), config).unwrap();
        let mut rideau = command(env!("CARGO_BIN_EXE_rideau"));
        rideau.args(["serve", "-c"]).arg(folder.join("rideau.toml"));
        Self::of(port, folder, &mut rideau)
    }

    /// A Redis.
    pub(crate) fn redis() -> Self {
        let folder = Scratch::new();
        let port = free_port();
        let mut redis = command("redis-server");
        redis.args(["--port", &port.to_string(), "--save", "", "--dir"]);
        redis.arg(folder.join(""));
        Self::of(port, folder, &mut redis)
    }

    fn of(port: u16, folder: Scratch, command: &mut Command) -> Self {
        command.env("XDG_STATE_HOME", folder.join("state"));
        command.stdout(File::create(folder.join("stdout")).unwrap());
        command.stderr(File::create(folder.join("stderr")).unwrap());
        let child = command.start();
        let limit = Instant::now() + Duration::from_secs(60);
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            let said = fs::read_to_string(folder.join("stderr")).unwrap_or_default();
            assert!(Instant::now() < limit, "no server: {said}");
            sleep(Duration::from_millis(5));
        }
        Self {
            port,
            _child: child,
            _folder: folder,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// The text of an example, which names the usual port.
    pub(crate) fn at_its_port(&self, text: &str) -> String {
        text.replace("127.0.0.1:7433", &format!("127.0.0.1:{}", self.port))
    }
}

pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap().port()
}
