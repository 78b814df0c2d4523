//! What the modules of a crate take from each other, as their text says.
//!
//! A module is a file with the folder beside it. A name that a module imports and others
//! take from it counts for where it comes from. What only tests import does not count.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::{Parts, identifiers, is_identifier, read, rust_files};

/// Which modules of a folder each of them uses.
pub(crate) type Imports = BTreeMap<String, BTreeSet<String>>;

/// Where a module is, from the root of its crate.
type Place = Vec<String>;

/// The modules of a crate, those for tests left out.
pub(crate) struct Modules(BTreeMap<Place, Module>);

#[derive(Default)]
struct Module {
    /// The names that it imports, with their paths.
    imports: BTreeMap<String, Place>,
    /// All paths in it that begin with `crate` or `super`.
    paths: Vec<Place>,
}

impl Modules {
    /// Those of a crate, by the folder with its root.
    pub(crate) fn read(source: &Path) -> Self {
        let mut files = Vec::new();
        rust_files(source, &mut files);
        let texts = files.iter().map(|file| {
            let place = file.strip_prefix(source).expect("it is there");
            (place.display().to_string(), read(file))
        });
        Self::of(&texts.collect())
    }

    /// Those that are declared from the root on. A file is found by its path from there.
    pub(crate) fn of(files: &BTreeMap<String, String>) -> Self {
        let mut modules = BTreeMap::new();
        let mut next = vec![Place::new()];
        while let Some(place) = next.pop() {
            let names = match &place[..] {
                [] => vec!["lib.rs".to_owned(), "main.rs".to_owned()],
                place => vec![format!("{}.rs", place.join("/"))],
            };
            let Some(text) = names.iter().find_map(|name| files.get(name)) else {
                continue;
            };
            let code = without_test_items(&Parts::of(text).code);
            for child in declared(&code) {
                next.push(place.iter().cloned().chain([child]).collect());
            }
            modules.insert(place, Module::of(&code));
        }
        Self(modules)
    }

    /// The modules that have modules of their own.
    pub(crate) fn folders(&self) -> BTreeSet<&[String]> {
        let above = |place: &'_ Place| place.len().checked_sub(1);
        let places = self.0.keys();
        let folders = places.filter_map(|place| place.get(..above(place)?));
        folders.collect()
    }

    /// What the modules of a folder use of each other.
    pub(crate) fn imports(&self, folder: &[String]) -> Imports {
        let mut imports = Imports::new();
        let inside = |place: &&Place| place.len() > folder.len() && place.starts_with(folder);
        for place in self.0.keys().filter(inside) {
            imports.entry(place[folder.len()].clone()).or_default();
        }
        for (from, to) in self.arrows() {
            if common(&from, &to) == folder {
                let (from, to) = (&from[folder.len()], &to[folder.len()]);
                imports.entry(from.clone()).or_default().insert(to.clone());
            }
        }
        imports
    }

    /// Which file uses which between some modules of a folder.
    pub(crate) fn between(&self, folder: &[String], modules: &[String]) -> Vec<String> {
        let is_one = |place: &Place| modules.contains(&place[folder.len()]);
        let arrows = self
            .arrows()
            .into_iter()
            .filter(|(from, to)| common(from, to) == folder && is_one(from) && is_one(to));
        let arrows = arrows.map(|(from, to)| format!("{} -> {}", from.join("/"), to.join("/")));
        arrows.collect()
    }

    /// Which module uses which. None uses those that it is in, nor those in it: a struct has
    /// fields of types of its module's modules, and they have methods of the struct.
    fn arrows(&self) -> BTreeSet<(Place, Place)> {
        let mut arrows = BTreeSet::new();
        for (from, module) in &self.0 {
            let found = module.paths.iter().filter_map(|path| self.find(from, path));
            for to in found.filter(|to| !to.starts_with(from) && !from.starts_with(to)) {
                arrows.insert((from.clone(), to));
            }
        }
        arrows
    }

    /// In which module a path of a module ends.
    fn find(&self, from: &Place, path: &[String]) -> Option<Place> {
        let mut at = from.clone();
        let mut path = path.to_vec();
        // What imports itself by way of others has no end.
        for _ in 0..self.0.len() {
            let mut names = path.iter();
            let mut rest = names.clone();
            while let Some(name) = names.next() {
                match name.as_str() {
                    "crate" => at.clear(),
                    "super" => _ = at.pop(),
                    "self" => (),
                    _ => break,
                }
                rest = names.clone();
            }
            let mut rest = rest.cloned().peekable();
            while let Some(name) = rest.peek() {
                at.push(name.clone());
                if !self.0.contains_key(&at) {
                    at.pop();
                    break;
                }
                rest.next();
            }
            let Some(name) = rest.next() else {
                return Some(at);
            };
            let Some(import) = self.0.get(&at)?.imports.get(&name) else {
                return Some(at);
            };
            if !self.is_ours(&at, import) {
                return None;
            }
            path = import.iter().cloned().chain(rest).collect();
        }
        None
    }

