//! Crates and modules import only downwards: no circle.
//!
//! The modules of each folder are looked at: each is a file with the folder beside it. What a
//! module and those in it import of each other is no circle.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use crate::imports::{Imports, Modules};
use crate::{read, root};

/// Which of our crates each of them may use.
const ARROWS: &[(&str, &[&str])] = &[
    ("rideau-core", &[]),
    ("rideau", &["rideau-core"]),
    ("rideau-resp", &[]),
    ("rideau-process", &[]),
    ("rideau-config", &["rideau-core", "rideau-process"]),
    (
        "rideau-apps",
        &["rideau", "rideau-config", "rideau-core", "rideau-process"],
    ),
    ("rideau-cluster", &["rideau", "rideau-core", "rideau-resp"]),
    ("rideau-simulate", &["rideau-core"]),
    (
        "rideau-server",
        &[
            "rideau-daemon",
            "rideau",
            "rideau-apps",
            "rideau-cluster",
            "rideau-config",
            "rideau-core",
            "rideau-process",
            "rideau-resp",
            "rideau-simulate",
        ],
    ),
    (
        "rideau-daemon",
        &[
            "rideau",
            "rideau-apps",
            "rideau-cluster",
            "rideau-config",
            "rideau-core",
            "rideau-process",
            "rideau-resp",
        ],
    ),
    ("rideau-testing", &["rideau-core"]),
];

/// The modules of crates whose arrows go down in an order, the highest first.
const LAYERS: &[(&str, &[&str])] = &[
    (
        "rideau-daemon",
        &["serve", "admin", "redis", "view", "net", "state"],
    ),
    (
        "rideau-apps",
        &[
            "front",
            "apps",
            "upstream",
            "client_tls",
            "http1",
            "io_threads",
            "bind",
            "inherited",
            "run_dirs",
            "run_places",
            "events",
            "io_timeout",
            "last_answer",
        ],
    ),
    ("rideau-server", &["cli", "demo", "exit", "wire", "span"]),
];

