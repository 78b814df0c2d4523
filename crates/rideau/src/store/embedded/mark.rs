//! How far the log must reach, in a file of its own.
//!
//! It is written after each batch and not synced: a process that is killed
//! leaves it behind, and after a power cut it may be a little old, but never
//! ahead. So what it names must be there, and no caller was told of what is missing
//! behind it.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::log::{Reach, check_of, number_at};
use super::place::Place;
use super::private;
use crate::store::StoreError;

pub(super) const NAME: &str = "mark";
const PLACE_LEN: usize = 48;
/// Two places that are written in turn, in different sectors.
const PLACES: [usize; 2] = [0, 512];

/// What was acknowledged last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) fence: u64,
    pub(super) snapshot: u64,
    pub(super) reach: Reach,
}

#[derive(Debug)]
pub(super) struct Mark {
    path: PathBuf,
    file: File,
    salt: u64,
    /// Grows with each writing, so that the newer place is known.
    turn: u64,
}

/// What the file said.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) mark: Mark,
    pub(super) told: Told,
    /// One of the places cannot be read; the other is at most one batch behind.
    pub(super) half: bool,
}

impl Mark {
    pub(super) fn create(folder: &Path, salt: u64) -> Result<(), StoreError> {
        let path = folder.join(NAME);
        let file = private::create_file(&path);
        let file = file.map_err(|error| StoreError::of("create the mark", &path, error))?;
        let mut mark = Self {
            path,
            file,
            salt,
            turn: 0,
        };
        mark.tell(Told::default())?;
        mark.tell(Told::default())?;
        mark.sync()
    }

    pub(super) fn open(folder: &Path, salt: u64) -> Result<Found, StoreError> {
        let path = folder.join(NAME);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let what = "this file is needed and is not there".into();
                return Err(StoreError::Corrupt { what, path });
            }
            Err(error) => return Err(StoreError::of("read the mark", &path, error)),
        };
        let places = PLACES.map(|at| read(&bytes, at, salt));
        let half = places.contains(&None);
        let newest = places.into_iter().flatten().max_by_key(|&(turn, _)| turn);
        let Some((turn, told)) = newest else {
            let what = "how far the log must reach cannot be read from this file".into();
            return Err(StoreError::Corrupt { what, path });
        };
        let file = File::options().write(true).open(&path);
        let file = file.map_err(|error| StoreError::of("open the mark", &path, error))?;
        let mark = Self {
            path,
            file,
            salt,
            turn,
        };
        Ok(Found { mark, told, half })
    }

    /// Writes down what is acknowledged now.
    pub(super) fn tell(&mut self, told: Told) -> Result<(), StoreError> {
        self.turn += 1;
        let mut place = [0; PLACE_LEN];
        let numbers = [
            self.turn,
            told.fence,
            told.snapshot,
            told.reach.number,
            told.reach.check,
        ];
        for (place, number) in place.chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        let check = check_of(self.salt, &[&place[..40]]);
        place[40..].copy_from_slice(&check.to_le_bytes());
        let at = PLACES[usize::from(self.turn.is_multiple_of(2))];
        let written = self.file.write_all_at(&place, at as u64);
        written.map_err(|error| StoreError::of("write the mark", &self.path, error))
    }

    /// The file that has its name.
    pub(super) fn place(&self) -> Result<Place, StoreError> {
        Place::of(&self.path, &self.file)
    }

    pub(super) fn sync(&self) -> Result<(), StoreError> {
        let synced = self.file.sync_all();
        synced.map_err(|error| StoreError::of("sync the mark", &self.path, error))
    }
}

fn read(bytes: &[u8], at: usize, salt: u64) -> Option<(u64, Told)> {
    let place = bytes.get(at..at + PLACE_LEN)?;
    let whole = number_at(place, 40) == check_of(salt, &[&place[..40]]);
    whole.then(|| {
        let told = Told {
            fence: number_at(place, 8),
            snapshot: number_at(place, 16),
            reach: Reach {
                number: number_at(place, 24),
                check: number_at(place, 32),
            },
        };
        (number_at(place, 0), told)
    })
}