    /// A path leads to something of this crate.
    fn is_ours(&self, from: &Place, path: &[String]) -> bool {
        let first = path.first().expect("a path has a name");
        let child = from.iter().chain([first]).cloned().collect::<Place>();
        let is_known = self.0.get(from).is_some_and(|module| {
            let import = module.imports.get(first);
            import.is_some_and(|import| import != path)
        });
        matches!(first.as_str(), "crate" | "super" | "self")
            || self.0.contains_key(&child)
            || is_known
    }
}

impl Module {
    fn of(code: &str) -> Self {
        let mut module = Self::default();
        for tree in behind(code, "use ").filter_map(|rest| rest.split(';').next()) {
            let mut leaves = Vec::new();
            add_leaves(&mut leaves, &Place::new(), tree);
            module.imports.extend(leaves);
        }
        for start in ["crate::", "super::"] {
            for rest in behind(code, start) {
                let mut leaves = Vec::new();
                add_leaves(
                    &mut leaves,
                    &Place::new(),
                    &format!("{start}{}", tree(rest)),
                );
                module
                    .paths
                    .extend(leaves.into_iter().map(|(_, path)| path));
            }
        }
        module
    }
}

/// What stands behind each place where a word begins so.
fn behind<'a>(code: &'a str, start: &'a str) -> impl Iterator<Item = &'a str> {
    code.match_indices(start).filter_map(move |(at, _)| {
        let before = code[..at].chars().next_back();
        let begins = before.is_none_or(|c| !is_identifier(c) && c != ':');
        begins.then(|| &code[at + start.len()..])
    })
}

/// The path, or all paths of a group, that a text begins with.
fn tree(text: &str) -> &str {
    let path = text.find(|c| !is_identifier(c) && c != ':');
    let path = path.unwrap_or(text.len());
    let mut depth = 0_u32;
    if !text[path..].starts_with('{') {
        return text[..path].trim_end_matches(':');
    }
    let end = text.find(|c| {
        depth += u32::from(c == '{');
        depth -= u32::from(c == '}');
        c == '}' && depth == 0
    });
    &text[..=end.expect("a group ends")]
}

/// The paths of a tree, each with the name that it has where it is imported.
fn add_leaves(leaves: &mut Vec<(String, Place)>, before: &Place, tree: &str) {
    let (path, group) = match tree.split_once('{') {
        Some((path, group)) => (path, group.rsplit_once('}').map(|(group, _)| group)),
        None => (tree, None),
    };
    let (path, alias) = match path.split_once(" as ") {
        Some((path, alias)) => (path, identifiers(alias).next()),
        None => (path, None),
    };
    let names = path.split("::").map(str::trim);
    let names = names.filter(|name| !name.is_empty() && *name != "*");
    let mut place = before.clone();
    place.extend(names.map(str::to_owned));
    if let Some(group) = group {
        let mut depth = 0_u32;
        let parts = group.split(|c| {
            depth += u32::from(c == '{');
            depth -= u32::from(c == '}');
            c == ',' && depth == 0
        });
        let parts = parts.filter(|part| !part.trim().is_empty());
        return parts.for_each(|part| add_leaves(leaves, &place, part));
    }
    if place.len() > 1 {
        _ = place.pop_if(|name| name == "self");
    }
    if let Some(last) = place.last().map(String::as_str) {
        leaves.push((alias.unwrap_or(last).to_owned(), place));
    }
}

/// The modules that a file declares.
fn declared(code: &str) -> Vec<String> {
    let all = behind(code, "mod ").filter_map(|rest| {
        let (name, _) = rest.split_once(';')?;
        name.chars().all(is_identifier).then(|| name.to_owned())
    });
    all.collect()
}

/// A text without what is compiled for tests alone.
fn without_test_items(code: &str) -> String {
    let mut kept = String::new();
    let mut rest = code;
    let marks = ["#[cfg(test)]", "#[cfg(all(test,"];
    while let Some(at) = marks.iter().filter_map(|mark| rest.find(mark)).min() {
        kept += &rest[..at];
        rest = &rest[at + item_len(&rest[at..])..];
    }
    kept + rest
}

/// How long the item is that a text begins with.
fn item_len(text: &str) -> usize {
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        match c {
            '(' | '[' | '{' => depth += 1,
            // A field, or the last item of a block.
            ')' | ']' | '}' if depth == 0 => return at,
            ')' | ']' | '}' => depth -= 1,
            _ => (),
        }
        if depth == 0 && matches!(c, ';' | '}') {
            return at + 1;
        }
    }
    text.len()
}

/// What two places have in common.
fn common<'a>(one: &'a Place, other: &Place) -> &'a [String] {
    let same = one
        .iter()
        .zip(other)
        .take_while(|(one, other)| one == other);
    &one[..same.count()]
}
