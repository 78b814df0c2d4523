//! The operator's files: a socket that only the server's account and root can connect
//! to, and beside it the token for clients that cannot use a socket.
//!
//! They stand in a folder closed to all other accounts, where the command line
//! looks for them by itself. Each server has its own, named by the port that it is
//! known by.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rideau_apps::run_places;
use rideau_apps::{bind, inherited};
use rustix::process::geteuid;
use tokio::net::UnixListener;

/// The folder of the files, in one of those that this account may have. No run
/// folder has a dot in its name.
const FOLDER: &str = "control.d";
/// Servers that are known by the same port, at different addresses.
const SAME_PORT_MAX: usize = 16;
/// A path of a Unix socket has no more bytes.
const PATH_LEN_MAX: usize = 107;

/// The files of one server. They go when this is dropped.
#[derive(Debug)]
pub struct ControlFiles {
    /// The socket.
    pub socket: PathBuf,
    /// The file with the token.
    pub token: PathBuf,
}

impl ControlFiles {
    /// Listen in the first folder that will do, and leave the token there.
    ///
    /// # Errors
    ///
    /// If no folder will do.
    pub fn open(label: &str, token: Option<&str>) -> io::Result<(UnixListener, Self)> {
        let mut failed = Vec::new();
        for folder in folders() {
            match open_in(&folder, label, token) {
                Ok(opened) => return Ok(opened),
                Err(error) => failed.push(format!("{}: {error}", folder.display())),
            }
        }
        Err(io::Error::other(failed.join("; ")))
    }
}

impl ControlFiles {
    /// Leave them where they are, for the server that comes next.
    pub(crate) fn pass_on(self) {
        std::mem::forget(self);
    }
}

impl Drop for ControlFiles {
    fn drop(&mut self) {
        for path in [&self.socket, &self.token] {
            let _ = fs::remove_file(path);
        }
    }
}

/// Where the files of this account's servers can be, the best first.
fn folders() -> Vec<PathBuf> {
    let runtime = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let places = run_places::all(runtime).into_iter();
    places.map(|place| place.join(FOLDER)).collect()
}

fn open_in(
    folder: &Path,
    label: &str,
    token: Option<&str>,
) -> io::Result<(UnixListener, ControlFiles)> {
    run_places::make_above(folder)?;
    make(folder)?;
    clean(folder);
    for number in 1..=SAME_PORT_MAX {
        let name = match number {
            1 => label.to_owned(),
            number => format!("{label}-{number}"),
        };
        let socket = folder.join(format!("{name}.sock"));
        if socket.as_os_str().len() > PATH_LEN_MAX {
            let why = "its path is too long";
            return Err(io::Error::new(ErrorKind::InvalidInput, why));
        }
        // A server before this one may have passed it on, with its name.
        let passed = inherited::unix(&socket).map(UnixListener::from_std);
        let listener = match passed.unwrap_or_else(|| bind::unix(&socket)) {
            Ok(listener) => listener,
            // It is another server's.
            Err(error) if error.kind() == ErrorKind::AddrInUse => continue,
            Err(error) => return Err(error),
        };
        let token_file = socket.with_extension("token");
        let files = ControlFiles {
            socket,
            token: token_file,
        };
        // No other account could connect before this: the folder is closed.
        fs::set_permissions(&files.socket, Permissions::from_mode(0o600))?;
        if let Some(token) = token {
            write_token(&files.token, token)?;
        }
        return Ok((listener, files));
    }
    Err(io::Error::new(ErrorKind::AddrInUse, "other servers use it"))
}

/// A folder that only this account can look into.
fn make(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
        _ => (),
    }
    let about = fs::symlink_metadata(folder)?;
    let is_ours = about.is_dir() && about.uid() == geteuid().as_raw();
    if is_ours && about.mode() & 0o077 == 0 {
        return Ok(());
    }
    let why = "it belongs to another account, or other accounts may use it";
    Err(io::Error::new(ErrorKind::PermissionDenied, why))
}

