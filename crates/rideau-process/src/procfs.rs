//! Processes, read from `/proc`.
//!
//! All of this blocks, and all of it may be out of date when it returns: only the
//! holder of an unreaped child can rely on its number.

use std::collections::HashSet;
use std::fs;
use std::io::{ErrorKind, Read};
use std::net::IpAddr;

/// Most tables are shorter.
const TABLE: usize = 256 << 10;

/// A process at some moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Seen {
    pub(super) pid: i32,
    pub(super) parent: i32,
    pub(super) group: i32,
    pub(super) session: i32,
    /// Processor time, in the system's ticks.
    pub(super) ticks: u64,
    /// Memory in use, in the system's pages.
    pub(super) pages: u64,
    /// In ticks since the system was booted: with the number it names one
    /// process for as long as the system runs.
    pub(super) since: u64,
    /// It has ended, and only waits for its parent to notice.
    pub(super) ended: bool,
}

/// Which process listens on a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Owner {
    None,
    /// The tree that was asked for, at this address, or a process of which we may
    /// not know.
    Tree(IpAddr),
    Stranger,
}

pub(super) fn seen(pid: i32) -> Option<Seen> {
    parse(pid, &fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Has it begun to end, as far as is known? A process that has takes no connection:
/// this is so before its sockets are closed.
pub(super) fn is_ending(pid: i32) -> bool {
    /// Of the flags that the system keeps of it.
    const EXITING: u64 = 4;
    let stat = match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat,
        // It is gone already, or goes while it is looked at.
        Err(error) => {
            let gone = Some(rustix::io::Errno::SRCH.raw_os_error());
            return error.kind() == ErrorKind::NotFound || error.raw_os_error() == gone;
        }
    };
    let mut words = stat
        .rsplit_once(')')
        .map_or("", |(_, rest)| rest)
        .split(' ');
    let flags = words.nth(7).and_then(|flags| flags.parse().ok());
    flags.is_some_and(|flags: u64| flags & EXITING != 0)
}

/// All processes.
pub(super) fn all() -> Vec<Seen> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(seen).collect()
}

/// The processes of a group that still run.
pub(super) fn members(group: i32) -> Vec<i32> {
    let all = all().into_iter();
    let running = all.filter(|seen| seen.group == group && !seen.ended);
    running.map(|seen| seen.pid).collect()
}

/// The variable that it was started with. A process that may not be looked at has
/// none.
pub(super) fn variable(pid: i32, name: &str) -> Option<String> {
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let mut variables = environment.split(|byte| *byte == 0);
    variables.find_map(|variable| {
        let value = str::from_utf8(variable).ok()?.strip_prefix(name)?;
        value.strip_prefix('=').map(str::to_owned)
    })
}

/// Our children, whichever of our threads has them: those that we started, and
/// those that lost their parents.
pub(super) fn children() -> Vec<i32> {
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten();
    let lists = threads.flatten().map(|thread| {
        let children = thread.path().join("children");
        fs::read_to_string(children).unwrap_or_default()
    });
    let numbers = lists.flat_map(|list| {
        let numbers = list.split_whitespace().map(str::parse);
        numbers.flatten().collect::<Vec<i32>>()
    });
    numbers.collect()
}

/// Which process among a tree and all others listens on a port of this machine?
pub(super) fn owner(port: u16, tree: impl FnOnce() -> Vec<i32>) -> Owner {
    let there: Vec<_> = listeners()
        .filter(|listener| listener.port == port)
        .collect();
    let Some(first) = there.first() else {
        return Owner::None;
    };
    let Some(sockets) = sockets(&tree()) else {
        return Owner::Tree(first.address);
    };
    let ours = there
        .iter()
        .find(|listener| sockets.contains(&listener.inode));
    ours.map_or(Owner::Stranger, |listener| Owner::Tree(listener.address))
}

/// Has this one the socket with this number, as far as we may look?
pub(super) fn has_socket(pid: i32, inode: u64) -> bool {
    sockets(&[pid]).is_some_and(|sockets| sockets.contains(&inode))
}

/// Does a process listen at the path of a Unix socket? None if the system knows
/// of no socket by this path, as when it was bound by another and renamed.
pub(super) fn listens(path: &str) -> Option<bool> {
    let there = paths().into_iter().filter(|at| at.path == path);
    there.map(|at| at.listens).max()
}

