//! Opens files beneath a folder, and never outside of it.
//!
//! The system resolves the path beneath the folder (`openat2`), so a link that leads out of it
//! opens nothing, whenever it was made. Where the system cannot do that, each folder is opened in
//! the one before it, and no link is followed at all.
//!
//! All of this may take as long as a disk does.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, openat, openat2};
use rustix::io::Errno;

/// A folder that files are served from.
pub(super) struct FileRoot(OwnedFd);

/// What a path leads to.
pub(super) enum Entry {
    File(OwnedFd, FileFacts),
    Folder,
    /// Something that no client may see: a link that leads out of the folder, a pipe, a device, or
    /// what this program may not read.
    Hidden,
    Nothing,
}

/// What is known of a file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct FileFacts {
    /// In seconds since 1970, and nanoseconds.
    pub(super) modified: (u64, u64),
    pub(super) len: u64,
}

/// A file that is being renamed is looked for again so often.
const TRIES: usize = 16;

/// The system does not know `openat2`, or a filter of it does not.
static IS_OLD: AtomicBool = AtomicBool::new(false);

impl FileRoot {
    /// Open the folder; links that lead to it are followed.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self(openat(CWD, path, flags, Mode::empty())?))
    }

    /// What this path leads to, which has no slash before it.
    pub(super) fn find(&self, path: &[u8]) -> io::Result<Entry> {
        // A pipe is opened without waiting for what writes to it.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        match self.beneath(path, flags) {
            Ok(file) => {
                let stat = fstat(&file)?;
                Ok(match FileType::from_raw_mode(stat.st_mode) {
                    FileType::RegularFile => Entry::File(file, FileFacts::of(&stat)),
                    FileType::Directory => Entry::Folder,
                    _ => Entry::Hidden,
                })
            }
            Err(Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG) => Ok(Entry::Nothing),
            // It leads out, or in circles, or is a socket.
            Err(Errno::XDEV | Errno::LOOP | Errno::NXIO) => Ok(Entry::Hidden),
            Err(Errno::ACCESS) => {
                let path = String::from_utf8_lossy(path);
                tracing::debug!("a file may not be read: {path}");
                Ok(Entry::Hidden)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// What is known of the file to which this path leads, if it is one.
    pub(super) fn facts(&self, path: &[u8]) -> Option<FileFacts> {
        let file = self.beneath(path, OFlags::PATH | OFlags::CLOEXEC).ok()?;
        let stat = fstat(&file).ok()?;
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        is_file.then(|| FileFacts::of(&stat))
    }

    fn beneath(&self, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
        let path = if path.is_empty() { b"." } else { path };
        if !IS_OLD.load(Ordering::Relaxed) {
            let within = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
            let mut tries = 0;
            loop {
                match openat2(&self.0, path, flags, Mode::empty(), within) {
                    // Something was renamed meanwhile.
                    Err(Errno::AGAIN) if tries < TRIES => tries += 1,
                    // Filters of containers that do not know it say that it is not permitted.
                    Err(Errno::NOSYS | Errno::PERM) if self.is_old() => break,
                    found => return found,
                }
            }
        }
        step_by_step(self.0.as_fd(), path, flags)
    }

    /// The system cannot even open the folder itself so.
    fn is_old(&self) -> bool {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let tried = openat2(&self.0, ".", flags, Mode::empty(), ResolveFlags::BENEATH);
        let is_old = matches!(tried, Err(Errno::NOSYS | Errno::PERM));
        if is_old {
            IS_OLD.store(true, Ordering::Relaxed);
        }
        is_old
    }
}

/// Whether there is nothing at this path, as far as the system knows that without asking a disk.
/// Nothing is opened for it, so it takes a moment at most.
pub(super) fn is_known_missing(root: &Path, path: &[u8]) -> bool {
    if IS_OLD.load(Ordering::Relaxed) {
        return false;
    }
    let look = OFlags::PATH | OFlags::CLOEXEC;
    let (mode, known) = (Mode::empty(), ResolveFlags::CACHED);
    let Ok(root) = openat2(CWD, root, look | OFlags::DIRECTORY, mode, known) else {
        return false;
    };
    let path = if path.is_empty() { b"." } else { path };
    let within = known | ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    matches!(
        openat2(&root, path, look, mode, within),
        Err(Errno::NOENT | Errno::NOTDIR)
    )
}

impl FileFacts {
    #[allow(clippy::unnecessary_cast, reason = "the types differ between systems")]
    fn of(stat: &Stat) -> Self {
        let seconds = u64::try_from(stat.st_mtime as i64).unwrap_or(0);
        Self {
            modified: (seconds, stat.st_mtime_nsec as u64),
            len: u64::try_from(stat.st_size as i64).unwrap_or(0),
        }
    }
}

/// Open one part of a path after the other, without following a link.
fn step_by_step(root: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let mut parts = path.split(|byte| *byte == b'/').peekable();
    let mut folder: Option<OwnedFd> = None;
    loop {
        let (Some(part), is_last) = (parts.next(), parts.peek().is_none()) else {
            return Err(Errno::NOENT);
        };
        if part.is_empty() || part == b".." {
            return Err(Errno::NOENT);
        }
        let at = folder.as_ref().map_or(root, AsFd::as_fd);
        if is_last {
            return openat(at, part, flags | OFlags::NOFOLLOW, Mode::empty());
        }
        let inner = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        folder = Some(openat(at, part, inner, Mode::empty())?);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use rideau_testing::Scratch;

    use super::*;

    fn word(root: &FileRoot, path: &str) -> &'static str {
        match root.find(path.as_bytes()).expect("it can be looked for") {
            Entry::File(..) => "file",
            Entry::Folder => "folder",
            Entry::Hidden => "hidden",
            Entry::Nothing => "nothing",
        }
    }

    fn tree() -> Scratch {
        let scratch = Scratch::new();
        let root = scratch.path().join("root");
        fs::create_dir_all(root.join("a/b")).expect("a folder");
        fs::write(scratch.path().join("secret"), "secret").expect("a file");
        fs::write(root.join("a/b/c.txt"), "hello").expect("a file");
        symlink("b/c.txt", root.join("a/inner")).expect("a link");
        symlink("../../secret", root.join("a/outer")).expect("a link");
        symlink("/etc/passwd", root.join("absolute")).expect("a link");
        symlink("..", root.join("up")).expect("a link");
        symlink("loop", root.join("loop")).expect("a link");
        symlink("/proc/self/root/etc/passwd", root.join("magic")).expect("a link");
        drop(UnixListener::bind(root.join("socket")).expect("a socket"));
        let pipe = root.join("pipe");
        rustix::fs::mkfifoat(CWD, &pipe, Mode::RUSR | Mode::WUSR).expect("a pipe");
        scratch
    }

    #[test]
    fn a_file_beneath_the_folder_is_found_and_nothing_outside_of_it() {
        let scratch = tree();
        let root = FileRoot::open(&scratch.path().join("root")).expect("a folder");
        for (path, expected) in [
            ("a/b/c.txt", "file"),
            ("a/inner", "file"),
            ("a/b", "folder"),
            ("", "folder"),
            ("a/b/none", "nothing"),
            ("a/b/c.txt/x", "nothing"),
            ("a/outer", "hidden"),
            ("absolute", "hidden"),
            ("up/secret", "hidden"),
            ("up/root/a/b/c.txt", "hidden"),
            ("../secret", "hidden"),
            ("/etc/passwd", "hidden"),
            ("loop", "hidden"),
            ("magic", "hidden"),
            ("socket", "hidden"),
            ("pipe", "hidden"),
        ] {
            assert_eq!(word(&root, path), expected, "{path}");
        }
        let Ok(Entry::File(file, facts)) = root.find(b"a/b/c.txt") else {
            panic!("it is a file");
        };
        let mut text = String::new();
        fs::File::from(file)
            .read_to_string(&mut text)
            .expect("its text");
        assert_eq!((&*text, facts.len), ("hello", 5));
        assert_eq!(root.facts(b"a/b/c.txt"), Some(facts));
        assert_eq!((root.facts(b"a"), root.facts(b"a/outer")), (None, None));
    }

    #[test]
    fn what_is_there_is_never_known_to_be_missing() {
        let scratch = tree();
        let folder = scratch.path().join("root");
        let root = FileRoot::open(&folder).expect("a folder");
        for path in [
            "",
            "a/b/c.txt",
            "a/inner",
            "a",
            "a/outer",
            "up/secret",
            "loop",
            "pipe",
        ] {
            for _ in 0..3 {
                assert!(!is_known_missing(&folder, path.as_bytes()), "{path}");
                let _ = root.find(path.as_bytes());
            }
        }
        // Whether the system remembers that this is not there is its own matter.
        assert_eq!(word(&root, "a/new"), "nothing");
        is_known_missing(&folder, b"a/new");
        fs::write(folder.join("a/new"), "new").expect("a file");
        assert!(!is_known_missing(&folder, b"a/new"));
        assert!(
            !is_known_missing(&folder.join("none"), b"a"),
            "it has no folder"
        );
    }

    #[test]
    fn without_help_of_the_system_no_link_is_followed() {
        let scratch = tree();
        let root = FileRoot::open(&scratch.path().join("root")).expect("a folder");
        let open = |path: &str| step_by_step(root.0.as_fd(), path.as_bytes(), OFlags::RDONLY);
        assert!(open("a/b/c.txt").is_ok() && open(".").is_ok());
        for link in ["a/inner", "a/outer", "absolute", "up/secret", "up", "loop"] {
            let error = open(link).expect_err("it is a link");
            assert!(
                matches!(error, Errno::LOOP | Errno::NOTDIR),
                "{link}: {error}"
            );
        }
        for bad in ["../secret", "/etc/passwd", "a//b", "a/../../secret", "a/"] {
            assert_eq!(open(bad).expect_err("it is no path"), Errno::NOENT, "{bad}");
        }
    }
}
