//! Connections that talk to a server without a pause, all in one thread.
//!
//! The same for every server: commands are bytes that were made before, and of
//! answers no more is read than has to be sent back.

use std::cell::{Cell, RefCell};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::ops::Range;
use std::rc::Rc;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::task::{JoinSet, LocalSet};

use super::frames::{Form, Scan};
use super::server::Server;
use crate::measure::{Metric, Plan, Sample, Stall};

/// What a connection says in each of its turns: one thing, and once that is
/// answered, the other.
pub(crate) struct Dialog {
    pub(crate) form: Form,
    /// What is said once, before anything is counted.
    pub(crate) greeting: Option<Step>,
    pub(crate) first: Step,
    pub(crate) second: Step,
}

/// What is sent at once.
pub(crate) enum Step {
    /// The same each time, this many commands.
    Same(Vec<u8>, usize),
    /// A command for each yes of the step before, around what it sends back. The
    /// tails take turns.
    Back { head: Vec<u8>, tails: Vec<Vec<u8>> },
}

/// One stretch of time, and what is counted in it.
struct Window {
    is_open: Cell<bool>,
    /// Commands that were answered, by connection.
    answered: Vec<Cell<u64>>,
    refused: Cell<u64>,
    turns: RefCell<Histogram<u64>>,
}

/// Lets one connection for each dialog talk for the time that the plan says.
///
/// # Panics
///
/// If a server answers with an error, or closes a connection.
pub(crate) fn talk(server: &Server, dialogs: Vec<Dialog>, plan: &Plan) -> Result<Sample, Stall> {
    talk_to(&[server.address], &[server], dialogs, plan)
}

/// The same with several servers, which the connections go to in turn. The processor time is
/// that of all that `work`.
///
/// # Panics
///
/// As [`talk`].
pub(crate) fn talk_to(
    addresses: &[SocketAddr],
    work: &[&Server],
    dialogs: Vec<Dialog>,
    plan: &Plan,
) -> Result<Sample, Stall> {
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("the system has sockets");
    let window = Rc::new(Window {
        is_open: Cell::new(false),
        answered: dialogs.iter().map(|_| Cell::new(0)).collect(),
        refused: Cell::new(0),
        turns: RefCell::new(histogram()),
    });
    LocalSet::new().block_on(&runtime, async {
        let mut lines = Vec::new();
        for (dialog, address) in dialogs.into_iter().zip(addresses.iter().cycle()) {
            lines.push(Line::open(*address, dialog).await);
        }
        let mut parties = JoinSet::new();
        for (at, (line, dialog)) in lines.into_iter().enumerate() {
            parties.spawn_local(line.talk(dialog, Rc::clone(&window), at));
        }
        tokio::time::sleep(plan.warm_up).await;
        let sample = count(work, &window, plan.window).await;
        let ended = parties.try_join_next();
        assert!(ended.is_none(), "a connection ended: {ended:?}");
        sample
    })
}

async fn count(work: &[&Server], window: &Window, len: Duration) -> Result<Sample, Stall> {
    window.is_open.set(true);
    let before = window.answered();
    let (since, cpu) = (Instant::now(), cpu_of(work));
    tokio::time::sleep(len).await;
    let (elapsed, cpu) = (since.elapsed(), cpu_of(work).saturating_sub(cpu));
    let after = window.answered();
    window.is_open.set(false);

    let answered: Vec<u64> = after.iter().zip(&before).map(|(a, b)| a - b).collect();
    let all: u64 = answered.iter().sum();
    if all == 0 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let late = window.answered().iter().sum::<u64>() - after.iter().sum::<u64>();
        return Err(Stall { turns_late: late });
    }
    if window.refused.get() > 0 {
        eprintln!("refused: {} of {all}", window.refused.get());
    }
    let most = answered.iter().max().expect("there is a client");
    let least = answered.iter().min().expect("there is a client");
    let turns = window.turns.borrow();
    let share = |share| turns.value_at_quantile(share) as f64;
    Ok(vec![
        (Metric::Ops, all as f64 / elapsed.as_secs_f64()),
        (Metric::Cpu, cpu.as_nanos() as f64 / all as f64),
        (Metric::P50, share(0.5)),
        (Metric::P99, share(0.99)),
        (Metric::Fairness, *most as f64 / (*least).max(1) as f64),
    ])
}

