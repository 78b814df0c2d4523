//! What a connection watches: events by channel, and everybody's commands.
//!
//! A task forwards what happens to the connection's outbox, and ends with the
//! connection. A connection that does not read is cut when its outbox is full.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::broadcast::error::RecvError;
use tokio::task::AbortHandle;

use crate::clients::ClientCard;
use crate::config::{User, fits};
use crate::daemon::Daemon;
use crate::events::Event;
use crate::outbox::{Outbox, Push};
use crate::panics;
use crate::show::Sight;
use crate::values::Happened;

/// The channel of what happens to values; that of one range is below it.
pub const VALUES: &str = "rideau:ranges";

/// What one connection watches.
#[derive(Default)]
pub struct Watch {
    channels: Arc<Mutex<Vec<Channel>>>,
    events: Option<Task>,
    values: Option<Task>,
    commands: Option<Task>,
}

/// Events that somebody wants to hear of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Channel {
    /// The name, or the pattern of names.
    pub name: Arc<str>,
    /// It is a pattern, with `*` for any letters.
    pub is_pattern: bool,
}

/// Ends when it is dropped.
struct Task(AbortHandle);

impl Task {
    /// Forward what happens. A connection that would miss some of it is ended.
    fn forward(outbox: &Arc<Outbox>, forwards: impl Future<Output = ()> + Send + 'static) -> Self {
        let outbox = Arc::clone(outbox);
        let task = tokio::spawn(async move {
            if panics::contain_async(forwards).await.is_err() {
                outbox.give_up();
            }
        });
        Self(task.abort_handle())
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Watch {
    /// It hears of events.
    pub fn is_subscribed(&self) -> bool {
        self.events.is_some() || self.values.is_some()
    }

    /// What it hears of, those with or those without a pattern.
    pub fn names(&self, is_pattern: bool) -> Vec<Arc<str>> {
        let channels = self.channels.lock();
        let wanted = channels
            .iter()
            .filter(|channel| channel.is_pattern == is_pattern);
        wanted.map(|channel| Arc::clone(&channel.name)).collect()
    }

    /// How many channels and patterns it hears of.
    pub fn len(&self) -> usize {
        self.channels.lock().len()
    }

    /// It hears of none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Hear of events from now on.
    pub fn subscribe(
        &mut self,
        daemon: &Daemon,
        card: &Arc<ClientCard>,
        user: Option<Arc<User>>,
        channel: Channel,
    ) {
        let mut channels = self.channels.lock();
        if !channels.contains(&channel) {
            channels.push(channel);
        }
        drop(channels);
        if self.events.is_some() {
            return;
        }
        let (mut happened, outbox) = (daemon.events.watch(), Arc::clone(&card.outbox));
        let channels = Arc::clone(&self.channels);
        let task = Task::forward(&card.outbox, async move {
            loop {
                match happened.recv().await {
                    Ok(event) => {
                        let sight = Sight::of(user.as_deref());
                        if !sight.sees_event(event.kind, &event.name) {
                            continue;
                        }
                        let wanted = channels.lock().clone();
                        let pushes = wanted
                            .iter()
                            .filter_map(|channel| channel.push(&event, sight));
                        pushes.for_each(|push| outbox.push(push));
                    }
                    // Who has missed some cannot know what it has missed.
                    Err(RecvError::Lagged(_)) => outbox.give_up(),
                    Err(RecvError::Closed) => return,
                }
            }
        });
        self.events = Some(task);
    }

    /// Hear of what happens to values from now on, of ranges that this user may
    /// use.
    pub fn subscribe_values(
        &mut self,
        daemon: &Arc<Daemon>,
        card: &Arc<ClientCard>,
        user: Option<Arc<User>>,
        channel: Channel,
    ) {
        let mut channels = self.channels.lock();
        if !channels.contains(&channel) {
            channels.push(channel);
        }
        drop(channels);
        if self.values.is_some() {
            return;
        }
        let mut happened = daemon.values.ranges.watch();
        let (daemon, outbox) = (Arc::downgrade(daemon), Arc::clone(&card.outbox));
        let channels = Arc::clone(&self.channels);
        let task = Task::forward(&card.outbox, async move {
            loop {
                let event = happened.recv().await;
                let Some(daemon) = daemon.upgrade() else {
                    return;
                };
                match event {
                    Ok(event) => {
                        let seen = Happened::of(&daemon, &event);
                        let user = user.as_ref();
                        if user.is_some_and(|user| !user.may_use("range", &seen.range)) {
                            continue;
                        }
                        let name = format!("{VALUES}:{}", seen.range);
                        let wanted = channels.lock().clone();
                        let text: Arc<str> = seen.json(user.map(|user| &**user)).to_string().into();
                        let pushes = wanted.iter().filter_map(|one| one.message(&name, &text));
                        pushes.for_each(|push| outbox.push(push));
                    }
                    // The numbers of the events tell that some are missing.
                    Err(RecvError::Lagged(_)) => (),
                    Err(RecvError::Closed) => return,
                }
            }
        });
        self.values = Some(task);
    }

    /// Hear of these no more.
    pub fn unsubscribe(&mut self, channel: &Channel) {
        let mut channels = self.channels.lock();
        channels.retain(|known| known != channel);
        if channels.is_empty() {
            self.events = None;
            self.values = None;
        }
    }

    /// See every command from now on.
    pub fn monitor(&mut self, daemon: &Arc<Daemon>, card: &Arc<ClientCard>) {
        if self.commands.is_some() {
            return;
        }
        let (mut lines, outbox) = (daemon.clients.monitor(), Arc::clone(&card.outbox));
        let seeing = Seeing(Arc::clone(daemon));
        let task = Task::forward(&card.outbox, async move {
            let _seeing = seeing;
            loop {
                match lines.recv().await {
                    Ok(line) => outbox.push(Push::Monitor(line)),
                    Err(RecvError::Lagged(count)) => {
                        let line = format!("{count} commands came too fast to be shown");
                        outbox.push(Push::Monitor(line.into()));
                    }
                    Err(RecvError::Closed) => return,
                }
            }
        });
        self.commands = Some(task);
    }

    /// It still wants to be told this.
    pub fn wants(&self, push: &Push) -> bool {
        match push {
            Push::Message {
                pattern, channel, ..
            } => {
                let channels = self.channels.lock();
                let name = pattern.as_ref().unwrap_or(channel);
                channels
                    .iter()
                    .any(|known| known.name == *name && known.is_pattern == pattern.is_some())
            }
            Push::Monitor(_) => self.commands.is_some(),
            _ => true,
        }
    }
}

impl Channel {
    /// What to tell of an event, if it is one of these.
    fn push(&self, event: &Event, sight: Sight<'_>) -> Option<Push> {
        let all = format!("rideau:events:{}:{}", event.kind, event.name);
        self.message(&all, &event.json(sight).to_string().into())
    }

    /// What to tell on a channel, if it is one of these.
    fn message(&self, all: &str, text: &Arc<str>) -> Option<Push> {
        let is_wanted = if self.is_pattern {
            fits(&self.name, all)
        } else {
            // A shorter name is that of all below it.
            let rest = all.strip_prefix(&*self.name);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
        };
        let name = Arc::clone(&self.name);
        is_wanted.then(|| Push::Message {
            channel: if self.is_pattern {
                all.into()
            } else {
                Arc::clone(&name)
            },
            pattern: self.is_pattern.then_some(name),
            text: Arc::clone(text),
        })
    }
}

/// Somebody sees every command.
struct Seeing(Arc<Daemon>);

impl Drop for Seeing {
    fn drop(&mut self) {
        self.0.clients.end_monitor();
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[tokio::test]
    async fn a_connection_that_would_miss_something_is_given_up() {
        let outbox = Arc::new(Outbox::new(1000));
        let _task = Task::forward(&outbox, async { panic!("planted") });
        poll_fn(|context| outbox.poll_rung(context)).await;
        assert!(outbox.is_over());
    }
}
