//! Locks that other nodes give: what a client asks for at once is asked for at once.
//!
//! Answers keep the order of the commands, and so do commands about one key. Any other
//! command is executed when all before it are answered.

use std::collections::VecDeque;

use rideau_resp::{Request, RequestLimits, RequestParser};
use tokio::io::{AsyncRead, AsyncWrite};

use super::{Connection, Over};
use crate::redis::client::{Next, PendingCommand};
use crate::redis::commands;
use crate::state::command_stats::Run;

/// The most commands of a connection that are not answered in their turn.
const COUNT_MAX: usize = 64;

/// Options of `LOCK` that let it neither wait nor refer to another command.
const PLAIN: [&str; 3] = ["PER", "BUCKETS", "UNITS"];

/// Commands of which some are not answered yet, in order.
#[derive(Default)]
pub(super) struct InFlight {
    commands: VecDeque<Flying>,
}

enum Flying {
    /// Another node has been asked.
    Sent {
        wait: PendingCommand,
        run: Option<Run>,
        begun: u64,
    },
    /// This node has answered: the bytes of the answer.
    Said(Vec<u8>),
    /// It is executed in its turn: its bytes, and the key that it is about.
    PutOff { request: Vec<u8>, key: String },
}

/// When a command is executed.
pub(super) enum CommandTurn {
    /// At once.
    Now,
    /// In its turn, and others may be executed before it.
    PutOff,
    /// When no more than this many are in flight, and none is executed before it.
    After(usize),
}

impl InFlight {
    pub(super) fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    /// When to execute this command.
    #[inline]
    pub(super) fn turn(&self, request: Request<'_>) -> CommandTurn {
        match self.is_empty() {
            true => CommandTurn::Now,
            false => self.turn_behind(request),
        }
    }

    fn turn_behind(&self, request: Request<'_>) -> CommandTurn {
        let is = |name: &str| request.name().eq_ignore_ascii_case(name.as_bytes());
        let is_lock = is("LOCK") && is_plain(request);
        if !is_lock && !is("UNLOCK") {
            return CommandTurn::After(0);
        }
        if self.commands.len() >= COUNT_MAX {
            return CommandTurn::After(COUNT_MAX / 2);
        }
        match is_lock {
            true if self.concerns(&key(request)) => CommandTurn::After(0),
            true => CommandTurn::Now,
            false => CommandTurn::PutOff,
        }
    }

    /// Whether a command in flight is about this key.
    fn concerns(&self, key: &str) -> bool {
        self.commands.iter().any(|command| match command {
            Flying::Sent { wait, .. } => wait.name == key,
            Flying::PutOff { key: of, .. } => of == key,
            Flying::Said(_) => false,
        })
    }

    /// Another node was asked.
    pub(super) fn send(&mut self, wait: PendingCommand, run: Option<Run>, begun: u64) {
        self.commands.push_back(Flying::Sent { wait, run, begun });
    }

    /// This node has answered.
    pub(super) fn say(&mut self, answer: Vec<u8>) {
        self.commands.push_back(Flying::Said(answer));
    }

    /// Execute this in its turn.
    pub(super) fn put_off(&mut self, request: Request<'_>) {
        let key = key(request);
        let mut bytes = Vec::new();
        request.write_to(&mut bytes);
        let request = bytes;
        self.commands.push_back(Flying::PutOff { request, key });
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Connection<S> {
    /// Answer what is in flight, up to this many commands.
    pub(super) async fn land(&mut self, in_flight: &mut InFlight, left: usize) -> Result<(), Over> {
        while in_flight.commands.len() > left
            && let Some(command) = in_flight.commands.pop_front()
        {
            let (wait, run, begun) = match command {
                Flying::Sent { wait, run, begun } => (wait, run, begun),
                Flying::Said(answer) => {
                    self.client.out.extend_from_slice(&answer);
                    continue;
                }
                Flying::PutOff { request, .. } => match self.execute_put_off(&request) {
                    Next::Wait(wait) => {
                        let (run, begun) = self.begin_wait();
                        (wait, run, begun)
                    }
                    _ => continue,
                },
            };
            let answer = self.wait(wait, begun).await?;
            self.count_wait(run, begun, answer);
        }
        Ok(())
    }

    fn execute_put_off(&mut self, bytes: &[u8]) -> Next {
        let limits = RequestLimits {
            bulk_max: bytes.len(),
            frame_max: bytes.len(),
            ..RequestLimits::default()
        };
        let mut parser = RequestParser::default();
        let read = parser.next(bytes, &mut 0, &limits);
        let request = read.ok().flatten().expect("it was read before");
        commands::execute(&mut self.client, request)
    }
}

/// The key of `LOCK` or `UNLOCK`, as the name of a wait has it.
fn key(request: Request<'_>) -> String {
    String::from_utf8_lossy(request.word(1).unwrap_or_default()).into_owned()
}

fn is_plain(request: Request<'_>) -> bool {
    let mut options = request.words().skip(2).step_by(2);
    options.all(|word| {
        PLAIN
            .iter()
            .any(|plain| word.eq_ignore_ascii_case(plain.as_bytes()))
    })
}
