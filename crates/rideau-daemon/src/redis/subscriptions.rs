//! Subscriptions of a connection: channels of events, and `MONITOR`.
//!
//! A task forwards what happens to the connection's outbox, and ends with the
//! connection. What its user may see is looked up when an event happens, and again
//! when it is written. A connection that does not read is cut when its outbox is full.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use rideau_apps::Event;
use rideau_config::{User, globs};
use rideau_process::panics;
use serde_json::json;
use tokio::sync::broadcast::error::RecvError;
use tokio::task::AbortHandle;

use crate::state::clients::ClientCard;
use crate::state::daemon::Daemon;
use crate::state::push::{Push, PushQueue};
use crate::state::quota::{Counted, Over, Usage};
use crate::state::values::{FarValue, Happened};
use crate::state::viewer::Viewer;

/// The channel of what happens to values; that of one range is below it.
pub(crate) const VALUES: &str = "rideau:ranges";

/// The word for messages about values, in place of a kind of event.
const VALUE: &str = "value";

/// The word for messages about other nodes that tell of values.
const NODE: &str = "node";

/// The subscriptions of one connection.
#[derive(Default)]
pub(crate) struct Watch {
    channels: Arc<Mutex<Vec<Channel>>>,
    /// The user that watches: what is sent is what this user may see then.
    user: Arc<ArcSwapOption<User>>,
    events: Option<Task>,
    values: Option<Task>,
    commands: Option<Task>,
}

/// Events that a client wants to hear of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Channel {
    /// The name, or the pattern of names.
    pub name: Arc<str>,
    /// It is a pattern, with `*` for any letters.
    pub is_pattern: bool,
}

/// Ends when it is dropped, and counts as one of its user's streams until then.
struct Task {
    task: AbortHandle,
    counted: Counted,
}

