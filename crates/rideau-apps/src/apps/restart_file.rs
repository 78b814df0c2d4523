//! Files that ask for a restart: `restart.txt`, touched for new code, and
//! `always_restart.txt`, there for a process a request.
//!
//! They are looked at once a second, apart from everything else: a folder that
//! does not answer holds up nothing but its own application's restarts.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use rideau_core::apps::Restart;
use tokio::task::spawn_blocking;

use super::app::App;
use super::{Apps, Inner};

/// How often the files are looked at.
const EVERY: Duration = Duration::from_secs(1);

/// The state of the files when they were last checked.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Markers {
    /// Which file it is: where it really lies, and what says that it is
    /// another.
    restart: Option<(PathBuf, u64, i64, i64, u64)>,
    /// A process a request.
    pub(super) is_always: bool,
}

impl Markers {
    pub(super) fn look(folder: &Path) -> Self {
        let path = folder.join("restart.txt");
        let identity = fs::metadata(&path).ok().map(|about| {
            let real = path.canonicalize().unwrap_or(path);
            (
                real,
                about.ino(),
                about.mtime(),
                about.mtime_nsec(),
                about.len(),
            )
        });
        Self {
            restart: identity,
            is_always: folder.join("always_restart.txt").exists(),
        }
    }

    /// Does this look ask for a restart, after that one? One that goes away
    /// does not.
    pub(super) fn asks(&self, before: &Self) -> bool {
        self.restart.is_some() && self.restart != before.restart
    }
}

/// Look at the files of one application until it is gone.
pub(super) async fn watch(apps: Weak<Inner>, app: Weak<App>) {
    let mut before: Option<(PathBuf, Markers)> = None;
    let mut ticks = tokio::time::interval(EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let (Some(inner), Some(app)) = (apps.upgrade(), app.upgrade()) else {
            return;
        };
        let Some(folder) = folder(&app) else {
            before = None;
            continue;
        };
        let looked = folder.clone();
        let Ok(now) = spawn_blocking(move || Markers::look(&looked)).await else {
            continue;
        };
        // The first look only remembers, wherever it is.
        let known = before.take().filter(|(path, _)| *path == folder);
        let was_always = known.as_ref().is_some_and(|(_, known)| known.is_always);
        if now.is_always != was_always {
            inner.set_one_each(&app, now.is_always);
        }
        if known.is_some_and(|(_, known)| now.asks(&known)) {
            Apps(Arc::clone(&inner)).restart(&app, Restart::Rolling, "restart.txt");
        }
        before = Some((folder, now));
    }
}

/// Where the files of an application are.
fn folder(app: &App) -> Option<PathBuf> {
    let config = app.config.load();
    let folder = config.restart_dir.as_ref()?;
    match &config.run.root {
        Some(root) => Some(root.join(folder)),
        None => folder.is_absolute().then(|| folder.clone()),
    }
}

impl Inner {
    /// A process a request from now on, or as the config says.
    fn set_one_each(&self, app: &App, is_always: bool) {
        let text = match is_always {
            true => "always_restart.txt is there: each process serves one request",
            false => "always_restart.txt is gone: processes serve more than one request again",
        };
        self.tell(&app.name, text.into(), None);
        let mut options = app.config.load().options.clone();
        options.one_each = is_always;
        self.step(|step| {
            let done = (step.machine).reconfigure(app.id, options, step.now, step.effects);
            debug_assert!(done.is_ok(), "they were good a moment ago");
        });
        app.is_always
            .store(is_always, std::sync::atomic::Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::Markers;
    use rideau_testing::Scratch;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_marker_that_is_not_there_asks_for_nothing() {
        let folder = Scratch::new();
        let before = Markers::look(folder.path());
        assert!(!Markers::look(folder.path()).asks(&before));
        assert!(!Markers::look(folder.path()).is_always);
    }

    #[test]
    fn a_marker_asks_when_it_comes_and_changes_and_not_when_it_goes() {
        let folder = Scratch::new();
        let none = Markers::look(folder.path());
        let path = folder.join("restart.txt");
        fs::write(&path, "").expect("the folder is ours");
        let there = Markers::look(folder.path());
        assert!(there.asks(&none));
        assert!(!Markers::look(folder.path()).asks(&there));
        fs::write(&path, "again").expect("the folder is ours");
        assert!(Markers::look(folder.path()).asks(&there));
        fs::remove_file(&path).expect("it is there");
        assert!(!Markers::look(folder.path()).asks(&there));
    }

    #[test]
    fn another_release_behind_a_link_asks_though_its_marker_is_as_old() {
        let folder = Scratch::new();
        for release in ["one", "two"] {
            let path = folder.join(release);
            fs::create_dir(&path).expect("the folder is ours");
            let file = fs::File::create(path.join("restart.txt")).expect("so is this");
            file.set_modified(std::time::UNIX_EPOCH).expect("and this");
        }
        let current = folder.join("current");
        symlink("one", &current).expect("the folder is ours");
        let before = Markers::look(&current);
        fs::remove_file(&current).expect("it is there");
        symlink("two", &current).expect("the folder is ours");
        assert!(Markers::look(&current).asks(&before));
    }
}
