//! Our server with a front and the application behind it.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::app;
use super::site::Site;
use super::started::{Place, Started, free_address, this_program};
use crate::talk::Folder;

/// How our server runs the application.
#[derive(Clone)]
pub(super) struct Setting {
    pub(super) listen: Listen,
    /// Processes that there are at all times.
    pub(super) min: usize,
    pub(super) max: usize,
    pub(super) app: app::Options,
}

/// Where it tells the application to listen.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Listen {
    Port,
    Socket,
}

/// Our server while it runs.
pub(super) struct Ours {
    pub(super) server: Started,
    pub(super) address: SocketAddr,
    /// Where the application runs.
    pub(super) root: PathBuf,
}

/// One process that is always there.
pub(super) fn steady(listen: Listen) -> Setting {
    Setting {
        listen,
        min: 1,
        max: 1,
        app: app::Options::default(),
    }
}

/// Starts it, or says why that did not work.
pub(super) fn start(program: &Path, setting: &Setting) -> Result<Ours, String> {
    start_with(program, setting, None)
}

/// The same, and it serves a site as well.
pub(super) fn start_with(
    program: &Path,
    setting: &Setting,
    site: Option<&Site>,
) -> Result<Ours, String> {
    let folder = Folder::new();
    let root = folder.path().join("app");
    fs::create_dir_all(root.join("tmp")).expect("the temporary folder can be written");
    let address = free_address();
    let file = folder.path().join("rideau.toml");
    let more = site.map(Site::ours).unwrap_or_default();
    let config = config(setting, address, &root, &more);
    fs::write(&file, config).expect("the temporary folder can be written");
    let mut command = Command::new(program);
    command.args(["serve", "--config"]).arg(&file);
    let server = Started::new(&mut command, &Place::Port(address), Some(folder))?;
    Ok(Ours {
        server,
        address,
        root,
    })
}

fn config(setting: &Setting, front: SocketAddr, root: &Path, more: &str) -> String {
    let mut app = setting.app.clone();
    let listen = match setting.listen {
        Listen::Port => "port",
        Listen::Socket => {
            app.socket = Some("{socket}".into());
            "socket"
        }
    };
    let program = this_program().display().to_string();
    let exec: Vec<_> = [program].into_iter().chain(app.words()).collect();
    let (server, Setting { min, max, .. }) = (free_address(), setting);
    format!(
        "[server]\nlisten = [\"{server}\"]\nadmin = \"none\"\n\
         [log]\nlevel = \"error\"\n\
         [front]\nlisten = [\"{front}\"]\n{more}\
         [app.tiny]\nexec = {exec:?}\nroot = {root:?}\nlisten = \"{listen}\"\n\
         concurrency = 256\nmin = {min}\nmax = {max}\n"
    )
}