fn write_token(path: &Path, token: &str) -> io::Result<()> {
    let _ = fs::remove_file(path);
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    writeln!(options.open(path)?, "{token}")
}

/// Take away what killed servers left.
fn clean(folder: &Path) {
    for socket in sockets(folder) {
        let is_left = UnixStream::connect(&socket)
            .is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused);
        if is_left {
            let _ = fs::remove_file(socket.with_extension("token"));
            let _ = fs::remove_file(socket);
        }
    }
}

fn sockets(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let is_socket = |path: &PathBuf| path.extension() == Some(OsStr::new("sock"));
    let mut sockets: Vec<_> = paths.filter(is_socket).collect();
    sockets.sort();
    sockets
}

/// The control sockets that this account can use.
pub fn find_all() -> Vec<PathBuf> {
    let trusted = folders().into_iter().filter(|folder| is_trusted(folder));
    trusted.flat_map(|folder| sockets(&folder)).collect()
}

/// The control socket of the server with this port.
pub fn find(port: u16) -> Option<PathBuf> {
    let name = format!("{port}.sock");
    let mut trusted = folders().into_iter().filter(|folder| is_trusted(folder));
    trusted.find_map(|folder| Some(folder.join(&name)).filter(|path| path.exists()))
}

/// No other account can have put a socket of its own there. Root also uses the socket
/// of a service that runs on an account of its own.
fn is_trusted(folder: &Path) -> bool {
    let Ok(about) = fs::symlink_metadata(folder) else {
        return false;
    };
    let own = geteuid();
    let is_of_service = own.is_root() && folder.starts_with(run_places::SYSTEM);
    let is_closed = about.is_dir() && about.mode() & 0o077 == 0;
    is_closed && (about.uid() == own.as_raw() || is_of_service)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rideau_testing::Scratch;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("it is there").mode() & 0o777
    }

    #[tokio::test]
    async fn the_files_are_closed_to_others_and_go_with_the_server() {
        let scratch = Scratch::new();
        let folder = scratch.join("control");
        let opened = open_in(&folder, "7433", Some("secret")).expect("there is room");
        let (_listener, files) = opened;
        assert_eq!(mode(&folder), 0o700);
        assert_eq!(mode(&files.socket), 0o600);
        assert_eq!(mode(&files.token), 0o600);
        assert_eq!(
            fs::read_to_string(&files.token).ok().as_deref(),
            Some("secret\n")
        );
        assert!(is_trusted(&folder));
        let (socket, token) = (files.socket.clone(), files.token.clone());
        drop(files);
        assert!(!socket.exists() && !token.exists());
    }

    #[tokio::test]
    async fn a_second_server_of_the_same_port_has_files_of_its_own() {
        let scratch = Scratch::new();
        let folder = scratch.join("control");
        let (_one, first) = open_in(&folder, "1", None).expect("there is room");
        let (_other, second) = open_in(&folder, "1", None).expect("there is room");
        assert!(first.socket.ends_with("1.sock"));
        assert!(second.socket.ends_with("1-2.sock"));
    }

    #[tokio::test]
    async fn what_a_killed_server_left_is_replaced() {
        let scratch = Scratch::new();
        let folder = scratch.join("control");
        let (listener, files) = open_in(&folder, "1", Some("old")).expect("there is room");
        std::mem::forget(files);
        drop(listener);
        let (_listener, files) = open_in(&folder, "1", Some("new")).expect("there is room");
        assert!(files.socket.ends_with("1.sock"));
        assert_eq!(
            fs::read_to_string(&files.token).ok().as_deref(),
            Some("new\n")
        );
    }

    #[test]
    fn a_folder_that_others_can_open_is_not_used() {
        let scratch = Scratch::new();
        let folder = scratch.join("control");
        fs::create_dir(&folder).expect("there is room");
        fs::set_permissions(&folder, Permissions::from_mode(0o755)).expect("it is ours");
        assert!(make(&folder).is_err());
        assert!(!is_trusted(&folder));
    }
}
