//! Changes the text of a config where one value is not enough, and writes it.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use rideau_config::text::PathFault;
use toml_edit::{DocumentMut, Item, Table};

use super::Unchanged;

/// The text with a thing of this kind more, whose keys stand in `keys`.
pub(super) fn add(kind: &str, text: &str, name: &str, keys: &str) -> Result<String, Unchanged> {
    let not_toml = |_| Unchanged::Path(PathFault::NotToml);
    let mut document: DocumentMut = text.parse().map_err(not_toml)?;
    let keys: DocumentMut = keys.parse().map_err(not_toml)?;
    let trailing = keys.trailing().as_str().unwrap_or_default().to_owned();
    let mut thing = keys.as_table().clone();
    place_last(&mut thing);
    if !text.is_empty() {
        thing.decor_mut().set_prefix("\n");
    }
    let things = document.entry(kind).or_insert_with(|| {
        let mut things = Table::new();
        things.set_implicit(true);
        Item::Table(things)
    });
    match things {
        Item::Table(things) => {
            things.insert(name, Item::Table(thing));
        }
        Item::Value(value) => {
            let things = value.as_inline_table_mut();
            let things = things.ok_or(Unchanged::Path(PathFault::NoTable { part: kind.into() }))?;
            things.insert(name, thing.into_inline_table().into());
        }
        _ => return Err(Unchanged::Path(PathFault::IsTable)),
    }
    let mut text = document.to_string();
    // Comments at the end of the keys belong to the thing.
    if !trailing.trim().is_empty() {
        text.push_str(&trailing);
    }
    if !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(text)
}

/// Forget where the tables stood in another text: they come last.
fn place_last(table: &mut Table) {
    table.set_position(None);
    for (_, item) in table.iter_mut() {
        if let Item::Table(below) = item {
            place_last(below);
        }
    }
}

/// The text without a thing of this kind; none if it is not there.
pub(super) fn remove(kind: &str, text: &str, name: &str) -> Result<Option<String>, Unchanged> {
    let document: Result<DocumentMut, _> = text.parse();
    let mut document = document.map_err(|_| Unchanged::Path(PathFault::NotToml))?;
    let things = document.get_mut(kind).and_then(Item::as_table_like_mut);
    let removed = things.and_then(|things| things.remove(name));
    Ok(removed.map(|_| document.to_string()))
}

/// Write a file as a whole: a process that reads it sees the old text or the new one.
pub(super) fn write(file: &Path, text: &str) -> io::Result<()> {
    // A link stays a link.
    let file = fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let new = file.with_file_name(name);
    let written = write_new(&new, &file, text).and_then(|()| fs::rename(&new, &file));
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written
}

fn write_new(new: &Path, file: &Path, text: &str) -> io::Result<()> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    // It may hold hashes of passwords: no other account sees it before it has the mode
    // of the old one.
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut out = options.open(new)?;
    if let Ok(old) = fs::metadata(file) {
        out.set_permissions(old.permissions())?;
    }
    out.write_all(text.as_bytes())?;
    out.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# ours\n[pool.a] # first\nmax = 3\n\n[broker.b]\n";

    #[test]
    fn a_pool_comes_and_goes_and_the_comments_stay() {
        let keys = "member = { list = [\"x\"] }\n[queue]\nmax = 7\n";
        let more = add("pool", TEXT, "new one", keys).unwrap();
        assert!(
            more.starts_with("# ours\n[pool.a] # first\nmax = 3\n"),
            "{more}"
        );
        let added = "[pool.\"new one\"]\nmember = { list = [\"x\"] }\n\
                     [pool.\"new one\".queue]\nmax = 7\n";
        assert!(more.contains(added), "{more}");
        assert!(more.contains("[broker.b]\n"), "{more}");
        let lines = |text: &str| -> Vec<String> {
            let lines = text.lines().filter(|line| !line.is_empty());
            lines.map(str::to_owned).collect()
        };
        let back = remove("pool", &more, "new one").unwrap().unwrap();
        assert_eq!(lines(&back), lines(TEXT));
        let less = remove("pool", TEXT, "a").unwrap().unwrap();
        assert!(
            less.ends_with("[broker.b]\n") && !less.contains("max"),
            "{less}"
        );
    }

    #[test]
    fn a_pool_can_be_the_first() {
        let text = add("pool", "", "a", "max = 2").unwrap();
        assert_eq!(text, "[pool.a]\nmax = 2\n");
        let inline = add("pool", "pool = { b = { max = 1 } }\n", "a", "max = 2").unwrap();
        let inline = inline.replace(" ,", ",");
        assert_eq!(inline, "pool = { b = { max = 1 }, a = { max = 2 } }\n");
    }

    #[test]
    fn what_is_not_there_cannot_be_removed() {
        assert_eq!(remove("pool", TEXT, "z").unwrap(), None);
    }
}
