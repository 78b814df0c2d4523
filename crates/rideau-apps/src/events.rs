//! Events, for subscribers and for later readers.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use rideau_config::human;
use serde_json::{Value, json};
use tokio::sync::broadcast;

/// How many are remembered.
const MOST: usize = 1024;
/// Bytes of a name in an event, and of a user.
const NAME_MAX: usize = 512;
/// Bytes of what an event says, and of its detail. So all that are remembered take a
/// few megabytes, and one is far below `limits.output_max`.
const TEXT_MAX: usize = 4096;
/// A watcher that is further behind misses some.
const BEHIND_MAX: usize = 1024;

/// The kinds of events.
pub const KINDS: &[&str] = &[
    "client", "session", "config", "pool", "range", "app", "leak", "shed", "server", "login",
    "denied", "process", "alarm",
];

/// The last events, and their subscribers.
pub struct Events {
    serial: AtomicU64,
    last: Mutex<VecDeque<Arc<Event>>>,
    watchers: broadcast::Sender<Arc<Event>>,
}

/// Something that happened.
#[derive(Clone, Debug)]
pub struct Event {
    /// Its number.
    pub serial: u64,
    /// When.
    pub at: SystemTime,
    /// The kind, one of [`KINDS`].
    pub kind: &'static str,
    /// The name of the thing.
    pub name: String,
    /// In words.
    pub text: String,
    /// Details for users who may read the output of programs.
    pub detail: String,
    /// The user who did it, if one did.
    pub by: Option<String>,
}

impl Default for Events {
    fn default() -> Self {
        Self {
            serial: AtomicU64::new(0),
            last: Mutex::new(VecDeque::new()),
            watchers: broadcast::channel(BEHIND_MAX).0,
        }
    }
}

impl Events {
    /// Something happened. Names that clients chose cannot end the line, and what is
    /// too long is cut.
    pub fn add(&self, kind: &'static str, name: &str, text: String, by: Option<&str>) {
        self.add_with(kind, name, text, String::new(), by);
    }

    /// Something happened to an app, which the text names: a watcher of events sees no
    /// more than that.
    pub fn add_app(&self, app: &str, text: &str, detail: String, by: Option<&str>) {
        self.add_with("app", app, format!("app {app}: {text}"), detail, by);
    }

    /// As [`add`](Self::add), with what only users learn who may read what programs write.
    pub fn add_with(
        &self,
        kind: &'static str,
        name: &str,
        text: String,
        detail: String,
        by: Option<&str>,
    ) {
        let (name, text) = (brief(name, NAME_MAX), brief(&text, TEXT_MAX));
        let detail = brief(&detail, TEXT_MAX);
        let by = by.map(|by| brief(by, NAME_MAX));
        let by = by.as_deref();
        tracing::info!(kind, name = &*name, by, "{text}{detail}");
        let event = Arc::new(Event {
            serial: self.serial.fetch_add(1, Ordering::Relaxed) + 1,
            at: SystemTime::now(),
            kind,
            name: name.into_owned(),
            text: text.into_owned(),
            detail: detail.into_owned(),
            by: by.map(str::to_owned),
        });
        let mut last = self.last.lock();
        if last.len() == MOST {
            last.pop_front();
        }
        last.push_back(Arc::clone(&event));
        drop(last);
        // There is no watcher: that is no fault.
        let _ = self.watchers.send(event);
    }

    /// The last events, the newest first.
    pub fn newest(&self, count: usize) -> Vec<Arc<Event>> {
        self.last.lock().iter().rev().take(count).cloned().collect()
    }

    /// How many hear of all.
    pub fn watchers(&self) -> usize {
        self.watchers.receiver_count()
    }

    /// Hear of all from now on.
    pub fn watch(&self) -> broadcast::Receiver<Arc<Event>> {
        self.watchers.subscribe()
    }
}

/// A text in one line that is not too long.
fn brief(text: &str, max: usize) -> Cow<'_, str> {
    // Before, so that little is made of much; and after, as escapes are longer.
    let near = match human::cut(text, max) {
        Cow::Borrowed(text) => human::shown(text),
        Cow::Owned(text) => Cow::Owned(human::shown(&text).into_owned()),
    };
    match near.len() > max {
        true => Cow::Owned(human::cut(&near, max).into_owned()),
        false => near,
    }
}

impl Event {
    /// In words, with what programs said if that may be seen.
    pub fn text(&self, sees_output: bool) -> String {
        let detail = match sees_output {
            true => &*self.detail,
            false => "",
        };
        format!("{}{detail}", self.text)
    }

    /// One line of JSON, with what programs said if that may be seen.
    pub fn json(&self, sees_output: bool) -> Value {
        let since = self.at.duration_since(UNIX_EPOCH).unwrap_or_default();
        json!({
            "id": self.serial,
            "at_ms": since.as_millis() as u64,
            "kind": self.kind,
            "name": self.name,
            "text": self.text(sees_output),
            "by": self.by,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_ends_a_line_or_speaks_to_a_terminal() {
        let events = Events::default();
        let name = "a\nb\u{1b}[2J\u{202e}é";
        events.add("client", name, format!("{name} was here"), Some(name));
        let event = &events.newest(1)[0];
        let plain = "a\\nb\\u{1b}[2J\\u{202e}é";
        assert_eq!(event.name, plain);
        assert_eq!(event.text, format!("{plain} was here"));
        assert_eq!(event.by.as_deref(), Some(plain));
    }

    #[test]
    fn nothing_in_an_event_is_long() {
        let events = Events::default();
        for long in ["x".repeat(1 << 20), "\u{1b}".repeat(TEXT_MAX)] {
            let (text, detail) = (long.clone(), long.clone());
            events.add_with("client", &long, text, detail, Some(&long));
            let event = &events.newest(1)[0];
            for (text, max) in [
                (&event.name, NAME_MAX),
                (&event.text, TEXT_MAX),
                (&event.detail, TEXT_MAX),
                (event.by.as_ref().unwrap(), NAME_MAX),
            ] {
                assert!(text.len() <= max && text.ends_with('…'), "{}", text.len());
            }
        }
    }
}
