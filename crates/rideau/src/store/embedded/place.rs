//! Which file has a name: one that was removed or replaced can still be written, but the
//! next start does not find it.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::store::StoreError;

/// A name, and the file that has it.
#[derive(Debug)]
pub(super) struct Place {
    path: PathBuf,
    file: (u64, u64),
}

impl Place {
    /// An open file has this name.
    pub(super) fn of(path: &Path, file: &File) -> Result<Self, StoreError> {
        Self::with(path, file.metadata())
    }

    /// Whatever has this name now.
    pub(super) fn at(path: &Path) -> Result<Self, StoreError> {
        Self::with(path, fs::metadata(path))
    }

    fn with(path: &Path, about: io::Result<fs::Metadata>) -> Result<Self, StoreError> {
        let about = about.map_err(|error| StoreError::of("look at a file", path, error))?;
        Ok(Self {
            path: path.to_owned(),
            file: (about.dev(), about.ino()),
        })
    }

    /// Whether the file still has its name.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        let is_it = |about: &fs::Metadata| (about.dev(), about.ino()) == self.file;
        match fs::metadata(&self.path) {
            Ok(about) if is_it(&about) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                Err(StoreError::of("look at a file", &self.path, error))
            }
            _ => Err(StoreError::Gone {
                path: self.path.clone(),
            }),
        }
    }
}
