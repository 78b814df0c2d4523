//! Where members that are processes are started: the run folder, opened when the
//! first pool needs it, and the events that tell of what goes wrong there.

use std::env;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rideau_config as config;
use rideau_process::RunFolder;
use tokio::sync::{OnceCell, watch};
use tokio::task::spawn_blocking;

use crate::events::Events;
use crate::run_places;

/// More daemons than these do not share the name of a folder.
const DAEMONS_MAX: usize = 64;
/// A longer name of a server is cut: the path of a socket has little room.
const NAME_LEN_MAX: usize = 24;

/// The run folder that all pools of processes share.
pub struct RunDirs {
    folder: OnceCell<RunFolder>,
    places: Vec<PathBuf>,
    events: Arc<Events>,
    /// How many processes there are.
    live: watch::Sender<usize>,
    /// Called when a member has ended by itself.
    on_loss: Mutex<Option<OnLoss>>,
}

/// What is to be done when a member has ended by itself.
type OnLoss = Arc<dyn Fn() + Send + Sync>;

/// One process is there.
pub struct Presence(Arc<RunDirs>);

impl Default for RunDirs {
    fn default() -> Self {
        Self::new(&config::Server::default(), Arc::default())
    }
}

impl RunDirs {
    /// A run_dirs for a server like this, that tells of what happens here.
    pub fn new(server: &config::Server, events: Arc<Events>) -> Self {
        let places = match &server.run_dir {
            Some(path) => vec![path.clone()],
            None => places(&server.name, env::var_os("XDG_RUNTIME_DIR").map(Into::into)),
        };
        Self {
            folder: OnceCell::new(),
            places,
            events,
            live: watch::Sender::new(0),
            on_loss: Mutex::default(),
        }
    }

    /// Do this from now on whenever a member has ended by itself.
    pub fn on_loss(&self, done: impl Fn() + Send + Sync + 'static) {
        *self.on_loss.lock() = Some(Arc::new(done));
    }

    /// A member has ended by itself: its holder is told.
    pub fn lose(&self) {
        let done = self.on_loss.lock().clone();
        if let Some(done) = done {
            done();
        }
    }

    /// The run folder. What an earlier server left there is ended by the time
    /// this has opened it.
    ///
    /// # Errors
    ///
    /// If there is no place for one; the next call tries again.
    pub async fn folder(&self) -> io::Result<&RunFolder> {
        let open = async || {
            let places = self.places.clone();
            let opened = spawn_blocking(move || open_first(&places)).await;
            let (folder, ended) = opened.map_err(io::Error::other)??;
            if ended > 0 {
                let groups = if ended == 1 { "group" } else { "groups" };
                let text = format!("ended {ended} process {groups} that an earlier server left");
                let name = folder.path().display().to_string();
                self.events.add("process", &name, text, None);
            }
            Ok(folder)
        };
        self.folder.get_or_try_init(open).await
    }

    /// Wait until no process is left, but not for longer than this. Says how
    /// many are.
    pub async fn emptied(&self, within: Duration) -> usize {
        let mut live = self.live.subscribe();
        let empty = live.wait_for(|live| *live == 0);
        let _ = tokio::time::timeout(within, empty).await;
        *self.live.borrow()
    }

    /// Something happened to a pool; the detail is for users who may read what its
    /// programs write.
    pub fn tell(&self, pool: &str, text: String, detail: String) {
        self.events.add_with("pool", pool, text, detail, None);
    }

    /// Another process is there, for as long as what this gives.
    pub fn enter(self: &Arc<Self>) -> Presence {
        self.live.send_modify(|live| *live += 1);
        Presence(Arc::clone(self))
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.0.live.send_modify(|live| *live -= 1);
    }
}

/// Where a run folder could be, the best first.
fn places(name: &str, runtime: Option<PathBuf>) -> Vec<PathBuf> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    let name: String = name
        .chars()
        .take(NAME_LEN_MAX)
        .map(|c| if is_plain(c) { c } else { '_' })
        .collect();
    let places = run_places::all(runtime).into_iter();
    places.map(|place| place.join(&name)).collect()
}

