//! Crates and modules import only downwards: no circle.
//!
//! A module is a file beside `lib.rs` with its folder. What only tests import does not
//! count.

use std::collections::{BTreeMap, BTreeSet};

use crate::{Exports, Parts, names_after, read, root, rust_files, without_tests};

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
            "http1",
            "io_threads",
            "bind",
            "inherited",
            "run_dirs",
            "run_places",
            "events",
            "io_timeout",
        ],
    ),
    (
        "rideau-server",
        &["main", "cli", "demo", "exit", "wire", "span"],
    ),
];
/// Folders of the program whose modules are looked at for circles.
const FOLDERS: &[&str] = &[
    "rideau-apps/src",
    "rideau-apps/src/apps",
    "rideau-apps/src/front",
    "rideau-cluster/src",
    "rideau-cluster/src/links",
    "rideau-config/src",
    "rideau-process/src",
    "rideau-resp/src",
    "rideau/src",
    "rideau-core/src",
    "rideau-daemon/src",
    "rideau-daemon/src/admin",
    "rideau-daemon/src/redis",
    "rideau-daemon/src/redis/commands",
    "rideau-daemon/src/serve",
    "rideau-daemon/src/state",
    "rideau-daemon/src/view",
    "rideau-server/src",
    "rideau-server/src/cli",
];

type Imports = BTreeMap<String, BTreeSet<String>>;

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
fn the_program_has_no_circle_of_modules() {
    for folder in FOLDERS {
        let found = circles(&imports(folder));
        assert_eq!(found, [] as [Vec<String>; 0], "{folder}");
    }
}

#[test]
fn modules_use_only_those_below_them() {
    for (name, layers) in LAYERS {
        let imports = imports(&format!("{name}/src"));
        let found: BTreeSet<&str> = imports.keys().map(String::as_str).collect();
        let known: BTreeSet<&str> = layers.iter().copied().chain(["lib"]).collect();
        assert!(found.is_subset(&known), "{name} has {found:?}");
        let level = |module: &String| layers.iter().position(|layer| layer == module);
        for (from, all) in imports.iter().filter(|(from, _)| *from != "lib") {
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
    let name = |folder: &std::path::PathBuf| {
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

/// Which modules each module of a folder imports.
fn imports(folder: &str) -> Imports {
    let source = &root().join("crates").join(folder);
    let mut files = Vec::new();
    rust_files(source, &mut files);
    let above = folder
        .split_once("/src/")
        .map(|(_, above)| above.replace('/', "::"));
    let path = above.map_or("crate::".to_owned(), |above| format!("crate::{above}::"));
    let places: Vec<String> = files
        .iter()
        .map(|file| file.strip_prefix(source).expect("it is there"))
        .map(|place| place.display().to_string())
        .collect();
    let modules: BTreeSet<&str> = places.iter().map(|place| module_of(place)).collect();
    let lib = source.join("lib.rs");
    let exports = Exports::of(&if lib.exists() {
        read(&lib)
    } else {
        String::new()
    });
    let mut imports = Imports::new();
    for (file, place) in files.iter().zip(&places) {
        if module_of(place) == "tests" {
            continue;
        }
        let code = Parts::of(&read(file)).code;
        let here = module_of(place);
        let mut names = names_after(without_tests(&code), &path);
        if !place.contains('/') {
            names.extend(names_after(without_tests(&code), "super::"));
        }
        let names = names.into_iter().map(|name| exports.module_of(name));
        let others = names.filter(|name| *name != here && modules.contains(name));
        let known = imports.entry(here.to_owned()).or_default();
        known.extend(others.map(str::to_owned));
    }
    imports
}

fn module_of(place: &str) -> &str {
    place.split(['/', '.']).next().expect("a split has a part")
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
