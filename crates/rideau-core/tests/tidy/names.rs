//! Names of types: none that was given up, and one meaning for each.

use std::collections::BTreeMap;

use super::{check_samples, check_workspace, declared_type, read, root, rust_files, without_tests};

/// Names that took a translator, and what has them now.
const FORMER: &[(&str, &str)] = &[
    ("Bell", "TimerWake"),
    ("Census", "ProcessList"),
    ("Door", "Admission, or Acceptor"),
    ("Errand", "ProxyRequest"),
    ("Holdings", "LeaseTable"),
    ("Keeper", "ChildTask"),
    ("Lanes", "IoThreads"),
    ("Meeting", "MatchCell, or HeldMatch"),
    ("Places", "Catalog"),
    ("Shelf", "IdleCache"),
    ("Stock", "PoolShell"),
    ("Terms", "AskOptions"),
    ("Warden", "Reaper"),
    ("Workshop", "RunDirs"),
    ("Worth", "EvictionScore"),
];

#[test]
fn former_names_do_not_come_back() {
    let rule = |path: &str, text: &str| {
        if !path.starts_with("crates/") || !path.contains("/src/") {
            return Vec::new();
        }
        let declared = text.lines().zip(1..).filter_map(|(line, number)| {
            let name = declared_type(line)?;
            let (_, now) = FORMER.iter().find(|(former, _)| *former == name)?;
            Some(format!("line {number}: `{name}` is called {now}"))
        });
        declared.collect()
    };
    check_samples(
        rule,
        &[("crates/a/src/b.rs", "pub(crate) struct Shelf<T> {\n")],
        &[
            ("crates/a/src/b.rs", "struct Shelfmark;\n"),
            ("crates/a/tests/b.rs", "struct Shelf;\n"),
        ],
    );
    check_workspace(rule);
}

/// Names that more than two types have which other files see. Take entries out; put
/// none in. A machine has `Options`, `Stats` and `Effect` under its own name.
const SHARED: &[&str] = &[
    "About",
    "Answer",
    "Came",
    "Counts",
    "Effect",
    "Ended",
    "Entry",
    "Fault",
    "Found",
    "Grant",
    "History",
    "Key",
    "Keys",
    "Law",
    "Left",
    "Limits",
    "Line",
    "Lines",
    "Machine",
    "Member",
    "Method",
    "Options",
    "Order",
    "Origin",
    "Own",
    "Pace",
    "Place",
    "Queue",
    "Reader",
    "Refused",
    "Reply",
    "ReplySlot",
    "Share",
    "Size",
    "Source",
    "Span",
    "Standing",
    "Start",
    "State",
    "Stats",
    "Table",
    "Take",
    "Taken",
    "Text",
    "Told",
    "Wait",
    "Waiting",
    "Word",
    "Words",
];

#[test]
fn a_name_has_one_meaning() {
    let mut files = Vec::new();
    rust_files(&root().join("crates"), &mut files);
    let mut meanings = BTreeMap::<String, usize>::new();
    for file in files {
        let path = file.strip_prefix(root()).expect("files lie below the root");
        let is_below = |folder| path.components().any(|part| part.as_os_str() == folder);
        if !is_below("src") || is_below("tests") {
            continue;
        }
        let text = read(&file);
        let seen = without_tests(&text)
            .lines()
            .filter(|line| line.trim_start().starts_with("pub"));
        for name in seen.filter_map(declared_type) {
            *meanings.entry(name.to_owned()).or_default() += 1;
        }
    }
    assert_eq!(meanings.get("LeaseTable"), Some(&1), "types are found");
    let shared = meanings.iter().filter(|(_, count)| **count > 2);
    let shared: Vec<&str> = shared.map(|(name, _)| name.as_str()).collect();
    assert_eq!(shared, SHARED, "name it after what it is of");
}
