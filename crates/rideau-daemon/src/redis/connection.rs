//! One connection: reads what there is, executes all of it, writes once.
//!
//! While a command waits, the connection goes on reading, so that it notices
//! when the other side goes away; but what it reads is executed only after the
//! answer, and no more is read than a limit allows. A client that has yet to log in
//! has little room, and is not read from when that is full. Only locks of other nodes
//! are asked for before those before them are answered.

mod before_login;
mod exec;
mod in_flight;
mod linger;
mod wait;

use std::future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::{Duration, Instant};

use rideau_core::Brief;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use crate::redis::client::{Client, Next};
use crate::redis::commands;
use crate::redis::input::{self, Input, NoRoom};
use crate::redis::login;
use crate::redis::subscriptions::Watch;
use crate::state::command_stats::Run;
use crate::state::end::EndReason;
use crate::state::values;
use before_login::quiet;
use in_flight::{CommandTurn, InFlight};
use rideau_process::panics;
use rideau_resp::{BEFORE_LOGIN_MAX, Fault, Protocol, RequestLimits, RequestParser};

/// Answers that needed more room than this give it back when they are written: most
/// connections have nothing to do for most of the time.
const KEPT: usize = 1024;
/// Answers before login are written when there is so much of them.
const OUTPUT_BEFORE_LOGIN_MAX: usize = 16 * 1024;
/// A client that does not take what is written for so long is cut.
const WRITE_MAX: Duration = Duration::from_secs(30);

// What may come before login needs nothing of what all share.
const _: () = assert!(BEFORE_LOGIN_MAX <= input::BASE);

/// Why a connection ended.
enum Over {
    /// It said goodbye, or was asked to go.
    Closed,
    /// It was told why it cannot go on, perhaps while it was sending more.
    Refused,
    /// It vanished.
    Lost,
}

/// An event for an idle connection.
enum Heard {
    /// The other side said this many bytes.
    Read(io::Result<usize>),
    /// There is something to tell.
    Push,
    /// It was silent for too long.
    Nothing,
    /// It has not logged in in time.
    Late,
}

struct Connection<S> {
    stream: S,
    client: Box<Client>,
    parser: RequestParser,
    input: Input,
    limits: RequestLimits,
    /// As much input is kept at most.
    input_max: usize,
    pipeline_max: usize,
    output_max: usize,
    /// The limits are those of the config of this generation.
    generation: u64,
    /// They are those of a client with a user.
    has_user: bool,
    /// They are those of a client that has yet to log in.
    is_before_login: bool,
    /// Such a client has logged in by then.
    login_by: Option<Instant>,
}