/// The first that can be opened, and how many groups were ended on the way.
fn open_first(places: &[PathBuf]) -> io::Result<(RunFolder, usize)> {
    let mut failed = Vec::new();
    for place in places {
        match open(place) {
            Ok(opened) => return Ok(opened),
            Err(error) => failed.push(format!("{}: {error}", place.display())),
        }
    }
    Err(io::Error::other(failed.join("; ")))
}

/// Open the folder, or one beside it if another daemon has it. Folders beside it
/// that no daemon has any more are cleaned as well: the daemon that was there may
/// have been killed, and its turn may not come again.
fn open(place: &Path) -> io::Result<(RunFolder, usize)> {
    run_places::make_above(place)?;
    let mut own: Option<RunFolder> = None;
    let mut ended = 0;
    for number in 1..=DAEMONS_MAX {
        let path = match number {
            1 => place.to_owned(),
            number => beside(place, number),
        };
        if own.is_some() && !path.exists() {
            break;
        }
        // Nothing but our own folder is worth a wait.
        let opened = match own {
            None => RunFolder::open(&path),
            Some(_) => RunFolder::open_within(&path, Duration::ZERO),
        };
        match opened {
            Ok(folder) => {
                ended += folder.ended();
                own = own.or(Some(folder));
            }
            Err(error) if error.kind() == ErrorKind::AddrInUse || own.is_some() => (),
            Err(error) => return Err(error),
        }
    }
    let own = own.ok_or_else(|| io::Error::new(ErrorKind::AddrInUse, "other servers use it"))?;
    Ok((own, ended))
}

fn beside(place: &Path, number: usize) -> PathBuf {
    let mut path = place.as_os_str().to_owned();
    path.push(format!("-{number}"));
    path.into()
}

#[cfg(test)]
mod tests {
    use super::{beside, open, open_first, places};
    use rideau_testing::Scratch;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    #[test]
    fn a_server_looks_for_its_folder_in_three_places() {
        let found = places("shop/a b", Some("/run/user/7".into()));
        assert_eq!(found[0], Path::new("/run/rideau/shop_a_b"));
        assert_eq!(found[1], Path::new("/run/user/7/rideau/shop_a_b"));
        assert!(found[2].starts_with(std::env::temp_dir()));
        assert!(found[2].ends_with("shop_a_b"));
        assert_eq!(places("..", None)[0], Path::new("/run/rideau/__"));
    }

    #[test]
    fn each_daemon_has_a_folder_of_its_own() {
        let folder = Scratch::new();
        let place = folder.join("a");
        let (first, _) = open(&place).expect("it is free");
        let (second, _) = open(&place).expect("there is room beside it");
        let (third, _) = open(&place).expect("there is room beside it");
        assert_eq!(first.path(), place);
        assert_eq!(second.path(), beside(&place, 2));
        assert_eq!(third.path(), beside(&place, 3));
        drop(first);
        let (again, _) = open(&place).expect("it is free again");
        assert_eq!(again.path(), place);
    }

    #[test]
    fn the_next_place_is_taken_where_the_first_will_not_do() {
        let folder = Scratch::new();
        fs::write(folder.join("file"), "").expect("the folder is ours");
        let places = [folder.join("file/a"), folder.join("b")];
        let (opened, ended) = open_first(&places).expect("the second will do");
        assert_eq!((opened.path(), ended), (&*places[1], 0));
        let error = open_first(&places[..1]).err().expect("a file is no folder");
        assert!(error.to_string().contains("file/a: "), "{error}");
    }

    #[test]
    fn a_folder_that_others_may_change_has_no_room_for_ours() {
        let folder = Scratch::new();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777))
            .expect("the folder is ours");
        let error = open(&folder.join("a"))
            .err()
            .expect("other accounts may write");
        assert!(error.to_string().contains("others may change"), "{error}");
    }
}
