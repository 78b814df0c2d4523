//! Tells the process that started us how we are, as systemd understands it.
//!
//! A unit of `Type=notify` counts as started when `READY=1` has come, so whatever
//! is ordered after it finds us listening.

use std::env;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::time::Duration;

/// Tell the supervisor, if there is one that wants to know. Several lines may
/// stand in one text.
pub(crate) fn tell(text: &str) {
    let Some(socket) = env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    if let Err(error) = send(Path::new(&socket), text) {
        tracing::warn!("cannot tell {}: {error}", socket.display());
    }
}

/// The text that says that a new config is being read, which `READY=1` ends.
/// The time lets the supervisor tell this reload from an earlier one.
pub(crate) fn reloading() -> String {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let since = Duration::try_from(now).unwrap_or_default();
    format!("RELOADING=1\nMONOTONIC_USEC={}", since.as_micros())
}

/// A path that begins with `@` is a name that is not in the file system.
fn send(socket: &Path, text: &str) -> io::Result<()> {
    let address = match socket.as_os_str().as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(socket)?,
    };
    let sender = UnixDatagram::unbound()?;
    // It is told and not waited for.
    sender.set_nonblocking(true)?;
    sender.send_to_addr(text.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::{reloading, send};
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram};
    use std::path::{Path, PathBuf};

    fn heard(listener: &UnixDatagram) -> String {
        let mut bytes = [0; 64];
        let len = listener.recv(&mut bytes).expect("something was sent");
        String::from_utf8_lossy(&bytes[..len]).into_owned()
    }

    #[test]
    fn a_supervisor_hears_at_a_path_or_at_a_name() {
        let own = std::process::id();
        let path: PathBuf = std::env::temp_dir().join(format!("rideau-supervisor-{own}"));
        let _ = std::fs::remove_file(&path);
        let listener = UnixDatagram::bind(&path).expect("the path is free");
        send(&path, "READY=1").expect("a process listens");
        assert_eq!(heard(&listener), "READY=1");
        let _ = std::fs::remove_file(&path);
        assert!(send(&path, "READY=1").is_err());

        let name = format!("rideau-supervisor-{own}");
        let address = SocketAddr::from_abstract_name(&name).expect("the name is short");
        let listener = UnixDatagram::bind_addr(&address).expect("the name is free");
        send(Path::new(&format!("@{name}")), "STOPPING=1").expect("a process listens");
        assert_eq!(heard(&listener), "STOPPING=1");
    }

    #[test]
    fn a_reload_has_its_time() {
        let text = reloading();
        let (first, second) = text.split_once('\n').expect("two lines");
        assert_eq!(first, "RELOADING=1");
        let time = second.strip_prefix("MONOTONIC_USEC=");
        assert!(time.is_some_and(|time| time.parse::<u64>().is_ok_and(|time| time > 0)));
    }
}