impl Task {
    /// Forward what happens. A connection that would miss some of it is ended.
    fn forward(
        outbox: &Arc<PushQueue>,
        counted: Counted,
        forwards: impl Future<Output = ()> + Send + 'static,
    ) -> Self {
        let outbox = Arc::clone(outbox);
        let task = tokio::spawn(async move {
            if panics::contain_async(forwards).await.is_err() {
                outbox.give_up();
            }
        });
        let task = task.abort_handle();
        Self { task, counted }
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Watch {
    /// It hears of events.
    pub(crate) fn is_subscribed(&self) -> bool {
        self.events.is_some() || self.values.is_some()
    }

    /// Its channels, those with or those without a pattern.
    pub(crate) fn names(&self, is_pattern: bool) -> Vec<Arc<str>> {
        let channels = self.channels.lock();
        let wanted = channels
            .iter()
            .filter(|channel| channel.is_pattern == is_pattern);
        wanted.map(|channel| Arc::clone(&channel.name)).collect()
    }

    /// How many channels and patterns it hears of.
    pub(crate) fn len(&self) -> usize {
        self.channels.lock().len()
    }

    /// It watches nothing.
    pub(crate) fn is_idle(&self) -> bool {
        !self.is_subscribed() && !self.is_monitor()
    }

    /// It sees every command.
    pub(crate) fn is_monitor(&self) -> bool {
        self.commands.is_some()
    }

    /// Its channels.
    pub(crate) fn channels(&self) -> Vec<Channel> {
        self.channels.lock().clone()
    }

    /// Be told what this user may see from now on.
    pub(crate) fn set_user(&self, user: Option<Arc<User>>) {
        self.user.store(user);
    }

    /// The user that was told what it may see.
    pub(crate) fn user(&self) -> Option<Arc<User>> {
        self.user.load_full()
    }

    /// Whether this user was told what it may see.
    pub(crate) fn is_of(&self, user: Option<&Arc<User>>) -> bool {
        let known = self.user.load();
        match (known.as_ref(), user) {
            (Some(known), Some(user)) => Arc::ptr_eq(known, user),
            (None, None) => true,
            _ => false,
        }
    }

    /// Its streams are another user's from now on, and that user has room for them.
    ///
    /// # Errors
    ///
    /// If there is no room for all. Then none of them is left.
    pub(crate) fn recount(
        &mut self,
        usage: &Arc<Usage>,
        take: impl Fn() -> Result<Counted, Over>,
    ) -> Result<(), Over> {
        let tasks = [&mut self.events, &mut self.values, &mut self.commands];
        let mut recounted = Ok(());
        for task in tasks.into_iter().filter_map(Option::as_mut) {
            if task.counted.is_of(usage) {
                continue;
            }
            match take() {
                Ok(counted) => task.counted = counted,
                Err(over) => recounted = Err(over),
            }
        }
        if recounted.is_err() {
            self.end();
        }
        recounted
    }

    /// Watch nothing any more.
    fn end(&mut self) {
        self.channels.lock().clear();
        self.events = None;
        self.values = None;
        self.commands = None;
    }

    /// Hear of events from now on.
    ///
    /// # Errors
    ///
    /// If the limit of streams of the user is reached.
    pub(crate) fn subscribe(
        &mut self,
        daemon: &Daemon,
        card: &Arc<ClientCard>,
        channel: Channel,
        count: impl FnOnce() -> Result<Counted, Over>,
    ) -> Result<(), Over> {
        let counted = match self.events {
            Some(_) => None,
            None => Some(count()?),
        };
        let mut channels = self.channels.lock();
        if !channels.contains(&channel) {
            channels.push(channel);
        }
        drop(channels);
        let Some(counted) = counted else {
            return Ok(());
        };
        let (mut happened, outbox) = (daemon.events.watch(), Arc::clone(&card.outbox));
        let (channels, user) = (Arc::clone(&self.channels), Arc::clone(&self.user));
        let task = Task::forward(&card.outbox, counted, async move {
            loop {
                match happened.recv().await {
                    Ok(event) => {
                        let user = user.load();
                        let viewer = Viewer::of(user.as_deref());
                        if !viewer.sees_event(event.kind, &event.name) {
                            continue;
                        }
                        let wanted = channels.lock().clone();
                        let pushes = wanted
                            .iter()
                            .filter_map(|channel| channel.push(&event, viewer));
                        pushes.for_each(|push| outbox.push(push));
                    }
                    // A client that has missed some cannot know what it has missed.
                    Err(RecvError::Lagged(_)) => outbox.give_up(),
                    Err(RecvError::Closed) => return,
                }
            }
        });
        self.events = Some(task);
        Ok(())
    }

    /// Hear of what happens to values from now on, of ranges that the user may
    /// use.
    ///
    /// # Errors
    ///
    /// If the limit of streams of the user is reached.
    pub(crate) fn subscribe_values(
        &mut self,
        daemon: &Arc<Daemon>,
        card: &Arc<ClientCard>,
        channel: Channel,
        count: impl FnOnce() -> Result<Counted, Over>,
    ) -> Result<(), Over> {
        let counted = match self.values {
            Some(_) => None,
            None => Some(count()?),
        };
        let mut channels = self.channels.lock();
        if !channels.contains(&channel) {
            channels.push(channel);
        }
        drop(channels);
        let Some(counted) = counted else {
            return Ok(());
        };
        let mut happened = daemon.values.ranges.watch();
        let (heard, mut far) = daemon.values.watchers.subscribe();
        let (daemon, outbox) = (Arc::downgrade(daemon), Arc::clone(&card.outbox));
        let (channels, user) = (Arc::clone(&self.channels), Arc::clone(&self.user));
        let watcher = ValueWatcher {
            channels,
            user,
            outbox,
        };
        let task = Task::forward(&card.outbox, counted, async move {
            for node in heard {
                watcher.hear_far(&FarValue::Heard(node));
            }
            loop {
                let event = tokio::select! {
                    event = happened.recv() => event,
                    value = far.recv() => {
                        // The numbers of a node tell that some are missing.
                        match value {
                            Ok(value) => watcher.hear_far(&value),
                            Err(RecvError::Lagged(_)) => (),
                            Err(RecvError::Closed) => return,
                        }
                        continue;
                    }
                };
                let Some(daemon) = daemon.upgrade() else {
                    return;
                };
                match event {
                    Ok(event) => {
                        let seen = Happened::of(&daemon.catalog.load().ranges, &event);
                        let cluster = daemon.cluster.as_ref();
                        let node = cluster.map(|cluster| &*cluster.node.options().name);
                        watcher.hear(&seen, node);
                    }
                    // The numbers of the events tell that some are missing.
                    Err(RecvError::Lagged(_)) => (),
                    Err(RecvError::Closed) => return,
                }
            }
        });
        self.values = Some(task);
        Ok(())
    }

    /// Hear of these no more.
    pub(crate) fn unsubscribe(&mut self, channel: &Channel) {
        let mut channels = self.channels.lock();
        channels.retain(|known| known != channel);
        let is_of_values = |channel: &Channel| channel.name.starts_with(VALUES);
        if channels.iter().all(is_of_values) {
            self.events = None;
        }
        if !channels.iter().any(is_of_values) {
            self.values = None;
        }
    }

    /// See every command from now on.
    ///
    /// # Errors
    ///
    /// If the limit of streams of the user is reached.
    pub(crate) fn monitor(
        &mut self,
        daemon: &Arc<Daemon>,
        card: &Arc<ClientCard>,
        count: impl FnOnce() -> Result<Counted, Over>,
    ) -> Result<(), Over> {
        if self.commands.is_some() {
            return Ok(());
        }
        let counted = count()?;
        let (mut lines, outbox) = (daemon.clients.monitor(), Arc::clone(&card.outbox));
        let seeing = Seeing(Arc::clone(daemon));
        let task = Task::forward(&card.outbox, counted, async move {
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
        Ok(())
    }

    /// See no more commands.
    pub(crate) fn end_monitor(&mut self) {
        self.commands = None;
    }

    /// It still wants to be told this, and may be.
    pub(crate) fn wants(&self, push: &Push) -> bool {
        match push {
            Push::Message {
                pattern,
                channel,
                of,
                ..
            } => {
                if !sees(self.user.load().as_deref(), of) {
                    return false;
                }
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

/// A connection that hears what happens to values.
struct ValueWatcher {
    channels: Arc<Mutex<Vec<Channel>>>,
    user: Arc<ArcSwapOption<User>>,
    outbox: Arc<PushQueue>,
}

impl ValueWatcher {
    /// Something happened, at this node of a cluster.
    fn hear(&self, seen: &Happened, node: Option<&str>) {
        let user = self.user.load();
        let user = user.as_ref();
        if user.is_some_and(|user| !user.may_use("range", &seen.range)) {
            return;
        }
        let name = format!("{VALUES}:{}", seen.range);
        let wanted = self.channels.lock().clone();
        let text = seen.json(user.map(|user| &**user), node).to_string().into();
        let of = (VALUE, Arc::clone(&seen.range));
        let wanted = wanted.iter();
        let pushes = wanted.filter_map(|one| one.message(&name, &text, &of));
        pushes.for_each(|push| self.outbox.push(push));
    }

    /// Another node has said something.
    fn hear_far(&self, value: &FarValue) {
        let (what, node) = match value {
            FarValue::Happened(node, seen) => return self.hear(seen, Some(node)),
            FarValue::Heard(node) => ("heard", node),
            FarValue::Missed(node) => ("missed", node),
            FarValue::Unheard(node) => ("unheard", node),
        };
        let text: Arc<str> = json!({ "what": what, "node": &**node }).to_string().into();
        let wanted = self.channels.lock().clone();
        let wanted = wanted.iter().filter(|one| one.name.starts_with(VALUES));
        wanted.for_each(|one| self.outbox.push(one.notice(&text, node)));
    }
}

/// Whether a user may see this kind and name.
fn sees(user: Option<&User>, (kind, name): &(&'static str, Arc<str>)) -> bool {
    match *kind {
        NODE => true,
        VALUE => user.is_none_or(|user| user.may_use("range", name)),
        kind => Viewer::of(user).sees_event(kind, name),
    }
}

impl Channel {
    /// The push for an event, if it is subscribed to.
    fn push(&self, event: &Event, viewer: Viewer<'_>) -> Option<Push> {
        let all = format!("rideau:events:{}:{}", event.kind, event.name);
        let of = (event.kind, event.name.as_str().into());
        self.message(&all, &viewer.json_of(event).to_string().into(), &of)
    }

    /// The message on this channel about a node.
    fn notice(&self, text: &Arc<str>, node: &Arc<str>) -> Push {
        let name = Arc::clone(&self.name);
        Push::Message {
            channel: match self.is_pattern {
                true => VALUES.into(),
                false => Arc::clone(&name),
            },
            pattern: self.is_pattern.then_some(name),
            text: Arc::clone(text),
            of: (NODE, Arc::clone(node)),
        }
    }

    /// The message on a channel, if it is subscribed to.
    fn message(&self, all: &str, text: &Arc<str>, of: &(&'static str, Arc<str>)) -> Option<Push> {
        let is_wanted = if self.is_pattern {
            globs(self.name.as_bytes(), all.as_bytes())
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
            of: of.clone(),
        })
    }
}

/// A client sees every command.
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
    use crate::state::quota::Quota;

    #[tokio::test]
    async fn a_connection_that_would_miss_something_is_given_up() {
        let outbox = Arc::new(PushQueue::new(1000));
        let counted = Arc::new(Usage::default()).count(Quota::Streams);
        let _task = Task::forward(&outbox, counted, async { panic!("planted") });
        poll_fn(|context| outbox.poll_woken(context)).await;
        assert!(outbox.is_over());
    }
}