/// The processor time of servers and all that they started.
pub(crate) fn cpu_of(servers: &[&Server]) -> Duration {
    let times = servers.iter().map(|server| server.family().cpu_time());
    times.sum()
}

impl Window {
    fn answered(&self) -> Vec<u64> {
        self.answered.iter().map(Cell::get).collect()
    }

    fn count(&self, at: usize, since: Instant, commands: usize) {
        let answered = &self.answered[at];
        answered.set(answered.get() + commands as u64);
        if self.is_open.get() {
            let nanos = since.elapsed().as_nanos() as u64;
            self.turns.borrow_mut().saturating_record(nanos);
        }
    }
}

/// A connection, and what it has read.
struct Line {
    stream: TcpStream,
    buffer: Vec<u8>,
    /// So much of the buffer has been read.
    len: usize,
    /// Where in it is what the last answers have to send back.
    backs: Vec<Range<usize>>,
}

/// Room for the answers to as many commands as are sent at once.
const ROOM: usize = 16 * 1024;

impl Line {
    async fn open(address: SocketAddr, dialog: Dialog) -> (Self, Dialog) {
        let stream = std::net::TcpStream::connect(address).expect("it listens");
        stream.set_nodelay(true).expect("a socket can be set");
        stream.set_nonblocking(true).expect("a socket can be set");
        let mut line = Self {
            stream: TcpStream::from_std(stream).expect("the runtime runs"),
            buffer: vec![0; ROOM],
            len: 0,
            backs: Vec::new(),
        };
        if let Some(greeting) = &dialog.greeting {
            line.take(greeting, &dialog.form, &mut Vec::new()).await;
        }
        (line, dialog)
    }

    async fn talk(mut self, dialog: Dialog, window: Rc<Window>, at: usize) {
        let mut out = Vec::new();
        loop {
            let since = Instant::now();
            let first = self.take(&dialog.first, &dialog.form, &mut out).await;
            let second = self.take(&dialog.second, &dialog.form, &mut out).await;
            if second < first {
                window.refused.set(window.refused.get() + 1);
            } else {
                window.count(at, since, first + second);
            }
        }
    }

    /// Sends a step and reads its answers; says how many there were.
    async fn take(&mut self, step: &Step, form: &Form, out: &mut Vec<u8>) -> usize {
        let count = match step {
            Step::Same(frames, count) => {
                self.send(frames).await;
                *count
            }
            Step::Back { head, tails } => {
                out.clear();
                for (back, tail) in self.backs.iter().zip(tails.iter().cycle()) {
                    out.extend_from_slice(head);
                    out.extend_from_slice(&self.buffer[back.clone()]);
                    out.extend_from_slice(tail);
                }
                self.send(out).await;
                self.backs.len()
            }
        };
        self.hear(count, form).await;
        count
    }

    async fn send(&self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            match self.stream.try_write(bytes) {
                Ok(len) => bytes = &bytes[len..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.stream.writable().await.expect("the runtime runs");
                }
                Err(error) => panic!("a server does not read: {error}"),
            }
        }
    }

    /// Reads this many answers, and no more: no more were asked for.
    async fn hear(&mut self, count: usize, form: &Form) {
        self.len = 0;
        self.backs.clear();
        let (mut heard, mut at) = (0, 0);
        while heard < count {
            self.read().await;
            while let Scan::Whole(reply) = form.scan(&self.buffer[..self.len], at) {
                let text = &self.buffer[at..reply.end];
                assert!(!reply.is_error, "{}", String::from_utf8_lossy(text));
                self.backs.extend(reply.back);
                at = reply.end;
                heard += 1;
            }
        }
        assert_eq!((heard, at), (count, self.len), "answers without a question");
    }

    async fn read(&mut self) {
        assert!(
            self.len < self.buffer.len(),
            "answers are longer than the room"
        );
        loop {
            match self.stream.try_read(&mut self.buffer[self.len..]) {
                Ok(0) => panic!("a server closed a connection"),
                Ok(len) => {
                    self.len += len;
                    return;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.stream.readable().await.expect("the runtime runs");
                }
                Err(error) => panic!("a server does not answer: {error}"),
            }
        }
    }
}

/// From a nanosecond to a minute, to three digits.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("the bounds are in order")
}
