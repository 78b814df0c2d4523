//! One connection: reads what there is, executes all of it, writes once.
//!
//! While a command waits, the connection goes on reading, so that it notices
//! when the other side goes away; but what it reads is executed only after the
//! answer, and no more is read than a limit allows.

use std::future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Interval, MissedTickBehavior, interval_at};

use crate::client::{Client, Finish, Step, Wait};
use crate::command;
use crate::holdings::Why;
use crate::resp::{Fault, Limits, Protocol, RequestParser};
use crate::timing::Run;
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

/// What ends the sleep of one that waits for an answer.
enum Woken {
    /// There it is.
    Answered(Finish),
    /// The other side said so many bytes.
    Read(io::Result<usize>),
    /// There is something to tell.
    Bell,
    /// It has waited for so long that it is told so.
    Tick,
}

/// What a connection that has nothing to do may hear.
enum Heard {
    /// The other side said so many bytes.
    Read(io::Result<usize>),
    /// There is something to tell.
    Bell,
    /// It was silent for too long.
    Nothing,
}

struct Connection<S> {
    stream: S,
    client: Box<Client>,
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
pub async fn serve<S>(stream: S, client: Box<Client>)
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
    connection.client.waker = future::poll_fn(|task| Poll::Ready(task.waker().clone())).await;
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
        self.buffer.reserve(READ);
        match self.heard().await {
            Heard::Read(Ok(0)) => return Err(Over::Lost),
            Heard::Read(Err(error)) => return Err(self.lost(&error)),
            Heard::Read(Ok(_)) => self.client.hear(),
            Heard::Bell => self.tell()?,
            Heard::Nothing => {
                self.miss();
                return Err(Over::Lost);
            }
        }
        Ok(())
    }

    /// What comes first. Every read passes here, so it is polled by hand.
    async fn heard(&mut self) -> Heard {
        let client = &self.client;
        let mut read = pin!(self.stream.read_buf(&mut self.buffer));
        let mut silence = pin!(client.heartbeat.map(|heartbeat| silence(client, heartbeat)));
        future::poll_fn(|context| {
            if let Poll::Ready(read) = read.as_mut().poll(context) {
                return Poll::Ready(Heard::Read(read));
            }
            if client.card.outbox.poll_rung(context).is_ready() {
                return Poll::Ready(Heard::Bell);
            }
            match silence.as_mut().as_pin_mut() {
                Some(silence) => silence.poll(context).map(|()| Heard::Nothing),
                None => Poll::Pending,
            }
        })
        .await
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
                Step::Wait(wait) => {
                    let waits = self.client.batch.take_last();
                    let begun = match self.client.batch.is_empty() {
                        // Its turn came as soon as it was heard.
                        true => self.client.now,
                        false => self.client.end_batch(),
                    };
                    self.wait(wait, begun).await?;
                    self.count_wait(waits, begun);
                }
            }
            if self.client.out.len() > self.output_max {
                self.client.end_batch();
                self.flush().await?;
                self.client.hear();
            }
        }
        let counts = &self.client.daemon.counts;
        counts.commands.fetch_add(count, Ordering::Relaxed);
        if !self.client.batch.is_empty() {
            self.client.end_batch();
        }
        self.flush().await
    }

    /// Count a command that has waited and is answered, and nothing else since.
    fn count_wait(&self, waits: Option<Run>, begun: u64) {
        let client = &self.client;
        let is_failed = client.out.first() == Some(&b'-');
        if let Some(run) = waits.map(|run| run.failed(is_failed)) {
            let took = client.now.saturating_sub(begun);
            client.daemon.timings.add_run(client.card.id, run, took);
        }
    }

    /// Wait for the answer of a command; go on reading meanwhile.
    async fn wait(&mut self, wait: Wait, begun: u64) -> Result<(), Over> {
        let Wait { mut answer, name } = wait;
        // Most of those who wait are answered soon; whoever was answered before
        // is not kept waiting.
        self.flush().await?;
        let _waits = Waits::begin(&self.client);
        let mut ticks = self.ticks();
        let finish = loop {
            let is_full = self.buffer.len() - self.at >= self.pipeline_max;
            self.buffer.reserve(READ);
            match self.woken(&mut answer, &mut ticks).await {
                Woken::Answered(finish) => break finish,
                Woken::Read(Ok(0)) => return Err(Over::Lost),
                Woken::Read(Err(error)) => return Err(self.lost(&error)),
                Woken::Read(Ok(_)) if is_full => return Err(self.refuse_more(&name).await),
                Woken::Read(Ok(_)) => self.client.hear(),
                Woken::Bell => {
                    self.tell()?;
                    self.flush().await?;
                }
                Woken::Tick => {
                    let waited = self.client.daemon.holdings.now().saturating_sub(begun);
                    let mut reply = self.client.reply();
                    reply.push(3).bulk("rideau:waiting").bulk(&name);
                    reply.integer((waited / 1000) as i64);
                    self.flush().await?;
                }
            }
        };
        // Who waits for an answer need not say anything.
        self.client.hear();
        self.client.read_new_config();
        finish(&mut self.client);
        Ok(())
    }

    /// What comes first; an answer before all else, but none to one who has to go.
    /// Every wait passes here, so it is polled by hand.
    async fn woken(
        &mut self,
        answer: &mut Pin<Box<dyn Future<Output = Finish> + Send>>,
        ticks: &mut Option<Interval>,
    ) -> Woken {
        let outbox = &self.client.card.outbox;
        let mut read = pin!(self.stream.read_buf(&mut self.buffer));
        future::poll_fn(|task| {
            if !outbox.is_killed()
                && let Poll::Ready(finish) = answer.as_mut().poll(task)
            {
                return Poll::Ready(Woken::Answered(finish));
            }
            if let Poll::Ready(read) = read.as_mut().poll(task) {
                return Poll::Ready(Woken::Read(read));
            }
            if outbox.poll_rung(task).is_ready() {
                return Poll::Ready(Woken::Bell);
            }
            match ticks {
                Some(ticks) => ticks.poll_tick(task).map(|_| Woken::Tick),
                None => Poll::Pending,
            }
        })
        .await
    }

    /// It sends more and more behind a command that waits.
    #[cold]
    async fn refuse_more(&mut self, name: &str) -> Over {
        let max = self.pipeline_max;
        let counts = &self.client.daemon.counts;
        counts.pipelines_refused.fetch_add(1, Ordering::Relaxed);
        self.client.reply().error(format_args!(
            "ERR pipeline too long: {max} bytes wait behind {name}, as many as \
             limits.pipeline_max allows."
        ));
        let _ = self.flush().await;
        Over::Closed
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
async fn silence(client: &Client, heartbeat: Duration) {
    let left = heartbeat.saturating_sub(client.card.silent());
    tokio::time::sleep(left).await;
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
