//! Files that the front serves by itself.

use std::path::PathBuf;
use std::time::Duration;

use toml_edit::Item;

use super::access::Days;
use super::core_read::items;
use super::key::{Form, Key};
use super::keyed::Keyed;
use super::kinds::{Answer, FullPath, Kind, OrNone, text_kinds};
use super::section::{Made, Section, kind_of};
use super::shown::Rows;
use super::table::section;

section! {
    /// Files below one folder, for the paths below another.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct StaticFiles {
        /// The files are for paths that begin so. What follows in the path is the file's path below
        /// `root`.
        path: String = "/".into(), FilesPath, Requests;
        /// The folder that has them. It is opened at each request, and links to it are followed;
        /// links in it that lead out of it are not.
        root: PathBuf = PathBuf::new(), FullPath, Requests, usual = "required",
            sample = r#""/srv/shop/public""#;
        /// The file for a folder, or `"none"`.
        index: Option<String> = Some("index.html".into()), OrNone<FileName>, Requests;
        /// For how long clients may use a file without asking again (`Cache-Control`).
        max_age: Option<Duration> = None, OrNone<Days>, Requests, sample = r#""1h""#;
        /// A client that takes it gets `NAME.zst`, `NAME.br` or `NAME.gz` instead of a file
        /// `NAME`, if that is beside it and not older.
        precompressed: bool = true, Answer, Requests;
    }
}

/// How it is written.
pub(super) const STATIC_SAMPLE: &str = r#"[
  { path = "/assets", root = "/srv/shop/public", max_age = "1h" },
  { path = "/", root = "/srv/shop/pages", index = "index.html", precompressed = true },
]"#;

/// A table of files, a list of such tables, or none.
pub(super) struct StaticTables;

text_kinds! {
    /// How paths of requests begin: without a slash at the end, which is no matter.
    FilesPath: String, Form::Text, |text, _| prefix(text), |path| path.clone();

    /// The name of a file in any folder.
    FileName: String, Form::Text, |text, key| match text.is_empty()
        || text.starts_with('.')
        || text.contains(['/', '\0']) {
        true => Err((
            format!("`{}` cannot be {text:?}", key.name),
            "write the name of a file alone, such as \"index.html\", or \"none\"".into(),
        )),
        false => Ok(text.into()),
    }, |name| name.clone();
}

fn prefix(text: &str) -> Made<String> {
    let is_bad = |c: char| c.is_whitespace() || c.is_control() || "?*#%\\".contains(c);
    let is_hidden = text.contains("/.") || text.contains("//");
    if !text.starts_with('/') || text.contains(is_bad) || is_hidden {
        let message = format!("{text:?} is not the beginning of a path");
        let hint = "write it as \"/assets\": all below it belongs to it";
        return Err((message, hint.into()));
    }
    Ok(match text.trim_end_matches('/') {
        "" => "/".into(),
        text => text.into(),
    })
}

impl Kind<Vec<StaticFiles>> for StaticTables {
    const FORM: Form = Form::Any(&[
        Form::Table(StaticFiles::KEYS, || StaticFiles::default().rows()),
        Form::List(&Form::Table(StaticFiles::KEYS, || {
            StaticFiles::default().rows()
        })),
        Form::Words(&["none"]),
    ]);

    fn read(section: &Section<'_>, key: &Key) -> Option<Vec<StaticFiles>> {
        let entry = section.entry(key.name)?;
        if section.is_word(key.name, "none") {
            return Some(Vec::new());
        }
        let mut all: Vec<StaticFiles> = Vec::new();
        for item in items(entry.item) {
            let at = Item::span(&item).unwrap_or_else(|| entry.at());
            let Some(table) = item.as_table_like() else {
                let kind = kind_of(&item);
                let message = format!("`{}` is {kind}, and has to be a table", key.name);
                let hint = "write { path = \"/assets\", root = \"/srv/shop/public\" }, a list of \
                            such tables, or \"none\"";
                section.notes.error(at, message, hint);
                continue;
            };
            let part = Section::open(section.notes, table, at, "`static`", key.below());
            let mut files = StaticFiles::default();
            files.read_keys(&part);
            files.check(&part);
            let is_known = all.iter().any(|known| known.path == files.path);
            if is_known && !part.is_blamed("path") {
                let message = format!("there are files for {:?} twice", files.path);
                let hint = "give each another `path`, or take one away";
                section.notes.error(part.at("path"), message, hint);
            }
            all.push(files);
        }
        Some(all)
    }

    fn show(value: &Vec<StaticFiles>, key: &Key, rows: &mut Rows) {
        match &value[..] {
            [] => rows.text(key.name, "none"),
            [files] => rows.below(key.name, |rows| files.show_keys(rows)),
            all => rows.tables(key.name, all, Keyed::show_keys),
        }
    }
}

impl StaticFiles {
    fn check(&self, part: &Section<'_>) {
        if !part.has("root") {
            let message = "`static` does not say where the files are";
            let hint = "write root = \"/srv/shop/public\"";
            part.notes.error(part.at.clone(), message, hint);
        } else if !part.is_blamed("root") {
            part.notes.folder(self.root.clone(), part.at("root"));
        }
    }
}
