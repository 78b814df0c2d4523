//! A command that waits: meanwhile the connection reads on, is told things, and follows
//! changes of what its user may do.

use std::future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rideau_config::User;
use rideau_process::panics;
use rideau_resp::Protocol;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Interval, MissedTickBehavior, interval_at};

use super::{Connection, Over};
use crate::redis::client::{
    Awaits, Client, CommandError, OnReady, PendingCommand, Waiting, answer_panic,
};
use crate::redis::commands;
use crate::redis::input::NoRoom;
use crate::redis::login;
use crate::state::clients::ClientCard;

/// Clients that wait and can be told are told so this often.
const TELL: Duration = Duration::from_secs(1);

/// An event for a connection whose command waits.
enum Woken {
    /// There it is.
    Answered(OnReady),
    /// The other side said this many bytes.
    Read(io::Result<usize>),
    /// There is something to tell.
    Push,
    /// It has waited for so long that it is told so.
    Tick,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Connection<S> {
    /// Wait for the answer of a command; go on reading meanwhile. Says where in the output
    /// the answer begins.
    pub(super) async fn wait(&mut self, wait: PendingCommand, begun: u64) -> Result<usize, Over> {
        let PendingCommand {
            mut answer,
            name,
            awaits,
            is_silent,
            is_work,
            is_hop,
        } = wait;
        // Answers of another node come together, and leave together.
        let may_come = is_hop && !self.client.card.outbox.is_killed();
        let come = may_come.then(|| at_once(&mut answer)).flatten();
        if let Some(finish) = come {
            return Ok(self.finish(finish, &awaits, &name, is_silent));
        }
        // Most waiting commands are answered soon; a command that was answered before
        // is not kept waiting.
        self.flush().await?;
        let waits = (!is_work).then(|| Waits::begin(&self.client));
        let _waits = match waits.transpose() {
            Ok(waits) => waits,
            Err(wrong) => return Ok(self.refuse_wait(wrong, is_silent)),
        };
        let mut ticks = self.ticks().filter(|_| !is_work);
        let finish = loop {
            let is_full = self.input.len() >= self.pipeline_max;
            let reads = match self.make_room_behind(is_full) {
                Ok(reads) => reads,
                Err(no_room) => return Err(self.refuse_input(no_room).await),
            };
            match self.woken(&mut answer, &mut ticks, reads).await {
                Woken::Answered(finish) => break finish,
                Woken::Read(Ok(0)) => return Err(Over::Lost),
                Woken::Read(Err(error)) => return Err(self.lost(&error)),
                Woken::Read(Ok(_)) if is_full => return Err(self.refuse_more(&name).await),
                Woken::Read(Ok(_)) => self.client.hear(),
                Woken::Push => {
                    // What it waits for goes to others before it is told.
                    if let Err(wrong) = self.may_still(&awaits, &name) {
                        drop(answer);
                        let answer = self.refuse_wait(wrong, is_silent);
                        return self.end_if_killed().await.map(|()| answer);
                    }
                    self.tell()?;
                    self.flush().await?;
                }
                Woken::Tick => {
                    let waited = self.client.daemon.lease_table.now().saturating_sub(begun);
                    let mut reply = self.client.reply();
                    reply.push(3).bulk("rideau:waiting").bulk(&name);
                    reply.integer((waited / 1000) as i64);
                    self.flush().await?;
                }
            }
        };
        Ok(self.finish(finish, &awaits, &name, is_silent))
    }

    /// Answer a command that has waited. Says where its answer begins.
    fn finish(&mut self, finish: OnReady, awaits: &Awaits, name: &str, is_silent: bool) -> usize {
        // A client that waits for an answer need not say anything.
        self.client.hear();
        if let Err(wrong) = self.may_still(awaits, name) {
            // What it was given in this moment goes back.
            drop(finish);
            return self.refuse_wait(wrong, is_silent);
        }
        let before = self.client.out.len();
        let finished = panics::contain(|| finish(&mut self.client));
        finished.unwrap_or_else(|panicked| self.client.answer_panic(before, panicked));
        before
    }

    /// Another client may have asked the connection to end while it was told something
    /// else.
    async fn end_if_killed(&mut self) -> Result<(), Over> {
        match self.client.card.outbox.is_killed() {
            true => Err(self.say_last(Over::Closed).await),
            false => Ok(()),
        }
    }

    /// Whether the client may still have what its command waits for. Its rights are
    /// looked up when the config has changed since it asked.
    fn may_still(&mut self, awaits: &Awaits, name: &str) -> Result<(), CommandError> {
        let client = &mut self.client;
        if client.generation == client.daemon.settings.generation() {
            return Ok(());
        }
        let before = client.user.clone();
        let removed = login::removed(client);
        login::follow(client);
        let (before, now) = (before.as_ref(), client.user.as_ref());
        let may = match removed {
            Some(wrong) => Err(wrong),
            None if before.is_some() && now.is_none() => Err(CommandError(
                "NOAUTH the user has another password now: log in again.".into(),
            )),
            None if before.map(|user| &user.name) != now.map(|user| &user.name) => {
                Err(CommandError(
                    "NOAUTH this connection has logged in as another user meanwhile: send \
                    the command again."
                        .into(),
                ))
            }
            None => commands::may_still(client, awaits, name),
        };
        may.inspect_err(|wrong| {
            commands::deny(client, User::name_of(before), wrong);
        })
    }

    /// Answer a command that may not wait, or not any longer. Says where its answer begins.
    #[cold]
    fn refuse_wait(&mut self, CommandError(text): CommandError, is_silent: bool) -> usize {
        let before = self.client.out.len();
        if !is_silent {
            self.client.reply().error(text);
        }
        before
    }

    /// Have room for what comes behind a command that waits. Says whether to read.
    ///
    /// Behind a login much may come that is too much before it. It stays with the
    /// system until the login is done.
    fn make_room_behind(&mut self, is_full: bool) -> Result<bool, NoRoom> {
        match is_full {
            true => Ok(!self.is_before_login),
            false if self.is_before_login => Ok(self.input.make_room(self.input_max).is_ok()),
            false => self.input.make_room(self.input_max).map(|()| true),
        }
    }

    /// What comes first; an answer before all else, but none to a client that has to
    /// go. Every wait passes here, so it is polled by hand.
    async fn woken(
        &mut self,
        answer: &mut Pin<Box<dyn Future<Output = OnReady> + Send>>,
        ticks: &mut Option<Interval>,
        reads: bool,
    ) -> Woken {
        let outbox = &self.client.card.outbox;
        let (input, stream) = (&mut self.input, &mut self.stream);
        future::poll_fn(|task| {
            if !outbox.is_killed() {
                match panics::contain(|| answer.as_mut().poll(task)) {
                    Ok(Poll::Pending) => (),
                    Ok(Poll::Ready(finish)) => return Poll::Ready(Woken::Answered(finish)),
                    Err(panicked) => return Poll::Ready(Woken::Answered(answer_panic(panicked))),
                }
            }
            if reads && let Poll::Ready(read) = input.poll_read_from(stream, task) {
                return Poll::Ready(Woken::Read(read));
            }
            if outbox.poll_woken(task).is_ready() {
                return Poll::Ready(Woken::Push);
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
            "ERR pipeline too long: limits.pipeline_max ({max} bytes) reached behind {name}, which \
             waits: send less at a time or raise it."
        ));
        self.refuse().await
    }

    /// Only a client that speaks the third version can be told something in between.
    fn ticks(&self) -> Option<Interval> {
        if self.client.protocol != Protocol::Resp3 {
            return None;
        }
        let mut ticks = interval_at(tokio::time::Instant::now() + TELL, TELL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Some(ticks)
    }
}

/// The answer to a command, if it is there.
fn at_once(answer: &mut Pin<Box<dyn Future<Output = OnReady> + Send>>) -> Option<OnReady> {
    let mut context = Context::from_waker(Waker::noop());
    match panics::contain(|| answer.as_mut().poll(&mut context)) {
        Ok(Poll::Pending) => None,
        Ok(Poll::Ready(finish)) => Some(finish),
        Err(panicked) => Some(answer_panic(panicked)),
    }
}

/// One command waits.
struct Waits {
    card: Arc<ClientCard>,
    _waiting: Waiting,
}

impl Waits {
    fn begin(client: &Client) -> Result<Self, CommandError> {
        let waiting = client.begin_wait()?;
        client.card.is_waiting.store(true, Ordering::Relaxed);
        Ok(Self {
            card: Arc::clone(&client.card),
            _waiting: waiting,
        })
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        self.card.is_waiting.store(false, Ordering::Relaxed);
    }
}