/// Serve one connection until it ends, and give back all that it held.
pub(crate) async fn serve<S>(stream: S, client: Box<Client>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let mut connection = Connection {
        stream,
        parser: RequestParser::default(),
        input: Input::new(&client.daemon.input),
        client,
        limits: RequestLimits::default(),
        input_max: 0,
        pipeline_max: 0,
        output_max: 0,
        generation: 0,
        has_user: false,
        is_before_login: true,
        login_by: None,
    };
    connection.client.waker = future::poll_fn(|task| Poll::Ready(task.waker().clone())).await;
    // Whatever panics here, the holder ends and the connection is forgotten.
    let over = panics::contain_async(connection.run()).await;
    connection.client.let_go_in_slices().await;
    if matches!(over, Ok(Over::Refused)) {
        let _ = panics::contain_async(connection.linger()).await;
    }
    connection.client.end();
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Connection<S> {
    async fn run(&mut self) -> Over {
        loop {
            if let Err(over) = self.execute().await {
                return over;
            }
            if let Err(over) = self.hear().await {
                return over;
            }
        }
    }

    /// Follow a change of the config.
    fn follow(&mut self) {
        let generation = self.client.daemon.settings.generation();
        if self.generation != generation {
            self.generation = generation;
            login::follow(&mut self.client);
            self.read_limits();
        }
    }

    /// Have the limits that hold now for this client, with or without its user.
    #[cold]
    fn read_limits(&mut self) {
        let client = &self.client;
        self.has_user = client.user.is_some();
        self.is_before_login = login::is_needed(client);
        let config = client.daemon.config.load();
        let frame_max = config.limits.frame_max as usize;
        let limits = RequestLimits {
            frame_max,
            bulk_max: frame_max,
            ..RequestLimits::default()
        };
        self.pipeline_max = config.limits.pipeline_max as usize;
        self.output_max = config.limits.output_max as usize;
        client.card.outbox.set_bytes_max(self.output_max);
        let login_within = config.limits.login_within;
        drop(config);
        if self.is_before_login {
            self.await_login(login_within);
            self.limits = limits.before_login();
            self.input_max = BEFORE_LOGIN_MAX;
            self.output_max = self.output_max.min(OUTPUT_BEFORE_LOGIN_MAX);
        } else {
            self.end_login();
            self.limits = limits;
            let line_max = limits.inline_max + 1;
            self.input_max = frame_max.max(line_max).max(self.pipeline_max);
        }
    }

    /// Wait until there is more to execute; meanwhile it is told things.
    async fn hear(&mut self) -> Result<(), Over> {
        if let Err(no_room) = self.input.make_room(self.input_max) {
            return Err(self.refuse_input(no_room).await);
        }
        loop {
            match self.heard().await {
                Heard::Read(Ok(0)) => return Err(Over::Lost),
                Heard::Read(Err(error)) => return Err(self.lost(&error)),
                Heard::Read(Ok(_)) => {
                    self.client.hear();
                    return Ok(());
                }
                Heard::Push => self.answer_push().await?,
                Heard::Nothing => {
                    self.miss();
                    return Err(Over::Lost);
                }
                Heard::Late => return Err(Box::pin(self.refuse_late()).await),
            }
        }
    }

    /// Tell what there is to tell. Other limits hold at once for a connection whose
    /// login has ended, and else from what is read next: a half command stays.
    async fn answer_push(&mut self) -> Result<(), Over> {
        if let Err(over) = self.tell() {
            return Err(self.say_last(over).await);
        }
        if self.client.user.is_some() != self.has_user {
            self.read_limits();
        }
        self.flush().await
    }

    /// The first event. Every read passes here, so it is polled by hand.
    async fn heard(&mut self) -> Heard {
        let client = &self.client;
        let (input, stream) = (&mut self.input, &mut self.stream);
        let (heartbeat, login_by) = (client.heartbeat, self.login_by);
        let is_timed = heartbeat.is_some() || login_by.is_some();
        let mut silence = pin!(is_timed.then(|| quiet(client, heartbeat, login_by)));
        future::poll_fn(|context| {
            if let Poll::Ready(read) = input.poll_read_from(stream, context) {
                return Poll::Ready(Heard::Read(read));
            }
            if client.card.outbox.poll_woken(context).is_ready() {
                return Poll::Ready(Heard::Push);
            }
            match silence.as_mut().as_pin_mut() {
                Some(silence) => silence.poll(context),
                None => Poll::Pending,
            }
        })
        .await
    }

    /// Reading or writing failed: the system may have given up on the other side.
    #[cold]
    fn lost(&mut self, error: &io::Error) -> Over {
        if error.kind() == io::ErrorKind::TimedOut {
            self.client.ending = Some(EndReason::Silent);
        }
        Over::Lost
    }

    /// It has broken its promise to say something.
    fn miss(&mut self) {
        self.client.ending = Some(EndReason::Silent);
        let card = &self.client.card;
        let name = self.client.holder_card().name.lock().clone();
        let text = format!(
            "connection {} ({name}) was silent for {}, longer than its heartbeat",
            card.id,
            Brief(card.silent())
        );
        self.client.daemon.events.add("client", &name, text, None);
    }

    /// Execute all that was read, and write all answers.
    async fn execute(&mut self) -> Result<(), Over> {
        self.follow();
        let mut count = 0;
        let mut in_flight = InFlight::default();
        loop {
            if self.login_by.is_some_and(Self::is_late) {
                return Err(Box::pin(self.refuse_late()).await);
            }
            let before = self.client.out.len();
            let step = {
                let (bytes, at) = self.input.parts();
                let begin = *at;
                match self.parser.next(bytes, at, &self.limits) {
                    Ok(Some(request)) => match in_flight.turn(request) {
                        CommandTurn::Now => {
                            count += 1;
                            Ok(commands::execute(&mut self.client, request))
                        }
                        CommandTurn::PutOff => {
                            count += 1;
                            in_flight.put_off(request);
                            continue;
                        }
                        CommandTurn::After(left) => {
                            *at = begin;
                            Err(left)
                        }
                    },
                    // More may come while others answer.
                    Ok(None) | Err(_) if !in_flight.is_empty() => Err(0),
                    Ok(None) => break,
                    Err(fault) => return Err(self.fail(fault).await),
                }
            };
            match step {
                Err(left) => self.land(&mut in_flight, left).await?,
                Ok(Next::Done) if in_flight.is_empty() => (),
                Ok(Next::Done) => in_flight.say(self.client.out.split_off(before)),
                Ok(Next::Close) => {
                    let _ = self.flush().await;
                    return Err(Over::Closed);
                }
                Ok(Next::Wait(wait)) => {
                    let is_hop = wait.is_hop;
                    let (waits, begun) = self.begin_wait();
                    in_flight.send(wait, waits, begun);
                    if !is_hop {
                        self.land(&mut in_flight, 0).await?;
                    }
                }
                // Most connections have no use for the room that this takes.
                Ok(Next::Exec(transaction)) => count += Box::pin(self.exec(transaction)).await?,
            }
            self.keep_limits().await?;
        }
        let counts = &self.client.daemon.counts;
        counts.commands.fetch_add(count, Ordering::Relaxed);
        if !self.client.batch.is_empty() {
            self.client.end_batch();
        }
        self.flush().await
    }

    /// Have the limits that hold now, and write answers before there are too many.
    async fn keep_limits(&mut self) -> Result<(), Over> {
        // Other limits hold for the next command if this one was a login.
        if self.client.user.is_some() != self.has_user {
            self.read_limits();
        }
        if self.client.out.len() > self.output_max {
            self.client.end_batch();
            self.flush().await?;
            self.client.hear();
        }
        Ok(())
    }

    /// A command is about to wait. Says what is counted of it then, and since when.
    fn begin_wait(&mut self) -> (Option<Run>, u64) {
        let waits = self.client.batch.take_last();
        let begun = match self.client.batch.is_empty() {
            // Its turn came as soon as it was heard.
            true => self.client.now,
            false => {
                self.client.now = self.client.end_batch();
                self.client.now
            }
        };
        (waits, begun)
    }

    /// Count a command that has waited and is answered from here on, and nothing else since.
    fn count_wait(&self, waits: Option<Run>, begun: u64, answer: usize) {
        let client = &self.client;
        let is_failed = client.out.get(answer) == Some(&b'-');
        if let Some(run) = waits.map(|run| run.failed(is_failed)) {
            let took = client.now.saturating_sub(begun);
            client.daemon.timings.add_run(client.card.id, run, took);
        }
    }

    /// Write what a connection is told last; but it may be slow to read.
    #[cold]
    async fn say_last(&mut self, over: Over) -> Over {
        let _ = tokio::time::timeout(linger::WITHIN, self.flush()).await;
        over
    }

    /// There is no room for the rest of what it sends.
    #[cold]
    async fn refuse_input(&mut self, no_room: NoRoom) -> Over {
        match no_room {
            NoRoom::Most => {
                let max = self.limits.frame_max;
                return self.fail(Fault::Frame { max }).await;
            }
            NoRoom::Budget(max) => {
                let counts = &self.client.daemon.counts;
                counts.inputs_refused.fetch_add(1, Ordering::Relaxed);
                self.client.reply().error(format_args!(
                    "BUSY limits.input_max ({max} bytes) reached by commands that are not \
                     complete: send this one again later or raise it."
                ));
            }
            NoRoom::System(error) => {
                let address = &self.client.card.address;
                tracing::warn!(address, "no room for a command: {error}");
                self.client.reply().error(format_args!(
                    "ERR there is no memory for this command: {error}."
                ));
            }
        }
        self.refuse().await
    }

    /// Write the last answer. What it sent is given up first: it may be slow to read.
    async fn refuse(&mut self) -> Over {
        self.input.clear();
        let _ = self.flush().await;
        Over::Refused
    }

    /// Write what others want it told, or end if another client wants that.
    fn tell(&mut self) -> Result<(), Over> {
        let outbox = Arc::clone(&self.client.card.outbox);
        if outbox.is_over() {
            self.client
                .daemon
                .counts
                .slow
                .fetch_add(1, Ordering::Relaxed);
            return Err(Over::Closed);
        }
        if self.client.generation != self.client.daemon.settings.generation() {
            login::follow(&mut self.client);
        }
        commands::follow_watch(&mut self.client);
        for push in outbox.take() {
            let is_known = !push.needs_pushes() || self.client.protocol == Protocol::Resp3;
            if is_known && self.client.watch.wants(&push) {
                push.write(&mut self.client.reply());
            }
        }
        if outbox.is_killed() {
            return Err(Over::Closed);
        }
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), Over> {
        if self.client.out.is_empty() {
            return Ok(());
        }
        if !self.client.held_back.is_empty() {
            self.be_safe().await?;
        }
        self.write().await
    }

    /// Wait until what was answered is safe. If it never will be, none of the
    /// answers is told.
    async fn be_safe(&mut self) -> Result<(), Over> {
        let Err(failed) = self.client.held_back.over().await else {
            return Ok(());
        };
        self.client.out.clear();
        let text = values::unsafe_text(&failed);
        self.client.reply().error(text);
        let _ = self.write().await;
        Err(Over::Closed)
    }

    async fn write(&mut self) -> Result<(), Over> {
        let mut write = pin!(self.stream.write_all(&self.client.out));
        // Nearly always the system takes all of it at once, and no clock is needed.
        let at_once = future::poll_fn(|context| Poll::Ready(write.as_mut().poll(context))).await;
        let written = match at_once {
            Poll::Ready(written) => Ok(written),
            Poll::Pending => tokio::time::timeout(WRITE_MAX, write).await,
        };
        self.client.out.clear();
        self.client.out.shrink_to(KEPT);
        match written {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(self.lost(&error)),
            Err(_) => {
                self.client.ending = Some(EndReason::Silent);
                self.client
                    .daemon
                    .counts
                    .slow
                    .fetch_add(1, Ordering::Relaxed);
                Err(Over::Lost)
            }
        }
    }

    /// It sent what is no request.
    #[cold]
    async fn fail(&mut self, fault: Fault) -> Over {
        let daemon = &self.client.daemon;
        let is_long = matches!(fault, Fault::Frame { .. } | Fault::Bulk { .. });
        // A limit that the config has lowered further stays after the login.
        let is_passing = match fault {
            Fault::Frame { max } | Fault::Bulk { max, .. } => {
                max < daemon.config.load().limits.frame_max as usize
            }
            _ => true,
        };
        let fault = match self.is_before_login && is_passing {
            true => fault.before_login(),
            false => fault,
        };
        let counts = &daemon.counts;
        counts.protocol_errors.fetch_add(1, Ordering::Relaxed);
        counts
            .frames_refused
            .fetch_add(is_long.into(), Ordering::Relaxed);
        let address = &self.client.card.address;
        tracing::warn!(address, "{fault}");
        fault.answer(&mut self.client.out);
        self.refuse().await
    }
}

impl Client {
    /// Give back all that the connection held. It may be much, so others on the same
    /// thread have their turn meanwhile.
    async fn let_go_in_slices(&mut self) {
        let why = self.leave();
        let daemon = Arc::clone(&self.daemon);
        let ended = daemon.end_holder_in_slices(self.holder, why);
        let _ = panics::contain_async(ended).await;
    }

    /// End what the connection watches, and leave its session. Says why.
    fn leave(&mut self) -> EndReason {
        let why = self.ending.unwrap_or(EndReason::Lost);
        // Each for itself: none of them may be left out for another's fault.
        let _ = panics::contain(|| self.leave_session(why));
        let _ = panics::contain(|| self.watch = Watch::default());
        why
    }

    /// It is gone before it was served.
    pub(crate) fn forget(&mut self) {
        let why = self.leave();
        let _ = panics::contain(|| self.daemon.end_holder(self.holder, why));
        self.end();
    }

    /// There is no such connection any more.
    fn end(&mut self) {
        self.daemon.clients.remove(self.card.id);
    }
}
