//! What a panic costs: one command, and no holder.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::config::{Config, Listen};
use crate::daemon::Daemon;
use crate::lanes::Lanes;
use crate::serve::Listener;

/// Nothing takes longer, unless it hangs.
const PATIENCE: Duration = Duration::from_secs(60);

struct Wire(BufReader<TcpStream>);

impl Wire {
    /// The first line of an answer.
    fn ask(&mut self, line: &str) -> String {
        write!(self.0.get_mut(), "{line}\r\n").expect("the server reads");
        self.line()
    }

    /// The elements of an answer.
    fn array(&mut self, line: &str) -> Vec<String> {
        let head = self.ask(line);
        let len: usize = head[1..].parse().expect("an array");
        let mut element = || {
            let line = self.line();
            match line.starts_with('$') {
                true => self.line(),
                false => line,
            }
        };
        (0..len).map(|_| element()).collect()
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("the server answers");
        line.trim_end().to_owned()
    }
}

async fn serve() -> (Arc<Daemon>, impl Fn() -> Wire) {
    let text = "[lock.\"*\"]\nqueue = { kind = \"never\" }\n";
    let config = Config::parse(text, "test.toml", &|_| None);
    let daemon = Daemon::new(config.expect("it is a config")).expect("it is sound");
    let listen = Listen::Tcp(([127, 0, 0, 1], 0).into());
    let listener = Listener::bind(&listen, 0).await.expect("a port is free");
    let port = listener.port().expect("it is TCP");
    let lanes = Arc::new(Lanes::start(Some(1)).expect("there are threads"));
    tokio::spawn(listener.serve(Arc::clone(&daemon), lanes));
    let connect = move || {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
        stream
            .set_read_timeout(Some(PATIENCE))
            .expect("it is a socket");
        Wire(BufReader::new(stream))
    };
    (daemon, connect)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_costs_one_command_and_no_holder() {
    let (daemon, connect) = serve().await;
    for when in ["NOW", "LATER", "AFTER"] {
        let (mut holder, mut other) = (connect(), connect());
        assert_eq!(holder.array(&format!("LOCK {when}"))[0], "go");
        let answer = holder.ask(&format!("TEST.PANIC {when}"));
        assert!(
            answer.starts_with("-ERR internal error "),
            "{when}: {answer}"
        );
        assert_eq!(holder.ask("PING"), "+PONG", "{when}");
        // It still holds what it held, and no longer than it is there.
        assert_eq!(other.array(&format!("LOCK {when}"))[0], "full");
        drop(holder);
        assert_eq!(other.array(&format!("LOCK {when} WAIT 60000"))[0], "go");
        drop(other);
    }
    let until = Instant::now() + PATIENCE;
    while !daemon.clients.is_empty() {
        assert!(Instant::now() < until, "connections are never forgotten");
        tokio::task::yield_now().await;
    }
}
