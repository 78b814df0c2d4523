//! The waiting room: a page for browsers that would wait too long.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use rideau_core::WaitingRoomOptions;

use super::error_page;
use super::key::{Form, Key};
use super::keyed::Keyed;
use super::kinds::{Kind, Maybe, Positive, Span};
use super::section::Section;
use super::shown::Rows;
use super::table::section;

section! {
    /// Which browsers wait outside, and what they are shown.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct WaitingRoomConfig {
        /// Browsers that would wait for longer get the page.
        after: Duration = Duration::from_secs(2), Span, Requests;
        /// A page of your own. `{place}`, `{wait}`, `{refresh}` and `{id}` are filled in.
        page: Option<PathBuf> = None, Maybe<PageFile>, Requests, usual = "a plain one",
            sample = r#""/srv/pages/wait.html""#;
        /// A browser that is not back within this after its turn has lost it.
        hold: Duration = Duration::from_secs(30), Positive, Requests;
    }
}

/// How it is written.
pub(super) const ROOM_SAMPLE: &str =
    r#"{ after = "2s", hold = "30s", page = "/srv/pages/wait.html" }"#;

/// A room, or none.
pub(super) struct RoomTable;
/// The file of a page.
struct PageFile;

impl WaitingRoomConfig {
    /// What the machine of the room is told.
    pub const fn options(&self) -> WaitingRoomOptions {
        WaitingRoomOptions {
            after: self.after,
            hold: self.hold,
        }
    }

    /// The text of its own page, if it has one.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, is too long, or is not text.
    pub fn read_page(&self) -> io::Result<Option<String>> {
        self.page.as_deref().map(error_page::read).transpose()
    }
}

impl Kind<PathBuf> for PageFile {
    const FORM: Form = Form::Path;

    fn read(section: &Section<'_>, key: &Key) -> Option<PathBuf> {
        let path = PathBuf::from(section.text(key.name)?);
        section.notes.page(path.clone(), section.at(key.name));
        Some(path)
    }

    fn show(value: &PathBuf, key: &Key, rows: &mut Rows) {
        rows.text(key.name, &value.display().to_string());
    }
}

impl Kind<Option<WaitingRoomConfig>> for RoomTable {
    const FORM: Form = Form::Any(&[
        Form::Table(WaitingRoomConfig::KEYS, || {
            WaitingRoomConfig::default().rows()
        }),
        Form::Words(&["none"]),
    ]);

    fn read(section: &Section<'_>, key: &Key) -> Option<Option<WaitingRoomConfig>> {
        if section.is_word(key.name, "none") {
            return Some(None);
        }
        let part = section.part(key)?;
        let mut room = WaitingRoomConfig::default();
        room.read_keys(&part);
        Some(Some(room))
    }

    fn show(value: &Option<WaitingRoomConfig>, key: &Key, rows: &mut Rows) {
        match value {
            Some(room) => rows.below(key.name, |rows| room.show_keys(rows)),
            None => rows.text(key.name, "none"),
        }
    }
}
