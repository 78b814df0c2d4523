//! One connection: reads what there is, executes all of it, writes once.
//!
//! While a command waits, the connection goes on reading, so that it notices
//! when the other side goes away; but what it reads is executed only after the
//! answer, and no more is read than a limit allows.

use std::future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Interval, MissedTickBehavior, interval_at};

use crate::client::{Client, Step, Wait};
use crate::command;
use crate::holdings::Why;
use crate::resp::{Fault, Limits, Protocol, RequestParser};
use crate::values;
use crate::watch::Watch;

/// Room for the next read.
const READ: usize = 16 * 1024;
/// Buffers that grew beyond this are given back when they are empty.
const KEPT: usize = 64 * 1024;
/// Those who wait and can be told are told so this often.
const TELL: Duration = Duration::from_secs(1);
/// A client that does not take what is written for so long is cut.
const WRITE_MAX: Duration = Duration::from_secs(30);

/// What ended a connection.
enum Over {
    /// It said goodbye, or was asked to go.
    Closed,
    /// It vanished.
    Lost,
}

struct Connection<S> {
    stream: S,
    client: Client,
    parser: RequestParser,
    buffer: Vec<u8>,
    /// Where in the buffer the next request begins.
    at: usize,
    limits: Limits,
    pipeline_max: usize,
    output_max: usize,
    /// The limits are those of the config of this generation.
    generation: u64,
}

