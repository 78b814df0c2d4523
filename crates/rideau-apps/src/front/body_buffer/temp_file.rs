//! A file for no other process, which is gone when we are.
//!
//! All of this may take as long as a disk does, so it is done on threads that serve no
//! client.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use rideau_core::DiskSpace;
use rustix::fs::{Mode, OFlags, fstatvfs, open};
use tokio::runtime::Handle;

/// A file without a name; cheap to clone.
#[derive(Clone)]
pub(super) struct TempFile(Option<Arc<File>>);

impl TempFile {
    fn open(folder: &Path) -> io::Result<Self> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = match open(folder, flags, Mode::RUSR | Mode::WUSR) {
            Ok(file) => file.into(),
            // Not every file system has files that never had a name.
            Err(_) => unnamed(folder)?,
        };
        Ok(Self(Some(Arc::new(file))))
    }

    fn file(&self) -> io::Result<&File> {
        self.0
            .as_deref()
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Read this many bytes that were written.
    pub(super) fn read(&self, at: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut part = vec![0; len];
        self.file()?.read_exact_at(&mut part, at)?;
        Ok(part)
    }

    fn write(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        let file = self.file()?;
        let system = fstatvfs(file)?;
        let space = DiskSpace {
            total: system.f_blocks.saturating_mul(system.f_frsize),
            free: system.f_bavail.saturating_mul(system.f_frsize),
        };
        if !space.has_room(bytes.len() as u64) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        file.write_all_at(bytes, at)
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        // The system takes its time to forget a long file.
        if let (Some(file), Ok(runtime)) = (self.0.take(), Handle::try_current())
            && let Some(file) = Arc::into_inner(file)
        {
            runtime.spawn_blocking(move || drop(file));
        }
    }
}

/// Write this to a file, or to a new one in this folder.
///
/// # Errors
///
/// If it cannot be written, itself.
pub(super) fn write(
    file: Option<TempFile>,
    folder: &Path,
    bytes: Vec<u8>,
    at: u64,
) -> Result<TempFile, Vec<u8>> {
    let file = file.map_or_else(|| TempFile::open(folder), Ok);
    let written = file.and_then(|file| file.write(&bytes, at).map(|()| file));
    written.map_err(|error| {
        if error.kind() != io::ErrorKind::StorageFull {
            let folder = folder.display();
            tracing::warn!("a body cannot be kept in a file in {folder}: {error}");
        }
        bytes
    })
}

fn unnamed(folder: &Path) -> io::Result<File> {
    let number = getrandom::u64().map_err(io::Error::other)?;
    let path = folder.join(format!("rideau-{number:016x}"));
    let mut options = fs::OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(0o600);
    let file = options.open(&path)?;
    fs::remove_file(&path)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_no_name_and_what_was_written() {
        let folder = rideau_testing::Scratch::new();
        for file in [TempFile::open(folder.path()), named(folder.path())] {
            let file = write(
                Some(file.expect("a file")),
                folder.path(),
                b"hello".to_vec(),
                3,
            );
            let file = file.expect("there is room");
            assert_eq!(file.read(4, 3).expect("it is there"), b"ell");
            assert!(file.read(4, 9).is_err());
            let left = fs::read_dir(folder.path()).expect("a folder").count();
            assert_eq!(left, 0);
        }
    }

    fn named(folder: &Path) -> io::Result<TempFile> {
        unnamed(folder).map(|file| TempFile(Some(Arc::new(file))))
    }

    #[test]
    fn what_cannot_be_written_is_given_back() {
        let folder = Path::new("/nowhere/at/all");
        assert_eq!(
            write(None, folder, b"hello".to_vec(), 0).err(),
            Some(b"hello".to_vec())
        );
    }
}
