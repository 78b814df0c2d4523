//! A store that could not be written is tried again.

use std::fs;
use std::io::Write;
use std::path::Path;

use super::log::Reach;
use super::{Embedded, Stage, private};
use crate::store::{Piece, Store, StoreError};

/// Shows whether there is room, and goes at once.
const ROOM_NAME: &str = "room";
const ROOM: usize = 2 * 1024 * 1024;

/// How a store was when it could not be written.
#[derive(Debug)]
pub(super) struct Left {
    pub(super) reach: Reach,
    /// The batch that could not be appended.
    pub(super) batch: Option<Vec<u8>>,
}

impl Embedded {
    /// Write on, if what failed may be over. Says no if it cannot be.
    pub(super) fn try_again(&mut self) -> Result<bool, StoreError> {
        let Stage::Stopped { left, .. } = &mut self.stage else {
            return Ok(false);
        };
        let Some(left) = left.take() else {
            return Ok(false);
        };
        let done = self.reopen(&left);
        if let Err(error) = &done
            && error.can_pass()
        {
            self.stage = Stage::Stopped {
                why: error.to_string(),
                left: Some(left),
            };
        }
        done.map(|()| true)
    }

    /// Opens the folder once more, after something failed: what was acknowledged must be
    /// there, and the batch that was being written may be.
    fn reopen(&mut self, left: &Left) -> Result<(), StoreError> {
        make_sure_of_room(&self.folder)?;
        let mut again = Self::open(&self.folder)?;
        let fence = again.fence;
        if fence != self.fence + 1 {
            return Err(StoreError::Fenced {
                fence: self.fence,
                newest: fence - 1,
            });
        }
        let moved = Stage::Stopped {
            why: String::new(),
            left: None,
        };
        let Stage::Opened(opened) = std::mem::replace(&mut again.stage, moved) else {
            unreachable!("a store that was just opened is not read");
        };
        let mut last = Vec::new();
        let (writing, _) = opened.load(&self.folder, fence, &mut |piece| {
            if let Piece::Batch(batch) = piece {
                last.clear();
                last.extend_from_slice(batch);
            }
            Ok(())
        })?;
        let reach = writing.log.reach();
        let is_written = reach.number == left.reach.number + 1
            && left.batch.as_ref().is_some_and(|batch| *batch == last);
        if reach != left.reach && !is_written {
            let what = format!(
                "it has batch {}, and the last that was written is {}",
                reach.number, left.reach.number
            );
            let path = self.folder.clone();
            return Err(StoreError::Corrupt { what, path });
        }
        self.fence = fence;
        self.stage = Stage::Writing(Box::new(writing));
        match &left.batch {
            Some(batch) if !is_written => self.append(batch),
            _ => Ok(()),
        }
    }
}

/// Whether a file could be written, without much ado: to open a store takes a while.
fn make_sure_of_room(folder: &Path) -> Result<(), StoreError> {
    let path = folder.join(ROOM_NAME);
    let write = || {
        let mut file = private::create_file(&path)?;
        file.write_all(&vec![0; ROOM])?;
        file.sync_all()
    };
    let written = write();
    let removed = fs::remove_file(&path);
    let done = written.and(removed);
    done.map_err(|error| StoreError::of("write", &path, error))
}