/// Serve one connection until it ends, and give back all that it held.
pub async fn serve<S>(stream: S, client: Client)
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let mut connection = Connection {
        stream,
        client,
        parser: RequestParser::default(),
        buffer: Vec::new(),
        at: 0,
        limits: Limits::default(),
        pipeline_max: 0,
        output_max: 0,
        generation: 0,
    };
    connection.run().await;
    connection.client.end();
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Connection<S> {
    async fn run(&mut self) {
        loop {
            if self.execute().await.is_err() {
                return;
            }
            if self.hear().await.is_err() {
                return;
            }
        }
    }

    /// Follow a change of the limits.
    fn follow(&mut self) {
        let generation = self.client.daemon.settings.generation();
        if self.generation == generation {
            return;
        }
        self.generation = generation;
        let config = self.client.daemon.config.load();
        self.limits.frame_max = config.limits.frame_max as usize;
        self.limits.bulk_max = config.limits.frame_max as usize;
        self.pipeline_max = config.limits.pipeline_max as usize;
        self.output_max = config.limits.output_max as usize;
        self.client.card.outbox.set_bytes_max(self.output_max);
    }

    /// Wait until there is more to execute or to tell.
    async fn hear(&mut self) -> Result<(), Over> {
        if self.at == self.buffer.len() {
            self.buffer.clear();
            self.at = 0;
            self.buffer.shrink_to(KEPT);
        } else if self.at > KEPT {
            self.buffer.drain(..self.at);
            self.at = 0;
        }
        let outbox = Arc::clone(&self.client.card.outbox);
        self.buffer.reserve(READ);
        tokio::select! {
            biased;
            read = self.stream.read_buf(&mut self.buffer) => match read {
                Ok(0) => return Err(Over::Lost),
                Err(error) => return Err(self.lost(&error)),
                Ok(_) => self.client.card.hear(),
            },
            () = outbox.rung() => self.tell()?,
            () = silence(&self.client) => {
                self.miss();
                return Err(Over::Lost);
            }
        }
        Ok(())
    }

    /// Reading or writing failed: the system may have given up on the other side.
    #[cold]
    fn lost(&mut self, error: &io::Error) -> Over {
        if error.kind() == io::ErrorKind::TimedOut {
            self.client.ending = Some(Why::Silent);
        }
        Over::Lost
    }

    /// It has broken its promise to say something.
    fn miss(&mut self) {
        self.client.ending = Some(Why::Silent);
        let card = &self.client.card;
        let name = self.client.holder_card().name.lock().clone();
        let text = format!(
            "connection {} ({name}) was silent for {:.1?}, longer than its heartbeat",
            card.id,
            card.silent()
        );
        self.client.daemon.events.add("client", &name, text, None);
    }

    /// Execute all that was read, and write all answers.
    async fn execute(&mut self) -> Result<(), Over> {
        self.follow();
        let mut count = 0;
        loop {
            let step = {
                let request = self.parser.next(&self.buffer, &mut self.at, &self.limits);
                match request {
                    Ok(Some(request)) => {
                        count += 1;
                        command::execute(&mut self.client, request)
                    }
                    Ok(None) => break,
                    Err(fault) => {
                        self.fail(fault);
                        let _ = self.flush().await;
                        return Err(Over::Closed);
                    }
                }
            };
            match step {
                Step::Done => (),
                Step::Close => {
                    let _ = self.flush().await;
                    return Err(Over::Closed);
                }
                Step::Wait(wait) => self.wait(wait).await?,
            }
            if self.client.out.len() > self.output_max {
                self.flush().await?;
            }
        }
        let counts = &self.client.daemon.counts;
        counts.commands.fetch_add(count, Ordering::Relaxed);
        self.flush().await
    }

    /// Wait for the answer of a command; go on reading meanwhile.
    async fn wait(&mut self, wait: Wait) -> Result<(), Over> {
        let Wait { mut answer, name } = wait;
        // Most of those who wait are answered soon; whoever was answered before
        // is not kept waiting.
        self.flush().await?;
        let _waits = Waits::begin(&self.client);
        let since = Instant::now();
        let mut tick = self.ticks();
        let outbox = Arc::clone(&self.client.card.outbox);
        let finish = loop {
            let is_full = self.buffer.len() - self.at >= self.pipeline_max;
            self.buffer.reserve(READ);
            tokio::select! {
                biased;
                finish = &mut answer => break finish,
                read = self.stream.read_buf(&mut self.buffer) => match read {
                    Ok(0) => return Err(Over::Lost),
                    Err(error) => return Err(self.lost(&error)),
                    Ok(_) if is_full => {
                        let max = self.pipeline_max;
                        let counts = &self.client.daemon.counts;
                        counts.pipelines_refused.fetch_add(1, Ordering::Relaxed);
                        self.client.reply().error(format_args!(
                            "ERR pipeline too long: {max} bytes wait behind {name}, as many as \
                             limits.pipeline_max allows."
                        ));
                        let _ = self.flush().await;
                        return Err(Over::Closed);
                    }
                    Ok(_) => self.client.card.hear(),
                },
                () = outbox.rung() => {
                    self.tell()?;
                    self.flush().await?;
                }
                () = next(&mut tick) => {
                    let waited = since.elapsed().as_micros() as i64;
                    let mut reply = self.client.reply();
                    reply.push(3).bulk("rideau:waiting").bulk(&name).integer(waited);
                    self.flush().await?;
                }
            }
        };
        // Who waits for an answer need not say anything.
        self.client.card.hear();
        finish(&mut self.client);
        Ok(())
    }

    /// Only who speaks the third version can be told something in between.
    fn ticks(&self) -> Option<Interval> {
        if self.client.protocol != Protocol::Resp3 {
            return None;
        }
        let mut ticks = interval_at(tokio::time::Instant::now() + TELL, TELL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Some(ticks)
    }

    /// Write what others want it told, or end if somebody wants that.
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
                self.client.ending = Some(Why::Silent);
                self.client
                    .daemon
                    .counts
                    .slow
                    .fetch_add(1, Ordering::Relaxed);
                Err(Over::Lost)
            }
        }
    }

    fn fail(&mut self, fault: Fault) {
        let counts = &self.client.daemon.counts;
        counts.protocol_errors.fetch_add(1, Ordering::Relaxed);
        let is_long = matches!(fault, Fault::Frame { .. } | Fault::Bulk { .. });
        counts
            .frames_refused
            .fetch_add(is_long.into(), Ordering::Relaxed);
        let address = &self.client.card.address;
        tracing::warn!(address, "{fault}");
        fault.answer(&mut self.client.out);
    }
}

/// Wait until a connection has been silent for longer than it promised.
async fn silence(client: &Client) {
    let Some(heartbeat) = client.heartbeat else {
        return future::pending().await;
    };
    let left = heartbeat.saturating_sub(client.card.silent());
    tokio::time::sleep(left).await;
}

async fn next(ticks: &mut Option<Interval>) {
    match ticks {
        Some(ticks) => drop(ticks.tick().await),
        None => future::pending().await,
    }
}

/// One command waits.
struct Waits(Arc<crate::daemon::Daemon>, Arc<crate::clients::ClientCard>);

impl Waits {
    fn begin(client: &Client) -> Self {
        client.daemon.counts.waiting.fetch_add(1, Ordering::Relaxed);
        client.card.is_waiting.store(true, Ordering::Relaxed);
        Self(Arc::clone(&client.daemon), Arc::clone(&client.card))
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.counts.waiting.fetch_sub(1, Ordering::Relaxed);
        self.1.is_waiting.store(false, Ordering::Relaxed);
    }
}

impl Client {
    /// Give back all that the connection held.
    fn end(&mut self) {
        let why = self.ending.unwrap_or(Why::Lost);
        command::leave_session(self, why);
        self.watch = Watch::default();
        self.daemon.end_holder(self.holder, why);
        self.daemon.clients.remove(self.card.id);
    }
}
