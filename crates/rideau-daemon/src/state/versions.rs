//! The running config as text: how it came to be, how it changes and how it
//! goes back.
//!
//! A change is a new text. It is read and planned first, and counts as a whole
//! or not at all; the text before it is kept for a while.

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use parking_lot::Mutex;
use rideau_config::{Change, Config};

use crate::state::shared_config::SharedState;

/// This many texts are kept.
const VERSIONS_MAX: usize = 32;

/// The config of a server that was started without a file.
const DEFAULT: &str = "\
# The server was started without a file, and this is what it does then.
[broker.default]

[lock.\"*\"]
";

/// Where a config came from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Source {
    /// Its text.
    pub text: String,
    /// The file that has it, to be read again and to be written.
    pub file: Option<PathBuf>,
}

/// The running config as text, and what it was before.
pub(crate) struct Settings {
    pub(crate) file: Option<PathBuf>,
    /// The config at the start: its keys that need a restart are still in effect.
    pub(crate) started: Arc<Config>,
    pub(crate) generation: AtomicU64,
    /// Held by a change from its beginning to its end.
    pub(crate) turn: Mutex<()>,
    /// What nodes of a cluster share.
    pub(crate) shared: Mutex<SharedState>,
    pub(crate) inner: Mutex<Inner>,
}

pub(crate) struct Inner {
    /// The text of the file when it was last read or written.
    pub(crate) on_disk: Arc<str>,
    /// The newest last; there is always one.
    pub(crate) history: VecDeque<Arc<Version>>,
}

/// A config that counted once, or does now.
#[derive(Debug)]
pub(crate) struct Version {
    /// Its number, from 1 on.
    pub serial: u64,
    /// Since when it counted.
    pub at: SystemTime,
    /// The user that applied it.
    pub by: String,
    /// A summary of its changes.
    pub summary: String,
    /// All of it.
    pub text: Arc<str>,
}

impl Source {
    /// The text of a config that has none.
    ///
    /// Hashes of passwords are not in it: a config that has users has a text, too.
    pub fn of(config: &Config) -> Self {
        let text = if *config == Config::default() {
            DEFAULT.into()
        } else {
            let rows = config.rows().into_iter();
            rows.map(|(path, value)| format!("{path} = {value}\n"))
                .collect()
        };
        Self { text, file: None }
    }

    /// The text of a file.
    ///
    /// # Errors
    ///
    /// If it cannot be read.
    pub fn read(file: &Path) -> std::io::Result<Self> {
        Ok(Self {
            text: fs::read_to_string(file)?,
            file: Some(file.to_owned()),
        })
    }
}

impl Settings {
    /// The versions of a server that starts with this config.
    pub(crate) fn new(config: &Config, source: Source) -> Self {
        let text: Arc<str> = source.text.into();
        let first = Version {
            serial: 1,
            at: SystemTime::now(),
            by: "start".into(),
            summary: "the config that the server was started with".into(),
            text: Arc::clone(&text),
        };
        Self {
            file: source.file,
            started: Arc::new(config.clone()),
            generation: AtomicU64::new(1),
            turn: Mutex::new(()),
            shared: Mutex::default(),
            inner: Mutex::new(Inner {
                on_disk: text,
                history: VecDeque::from([Arc::new(first)]),
            }),
        }
    }

    /// Grows with each change, to see that there was one.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// The file that the server was started with.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// The running config as text.
    pub(crate) fn text(&self) -> Arc<str> {
        Arc::clone(&self.inner.lock().newest().text)
    }

    /// The running config is not what the file has.
    pub(crate) fn is_unsaved(&self) -> bool {
        let inner = self.inner.lock();
        inner.newest().text != inner.on_disk
    }

    /// The configs that counted, the newest first; it counts now.
    pub(crate) fn history(&self) -> Vec<Arc<Version>> {
        self.inner.lock().history.iter().rev().cloned().collect()
    }

    /// The keys whose running values count only after a restart.
    pub(crate) fn pending(&self, config: &Config) -> Vec<String> {
        let plan = rideau_config::plan(&self.started, config, None);
        let steps = plan.steps.into_iter();
        steps
            .filter(|step| step.change == Change::Restart)
            .map(|step| step.path)
            .collect()
    }

    /// How faults call the text.
    pub(crate) fn label(&self) -> String {
        let file = self.file.as_ref();
        file.map_or("config".into(), |file| file.display().to_string())
    }
}

impl Inner {
    pub(crate) fn newest(&self) -> &Arc<Version> {
        self.history.back().expect("there is always one")
    }

    pub(crate) fn push(&mut self, by: &str, summary: String, text: String) {
        let serial = self.newest().serial + 1;
        if self.history.len() == VERSIONS_MAX {
            self.history.pop_front();
        }
        self.history.push_back(Arc::new(Version {
            serial,
            at: SystemTime::now(),
            by: by.into(),
            summary,
            text: text.into(),
        }));
    }
}
