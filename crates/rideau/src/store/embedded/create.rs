//! A folder that becomes a store, and what tells which format it has.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::log::{self, Log};
use super::mark::{self, Mark};
use super::private;
use super::snapshots::{self, Snapshots, State};
use crate::store::StoreError;

/// Says which format a folder has. Read before anything else.
const FORMAT_NAME: &str = "format";
/// A batch is what one partition wrote.
const FORMAT: u32 = 1;
/// A batch has sections of several partitions.
const FORMAT_OF_MANY: u32 = 2;
const FORMAT_TEXT: &str = "rideau store ";
/// Stands there until the folder holds all that it needs.
const CREATING_TEXT: &str = "rideau store is being created";

/// Whether the folder holds a store of this format. Not if there is none yet,
/// or if its creation was interrupted.
pub(super) fn is_created(folder: &Path) -> Result<bool, StoreError> {
    let path = folder.join(FORMAT_NAME);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return if holds_remains(folder)? {
                let what = "this file is needed and is not there".into();
                Err(StoreError::Corrupt { what, path })
            } else {
                Ok(false)
            };
        }
        Err(error) if error.kind() == io::ErrorKind::InvalidData => String::new(),
        Err(error) => return Err(StoreError::of("read the format", &path, error)),
    };
    if text == CREATING_TEXT {
        return Ok(false);
    }
    let found = text
        .strip_prefix(FORMAT_TEXT)
        .and_then(|text| text.strip_suffix('\n'));
    match found.and_then(|found| found.parse().ok()) {
        Some(FORMAT | FORMAT_OF_MANY) => Ok(true),
        Some(found) if found > FORMAT_OF_MANY => Err(StoreError::Newer {
            path,
            found,
            known: FORMAT_OF_MANY,
        }),
        _ => Err(StoreError::Corrupt {
            what: "this file does not say which format the folder has".into(),
            path,
        }),
    }
}

/// From now on the folder has sections of several partitions, which versions that do not
/// know them have to hear.
pub(super) fn set_format_of_many(folder: &Path) -> Result<(), StoreError> {
    let path = folder.join(FORMAT_NAME);
    let text = format!("{FORMAT_TEXT}{FORMAT_OF_MANY}\n");
    let is_set = fs::read_to_string(&path).is_ok_and(|found| found == text);
    let set = if is_set {
        Ok(())
    } else {
        replace_file(&path, &text)
    };
    set.map_err(|error| StoreError::of("write the format", &path, error))
}

/// Whether a store was here once.
fn holds_remains(folder: &Path) -> Result<bool, StoreError> {
    if !folder.exists() {
        return Ok(false);
    }
    let named = [snapshots::NAME, mark::NAME]
        .iter()
        .any(|name| folder.join(name).exists());
    Ok(named || !log::files(folder)?.is_empty())
}

/// Creates an empty store. Until it is whole the folder says so, and the next
/// start begins anew.
pub(super) fn create(folder: &Path) -> Result<Snapshots, StoreError> {
    let path = folder.join(FORMAT_NAME);
    let begun = private::create_folder(folder).and_then(|()| begin_file(&path, CREATING_TEXT));
    begun.map_err(|error| StoreError::of("create a store", folder, error))?;
    let state = State::new();
    let snapshots = Snapshots::create(folder)?;
    // Another process may have been faster before this one had the lock.
    if is_created(folder)? {
        return Ok(snapshots);
    }
    snapshots.set(0, &[state])?;
    Log::create(folder, state.file, state.salt, state.reach, None)?;
    Mark::create(folder, state.salt)?;
    let ended = replace_file(&path, &format!("{FORMAT_TEXT}{FORMAT}\n"));
    ended.map_err(|error| StoreError::of("create a store", folder, error))?;
    Ok(snapshots)
}

/// Puts a small file where none is. It is there whole, or not at all.
fn begin_file(path: &Path, text: &str) -> io::Result<()> {
    let new = write_beside(path, text)?;
    match fs::hard_link(new, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        linked => linked.and_then(|()| sync_name(path)),
    }
}

/// Puts a small file in the place of another, in one step.
fn replace_file(path: &Path, text: &str) -> io::Result<()> {
    fs::rename(write_beside(path, text)?, path)?;
    sync_name(path)
}

fn write_beside(path: &Path, text: &str) -> io::Result<PathBuf> {
    let new = path.with_extension("new");
    // The one that is there may be another name of the file itself.
    if new.exists() {
        fs::remove_file(&new)?;
    }
    let mut file = private::create_file(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    Ok(new)
}

/// Makes the names of a file and of its folder outlive a power cut.
fn sync_name(path: &Path) -> io::Result<()> {
    let folders = path.ancestors().skip(1).take(2);
    for folder in folders.filter(|folder| !folder.as_os_str().is_empty()) {
        log::sync_folder(folder)?;
    }
    Ok(())
}
