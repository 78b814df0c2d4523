//! A store that could not be written is tried again.

use std::fs;
use std::io::Write;
use std::path::Path;

use rideau_core::cluster::Partitions;

use super::log::Reach;
use super::{Embedded, Stage, private};
use crate::store::{Piece, StoreError};

/// Shows whether there is room, and goes at once.
const ROOM_NAME: &str = "room";
const ROOM: usize = 2 * 1024 * 1024;

/// How a store was when it could not be written.
#[derive(Debug)]
pub(super) struct Left {
    pub(super) partitions: Partitions,
    pub(super) reach: Reach,
    /// The batch that could not be appended, as it would be written.
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
        let all = &mut |_: u32, _: Piece<'_>| Ok(());
        let (mut writing, _) = opened.load(&self.folder, left.partitions, fence, all)?;
        let reach = writing.log.reach();
        let expected = |batch: &Vec<u8>| writing.log.reach_with(left.reach, batch);
        let is_written = left.batch.as_ref().map(expected) == Some(reach);
        if reach != left.reach && !is_written {
            let what = format!(
                "it has batch {}, and the last that was written is {}",
                reach.number, left.reach.number
            );
            let path = self.folder.clone();
            return Err(StoreError::Corrupt { what, path });
        }
        self.fence = fence;
        if let Some(batch) = left.batch.as_ref().filter(|_| !is_written) {
            writing.append_encoded(batch)?;
            writing.total += batch.len() as u64;
        }
        self.stage = Stage::Writing(Box::new(writing));
        Ok(())
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
