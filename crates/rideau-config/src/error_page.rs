//! Pages of files for the front's own answers.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::key::{Form, Key};
use super::kinds::Kind;
use super::section::{Section, kind_of};
use super::shown::Rows;

/// Bytes of a page.
const LEN_MAX: u64 = 64 << 10;

/// A page, and the answers that it is for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ErrorPage {
    /// Which answers.
    pub status: StatusPattern,
    /// Where it is.
    pub file: PathBuf,
}

/// One status, or all that begin with a digit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum StatusPattern {
    /// As `503`.
    One(u16),
    /// As `5xx`: this digit.
    Class(u8),
}

/// Pages by their status.
pub(super) struct PageFiles;

impl ErrorPage {
    /// The text of the page.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, is too long, or is not text.
    pub fn read(&self) -> io::Result<String> {
        read(&self.file)
    }
}

/// The text of a page.
pub(super) fn read(path: &Path) -> io::Result<String> {
    let file = File::open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    let mut text = Vec::new();
    file.take(LEN_MAX + 1).read_to_end(&mut text)?;
    if text.len() as u64 > LEN_MAX {
        return Err(io::Error::other("it is longer than 64KiB"));
    }
    String::from_utf8(text).map_err(|_| io::Error::other("it is not text in UTF-8"))
}

impl StatusPattern {
    /// Whether it has this status.
    pub const fn has(self, status: u16) -> bool {
        match self {
            Self::One(one) => one == status,
            Self::Class(digit) => status / 100 == digit as u16,
        }
    }

    fn parse(text: &str) -> Option<Self> {
        match text {
            "4xx" => Some(Self::Class(4)),
            "5xx" => Some(Self::Class(5)),
            text => {
                let status = text.parse().ok()?;
                (400..600).contains(&status).then_some(Self::One(status))
            }
        }
    }
}

impl fmt::Display for StatusPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(status) => write!(f, "{status}"),
            Self::Class(digit) => write!(f, "{digit}xx"),
        }
    }
}

impl Kind<Vec<ErrorPage>> for PageFiles {
    const FORM: Form = Form::Names(&Form::Path);

    fn read(section: &Section<'_>, key: &Key) -> Option<Vec<ErrorPage>> {
        let entry = section.entry(key.name)?;
        let Some(table) = entry.item.as_table_like() else {
            let kind = kind_of(entry.item);
            let message = format!("`{}` is {kind}, and has to be a table", key.name);
            let hint = "write { 503 = \"/srv/pages/busy.html\" }";
            section.notes.error(entry.at(), message, hint);
            return None;
        };
        let part = Section::all(section.notes, table, entry.key_at.clone());
        let page = |name: &str, at| {
            let Some(status) = StatusPattern::parse(name) else {
                let message = format!("{name:?} is no status of an error");
                let hint = "write a number from 400 to 599, \"4xx\" or \"5xx\"";
                section.notes.error(at, message, hint);
                return None;
            };
            let file = PathBuf::from(part.text(name)?);
            section.notes.page(file.clone(), part.at(name));
            Some(ErrorPage { status, file })
        };
        let pages = part.entries.iter();
        let pages = pages.filter_map(|entry| page(entry.name, entry.key_at.clone()));
        Some(pages.collect())
    }

    fn show(value: &Vec<ErrorPage>, key: &Key, rows: &mut Rows) {
        rows.below(key.name, |rows| {
            for page in value {
                rows.text(&page.status.to_string(), &page.file.display().to_string());
            }
        });
    }
}