/// Does one of these listen there? None as for [`listens`].
pub(super) fn listens_of(path: &str, tree: &[i32]) -> Option<bool> {
    let there: Vec<_> = paths().into_iter().filter(|at| at.path == path).collect();
    if there.is_empty() {
        return None;
    }
    let sockets = sockets(tree);
    let is_its = |at: &Path| {
        let inodes = sockets.as_ref();
        at.listens && inodes.is_none_or(|inodes| inodes.contains(&at.inode))
    };
    Some(there.iter().any(is_its))
}

/// The ports and the paths that these listen on, as far as we may look.
pub(super) fn listened(pids: &[i32]) -> Vec<String> {
    let sockets = sockets(pids).unwrap_or_default();
    let ours = listeners().filter(|listener| sockets.contains(&listener.inode));
    let mut ports: Vec<u16> = ours.map(|listener| listener.port).collect();
    ports.sort_unstable();
    ports.dedup();
    let ports = ports.into_iter().map(|port| port.to_string());
    let paths = paths().into_iter();
    let paths = paths.filter(|at| at.listens && sockets.contains(&at.inode));
    ports.chain(paths.map(|at| at.path)).collect()
}

/// Tells this time of the system from the last.
pub(super) fn boot() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id");
    boot.unwrap_or_default().trim().to_owned()
}

/// The name of a process may have anything in it, so what follows it is read
/// from its last parenthesis on.
fn parse(pid: i32, stat: &str) -> Option<Seen> {
    let (_, rest) = stat.rsplit_once(')')?;
    let words: Vec<&str> = rest.split_whitespace().collect();
    let number = |at: usize| words.get(at)?.parse::<u64>().ok();
    Some(Seen {
        pid,
        parent: words.get(1)?.parse().ok()?,
        group: words.get(2)?.parse().ok()?,
        session: words.get(3)?.parse().ok()?,
        ticks: number(11)? + number(12)?,
        pages: number(21)?,
        since: words.get(19)?.parse().ok()?,
        ended: matches!(*words.first()?, "Z" | "X"),
    })
}

/// A Unix socket with a name.
struct Path {
    path: String,
    inode: u64,
    listens: bool,
}

fn paths() -> Vec<Path> {
    const LISTENS: u32 = 1 << 16;
    let table = table("/proc/net/unix");
    let rows = table.lines().filter_map(|row| {
        let mut words = row.split_whitespace().skip(3);
        let flags = u32::from_str_radix(words.next()?, 16).ok()?;
        let inode = words.nth(2)?.parse().ok()?;
        Some(Path {
            path: words.next()?.to_owned(),
            inode,
            listens: flags & LISTENS != 0,
        })
    });
    rows.collect()
}

/// A table of the system, read in as few pieces as can be: it looks for each
/// piece from the beginning, through all that could be there.
fn table(path: &str) -> String {
    let mut text = Vec::with_capacity(TABLE);
    let read = fs::File::open(path).and_then(|mut file| file.read_to_end(&mut text));
    match read {
        Ok(_) => String::from_utf8_lossy(&text).into_owned(),
        Err(_) => String::new(),
    }
}

/// One that listens.
pub(super) struct Listener {
    pub(super) address: IpAddr,
    pub(super) port: u16,
    /// The number of its socket.
    pub(super) inode: u64,
}

/// The listeners that can be reached through the loopback.
fn listeners() -> impl Iterator<Item = Listener> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    let tables = tables.map(table);
    tables.into_iter().flat_map(|table| {
        let rows = table.lines().skip(1).filter_map(listener);
        rows.collect::<Vec<_>>()
    })
}

fn listener(row: &str) -> Option<Listener> {
    const LISTENS: &str = "0A";
    let words: Vec<&str> = row.split_whitespace().collect();
    let (address, port) = words.get(1)?.split_once(':')?;
    let address = ip_address(address)?;
    if *words.get(3)? != LISTENS || !(address.is_loopback() || address.is_unspecified()) {
        return None;
    }
    Some(Listener {
        address,
        port: u16::from_str_radix(port, 16).ok()?,
        inode: words.get(9)?.parse().ok()?,
    })
}