#[test]
fn circles_are_found() {
    let imports = |arrows: &[(&str, &str)]| {
        let mut imports = Imports::new();
        for (from, to) in arrows {
            imports
                .entry((*from).into())
                .or_default()
                .insert((*to).into());
        }
        imports
    };
    let tree = imports(&[("a", "b"), ("a", "c"), ("b", "c")]);
    assert_eq!(circles(&tree), [] as [Vec<String>; 0]);
    let knot = imports(&[("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("e", "a")]);
    assert_eq!(circles(&knot), [["a", "b", "c"]]);
}

#[test]
fn circles_of_files_are_found() {
    for files in [
        [
            ROOT,
            ("a.rs", "use crate::b::B;"),
            ("b.rs", "use super::a::A;"),
        ],
        [
            ROOT,
            ("a.rs", "use super::{c, b::{self, B}};"),
            ("b.rs", "fn f() { crate::a::f() }"),
        ],
        [
            ROOT,
            ("a.rs", "pub use super::b::B as C;"),
            ("b.rs", "use crate::a::{\n    D,\n};"),
        ],
        // What the root imports comes from where it is.
        [
            ("lib.rs", "mod a;\nmod b;\npub use a::A;\nuse b::*;\n"),
            ("a.rs", "use crate::b;"),
            ("b.rs", "use super::A;"),
        ],
    ] {
        assert_eq!(circles_of(&files), [": a, b (a -> b, b -> a)"], "{files:?}");
    }
    let deep = [
        ("main.rs", "mod a;"),
        (
            "a.rs",
            "mod b;\nmod c;\nmod d;\nuse self::d::D;\nstruct S(D);\n",
        ),
        ("a/b.rs", "mod e;\nuse super::S;"),
        ("a/b/e.rs", "use super::super::c::C;"),
        ("a/c.rs", "use super::D;"),
        ("a/d.rs", "use crate::a::b::B;"),
    ];
    let circle = "a: b, c, d (a/b/e -> a/c, a/c -> a/d, a/d -> a/b)";
    assert_eq!(circles_of(&deep), [circle]);
}

#[test]
fn what_is_no_circle_of_files_is_not_found() {
    for files in [
        [
            ROOT,
            ("a.rs", "use crate::b::B;"),
            ("b.rs", "//! See [`crate::a`].\nuse std::a;"),
        ],
        [
            ROOT,
            ("a.rs", "use crate::b::B;"),
            ("b.rs", "#[cfg(test)]\nuse super::a::A;"),
        ],
        [
            ROOT,
            ("a.rs", "use crate::b::B;"),
            (
                "b.rs",
                "#[cfg(test)]\nmod tests {\n    use super::super::a::A;\n}",
            ),
        ],
        // One in the other is no circle.
        [
            ("lib.rs", "mod a;\nuse a::A;"),
            ("a.rs", "mod b;\nuse b::B;\nuse crate::C;"),
            ("a/b.rs", "use super::A;\nuse crate::C;"),
        ],
        // Not even a name that is imported in a circle, which no compiler would take.
        [
            ROOT,
            ("a.rs", "use crate::b::C;"),
            ("b.rs", "pub use crate::b::C;"),
        ],
    ] {
        assert_eq!(circles_of(&files), [] as [&str; 0], "{files:?}");
    }
}

#[test]
fn no_modules_import_each_other_in_a_circle() {
    let found: Vec<_> = sources()
        .iter()
        .flat_map(|(name, source)| {
            let modules = Modules::read(source);
            assert!(!modules.folders().is_empty(), "{name} has modules");
            let circles = all_circles(&modules);
            circles
                .into_iter()
                .map(move |circle| format!("{name} {circle}"))
        })
        .collect();
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
}

#[test]
fn modules_use_only_those_below_them() {
    for (name, layers) in LAYERS {
        let imports = Modules::read(&root().join("crates").join(name).join("src")).imports(&[]);
        let found: BTreeSet<&str> = imports.keys().map(String::as_str).collect();
        let known: BTreeSet<&str> = layers.iter().copied().collect();
        assert!(found.is_subset(&known), "{name} has {found:?}");
        let level = |module: &String| layers.iter().position(|layer| layer == module);
        for (from, all) in &imports {
            let wrong: Vec<_> = all.iter().filter(|to| level(to) < level(from)).collect();
            assert!(wrong.is_empty(), "{name}: {from} must not use {wrong:?}");
        }
    }
}

#[test]
fn crates_use_only_those_below_them() {
    let mut folders: Vec<_> = std::fs::read_dir(root().join("crates"))
        .expect("there are crates")
        .map(|entry| entry.expect("it can be read").path())
        .collect();
    folders.sort();
    let mut known: Vec<_> = ARROWS.iter().map(|(name, _)| *name).collect();
    known.sort_unstable();
    let name = |folder: &PathBuf| {
        let name = folder.file_name().expect("a crate has a name");
        name.to_string_lossy().into_owned()
    };
    let found: Vec<_> = folders.iter().map(name).collect();
    assert_eq!(found, known, "every crate says what it may use");
    for (name, may) in ARROWS {
        let manifest = read(&root().join("crates").join(name).join("Cargo.toml"));
        let used = dependencies(&manifest);
        let wrong: Vec<_> = used.iter().filter(|used| !may.contains(used)).collect();
        assert!(wrong.is_empty(), "{name} must not use {wrong:?}");
    }
}

#[test]
fn what_only_tests_use_is_no_arrow() {
    let manifest = "[dependencies]\nrideau-core.workspace = true\nserde = \"1\"\n\
                    rideau = { workspace = true }\n\n[dev-dependencies]\nrideau-testing = \"1\"\n";
    assert_eq!(dependencies(manifest), ["rideau-core", "rideau"]);
}

/// Which of our crates a manifest names as dependencies.
fn dependencies(manifest: &str) -> Vec<&str> {
    let (_, rest) = manifest.split_once("[dependencies]\n").unwrap_or_default();
    let section = rest.split("\n[").next().unwrap_or_default();
    let names = section.lines().filter_map(|line| {
        let end = line.find(['.', ' ', '='])?;
        line.get(..end)
    });
    names.filter(|name| name.starts_with("rideau")).collect()
}

/// A root that declares two modules.
const ROOT: (&str, &str) = ("lib.rs", "pub mod a;\nmod b;\n");

fn circles_of(files: &[(&str, &str)]) -> Vec<String> {
    let files = files.iter();
    let files = files.map(|(place, text)| ((*place).to_owned(), (*text).to_owned()));
    all_circles(&Modules::of(&files.collect()))
}

/// The folders with the code of all crates, by their names.
fn sources() -> Vec<(String, PathBuf)> {
    let crates = std::fs::read_dir(root().join("crates")).expect("there are crates");
    let mut folders: Vec<_> = crates
        .map(|entry| entry.expect("it can be read").path())
        .chain([root().join("bench")])
        .collect();
    folders.sort();
    let named = folders.into_iter().map(|folder| {
        let name = folder.file_name().expect("a crate has a name");
        (name.to_string_lossy().into_owned(), folder.join("src"))
    });
    named.collect()
}

/// The circles of all folders of a crate: where, which modules, and what ties them.
fn all_circles(modules: &Modules) -> Vec<String> {
    let mut found = Vec::new();
    for folder in modules.folders() {
        for circle in circles(&modules.imports(folder)) {
            let (place, names) = (folder.join("/"), circle.join(", "));
            let arrows = modules.between(folder, &circle).join(", ");
            found.push(format!("{place}: {names} ({arrows})"));
        }
    }
    found
}

/// All modules that import themselves by way of others, one list for each circle.
fn circles(imports: &Imports) -> Vec<Vec<String>> {
    let reaches: BTreeMap<&String, BTreeSet<&String>> = imports
        .keys()
        .map(|module| (module, reached(imports, module)))
        .collect();
    let mut circles = BTreeSet::new();
    for (module, reached) in &reaches {
        let back = |other: &&String| reaches.get(*other).is_some_and(|far| far.contains(module));
        let circle: Vec<String> = reached.iter().copied().filter(back).cloned().collect();
        if !circle.is_empty() {
            circles.insert(circle);
        }
    }
    circles.into_iter().collect()
}

/// Every module that another imports, directly or by way of others.
fn reached<'a>(imports: &'a Imports, module: &String) -> BTreeSet<&'a String> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<&String> = imports.get(module).into_iter().flatten().collect();
    while let Some(module) = next.pop() {
        if reached.insert(module) {
            next.extend(imports.get(module).into_iter().flatten());
        }
    }
    reached
}
