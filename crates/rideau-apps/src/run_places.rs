//! Where the folders of this account's servers can be: sockets of children, and
//! those by which servers are controlled.

use std::env;
use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

/// The run folder of the system, for services.
pub const SYSTEM: &str = "/run/rideau";

/// Every place, the best first; `runtime` is the folder that the system keeps for
/// the account's sockets, if it does.
pub fn all(runtime: Option<PathBuf>) -> Vec<PathBuf> {
    let mut places = vec![SYSTEM.into()];
    places.extend(runtime.map(|path| path.join("rideau")));
    places.push(env::temp_dir().join(format!("rideau-{}", geteuid().as_raw())));
    places
}

/// Make the folder above this one, and see that no other user can change it: in a
/// folder that any user may write to, another user could have made ours.
pub fn make_above(place: &Path) -> io::Result<()> {
    let Some(above) = place.parent() else {
        return Ok(());
    };
    match DirBuilder::new().mode(0o755).create(above) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
        _ => (),
    }
    let about = fs::symlink_metadata(above)?;
    let is_ours = [0, geteuid().as_raw()].contains(&about.uid());
    // A sticky folder is safe: no other user can move what is ours there.
    let is_closed = about.mode() & 0o022 == 0 || about.mode() & 0o1000 != 0;
    if is_ours && (is_closed || about.is_symlink()) {
        return Ok(());
    }
    let message = format!("others may change {}", above.display());
    Err(io::Error::new(ErrorKind::PermissionDenied, message))
}