/// The table has addresses as 32-bit words in the order of the machine.
fn ip_address(words: &str) -> Option<IpAddr> {
    let bytes: Vec<u8> = (0..words.len() / 8)
        .filter_map(|at| u32::from_str_radix(words.get(at * 8..at * 8 + 8)?, 16).ok())
        .flat_map(u32::to_ne_bytes)
        .collect();
    let short = <[u8; 4]>::try_from(&bytes[..]).map(IpAddr::from);
    let long = || <[u8; 16]>::try_from(&bytes[..]).map(IpAddr::from);
    short
        .or_else(|_| long())
        .ok()
        .map(|address| address.to_canonical())
}

/// The sockets that these have open; none if we may not look.
fn sockets(pids: &[i32]) -> Option<HashSet<u64>> {
    let mut inodes = HashSet::new();
    for pid in pids {
        let entries = match fs::read_dir(format!("/proc/{pid}/fd")) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::PermissionDenied => return None,
            // It has ended in the meantime.
            Err(_) => continue,
        };
        let links = entries
            .flatten()
            .filter_map(|entry| fs::read_link(entry.path()).ok());
        inodes.extend(links.filter_map(|link| {
            let inode = link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
            inode.parse::<u64>().ok()
        }));
    }
    Some(inodes)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::{Ipv4Addr, Ipv6Addr, TcpListener};
    use std::os::unix::net::{UnixDatagram, UnixListener};
    use std::process;

    use super::{
        Owner, Seen, ip_address, listened, listens, members, owner, parse, seen, variable,
    };

    #[test]
    fn a_name_with_parentheses_is_read_whole() {
        let stat = "7 (a) Z 1 (b) S 1 5 5 0 -1 4 1 2 3 4 5 6 7 8 20 0 1 0 991 1 1";
        let wanted = Seen {
            pid: 7,
            parent: 1,
            group: 5,
            session: 5,
            ticks: 11,
            pages: 1,
            since: 991,
            ended: false,
        };
        assert_eq!(parse(7, stat), Some(wanted));
        assert_eq!(parse(7, "7 (a) S 1"), None);
        assert_eq!(parse(7, ""), None);
    }

    #[test]
    fn we_see_ourselves_and_what_we_listen_on() {
        let pid = i32::try_from(process::id()).unwrap();
        let us = seen(pid).unwrap();
        assert!(members(us.group).contains(&pid));
        assert_eq!(variable(pid, "PATH"), std::env::var("PATH").ok());
        assert_eq!(variable(pid, "PAT"), None);

        for address in ["127.0.0.1:0", "0.0.0.0:0"] {
            let listener = TcpListener::bind(address).unwrap();
            let port = listener.local_addr().unwrap().port();
            let ip = listener.local_addr().unwrap().ip();
            assert_eq!(owner(port, || vec![pid]), Owner::Tree(ip));
            assert_eq!(owner(port, Vec::new), Owner::Stranger);
            assert!(listened(&[pid]).contains(&port.to_string()));
            drop(listener);
            assert_ne!(owner(port, || vec![pid]), Owner::Tree(ip));
        }
    }

    #[test]
    fn a_path_is_listened_at_or_not_or_unknown() {
        let name = format!("rideau-procfs-{}", process::id());
        let path = std::env::temp_dir().join(name);
        let text = path.to_str().unwrap();
        assert_eq!(listens(text), None);
        let bound = UnixDatagram::bind(&path).unwrap();
        assert_eq!(listens(text), Some(false));
        drop(bound);
        fs::remove_file(&path).unwrap();
        let listener = UnixListener::bind(&path).unwrap();
        assert_eq!(listens(text), Some(true));
        drop(listener);
        fs::remove_file(&path).unwrap();
        assert_eq!(listens(text), None);
    }

    #[test]
    fn addresses_are_read_from_words() {
        let words = |bytes: &[u8]| {
            let words = bytes.chunks(4).map(|word| {
                let word = u32::from_ne_bytes(word.try_into().unwrap());
                format!("{word:08X}")
            });
            words.collect::<String>()
        };
        let short = Ipv4Addr::new(127, 0, 0, 1);
        assert_eq!(ip_address(&words(&short.octets())), Some(short.into()));
        let mapped = words(&short.to_ipv6_mapped().octets());
        assert_eq!(ip_address(&mapped), Some(short.into()));
        let long: Ipv6Addr = "fe80::1:2".parse().unwrap();
        assert_eq!(ip_address(&words(&long.octets())), Some(long.into()));
        assert_eq!(ip_address("nonsense"), None);
    }
}
